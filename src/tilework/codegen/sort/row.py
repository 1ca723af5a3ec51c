"""One row that is to be sorted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.records import dataclass
from tilework.ir.build import const_index
from tilework.ir.ops import math
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from tilework.codegen.sort.statements import Statements
    from tilework.ir.node import Node


@dataclass(frozen=True, slots=True)
class Row:
    """Where the elements are, where their sorting positions go, and how many there are.

    `limit` is the greatest value of `size`.  Of the sorted positions `count` from `first` on are
    wanted (-1: all of them), or with `values` the elements there.  A long row may be sorted by
    several tasks, `parts` of them, of which this is number `part`.
    """

    source: Node
    source_start: Node
    target: Node
    target_start: Node
    size: Node
    limit: int
    descending: bool
    first: int = 0
    count: int = -1
    values: bool = False
    part: Node | None = None
    parts: int = 1

    @property
    def is_whole(self) -> bool:
        """Whether one task writes all positions."""
        return self.parts == 1 and self.count < 0

    def put(self, out: Statements, rank: Node, position: Node) -> None:
        """Write the position of the element that has a rank, or that element, if it is wanted."""
        if self.count < 0:
            found = self.element(out, position) if self.values else position
            out.store(self.target, simplify.add(self.target_start, rank), found)
            return
        place = out.emit(simplify.sub(rank, const_index(self.first)))
        inside = math.LT(place, const_index(self.count))
        if self.first:
            inside = math.AND(inside, math.LE(const_index(0), place))
        with out.when(inside):
            found = self.element(out, position) if self.values else position
            out.store(self.target, simplify.add(self.target_start, place), found)

    def element(self, out: Statements, position: Node) -> Node:
        """The element at a position of the row."""
        return out.load(self.source, simplify.add(self.source_start, position))
