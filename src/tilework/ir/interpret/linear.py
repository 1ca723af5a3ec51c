"""The meaning of the LINEAR stage: statements in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.errors import InternalError
from tilework.ir.interpret.program import Block, Program, loop_step
from tilework.ir.interpret.steps import FAULTS, make_step, move
from tilework.ir.ops import control, memory
from tilework.ir.ops import index as index_ops
from tilework.ir.ops.sort import RANK_IN_WARP

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tilework.ir.interpret.memory import Bytes
    from tilework.ir.interpret.steps import Frame
    from tilework.ir.node import Node


def run_linear(
    linear: Node,
    buffers: Sequence[Bytes],
    variables: Mapping[str, int] | None = None,
    *,
    begin: int = 0,
    end: int | None = None,
) -> list[int]:
    """Run the statements of a LINEAR kernel.

    Args:
        linear: LINEAR of the statements; values that are no statements are computed where they
            are first needed.
        buffers: Memory of PARAM(0), PARAM(1), ...; written in place.
        variables: The value of each VARIABLE by name.
        begin: First task of the THREAD range that runs.
        end: Task before which to stop; None runs all.

    Returns:
        The codes of the FAULT_IFs whose condition held, each once.

    Raises:
        BoundsError: A load or store lies outside of its memory; the message names the node.
    """
    return compile_linear(linear).run(buffers, variables or {}, begin, end)


def compile_linear(linear: Node) -> Program:
    """A LINEAR kernel made ready to run many times."""
    program = Program(linear)
    emitter = _Emitter(program)
    for statement in linear.src:
        emitter.statement(statement)
    emitter.finish()
    return program


class _Emitter:
    """Walks the statements with the stack of open loops and IFs."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.block = program.main
        self.open: list[Node] = []
        self.accumulators: dict[Node, list[Node]] = {}
        self.results: dict[Node, int] = {}
        self.effects: set[Node] = set()
        for node in program.nodes:
            if node.op is control.ACCUMULATOR and len(node.src) > 1:
                self.accumulators.setdefault(node.src[1], []).append(node)

    def finish(self) -> None:
        if self.open:
            raise InternalError("linear: a loop or IF is left open", got=repr(self.open[-1]))

    def statement(self, node: Node) -> None:
        op = node.op
        if op is index_ops.RANGE:
            self._open_loop(node)
        elif op is control.END:
            self._close_loop(node.src[0])
        elif op is control.IF:
            self.emit(node.src[0])
            self._enter(node)
        elif op is control.ENDIF:
            self._close_if(node.src[0])
        else:
            self.emit(node)

    def _enter(self, node: Node) -> Block:
        self.open.append(node)
        self.block = Block(self.block, self.block.ranges)
        return self.block

    def _leave(self, node: Node) -> Block:
        if not self.open or self.open[-1] is not node:
            raise InternalError("linear: ends what is not open", got=repr(node))
        self.open.pop()
        body = self.block
        if body.parent is None:
            raise InternalError("linear: ends what is not open", got=repr(node))
        self.block = body.parent
        return body

    def _open_loop(self, node: Node) -> None:
        self.emit(node.src[0])
        carried = self.accumulators.get(node, [])
        for accumulator in carried:
            self.emit(accumulator.src[0])
            result = self.results.setdefault(accumulator, self.program.new_slot())
            self.block.steps.append(move(result, self._slot(accumulator.src[0])))
        body = self._enter(node)
        body.slots[node] = self.program.new_slot()
        for accumulator in carried:
            slot = body.slots[accumulator] = self.program.new_slot()
            body.steps.append(move(slot, self.results[accumulator]))

    def _close_loop(self, node: Node) -> None:
        body = self._leave(node)
        size = self._slot(node.src[0])
        self.block.steps.append(loop_step(body.slots[node], size, body, node.attrs.unit))
        for accumulator in self.accumulators.get(node, []):
            self.block.slots[accumulator] = self.results[accumulator]

    def _close_if(self, node: Node) -> None:
        body = self._leave(node)
        self.block.steps.append(_guard(self._slot(node.src[0]), body))

    def _slot(self, node: Node) -> int:
        found = self.block.find(node)
        if found is None and node.op is control.ACCUMULATE:
            found = self.results.get(node.src[0])
        if found is None and self._has_happened(node):
            return FAULTS  # only its place in the order matters
        if found is None:
            raise InternalError("linear: a value is used before it is known", got=repr(node))
        return found

    def _is_known(self, node: Node) -> bool:
        return self.block.find(node) is not None or self._has_happened(node)

    def _has_happened(self, node: Node) -> bool:
        """Is `node` an effect, or the order after one, whose statement stands further up?"""
        while node.op is memory.AFTER:
            node = node.src[0]
        return node in self.effects

    def emit(self, root: Node) -> None:
        """Compute `root`, and what it needs and is not known here, in the current block."""
        stack = [(root, False)]
        while stack:
            node, ready = stack.pop()
            if self._is_known(node):
                continue
            if node.op in _OUT_OF_PLACE and not self._is_variable(node):
                raise InternalError(
                    f"linear: {node.op.name} is used outside of its loop or IF", got=repr(node)
                )
            if not ready:
                stack.append((node, True))
                stack.extend([(source, False) for source in reversed(node.src)])
                continue
            if not node.op.pure:
                self.effects.add(node)
            if node.op is not memory.SINK:
                self._compute(node, [self._slot(source) for source in node.src])

    def _compute(self, node: Node, sources: list[int]) -> None:
        """Add the step of a node whose sources are known."""
        steps = self.block.steps
        if node.op is control.ACCUMULATE:
            steps.append(move(self.results[node.src[0]], sources[1]))
            return
        slot = self.program.new_slot()
        if self._is_variable(node):
            self.results[node] = slot
            steps.append(move(slot, sources[0]))
        else:
            steps.append(make_step(node, slot, sources))
        if node.op.pure or node.op is RANK_IN_WARP:
            self.block.slots[node] = slot

    def _is_variable(self, node: Node) -> bool:
        return node.op is control.ACCUMULATOR and len(node.src) == 1


def _guard(condition: int, body: Block) -> Callable[[Frame], None]:
    steps = body.steps

    def guarded(frame: Frame) -> None:
        if frame[condition]:
            for step in steps:
                step(frame)

    return guarded


_OUT_OF_PLACE = frozenset(
    [index_ops.RANGE, control.ACCUMULATOR, control.END, control.IF, control.ENDIF]
)
#: Ops that this file gives a meaning to, beside the steps.
COVERED = frozenset([*_OUT_OF_PLACE, control.ACCUMULATE, control.ALLOCATE])
