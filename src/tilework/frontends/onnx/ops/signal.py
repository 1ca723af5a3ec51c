"""Signal processing: windows, Fourier transforms, mel filters."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tilework.frontends.onnx.element_types import dtype_of_number, numpy_dtype
from tilework.frontends.onnx.ops.shape import padded
from tilework.frontends.onnx.registry import onnx_op
from tilework.frontends.onnx.values import Array, tensor_of
from tilework.tensor.tensor import Tensor

if TYPE_CHECKING:
    from tilework.frontends.onnx.call import Call

_WINDOWS = {
    "HannWindow": (0.5, 0.5, 0.0),
    "HammingWindow": (25 / 46, 21 / 46, 0.0),
    "BlackmanWindow": (0.42, 0.5, 0.08),
}


@onnx_op("HannWindow", "HammingWindow", "BlackmanWindow", host=(0,))
def window(call: Call, size: Array) -> Array:
    """A sum of cosines over the window, periodic or symmetric."""
    count = int(size.item())
    span = count if call.integer("periodic", 1) else max(1, count - 1)
    a, b, c = _WINDOWS[call.node.op]
    turn = 2 * math.pi * np.arange(count) / span
    values = a - b * np.cos(turn) + c * np.cos(2 * turn)
    dtype = dtype_of_number(call.integer("output_datatype", 1), f"onnx: {call.node}")
    return values.astype(numpy_dtype(dtype))


def _waves(rows: int, columns: int, kind: type, is_inverse: bool) -> tuple[Array, Array]:
    """Cosines and sines of the transform, (rows, columns), exact angles reduced first."""
    steps = np.outer(np.arange(rows), np.arange(columns)) % rows
    turn = 2 * math.pi * steps / rows
    sign = 1.0 if is_inverse else -1.0
    return np.cos(turn).astype(kind), (sign * np.sin(turn)).astype(kind)


def transformed(x: Tensor, length: int, *, is_inverse: bool, is_onesided: bool) -> Tensor:
    """The Fourier transform along the axis before the last one.

    Shape: x (..., n, 1 or 2) -> (..., m, 2), with m = length, or length // 2 + 1 if one-sided
    """
    size = x.shape[-2]
    if size < length:
        x = padded(x, [*([(0, 0)] * (x.ndim - 2)), (0, length - size), (0, 0)])
    elif size > length:
        x = x[..., :length, :]
    kind = np.float64 if x.dtype.bits == 64 else np.float32
    columns = length // 2 + 1 if is_onesided else length
    cosine, sine = (
        tensor_of(wave, x.device).cast(x.dtype)
        for wave in _waves(length, columns, kind, is_inverse)
    )
    real = x[..., 0]
    real_part, imaginary_part = real.matmul(cosine), real.matmul(sine)
    if x.shape[-1] == 2:
        imaginary = x[..., 1]
        real_part = real_part - imaginary.matmul(sine)
        imaginary_part = imaginary_part + imaginary.matmul(cosine)
    if is_inverse:
        real_part, imaginary_part = real_part / length, imaginary_part / length
    return Tensor.stack(real_part, imaginary_part, dim=-1)


@onnx_op("DFT", host=(1, 2))
def dft(call: Call, x: Tensor, length: Array | None = None, axis: Array | None = None) -> Tensor:
    place = call.integer("axis", 1 if call.version < 20 else -2)
    if axis is not None:
        place = int(axis.item())
    place %= x.ndim
    order = [dim for dim in range(x.ndim - 1) if dim != place] + [place, x.ndim - 1]
    moved = x.permute(tuple(order))
    count = moved.shape[-2] if length is None else int(length.item())
    is_inverse = bool(call.integer("inverse", 0))
    is_onesided = bool(call.integer("onesided", 0))
    if is_inverse and is_onesided:
        return _real_inverse(moved, count if length is not None else None).permute(
            tuple(np.argsort(order))
        )
    y = transformed(moved, count, is_inverse=is_inverse, is_onesided=is_onesided)
    return y.permute(tuple(int(dim) for dim in np.argsort(order)))


def _real_inverse(x: Tensor, length: int | None) -> Tensor:
    """The real signal of a one-sided spectrum."""
    half = x.shape[-2]
    count = 2 * (half - 1) if length is None else length
    used = count // 2 + 1
    x = (
        x[..., :used, :]
        if half >= used
        else padded(x, [*([(0, 0)] * (x.ndim - 2)), (0, used - half), (0, 0)])
    )
    # The bins that are left out are the conjugates of those kept, in reverse.
    tail = x[..., 1 : count - used + 1, :].flip(-2)
    sign = tensor_of(np.array([1.0, -1.0], np.float32), x.device).cast(x.dtype)
    whole = x.cat(tail * sign, dim=-2) if count > used else x
    return transformed(whole, count, is_inverse=True, is_onesided=False)[..., 0:1]


@onnx_op("STFT", host=(1, 3))
def stft(
    call: Call,
    signal: Tensor,
    step: Array,
    shape: Tensor | None = None,
    length: Array | None = None,
) -> Tensor:
    """Windowed frames of the signal, each transformed."""
    signal = signal if signal.ndim == 3 else signal.unsqueeze(-1)
    hop = int(step.item())
    size = shape.shape[0] if length is None and shape is not None else 0
    size = int(length.item()) if length is not None else size
    frames = 1 + (signal.shape[1] - size) // hop
    rows = [signal[:, start * hop : start * hop + size] for start in range(frames)]
    cut = Tensor.stack(*rows, dim=1)
    if shape is not None:
        cut = cut * shape.reshape((1, 1, -1, 1))
    is_onesided = bool(call.integer("onesided", 1))
    return transformed(cut, size, is_inverse=False, is_onesided=is_onesided)


@onnx_op("MelWeightMatrix", host=(0, 1, 2, 3, 4))
def mel_weight_matrix(
    call: Call, bands: Array, length: Array, rate: Array, low: Array, high: Array
) -> Array:
    """Triangles over the bins of a spectrum, evenly spaced on the mel scale."""
    count, bins = int(bands.item()), int(length.item()) // 2 + 1
    edges = _mel(np.array([low.item(), high.item()], np.float64))
    # The operator divides the span by the number of edges, not by that of the gaps.
    centres = edges[0] + (edges[1] - edges[0]) / (count + 2) * np.arange(count + 2)
    hertz = 700 * (10 ** (centres / 2595) - 1)
    places = ((int(length.item()) + 1) * hertz / int(rate.item())).astype(np.int64)
    matrix = np.zeros((bins, count))
    for band in range(count):
        left, middle, right = places[band : band + 3]
        if middle == left:
            matrix[middle, band] = 1
        else:
            matrix[left : middle + 1, band] = (np.arange(left, middle + 1) - left) / (middle - left)
        if right > middle:
            falling = (right - np.arange(middle, right)) / (right - middle)
            matrix[middle:right, band] = falling
    dtype = dtype_of_number(call.integer("output_datatype", 1), f"onnx: {call.node}")
    return matrix.astype(numpy_dtype(dtype))


def _mel(hertz: Array) -> Array:
    return np.asarray(2595 * np.log10(1 + hertz / 700))
