"""WHERE_RARE -> a branch: what only rare lanes need is computed only where there are such lanes.

The statements that serve the rare operand alone move into an IF behind the condition of any lane.
Where they are few, a choice of lanes is as fast, and nothing moves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.ir.node import make
from tilework.ir.ops import math
from tilework.ir.ops.control import (
    ACCUMULATE,
    ACCUMULATOR,
    BROADCAST,
    END,
    ENDIF,
    FOLD_LANES,
    IF,
    AccumulateAttrs,
    FoldAttrs,
)
from tilework.ir.ops.index import RANGE
from tilework.ir.ops.memory import AFTER
from tilework.ir.ops.program import LINEAR
from tilework.ir.ops.tensor import Fold

if TYPE_CHECKING:
    from tilework.ir.node import Node

#: From so many statements on a branch is worth its test.
_WORTH = 8
#: What else computes values from values alone.
_OF_LANES = frozenset({BROADCAST, math.BITCAST})
_BORDERS = frozenset({RANGE, END, IF, ENDIF})


def branch_rarely(linear: Node) -> Node:
    """LINEAR -> LINEAR without WHERE_RARE."""
    if not any(node.op is math.WHERE_RARE for node in linear.src):
        return linear
    return _Branches(linear.src).run()


class _Branches:
    def __init__(self, statements: tuple[Node, ...]) -> None:
        self.statements = statements
        self.users: dict[Node, list[Node]] = {}
        for node in statements:
            for source in node.src:
                self.users.setdefault(source, []).append(node)
        self.became: dict[Node, Node] = {}
        self.written: list[Node] = []
        numbers = [int(n.attrs.number) for n in statements if n.op is ACCUMULATOR]
        self.number = 1 + max(numbers, default=-1)

    def run(self) -> Node:
        slices = self._slices()
        moved = {node for own in slices.values() for node in own}
        for node in self.statements:
            if node in slices:
                self._branch(node, slices[node])
            elif node not in moved:
                self._write(node)
        return LINEAR(*self.written)

    def _slices(self) -> dict[Node, list[Node]]:
        """For each WHERE_RARE the statements that serve its rare operand alone."""
        found: dict[Node, list[Node]] = {}
        begin = 0
        for place, node in enumerate(self.statements):
            if node.op in _BORDERS:
                begin = place + 1
            if node.op is math.WHERE_RARE:
                own = self._serving(node, self.statements[begin:place])
                found[node] = own if len(own) >= _WORTH and _is_folded(node) else []
        return found

    def _serving(self, choice: Node, before: tuple[Node, ...]) -> list[Node]:
        condition, _, common = choice.src
        own: dict[Node, None] = {}
        for node in reversed(before):
            is_plain = node.op.elementwise or node.op in _OF_LANES
            if not is_plain or node.op is math.WHERE_RARE or node is condition or node is common:
                continue
            users = self.users.get(node, ())
            if users and all(user is choice or user in own for user in users):
                own[node] = None
        return list(reversed(own))

    def _write(self, node: Node) -> Node:
        src = tuple([self.became.get(source, source) for source in node.src])
        new = node if src == node.src else make(node.op, src, node.attrs)
        if new is not node:
            self.became[node] = new
        self.written.append(new)
        return new

    def _branch(self, choice: Node, own: list[Node]) -> None:
        condition, rare, common = (self.became.get(source, source) for source in choice.src)
        if not own:
            self.became[choice] = math.WHERE(condition, rare, common)
            self.written.append(self.became[choice])
            return
        result = ACCUMULATOR(common, attrs=AccumulateAttrs(self.number, Fold.ADD))
        self.number += 1
        self.written.append(result)
        test = condition
        if condition.type.shape:
            test = FOLD_LANES(condition, attrs=FoldAttrs(Fold.MAX))
            self.written.append(test)
        opened = IF(test)
        self.written.append(opened)
        for node in own:
            self._write(node)
        rare = self.became.get(choice.src[1], choice.src[1])
        chosen = math.WHERE(condition, rare, common)
        update = ACCUMULATE(result, chosen)
        self.became[choice] = AFTER(result, update)
        self.written += [chosen, update, ENDIF(opened), self.became[choice]]


def _is_folded(node: Node) -> bool:
    """Can the lanes of a condition be folded by halves?"""
    lanes = node.type.lanes if node.type.shape else 1
    return lanes & (lanes - 1) == 0
