"""The runs of a capture as one program: every buffer gets a slot, intermediates an arena.

Steps whose results nobody reads are left out (`engine.prune`), and what is only read of constants
is packed once, when the program is made (`engine.prepack`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tilework.base import settings
from tilework.base.errors import AliasError, InternalError
from tilework.base.records import dataclass, field, replace
from tilework.engine.arena import Lifetime, plan_arena
from tilework.engine.captured_program import CapturedProgram
from tilework.engine.overlap import contains, share_a_byte
from tilework.engine.prepack import Copies, PackedConstants, split_packing
from tilework.engine.prune import Range, live_steps
from tilework.engine.steps import (
    CopyCall,
    FoldCall,
    Operand,
    PlannedCall,
    PlannedStep,
    PoisonCall,
    VariableBounds,
    compile_steps,
    operands_of,
    written_slots,
)
from tilework.schedule.schedule import SlotKind

if TYPE_CHECKING:
    from tilework.runtime.buffer import Buffer
    from tilework.schedule.schedule import Slot


@dataclass(slots=True)
class Run:
    """One engine run: its steps over its slots, and the buffers that were there."""

    steps: tuple[PlannedStep, ...]
    slots: tuple[Slot, ...]
    buffers: list[Buffer | None]  # None for arenas, which die with the run


@dataclass(slots=True)
class _Made:
    """Memory that a run of the capture made and that is no output."""

    device: str
    size_bytes: int
    first: int
    last: int
    place: int = -1  # its number among the intermediates of its device


@dataclass(slots=True)
class ProgramBuilder:
    """Gives every buffer of every run a slot of the whole program.

    Slots: inputs, held buffers, outputs, one arena per device.
    """

    inputs: Sequence[Buffer]
    outputs: Sequence[Buffer]
    held: Sequence[Buffer]
    copies: Copies
    _fixed: list[Buffer] = field(default_factory=list)
    _by_memory: dict[int, list[int]] = field(default_factory=dict)
    _made: dict[int, _Made] = field(default_factory=dict)
    _arenas: dict[str, list[Lifetime | _Made]] = field(default_factory=dict)
    _steps: list[tuple[PlannedStep, list[tuple[int, int] | tuple[str, int, int]]]] = field(
        default_factory=list
    )
    _devices: dict[int, str] = field(default_factory=dict)
    #: How many steps there were after each run.
    _run_ends: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._fixed = [*self.inputs, *self.held, *self.outputs]
        for slot, buffer in enumerate(self._fixed):
            self._by_memory.setdefault(id(buffer.memory), []).append(slot)

    def add(self, time: int, run: Run) -> None:
        """Append the steps of one run."""
        places = [
            self._place_of(time, slot, buffer)
            for slot, buffer in zip(run.slots, run.buffers, strict=True)
        ]
        for step in run.steps:
            self._steps.append((step, [places[operand.slot] for operand in operands_of(step)]))
        self._run_ends.append(len(self._steps))

    def _place_of(self, time: int, slot: Slot, buffer: Buffer | None) -> Any:
        """(slot, offset) for what has a slot, (device, number, offset) for what is in an arena."""
        arena = self._arenas.setdefault(slot.device, [])
        if buffer is None:
            arena.append(Lifetime(slot.size_bytes, time, time))
            return (slot.device, len(arena) - 1, 0)
        for number in self._by_memory.get(id(buffer.memory), ()):
            fixed = self._fixed[number]
            if contains(fixed, buffer):
                self._check_owner(number, buffer)
                self._devices.setdefault(number, slot.device)
                return (number, buffer.offset_bytes - fixed.offset_bytes)
            if number >= len(self.inputs) and fixed.overlaps(buffer):
                raise AliasError("capture: an argument overlaps other memory", got=repr(buffer))
        self._check_owner(-1, buffer)
        made = self._made.get(id(buffer.memory))
        if made is None:
            if slot.kind is not SlotKind.OUTPUT:
                raise InternalError("capture: a buffer of unknown origin", got=repr(buffer))
            made = _Made(slot.device, slot.size_bytes, time, time, len(arena))
            self._made[id(buffer.memory)] = made
            arena.append(made)
        made.last = time
        return (made.device, made.place, buffer.offset_bytes)

    def _poison_made(self) -> None:
        """Poison what a run has made for later ones, once the last of those is done."""
        wanted: dict[int, list[_Made]] = {}
        for made in self._made.values():
            wanted.setdefault(self._run_ends[made.last], []).append(made)
        for place in sorted(wanted, reverse=True):
            self._steps[place:place] = [
                (
                    PoisonCall(made.device, Operand(0, 0, made.size_bytes)),
                    [(made.device, made.place, 0)],
                )
                for made in wanted[place]
            ]

    def _prune(self) -> None:
        """Drop the steps whose results nobody reads."""
        if settings.current().poison:
            self._poison_made()
        touched = [
            [_bytes_of(old, place) for old, place in zip(operands_of(step), places, strict=True)]
            for step, places in self._steps
        ]
        keep = live_steps([step for step, _ in self._steps], touched)
        self._steps = [row for row, is_live in zip(self._steps, keep, strict=True) if is_live]

    def _check_owner(self, owner: int, buffer: Buffer) -> None:
        """Refuse a buffer that could be part of several inputs: a replay can't tell of which."""
        for number, other in enumerate(self.inputs):
            if number == owner or not other.overlaps(buffer):
                continue
            if owner < 0 or contains(other, buffer):
                raise AliasError("capture: two arguments share memory", got=repr(buffer))

    def _check_written(self, written: Iterable[int]) -> None:
        for slot in written:
            for number, other in enumerate(self.inputs):
                if number != slot and slot < len(self.inputs) and share_a_byte(
                    other, self.inputs[slot]
                ):  # fmt: skip
                    raise AliasError("capture: two arguments share memory", got=repr(other))

    def _used(self) -> set[tuple[Any, ...]]:
        """The intermediates that steps touch: device, and number there."""
        return {
            place[:2]
            for step, places in self._steps
            for place in places
            if len(place) == 3 and not isinstance(step, PoisonCall)
        }

    def build(self, variables: tuple[VariableBounds, ...]) -> CapturedProgram:
        """Plan the arenas and return the program."""
        self._prune()
        first_arena = len(self.inputs) + len(self.held) + len(self.outputs)
        used = self._used()
        used_devices = {name for name, _ in used}
        devices = [name for name in self._arenas if name in used_devices]
        offsets: dict[str, list[int]] = {}
        sizes: list[tuple[str, int]] = []
        for name in devices:
            lives = [
                Lifetime(row.size_bytes if (name, place) in used else 0, row.first, row.last)
                for place, row in enumerate(self._arenas[name])
            ]
            offsets[name], total = plan_arena(lives)
            sizes.append((name, total))

        def operand(old: Operand, place: Any) -> Operand:
            if len(place) == 2:
                slot, offset = place
            else:
                slot = first_arena + devices.index(place[0])
                offset = offsets[place[0]][place[1]] + place[2]
            return Operand(slot, offset + old.offset_bytes, old.size_bytes)

        steps: list[PlannedStep] = []
        for step, places in self._steps:
            if isinstance(step, PoisonCall):
                if places[0][:2] in used:
                    steps.append(replace(step, target=operand(step.target, places[0])))
            elif isinstance(step, (PlannedCall, FoldCall)):
                moved = tuple(map(operand, step.operands, places))
                steps.append(replace(step, operands=moved))
            else:
                target, source = map(operand, (step.target, step.source), places)
                steps.append(CopyCall(step.target_device, step.source_device, target, source))
        missing = [slot for slot in range(first_arena) if slot not in self._devices]
        if any(slot >= len(self.inputs) + len(self.held) for slot in missing):
            raise InternalError("capture: an output was not made by the captured function")
        outputs = tuple(
            (self._devices[len(self.inputs) + len(self.held) + number], buffer.size_bytes)
            for number, buffer in enumerate(self.outputs)
        )
        self._check_written(written_slots(steps))
        return self._program(steps, sizes, outputs, variables)

    def _program(
        self,
        steps: list[PlannedStep],
        sizes: list[tuple[str, int]],
        outputs: tuple[tuple[str, int], ...],
        variables: tuple[VariableBounds, ...],
    ) -> CapturedProgram:
        """The program of these steps, with what depends on constants alone split off."""
        constants = [*[None] * len(self.inputs), *self.held]
        first_arena = len(constants) + len(outputs)
        arenas = range(first_arena, first_arena + len(sizes))
        packed = split_packing(steps, constants, len(constants), arenas.stop, self.copies, arenas)
        if packed is None:
            compiled = compile_steps(steps)
            return CapturedProgram(
                compiled, len(self.inputs), tuple(self.held), outputs, tuple(sizes), variables
            )
        held = [*self.held, *packed.packed]
        compiled = compile_steps([*packed.copies, *packed.steps])
        program = CapturedProgram(
            compiled[len(packed.copies) :],
            len(self.inputs),
            tuple(held),
            outputs,
            (*sizes, *packed.temporary),
            variables,
        )
        program.packed = PackedConstants(
            compiled[: len(packed.copies)],
            program.held,
            len(self.inputs),
            is_fresh=packed.is_fresh,
        )
        return program


def _bytes_of(operand: Operand, place: Any) -> Range:
    """The bytes that an operand is; what has a slot of its own is seen by others."""
    if len(place) == 2:
        return Range(None, 0, 0)
    start = place[2] + operand.offset_bytes
    return Range(place[:2], start, start + operand.size_bytes)
