"""Proven inclusive bounds of integer and bool nodes.

What is proved here justifies dropping a mask or narrowing to 32 bits, so a bound may be wider than
the truth, never narrower.  Nodes of unknown content have the bounds of their dtype.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.dtypes import decode
from tilework.ir.node import facts_of
from tilework.ir.ops import index as index_ops
from tilework.ir.ops import math

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilework.ir.node import Node, OpDef

Bounds = tuple[int, int]


def bounds(node: Node) -> Bounds:
    """Least and greatest value that the integer or bool `node` can have."""
    facts = node.facts
    if facts is not None and (known := facts.bounds) is not None:
        return known
    found: Bounds | None = None
    stack = [node]
    while stack:
        top = stack[-1]
        facts = facts_of(top)
        if facts.bounds is not None:
            found = facts.bounds
            stack.pop()
            continue
        if top.op in _RULES:
            waiting = [source for source in top.src if _is_unknown(source)]
            if waiting:
                stack.extend(waiting)
                continue
        stack.pop()
        found = facts.bounds = _compute(top)
    # The last of all is the node itself.
    return found if found is not None else (node.dtype.minimum, node.dtype.maximum)


def _is_unknown(node: Node) -> bool:
    facts = node.facts
    return (facts is None or facts.bounds is None) and not node.type.dtype.is_float


def _compute(node: Node) -> Bounds:
    dtype = node.type.dtype
    widest = (dtype.minimum, dtype.maximum)
    rule = _RULES.get(node.op)
    if rule is None or any(source.type.dtype.is_float for source in node.src):
        return widest
    low, high = rule(node)
    # A value outside of the dtype wraps, after which nothing is known.
    if low < widest[0] or high > widest[1]:
        return widest
    return low, high


def _of(node: Node, operand: int) -> Bounds:
    source = node.src[operand]
    facts = source.facts
    if facts is not None and facts.bounds is not None:
        return facts.bounds
    dtype = source.type.dtype
    return dtype.minimum, dtype.maximum


def _const(node: Node) -> Bounds:
    value = int(decode(node.attrs.bits, node.attrs.dtype))
    return value, value


def _add(node: Node) -> Bounds:
    (a, b), (c, d) = _of(node, 0), _of(node, 1)
    return a + c, b + d


def _sub(node: Node) -> Bounds:
    (a, b), (c, d) = _of(node, 0), _of(node, 1)
    return a - d, b - c


def _mul(node: Node) -> Bounds:
    (a, b), (c, d) = _of(node, 0), _of(node, 1)
    corners = (a * c, a * d, b * c, b * d)
    return min(corners), max(corners)


def _idiv(node: Node) -> Bounds:
    (a, b), (c, d) = _of(node, 0), _of(node, 1)
    if c <= 0 <= d:
        return node.type.dtype.minimum, node.type.dtype.maximum
    corners = (a // c, a // d, b // c, b // d)
    return min(corners), max(corners)


def _mod(node: Node) -> Bounds:
    (a, b), (c, d) = _of(node, 0), _of(node, 1)
    if c > 0:
        if a >= 0:
            return 0, min(b, d - 1)
        return 0, d - 1
    return min(c + 1, 0), max(d - 1, 0)


def _cdiv(node: Node) -> Bounds:
    (a, b), (c, d) = _of(node, 0), _of(node, 1)
    if a < 0 or c <= 0:
        return node.type.dtype.minimum, node.type.dtype.maximum
    return a // d, b // c


def _cmod(node: Node) -> Bounds:
    (a, b), (c, d) = _of(node, 0), _of(node, 1)
    if a < 0 or c <= 0:
        return node.type.dtype.minimum, node.type.dtype.maximum
    return 0, min(b, d - 1)


def _maximum(node: Node) -> Bounds:
    (a, b), (c, d) = _of(node, 0), _of(node, 1)
    return max(a, c), max(b, d)


def _minimum(node: Node) -> Bounds:
    (a, b), (c, d) = _of(node, 0), _of(node, 1)
    return min(a, c), min(b, d)


def _where(node: Node) -> Bounds:
    if node.type.dtype.is_float:
        return 0, 0
    (p, q), (a, b), (c, d) = _of(node, 0), _of(node, 1), _of(node, 2)
    if p == q:
        return (a, b) if p else (c, d)
    return min(a, c), max(b, d)


def _neg(node: Node) -> Bounds:
    a, b = _of(node, 0)
    return -b, -a


def _abs(node: Node) -> Bounds:
    a, b = _of(node, 0)
    least = 0 if a <= 0 <= b else min(abs(a), abs(b))
    return least, max(abs(a), abs(b))


def _and(node: Node) -> Bounds:
    (a, b), (c, d) = _of(node, 0), _of(node, 1)
    if node.type.dtype.is_bool:
        return min(a, c), min(b, d)
    if a >= 0 or c >= 0:
        return 0, min(b if a >= 0 else d, d if c >= 0 else b)
    return node.type.dtype.minimum, node.type.dtype.maximum


def _or(node: Node) -> Bounds:
    (a, b), (c, d) = _of(node, 0), _of(node, 1)
    if node.type.dtype.is_bool:
        return max(a, c), max(b, d)
    if a >= 0 and c >= 0:
        return max(a, c), (1 << max(b.bit_length(), d.bit_length())) - 1
    return node.type.dtype.minimum, node.type.dtype.maximum


def _shl(node: Node) -> Bounds:
    (a, b), (c, d) = _of(node, 0), _of(node, 1)
    if c == d and 0 <= c < node.type.dtype.bits:
        return a << c, b << c
    return node.type.dtype.minimum, node.type.dtype.maximum


def _shr(node: Node) -> Bounds:
    (a, b), (c, d) = _of(node, 0), _of(node, 1)
    if c == d and 0 <= c < node.type.dtype.bits:
        return a >> c, b >> c
    return min(a, 0), max(b, 0)


def _cast(node: Node) -> Bounds:
    a, b = _of(node, 0)
    if node.type.dtype.is_bool:
        return (int(a > 0 or b < 0), int(a != 0 or b != 0))
    return a, b


def _lt(node: Node) -> Bounds:
    (a, b), (c, d) = _of(node, 0), _of(node, 1)
    return int(b < c), int(a < d)


def _le(node: Node) -> Bounds:
    (a, b), (c, d) = _of(node, 0), _of(node, 1)
    return int(b <= c), int(a <= d)


def _eq(node: Node) -> Bounds:
    (a, b), (c, d) = _of(node, 0), _of(node, 1)
    return int(a == b == c == d), int(not (b < c or d < a))


def _ne(node: Node) -> Bounds:
    low, high = _eq(node)
    return 1 - high, 1 - low


def _range(node: Node) -> Bounds:
    return 0, max(_of(node, 0)[1] - 1, 0)


def _variable(node: Node) -> Bounds:
    return node.attrs.minimum, node.attrs.maximum


def _bind(node: Node) -> Bounds:
    return _of(node, 0)


def _lanes(node: Node) -> Bounds:
    return 0, node.attrs.lanes - 1


_RULES: dict[OpDef, Callable[[Node], Bounds]] = {
    math.CONST: _const,
    math.ADD: _add,
    math.SUB: _sub,
    math.MUL: _mul,
    math.IDIV: _idiv,
    math.MOD: _mod,
    math.CDIV: _cdiv,
    math.CMOD: _cmod,
    math.MAXIMUM: _maximum,
    math.MINIMUM: _minimum,
    math.WHERE: _where,
    math.NEG: _neg,
    math.ABS: _abs,
    math.AND: _and,
    math.OR: _or,
    math.SHL: _shl,
    math.SHR: _shr,
    math.CAST: _cast,
    math.LT: _lt,
    math.LE: _le,
    math.EQ: _eq,
    math.NE: _ne,
    index_ops.RANGE: _range,
    index_ops.VARIABLE: _variable,
    index_ops.BIND: _bind,
    index_ops.LANES: _lanes,
    index_ops.TASK_IN_ORDER: _bind,  # one of the values of its task
}
