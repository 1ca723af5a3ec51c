"""The meaning of the KERNEL, TILED and LOWERED stages: ranges are loops, in ascending order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilework.base.errors import InternalError, UnsupportedError
from tilework.ir.free_ranges import Ranges, free_ranges
from tilework.ir.interpret import folds
from tilework.ir.interpret.memory import Cells
from tilework.ir.interpret.program import Block, Program, loop_step
from tilework.ir.interpret.scalars import op_function
from tilework.ir.interpret.steps import constant, fill, lift, make_step
from tilework.ir.ops import control, math, memory, tensor
from tilework.ir.ops import index as index_ops

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tilework.ir.interpret.memory import Bytes
    from tilework.ir.interpret.steps import Frame
    from tilework.ir.node import Node


def run_kernel(
    sink: Node, buffers: Sequence[Bytes], variables: Mapping[str, int] | None = None
) -> list[int]:
    """Run a kernel of the stages KERNEL, TILED or LOWERED.

    Args:
        sink: The SINK of its STOREs and FAULT_IFs.
        buffers: Memory of PARAM(0), PARAM(1), ...; written in place.
        variables: The value of each VARIABLE by name.

    Returns:
        The codes of the FAULT_IFs whose condition held, each once.

    Raises:
        BoundsError: A load or store lies outside of its buffer; the message names the node.
    """
    return compile_kernel(sink).run(buffers, variables or {})


def compile_kernel(sink: Node) -> Program:
    """A kernel made ready to run many times."""
    program = Program(sink)
    _Emitter(program).emit_nest(program.main, list(sink.src))
    return program


def _by_number(ranges: Ranges) -> list[Node]:
    return sorted(ranges, key=lambda node: (node.attrs.number, node.attrs.unit.value))


class _Emitter:
    """Puts nodes into the blocks of a program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.free = free_ranges(program.nodes)
        self.range_slots = {
            node: program.new_slot() for node in program.nodes if node.op is index_ops.RANGE
        }

    def emit_nest(self, block: Block, effects: list[Node]) -> None:
        """Emit effects and the loops over the ranges that they leave unbound.

        All values of an iteration are computed before its first store.  The depth of this
        recursion is that of the loops.
        """
        here: list[Node] = []
        inner: dict[Node, list[Node]] = {}
        for effect in effects:
            if self.free[effect] <= block.ranges:
                here.append(effect)
            else:
                first = _by_number(self.free[effect] - block.ranges)[0]
                inner.setdefault(first, []).append(effect)
        for effect in here:
            for source in effect.src:
                self.emit(source, block)
        for loop, nested in inner.items():
            body = self.open(loop, block)
            self.emit_nest(body, nested)
            self.close(loop, body, block)
        for effect in here:
            self.emit(effect, block)

    def open(self, loop: Node, block: Block) -> Block:
        """The body of a loop over `loop` inside `block`."""
        self.emit(loop.src[0], block)
        body = Block(block, block.ranges | {loop})
        body.slots[loop] = self.range_slots[loop]
        return body

    def close(self, loop: Node, body: Block, block: Block) -> None:
        """Add the loop, whose body is complete, to the block around it."""
        size = block.find(loop.src[0])
        if size is None:
            raise InternalError("range: the size is not known before the loop", got=repr(loop))
        block.steps.append(loop_step(self.range_slots[loop], size, body, loop.attrs.unit))

    def emit(self, root: Node, block: Block) -> None:
        """Emit `root` and what it needs, each where it belongs; walks with an explicit stack."""
        stack: list[tuple[Node, Block, Callable[[], None] | None]] = [(root, block, None)]
        while stack:
            node, where, finish = stack.pop()
            if finish is not None:
                finish()
                continue
            home = where.outermost_for(self.free[node])
            if node in home.slots:
                continue
            if node.op is tensor.REDUCE:
                self._begin_reduce(node, home, stack)
            elif node.op is control.STAGE:
                self._begin_stage(node, home, stack)
            elif node.op is control.END:
                self._emit_closed(node, home)
            else:
                stack.append((node, home, self._finisher(node, home)))
                stack.extend([(source, home, None) for source in reversed(node.src)])

    def _emit_closed(self, node: Node, home: Block) -> None:
        """Effects done for all values of the ranges that END closes."""
        effect, ranges = node.src[0], node.src[1:]
        blocks = self._open_all(ranges, home)
        self.emit_nest(blocks[-1], list(effect.src if effect.op is memory.SINK else (effect,)))
        self._close_all(ranges, blocks)
        home.slots[node] = self.program.new_slot()

    def _finisher(self, node: Node, home: Block) -> Callable[[], None]:
        def finish() -> None:
            if node in home.slots:
                return
            slot = self.program.new_slot()
            sources = self.slots_of(node.src, home)
            if node.op is tensor.SCAN:
                home.steps.append(self._scan(node, slot, sources))
            else:
                home.steps.append(make_step(node, slot, sources))
            home.slots[node] = slot

        return finish

    def slots_of(self, nodes: Sequence[Node], block: Block) -> list[int]:
        """The slots of nodes that have been emitted."""
        found = [block.find(node) for node in nodes]
        missing = [node for node, slot in zip(nodes, found, strict=True) if slot is None]
        if missing:
            raise InternalError("kernel: a value is used before it is known", got=repr(missing[0]))
        return [slot for slot in found if slot is not None]

    def _open_all(self, ranges: Sequence[Node], home: Block) -> list[Block]:
        blocks = [home]
        for loop in ranges:
            if loop.op is not index_ops.RANGE:
                raise UnsupportedError("reduce: over something that is no RANGE", got=repr(loop))
            blocks.append(self.open(loop, blocks[-1]))
        return blocks

    def _close_all(self, ranges: Sequence[Node], blocks: list[Block]) -> None:
        for level in range(len(ranges) - 1, -1, -1):
            self.close(ranges[level], blocks[level + 1], blocks[level])

    def _begin_reduce(self, node: Node, home: Block, stack: list[Any]) -> None:
        blocks = self._open_all(node.src[1:], home)
        value, fold, type_ = node.src[0], node.attrs.fold, node.type
        is_fused = folds.is_fused(value, fold)
        needed = value.src if is_fused else (value,)

        def finish() -> None:
            slot = self.program.new_slot()
            sources = self.slots_of(needed, blocks[-1])
            function = (
                op_function(math.MULACC, type_.dtype)
                if is_fused
                else folds.fold_function(fold, type_.dtype)
            )
            step = _accumulate(lift(function, len(type_.shape)), slot, sources, is_fused)
            start = fill(type_.shape, folds.identity(fold, type_.dtype))
            home.steps.append(constant(slot, start))
            blocks[-1].steps.append(step)
            self._close_all(node.src[1:], blocks)
            home.slots[node] = slot

        stack.append((node, home, finish))
        stack.extend([(source, blocks[-1], None) for source in reversed(needed)])

    def _begin_stage(self, node: Node, home: Block, stack: list[Any]) -> None:
        blocks = self._open_all(node.src[1:], home)
        name, dtype = f"stage {node.attrs.number}", node.type.dtype

        def finish() -> None:
            slot = self.program.new_slot()
            (source,) = self.slots_of(node.src[:1], blocks[-1])

            def allocate(frame: Frame) -> None:
                frame[slot] = Cells([], dtype, name, is_raw=False)

            def write(frame: Frame) -> None:
                for element in _flat(frame[source]):
                    frame[slot].append(element)

            blocks[-1].steps.append(write)
            home.steps.append(allocate)
            self._close_all(node.src[1:], blocks)
            home.slots[node] = slot

        stack.append((node, home, finish))
        stack.append((node.src[0], blocks[-1], None))

    def _scan(self, node: Node, slot: int, sources: list[int]) -> Callable[[Frame], None]:
        """The running fold over an unbound range, one state for each value of the other ranges."""
        attrs = node.attrs
        loop = node.src[1]
        combine = lift(folds.fold_function(attrs.fold, node.type.dtype), len(node.type.shape))
        start = fill(node.type.shape, folds.identity(attrs.fold, node.type.dtype))
        others = [self.range_slots[r] for r in _by_number(self.free[node]) if r is not loop]
        at, source, states = self.range_slots[loop], sources[0], self.program.new_slot()
        self.program.main.steps.insert(0, _new_states(states))

        def step(frame: Frame) -> None:
            key = tuple([frame[other] for other in others])
            before = frame[states][key] if frame[at] else start
            after = combine(before, frame[source])
            frame[states][key] = after
            frame[slot] = before if attrs.exclusive else after

        return step


def _flat(value: Any) -> list[Any]:
    """The elements of a scalar, a vector or a matrix register, row by row."""
    if not isinstance(value, tuple):
        return [value]
    return [element for part in value for element in _flat(part)]


def _new_states(slot: int) -> Callable[[Frame], None]:
    def step(frame: Frame) -> None:
        frame[slot] = {}

    return step


def _accumulate(
    function: Callable[..., Any], slot: int, sources: list[int], is_fused: bool
) -> Callable[[Frame], None]:
    if is_fused:
        x, y = sources

        def step(frame: Frame) -> None:
            frame[slot] = function(frame[x], frame[y], frame[slot])

    else:
        (value,) = sources

        def step(frame: Frame) -> None:
            frame[slot] = function(frame[slot], frame[value])

    return step


#: Ops that this file gives a meaning to, beside the steps.
COVERED = frozenset(
    [
        tensor.REDUCE,
        tensor.SCAN,
        control.STAGE,
        control.END,
        control.ALLOCATE,
        index_ops.RANGE,
        index_ops.VARIABLE,
        memory.SINK,
        memory.PARAM,
    ]
)
