"""What a chain computes element by element, as the machine does it, and what of it is fixed.

A value that no product enters belongs to a row or to a position along the key: it is computed once
for each of them.
"""

from __future__ import annotations

import math as numbers
from typing import TYPE_CHECKING

from tilework.dtypes import decode, float32
from tilework.ir.build import const
from tilework.ir.node import Node, toposort_above
from tilework.ir.ops import math
from tilework.ir.ops.matrix import POWER_OF_TWO
from tilework.ir.ops.memory import LOAD
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.codegen.matrix.chain import Chain

LOG2_E = const(numbers.log2(numbers.e), float32)
_LOWEST, _ONE = const(float("-inf"), float32), const(1.0, float32)


def factored(score: Node) -> tuple[Node, Node]:
    """A score without a positive constant that multiplies it, and the constant.

    The greatest of several scores is that of them without the constant, times the constant:
    rounding keeps an order.
    """
    if score.op is math.WHERE and score.src[2] is _LOWEST:
        inner, factor = factored(score.src[1])
        return math.WHERE(score.src[0], inner, _LOWEST), factor
    if score.op is math.MUL and score.src[1].op is math.CONST and score.type.dtype is float32:
        inner, factor = score.src
        if 0.0 < decode(factor.attrs.bits, float32) < numbers.inf:
            return inner, factor
    return score, _ONE


def exponent(score: Node, factor: Node, reference: Node) -> Node:
    """What 2 is raised to for exp(score * factor - reference), in one multiply-add.

    The sum is rounded once, but factor and reference are rounded as they are multiplied by log2(e),
    and the reference, the greatest score m times the factor, was rounded before.  With s the score
    and f the factor, the result is off by

        log2(e) * 2**-24 * (|s f| + 2 |m f| + 1.25 |s f - m f|)

    at most, as long as no product is subnormal: the error grows with the scores and not with their
    difference, so that the greatest one of a row need not give 2**0.  Scores that are rounded
    before m is subtracted are off by two thirds of this.  The term itself is off by that share
    without log2(e): 2**-9, half a unit of bfloat16, is reached where |s f| and |m f| are 10,900.

    Domain: |m f| <= 2**128 / log2(e), about 2.35e38.  Beyond, its product with log2(e) overflows
    and the row is NaN, where separate passes may give numbers still.  Infinite and NaN scores come
    out as in `codegen.cascade.running`.
    """
    return math.MULACC(score, _times(factor, LOG2_E), math.NEG(math.MUL(reference, LOG2_E)))


class ChainValues:
    """The values of a chain in the machine's ops.

    Attributes:
        stays: What stays in the registers of each product.
        factors: The factor of each sum.
        score: What the maximum of a row is taken of; None if rows are not folded.
        added: What each other fold of a row adds, but for that of the term itself.
        of_rows, of_positions: What is computed once for a row, and for a position along the key.
        loads_elements: Is something loaded for each element: a mask, or what is added to scores?
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
        #: What later values see in registers, and must not be computed anew in another form.
        self._fixed_forms: set[Node] = set(self.products)
        stays: list[Node] = []
        for node in chain.stays:
            stays.append(self._on_machine(node))
            self._fixed_forms.add(stays[-1])
        self.stays = tuple(stays)
        self.factors = tuple([self._on_machine(each.factor) for each in chain.sums])
        self.score: Node | None = None
        self.added: dict[Node, Node] = {}
        roots = [*self.stays, *self.factors]
        if running is not None:
            self.score = self._on_machine(running.score)
            self.added = {
                fold: self._on_machine(value)
                for fold, (value, _) in running.sums.items()
                if value is not running.term
            }
            roots += [self.score, *self.added.values()]
        self.of_rows, self.of_positions, self.loads_elements = self._fixed(roots)

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
        """Quotients by what is fixed as products, exponentials as powers of 2.

        What is added to a product is so in one instruction, and what is multiplied by a constant is
        computed from fixed values that are, where there are some.
        """
        for node in toposort_above((root,), self._done):
            if node in self._done:
                continue
            src = [self._done[source] for source in node.src]
            found = None
            if self._holds(node) and node.type.dtype is float32:
                found = self._form(node, src)
            self._done[node] = _rebuilt(node, src) if found is None else found
            self._holding[self._done[node]] = self._holds(node)
        return self._done[root]

    def _form(self, node: Node, src: list[Node]) -> Node | None:
        """A value that holds a product, in the machine's way; None where it has none of its own."""
        if node.op is math.EXP:
            return POWER_OF_TWO(self._scaled(src[0], LOG2_E) or math.MUL(src[0], LOG2_E))
        if len(src) != 2:
            return None
        x, y = src
        if node.op is math.FDIV and not self._holds(y):
            return math.MUL(x, math.FDIV(_ONE, y))
        if node.op is math.MUL and _is_fraction(y):
            return self._scaled(x, y)
        if node.op is math.ADD:
            return self._added(x, y) or self._added(y, x)
        if node.op is math.SUB:
            return self._added(x, math.NEG(y))
        return None

    def _added(self, x: Node, fixed: Node) -> Node | None:
        """x + fixed where x is a product, or a choice of one, and nothing else is chosen."""
        if self._holds(fixed) or x in self._fixed_forms:
            return None
        if x.op is math.MUL and self._holds(x):
            return math.MULACC(*self._holding_first(x), fixed)
        if x.op is math.WHERE and self._holds(x.src[1]) and not self._holds(x.src[2]):
            inner = self._added(x.src[1], fixed)
            other = math.ADD(x.src[2], fixed)
            return None if inner is None else math.WHERE(x.src[0], inner, other)
        return None

    def _holding_first(self, product: Node) -> tuple[Node, Node]:
        """The factors of a product; the first one is computed from a sum of products."""
        x, y = product.src
        return (x, y) if self._holds(x) else (y, x)

    def _scaled(self, x: Node, factor: Node) -> Node | None:
        """x * factor by a fixed value of x that is multiplied; None where it has none."""
        if x in self._fixed_forms or not self._holds(x):
            return None
        if x.op is math.MULACC:
            a, b, c = x.src
            if self._holds(b) or self._holds(c):
                return None
            return math.MULACC(a, _times(b, factor), _times(c, factor))
        if x.op is math.MUL:
            a, b = self._holding_first(x)
            if not self._holds(b):
                return math.MUL(a, _times(b, factor))
            inner = self._scaled(a, factor)
            if inner is not None:
                return math.MUL(inner, b)
            inner = self._scaled(b, factor)
            return None if inner is None else math.MUL(a, inner)
        if x.op is math.WHERE and not self._holds(x.src[2]):
            inner = self._scaled(x.src[1], factor)
            other = _times(x.src[2], factor)
            return None if inner is None else math.WHERE(x.src[0], inner, other)
        return None

    def _holds(self, root: Node) -> bool:
        """Is a value computed from a product?"""
        for node in toposort_above((root,), self._holding):
            if node not in self._holding:
                self._holding[node] = any(self._holding[source] for source in node.src)
        return self._holding[root]

    def _fixed(self, roots: Sequence[Node]) -> tuple[list[Node], list[Node], bool]:
        """The greatest values of rows and of positions; is there a load at both?"""
        row, key = self.chain.row, self.chain.key
        reads: dict[Node, frozenset[Node]] = {}
        loaded: dict[Node, bool] = {}
        of_rows: dict[Node, None] = {}
        of_positions: dict[Node, None] = {}
        loads_elements = False
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
                    loads_elements = loads_elements or source.op is LOAD
                elif key in reads[source]:
                    of_positions[source] = None
                else:
                    of_rows[source] = None
        return list(of_rows), list(of_positions), loads_elements


def _times(x: Node, factor: Node) -> Node:
    if x.op is math.CONST and factor.op is math.CONST:
        values = [decode(node.attrs.bits, float32) for node in (x, factor)]
        return const(values[0] * values[1], float32)
    return math.MUL(x, factor)


def _is_fraction(node: Node) -> bool:
    """Is this a constant that makes nothing larger?"""
    return node.op is math.CONST and abs(decode(node.attrs.bits, float32)) <= 1


def _rebuilt(node: Node, src: Sequence[Node]) -> Node:
    return node if tuple(src) == node.src else simplify.rebuild(node, tuple(src))
