"""Gathers and scatters along a cut axis: each device does what falls into its part.

An index that is outside of the whole tensor stays outside on every device, and is reported there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilework.dtypes import bool_, uint8, uint16, uint32, uint64
from tilework.ir.build import const
from tilework.ir.node import make
from tilework.ir.ops import math, tensor
from tilework.schedule.shard import spec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.dtypes import DType
    from tilework.ir.node import Node
    from tilework.ir.ops.multi import Box
    from tilework.ir.types import Shape

#: What holds the bits of a value, by their number.
_WORDS = {8: uint8, 16: uint16, 32: uint32, 64: uint64}


def word_of(dtype: DType) -> DType | None:
    """The dtype in which the bits of a value are added to zeros; None if there is none."""
    return dtype if dtype.is_bool else _WORDS.get(dtype.bits)


def aligned_axes(node: Node, indices: Sequence[Node]) -> dict[int, int]:
    """Indexed axes whose index is the position along an axis of the indices, and that axis.

    Along these a gather or scatter stays where it is: parts of the table meet equal parts of the
    indices.
    """
    found: dict[int, int] = {}
    for number, place in enumerate(indices):
        at = place
        while at.op is math.CAST and at.src[0].type.dtype.is_integer:
            at = at.src[0]
        if at.op is not tensor.IOTA:
            continue
        axis, along = node.attrs.axis + number, at.attrs.axis
        size = node.src[0].type.shape[axis]
        is_whole = isinstance(size, int) and at.type.shape[along] == size
        if is_whole and size <= at.attrs.dtype.maximum and along not in found.values():
            found[axis] = along
    return found


def aligned_gather(node: Node, box: Box, src: Sequence[Node]) -> Node:
    """A GATHER from the part `box` of its table, which has all that the indices ask for."""
    at, shape = node.attrs.axis, node.src[0].type.shape
    places = [
        place
        if box[at + number] is None
        else math.SUB(place, _like(spec.bounds_of(box[at + number], shape[at + number])[0], place))
        for number, place in enumerate(src[1:])
    ]
    return make(tensor.GATHER, (src[0], *places), node.attrs)


def scatter(node: Node, box: Box, src: Sequence[Node]) -> Node:
    """The part `box` of a SCATTER, whose updates are all those for the part along other axes.

    Updates that fall elsewhere go to one row beyond the end of the part, which is cut off again.
    """
    at, shape = node.attrs.axis, node.type.shape
    axes = [at + place for place in range(len(src) - 2)]
    aligned = aligned_axes(node, node.src[2:])
    if aligned:
        local = list(src)
        for axis in aligned:
            start = spec.bounds_of(box[axis], shape[axis])[0]
            local[axis - at + 2] = math.SUB(src[axis - at + 2], _like(start, src[axis - at + 2]))
        src = local
        box = tuple([None if axis in aligned else cut for axis, cut in enumerate(box)])
    cut_axes = [axis for axis in axes if box[axis] is not None]
    if not cut_axes:
        return make(tensor.SCATTER, tuple(src), node.attrs)
    # Along aligned axes all is inside: the bounds there are those of what the device has.
    held = [src[0].type.shape[axis] if axis in aligned else size for axis, size in enumerate(shape)]
    shape = tuple(held)
    mine, outside = _where(axes, box, shape, src[2:])
    first = cut_axes[0]
    moved = []
    for axis, place in zip(axes, src[2:], strict=True):
        start, stop = spec.bounds_of(box[axis], shape[axis])
        beyond = stop - start if axis == first else 0
        inner = math.SUB(place, _like(start, place))
        elsewhere = math.WHERE(outside, _like(beyond + 1, place), _like(beyond, place))
        moved.append(math.WHERE(mine, inner, elsewhere))
    pads: list[Any] = [(0, 1) if axis == first else (0, 0) for axis in range(len(shape))]
    wide = make(tensor.PAD, (src[0],), tensor.PadAttrs(tuple(pads)))
    written = make(tensor.SCATTER, (wide, src[1], *moved), node.attrs)
    bounds: list[Any] = [(0, size, 1) for size in src[0].type.shape]
    return make(tensor.SHRINK, (written,), tensor.ShrinkAttrs(tuple(bounds)))


def gather(node: Node, box: Box, src: Sequence[Node]) -> Node:
    """What a GATHER finds in the part `box` of its table, as bits, and zeros for the rest."""
    at, shape = node.attrs.axis, node.src[0].type.shape
    word = word_of(node.type.dtype)
    indices = src[1:]
    axes = [at + place for place in range(len(indices))]
    mine, outside = _where(axes, box, shape, indices)
    rest = (*src[0].type.shape[:at], *indices[0].type.shape, *src[0].type.shape[at + len(axes) :])
    if word is None or 0 in [src[0].type.shape[axis] for axis in axes]:
        return const(0, node.type.dtype if word is None else word, rest)
    places = []
    for axis, place in zip(axes, indices, strict=True):
        start, stop = spec.bounds_of(box[axis], shape[axis])
        inner = math.SUB(place, _like(start, place))
        elsewhere = math.WHERE(outside, _like(stop - start, place), _like(0, place))
        places.append(math.WHERE(mine, inner, elsewhere))
    found = make(tensor.GATHER, (src[0], *places), node.attrs)
    if word is not found.type.dtype:
        found = make(math.BITCAST, (found,), math.CastAttrs(word))
    rank = len(indices[0].type.shape)
    flat = tuple([1] * at + list(indices[0].type.shape) + [1] * (len(rest) - at - rank))
    kept = make(tensor.RESHAPE, (mine,), tensor.ShapeAttrs(flat))
    kept = make(tensor.EXPAND, (kept,), tensor.ShapeAttrs(rest))
    return math.WHERE(kept, found, const(0, word, rest))


def _where(
    axes: Sequence[int], box: Box, shape: Shape, indices: Sequence[Node]
) -> tuple[Node, Node]:
    """Which places fall into the part, and which are outside of the whole."""
    sizes = indices[0].type.shape
    mine, outside = const(True, bool_, sizes), const(False, bool_, sizes)
    for axis, place in zip(axes, indices, strict=True):
        start, stop = spec.bounds_of(box[axis], shape[axis])
        last = spec.bounds_of(None, shape[axis])[1]
        inside = math.AND(_not(math.LT(place, _like(start, place))), _below(place, stop))
        mine = math.AND(mine, inside)
        low = math.LT(place, _like(0, place))
        outside = math.OR(outside, math.OR(low, _not(_below(place, last))))
    return mine, outside


def _below(place: Node, stop: int) -> Node:
    if stop > place.type.dtype.maximum:
        return const(True, bool_, place.type.shape)  # the end does not fit the dtype of the index
    return math.LT(place, _like(stop, place))


def _like(value: int, place: Node) -> Node:
    return const(value, place.type.dtype, place.type.shape)


def _not(condition: Node) -> Node:
    return math.XOR(condition, const(True, bool_, condition.type.shape))
