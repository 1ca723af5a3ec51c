"""Cut a long scan of few rows into blocks: scans of the blocks, a scan of their totals, a sum.

One long row would leave all cores but one idle, and that one waiting for each addition in turn.
The length of a block is fixed, so every bit of the result is the same for any number of cores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.dtypes import bool_
from tilework.ir.build import const
from tilework.ir.fold import combine
from tilework.ir.node import make, toposort
from tilework.ir.ops.math import WHERE
from tilework.ir.ops.memory import PARAM
from tilework.ir.ops.tensor import (
    EXPAND,
    FLIP,
    PAD,
    REDUCE,
    RESHAPE,
    SCAN,
    AxesAttrs,
    Fold,
    PadAttrs,
    ReduceAttrs,
    ScanAttrs,
    ShapeAttrs,
)
from tilework.ir.symbolic import dims
from tilework.schedule.passes.slices import between
from tilework.schedule.schedule import kind_of

if TYPE_CHECKING:
    from tilework.ir.node import Node

#: Elements of a block.
BLOCK = 4096
#: With at least this many rows the cores are busy anyway.
FEW_ROWS = 32
#: Elements of a row that make more kernels worth their launches.
MANY_ELEMENTS = 1 << 15


def split_scans(function: Node, reading_twice: tuple[str, ...] = ()) -> Node:
    """TENSOR -> TENSOR, with long scans of few rows done by blocks.

    Args:
        function: The SINK of outputs.
        reading_twice: Kinds of devices on which blocks are folded first and scanned last, from
            where those before them end: that reads what is scanned twice, but writes it once.

    Ensures: equal values up to the order of the fold, which depends on sizes alone.
    """
    order = toposort(function)
    if not any(node.op is SCAN for node in order):
        return function
    kinds = {kind_of(node.attrs.device) for node in order if node.op is PARAM}
    reads_twice = bool(kinds) and kinds <= set(reading_twice)
    done: dict[Node, Node] = {}
    for node in order:
        src = tuple([done[source] for source in node.src])
        new = node if src == node.src else make(node.op, src, node.attrs)
        done[node] = _split(new, reads_twice) if node.op is SCAN else new
    return done[function]


def _split(node: Node, reads_twice: bool) -> Node:
    attrs, shape = node.attrs, node.shape
    axis, size = attrs.axis, shape[attrs.axis]
    total = dims.product(shape)
    if not isinstance(size, int) or not isinstance(total, int) or size < MANY_ELEMENTS:
        return node
    if total // size >= FEW_ROWS:
        return node
    if attrs.reverse:
        flip = AxesAttrs((axis,))
        forward = ScanAttrs(attrs.fold, axis, attrs.exclusive)
        mirrored = SCAN(FLIP(node.src[0], attrs=flip), attrs=forward)
        return FLIP(_split(mirrored, reads_twice), attrs=flip)
    blocks = -(-size // BLOCK)
    # What is padded comes after all elements, so no result that is kept depends on it.
    padded = _padded(node.src[0], axis, blocks * BLOCK - size)
    before, after = shape[:axis], shape[axis + 1 :]
    parts = RESHAPE(padded, attrs=ShapeAttrs((*before, blocks, BLOCK, *after)))
    flat_shape = ShapeAttrs((*before, blocks * BLOCK, *after))
    if reads_twice and not attrs.exclusive:
        scanned = _from_starts(parts, axis, attrs.fold)
        return between(RESHAPE(scanned, attrs=flat_shape), axis, 0, size)
    inner = SCAN(parts, attrs=ScanAttrs(attrs.fold, axis + 1, attrs.exclusive))
    totals = between(inner, axis + 1, BLOCK - 1, BLOCK)
    if attrs.exclusive:
        totals = combine(attrs.fold, totals, between(parts, axis + 1, BLOCK - 1, BLOCK))
    starts = _split(SCAN(totals, attrs=ScanAttrs(attrs.fold, axis, exclusive=True)), reads_twice)
    whole = combine(attrs.fold, EXPAND(starts, attrs=ShapeAttrs(inner.shape)), inner)
    return between(RESHAPE(whole, attrs=flat_shape), axis, 0, size)


def _from_starts(parts: Node, axis: int, fold: Fold) -> Node:
    """Scans of blocks along `axis` + 1, which start where the blocks before them end."""
    shape = parts.shape
    short = (*shape[: axis + 1], 1, *shape[axis + 2 :])
    totals = RESHAPE(REDUCE(parts, attrs=ReduceAttrs(fold, (axis + 1,))), attrs=ShapeAttrs(short))
    starts = _split(SCAN(totals, attrs=ScanAttrs(fold, axis, exclusive=True)), reads_twice=True)
    begun = combine(fold, EXPAND(starts, attrs=ShapeAttrs(shape)), parts)
    pads = tuple((0, BLOCK - 1 if at == axis + 1 else 0) for at in range(len(shape)))
    first = PAD(const(1, bool_, short), attrs=PadAttrs(pads))
    value = WHERE(first, begun, parts)
    return SCAN(value, attrs=ScanAttrs(fold, axis + 1))


def _padded(x: Node, axis: int, count: int) -> Node:
    if not count:
        return x
    pads = tuple((0, count if position == axis else 0) for position in range(len(x.shape)))
    return PAD(x, attrs=PadAttrs(pads))
