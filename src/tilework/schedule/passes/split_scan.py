"""Cut a long scan of few rows into blocks: scans of the blocks, a scan of their totals, a sum.

One long row would leave all cores but one idle, and that one waiting for each addition in turn.
The length of a block is fixed, so every bit of the result is the same for any number of cores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.ir.fold import combine
from tilework.ir.node import make, toposort
from tilework.ir.ops.memory import PARAM
from tilework.ir.ops.scan import SHARED_BITS
from tilework.ir.ops.tensor import (
    EXPAND,
    FLIP,
    PAD,
    RESHAPE,
    SCAN,
    AxesAttrs,
    PadAttrs,
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


def split_scans(function: Node, whole_on: tuple[str, ...] = ()) -> Node:
    """TENSOR -> TENSOR, with long scans of few rows done by blocks.

    Args:
        function: The SINK of outputs.
        whole_on: Kinds of devices on which blocks of threads share a row as it is (`ops/scan.py`).

    Ensures: equal values up to the order of the fold, which depends on sizes alone.
    """
    order = toposort(function)
    if not any(node.op is SCAN for node in order):
        return function
    kinds = {kind_of(node.attrs.device) for node in order if node.op is PARAM}
    is_whole = bool(kinds) and kinds <= set(whole_on)
    done: dict[Node, Node] = {}
    for node in order:
        src = tuple([done[source] for source in node.src])
        new = node if src == node.src else make(node.op, src, node.attrs)
        stays = node.op is not SCAN or (is_whole and node.type.dtype.bits in SHARED_BITS)
        done[node] = new if stays else _split(new)
    return done[function]


def _split(node: Node) -> Node:
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
        return FLIP(_split(mirrored), attrs=flip)
    blocks = -(-size // BLOCK)
    # What is padded comes after all elements, so no result that is kept depends on it.
    padded = _padded(node.src[0], axis, blocks * BLOCK - size)
    before, after = shape[:axis], shape[axis + 1 :]
    parts = RESHAPE(padded, attrs=ShapeAttrs((*before, blocks, BLOCK, *after)))
    inner = SCAN(parts, attrs=ScanAttrs(attrs.fold, axis + 1, attrs.exclusive))
    totals = between(inner, axis + 1, BLOCK - 1, BLOCK)
    if attrs.exclusive:
        totals = combine(attrs.fold, totals, between(parts, axis + 1, BLOCK - 1, BLOCK))
    starts = _split(SCAN(totals, attrs=ScanAttrs(attrs.fold, axis, exclusive=True)))
    whole = combine(attrs.fold, EXPAND(starts, attrs=ShapeAttrs(inner.shape)), inner)
    flat = RESHAPE(whole, attrs=ShapeAttrs((*before, blocks * BLOCK, *after)))
    return between(flat, axis, 0, size)


def _padded(x: Node, axis: int, count: int) -> Node:
    if not count:
        return x
    pads = tuple((0, count if position == axis else 0) for position in range(len(x.shape)))
    return PAD(x, attrs=PadAttrs(pads))
