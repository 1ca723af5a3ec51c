"""Bounds of integer values that follow from how they are made, so that an index needs no check."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.dtypes import decode
from tilework.ir.ops import math, tensor
from tilework.ir.symbolic import dims

if TYPE_CHECKING:
    from tilework.ir.node import Node
    from tilework.ir.types import Dim

Bounds = tuple[int, int]
#: How many nodes are looked at.
_FUEL = 24
_SAME = frozenset(
    (
        tensor.RESHAPE,
        tensor.PERMUTE,
        tensor.EXPAND,
        tensor.SHRINK,
        tensor.FLIP,
        tensor.WINDOW,
        tensor.CONTIGUOUS,
        tensor.DETACH,
        tensor.COPY,
    )
)


def value_bounds(node: Node, fuel: int = _FUEL) -> Bounds:
    """Least and greatest value that an integer TENSOR node may hold; those of its dtype if unclear.

    Args:
        node: an integer node.
        fuel: how many nodes below may be looked at.
    """
    dtype = node.type.dtype
    whole = (dtype.minimum, dtype.maximum)
    op = node.op
    if fuel <= 0:
        return whole
    if op is tensor.SORT and node.attrs.values:
        return value_bounds(node.src[0], fuel - 1)
    if op is tensor.SORT:
        return _positions(node.src[0].type.shape[node.attrs.axis])
    if op is tensor.IOTA:
        found = _positions(node.type.shape[node.attrs.axis])
    elif op is math.CONST:
        value = int(decode(node.attrs.bits, dtype))
        found = (value, value)
    elif op in _SAME:
        found = value_bounds(node.src[0], fuel - 1)
    elif op is tensor.PAD or op is tensor.UNWINDOW:
        found = _union((0, 0), value_bounds(node.src[0], fuel - 1))
    elif op is math.CAST and node.src[0].type.dtype.is_integer:
        found = value_bounds(node.src[0], fuel - 1)
    elif op is math.WHERE:
        parts = [value_bounds(source, fuel // 2) for source in node.src[1:]]
        found = _union(*parts)
    elif op is math.MINIMUM or op is math.MAXIMUM:
        (a, b), (c, d) = (value_bounds(source, fuel // 2) for source in node.src)
        found = (min(a, c), min(b, d)) if op is math.MINIMUM else (max(a, c), max(b, d))
    else:
        return whole
    fits = whole[0] <= found[0] and found[1] <= whole[1]
    return found if fits else whole


def _positions(size: Dim) -> Bounds:
    return 0, max(dims.greatest(size) - 1, 0)


def _union(first: Bounds, *others: Bounds) -> Bounds:
    low, high = first
    for a, b in others:
        low, high = min(low, a), max(high, b)
    return low, high
