"""Sums of index arithmetic in their normal form.

The normal form of an integer (dtype `index`, scalar) is a sum `c + c1*x1 + c2*x2 + ...` whose
terms are sorted by structure, so equal sums are one node in every process.  Sums and products are
those of the ring modulo 2**64; what needs true order (quotients, comparisons) is rearranged only
where the bounds prove that no sum wraps, since loaded integers may have any value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.dtypes import index
from tilework.ir.build import const_index
from tilework.ir.digest import digest
from tilework.ir.node import facts_of, make
from tilework.ir.ops import index as index_ops
from tilework.ir.ops import math
from tilework.ir.symbolic.bounds import bounds

if TYPE_CHECKING:
    from tilework.ir.node import Node

Terms = dict["Node", int]

#: Products of sums with more terms than this stay products.
MOST_PRODUCTS = 64

#: Products of more factors than this stay nested: one that is shared by its own factors, as in
#: powers by squaring, holds each factor exponentially often.
MOST_FACTORS = 8

#: What sums that are multiplied out are made of.
_POSITIONS = frozenset(
    (
        index_ops.RANGE,
        index_ops.VARIABLE,
        index_ops.BIND,
        math.IDIV,
        math.MOD,
        math.MINIMUM,
        math.MAXIMUM,
    )
)


def value_of(node: Node) -> int | None:
    """The number that `node` is, if it is a CONST."""
    return bounds(node)[0] if node.op is math.CONST else None


def terms(node: Node) -> tuple[int, Terms]:
    """`node` as constant + sum of coefficient * term."""
    facts = facts_of(node)
    found: tuple[int, Terms] | None = facts.terms
    if found is None:
        found = facts.terms = _split(node)
    return found


def _split(node: Node) -> tuple[int, Terms]:
    op = node.op
    if op is math.CONST:
        return bounds(node)[0], {}
    if node.type.shape == () and node.type.dtype is index:
        if op is math.ADD or op is math.SUB:
            constant, total = terms(node.src[0])
            total = dict(total)
            sign = 1 if op is math.ADD else -1
            other, more = terms(node.src[1])
            for term, factor in more.items():
                accumulate(total, term, sign * factor)
            return constant + sign * other, total
        if op is math.MUL and node.src[1].op is math.CONST:
            scale = bounds(node.src[1])[0]
            constant, total = terms(node.src[0])
            return constant * scale, {term: factor * scale for term, factor in total.items()}
        if op is math.NEG:
            constant, total = terms(node.src[0])
            return -constant, {term: -factor for term, factor in total.items()}
    return 0, {node: 1}


def accumulate(total: Terms, term: Node, factor: int) -> None:
    """Add `factor * term` to `total`, in place."""
    new = total.get(term, 0) + factor
    if new:
        total[term] = new
    else:
        total.pop(term, None)


def order_key(node: Node) -> tuple[int, int, str, bytes]:
    """A key that sorts nodes by structure, the same in every process."""
    if node.op is index_ops.RANGE:
        return 0, node.attrs.number, node.attrs.unit.value, digest(node)
    if node.op is index_ops.VARIABLE:
        return 1, 0, node.attrs.name, b""
    return 2, 0, "", digest(node)


def from_terms(constant: int, total: Terms) -> Node:
    """The normal form of a sum."""
    if not total:
        return const_index(constant)
    ordered = list(total)
    if len(total) > 1:
        total = _recombine(total)
        ordered = sorted(total, key=order_key)
    node: Node | None = None
    for term in ordered:
        factor = total[term]
        scaled = term if factor == 1 else make(math.MUL, (term, const_index(factor)), None)
        node = scaled if node is None else make(math.ADD, (node, scaled), None)
    if node is None:
        return const_index(constant)
    if constant:
        node = make(math.ADD, (node, const_index(constant)), None)
    return node


def _recombine(total: Terms) -> Terms:
    """(x // d) * d + x % d  ->  x, for every such pair of terms."""
    for term in list(total):
        if term.op is not math.MOD or term not in total:
            continue
        x, divisor = term.src
        quotient = make(math.IDIV, (x, divisor), None)
        size, factor = value_of(divisor), total[term]
        if size is not None and total.get(quotient) == factor * size:
            merged = dict(total)
            del merged[term], merged[quotient]
            for inner, scale in terms(x)[1].items():
                accumulate(merged, inner, scale * factor)
            if terms(x)[0] == 0:
                total = merged
    return total


def fits(constant: int, total: Terms) -> bool:
    """Is it proven that the sum does not wrap?"""
    low, high = sum_bounds(constant, total)
    return low >= index.minimum and high <= index.maximum


def is_exact(node: Node) -> bool:
    """Is the sum that `node` is its value, without a wrap?"""
    facts = facts_of(node)
    found = facts.is_exact
    if found is None:
        found = facts.is_exact = fits(*terms(node))
    return found


def add(a: Node, b: Node) -> Node:
    """a + b."""
    constant, total = terms(a)
    other, more = terms(b)
    total = dict(total)
    for term, factor in more.items():
        accumulate(total, term, factor)
    return from_terms(constant + other, total)


def plus(base: Node, number: int) -> Node:
    """A sum in normal form that has no constant, and a number."""
    if base.op is math.CONST:
        return const_index(bounds(base)[0] + number)
    return make(math.ADD, (base, const_index(number)), None) if number else base


def sub(a: Node, b: Node) -> Node:
    """a - b."""
    return add(a, scale(b, -1))


def scale(a: Node, factor: int) -> Node:
    """a * factor for a number."""
    if factor == 0:
        return const_index(0)
    if factor == 1:
        return a
    constant, total = terms(a)
    return from_terms(constant * factor, {term: c * factor for term, c in total.items()})


def mul(a: Node, b: Node) -> Node:
    """a * b; sums are multiplied out, so that a product of symbolic sizes stays a sum."""
    for x, y in ((a, b), (b, a)):
        number = value_of(y)
        if number is not None:
            return scale(x, number)
    total: Terms = {}
    constant_a, terms_a = terms(a)
    constant_b, terms_b = terms(b)
    if len(terms_a) * len(terms_b) > MOST_PRODUCTS or not _is_short(terms_a, terms_b):
        return make(math.MUL, (a, b), None)
    for x, c in terms_a.items():
        for y, d in terms_b.items():
            accumulate(total, _product(x, y), c * d)
        if constant_b:
            accumulate(total, x, c * constant_b)
    if constant_a:
        for y, d in terms_b.items():
            accumulate(total, y, d * constant_a)
    return from_terms(constant_a * constant_b, total)


def factors_of(node: Node) -> list[Node]:
    """What `node` is the product of; some may be products again where they are too many."""
    factors = [node]
    place = 0
    while place < len(factors) <= MOST_FACTORS:
        first = factors[place]
        if first.op is math.MUL and first.src[1].op is not math.CONST:
            factors[place : place + 1] = first.src
        else:
            place += 1
    return factors


def _is_short(a: Terms, b: Terms) -> bool:
    """Are the products of these terms short, and of positions?  Loaded numbers stay as written."""
    most = 0
    for total in (a, b):
        factors = [factors_of(term) for term in total]
        if not all(factor.op in _POSITIONS for row in factors for factor in row):
            return False
        most += max([len(row) for row in factors], default=0)
    return most <= MOST_FACTORS


def _product(x: Node, y: Node) -> Node:
    ordered = sorted(factors_of(x) + factors_of(y), key=order_key)
    node = ordered[0]
    for factor in ordered[1:]:
        node = make(math.MUL, (node, factor), None)
    return node


def is_within(constant: int, total: Terms, size: int) -> bool:
    """Is 0 <= the sum < size proven?"""
    low, high = sum_bounds(constant, total)
    return low >= 0 and high < size


def sum_bounds(constant: int, total: Terms) -> tuple[int, int]:
    """Bounds of a sum given by its terms."""
    low = high = constant
    for term, factor in total.items():
        least, most = bounds(term)
        low += factor * (least if factor > 0 else most)
        high += factor * (most if factor > 0 else least)
    return low, high


def difference(a: Node, b: Node) -> tuple[int, Terms]:
    """a - b as constant + sum of terms, which the caller only reads."""
    constant, total = terms(a)
    other, more = terms(b)
    if more:
        total = dict(total)
        for term, factor in more.items():
            accumulate(total, term, -factor)
        if len(total) > 1:
            total = _recombine(total)
    return constant - other, total


def proven_less(a: Node, b: Node) -> bool:
    """Is a < b proven?  Ranges are replaced by their last value where that is the worst case."""
    if not is_exact(a) or not is_exact(b):
        return False
    constant, total = difference(a, b)
    return sum_bounds(constant, total)[1] < 0 or is_negative_at_worst(constant, total)


def is_negative_at_worst(constant: int, total: Terms) -> bool:
    """Is the sum below zero with symbolic sizes in it, for the last iterations of ranges?"""
    for term in total:
        if term.op is index_ops.RANGE and term.src[0].op is not math.CONST:
            break
    else:
        return False  # the bounds of ranges of known sizes say the same
    worst = const_index(constant)
    for term, factor in total.items():
        if term.op is index_ops.RANGE:
            last = sub(term.src[0], const_index(1)) if factor > 0 else const_index(0)
            worst = add(worst, scale(last, factor))
        else:
            worst = add(worst, scale(term, factor))
    return sum_bounds(*terms(worst))[1] < 0
