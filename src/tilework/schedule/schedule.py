"""What scheduling gives: the calls in order, the buffers that they need, and why."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from tilework.base.records import dataclass

if TYPE_CHECKING:
    from tilework.dtypes import DType
    from tilework.ir.node import Node
    from tilework.ir.types import Dim, Shape

#: The code of FAULT_IF for an index outside of its axis.
FAULT_INDEX = 1


def index_fault(size: Dim) -> int:
    """The code of an index outside an axis of `size`, whose bits above the lowest 8 are size + 1.

    Example:
        >>> hex(index_fault(4))
        '0x501'
    """
    return FAULT_INDEX | (size + 1) << 8 if isinstance(size, int) else FAULT_INDEX


class SlotKind(Enum):
    """Who gives the memory of a slot."""

    INPUT = "input"
    OUTPUT = "output"
    ARENA = "arena"


@dataclass(frozen=True, slots=True)
class Slot:
    """One buffer that a run needs; `size_bytes` is the most, if its size is symbolic."""

    kind: SlotKind
    size_bytes: int
    shape: Shape
    dtype: DType
    device: str


@dataclass(frozen=True, slots=True)
class KernelReport:
    """Why a call exists: what it writes and the reason of each materialisation.

    `reasons` has one line per stored value.  `read_bytes` and `written_bytes` count each buffer
    once, at its greatest size.
    """

    kind: str
    stores: tuple[str, ...]
    reasons: tuple[str, ...]
    buffers: int
    read_bytes: int
    written_bytes: int
    nodes: int


@dataclass(frozen=True, slots=True)
class Intermediates:
    """What the planner was given: the most bytes alive at one call, and all buffers together.

    The first is of each device, added up.  No plan needs less than `live_bytes`; without sharing
    they would need `unshared_bytes`.
    """

    live_bytes: int = 0
    unshared_bytes: int = 0


#: A slot, an offset into it, and a number of bytes.
SlotBytes = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Schedule:
    """The calls of a function in order, and the slots that they read and write.

    Args:
        linear: LINEAR of CALLs whose arguments are PARAM(slot) or BUFFER_VIEW(PARAM(slot)).
        slots: inputs first (as the function's PARAMs), then outputs, then arenas.
        outputs: the slot of each output of the function; for an in-place write its input's slot.
        reports: one per CALL.
        intermediates: how much the arenas had to hold.
        dead: for each call, the bytes of arenas that hold nothing after it; empty unless the
            setting `poison` asked for it.
    """

    linear: Node
    slots: tuple[Slot, ...]
    outputs: tuple[int, ...]
    reports: tuple[KernelReport, ...]
    intermediates: Intermediates = Intermediates()
    dead: tuple[tuple[SlotBytes, ...], ...] = ()

    @property
    def arena_bytes(self) -> int:
        """Bytes of all arenas together: the predicted peak of intermediates."""
        return sum(slot.size_bytes for slot in self.slots if slot.kind is SlotKind.ARENA)


@dataclass(frozen=True, slots=True)
class Limits:
    """Where kernels are cut and what is fused; part of the key of the schedule caches.

    Args:
        nodes: most values in a kernel, so that compile time stays linear.
        buffers: most buffers of a kernel (a device's argument limit may be lower).
        uses: most index patterns at which one value is computed again.
        cheap_work: ALU work per element up to which a value is never stored to save work.
        memory_work: work that reading or writing one element costs, in simple ALU operations.
        memory_work_on: for kinds of devices, the same where something else than `memory_work`:
            a GPU computes hundreds of values in the time that one takes to be written and read.
        computed_again_on: kinds of devices whose memory is so slow that values are computed again
            by all that read them, down to what they load.
        launch_work: work that one more kernel costs.
        serial_rows: fewer rows than this leave threads idle, so long rows are reduced first.
        serial_elements: elements of all rows together up to which that does not matter.
        small_elements: elementwise kernels up to this size are put into one launch.
        small_elements_on: for kinds of devices, up to which size that is so for kernels that run
            along rows alone: a GPU starts no sooner than it has computed a million elements.
        cascades_on: kinds of devices whose kernels keep tiles of rows, so that folds along one
            axis, which depend on each other, may end in a product inside of one kernel.
        scores_stored_on: for kinds of devices whose matrix registers multiply what lies in memory,
            the dtype of their factors, and up to how many bytes scores are stored for that where
            they else were part of a cascade.
        matrix_units_on: kinds of devices whose products take factors that matrix instructions have
            left in registers: they keep tiles so alone, factors of products are stored as narrow
            as those are read, and rounded before they are turned.
        recomputed_from: for kinds of devices, from how many bytes on products that are larger than
            their factors are computed again by each kernel, instead of stored.
        scans_whole_on: kinds of devices on which blocks of threads share the rows of scans.
        scatters_chosen_on: kinds of devices on which a scatter of one element for each row of a
            constant is computed where it is read, and not stored.
        scatters_split_on: kinds of devices on which a long scatter of integers is done by parts.
        collectives_on: by kind of devices, those of a group of processes by a kind of their own
            ("WORLD+CUDA"), which folds of which dtypes a library carries out between them.
        linked_on: kinds of devices that have links to each other, and memory of their own.
        layouts_on: kinds of devices for which intermediates may be stored in another order than
            row by row.
        layouts_by_windows_on: of those, the kinds of devices on which only schedules that sum over
            windows do so, and nothing that long folds read moves: blocks of threads want rows.
        pitched_on: kinds of devices on which rows of intermediates start at multiples of 16 bytes.
        joins_equal_loops_on: kinds of devices on which small kernels become one launch only if they
            have the same loops.
    """

    nodes: int = 512
    buffers: int = 48
    uses: int = 8
    cheap_work: int = 4
    memory_work: int = 20
    memory_work_on: tuple[tuple[str, int], ...] = (("CUDA", 60),)
    computed_again_on: tuple[str, ...] = ("CUDA",)
    launch_work: int = 50_000
    serial_rows: int = 16
    serial_elements: int = 1 << 17
    small_elements: int = 1 << 16
    small_elements_on: tuple[tuple[str, int], ...] = (("CUDA", 1 << 20),)
    cascades_on: tuple[str, ...] = ("CPU",)
    scores_stored_on: tuple[tuple[str, str, int], ...] = ()
    matrix_units_on: tuple[str, ...] = ("CUDA",)
    recomputed_from: tuple[tuple[str, int], ...] = (("CPU", 1 << 24), ("CUDA", 1 << 20))
    scans_whole_on: tuple[str, ...] = ("CUDA",)
    scatters_chosen_on: tuple[str, ...] = ("CUDA",)
    scatters_split_on: tuple[str, ...] = ("CPU",)
    collectives_on: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()
    linked_on: tuple[str, ...] = ("CUDA",)
    layouts_on: tuple[str, ...] = ("CPU", "CUDA")
    layouts_by_windows_on: tuple[str, ...] = ("CUDA",)
    pitched_on: tuple[str, ...] = ("CUDA",)
    joins_equal_loops_on: tuple[str, ...] = ("CUDA",)

    def memory_work_of(self, device: str) -> int:
        """Work that reading or writing one element costs on a device."""
        return dict(self.memory_work_on).get(kind_of(device), self.memory_work)


DEFAULT_LIMITS = Limits()


def kind_of(device: str) -> str:
    """The kind of a device, as `Limits` names it: "CUDA" of "CUDA:1" and of "WORLD+CUDA:1"."""
    return device.partition(":")[0].rpartition("+")[2]


def is_of_the_world(device: str) -> bool:
    """Whether a device is that of a process among several, as "WORLD+CUDA:1" is."""
    return device.startswith("WORLD+")


def explain_schedule(schedule: Schedule) -> str:
    """A table of the kernels: what each stores and why, its buffers and bytes."""
    lines = []
    for number, report in enumerate(schedule.reports):
        lines.append(
            f"{number}: {report.kind}, {report.buffers} buffers, reads {report.read_bytes} B, "
            f"writes {report.written_bytes} B, {report.nodes} nodes"
        )
        for stored, reason in zip(report.stores, report.reasons, strict=True):
            lines.append(f"    {stored}: {reason}")
    needs = schedule.intermediates
    lines.append(
        f"intermediates: {schedule.arena_bytes} B, {needs.live_bytes} B of them alive at once, "
        f"{needs.unshared_bytes} B without sharing"
    )
    return "\n".join(lines)
