"""What a chain computes element by element, as the machine does it, and what of it is fixed.

A value that no product enters belongs to a row or to a position along the key: it is computed once
for each of them.
"""

from __future__ import annotations

import math as numbers
from typing import TYPE_CHECKING

from tilework.dtypes import float32
from tilework.ir.build import const
from tilework.ir.node import Node, toposort_above
from tilework.ir.ops import math
from tilework.ir.ops.matrix import POWER_OF_TWO
from tilework.ir.ops.memory import LOAD
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.codegen.matrix.chain import Chain

_LOG2_E = numbers.log2(numbers.e)


class ChainValues:
    """The values of a chain in the machine's ops.

    Attributes:
        stays: What stays in the registers of each product.
        factors: The factor of each sum.
        score: What the maximum of a row is taken of; None if rows are not folded.
        added: What each other fold of a row adds, but for that of the term itself.
        of_rows, of_positions: What is computed once for a row, and for a position along the key.
    """

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.products = {each.node for each in chain.products}
        running = chain.running
        self._done: dict[Node, Node] = {node: node for node in self.products}
        self._holding: dict[Node, bool] = dict.fromkeys(self.products, True)
        if running is not None:
            self._done[running.term] = running.term
            self._holding[running.term] = True
        self.stays = tuple([self._on_machine(node) for node in chain.stays])
        self.factors = tuple([self._on_machine(each.factor) for each in chain.sums])
        self.score: Node | None = None
        self.added: dict[Node, Node] = {}
        roots = [*self.stays, *self.factors]
        if running is not None:
            self.score = self._on_machine(running.term.src[0].src[0])
            self.added = {
                fold: self._on_machine(value)
                for fold, (value, _) in running.sums.items()
                if value is not running.term
            }
            roots += [self.score, *self.added.values()]
        self.of_rows, self.of_positions, self.is_fit = self._fixed(roots)

    def without_mask(self, root: Node, kept: Sequence[Node] = ()) -> Node:
        """A value where the mask's condition holds; what is `kept` is there already."""
        mask = self.chain.mask
        done: dict[Node, Node] = {}
        leaves = {*self.products, *kept}
        for node in toposort_above((root,), leaves):
            if node in leaves:
                done[node] = node
            elif mask is not None and node.op is math.WHERE and node.src[0] is mask.src[0]:
                done[node] = done[node.src[1]]
            else:
                done[node] = _rebuilt(node, [done[source] for source in node.src])
        return done[root]

    def _on_machine(self, root: Node) -> Node:
        """Quotients by what is fixed as products, exponentials as powers of 2."""
        for node in toposort_above((root,), self._done):
            if node in self._done:
                continue
            src = [self._done[source] for source in node.src]
            holds = self._holds(node)
            is_float = node.type.dtype is float32
            if holds and is_float and node.op is math.FDIV and not self._holds(node.src[1]):
                reciprocal = math.FDIV(const(1.0, float32), src[1])
                self._done[node] = math.MUL(src[0], reciprocal)
            elif holds and is_float and node.op is math.EXP:
                scaled = math.MUL(src[0], const(_LOG2_E, float32))
                self._done[node] = POWER_OF_TWO(scaled)
            else:
                self._done[node] = _rebuilt(node, src)
            self._holding[self._done[node]] = holds
        return self._done[root]

    def _holds(self, root: Node) -> bool:
        """Is a value computed from a product?"""
        for node in toposort_above((root,), self._holding):
            if node not in self._holding:
                self._holding[node] = any(self._holding[source] for source in node.src)
        return self._holding[root]

    def _fixed(self, roots: Sequence[Node]) -> tuple[list[Node], list[Node], bool]:
        """The greatest values of rows and of positions; is there none that both decide?"""
        row, key = self.chain.row, self.chain.key
        reads: dict[Node, frozenset[Node]] = {}
        loaded: dict[Node, bool] = {}
        of_rows: dict[Node, None] = {}
        of_positions: dict[Node, None] = {}
        is_fit = True
        stop = set(self.products)
        if self.chain.running is not None:
            stop.add(self.chain.running.term)
        for node in toposort_above(roots, stop):
            own = [reads[source] for source in node.src if source in reads]
            reads[node] = frozenset().union(*own) | ({node} & {row, key})
            loaded[node] = node.op is LOAD or any(loaded.get(source) for source in node.src)
            if node in stop or not (self._holds(node) or reads[node] >= {row, key}):
                continue
            for source in node.src:
                if self._holds(source) or not loaded[source]:
                    continue
                if reads[source] >= {row, key}:
                    is_fit = is_fit and source.op is not LOAD
                elif key in reads[source]:
                    of_positions[source] = None
                else:
                    of_rows[source] = None
        return list(of_rows), list(of_positions), is_fit


def _rebuilt(node: Node, src: Sequence[Node]) -> Node:
    return node if tuple(src) == node.src else simplify.rebuild(node, tuple(src))
