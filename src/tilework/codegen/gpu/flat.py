"""Several ranges that count as one, and the order in which blocks take the tiles of a product."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.codegen.plan.extents import product
from tilework.ir.build import const_index
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.ir.node import Node

#: Tiles of rows that follow each other before the next column begins, so that caches serve both.
_RASTER = 8


class Flat:
    """Several ranges as one: the last moves fastest."""

    def __init__(self, ranges: Sequence[Node]) -> None:
        self.ranges = list(ranges)
        self.size = product(ranges)

    def values(self, start: Node, lane: Node | None = None) -> dict[Node, Node]:
        """What each range is at a position; the lanes of a vector lie in the last range."""
        found: dict[Node, Node] = {}
        rest = start
        for position in range(len(self.ranges) - 1, -1, -1):
            range_ = self.ranges[position]
            value = simplify.mod(rest, range_.src[0]) if position else rest
            if lane is not None and position == len(self.ranges) - 1:
                value = simplify.add(value, lane)
            found[range_] = value
            rest = simplify.idiv(rest, range_.src[0])
        return found


def raster(place: Node, down: int, across: int) -> tuple[Node, Node]:
    """The tile of rows and of columns of a task: a few rows, then the next column."""
    group = _RASTER
    while down % group:
        group //= 2
    whole = const_index(group * across)
    inside = simplify.mod(place, whole)
    first = simplify.scale(simplify.idiv(place, whole), group)
    return (
        simplify.add(first, simplify.mod(inside, const_index(group))),
        simplify.idiv(inside, const_index(group)),
    )
