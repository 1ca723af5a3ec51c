"""Sampling and selecting in pictures: GridSample, AffineGrid, RoiAlign, NonMaxSuppression."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tilework import dtypes
from tilework.base.errors import UnsupportedError
from tilework.frontends.onnx.registry import onnx_op
from tilework.frontends.onnx.values import Array, full, tensor_of
from tilework.tensor.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.frontends.onnx.call import Call


# --- GridSample ----------------------------------------------------------------------------------


def _reflected(x: Tensor, low: float, high: float) -> Tensor:
    """Fold places back into [low, high]."""
    span = high - low
    if span <= 0:
        return x * 0
    away = (x - low).abs()
    turns = (away / span).floor()
    rest = away - turns * span
    is_even = (turns / 2).floor() * 2 == turns
    return is_even.where(rest + low, high - rest)


class _Sampler:
    """Reads (n, c, *sizes) at integer places, with the padding of one GridSample node."""

    def __init__(self, x: Tensor, padding: str, align: bool) -> None:
        self.sizes = tuple(int(size) for size in x.shape[2:])
        self._n, self._c = x.shape[:2]
        self._flat = x.reshape((self._n, self._c, math.prod(self.sizes)))
        self._padding = padding
        self._align = align

    def padded(self, place: Tensor, axis: int) -> Tensor:
        """Move a place into the picture, as the padding mode says."""
        size = self.sizes[axis]
        if self._padding == "reflection":
            low, high = (0.0, size - 1.0) if self._align else (-0.5, size - 0.5)
            place = _reflected(place, low, high)
        if self._padding in ("border", "reflection"):
            return place.clip(0.0, size - 1.0)
        return place

    def read(self, places: Sequence[Tensor]) -> Tensor:
        """Read at whole places (n, *out), zeros outside: (n, c, *out)."""
        inside = None
        flat = None
        for axis, place in enumerate(places):
            ok = (place >= 0) & (place <= self.sizes[axis] - 1)
            inside = ok if inside is None else inside & ok
            flat = place if flat is None else flat * self.sizes[axis] + place
        assert inside is not None
        assert flat is not None
        out = tuple(flat.shape[1:])
        index = inside.where(flat, flat * 0).cast(dtypes.int64)
        index = index.reshape((self._n, 1, -1)).expand((self._n, self._c, math.prod(out)))
        found = self._flat.gather(2, index).reshape((self._n, self._c, *out))
        return inside.unsqueeze(1).where(found, full((), 0, found.dtype, found.device))


@onnx_op("GridSample")
def grid_sample(call: Call, x: Tensor, grid: Tensor) -> Tensor:
    """Read the picture at places given in [-1, 1], the last coordinate first."""
    align = bool(call.integer("align_corners", 0))
    sampler = _Sampler(x, call.text("padding_mode", "zeros"), align)
    rank = len(sampler.sizes)
    places = []
    for axis, size in enumerate(sampler.sizes):
        given = grid[..., rank - 1 - axis].cast(_float_of(x))
        place = (given + 1) / 2 * (size - 1) if align else ((given + 1) * size - 1) / 2
        places.append(place)
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(call.text("mode", "linear"))
    mode = mode or call.text("mode", "linear")
    if mode == "nearest":
        return sampler.read([sampler.padded(p.round(), a) for a, p in enumerate(places)])
    if mode == "linear":
        return _linear_sample(sampler, [sampler.padded(p, a) for a, p in enumerate(places)])
    if mode == "cubic" and rank == 2:
        return _cubic_sample(sampler, places)
    raise UnsupportedError("onnx: GridSample has no such mode", got=f"{mode} in {rank} dimensions")


def _float_of(x: Tensor) -> Any:
    return dtypes.float64 if x.dtype is dtypes.float64 else dtypes.float32


def _linear_sample(sampler: _Sampler, places: Sequence[Tensor]) -> Tensor:
    lower = [place.floor() for place in places]
    total = None
    for corner in np.ndindex(*([2] * len(places))):
        at = [low + int(step) for low, step in zip(lower, corner, strict=True)]
        weight = None
        for place, whole in zip(places, at, strict=True):
            part = 1 - (place - whole).abs()
            weight = part if weight is None else weight * part
        assert weight is not None
        value = sampler.read(at)
        term = value * weight.unsqueeze(1).cast(value.dtype)
        total = term if total is None else total + term
    assert total is not None
    return total


def _cubic_weight(distance: Tensor) -> Tensor:
    a = -0.75
    d = distance.abs()
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return (d <= 1).where(near, far)


def _cubic_sample(sampler: _Sampler, places: Sequence[Tensor]) -> Tensor:
    lower = [place.floor() for place in places]
    total = None
    for down in (-1, 0, 1, 2):
        row = lower[0] + down
        for across in (-1, 0, 1, 2):
            column = lower[1] + across
            weight = _cubic_weight(places[0] - row) * _cubic_weight(places[1] - column)
            value = sampler.read([sampler.padded(row, 0), sampler.padded(column, 1)])
            term = value * weight.unsqueeze(1).cast(value.dtype)
            total = term if total is None else total + term
    assert total is not None
    return total


@onnx_op("AffineGrid", host=(1,))
def affine_grid(call: Call, theta: Tensor, size: Array) -> Tensor:
    """Places of an affine picture of the given size, for GridSample."""
    sizes = [int(value) for value in size][2:]
    align = bool(call.integer("align_corners", 0))
    axes = []
    for count in sizes:
        steps = np.arange(count, dtype=np.float64)
        if align:
            line = steps * 2 / (count - 1) - 1 if count > 1 else np.zeros(1)
        else:
            line = (steps * 2 + 1) / count - 1
        axes.append(line)
    mesh = np.meshgrid(*axes, indexing="ij")
    rows = np.stack([*reversed(mesh), np.ones(sizes)], -1).reshape(-1, len(sizes) + 1)
    base = tensor_of(rows.astype(np.float32), call.device).cast(theta.dtype)
    grid = base.unsqueeze(0).matmul(theta.transpose(1, 2))
    return grid.reshape((theta.shape[0], *sizes, len(sizes)))


# --- regions of interest -----------------------------------------------------------------------


@onnx_op("RoiAlign")
def roi_align(call: Call, x: Tensor, regions: Tensor, batches: Tensor) -> Tensor:
    """Sample each region on an even grid and fold the samples of each cell."""
    rows, columns = call.integer("output_height", 1), call.integer("output_width", 1)
    ratio = call.integer("sampling_ratio", 0)
    if ratio <= 0:
        return _roi_align_adaptive(call, x, regions, batches)
    shift = 0.5 if _is_half_pixel(call) else 0.0
    boxes = regions * call.number("spatial_scale", 1.0) - shift
    picture = x[batches.cast(dtypes.int64)]  # (regions, c, height, width)
    return _sampled_cells(call, picture, boxes, (rows, columns), (ratio, ratio))


def _is_half_pixel(call: Call) -> bool:
    default = "half_pixel" if call.version >= 16 else "output_half_pixel"
    return call.text("coordinate_transformation_mode", default) == "half_pixel"


def _roi_align_adaptive(call: Call, x: Tensor, regions: Tensor, batches: Tensor) -> Tensor:
    """The number of samples follows each region's size, which is read on the host."""
    rows, columns = call.integer("output_height", 1), call.integer("output_width", 1)
    shift = 0.5 if _is_half_pixel(call) else 0.0
    boxes = call.read(regions * call.number("spatial_scale", 1.0) - shift)
    places = call.read(batches)
    found = []
    for box, batch in zip(boxes, places, strict=True):
        width, height = box[2] - box[0], box[3] - box[1]
        if not _is_half_pixel(call):
            width, height = max(width, 1.0), max(height, 1.0)
        counts = (max(1, math.ceil(height / rows)), max(1, math.ceil(width / columns)))
        one = tensor_of(np.asarray(box[None]), call.device)
        picture = x[int(batch) : int(batch) + 1]
        found.append(_sampled_cells(call, picture, one, (rows, columns), counts))
    return found[0] if len(found) == 1 else found[0].cat(*found[1:], dim=0)


def _sampled_cells(
    call: Call,
    picture: Tensor,
    boxes: Tensor,
    cells: tuple[int, int],
    samples: tuple[int, int],
) -> Tensor:
    sizes = picture.shape[2:]
    lines = []
    for axis in (0, 1):
        start, end = boxes[:, 1 - axis], boxes[:, 3 - axis]
        length = end - start
        if not _is_half_pixel(call):
            length = length.maximum(full((), 1.0, length.dtype, call.device))
        count = cells[axis] * samples[axis]
        steps = tensor_of((np.arange(count, dtype=np.float32) + 0.5)[None], call.device)
        place = start.unsqueeze(1) + steps.cast(length.dtype) * (length / count).unsqueeze(1)
        lines.append(place)
    sampler = _Sampler(picture, "zeros", True)
    n = boxes.shape[0]
    shape = (n, cells[0] * samples[0], cells[1] * samples[1])
    grid = [lines[0].unsqueeze(2).expand(shape), lines[1].unsqueeze(1).expand(shape)]
    outside = None
    clamped = []
    for axis, place in enumerate(grid):
        far = (place < -1.0) | (place > float(sizes[axis]))
        outside = far if outside is None else outside | far
        clamped.append(place.clip(0.0, sizes[axis] - 1.0))
    assert outside is not None
    is_max = call.text("mode", "avg") == "max"
    value = _corner_max(sampler, clamped) if is_max else _linear_sample(sampler, clamped)
    value = outside.unsqueeze(1).where(full((), 0, value.dtype, call.device), value)
    parts = value.reshape((n, value.shape[1], cells[0], samples[0], cells[1], samples[1]))
    return parts.max((3, 5)) if is_max else parts.mean((3, 5))


def _corner_max(sampler: _Sampler, places: Sequence[Tensor]) -> Tensor:
    """The largest weighted corner of each sample, as the operator's `max` is defined."""
    lower = [place.floor() for place in places]
    best = None
    for corner in np.ndindex(2, 2):
        at = [low + int(step) for low, step in zip(lower, corner, strict=True)]
        weight = (1 - (places[0] - at[0]).abs()) * (1 - (places[1] - at[1]).abs())
        value = sampler.read(at) * weight.unsqueeze(1)
        best = value if best is None else best.maximum(value)
    assert best is not None
    return best


@onnx_op("MaxRoiPool", host=(1,))
def max_roi_pool(call: Call, x: Tensor, regions: Array) -> Tensor:
    rows, columns = call.integers("pooled_shape")
    scale = call.number("spatial_scale", 1.0)
    found = []
    for batch, x0, y0, x1, y1 in regions:
        left, top, right, bottom = (round(float(v) * scale) for v in (x0, y0, x1, y1))
        height, width = max(bottom - top + 1, 1), max(right - left + 1, 1)
        cells = []
        for row in range(rows):
            for column in range(columns):
                y_from, y_to = _cell(row, height, rows, top, x.shape[2])
                x_from, x_to = _cell(column, width, columns, left, x.shape[3])
                cells.append(x[int(batch), :, y_from:y_to, x_from:x_to].max((1, 2)))
        found.append(Tensor.stack(*cells, dim=1).reshape((x.shape[1], rows, columns)))
    return Tensor.stack(*found, dim=0)


def _cell(index: int, extent: int, count: int, start: int, limit: int) -> tuple[int, int]:
    low = min(max(math.floor(index * extent / count) + start, 0), limit)
    high = min(max(math.ceil((index + 1) * extent / count) + start, 0), limit)
    return low, max(high, low + 1)


# --- selecting boxes, on the host: the number of results is data ----------------------------------


@onnx_op("NonMaxSuppression", host=(0, 1, 2, 3, 4))
def non_max_suppression(
    call: Call,
    boxes: Array,
    scores: Array,
    most: Array | None = None,
    overlap: Array | None = None,
    least: Array | None = None,
) -> Array:
    """Keep the best boxes of each class that overlap no better one too much."""
    limit = 0 if most is None or not most.size else int(most.reshape(-1)[0])
    threshold = 0.0 if overlap is None or not overlap.size else float(overlap.reshape(-1)[0])
    floor = None if least is None or not least.size else float(least.reshape(-1)[0])
    chosen: list[tuple[int, int, int]] = []
    for batch in range(scores.shape[0]):
        corners = _corners(boxes[batch], bool(call.integer("center_point_box", 0)))
        for group in range(scores.shape[1]):
            kept = _keep_best(corners, scores[batch, group], limit, threshold, floor)
            chosen += [(batch, group, box) for box in kept]
    return np.array(chosen, np.int64).reshape(-1, 3)


def _corners(boxes: Array, is_centred: bool) -> Array:
    if is_centred:
        x, y, width, height = boxes.T
        return np.stack([y - height / 2, x - width / 2, y + height / 2, x + width / 2], 1)
    low, high = np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])
    return np.concatenate([low, high], 1)


def _keep_best(
    corners: Array, scores: Array, limit: int, threshold: float, floor: float | None
) -> list[int]:
    order = np.argsort(-scores, kind="stable")
    if floor is not None:
        order = order[scores[order] > floor]
    area = (corners[:, 2] - corners[:, 0]) * (corners[:, 3] - corners[:, 1])
    kept: list[int] = []
    for box in order:
        if len(kept) >= limit:
            break
        others = np.array(kept, np.int64)
        low = np.maximum(corners[others, :2], corners[box, :2])
        high = np.minimum(corners[others, 2:], corners[box, 2:])
        shared = np.prod(np.maximum(high - low, 0), axis=1)
        union = area[others] + area[box] - shared
        with np.errstate(all="ignore"):
            ratio = np.where(union > 0, shared / union, 0)
        if not (ratio > threshold).any():
            kept.append(int(box))
    return kept


@onnx_op("Col2Im", host=(1, 2))
def col2im(call: Call, x: Tensor, image: Array, block: Array) -> Tensor:
    """Add the columns of blocks back into a picture, as the transpose of taking them."""
    rank = len(image)
    dilations = call.integers("dilations", (1,) * rank)
    strides = call.integers("strides", (1,) * rank)
    pads = call.integers("pads", (0,) * (2 * rank))
    kernel = [int(size) for size in block]
    sizes = [int(size) for size in image]
    counts = [
        (sizes[a] + pads[a] + pads[rank + a] - dilations[a] * (kernel[a] - 1) - 1) // strides[a] + 1
        for a in range(rank)
    ]
    n = x.shape[0]
    channels = x.shape[1] // math.prod(kernel)
    whole = [sizes[axis] + pads[axis] + pads[rank + axis] for axis in range(rank)]
    place: Any = np.zeros((1, 1), np.int64)
    for axis in range(rank):
        taps = np.arange(kernel[axis]) * dilations[axis]
        steps = np.arange(counts[axis]) * strides[axis]
        line = taps[:, None] + steps
        place = place[:, None, :, None] * whole[axis] + line[None, :, None, :]
        place = place.reshape(place.shape[0] * kernel[axis], -1)
    index = tensor_of(place.reshape(-1), call.device)
    values = x.reshape((n * channels, -1))
    empty = full((n * channels, math.prod(whole)), 0, x.dtype, call.device)
    index = index.reshape((1, -1)).expand(values.shape)
    summed = empty.scatter_reduce(1, index, values, reduce="sum")
    y = summed.reshape((n, channels, *whole))
    inner = [slice(pads[axis], pads[axis] + sizes[axis]) for axis in range(rank)]
    return y[(slice(None), slice(None), *inner)]
