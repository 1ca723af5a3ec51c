"""Partial evaluation of a captured program: what depends on constants alone is computed once.

A captured program holds buffers that it only reads: weights.  Where the compiler would rather read
them packed in panels, the kernel is split (`codegen.plan.prepack`); copies of constants run when
the program is linked and again only if their source was written meanwhile, which the counter of
its memory tells.  The results stay the same bit for bit: packing changes no order of additions.
It costs a second copy of such weights; `Settings.prepack` turns it off.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import eq
from typing import TYPE_CHECKING, Final

from tilework.base import settings
from tilework.base.collection import no_collection
from tilework.base.errors import InternalError
from tilework.base.integers import round_up
from tilework.base.records import dataclass, replace
from tilework.dtypes import int32, uint32
from tilework.engine.compile import compile_as_named
from tilework.engine.device import Device
from tilework.engine.hoist import constant_steps
from tilework.engine.link import LinkedSteps
from tilework.engine.splits import Packing, Split, find_split
from tilework.engine.steps import (
    FoldCall,
    KernelCall,
    Operand,
    PlannedCall,
    PlannedStep,
    PoisonCall,
    Step,
    VariableBounds,
    compile_steps,
    written_slots,
)
from tilework.ir.node import toposort
from tilework.ir.ops.math import MUL
from tilework.ir.ops.tensor import REDUCE

if TYPE_CHECKING:
    from tilework.engine.hoist import Hoisted
    from tilework.ir.node import Node
    from tilework.runtime.buffer import Buffer, Memory


#: Copies that run at every replay begin at multiples of so many bytes.
_ALIGNMENT: Final = 256


@dataclass(slots=True)
class PackedProgram:
    """The steps of a program with packing split off.

    Attributes:
        steps: What runs at every replay; slots from `first_free` on have moved up.
        packed: Buffers of packed constants, in the slots from `first_free` on.
        copies: The steps that fill them, over the same slots.
        temporary: (device, bytes) of memory for copies that run at every replay, in the last slots.
        is_fresh: The copies hold what they would hold after being made again.
    """

    steps: tuple[PlannedStep, ...]
    packed: list[Buffer]
    copies: tuple[PlannedCall, ...]
    temporary: list[tuple[str, int]]
    is_fresh: bool


@dataclass(slots=True)
class _Copy:
    """A packed copy, and how often each memory that it was made from had been written."""

    buffer: Buffer
    sources: tuple[tuple[Memory, float], ...]

    def is_current(self) -> bool:
        return all(memory.changes == changes for memory, changes in self.sources)


class Copies:
    """Packed copies that a capture has made while it ran, for its program to go on with."""

    def __init__(self) -> None:
        self._rows: dict[tuple[Node, tuple[tuple[int, int, int], ...]], _Copy] = {}

    def find(self, kernel: Node, sources: Sequence[Buffer]) -> Buffer | None:
        """Return the copy that `kernel` has made of these parts of memory, if it still holds."""
        found = self._rows.get((kernel, _places(sources)))
        return None if found is None or not found.is_current() else found.buffer

    def add(self, kernel: Node, sources: Sequence[Buffer], buffer: Buffer) -> None:
        """Note what `kernel` has made."""
        changes = tuple((source.memory, source.memory.changes) for source in sources)
        self._rows[kernel, _places(sources)] = _Copy(buffer, changes)


def _places(buffers: Sequence[Buffer]) -> tuple[tuple[int, int, int], ...]:
    return tuple((id(each.memory), each.offset_bytes, each.size_bytes) for each in buffers)


def split_packing(
    steps: Sequence[PlannedStep],
    buffers: Sequence[Buffer | None],
    first_free: int,
    num_slots: int,
    copies: Copies,
    intermediates: range = range(0),
) -> PackedProgram | None:
    """Split packing off the kernels of a program, where the compiler likes it.

    Args:
        steps: The program.
        buffers: The memory of each slot that may hold a constant, by slot; None for the others.
        first_free: The slot before which packed constants are inserted.
        num_slots: All slots.
        copies: What has been packed already.
        intermediates: Slots of memory that nobody sees: steps that leave there what depends on
            constants alone run once, too.

    Returns:
        The new program; None where nothing changes.
    """
    if not settings.current().prepack:
        return None
    written = written_slots(steps)
    constant = {
        slot
        for slot, buffer in enumerate(buffers)
        if buffer is not None
        and slot not in written
        and (buffer.memory.lease is None or buffer.memory.is_readonly)
    }
    splits = _decide(steps, constant)
    hoisted = constant_steps(steps, frozenset(constant), intermediates, splits)
    if not splits and not hoisted.results:
        return None
    return _Rewrite(steps, splits, hoisted, buffers, first_free, num_slots, copies).result()


def run_packed(
    steps: Sequence[PlannedStep],
    variables: Sequence[VariableBounds],
    slots: Sequence[Buffer],
    constants: Sequence[Buffer | None],
    values: Mapping[str, int],
    copies: Copies,
) -> bool:
    """Run a schedule in the form that a capture of it will have, so that it is compiled once.

    Args:
        steps: The schedule's.
        variables: The schedule's.
        slots: The buffers by slot.
        constants: The same, None where a slot may be written or be another one at a replay.
        values: Of the variables by name.
        copies: Gets what is packed.

    Returns:
        Whether it has run; if not, nothing has been done.

    Raises: what compiling and running raise.
    """
    program = split_packing(steps, constants, len(slots), len(slots), copies)
    if program is None:
        return False
    compiled = compile_steps([*program.copies, *program.steps])
    temporary = [Device[device].allocate(size) for device, size in program.temporary]
    LinkedSteps(compiled, variables).run([*slots, *program.packed, *temporary], values)
    for step in program.copies:
        target, *operands = step.operands
        sources = [_part(slots, operand) for operand in operands]
        copies.add(step.kernel, sources, program.packed[target.slot - len(slots)])
    return True


def _part(slots: Sequence[Buffer | None], operand: Operand) -> Buffer:
    buffer = slots[operand.slot]
    if buffer is None:
        raise InternalError("prepack: a constant has no memory", got=operand.slot)
    return buffer.view(operand.offset_bytes, operand.size_bytes)


def _decide(steps: Sequence[PlannedStep], constant: set[int]) -> dict[int, Split]:
    """Which steps are split, and how; what is decided is compiled while the next is."""
    splits: dict[int, Split] = {}

    def kernels_on(device: str) -> Iterator[Node]:
        for number, step in enumerate(steps):
            if not isinstance(step, PlannedCall) or step.device != device:
                continue
            split = _split(step, constant)
            if split is None:
                yield step.kernel
                continue
            splits[number] = split
            yield from (pack.kernel for pack in split.packs)
            yield split.kernel

    calls = [step for step in steps if isinstance(step, PlannedCall)]
    count = len({step.kernel for step in calls})
    for device in dict.fromkeys(step.device for step in calls):
        with no_collection():
            compile_as_named(Device[device], kernels_on(device), count)
    return splits


def _split(step: PlannedStep, constant: set[int]) -> Split | None:
    """What the compiler of the step's device makes of its kernel; None to leave it."""
    if not isinstance(step, PlannedCall):
        return None
    positions = frozenset(
        position for position, operand in enumerate(step.operands) if operand.slot in constant
    )
    if not positions and not _sums_integers(step.kernel):
        return None
    return find_split(Device[step.device], step.kernel, positions)


def _sums_integers(kernel: Node) -> bool:
    """May a kernel have sums of one factor alone, which are better made once? (Zero points.)"""
    return any(
        node.op is REDUCE and node.dtype in (int32, uint32) and node.src[0].op is MUL
        for node in toposort(kernel)
    )


class _Rewrite:
    """Builds the new program; equal copies of one buffer are made once."""

    def __init__(
        self,
        steps: Sequence[PlannedStep],
        splits: dict[int, Split],
        hoisted: Hoisted,
        buffers: Sequence[Buffer | None],
        first_free: int,
        num_slots: int,
        made: Copies,
    ) -> None:
        self.steps = steps
        self.splits = splits
        self.hoisted = hoisted
        #: By the number of a step that runs once and the position of a result: where it is left.
        self.results: dict[tuple[int, int], Operand] = {}
        self.buffers = buffers
        self.first_free = first_free
        self.num_slots = num_slots
        self.made = made
        self.is_fresh = True
        self.packed: list[Buffer] = []
        self.known: dict[tuple[Node, tuple[Operand, ...]], int] = {}
        self.copies: list[PlannedCall] = []
        self.temporary: dict[str, int] = {}

    def result(self) -> PackedProgram:
        # Constants first: their number decides where the later slots move.
        for number in self.hoisted.results:
            self._hoist(number)
        for number, split in self.splits.items():
            kernel_step = self._kernel_step(number)
            total = 0
            for pack in split.packs:
                if pack.is_constant:
                    self._packed_slot(kernel_step, pack)
                else:
                    total += round_up(pack.size_bytes, _ALIGNMENT)
            if total:
                size = self.temporary.get(kernel_step.device, 0)
                self.temporary[kernel_step.device] = max(size, total)
        new: list[PlannedStep] = []
        for number, step in enumerate(self.steps):
            if number in self.hoisted.results:
                continue
            found = self.splits.get(number)
            if found is None:
                new.append(self._moved(step, number))
            else:
                new += self._split_step(number, found)
        temporary = list(self.temporary.items())
        return PackedProgram(tuple(new), self.packed, tuple(self.copies), temporary, self.is_fresh)

    def _kernel_step(self, number: int) -> PlannedCall:
        step = self.steps[number]
        if not isinstance(step, PlannedCall):
            raise InternalError("prepack: a copy between devices has no kernel", got=repr(step))
        return step

    def _packed_slot(self, step: PlannedCall, pack: Packing) -> int:
        sources = tuple(step.operands[slot] for slot in pack.sources)
        key = (pack.kernel, sources)
        slot = self.known.get(key)
        if slot is None:
            slot = self.known[key] = self.first_free + len(self.packed)
            parts = [_part(self.buffers, operand) for operand in sources]
            buffer = self.made.find(pack.kernel, parts)
            if buffer is None:
                self.is_fresh = False
                buffer = Device[step.device].allocate(pack.size_bytes)
            self.packed.append(buffer)
            target = Operand(slot, 0, pack.size_bytes)
            self.copies.append(PlannedCall(step.device, pack.kernel, (target, *sources)))
        return slot

    def _hoist(self, number: int) -> None:
        """Have a step run once, into memory of its own; equal steps run once for all."""
        step, written = self._kernel_step(number), self.hoisted.results[number]
        operands = [
            self.results[self.hoisted.readers[number, place]]
            if (number, place) in self.hoisted.readers
            else operand
            for place, operand in enumerate(step.operands)
        ]
        sources = tuple([each for place, each in enumerate(operands) if place not in written])
        key = (step.kernel, sources)
        first = self.known.get(key)
        if first is None:
            first = self.known[key] = self.first_free + len(self.packed)
            self.is_fresh = False
        for slot, place in enumerate(written, first):
            size = operands[place].size_bytes
            if slot == self.first_free + len(self.packed):
                self.packed.append(Device[step.device].allocate(size))
            self.results[number, place] = operands[place] = Operand(slot, 0, size)
        call = PlannedCall(step.device, step.kernel, tuple(operands))
        if call not in self.copies:
            self.copies.append(call)

    def _operands(self, number: int, operands: Sequence[Operand]) -> list[Operand]:
        """Where a step of the new program finds what one of the old had."""
        readers = self.hoisted.readers
        return [
            self.results[readers[number, place]]
            if (number, place) in readers
            else self._moved_operand(operand)
            for place, operand in enumerate(operands)
        ]

    def _moved_operand(self, operand: Operand) -> Operand:
        if operand.slot < self.first_free:
            return operand
        return replace(operand, slot=operand.slot + len(self.packed))

    def _moved(self, step: PlannedStep, number: int) -> PlannedStep:
        if isinstance(step, (PlannedCall, FoldCall)):
            return replace(step, operands=tuple(self._operands(number, step.operands)))
        if isinstance(step, PoisonCall):
            return replace(step, target=self._moved_operand(step.target))
        return replace(
            step,
            target=self._moved_operand(step.target),
            source=self._moved_operand(step.source),
        )

    def _split_step(self, number: int, split: Split) -> list[PlannedStep]:
        """The copies that must run each time, then the kernel over packed buffers."""
        step = self._kernel_step(number)
        operands = self._operands(number, step.operands)
        new: list[PlannedStep] = []
        left: list[Operand] = []
        offset = 0
        for pack in split.packs:
            if pack.is_constant:
                operands.append(Operand(self._packed_slot(step, pack), 0, pack.size_bytes))
                continue
            device = list(self.temporary).index(step.device)
            slot = self.num_slots + len(self.packed) + device
            target = Operand(slot, offset, pack.size_bytes)
            offset += round_up(pack.size_bytes, _ALIGNMENT)
            sources = tuple(operands[source] for source in pack.sources)
            new.append(PlannedCall(step.device, pack.kernel, (target, *sources)))
            operands.append(target)
            left.append(target)
        new.append(PlannedCall(step.device, split.kernel, tuple(operands)))
        if settings.current().poison:
            new += [PoisonCall(step.device, target) for target in left]
        return new


class PackedConstants:
    """Keeps the packed copies of a program's constants up to date.

    Args:
        copies: The steps that make them.
        held: The buffers of the slots after the inputs.
        num_inputs: Slots of inputs.
        is_fresh: The copies are up to date now.
    """

    def __init__(
        self,
        copies: Sequence[Step],
        held: Sequence[Buffer],
        num_inputs: int,
        *,
        is_fresh: bool = False,
    ) -> None:
        self.copies = copies
        self._held = held
        self._num_inputs = num_inputs
        #: The memories that were copied, and their counts of writes then; empty before.
        self.sources: list[Memory] = []
        self.seen: list[float] = []
        targets = written_slots(copies)
        #: What the copies take besides the constants themselves.
        self.size_bytes = sum(held[slot - num_inputs].size_bytes for slot in targets)
        for step in copies:
            if isinstance(step, KernelCall):
                for operand in step.operands:
                    memory = held[operand.slot - num_inputs].memory
                    if operand.slot not in targets and memory not in self.sources:
                        self.sources.append(memory)
        if is_fresh:
            self.seen = [memory.changes for memory in self.sources]

    def again(self) -> PackedConstants:
        """The same copies of what is held now, all to be made again."""
        return PackedConstants(self.copies, self._held, self._num_inputs)

    def refresh(self) -> None:
        """Run the copies, if this is the first time or a source was written since."""
        changes = [memory.changes for memory in self.sources]
        # One by one: lists take an object for equal to itself, and NaN is not.
        if len(changes) == len(self.seen) and all(map(eq, changes, self.seen)):
            return
        slots: list[Buffer | None] = [None] * self._num_inputs
        LinkedSteps(self.copies).run([*slots, *self._held], {})
        self.seen[:] = changes
