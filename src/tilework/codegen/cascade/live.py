"""Which positions of the folded axis can matter to a tile of rows.

Where a condition that only positions decide (causal masks, windows) puts -inf in the place of a
score, what is computed from it is the same for all such positions of a row, and is 0, or NaN for a
row that is NaN anyway.  So blocks where the condition holds nowhere need not be computed: a maximum
is what it was, a sum gets that one value added once, and a sum of products gets 0 times the other
factor, which is NaN where that holds a NaN or an infinity, as if it had been computed.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from tilework.base.records import dataclass, field, replace
from tilework.codegen.analysis import FreeRanges, depends_on
from tilework.codegen.cascade.finite import sum_multiplied_with
from tilework.dtypes import index
from tilework.ir.build import const, const_index
from tilework.ir.fold import identity_bits
from tilework.ir.node import Node, toposort
from tilework.ir.ops import math
from tilework.ir.ops.memory import LOAD
from tilework.ir.ops.tensor import REDUCE, Fold
from tilework.ir.symbolic import simplify
from tilework.ir.symbolic.bounds import bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tilework.codegen.cascade.find import Cascade
    from tilework.ir.node import OpDef


class _Kind(Enum):
    """What is known of a value at positions that are masked."""

    LOWEST = "-inf or NaN"
    ZERO = "0 or NaN"
    OTHER = "anything"


@dataclass(frozen=True, slots=True)
class Masked:
    """A cascade in which a condition masks positions.

    Attributes:
        condition: Where scores are used as they are.
        at_masked: What each value of the kernel is at a masked position.
        guarded: For sums that get 0 times a sum of products there: what that 0 (or NaN) is, and the
            sum of products, which must be finite for positions to be left out.
    """

    condition: Node
    at_masked: Mapping[Node, Node]
    guarded: Mapping[Node, tuple[Node, Node]] = field(default_factory=dict)


def find_mask(cascade: Cascade) -> Masked | None:
    """The condition under which positions of a cascade matter; None if it has none."""
    key = cascade.key
    if key is None:
        return None
    for node, condition, branch in _choices(cascade, key):
        masked = Masked(condition, _at_masked(cascade, node.src[0], branch))
        guarded = _guarded(cascade, masked, key)
        if guarded is not None:
            return replace(masked, guarded=guarded)
    return None


def find_zeroing(cascade: Cascade, values: Sequence[Node]) -> Node | None:
    """The choice by positions elsewhere than whose condition all of `values` are 0, or NaN.

    Args:
        cascade: What the values are of.
        values: What is multiplied or summed, so that positions where it is 0 may be left out.
    """
    key = cascade.key
    if key is None:
        return None
    for node, _, branch in _choices(cascade, key):
        if branch != 2:
            continue
        at_masked = _at_masked(cascade, node.src[0], branch)
        if all(_kind(at_masked[value]) is _Kind.ZERO for value in values):
            return node
    return None


def _choices(cascade: Cascade, key: Node) -> Iterator[tuple[Node, Node, int]]:
    """Choices by positions between a score and -inf: each with `_condition_of` it."""
    for node in cascade.kernel.order:
        if node.op is math.WHERE and _is_of_positions(node.src[0], key):
            found = _condition_of(node)
            if found is not None:
                yield node, *found


def _is_of_positions(condition: Node, key: Node) -> bool:
    """Is a condition decided by positions alone, those along `key` among them?"""
    return depends_on(condition, key) and all(
        part.op is not LOAD and part.op is not REDUCE and not part.type.dtype.is_float
        for part in toposort(condition)
    )


def _condition_of(node: Node) -> tuple[Node, int] | None:
    """Where a WHERE takes a score, and which operand elsewhere; None if that is not -inf."""
    condition, x, y = node.src
    if _is_lowest(y):
        return condition, 2
    if not _is_lowest(x):
        return None
    if condition.op is math.LT:
        return math.LE(condition.src[1], condition.src[0]), 1
    if condition.op is math.LE:
        return math.LT(condition.src[1], condition.src[0]), 1
    return None


def _is_lowest(node: Node) -> bool:
    if node.op is not math.CONST or not node.type.dtype.is_float:
        return False
    return bool(node.attrs.bits == identity_bits(Fold.MAX, node.type.dtype))


def _at_masked(cascade: Cascade, condition: Node, branch: int) -> dict[Node, Node]:
    """Every node as it is where a score is masked; folds are what they are."""
    done: dict[Node, Node] = {}
    for node in cascade.kernel.order:
        if node.op is REDUCE or not node.src:
            done[node] = node
        elif node.op is math.WHERE and node.src[0] is condition:
            done[node] = done[node.src[branch]]
        else:
            src = tuple([done[source] for source in node.src])
            done[node] = node if src == node.src else simplify.rebuild(node, src)
    return done


def _guarded(cascade: Cascade, masked: Masked, key: Node) -> dict[Node, tuple[Node, Node]] | None:
    """The folds that get what is known if a sum is finite; None if some get what is not known."""
    guarded: dict[Node, tuple[Node, Node]] = {}
    free = FreeRanges(toposort(*masked.at_masked.values()))
    for node in (*cascade.kept, *cascade.lasts):
        if node.op is not REDUCE or key not in node.src[1:]:
            continue
        body = node.src[0]
        if node.attrs.fold is Fold.ADD and body.op is math.MUL and node in cascade.lasts:
            factors = [masked.at_masked[factor] for factor in body.src]
            kinds = [_kind(factor) for factor in factors]
            zero = kinds.index(_Kind.ZERO) if _Kind.ZERO in kinds else None
            if zero is None:
                return None
            # What is left out is added once for all rows, or for each row without its positions.
            runs_along = free.mask[factors[zero]] & free.bit(key)
            of_rows = factors if runs_along else [factors[1 - zero]]
            own = set(cascade.rows) - _batch(cascade)
            if any(free.mask[each] & free.bit(range_) for each in of_rows for range_ in own):
                return None
            continue
        value = masked.at_masked[body]
        wanted = _Kind.ZERO if node.attrs.fold is Fold.ADD else _Kind.LOWEST
        if node.attrs.fold not in (Fold.ADD, Fold.MAX):
            return None
        if free.mask[value] & free.bit(key):
            found = _multiplied_with_zero(value, cascade) if wanted is _Kind.ZERO else None
            if found is None or free.mask[found[0]] & free.bit(key):
                return None
            guarded[node] = found
        elif _kind(value) is not wanted:
            return None
    return guarded


def _multiplied_with_zero(value: Node, cascade: Cascade) -> tuple[Node, Node] | None:
    """A factor of a product that is 0 or NaN, and the sum of products that bounds the other."""
    while value.op is math.NEG:
        value = value.src[0]
    if value.op is not math.MUL:
        return None
    for zero, other in (value.src, value.src[::-1]):
        found = sum_multiplied_with(other, cascade)
        if _kind(zero) is _Kind.ZERO and found is not None:
            return zero, found
    return None


def _batch(cascade: Cascade) -> set[Node]:
    """The rows' ranges that every factor of the scores depends on."""
    free = cascade.kernel.free
    shared = ~0
    for node in cascade.kept:
        if node.op is REDUCE and cascade.along(node):
            for factor in node.src[0].src:
                shared &= free.mask[factor]
    return {range_ for range_ in cascade.rows if shared & free.bit(range_)}


def _kind(value: Node) -> _Kind:
    """What is known of a value that stands at masked positions."""
    op = value.op
    if op is math.CONST:
        if _is_lowest(value):
            return _Kind.LOWEST
        return _Kind.ZERO if value.attrs.bits == 0 else _Kind.OTHER
    if op is math.CAST and value.type.dtype.is_float and value.src[0].type.dtype.is_float:
        return _kind(value.src[0])
    if op is math.EXP or op is math.EXP2:
        return _Kind.ZERO if _kind(value.src[0]) is _Kind.LOWEST else _Kind.OTHER
    if op is math.SUB:
        return _only(_Kind.LOWEST, value.src[:1])
    if op is math.ADD:
        return _only(_Kind.LOWEST, value.src)
    if op is math.FDIV:
        return _only(_Kind.ZERO, value.src[:1])
    if op is math.MUL:
        return _Kind.ZERO if _Kind.ZERO in map(_kind, value.src) else _scaled(value)
    if op is math.WHERE:
        kinds = {_kind(source) for source in value.src[1:]}
        return kinds.pop() if len(kinds) == 1 else _Kind.OTHER
    return _Kind.OTHER


def without_exponentials(value: Node) -> Node:
    """A value that stands at masked positions, which is 0 or NaN, in fewer steps.

    The exponential of -inf less a number is 0, but NaN where that is -inf or NaN.
    """
    done: dict[Node, Node] = {}
    for node in toposort(value):
        src = tuple([done[source] for source in node.src])
        inner = src[0] if src else node
        if node.op in (math.EXP, math.EXP2) and inner.op is math.SUB and _is_lowest(inner.src[0]):
            dtype = node.type.dtype
            is_number = math.LT(inner.src[0], inner.src[1])
            done[node] = math.WHERE(is_number, const(0.0, dtype), const(float("nan"), dtype))
        else:
            done[node] = node if src == node.src else simplify.rebuild(node, src)
    return done[value]


def _only(kind: _Kind, operands: Sequence[Node]) -> _Kind:
    """`kind` if one of the operands is of it, which makes the result so too."""
    return kind if any(_kind(operand) is kind for operand in operands) else _Kind.OTHER


def _scaled(value: Node) -> _Kind:
    """-inf times a positive number."""
    x, factor = value.src
    if factor.op is not math.CONST:
        x, factor = factor, x
    if factor.op is not math.CONST or _kind(x) is not _Kind.LOWEST:
        return _Kind.OTHER
    bits, dtype = factor.attrs.bits, factor.type.dtype
    return _Kind.LOWEST if 0 < bits < 1 << (dtype.bits - 1) else _Kind.OTHER


# ---- positions


def live_range(
    condition: Node, key: Node, length: int, rows: Mapping[Node, Node], inside: Node
) -> tuple[Node, Node]:
    """Positions `first` to `end` (not included), outside of which the condition holds nowhere.

    Args:
        condition: A condition on positions.
        key: The range of positions.
        length: Of the axis.
        rows: What each range of rows is in a tile.
        inside: The range of rows inside of a tile.
    """
    first, end = const_index(0), const_index(length)
    for part in simplify.conjuncts(condition):
        if part.op is not math.LT and part.op is not math.LE:
            continue
        sides = [_position(side) for side in part.src]
        if sides[0] is None or sides[1] is None:
            continue
        low, high = simplify.substitute([sides[0], sides[1]], rows)
        # The condition is: room > 0, with room = high - low (+ 1 for LE).
        room = simplify.sub(high, low)
        if part.op is math.LE:
            room = simplify.add(room, const_index(1))
        constant, found = simplify.terms(room)
        terms = dict(found)
        factor = terms.pop(key, 0)
        if factor not in (-1, 1) or any(depends_on(term, key) for term in terms):
            continue
        most = _greatest(simplify.from_terms(constant, terms), inside)
        if most is None:
            continue
        if factor < 0:
            end = simplify.minimum(end, most)
        else:
            first = simplify.maximum(first, simplify.sub(const_index(1), most))
    return first, end


def _position(value: Node) -> Node | None:
    """An integer as index arithmetic; None where it might wrap around, or is no such sum."""
    dtype = value.type.dtype
    if dtype is index:
        return value
    if value.op is math.CONST and dtype.is_integer:
        return const_index(bounds(value)[0])
    parts = [_position(source) for source in value.src]
    known = [part for part in parts if part is not None]
    build = _ARITHMETIC.get(value.op)
    if not dtype.is_integer or build is None or len(known) != len(parts):
        return None
    result = build(*known)
    low, high = bounds(result)
    return result if dtype.minimum <= low and high <= dtype.maximum else None


_ARITHMETIC: dict[OpDef, Callable[..., Node]] = {
    math.CAST: lambda x: x,
    math.ADD: simplify.add,
    math.SUB: simplify.sub,
    math.MUL: simplify.mul,
}


def _greatest(value: Node, inside: Node) -> Node | None:
    """The greatest that a sum is for any row of a tile; None if that is not plain to see."""
    constant, found = simplify.terms(value)
    terms = dict(found)
    factor = terms.pop(inside, 0)
    if any(depends_on(term, inside) for term in terms):
        return None
    last = (simplify.value_of(inside.src[0]) or 1) - 1
    return simplify.from_terms(constant + max(factor * last, 0), terms)
