"""Shapes: moving, joining, cutting and padding without arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tilework import dtypes
from tilework.base.errors import ShapeError, UnsupportedError
from tilework.frontends.onnx.call import place_of, split_of
from tilework.frontends.onnx.registry import onnx_op
from tilework.frontends.onnx.values import Array, full
from tilework.tensor.tensor import Tensor

if TYPE_CHECKING:
    from tilework.frontends.onnx.call import Call


@onnx_op("Shape")
def shape_of(call: Call, x: Tensor) -> Array:
    """The sizes, or those from `start` to `end`."""
    sizes = np.array(x.shape, np.int64)
    return sizes[call.attribute("start", None) : call.attribute("end", None)]


@onnx_op("Size")
def size_of(call: Call, x: Tensor) -> Array:
    return np.array(math.prod(x.shape), np.int64)


@onnx_op("Reshape", host=(1,))
def reshape(call: Call, x: Tensor, shape: Array | None = None) -> Tensor:
    """A size of 0 copies that axis, unless `allowzero` says that it means zero."""
    sizes = list(call.integers("shape")) if shape is None else [int(size) for size in shape]
    if not call.integer("allowzero", 0):
        if any(size == 0 and axis >= x.ndim for axis, size in enumerate(sizes)):
            raise ShapeError(
                "onnx: Reshape copies the size of an axis that the operand does not have",
                got=f"shape {x.shape}, wanted {sizes}",
            )
        sizes = [x.shape[axis] if size == 0 else size for axis, size in enumerate(sizes)]
    return x.reshape(tuple(sizes))


@onnx_op("Flatten")
def flatten(call: Call, x: Tensor) -> Tensor:
    axis = split_of(call, x.ndim, 1)
    return x.reshape((math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@onnx_op("Transpose")
def transpose(call: Call, x: Tensor) -> Tensor:
    return x.permute(call.integers("perm", tuple(reversed(range(x.ndim)))))


@onnx_op("Squeeze", host=(1,))
def squeeze(call: Call, x: Tensor, axes: Array | None = None) -> Tensor:
    """Drop axes of size 1: those listed (an attribute before version 13), or all."""
    listed = call.integers("axes", None)
    if axes is not None:
        listed = tuple(int(axis) for axis in axes.reshape(-1))
    if listed is None:
        dropped = {axis for axis, size in enumerate(x.shape) if size == 1}
    else:
        dropped = {place_of(call, axis, x.ndim) for axis in listed}
    wrong = [axis for axis in dropped if x.shape[axis] != 1]
    if wrong:
        raise ShapeError(
            "onnx: Squeeze drops an axis that has more than one element",
            got=f"axis {wrong[0]} of shape {x.shape}",
        )
    return x.reshape(tuple(size for axis, size in enumerate(x.shape) if axis not in dropped))


@onnx_op("Unsqueeze", host=(1,))
def unsqueeze(call: Call, x: Tensor, axes: Array | None = None) -> Tensor:
    """Add axes of size 1; they count in the result."""
    listed = call.integers("axes") if axes is None else [int(axis) for axis in axes.reshape(-1)]
    rank = x.ndim + len(listed)
    added = {place_of(call, axis, rank) for axis in listed}
    sizes = iter(x.shape)
    return x.reshape(tuple(1 if axis in added else next(sizes) for axis in range(rank)))


@onnx_op("Concat", least=1)
def concat(call: Call, *parts: Tensor) -> Tensor:
    axis = call.integer("axis", 1)
    return parts[0] if len(parts) == 1 else parts[0].cat(*parts[1:], dim=axis)


@onnx_op("Split", host=(1,))
def split(call: Call, x: Tensor, sizes: Array | None = None) -> tuple[Tensor, ...]:
    axis, parts = call.split_sizes(x.shape, sizes)
    found, start = [], 0
    for part in parts:
        found.append(cut(x, axis, start, start + part))
        start += part
    return tuple(found)


def cut(x: Tensor, axis: int, start: int, end: int) -> Tensor:
    """The elements [start, end) of an axis."""
    place: list[slice] = [slice(None)] * x.ndim
    place[axis] = slice(start, end)
    return x[tuple(place)]


@onnx_op("Slice", host=(1, 2, 3, 4))
def slice_(call: Call, x: Tensor, *bounds: Array | None) -> Tensor:
    return x[call.slices(x.shape, *bounds)]


@onnx_op("Expand", host=(1,))
def expand(call: Call, x: Tensor, shape: Array) -> Tensor:
    """Broadcast both ways: a size of 1 in `shape` keeps the operand's."""
    wanted = np.broadcast_shapes(tuple(x.shape), tuple(int(size) for size in shape))
    return x.reshape((1,) * (len(wanted) - x.ndim) + tuple(x.shape)).expand(wanted)


@onnx_op("Tile", since=6, host=(1,))
def tile(call: Call, x: Tensor, repeats: Array) -> Tensor:
    return _repeated(x, [int(count) for count in repeats])


@onnx_op("Tile", since=1, host=(1, 2))
def tile_one_axis(call: Call, x: Tensor, count: Array, axis: Array) -> Tensor:
    repeats = [1] * x.ndim
    repeats[int(axis.item())] = int(count.item())
    return _repeated(x, repeats)


def _repeated(x: Tensor, repeats: Sequence[int]) -> Tensor:
    if min(repeats, default=0) < 0:
        raise ValueError(f"repeats {list(repeats)} have a negative number")
    if all(count == 1 for count in repeats):
        return x
    spread: list[int] = []
    wide: list[int] = []
    for size, count in zip(x.shape, repeats, strict=True):
        spread += [1, size]
        wide += [count, size]
    result = tuple(size * count for size, count in zip(x.shape, repeats, strict=True))
    return x.reshape(tuple(spread)).expand(tuple(wide)).reshape(result)


# --- padding -------------------------------------------------------------------------------------


@onnx_op("Pad")
def pad_by_attribute(call: Call, x: Tensor) -> Tensor:
    """Before version 11 the widths and the value are attributes."""
    widths = call.integers("pads" if call.has("pads") else "paddings")
    value = full((), call.number("value", 0.0), x.dtype, call.device)
    return padded(x, _pairs(widths, x.ndim, None), call.text("mode", "constant"), value)


@onnx_op("Pad", since=11, host=(1, 3))
def pad(
    call: Call,
    x: Tensor,
    widths: Array,
    value: Tensor | None = None,
    axes: Array | None = None,
) -> Tensor:
    listed = None if axes is None else [int(axis) for axis in axes]
    pairs = _pairs([int(width) for width in widths.reshape(-1)], x.ndim, listed)
    return padded(x, pairs, call.text("mode", "constant"), value)


def _pairs(widths: Sequence[int], rank: int, axes: Sequence[int] | None) -> list[tuple[int, int]]:
    half = len(widths) // 2
    pairs = [(0, 0)] * rank
    for position, axis in enumerate(range(rank) if axes is None else axes):
        pairs[axis] = (widths[position], widths[half + position])
    return pairs


def padded(
    x: Tensor,
    pairs: Sequence[tuple[int, int]],
    mode: str = "constant",
    value: Tensor | None = None,
) -> Tensor:
    """Widen each axis by (before, after) elements; a negative width cuts.

    Raises:
        UnsupportedError: an unknown mode.
    """
    if mode == "constant":
        return _pad_constant(x, pairs, value)
    makers = {"reflect": _reflected, "edge": _clamped, "wrap": _wrapped}
    if mode not in makers:
        raise UnsupportedError(f"onnx: Pad has no mode {mode!r}", expected="constant, reflect, ...")
    for axis, (before, after) in enumerate(pairs):
        if (before, after) != (0, 0):
            # What is cut off does not come back at the other end.
            first = max(-before, 0)
            size = max(0, x.shape[axis] - first - max(-after, 0))
            places = np.arange(-max(before, 0), size + max(after, 0))
            x = taken(x, axis, first + makers[mode](places, size))
    return x


def _pad_constant(x: Tensor, pairs: Sequence[tuple[int, int]], value: Tensor | None) -> Tensor:
    if any(before < 0 or after < 0 for before, after in pairs):
        x = x[
            tuple(
                slice(max(0, -before), size - max(0, -after))
                for size, (before, after) in zip(x.shape, pairs, strict=True)
            )
        ]
        pairs = [(max(0, before), max(0, after)) for before, after in pairs]
    if all(pair == (0, 0) for pair in pairs):
        return x
    wider = x.pad(tuple(pairs))
    if value is None:
        return wider
    inside = full(x.shape, True, dtypes.bool_, x.device).pad(tuple(pairs))
    return inside.where(wider, value.reshape(()))


def _reflected(places: Array, size: int) -> Array:
    period = max(1, 2 * (size - 1))
    folded = places % period
    return np.where(folded < size, folded, period - folded)


def _clamped(places: Array, size: int) -> Array:
    return np.clip(places, 0, size - 1)


def _wrapped(places: Array, size: int) -> Array:
    return places % size


def taken(x: Tensor, axis: int, places: Array) -> Tensor:
    """Elements of an axis at places that the host knows; evenly spaced ones are a view."""
    if len(places) > 1:
        step = int(places[1] - places[0])
        if step != 0 and (np.diff(places) == step).all():
            index: list[slice] = [slice(None)] * x.ndim
            stop = int(places[-1]) + (1 if step > 0 else -1)
            index[axis] = slice(int(places[0]), None if stop < 0 else stop, step)
            return x[tuple(index)]
    chosen = Tensor(np.ascontiguousarray(places, np.int64), device=x.device)
    return x[(slice(None),) * axis + (chosen,)]


@onnx_op("CenterCropPad", host=(1,))
def center_crop_pad(call: Call, x: Tensor, shape: Array) -> Tensor:
    axes = call.integers("axes", tuple(range(x.ndim)))
    pairs = [(0, 0)] * x.ndim
    for axis, wanted in zip(axes, shape, strict=True):
        size, target = x.shape[axis], int(wanted)
        start = (target - size) // 2 if target >= size else -((size - target) // 2)
        pairs[axis] = (start, target - size - start)
    return padded(x, pairs)


# --- blocks --------------------------------------------------------------------------------------


@onnx_op("DepthToSpace")
def depth_to_space(call: Call, x: Tensor) -> Tensor:
    """Move blocks of channels into height and width."""
    n, c, height, width = x.shape
    block = call.integer("blocksize")
    inner = c // (block * block)
    if call.text("mode", "DCR") == "DCR":
        parts = x.reshape((n, block, block, inner, height, width)).permute((0, 3, 4, 1, 5, 2))
    else:
        parts = x.reshape((n, inner, block, block, height, width)).permute((0, 1, 4, 2, 5, 3))
    return parts.reshape((n, inner, height * block, width * block))


@onnx_op("SpaceToDepth")
def space_to_depth(call: Call, x: Tensor) -> Tensor:
    n, c, height, width = x.shape
    block = call.integer("blocksize")
    rows, columns = height // block, width // block
    parts = x.reshape((n, c, rows, block, columns, block))
    is_block_first = call.text("mode", "DCR") == "DCR"
    parts = parts.permute((0, 3, 5, 1, 2, 4) if is_block_first else (0, 1, 3, 5, 2, 4))
    return parts.reshape((n, c * block * block, rows, columns))


@onnx_op("ReverseSequence", host=(1,))
def reverse_sequence(call: Call, x: Tensor, lengths: Array) -> Tensor:
    """Reverse the first `lengths[b]` elements of each batch entry."""
    time, batch = call.integer("time_axis", 0), call.integer("batch_axis", 1)
    rows = []
    for index, length in enumerate(int(value) for value in lengths):
        row = cut(x, batch, index, index + 1)
        order = np.arange(x.shape[time])
        order[:length] = order[:length][::-1]
        rows.append(taken(row, time, order))
    return rows[0] if len(rows) == 1 else rows[0].cat(*rows[1:], dim=batch)
