"""The loops of reductions under a plan: which of them share loops, and which stand inside of which.

A RANGE of the result is one loop at one place of the nest, inside of loops of lower numbers.  A
reduction inside of others therefore is made once for each set of loops that it stands in, after
those loops have got their numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.records import dataclass, field
from tilework.codegen.analysis import FreeRanges
from tilework.ir.node import Node, toposort, toposort_above
from tilework.ir.ops.memory import LOAD, STORE
from tilework.ir.ops.program import FAULT_IF
from tilework.ir.ops.tensor import REDUCE
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from collections.abc import Callable

#: What the ranges of the loops around a node have become, outermost first: range, value, gate.
Around = tuple[tuple[Node, Node, Node], ...]


@dataclass(frozen=True, slots=True)
class Space:
    """Loops in which (a part of) a reduction runs.

    Attributes:
        ranges: What the reduction binds.
        values: What each range that it bound has become.
        gates: For some of them, the condition under which memory may be touched.
    """

    ranges: list[Node]
    values: dict[Node, Node]
    gates: dict[Node, Node] = field(default_factory=dict)


class Nests:
    """Gives the reductions of a kernel their loops.

    Args:
        sink: The kernel; what its own ranges became is put in already.
        spaces: Makes the loops of a reduction; reductions that may share loops ask once.
        folded: The reduction, from its value in each of its spaces.
    """

    def __init__(
        self,
        sink: Node,
        spaces: Callable[[Node], list[Space]],
        folded: Callable[[Node, list[Space], list[Node]], Node],
    ) -> None:
        self.sink = sink
        self.spaces = spaces
        self.folded = folded
        self.order = toposort(sink)
        self.free = FreeRanges(self.order)
        self.reduces = [node for node in self.order if node.op is REDUCE]
        self.reads = self._reads()
        self.inner: dict[Node, list[Node]] = {}
        self.shared: dict[tuple[object, ...], list[Space]] = {}
        self.places: dict[Node, dict[Around, list[Space]]] = {n: {} for n in self.reduces}
        self.made: dict[tuple[Node, Around], Node] = {}

    def run(self) -> Node:
        """The kernel over the loops that `spaces` made."""
        self._ask(self.sink, ())
        # Outer reductions get their numbers first: what stands inside must have higher ones.
        for node in reversed(self.reduces):
            places = self.places[node]
            for around in places:
                key = (node.src[1:], around, self.free.mask[node], self.reads[node.src[0]])
                if key not in self.shared:
                    self.shared[key] = self.spaces(node)
                places[around] = self.shared[key]
                for space in places[around]:
                    self._ask(node.src[0], _inside(around, space))
        for node in self.reduces:
            for around, spaces in self.places[node].items():
                values = [self._put(node.src[0], _inside(around, space)) for space in spaces]
                self.made[node, around] = self.folded(node, spaces, values)
        return self._put(self.sink, ())

    def _reads(self) -> dict[Node, int]:
        """The reductions that each node is made of, as bit masks: none shares a loop with it."""
        bits = {node: 1 << i for i, node in enumerate(self.reduces)}
        masks: dict[Node, int] = {}
        for node in self.order:
            total = bits.get(node, 0)
            for source in node.src:
                total |= masks[source]
            masks[node] = total
        return masks

    def _ask(self, root: Node, around: Around) -> None:
        """Note that the outermost reductions in `root` are needed inside of these loops."""
        for node in self._outermost(root):
            self.places[node].setdefault(self._seen(node, around), [])

    def _outermost(self, root: Node) -> list[Node]:
        """The reductions in `root` that stand in no other one there."""
        found = self.inner.get(root)
        if found is None:
            leaves = self.places if self.reads[root] else (root,)
            found = [n for n in toposort_above([root], leaves) if n.op is REDUCE]
            self.inner[root] = found
        return found

    def _seen(self, node: Node, around: Around) -> Around:
        """Those of the loops around a node that it depends on."""
        mask = self.free.mask[node]
        return tuple([entry for entry in around if mask & self.free.bit(entry[0])])

    def _put(self, root: Node, around: Around) -> Node:
        """`root` inside of the loops around it, with the reductions that were made for them."""
        done = {node: self.made[node, self._seen(node, around)] for node in self._outermost(root)}
        done.update({range_: value for range_, value, _ in around})
        gated = [
            (self.free.bit(range_), gate) for range_, _, gate in around if gate is not simplify.TRUE
        ]
        for node in toposort_above([root], set(done)):
            if node in done:
                continue
            src = tuple([done[source] for source in node.src])
            if gated and node.op in (LOAD, STORE, FAULT_IF):
                mask = self.free.mask[node]
                gate = simplify.all_of(gate for bit, gate in gated if mask & bit)
                if gate is not simplify.TRUE:
                    done[node] = with_gate(node, src, gate)
                    continue
            done[node] = node if src == node.src else simplify.rebuild(node, src)
        return done[root]


def _inside(around: Around, space: Space) -> Around:
    """The loops around what a reduction folds in one of its spaces."""
    own = tuple(
        [
            (range_, value, space.gates.get(range_, simplify.TRUE))
            for range_, value in space.values.items()
        ]
    )
    # A range that the reduction binds hides an outer one.
    return (*[entry for entry in around if entry[0] not in space.values], *own)


def with_gate(node: Node, src: tuple[Node, ...], condition: Node) -> Node:
    """A LOAD, STORE or FAULT_IF over `src` that happens under one more condition."""
    if node.op is FAULT_IF:
        return FAULT_IF(simplify.both(src[0], condition), attrs=node.attrs)
    position = 1 if node.op is LOAD else 2
    gate = simplify.both(src[position], condition) if len(src) > position else condition
    return node.op(*src[:position], gate, *src[position + 1 :], attrs=node.attrs)
