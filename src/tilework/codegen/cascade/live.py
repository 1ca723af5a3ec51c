"""Which positions of the folded axis can matter to a tile of rows.

Where a condition that only positions decide (causal masks, windows) puts -inf in the place of a
score, what is computed from it is the same for all such positions of a row, and is 0, or NaN for a
row that is NaN anyway.  So blocks where the condition holds nowhere need not be computed: a maximum
is what it was, a sum gets that one value added once, and a sum of products gets 0 times the other
factor, which is NaN where that holds a NaN or an infinity, as if it had been computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from tilework.codegen.analysis import FreeRanges, depends_on
from tilework.dtypes import index
from tilework.ir.build import const_index
from tilework.ir.fold import identity_bits
from tilework.ir.node import Node, toposort
from tilework.ir.ops import math
from tilework.ir.ops.tensor import REDUCE, Fold
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tilework.codegen.cascade.find import Cascade


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
    """

    condition: Node
    at_masked: Mapping[Node, Node]


def find_mask(cascade: Cascade) -> Masked | None:
    """The condition under which positions of a cascade matter; None if it has none."""
    key = cascade.key
    if key is None:
        return None
    for node in cascade.kernel.order:
        if node.op is math.WHERE and _masks(node, key):
            masked = Masked(node.src[0], _at_masked(cascade, node.src[0]))
            if _is_sound(cascade, masked, key):
                return masked
    return None


def _masks(node: Node, key: Node) -> bool:
    condition, _, other = node.src
    if other.op is not math.CONST or not other.type.dtype.is_float:
        return False
    if other.attrs.bits != identity_bits(Fold.MAX, other.type.dtype):
        return False
    return depends_on(condition, key) and all(
        part.type.dtype is index or part.type.dtype.is_bool for part in toposort(condition)
    )


def _at_masked(cascade: Cascade, condition: Node) -> dict[Node, Node]:
    """Every node as it is where the condition does not hold; folds are what they are."""
    done: dict[Node, Node] = {}
    for node in cascade.kernel.order:
        if node.op is REDUCE or not node.src:
            done[node] = node
        elif node.op is math.WHERE and node.src[0] is condition:
            done[node] = done[node.src[2]]
        else:
            src = tuple([done[source] for source in node.src])
            done[node] = node if src == node.src else simplify.rebuild(node, src)
    return done


def _is_sound(cascade: Cascade, masked: Masked, key: Node) -> bool:
    """Does every fold over the key get what is known of masked positions?"""
    free = FreeRanges(toposort(*masked.at_masked.values()))
    for node in (*cascade.kept, *cascade.lasts):
        if node.op is not REDUCE or key not in node.src[1:]:
            continue
        body = node.src[0]
        if node.attrs.fold is Fold.ADD and body.op is math.MUL and node in cascade.lasts:
            factors = [masked.at_masked[factor] for factor in body.src]
            kinds = [_kind(factor) for factor in factors]
            zero = kinds.index(_Kind.ZERO) if _Kind.ZERO in kinds else None
            if zero is None or free.mask[factors[zero]] & free.bit(key):
                return False
            own = set(cascade.rows) - _batch(cascade)
            if any(free.mask[factors[1 - zero]] & free.bit(range_) for range_ in own):
                return False
            continue
        value = masked.at_masked[body]
        wanted = _Kind.ZERO if node.attrs.fold is Fold.ADD else _Kind.LOWEST
        if node.attrs.fold not in (Fold.ADD, Fold.MAX) or free.mask[value] & free.bit(key):
            return False
        if _kind(value) is not wanted:
            return False
    return True


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
        if value.attrs.bits == identity_bits(Fold.MAX, value.type.dtype):
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
        low, high = simplify.substitute(part.src, rows)
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


def _greatest(value: Node, inside: Node) -> Node | None:
    """The greatest that a sum is for any row of a tile; None if that is not plain to see."""
    constant, found = simplify.terms(value)
    terms = dict(found)
    factor = terms.pop(inside, 0)
    if any(depends_on(term, inside) for term in terms):
        return None
    last = (simplify.value_of(inside.src[0]) or 1) - 1
    return simplify.from_terms(constant + max(factor * last, 0), terms)
