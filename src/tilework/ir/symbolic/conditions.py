"""Conditions of index arithmetic: comparisons of sums, conjunctions, and choices by them."""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

from tilework.dtypes import bool_, index
from tilework.ir.build import const, const_index
from tilework.ir.node import make
from tilework.ir.ops import math
from tilework.ir.symbolic.bounds import bounds
from tilework.ir.symbolic.sums import (
    Terms,
    difference,
    from_terms,
    is_exact,
    is_negative_at_worst,
    sub,
    sum_bounds,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tilework.ir.node import Node

#: Conjunctions of more parts are not searched for what they hold already.
MOST_PARTS = 64

TRUE = const(True, bool_)
FALSE = const(False, bool_)


def less(a: Node, b: Node) -> Node:
    """The condition a < b, as a sum of terms below a number."""
    found = _negative(*difference(a, b)) if is_exact(a) and is_exact(b) else None
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
    if is_negative_at_worst(constant, total):
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
        constant, total = difference(b, a)
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
