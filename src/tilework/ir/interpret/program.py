"""Kernels as nested blocks of steps, and how such a program runs.

Every node is computed in the outermost block whose open loops are all that it depends on, so a
value is computed once per iteration of the loops that matter to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.errors import BoundsError, InternalError
from tilework.ir.interpret.memory import Cells, cells_of_bytes
from tilework.ir.interpret.steps import FAULTS, TEAM
from tilework.ir.interpret.tensors import evaluate
from tilework.ir.node import toposort
from tilework.ir.ops import control, memory
from tilework.ir.ops import index as index_ops
from tilework.ir.ops.index import Unit
from tilework.ir.symbolic import dims

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tilework.ir.interpret.memory import Bytes
    from tilework.ir.interpret.steps import Frame
    from tilework.ir.node import Node

#: Slots that every frame has: the faults (steps.FAULTS), the part of THREAD ranges to run, and the
#: thread of a block that runs (steps.TEAM), None where all threads run one after the other.
BEGIN, STOP, FIRST_FREE = 1, 2, 4


class Block:
    """Steps that run together: the whole kernel, the body of a loop, or what an IF guards."""

    __slots__ = ("parent", "ranges", "slots", "steps")

    def __init__(self, parent: Block | None, ranges: frozenset[Node]) -> None:
        self.parent = parent
        self.ranges = ranges
        self.slots: dict[Node, int] = {}
        self.steps: list[Callable[[Frame], None]] = []

    def find(self, node: Node) -> int | None:
        """The slot of `node` if this block or one around it computes it."""
        block: Block | None = self
        while block is not None:
            if node in block.slots:
                return block.slots[node]
            block = block.parent
        return None

    def outermost_for(self, free: frozenset[Node]) -> Block:
        """The outermost block around this one in which all of `free` are open."""
        block = self
        if not free <= block.ranges:
            missing = next(iter(free - block.ranges))
            raise InternalError("range: used outside of its loop", got=repr(missing))
        while block.parent is not None and free <= block.parent.ranges:
            block = block.parent
        return block


def loop_step(slot: int, size: int, body: Block, unit: Unit) -> Callable[[Frame], None]:
    """The step that runs a block for each value of a range."""
    steps = body.steps

    def loop(frame: Frame) -> None:
        for at in range(frame[size]):
            frame[slot] = at
            for step in steps:
                step(frame)

    def loop_part(frame: Frame) -> None:
        stop = frame[size] if frame[STOP] is None else frame[STOP]
        for at in range(frame[BEGIN], stop):
            frame[slot] = at
            for step in steps:
                step(frame)

    def loop_thread(frame: Frame) -> None:
        member = frame[TEAM]
        if member is None:
            loop(frame)
            return
        frame[slot] = member.coordinates[unit]
        for step in steps:
            step(frame)

    if unit is Unit.THREAD:
        return loop_part
    return loop_thread if unit is Unit.WARP or unit is Unit.LOCAL else loop


class Program:
    """A kernel made ready to run; it may run many times."""

    def __init__(self, root: Node) -> None:
        self.main = Block(None, frozenset())
        self.count = FIRST_FREE
        nodes = toposort(root)
        self.parameters = [node for node in nodes if node.op is memory.PARAM]
        self.variables = [node for node in nodes if node.op is index_ops.VARIABLE]
        self.allocations = [node for node in nodes if node.op is control.ALLOCATE]
        self.nodes = nodes
        for node in (*self.parameters, *self.variables, *self.allocations):
            self.main.slots[node] = self.new_slot()

    def new_slot(self) -> int:
        """A slot that no node has."""
        slot = self.count
        self.count += 1
        return slot

    def run(
        self,
        buffers: Sequence[Bytes],
        variables: Mapping[str, int],
        begin: int = 0,
        end: int | None = None,
    ) -> list[int]:
        """Run on these buffers; returns the codes of the faults met, each once."""
        frame = self.frame(buffers, variables, begin, end)
        for step in self.main.steps:
            step(frame)
        faults: list[int] = frame[FAULTS]
        return faults

    def frame(
        self,
        buffers: Sequence[Bytes],
        variables: Mapping[str, int],
        begin: int = 0,
        end: int | None = None,
    ) -> Frame:
        """The slots before the first step: memory and variables."""
        frame: Frame = [None] * self.count
        frame[FAULTS] = []
        frame[BEGIN], frame[STOP] = begin, end
        values: dict[Node, int] = {}
        for node in self.variables:
            values[node] = frame[self.main.slots[node]] = _variable(node, variables)
        for node in self.parameters:
            frame[self.main.slots[node]] = _parameter(node, buffers, values)
        self._allocate(frame)
        return frame

    def _allocate(self, frame: Frame) -> None:
        attrs = [node.attrs for node in self.allocations]
        ends = [a.offset_bytes + a.count * a.dtype.itemsize for a in attrs]
        # Memory that nobody wrote reads as a pattern that spoils results, not as zeros.
        scratch = memoryview(bytearray(b"\xa5" * max(ends, default=0)))
        for node in self.allocations:
            a = node.attrs
            part = scratch[a.offset_bytes :]
            name = f"the allocation at byte {a.offset_bytes}"
            frame[self.main.slots[node]] = cells_of_bytes(part, a.dtype, a.count, name)


def _variable(node: Node, variables: Mapping[str, int]) -> int:
    attrs = node.attrs
    if attrs.name not in variables:
        raise BoundsError(f"variable: {attrs.name} has no value")
    value = variables[attrs.name]
    if not attrs.minimum <= value <= attrs.maximum:
        raise BoundsError(
            f"variable: {attrs.name} lies outside of its bounds",
            got=value,
            expected=f"{attrs.minimum} <= {attrs.name} <= {attrs.maximum}",
        )
    return value


def _parameter(node: Node, buffers: Sequence[Bytes], values: Mapping[Node, int]) -> Cells:
    slot = node.attrs.slot
    if not 0 <= slot < len(buffers):
        raise BoundsError("param: there is no such buffer", got=f"{node!r}, {len(buffers)} buffers")
    dtype = node.type.dtype
    size = dims.product(node.type.shape)
    if isinstance(size, int):
        count = size
    elif all(each in values for each in toposort(size) if each.op is index_ops.VARIABLE):
        count = int(evaluate(size, values).item())
    else:  # a kernel that reads some fixed elements need not know how many there are
        count = min(dims.greatest(size), memoryview(buffers[slot]).nbytes // dtype.itemsize)
    return cells_of_bytes(buffers[slot], dtype, count, f"parameter {slot}")
