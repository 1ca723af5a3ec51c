"""The part of a tile that one thread of a group has: of two rows, every other pair of columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.codegen.analysis import substitute_ranges
from tilework.codegen.matrix.epilogue import gated
from tilework.codegen.plan.extents import size
from tilework.dtypes import float32
from tilework.ir.build import const, const_index
from tilework.ir.ops.control import BROADCAST
from tilework.ir.ops.index import LanesAttrs
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from tilework.codegen.matrix.feed import Feed
    from tilework.ir.node import Node

_NOTHING = const(0.0, float32)


class Group:
    """What streams and chains have in common, as one group of threads sees it.

    Attributes:
        line: The first of a thread's two rows among those of its group; the other is 8 below.
        pair: The first two columns of a thread among eight.
    """

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.out = out = feed.out
        lane = simplify.mod(feed.member, const_index(32))
        warp = simplify.idiv(feed.member, const_index(32))
        self.line = out.emit(
            simplify.add(simplify.scale(warp, 16), simplify.idiv(lane, const_index(4)))
        )
        self.pair = out.emit(simplify.scale(simplify.mod(lane, const_index(4)), 2))

    def lines_of(self, row: Node) -> list[Node]:
        """The two rows of a thread in the tile that starts at a row."""
        below = simplify.add(row, simplify.scale(self.feed.group, self.feed.crew.group_rows))
        found = []
        for half in (0, 1):
            line = simplify.add(simplify.add(below, self.line), const_index(8 * half))
            found.append(self.out.emit(line))
        return found

    def write_rows(
        self,
        stores: tuple[Node, ...],
        lines: tuple[Node, list[Node]],
        values: dict[Node, Node],
        known: dict[int, dict[Node, Node]],
    ) -> None:
        """Store a value of each row; one of the four threads that have a part of it does.

        Args:
            stores: The STOREs.
            lines: The range along the rows, and a thread's two rows.
            values: The values of the other ranges.
            known: For both rows, the values of folds.
        """
        range_, both = lines
        is_first = simplify.equal(self.pair, const_index(0))
        for half, line in enumerate(both) if stores else ():
            is_inside = simplify.less(line, const_index(size(range_)))
            gate = simplify.both(is_first, is_inside)
            for store in stores:
                found = substitute_ranges(store, values | {range_: line}, {}, dict(known[half]))
                self.out.emit(gated(found, gate))

    def zeros(self, columns: int) -> Node:
        """Sums of so many columns."""
        lanes = LanesAttrs(self.feed.crew.sums(columns))
        return self.out.variable(BROADCAST(_NOTHING, attrs=lanes))

    def column_of(self, eighth: Node, element: int) -> Node:
        """The column of one of the four sums that a thread has in eight columns."""
        column = simplify.add(self.pair, simplify.scale(eighth, 8))
        return simplify.add(column, const_index(element % 2))
