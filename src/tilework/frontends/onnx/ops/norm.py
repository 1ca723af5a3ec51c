"""Normalisation, for inference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tilework import dtypes
from tilework.frontends.onnx.call import axis_of
from tilework.frontends.onnx.element_types import dtype_of_number
from tilework.frontends.onnx.ops.shape import cut, padded
from tilework.frontends.onnx.registry import onnx_op
from tilework.frontends.onnx.values import Array, full, tensor_of
from tilework.tensor.tensor import Tensor

if TYPE_CHECKING:
    from tilework.dtypes import DType
    from tilework.frontends.onnx.call import Call


def wide_of(dtype: DType) -> DType:
    """Statistics of small floats are kept in float32."""
    return dtypes.float32 if dtype.is_float and dtype.bits < 32 else dtype


def _along_channels(x: Tensor, rank: int) -> Tensor:
    return x.reshape((1, -1, *([1] * (rank - 2))))


@onnx_op("BatchNormalization")
def batch_normalization(
    call: Call, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor
) -> Tensor | tuple[Tensor, ...]:
    """x * factor + shift, with both computed once where the statistics are constants."""
    epsilon = call.number("epsilon", 1e-5)
    if call.integer("training_mode", 0):
        return _batch_training(call, x, scale, bias, mean, variance)
    known = [call.known(position) for position in range(1, 5)]
    if all(array is not None for array in known):
        factor, shift = call.once(
            "affine", lambda: _affine(known, epsilon, call.device), 1, 2, 3, 4
        )
    else:
        factor = scale.cast(wide_of(x.dtype)) / (variance.cast(wide_of(x.dtype)) + epsilon).sqrt()
        shift = bias - mean * factor
    rank = x.ndim
    wide = x.cast(wide_of(x.dtype))
    return (wide * _along_channels(factor, rank) + _along_channels(shift, rank)).cast(x.dtype)


def _affine(known: list[Array | None], epsilon: float, device: str | None) -> tuple[Tensor, Tensor]:
    rows = [np.zeros(0) if array is None else array.astype(np.float64) for array in known]
    scale, bias, mean, variance = rows
    factor = scale / np.sqrt(variance + epsilon)
    shift = bias - mean * factor
    kind = np.float64 if known[0] is not None and known[0].dtype == np.float64 else np.float32
    return tensor_of(factor.astype(kind), device), tensor_of(shift.astype(kind), device)


def _batch_training(
    call: Call, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor
) -> tuple[Tensor, ...]:
    axes = (0, *range(2, x.ndim))
    momentum = call.number("momentum", 0.9)
    own_mean = x.mean(axes)
    centred = x - _along_channels(own_mean, x.ndim)
    own_variance = (centred * centred).mean(axes)
    spread = (own_variance + call.number("epsilon", 1e-5)).sqrt()
    y = centred / _along_channels(spread, x.ndim) * _along_channels(scale, x.ndim)
    return (
        y + _along_channels(bias, x.ndim),
        mean * momentum + own_mean * (1 - momentum),
        variance * momentum + own_variance * (1 - momentum),
    )


def normalized(x: Tensor, axes: tuple[int, ...], epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """(x - mean) / sqrt(variance + epsilon) over axes, the mean, and 1 / sqrt(...)."""
    mean = x.mean(axes, keepdim=True)
    centred = x - mean
    inverse = 1 / ((centred * centred).mean(axes, keepdim=True) + epsilon).sqrt()
    return centred * inverse, mean, inverse


@onnx_op("LayerNormalization")
def layer_normalization(
    call: Call, x: Tensor, scale: Tensor, bias: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    axis = axis_of(call, x.ndim, -1)
    axes = tuple(range(axis, x.ndim))
    stash = dtype_of_number(call.integer("stash_type", 1), f"onnx: {call.node}")
    wide = x.cast(stash if x.dtype.bits < 32 else x.dtype)
    y, mean, inverse = normalized(wide, axes, call.number("epsilon", 1e-5))
    y = y.cast(x.dtype) * scale
    return y if bias is None else y + bias, mean.cast(stash), inverse.cast(stash)


@onnx_op("RMSNormalization")
def rms_normalization(call: Call, x: Tensor, scale: Tensor) -> Tensor:
    axis = axis_of(call, x.ndim, -1)
    stash = dtype_of_number(call.integer("stash_type", 1), f"onnx: {call.node}")
    wide = x.cast(stash if x.dtype.bits < 32 else x.dtype)
    mean = (wide * wide).mean(tuple(range(axis, x.ndim)), keepdim=True)
    y = wide / (mean + call.number("epsilon", 1e-5)).sqrt()
    return y.cast(x.dtype) * scale


@onnx_op("InstanceNormalization")
def instance_normalization(call: Call, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    wide = x.cast(wide_of(x.dtype))
    y, _, _ = normalized(wide, tuple(range(2, x.ndim)), call.number("epsilon", 1e-5))
    y = y * _along_channels(scale, x.ndim) + _along_channels(bias, x.ndim)
    return y.cast(x.dtype)


@onnx_op("GroupNormalization")
def group_normalization(call: Call, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """Statistics per group of channels; before version 21 scale and bias are per group."""
    groups = call.integer("num_groups")
    n, c = x.shape[:2]
    wide = x.cast(wide_of(x.dtype)).reshape((n, groups, -1))
    y, _, _ = normalized(wide, (2,), call.number("epsilon", 1e-5))
    if call.version < 21 and scale.shape[0] != c:
        y = y * scale.reshape((1, -1, 1)) + bias.reshape((1, -1, 1))
        return y.reshape(x.shape).cast(x.dtype)
    y = y.reshape((n, c, -1)) * scale.reshape((1, -1, 1)) + bias.reshape((1, -1, 1))
    return y.reshape(x.shape).cast(x.dtype)


@onnx_op("LpNormalization")
def lp_normalization(call: Call, x: Tensor) -> Tensor:
    axis = axis_of(call, x.ndim, -1)
    if call.integer("p", 2) == 1:
        size = x.abs().sum(axis, keepdim=True)
    else:
        size = (x * x).sum(axis, keepdim=True).sqrt()
    return (size == 0).where(x * 0, x / size)


@onnx_op("LRN")
def local_response_normalization(call: Call, x: Tensor) -> Tensor:
    """x / (bias + alpha/size * sum of squares over neighbouring channels) ** beta."""
    size = call.integer("size")
    before = (size - 1) // 2
    after = size - 1 - before
    pairs = [(0, 0), (before, after), *([(0, 0)] * (x.ndim - 2))]
    squares = padded(x * x, pairs)
    channels = x.shape[1]
    total = cut(squares, 1, 0, channels)
    for shift in range(1, size):
        total = total + cut(squares, 1, shift, shift + channels)
    base = total * (call.number("alpha", 1e-4) / size) + call.number("bias", 1.0)
    return x / base ** call.number("beta", 0.75)


@onnx_op("MeanVarianceNormalization")
def mean_variance_normalization(call: Call, x: Tensor) -> Tensor:
    axes = call.integers("axes", (0, 2, 3))
    mean = x.mean(axes, keepdim=True)
    square = (x * x).mean(axes, keepdim=True)
    return (x - mean) / ((square - mean * mean).sqrt() + 1e-9)


@onnx_op("Dropout", host=(1, 2))
def dropout(
    call: Call, x: Tensor, ratio: Array | None = None, training: Array | None = None
) -> Tensor | tuple[Tensor, Tensor]:
    """Inference drops nothing; with `training_mode` elements are dropped and the rest scaled."""
    share = 0.5 if ratio is None else float(ratio.item())
    if training is not None and bool(training.item()) and share > 0:
        kept = Tensor.rand(*x.shape, device=call.device) >= share
        zero = full((), 0, x.dtype, call.device)
        return kept.where((x / (1 - share)).cast(x.dtype), zero), kept
    if not call.wants(1):
        return x
    # The mask has the operand's element type before version 10.
    kept_dtype = dtypes.bool_ if call.node.version >= 10 else x.dtype
    return x, full(x.shape, 1, kept_dtype, call.device)
