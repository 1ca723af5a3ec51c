"""Partial evaluation of a captured program: what depends on constants alone is computed once.

A captured program holds buffers that it only reads: weights.  Where the compiler would rather read
them packed in panels, the kernel is split (`codegen.plan.prepack`); copies of constants run when
the program is linked and again only if their source was written meanwhile, which the counter of
its memory tells.  The results stay the same bit for bit: packing changes no order of additions.
It costs a second copy of such weights; `Settings.prepack` turns it off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tilework.base import settings
from tilework.base.errors import InternalError
from tilework.engine.compile import CompiledKernel, compile_kernels
from tilework.engine.device import Device
from tilework.engine.link import (
    KernelCall,
    LinkedSteps,
    Operand,
    Step,
    serial_call,
    written_slots,
)
from tilework.engine.splits import Packing, Split, find_split

if TYPE_CHECKING:
    from tilework.ir.node import Node
    from tilework.runtime.buffer import Buffer, Memory


@dataclass(slots=True)
class PackedProgram:
    """The steps of a program with packing split off.

    Attributes:
        steps: What runs at every replay; slots from `first_output` on have moved up.
        packed: Buffers of packed constants, held after those that the program held before.
        copies: The steps that fill them, over the same slots.
        temporary: (device, bytes) of memory for copies that run at every replay.
    """

    steps: tuple[Step, ...]
    packed: list[Buffer]
    copies: tuple[Step, ...]
    temporary: list[tuple[str, int]]


def split_packing(
    steps: Sequence[Step], num_inputs: int, held: Sequence[Buffer], num_slots: int
) -> PackedProgram | None:
    """Split packing off the kernels of a program, where the compiler likes it.

    Args:
        steps: The program.
        num_inputs: Slots of inputs, the first ones.
        held: Buffers of the slots after the inputs.
        num_slots: All slots.

    Returns:
        The new program; None where nothing changes.
    """
    if not settings.current().prepack:
        return None
    first_output = num_inputs + len(held)
    written = written_slots(steps)
    constant = {
        num_inputs + number
        for number, buffer in enumerate(held)
        if num_inputs + number not in written
        and (buffer.memory.lease is None or buffer.memory.is_readonly)
    }
    splits: dict[int, Split] = {}
    for number, step in enumerate(steps):
        split = _split(step, constant)
        if split is not None:
            splits[number] = split
    if not splits:
        return None
    return _Rewrite(steps, splits, first_output, num_slots).result()


def _split(step: Step, constant: set[int]) -> Split | None:
    """What the compiler of the step's device makes of its kernel; None to leave it."""
    if not isinstance(step, KernelCall) or step.kernel is None:
        return None
    positions = frozenset(
        position for position, operand in enumerate(step.operands) if operand.slot in constant
    )
    return find_split(Device[step.device], step.kernel, positions) if positions else None


class _Rewrite:
    """Builds the new program; equal copies of one buffer are made once."""

    def __init__(
        self, steps: Sequence[Step], splits: dict[int, Split], first_output: int, num_slots: int
    ) -> None:
        self.steps = steps
        self.splits = splits
        self.first_output = first_output
        self.num_slots = num_slots
        self.packed: list[Buffer] = []
        self.known: dict[tuple[Node, tuple[Operand, ...]], int] = {}
        self.copies: list[tuple[str, Node, tuple[Operand, ...]]] = []
        self.temporary: dict[str, int] = {}
        self.codes: dict[tuple[str, Node], CompiledKernel] = {}

    def result(self) -> PackedProgram:
        self._compile_all()
        # Constants first: their number decides where the later slots move.
        for number, split in self.splits.items():
            kernel_step = self._kernel_step(number)
            for pack in split.packs:
                if pack.is_constant:
                    self._packed_slot(kernel_step, pack)
                else:
                    size = self.temporary.get(kernel_step.device, 0)
                    self.temporary[kernel_step.device] = max(size, pack.size_bytes)
        new: list[Step] = []
        for number, step in enumerate(self.steps):
            found = self.splits.get(number)
            if found is None:
                new.append(self._moved(step))
            else:
                new += self._split_step(self._kernel_step(number), found)
        copies = tuple(
            serial_call(device, kernel, operands, self._compile(device, kernel))
            for device, kernel, operands in self.copies
        )
        return PackedProgram(tuple(new), self.packed, copies, list(self.temporary.items()))

    def _kernel_step(self, number: int) -> KernelCall:
        step = self.steps[number]
        if not isinstance(step, KernelCall):
            raise InternalError("prepack: a copy between devices has no kernel", got=repr(step))
        return step

    def _compile_all(self) -> None:
        """Compile all kernels at once, so that they are built beside each other."""
        wanted: dict[str, list[Node]] = {}
        for number, split in self.splits.items():
            row = wanted.setdefault(self._kernel_step(number).device, [])
            row += [split.kernel, *(pack.kernel for pack in split.packs)]
        for device, kernels in wanted.items():
            codes = compile_kernels(Device[device], kernels)
            self.codes.update(zip([(device, kernel) for kernel in kernels], codes, strict=True))

    def _compile(self, device: str, kernel: Node) -> CompiledKernel:
        return self.codes[device, kernel]

    def _packed_slot(self, step: KernelCall, pack: Packing) -> int:
        sources = tuple(step.operands[slot] for slot in pack.sources)
        key = (pack.kernel, sources)
        slot = self.known.get(key)
        if slot is None:
            slot = self.known[key] = self.first_output + len(self.packed)
            self.packed.append(Device[step.device].allocate(pack.size_bytes))
            target = Operand(slot, 0, pack.size_bytes)
            self.copies.append((step.device, pack.kernel, (target, *sources)))
        return slot

    def _moved_operand(self, operand: Operand) -> Operand:
        if operand.slot < self.first_output:
            return operand
        return replace(operand, slot=operand.slot + len(self.packed))

    def _moved(self, step: Step) -> Step:
        if isinstance(step, KernelCall):
            return replace(step, operands=tuple(map(self._moved_operand, step.operands)))
        return replace(
            step,
            target=self._moved_operand(step.target),
            source=self._moved_operand(step.source),
        )

    def _split_step(self, step: KernelCall, split: Split) -> list[Step]:
        """The copies that must run each time, then the kernel over packed buffers."""
        operands = list(map(self._moved_operand, step.operands))
        new: list[Step] = []
        for pack in split.packs:
            if pack.is_constant:
                operands.append(Operand(self._packed_slot(step, pack), 0, pack.size_bytes))
                continue
            device = list(self.temporary).index(step.device)
            slot = self.num_slots + len(self.packed) + device
            target = Operand(slot, 0, pack.size_bytes)
            sources = tuple(operands[source] for source in pack.sources)
            code = self._compile(step.device, pack.kernel)
            new.append(serial_call(step.device, pack.kernel, (target, *sources), code))
            operands.append(target)
        code = self._compile(step.device, split.kernel)
        new.append(serial_call(step.device, split.kernel, tuple(operands), code))
        return new


class PackedConstants:
    """Keeps the packed copies of a program's constants up to date."""

    def __init__(self, copies: Sequence[Step], held: Sequence[Buffer], num_inputs: int) -> None:
        self.copies = copies
        self._held = held
        self._num_inputs = num_inputs
        #: The memories that were copied, and their counts of writes then; empty before.
        self.sources: list[Memory] = []
        self.seen: list[int] = []
        targets = written_slots(copies)
        #: What the copies take besides the constants themselves.
        self.size_bytes = sum(held[slot - num_inputs].size_bytes for slot in targets)
        for step in copies:
            if isinstance(step, KernelCall):
                for operand in step.operands:
                    memory = held[operand.slot - num_inputs].memory
                    if operand.slot not in targets and memory not in self.sources:
                        self.sources.append(memory)

    def again(self) -> PackedConstants:
        """The same copies of what is held now, all to be made again."""
        return PackedConstants(self.copies, self._held, self._num_inputs)

    def refresh(self) -> None:
        """Run the copies, if this is the first time or a source was written since."""
        changes = [memory.changes for memory in self.sources]
        if changes == self.seen:
            return
        slots: list[Buffer | None] = [None] * self._num_inputs
        LinkedSteps(self.copies).run([*slots, *self._held], {})
        self.seen[:] = changes
