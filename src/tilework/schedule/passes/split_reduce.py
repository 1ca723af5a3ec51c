"""Cut a long reduction to few results in two: many partial results, then their fold.

One result of a long axis would leave all cores but one idle, and a deep contraction (the gradient
of a convolution's weights) reads panels too long for a cache.  The number of parts is fixed, so the
order of the additions, and with it every bit of the result, is the same for any number of cores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.ir.fold import combine
from tilework.ir.node import make, toposort
from tilework.ir.ops.math import MUL
from tilework.ir.ops.tensor import (
    CONTIGUOUS,
    REDUCE,
    RESHAPE,
    ReduceAttrs,
    ShapeAttrs,
)
from tilework.ir.symbolic import dims
from tilework.schedule.passes.cost import is_contraction
from tilework.schedule.passes.slices import between
from tilework.schedule.passes.variation import varying_axes

if TYPE_CHECKING:
    from tilework.ir.node import Node

#: Partial results of one result.
PARTS = 64
#: The most elements of a part of one result: each addition may round, and errors of one direction
#: (those of squares, say) add up along a part.
LONGEST_PART = 1 << 15
#: Parts of which there are never more: their fold is one loop.
MOST_PARTS = 1 << 14
#: Fewer parts than this leave cores idle.
LEAST_PARTS = 16
#: With at least this many results the cores are busy anyway.
FEW_RESULTS = 16
#: Elements for one result that make a second kernel worth its launch.
MANY_ELEMENTS = 1 << 17
#: Products for one result of a contraction whose panels still fit a core's cache.
DEEP_PRODUCTS = 1 << 13
#: Results of a contraction for which a second pass over partial ones is cheap.
FEW_DEEP_RESULTS = 1 << 18
#: The same for contractions of fewer products; with more results a pass over them gained nothing.
FEW_LONG_RESULTS = 1 << 14
#: How many values are looked at to find the axes that a factor varies along.
_FUEL = 24


def split_reductions(function: Node) -> Node:
    """TENSOR -> TENSOR, with long reductions to few results done in two steps.

    Ensures: equal values up to the order of the fold, which depends on sizes alone.
    """
    done: dict[Node, Node] = {}
    for node in toposort(function):
        src = tuple([done[source] for source in node.src])
        new = node if src == node.src else make(node.op, src, node.attrs)
        done[node] = _split(new) if node.op is REDUCE else new
    return done[function]


def _split(node: Node) -> Node:
    x, axes = node.src[0], node.attrs.axes
    results, elements = dims.product(node.shape), dims.product(x.shape)
    if not isinstance(results, int) or not isinstance(elements, int) or results == 0:
        return node
    depth = elements // results
    is_long = DEEP_PRODUCTS < depth < 2 * DEEP_PRODUCTS
    is_deep = depth >= 2 * DEEP_PRODUCTS and results <= FEW_DEEP_RESULTS
    if is_deep and x.op is MUL and _is_shared(x):
        count = min(depth // DEEP_PRODUCTS * 2, PARTS)
        count = max(count, _short_parts(results, depth))
    elif is_long and results <= FEW_LONG_RESULTS and _has_panels(node):
        count = -(-depth // (DEEP_PRODUCTS // 2))
    elif results < FEW_RESULTS and depth >= MANY_ELEMENTS:
        outer = next((axis for axis in axes if x.shape[axis] >= LEAST_PARTS), None)
        if outer is not None and len(axes) > 1 and x.shape[outer] < 2 * PARTS:
            return _by_axis(node, outer)  # its positions are parts as they are
        count = max(PARTS, _short_parts(results, depth))
    else:
        return node
    axis = max(axes, key=lambda position: (x.shape[position] >= 2 * count, -position))
    size = x.shape[axis]
    if size < 2 * count:
        return node
    # Even parts, where the size has a divisor nearby, need no kernel for a rest.
    count = next((n for n in range(count, 2 * count) if size % n == 0), count)
    whole = size // count * count
    parts = between(x, axis, 0, whole)
    shape = (*x.shape[:axis], count, whole // count, *x.shape[axis + 1 :])
    parts = RESHAPE(parts, attrs=ShapeAttrs(shape))
    inner = tuple(position + (position >= axis) for position in axes)
    partial = CONTIGUOUS(REDUCE(parts, attrs=ReduceAttrs(node.attrs.fold, inner)))
    kept = axis - sum(position < axis for position in axes)
    total = REDUCE(partial, attrs=ReduceAttrs(node.attrs.fold, (kept,)))
    if whole == size:
        return total
    rest = REDUCE(between(x, axis, whole, size), attrs=node.attrs)
    return combine(node.attrs.fold, total, rest)


def _has_panels(node: Node) -> bool:
    """Is this a sum of products of floats, both factors of which several results share?"""
    return node.dtype.is_float and is_contraction(node)


def _is_shared(product: Node) -> bool:
    """Is some factor the same for several products?  Else (squares, say) there are no panels."""
    axes = {axis for axis, size in enumerate(product.shape) if size != 1}
    return any(not axes <= varying_axes(factor, _FUEL) for factor in product.src)


def _short_parts(results: int, depth: int) -> int:
    """How many parts keep each of them short, where there are few results."""
    return min(depth // LONGEST_PART, MOST_PARTS) if results < FEW_RESULTS else 0


def _by_axis(node: Node, axis: int) -> Node:
    """The fold over all other axes, then that of `axis`."""
    x, axes, fold = node.src[0], node.attrs.axes, node.attrs.fold
    inner = tuple(position for position in axes if position != axis)
    partial = CONTIGUOUS(REDUCE(x, attrs=ReduceAttrs(fold, inner)))
    kept = axis - sum(position < axis for position in inner)
    return REDUCE(partial, attrs=ReduceAttrs(fold, (kept,)))
