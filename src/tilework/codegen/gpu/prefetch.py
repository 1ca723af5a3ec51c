"""LINEAR -> LINEAR: what a loop copies into shared memory is loaded one iteration ahead.

A loop that fills shared memory and then computes from it would wait for memory in each iteration.
So the first filling is loaded before the loop, and each iteration, once it has stored what was
loaded before it, asks for the next filling and computes meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.ir.build import const_index
from tilework.ir.node import make, toposort_above
from tilework.ir.ops import math
from tilework.ir.ops.control import ACCUMULATE, ACCUMULATOR, END, AccumulateAttrs
from tilework.ir.ops.index import RANGE, Unit
from tilework.ir.ops.memory import LOAD, STORE
from tilework.ir.ops.program import LINEAR
from tilework.ir.ops.tensor import Fold
from tilework.ir.symbolic.simplify import TRUE
from tilework.ir.types import Memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.ir.node import Node


def load_ahead(linear: Node) -> Node:
    """Load the fillings of the first loop that has some one iteration ahead."""
    statements = linear.src
    for start, node in enumerate(statements):
        if node.op is RANGE and node.attrs.unit is Unit.LOOP:
            stop = _end_of(statements, start)
            stores = _fillings(statements[start + 1 : stop])
            if stores:
                return LINEAR(*_Ahead(statements, start, stop, stores).run())
    return linear


def _end_of(statements: Sequence[Node], start: int) -> int:
    return next(
        at
        for at in range(start, len(statements))
        if statements[at].op is END and statements[at].src[0] is statements[start]
    )


def _fillings(body: Sequence[Node]) -> list[Node]:
    """The ungated stores to shared memory in a loop's own block, if their values can be moved."""
    depth = 0
    found: list[Node] = []
    for node in body:
        depth += (node.op is RANGE) - (node.op is END)
        if node.op is STORE and node.src[0].type.memory is Memory.TILE:
            if depth or len(node.src) > 2:
                return []
            found.append(node)
    inside = set(body)
    for store in found:
        for node in toposort_above([store.src[1]], ()):
            if node not in inside:
                continue
            is_shared = node.op is LOAD and node.src[0].type.memory is Memory.TILE
            if not node.op.pure or is_shared or node.op is ACCUMULATOR:
                return []
    return found


class _Ahead:
    def __init__(
        self, statements: Sequence[Node], start: int, stop: int, stores: list[Node]
    ) -> None:
        self.statements = statements
        self.start, self.stop = start, stop
        self.loop = statements[start]
        self.stores = stores
        numbers = [n.attrs.number for n in statements if n.op is ACCUMULATOR]
        self.next_number = max(numbers, default=-1) + 1
        self.inside = set(statements[start + 1 : stop])

    def run(self) -> list[Node]:
        result = list(self.statements[: self.start])
        known = set(result)
        values = [store.src[1] for store in self.stores]
        first = self._moved(values, const_index(0), None, result, known)
        held = [self._variable(value) for value in first]
        result += held
        result.append(self.loop)
        known.add(self.loop)
        after = math.ADD(self.loop, const_index(1))
        more = math.LT(after, self.loop.src[0])
        body = self._stored(held)
        place = 1 + max(at for at, node in enumerate(body) if node.op is STORE and node in self.new)
        coming: list[Node] = [after, more]
        following = self._moved(values, after, more, coming, known | set(coming))
        body[place:place] = coming
        result += _needed(body, following)
        result += [ACCUMULATE(*pair) for pair in zip(held, following, strict=True)]
        return [*result, *self._renamed(self.statements[self.stop :])]

    def _variable(self, value: Node) -> Node:
        self.next_number += 1
        return ACCUMULATOR(value, attrs=AccumulateAttrs(self.next_number - 1, Fold.ADD))

    def _moved(
        self, values: list[Node], at: Node, gate: Node | None, out: list[Node], known: set[Node]
    ) -> list[Node]:
        """The values in another iteration; what they need is added to `out`."""
        done: dict[Node, Node] = {self.loop: at}
        for node in toposort_above(values, ()):
            if node in done or node not in self.inside:
                done.setdefault(node, node)
                continue
            src = tuple([done[source] for source in node.src])
            if node.op is LOAD and gate is not None:
                src = _gated(src, gate, out, known)
            new = done[node] = make(node.op, src, node.attrs)
            if new not in known:
                known.add(new)
                out.append(new)
        return [done[value] for value in values]

    def _stored(self, held: list[Node]) -> list[Node]:
        """The loop's body, storing what was loaded before."""
        self.renamed: dict[Node, Node] = {}
        for store, variable in zip(self.stores, held, strict=True):
            self.renamed[store] = STORE(store.src[0], variable)
        self.new = set(self.renamed.values())
        return self._renamed(self.statements[self.start + 1 : self.stop])

    def _renamed(self, statements: Sequence[Node]) -> list[Node]:
        result = []
        for node in statements:
            new = self.renamed.get(node)
            if new is None:
                src = tuple([self.renamed.get(source, source) for source in node.src])
                new = node if src == node.src else make(node.op, src, node.attrs)
                if new is not node:
                    self.renamed[node] = new
            result.append(new)
        return result


def _gated(
    src: tuple[Node, ...], gate: Node, out: list[Node], known: set[Node]
) -> tuple[Node, ...]:
    """The sources of a load that happens only under one more condition."""
    old = src[1] if len(src) > 1 else TRUE
    if old is TRUE:
        return (src[0], gate, *src[2:])
    if old.type.shape:
        return src  # lanes that are inside of all ranges are inside of this one
    both = math.AND(old, gate)
    if both not in known:
        known.add(both)
        out.append(both)
    return (src[0], both, *src[2:])


def _needed(body: Sequence[Node], wanted: Sequence[Node]) -> list[Node]:
    """The statements of a body that have effects, or that something which is kept needs."""
    used = set(wanted)
    kept: list[Node] = []
    for node in reversed(body):
        is_kept = not node.op.pure or node in used or node.op is END or node.op is RANGE
        if is_kept or node.op is ACCUMULATOR:
            kept.append(node)
            used.update(node.src)
    return kept[::-1]
