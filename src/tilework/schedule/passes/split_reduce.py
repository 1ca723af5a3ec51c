"""Cut a long reduction to few results in two: many partial results, then their fold.

One result of a long axis would leave all cores but one idle.  The number of parts is fixed, so the
order of the additions, and with it every bit of the result, is the same for any number of cores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.ir.fold import combine
from tilework.ir.node import make, toposort
from tilework.ir.ops.tensor import (
    CONTIGUOUS,
    REDUCE,
    RESHAPE,
    SHRINK,
    ReduceAttrs,
    ShapeAttrs,
    ShrinkAttrs,
)
from tilework.ir.symbolic import dims

if TYPE_CHECKING:
    from tilework.ir.node import Node

#: Partial results of one result.
PARTS = 64
#: With at least this many results the cores are busy anyway.
FEW_RESULTS = 16
#: Elements for one result that make a second kernel worth its launch.
MANY_ELEMENTS = 1 << 17


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
    if results >= FEW_RESULTS or elements // results < MANY_ELEMENTS:
        return node
    axis = max(axes, key=lambda position: (x.shape[position] >= PARTS, -position))
    size = x.shape[axis]
    if size < 2 * PARTS:
        return node
    whole = size // PARTS * PARTS
    parts = _between(x, axis, 0, whole)
    shape = (*x.shape[:axis], PARTS, whole // PARTS, *x.shape[axis + 1 :])
    parts = RESHAPE(parts, attrs=ShapeAttrs(shape))
    inner = tuple(position + (position >= axis) for position in axes)
    partial = CONTIGUOUS(REDUCE(parts, attrs=ReduceAttrs(node.attrs.fold, inner)))
    kept = axis - sum(position < axis for position in axes)
    total = REDUCE(partial, attrs=ReduceAttrs(node.attrs.fold, (kept,)))
    if whole == size:
        return total
    rest = REDUCE(_between(x, axis, whole, size), attrs=node.attrs)
    return combine(node.attrs.fold, total, rest)


def _between(x: Node, axis: int, start: int, stop: int) -> Node:
    """The elements start .. stop - 1 of one axis."""
    if start == 0 and stop == x.shape[axis]:
        return x
    bounds = tuple(
        (start, stop, 1) if position == axis else (0, size, 1)
        for position, size in enumerate(x.shape)
    )
    return SHRINK(x, attrs=ShrinkAttrs(bounds))
