"""Float sums of products of small integers, times factors, become sums of integers.

    sum over k of (float(x) * s) * (float(y) * t)  ->  float(sum over k of x * y) * s * t

where the factors do not vary along the sum and the sum of integers cannot overflow.  It is exact,
so the result is rounded once for its conversion and once for each factor, whatever the length of
the sum, and is never further from the true value than the sum of rounded terms may be.  Backends
have instructions for products of bytes, and nothing that lies between is stored as floats.

ADR 0030 says why that is allowed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilework.dtypes import decode, int32, round_to
from tilework.ir.build import cast, const_like
from tilework.ir.node import make, toposort
from tilework.ir.ops import math, tensor
from tilework.ir.ops.tensor import REDUCE, Fold
from tilework.ir.symbolic import dims
from tilework.schedule.passes.integer_factors import IntegerFactors, expanded

if TYPE_CHECKING:
    from tilework.ir.node import Node

#: More factors would have to be multiplied in an order that neither overflows nor underflows.
_MOST_FACTORS: Final = 2
#: A literal up to here times a sum does not overflow, and one from here on is no subnormal.
_MOST, _LEAST = 2.0**90, 2.0**-100
_MOVED: Final = frozenset(
    (tensor.RESHAPE, tensor.PERMUTE, tensor.EXPAND, tensor.SHRINK, tensor.FLIP)
)


def sum_integers(function: Node) -> Node:
    """TENSOR -> TENSOR, with sums of dequantised products done in integers.

    Args:
        function: SINK of outputs over PARAMs.

    Ensures: values that differ by roundings alone, of which there are fewer; where a factor is
    infinite or NaN, no value is finite unless no factor of a term was.
    """
    known = IntegerFactors()
    done: dict[Node, Node] = {}
    for node in toposort(function):
        src = tuple([done[source] for source in node.src])
        new = node if src == node.src else make(node.op, src, node.attrs)
        if new.op is REDUCE:
            new = _in_integers(new, known)
        else:
            known.look_at(new)
        done[node] = new
    return done[function]


def _in_integers(node: Node, known: IntegerFactors) -> Node:
    """A sum of products of integers and factors; the node itself if it is no such sum."""
    product = node.src[0]
    if node.attrs.fold is not Fold.ADD or product.op is not math.MUL:
        return node
    dtype = node.type.dtype
    if not dtype.is_float:
        return node
    first, second = (known.of(source) for source in product.src)
    if first is None or second is None or not (first.is_narrow and second.is_narrow):
        return node
    factors = (*first.factors, *second.factors)
    axes = node.attrs.axes
    if len(factors) > _MOST_FACTORS:
        return node
    if any(factor.type.shape[axis] != 1 for factor in factors for axis in axes):
        return node
    count = dims.greatest(dims.product([product.type.shape[axis] for axis in axes]))
    if count < 2 or count * first.greatest * second.greatest > int32.maximum:
        return node
    total = REDUCE(math.MUL(first.integer, second.integer), attrs=node.attrs)
    return _scaled(cast(total, dtype), [_without(factor, axes) for factor in factors])


def _without(factor: Node, axes: tuple[int, ...]) -> Node:
    """A factor in the rank of the sum."""
    shape = tuple(size for axis, size in enumerate(factor.type.shape) if axis not in axes)
    return tensor.RESHAPE(factor, attrs=tensor.ShapeAttrs(shape))


def _scaled(total: Node, factors: list[Node]) -> Node:
    """A sum times its factors, in an order in which nothing is lost, and never -0.

    An integer times a factor is no less exact where the factor is subnormal, and does not overflow
    where a factor is a literal of moderate size.
    """
    literals = [_literal(factor) for factor in factors]
    if len(factors) == _MOST_FACTORS:
        factors = _in_order(factors, literals)
    for factor in factors:
        total = math.MUL(total, expanded(factor, total.type.shape))
    if all(value is not None and value > 0.0 for value in literals):
        return total
    # A sum that starts at 0 is never -0, as 0 times a negative factor would be.
    return math.ADD(total, const_like(0.0, total))


def _in_order(factors: list[Node], literals: list[float | None]) -> list[Node]:
    """Two factors as one, or in their order: what comes first must not overflow alone."""
    first, second = factors
    one, other = literals
    if one is not None and other is not None:
        product = round_to(one * other, first.type.dtype)
        if _LEAST <= abs(product) <= _MOST:
            return [const_like(product, first)]
    if one is not None and abs(one) <= _MOST:
        return [first, second]
    if other is not None and abs(other) <= _MOST:
        return [second, first]
    # The smaller one first: after it the sum overflows only where it does after both.
    shape = tuple(
        size if wide == 1 else wide
        for size, wide in zip(first.type.shape, second.type.shape, strict=True)
    )
    first, second = (expanded(factor, shape) for factor in factors)
    is_first = math.LT(math.ABS(first), math.ABS(second))
    return [math.WHERE(is_first, first, second), math.WHERE(is_first, second, first)]


def _literal(factor: Node) -> float | None:
    """The value of a factor that is a literal, perhaps moved."""
    while factor.op in _MOVED:
        factor = factor.src[0]
    if factor.op is not math.CONST:
        return None
    return float(decode(factor.attrs.bits, factor.type.dtype))
