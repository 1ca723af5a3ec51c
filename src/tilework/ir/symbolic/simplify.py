"""Index arithmetic in a normal form, simplified while it is built.

The normal form of an integer (dtype `index`, scalar) is a sum `c + c1*x1 + c2*x2 + ...` whose
terms are sorted by structure, so equal sums are one node in every process.  Sums and products are
those of the ring modulo 2**64; what needs true order (quotients, comparisons) is rearranged only
where the bounds prove that no sum wraps, since loaded integers may have any value.
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

from tilework.dtypes import bool_, index
from tilework.ir.build import const, const_index
from tilework.ir.digest import digest
from tilework.ir.node import facts_of, make
from tilework.ir.ops import index as index_ops
from tilework.ir.ops import math
from tilework.ir.symbolic.bounds import bounds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tilework.ir.node import Node

Terms = dict["Node", int]

#: Products of sums with more terms than this stay products.
MOST_PRODUCTS = 64

#: Products of more factors than this stay nested: one that is shared by its own factors, as in
#: powers by squaring, holds each factor exponentially often.
MOST_FACTORS = 8

#: Conjunctions of more parts are not searched for what they hold already.
MOST_PARTS = 64

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

TRUE = const(True, bool_)
FALSE = const(False, bool_)


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
                _accumulate(total, term, sign * factor)
            return constant + sign * other, total
        if op is math.MUL and node.src[1].op is math.CONST:
            scale = bounds(node.src[1])[0]
            constant, total = terms(node.src[0])
            return constant * scale, {term: factor * scale for term, factor in total.items()}
        if op is math.NEG:
            constant, total = terms(node.src[0])
            return -constant, {term: -factor for term, factor in total.items()}
    return 0, {node: 1}


def _accumulate(total: Terms, term: Node, factor: int) -> None:
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
                _accumulate(merged, inner, scale * factor)
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
        _accumulate(total, term, factor)
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
            _accumulate(total, _product(x, y), c * d)
        if constant_b:
            _accumulate(total, x, c * constant_b)
    if constant_a:
        for y, d in terms_b.items():
            _accumulate(total, y, d * constant_a)
    return from_terms(constant_a * constant_b, total)


def _factors(node: Node) -> list[Node]:
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
        factors = [_factors(term) for term in total]
        if not all(factor.op in _POSITIONS for row in factors for factor in row):
            return False
        most += max([len(row) for row in factors], default=0)
    return most <= MOST_FACTORS


def _product(x: Node, y: Node) -> Node:
    ordered = sorted(_factors(x) + _factors(y), key=order_key)
    node = ordered[0]
    for factor in ordered[1:]:
        node = make(math.MUL, (node, factor), None)
    return node


def _within(constant: int, total: Terms, size: int) -> bool:
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


def idiv(a: Node, b: Node) -> Node:
    """a // b, rounded towards minus infinity."""
    size = value_of(b)
    if size is None:
        return _symbolic_idiv(a, b)
    if size == 1:
        return a
    if size <= 0 or not is_exact(a):
        return make(math.IDIV, (a, b), None)
    low, high = bounds(a)
    if low // size == high // size:
        return const_index(low // size)
    constant, total = terms(a)
    whole = {term: c // size for term, c in total.items() if c % size == 0}
    rest = {term: c for term, c in total.items() if c % size}
    quotient, remainder = divmod(constant, size)
    if _within(remainder, rest, size):
        return from_terms(quotient, whole)
    if not fits(remainder, rest):
        return make(math.IDIV, (a, b), None)
    return add(from_terms(quotient, whole), _idiv_rest(remainder, rest, size))


def _reduced(constant: int, total: Terms, size: int) -> tuple[int, Node, int, Terms] | None:
    """Find g with sum = g * x + y, 0 <= y < g and g | size: (g, x, constant and terms of y)."""
    for g in sorted({gcd(c, size) for c in total.values()}, reverse=True):
        if g <= 1:
            continue
        whole = {term: c // g for term, c in total.items() if c % g == 0}
        rest = {term: c for term, c in total.items() if c % g}
        quotient, remainder = divmod(constant, g)
        if whole and _within(remainder, rest, g):
            return g, from_terms(quotient, whole), remainder, rest
    return None


def _idiv_rest(constant: int, total: Terms, size: int) -> Node:
    found = _reduced(constant, total, size)
    if found is not None:
        g, x, _, _ = found
        return idiv(x, const_index(size // g))
    if constant == 0 and len(total) == 1:
        ((term, factor),) = total.items()
        inner = value_of(term.src[1]) if factor == 1 and term.op is math.IDIV else None
        if inner is not None and inner > 0:
            return idiv(term.src[0], const_index(inner * size))
    return make(math.IDIV, (from_terms(constant, total), const_index(size)), None)


def mod(a: Node, b: Node) -> Node:
    """a % b, with the sign of b."""
    size = value_of(b)
    if size is None:
        return _symbolic_mod(a, b)
    if size == 1:
        return const_index(0)
    if size <= 0 or not is_exact(a):
        return make(math.MOD, (a, b), None)
    constant, total = terms(a)
    rest = {term: c for term, c in total.items() if c % size}
    remainder = constant % size
    if not fits(remainder, rest):
        return make(math.MOD, (a, b), None)
    low, high = sum_bounds(remainder, rest)
    if low // size == high // size:
        return from_terms(remainder - (low // size) * size, rest)
    found = _reduced(remainder, rest, size)
    if found is not None:
        g, x, y_constant, y = found
        return add(scale(mod(x, const_index(size // g)), g), from_terms(y_constant, y))
    return make(math.MOD, (from_terms(remainder, rest), const_index(size)), None)


def _by_factor(total: Terms, factor: Node) -> tuple[Terms, Terms]:
    """Split terms into those with `factor` (divided by it) and the others."""
    whole: Terms = {}
    rest: Terms = {}
    for term, c in total.items():
        parts = _factors(term)
        if factor in parts:
            parts.remove(factor)
            product = const_index(1)
            for part in parts:
                product = mul(product, part)
            constant, inner = terms(product)
            if constant:
                rest_key = const_index(1)
                whole[rest_key] = whole.get(rest_key, 0) + constant * c
            for inner_term, d in inner.items():
                _accumulate(whole, inner_term, d * c)
        else:
            rest[term] = c
    return whole, rest


def _split_by(a: Node, b: Node) -> tuple[Node, Node]:
    """(x, y) with a = x * b + y, taking into x every term that has b as a factor."""
    constant, total = terms(a)
    whole, rest = _by_factor(total, b)
    extra = whole.pop(const_index(1), 0)
    return from_terms(extra, whole), from_terms(constant, rest)


def _symbolic_idiv(a: Node, b: Node) -> Node:
    x, y = _split_by(a, b)
    if is_exact(a) and bounds(b)[0] > 0 and bounds(y)[0] >= 0 and proven_less(y, b):
        return x
    return make(math.IDIV, (a, b), None)


def _symbolic_mod(a: Node, b: Node) -> Node:
    _, y = _split_by(a, b)
    if is_exact(a) and bounds(b)[0] > 0 and bounds(y)[0] >= 0 and proven_less(y, b):
        return y
    return make(math.MOD, (a, b), None)


def _difference(a: Node, b: Node) -> tuple[int, Terms]:
    """a - b as constant + sum of terms, which the caller only reads."""
    constant, total = terms(a)
    other, more = terms(b)
    if more:
        total = dict(total)
        for term, factor in more.items():
            _accumulate(total, term, -factor)
        if len(total) > 1:
            total = _recombine(total)
    return constant - other, total


def proven_less(a: Node, b: Node) -> bool:
    """Is a < b proven?  Ranges are replaced by their last value where that is the worst case."""
    if not is_exact(a) or not is_exact(b):
        return False
    constant, total = _difference(a, b)
    return sum_bounds(constant, total)[1] < 0 or _is_negative_at_worst(constant, total)


def _is_negative_at_worst(constant: int, total: Terms) -> bool:
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


def less(a: Node, b: Node) -> Node:
    """The condition a < b, as a sum of terms below a number."""
    found = _negative(*_difference(a, b)) if is_exact(a) and is_exact(b) else None
    return make(math.LT, (a, b), None) if found is None else found


def _negative(constant: int, total: Terms) -> Node | None:
    """The condition that a sum is below zero; None where it may wrap."""
    low, high = sum_bounds(constant, total)
    if low < index.minimum or high > index.maximum:
        return None
    if high < 0:
        return TRUE
    if low >= 0:
        return FALSE
    if _is_negative_at_worst(constant, total):
        return TRUE
    divisor = gcd(*total.values())
    # sum < -constant  <=>  sum / g < ceil(-constant / g)
    limit = -(constant // divisor)
    if not _holds((low - constant) // divisor, (high - constant) // divisor, limit):
        return None
    shrunk = {term: factor // divisor for term, factor in total.items()}
    return make(math.LT, (from_terms(0, shrunk), const_index(limit)), None)


def _holds(*numbers: int) -> bool:
    """Are these integers of index arithmetic?"""
    return index.minimum <= min(numbers) and max(numbers) <= index.maximum


def at_least(a: Node, b: Node) -> Node:
    """The condition a >= b."""
    found = None
    if is_exact(a) and is_exact(b):
        constant, total = _difference(b, a)
        found = _negative(constant - 1, total)
    return make(math.LE, (b, a), None) if found is None else found


def equal(a: Node, b: Node) -> Node:
    """The condition a == b."""
    difference = sub(a, b)
    low, high = bounds(difference)
    if low == high == 0:
        return TRUE
    if low > 0 or high < 0:
        return FALSE
    return make(math.EQ, (difference, const_index(0)), None)


def both(a: Node, b: Node) -> Node:
    """The conjunction of two conditions; of equal parts one stays, of limits of a sum the least."""
    if a is FALSE or b is FALSE:
        return FALSE
    if a is TRUE or a is b:
        return b
    if b is TRUE:
        return a
    found = conjuncts(a, MOST_PARTS) + conjuncts(b, MOST_PARTS)
    if len(found) > MOST_PARTS:
        return make(math.AND, (a, b), None)
    parts: dict[Node, Node] = {}  # by what is limited, or the whole part
    for part in found:
        limited = part.src[0] if _is_limit(part) else part
        known = parts.get(limited)
        if known is None or (known is not part and _limit(part) < _limit(known)):
            parts[limited] = part
    node: Node | None = None
    for part in parts.values():
        node = part if node is None else make(math.AND, (node, part), None)
    return TRUE if node is None else node


def _is_limit(condition: Node) -> bool:
    """Is this a sum of index arithmetic below a number?"""
    if condition.op is not math.LT or condition.src[1].op is not math.CONST:
        return False
    return condition.src[0].type.dtype is index and condition.type.shape == ()


def _limit(condition: Node) -> int:
    return bounds(condition.src[1])[0]


def implies(known: Node, condition: Node) -> bool:
    """Does `condition` add nothing to a conjunction that `both` or `all_of` gave?"""
    return both(known, condition) is known


def conjuncts(condition: Node, most: int = 1 << 60) -> list[Node]:
    """The parts of a conjunction; of more than `most` only so many and one."""
    found: list[Node] = []
    stack = [condition]
    while stack and len(found) <= most:
        node = stack.pop()
        if node.op is math.AND and node.type.dtype is bool_:
            stack += (node.src[1], node.src[0])
        else:
            found.append(node)
    return found


def all_of(conditions: Iterable[Node]) -> Node:
    """The conjunction of conditions."""
    result = TRUE
    for condition in conditions:
        result = both(result, condition)
    return result


def minimum(a: Node, b: Node) -> Node:
    """The lesser of two indices."""
    if a is b or proven_less(a, b):
        return a
    if proven_less(b, a):
        return b
    (low_a, high_a), (low_b, high_b) = bounds(a), bounds(b)
    if high_a <= low_b:
        return a
    if high_b <= low_a:
        return b
    return make(math.MINIMUM, (a, b), None)


def maximum(a: Node, b: Node) -> Node:
    """The greater of two indices."""
    if a is b:
        return a
    (low_a, high_a), (low_b, high_b) = bounds(a), bounds(b)
    if high_a <= low_b:
        return b
    if high_b <= low_a:
        return a
    return make(math.MAXIMUM, (a, b), None)


def where(condition: Node, a: Node, b: Node) -> Node:
    """a where the condition holds, else b."""
    if condition is TRUE or a is b:
        return a
    if condition is FALSE:
        return b
    return make(math.WHERE, (condition, a, b), None)


def choice(condition: Node, a: Node, b: Node) -> Node:
    """As `where`; a choice in `a` or `b` does not ask again what `condition` has told.

    Joined tensors are chosen by position, each out of its own padding, which then holds nothing
    that can be chosen.
    """
    if a.op is math.WHERE:
        a = _choice_within(a, condition)
    if b.op is math.WHERE and condition.op is math.LT and condition.src[0].type.dtype is index:
        opposite = at_least(*condition.src)
        b = _choice_within(b, opposite)
        if b.op is math.WHERE and b.src[1].op is math.WHERE:
            b = where(b.src[0], _choice_within(b.src[1], opposite), b.src[2])
    return where(condition, a, b)


def _choice_within(choice: Node, known: Node) -> Node:
    """A WHERE where `known` holds."""
    condition, a, b = choice.src
    parts = conjuncts(condition)
    left = [part for part in parts if part is not known]
    return choice if len(left) == len(parts) else where(all_of(left), a, b)


_BUILDERS = {
    math.ADD: add,
    math.SUB: sub,
    math.MUL: mul,
    math.IDIV: idiv,
    math.MOD: mod,
    math.MINIMUM: minimum,
    math.MAXIMUM: maximum,
}


def rebuild(node: Node, src: tuple[Node, ...]) -> Node:
    """`node` with other sources, simplified if it is index arithmetic."""
    op = node.op
    if src and src[0].type.shape == ():
        kind = src[0].type.dtype
        if kind is index:
            builder = _BUILDERS.get(op)
            if builder is not None:
                return builder(src[0], src[1])
            if op is math.LT:
                return less(src[0], src[1])
            if op is math.LE:
                return at_least(src[1], src[0])
            if op is math.EQ:
                return equal(src[0], src[1])
        elif kind is bool_:
            if op is math.AND:
                return both(src[0], src[1])
            if op is math.WHERE:
                return where(src[0], src[1], src[2])
    return make(op, src, node.attrs)


def substitute(
    roots: Iterable[Node], mapping: Mapping[Node, Node], memo: dict[Node, Node] | None = None
) -> list[Node]:
    """`roots` with the nodes of `mapping` replaced, index arithmetic simplified again.

    `memo` may be passed to share work between calls with the same mapping.
    """
    done: dict[Node, Node] = {} if memo is None else memo
    done.update(mapping)
    results = []
    result_of = done.__getitem__
    for root in roots:
        stack: list[Node | None] = [root]
        pop = stack.pop
        while stack:
            node = pop()
            if node is None:  # the sources of the next one are done
                above = pop()
                if above is not None:
                    src = tuple(map(result_of, above.src))
                    done[above] = above if src == above.src else rebuild(above, src)
            elif node not in done:
                if node.src:
                    stack.append(node)
                    stack.append(None)
                    stack.extend(node.src)
                else:
                    done[node] = node
        results.append(done[root])
    return results
