"""Pooling: the largest, the mean or the p-norm of each window."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tilework import dtypes
from tilework.base.errors import ModelFileError
from tilework.frontends.onnx.ops.convolution import Pairs, Window
from tilework.frontends.onnx.ops.shape import padded
from tilework.frontends.onnx.registry import onnx_op
from tilework.frontends.onnx.values import Array, full, tensor_of

if TYPE_CHECKING:
    from tilework.frontends.onnx.call import Call
    from tilework.tensor.tensor import Tensor


def _window(call: Call, x: Tensor) -> tuple[Window, Pairs]:
    """Return the window and the pads, widened at the end where `ceil_mode` keeps a part."""
    window = Window(call, x.shape[2:], call.integers("kernel_shape"))
    pads = list(window.pads)
    if any(max(pair) >= window.extent(axis) for axis, pair in enumerate(pads)):
        raise ModelFileError(
            f"onnx: {call.node} has windows of padding alone",
            got=f"pads {pads}",
            expected=f"less than the sizes of the kernel {window.kernel}",
        )
    if call.integer("ceil_mode", 0):
        for axis, size in enumerate(x.shape[2:]):
            before, after = pads[axis]
            stride, extent = window.strides[axis], window.extent(axis)
            steps = -(-(size + before + after - extent) // stride)
            # A window that would begin in the padding at the end is not counted.
            if steps * stride >= size + before:
                steps -= 1
            pads[axis] = (before, max(after, steps * stride + extent - size - before))
    return window, pads


def _without_padding(x: Tensor, window: Window, pads: Pairs, value: float | None) -> Tensor:
    if all(pair == (0, 0) for pair in pads):
        return x
    filler = None if value is None else full((), value, x.dtype, x.device)
    return padded(x, [(0, 0), (0, 0), *pads], value=filler)


def _least(x: Tensor) -> float:
    return -math.inf if x.dtype.is_float else x.dtype.minimum


@onnx_op("MaxPool")
def max_pool(call: Call, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
    window, pads = _window(call, x)
    wide = _without_padding(x, window, pads, _least(x))
    if call.wants(1):
        return _max_with_places(call, x, wide, window, pads)
    found: Tensor = wide.max_pool2d(window.kernel, window.strides, window.dilations)
    return found


def taps(wide: Tensor, window: Window) -> list[tuple[tuple[int, ...], Tensor]]:
    """Return each offset in the kernel with the strided view that it reads."""
    rank = len(window.kernel)
    counts = [
        (wide.shape[2 + axis] - window.extent(axis)) // window.strides[axis] + 1
        for axis in range(rank)
    ]
    found = []
    for place in np.ndindex(*window.kernel):
        index = [slice(None), slice(None)]
        for axis in range(rank):
            start = place[axis] * window.dilations[axis]
            stop = start + (counts[axis] - 1) * window.strides[axis] + 1
            index.append(slice(start, stop, window.strides[axis]))
        found.append((tuple(int(value) for value in place), wide[tuple(index)]))
    return found


def _max_with_places(
    call: Call, x: Tensor, wide: Tensor, window: Window, pads: Pairs
) -> tuple[Tensor, Tensor]:
    """The largest of each window and its place in the flat input; the first of equals wins."""
    sizes = tuple(x.shape[2:])
    best, where_best = None, None
    numbers = np.arange(math.prod(sizes), dtype=np.int64).reshape(sizes)
    if call.integer("storage_order", 0):
        numbers = np.arange(math.prod(sizes), dtype=np.int64).reshape(sizes[::-1]).T
    planes = np.arange(math.prod(x.shape[:2]), dtype=np.int64) * math.prod(sizes)
    flat = tensor_of(np.pad(numbers, pads, constant_values=-1)[None, None], call.device)
    for (_, value), (_, number) in zip(taps(wide, window), taps(flat, window), strict=True):
        if best is None or where_best is None:
            best, where_best = value, number.expand(value.shape)
            continue
        # A place in the padding never wins, so that the index always names an element.
        wins = ((value > best) | (where_best < 0)) & (number >= 0)
        best, where_best = wins.where(value, best), wins.where(number, where_best)
    assert best is not None
    assert where_best is not None
    offset = tensor_of(planes.reshape((*x.shape[:2], *([1] * len(sizes)))), call.device)
    return best, where_best + offset


@onnx_op("AveragePool")
def average_pool(call: Call, x: Tensor) -> Tensor:
    return average_of_windows(call, x)


def average_of_windows(call: Call, x: Tensor, beyond_counts: bool = False) -> Tensor:
    """Return the mean of each window.

    Args:
        call: the node.
        x: what is averaged.
        beyond_counts: whether, if padding counts, so does what `ceil_mode` adds behind it.

    Shape:
        x (batch, channels, *sizes) -> (batch, channels, *windows)
    """
    window, pads = _window(call, x)
    wide = _without_padding(x, window, pads, None)
    mean = wide.avg_pool2d(window.kernel, window.strides, window.dilations)
    include_pad = bool(call.integer("count_include_pad", 0))
    if include_pad and beyond_counts:
        return mean
    counts = _counts(x, window, pads, include_pad)
    taps_in_all = math.prod(window.kernel)
    if (counts == taps_in_all).all():
        return mean
    factor = tensor_of((taps_in_all / counts).astype(np.float32)[None, None], call.device)
    return (mean * factor.cast(x.dtype)).cast(x.dtype)


def _counts(x: Tensor, window: Window, pads: Pairs, include_pad: bool) -> Array:
    """Return how many elements each window's mean divides by."""
    total: Any = np.ones((), np.float64)
    for axis, size in enumerate(x.shape[2:]):
        before, after = pads[axis]
        line = np.zeros(size + before + after)
        # Padding that `ceil_mode` added never counts.
        own = window.pads[axis] if include_pad else (0, 0)
        line[before - own[0] : before + size + own[1]] = 1
        starts = np.arange(0, len(line) - window.extent(axis) + 1, window.strides[axis])
        offsets = np.arange(window.kernel[axis]) * window.dilations[axis]
        total = np.multiply.outer(total, line[starts[:, None] + offsets].sum(1))
    return np.asarray(total)


@onnx_op("LpPool")
def lp_pool(call: Call, x: Tensor) -> Tensor:
    window, pads = _window(call, x)
    p = call.integer("p", 2)
    wide = _without_padding(x, window, pads, None)
    parts = [_power(value.abs(), p) for _, value in taps(wide, window)]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return _root(total, p)


def _power(x: Tensor, p: int) -> Tensor:
    return x if p == 1 else x * x if p == 2 else x**p


def _root(x: Tensor, p: int) -> Tensor:
    return x if p == 1 else x.sqrt() if p == 2 else x ** (1.0 / p)


@onnx_op("GlobalAveragePool")
def global_average_pool(call: Call, x: Tensor) -> Tensor:
    return x.mean(tuple(range(2, x.ndim)), keepdim=True)


@onnx_op("GlobalMaxPool")
def global_max_pool(call: Call, x: Tensor) -> Tensor:
    return x.max(tuple(range(2, x.ndim)), keepdim=True)


@onnx_op("GlobalLpPool")
def global_lp_pool(call: Call, x: Tensor) -> Tensor:
    p = call.integer("p", 2)
    return _root(_power(x.abs(), p).sum(tuple(range(2, x.ndim)), keepdim=True), p)


@onnx_op("MaxUnpool", host=(2,))
def max_unpool(call: Call, x: Tensor, places: Tensor, shape: Array | None = None) -> Tensor:
    """Put each value at the flat place that MaxPool reported; the rest is zero."""
    kernel = call.integers("kernel_shape")
    rank = len(kernel)
    strides = call.integers("strides", (1,) * rank)
    pads = call.integers("pads", (0,) * (2 * rank))
    natural = [
        (x.shape[2 + axis] - 1) * strides[axis] + kernel[axis] - pads[axis] - pads[rank + axis]
        for axis in range(rank)
    ]
    inner = (*x.shape[:2], *natural)
    total = math.prod(inner)
    empty = full((total,), 0, x.dtype, call.device)
    flat = empty.scatter(0, places.reshape((-1,)).cast(dtypes.int64), x.reshape((-1,)))
    y = flat.reshape(inner)
    if shape is None:
        return y
    wanted = [int(size) for size in shape]
    return padded(y, [(0, wanted[axis] - size) for axis, size in enumerate(inner)])
