"""LINEAR -> LINEAR: innermost loops of a few iterations are written out.

The taps of a row of a convolution are such a loop: what neighbouring taps read is mostly the same,
so that one statement loads it for all of them, and nothing counts to three.  Values are folded in
the order in which the loop folded them, so results are the same to the last bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilework.dtypes import index
from tilework.ir.build import const_index
from tilework.ir.node import Node
from tilework.ir.ops.control import ACCUMULATE, ACCUMULATOR, END
from tilework.ir.ops.index import RANGE, Unit
from tilework.ir.ops.matrix_registers import LOAD_MATRIX
from tilework.ir.ops.memory import AFTER, INDEX
from tilework.ir.ops.program import LINEAR
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.target.spec import TargetSpec

#: The longest loop that is written out, and the most statements that it may become.
LONGEST: Final = 8
_MOST_STATEMENTS: Final = 512


def write_out(linear: Node, target: TargetSpec) -> Node:
    """The statements with short innermost loops written out, as far as registers hold them.

    Args:
        linear: The statements of a kernel.
        target: The machine, whose vector registers hold accumulators and what copies share.
    """
    return _Writing(linear.src, target.num_vector_registers or 16).run()


def fits_registers(accumulators: int, waiting: int, registers: int) -> bool:
    """Does a loop that is written out find in registers what it needs?

    Args:
        accumulators: What it folds into.
        waiting: The most other values at a time that are still to be used.
        registers: How many there are.
    """
    return accumulators + waiting <= registers


class _Writing:
    """One pass over the statements of a kernel."""

    def __init__(self, statements: Sequence[Node], registers: int) -> None:
        self.statements = statements
        self.registers = registers
        self.written: list[Node] = []
        #: What statements have become: updates of accumulators, and what follows from them.
        self.became: dict[Node, Node] = {}
        #: All that was written, and what of it stands in blocks that are open.
        self.known: set[Node] = set()
        self.visible: set[Node] = set()
        self.blocks: list[list[Node]] = [[]]

    def run(self) -> Node:
        at = 0
        while at < len(self.statements):
            statement = self.statements[at]
            if statement.op is RANGE:
                body = self._innermost(at)
                copies = None if body is None else self._copies(statement, body)
                if body is not None and copies is not None:
                    for node in copies:
                        self._write(node)
                    at += len(body) + 2
                    continue
            self._write_anew(self._now(statement))
            at += 1
        # A value stands in one block alone.  Where two loops, written out, would both hold it, none
        # is.
        is_clear = len(self.known) == len(self.written)
        return LINEAR(*(self.written if is_clear else self.statements))

    def _now(self, statement: Node) -> Node:
        """What a statement has become, after all before it."""
        new = _renewed(statement, self.became)
        if new is not statement:
            self.became[statement] = new
        return new

    def _write_anew(self, node: Node) -> None:
        """A statement; in another normal form it may be made of values that stand nowhere yet."""
        for source in node.src:
            if source.op.elementwise and source.src and source not in self.known:
                self._write_anew(source)
        self._write(node)

    def _write(self, node: Node) -> None:
        """A statement, and the block that it opens or closes; a value stands once."""
        if node in self.visible:
            return
        self.written.append(node)
        self.known.add(node)
        self.visible.add(node)
        self.blocks[-1].append(node)
        if node.op is RANGE:
            self.blocks.append([])
        elif node.op is END:
            self.visible.difference_update(self.blocks.pop())

    def _innermost(self, at: int) -> list[Node] | None:
        """The body of the loop that begins at a statement; None if a loop is inside of it."""
        body: list[Node] = []
        for node in self.statements[at + 1 :]:
            if node.op is END:
                return body
            if node.op is RANGE:
                return None
            body.append(node)
        return None

    # ---- one loop

    def _copies(self, loop: Node, body: list[Node]) -> list[Node] | None:
        """The statements for all values of a loop; None where it stays."""
        size = simplify.value_of(loop.src[0])
        if size is None or not 1 < size <= LONGEST or loop.attrs.unit is not Unit.LOOP:
            return None
        if size * len(body) > _MOST_STATEMENTS or not all(map(_is_repeatable, body)):
            return None
        updates = [node for node in body if node.op is ACCUMULATE]
        body = [self._now(node) for node in body]
        held = {update.src[0]: update.src[0] for update in updates}
        if not held or len(held) < len(updates):
            return None
        found: dict[Node, None] = {}
        for value in range(size):
            self._copy(loop, value, body, held, found)
        if loop in found:
            # In its normal form a statement is made of values of the loop that stand nowhere.
            return None
        if not self._fits({update.src[0]: update for update in updates}, found):
            return None
        for update in updates:
            new = ACCUMULATE(update.src[0], held[update.src[0]])
            self.became[update] = new
            found[new] = None
        return list(found)

    def _copy(
        self,
        loop: Node,
        value: int,
        body: list[Node],
        held: dict[Node, Node],
        found: dict[Node, None],
    ) -> None:
        """Add the statements of one iteration to `found`, as far as they are new.

        `held` is what accumulators hold before the iteration, and then after it.
        """
        renewed: dict[Node, Node] = {loop: const_index(value), **held}
        for node in body:
            if node.op is ACCUMULATE:
                held[node.src[0]] = renewed.get(node.src[1], node.src[1])
                continue
            new = renewed[node] = _renewed(node, renewed)
            self._take(new, found)

    def _take(self, node: Node, found: dict[Node, None]) -> None:
        """Add a value, and first what it is made of, as far as neither stands yet."""
        if node.src and node not in found and node not in self.visible:
            for source in node.src:
                self._take(source, found)
            found[node] = None

    def _fits(self, held: dict[Node, Node], found: dict[Node, None]) -> bool:
        """Do the accumulators and what waits for its last use stay in registers?"""
        shapes = {accumulator.type.shape for accumulator in held}
        updates: set[Node] = set(held)
        last: dict[Node, int] = {}
        for place, node in enumerate(found):
            if not updates.isdisjoint(node.src):
                updates.add(node)
            for source in node.src:
                if source in found:
                    last[source] = place
        waiting: dict[int, int] = {}
        most = now = 0
        for place, node in enumerate(found):
            now -= waiting.pop(place, 0)
            is_address = node.op is INDEX or node.type.dtype is index
            if node in updates or is_address or node.type.shape not in shapes or node not in last:
                continue
            # A value that only the next statement uses is an operand of it.
            if last[node] > place + 1:
                waiting[last[node]] = waiting.get(last[node], 0) + 1
                now += 1
                most = max(most, now)
        return fits_registers(len(held), most, self.registers)


def _is_repeatable(node: Node) -> bool:
    """May a statement stand several times?  It has no effect but on an accumulator's value."""
    if node.op is ACCUMULATE:
        return node.src[0].op is ACCUMULATOR and len(node.src[0].src) == 1
    # Registers of matrices are few, and counted for one iteration.
    return node.op.pure and node.op not in (ACCUMULATOR, AFTER, LOAD_MATRIX)


def _renewed(node: Node, known: dict[Node, Node]) -> Node:
    """A statement whose sources are what they have become."""
    src = tuple([known.get(source, source) for source in node.src])
    return node if src == node.src else simplify.rebuild(node, src)
