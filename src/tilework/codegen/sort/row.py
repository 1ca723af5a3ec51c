"""One row that is to be sorted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from tilework.codegen.sort.statements import Statements
    from tilework.ir.node import Node


@dataclass(frozen=True, slots=True)
class Row:
    """Where the elements are, where their sorting positions go, and how many there are.

    `limit` is the greatest value of `size`.
    """

    source: Node
    source_start: Node
    target: Node
    target_start: Node
    size: Node
    limit: int
    descending: bool

    def element(self, out: Statements, position: Node) -> Node:
        """The element at a position of the row."""
        return out.load(self.source, simplify.add(self.source_start, position))
