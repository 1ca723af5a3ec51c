"""Quotients of several elements as one vector, so that they share the branch to the slow division.

A quotient of float32 takes a few instructions where no number is extreme, and a call where one is.
A branch for each quotient keeps the processor from working on the next one meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.dtypes import float32
from tilework.ir.node import make, toposort_above
from tilework.ir.ops import math
from tilework.ir.ops.control import EXTRACT, STACK, LaneAttrs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.ir.node import Node


def divide_together(values: Sequence[Node], kept: frozenset[Node] = frozenset()) -> list[Node]:
    """The same values; the first quotients of all of them are one vector, the second ones too, …

    What is `kept` is there already, and stays.

    Any two quotients may share a vector as long as neither needs the other; the k-th one of a value
    needs only earlier ones of that value.  Values with different numbers of quotients stay.
    """
    chains = [_quotients(value, kept) for value in values]
    if len({len(chain) for chain in chains}) != 1:
        return list(values)
    copies = [_Copy() for _ in values]
    for parts in zip(*chains, strict=True):
        own = [copy.of(part) for copy, part in zip(copies, parts, strict=True)]
        distinct = list(dict.fromkeys(own))
        if len(distinct) == 1:
            continue
        vector = math.FDIV(*(STACK(*(part.src[side] for part in distinct)) for side in (0, 1)))
        for copy, part, mine in zip(copies, parts, own, strict=True):
            copy.done[part] = EXTRACT(vector, attrs=LaneAttrs(distinct.index(mine)))
    return [copy.of(value) for copy, value in zip(copies, values, strict=True)]


def _quotients(value: Node, kept: frozenset[Node]) -> list[Node]:
    """The divisions of scalars, operands first."""
    return [
        node
        for node in toposort_above((value,), kept)
        if node not in kept
        and node.op is math.FDIV
        and node.type.dtype is float32
        and not node.type.shape
    ]


class _Copy:
    """One value with some of its nodes replaced."""

    def __init__(self) -> None:
        self.done: dict[Node, Node] = {}

    def of(self, root: Node) -> Node:
        """What stands for a node; what is replaced already is not looked into."""
        stack = [root]
        while stack:
            node = stack[-1]
            waiting = [source for source in node.src if source not in self.done]
            if node in self.done or not waiting:
                stack.pop()
                if node not in self.done:
                    src = tuple([self.done[source] for source in node.src])
                    self.done[node] = node if src == node.src else make(node.op, src, node.attrs)
            else:
                stack.extend(waiting)
        return self.done[root]
