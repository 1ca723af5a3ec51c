"""Sums of products that 0 is multiplied with, and when they are certainly finite.

Positions that are masked add 0 times a further product to some sums: the gradient of softmax sums
weights times the weights' gradients, and a masked weight is 0.  That is 0 where the product is
finite, and NaN where it is not.  A bound on the products of a tile, from the greatest magnitudes of
their factors, says beforehand that none of them can be infinite or NaN.  Where it does not, nothing
is left out of that tile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.codegen.analysis import FreeRanges
from tilework.codegen.plan.extents import product
from tilework.ir.build import const
from tilework.ir.node import Node, toposort
from tilework.ir.ops import math
from tilework.ir.ops.memory import LOAD
from tilework.ir.ops.tensor import REDUCE, Fold, ReduceAttrs

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilework.codegen.cascade.find import Cascade
    from tilework.dtypes import DType

#: Bounds stay so far below the greatest number that no rounding on the way matters.
_ROOM = 2.0**-8
#: More products than this are not bounded.
_MOST_PRODUCTS = 1 << 20
#: The greatest powers of 2 of floats.
_GREATEST = {32: 2.0**127, 64: 2.0**1023}


def sum_multiplied_with(factor: Node, cascade: Cascade) -> Node | None:
    """The sum of products that bounds the magnitude of `factor`; None where none is known to.

    Args:
        factor: What is multiplied with 0 at masked positions.
        cascade: What it is a part of.
    """
    while factor.op is math.NEG or _is_divided_by_weights(factor, cascade):
        factor = factor.src[0]
    key = cascade.key
    if key is None or factor.op is not REDUCE or factor.attrs.fold is not Fold.ADD:
        return None
    body = factor.src[0]
    if body.op is not math.MUL or factor.type.dtype.bits not in _GREATEST:
        return None
    if product(factor.src[1:]) > _MOST_PRODUCTS:
        return None
    if not all(each.op is LOAD and each.type.dtype is factor.type.dtype for each in body.src):
        return None
    free = FreeRanges(toposort(body))
    of_key = [bool(free.mask[each] & free.bit(key)) for each in body.src]
    of_row = [any(free.mask[each] & free.bit(r) for r in factor.src[1:]) for each in body.src]
    return factor if sum(of_key) == 1 and all(of_row) else None


def _is_divided_by_weights(value: Node, cascade: Cascade) -> bool:
    """Is this a quotient by a sum of exponentials below their greatest, which is >= 1, or NaN?"""
    if value.op is not math.FDIV:
        return False
    total = value.src[1]
    if total.op is not REDUCE or total.attrs.fold is not Fold.ADD:
        return False
    (raised, *ranges) = total.src
    if raised.op is not math.EXP or raised.src[0].op is not math.SUB or ranges != [cascade.key]:
        return False
    score, most = raised.src[0].src
    return (
        most.op is REDUCE
        and most.attrs.fold is Fold.MAX
        and most.src[0] is score
        and list(most.src[1:]) == ranges
    )


def is_finite(
    node: Node,
    cascade: Cascade,
    of_key: Callable[[Node, tuple[Node, ...]], Node],
    of_rows: Callable[[Node, tuple[Node, ...]], Node],
) -> Node:
    """A condition that only holds if all that a sum of products gives is finite.

    Args:
        node: The sum.
        cascade: What it is a part of.
        of_key: The greatest of a value at the positions along the key that are left out, and along
            the given ranges; at least 0.
        of_rows: The greatest of a value in the rows of a tile, and along the given ranges.
    """
    x, y = node.src[0].src
    free = FreeRanges(toposort(x, y))
    if cascade.key is None or not free.mask[x] & free.bit(cascade.key):
        x, y = y, x
    dtype = node.type.dtype
    bound = math.MUL(of_key(math.ABS(x), node.src[1:]), of_rows(math.ABS(y), node.src[1:]))
    return math.LT(bound, const(_limit(dtype, product(node.src[1:])), dtype))


def greatest(value: Node, ranges: tuple[Node, ...]) -> Node:
    """The maximum along `ranges`, which is NaN where a value is."""
    return REDUCE(value, *ranges, attrs=ReduceAttrs(Fold.MAX))


def _limit(dtype: DType, count: int) -> float:
    return _GREATEST[dtype.bits] * _ROOM / count
