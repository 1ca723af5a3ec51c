"""Activation functions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tilework import dtypes
from tilework.frontends.onnx.call import split_of
from tilework.frontends.onnx.registry import onnx_op
from tilework.frontends.onnx.values import full

if TYPE_CHECKING:
    from tilework.frontends.onnx.call import Call
    from tilework.tensor.tensor import Tensor


def zero_of(x: Tensor) -> Tensor:
    """A zero with the dtype of `x`, which keeps NaN apart in `maximum`."""
    return full((), 0, x.dtype, x.device)


def number_of(x: Tensor, value: float) -> Tensor:
    """A number with the dtype of `x`."""
    return full((), value, x.dtype, x.device)


@onnx_op("Relu")
def relu(call: Call, x: Tensor) -> Tensor:
    return x.relu()


@onnx_op("Sigmoid")
def sigmoid(call: Call, x: Tensor) -> Tensor:
    return x.sigmoid()


@onnx_op("Tanh")
def tanh(call: Call, x: Tensor) -> Tensor:
    return x.tanh()


@onnx_op("LeakyRelu")
def leaky_relu(call: Call, x: Tensor) -> Tensor:
    return (x < 0).where(x * call.number("alpha", 0.01), x)


@onnx_op("PRelu")
def prelu(call: Call, x: Tensor, slope: Tensor) -> Tensor:
    """x, or x * slope where x < 0; before version 7 a slope of one axis lies along the channels."""
    if call.version < 7 and slope.ndim == 1 and x.ndim > 2:
        slope = slope.reshape((-1, *([1] * (x.ndim - 2))))
    return (x < 0).where(x * slope, x)


@onnx_op("ThresholdedRelu")
def thresholded_relu(call: Call, x: Tensor) -> Tensor:
    return (x > call.number("alpha", 1.0)).where(x, zero_of(x))


@onnx_op("Elu")
def elu(call: Call, x: Tensor) -> Tensor:
    return (x < 0).where(x.expm1() * call.number("alpha", 1.0), x)


@onnx_op("Celu")
def celu(call: Call, x: Tensor) -> Tensor:
    alpha = call.number("alpha", 1.0)
    negative = (x / alpha).expm1() * alpha
    return (x < 0).where(negative, x)


@onnx_op("Selu")
def selu(call: Call, x: Tensor) -> Tensor:
    alpha = call.number("alpha", 1.67326319217681884765625)
    gamma = call.number("gamma", 1.05070102214813232421875)
    return (x > 0).where(x * gamma, x.expm1() * alpha * gamma)


@onnx_op("HardSigmoid")
def hard_sigmoid(call: Call, x: Tensor) -> Tensor:
    """max(0, min(1, alpha * x + beta))."""
    return _clipped(x * call.number("alpha", 0.2) + call.number("beta", 0.5))


def _clipped(x: Tensor) -> Tensor:
    return x.minimum(number_of(x, 1)).maximum(zero_of(x))


@onnx_op("HardSwish")
def hard_swish(call: Call, x: Tensor) -> Tensor:
    """x * max(0, min(1, x / 6 + 1/2))."""
    return x * _clipped(x * (1 / 6) + 0.5)


@onnx_op("Softplus")
def softplus(call: Call, x: Tensor) -> Tensor:
    """log(1 + exp(x)), written so that exp does not overflow."""
    return x.maximum(zero_of(x)) + (-x.abs()).exp().log1p()


@onnx_op("Softsign")
def softsign(call: Call, x: Tensor) -> Tensor:
    return x / (x.abs() + 1)


@onnx_op("Mish")
def mish(call: Call, x: Tensor) -> Tensor:
    return x * softplus(call, x).tanh()


@onnx_op("Swish")
def swish(call: Call, x: Tensor) -> Tensor:
    return x * (x * call.number("alpha", 1.0)).sigmoid()


@onnx_op("Shrink")
def shrink(call: Call, x: Tensor) -> Tensor:
    bias, limit = call.number("bias", 0.0), call.number("lambd", 0.5)
    above = (x > limit).where((x - bias).cast(x.dtype), zero_of(x))
    return (x < -limit).where((x + bias).cast(x.dtype), above)


@onnx_op("Gelu")
def gelu(call: Call, x: Tensor) -> Tensor:
    """x times the normal distribution's cumulative function, exact or by tanh."""
    if call.text("approximate", "none") == "tanh":
        inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
        return x * 0.5 * (inner.tanh() + 1)
    return x * 0.5 * ((x * math.sqrt(0.5)).erf() + 1)


# --- over an axis ------------------------------------------------------------------------------


def _flattened(call: Call, x: Tensor) -> Tensor:
    """Before version 13, the axes from `axis` on count as one."""
    axis = split_of(call, x.ndim, 1)
    return x.reshape((*x.shape[:axis], math.prod(x.shape[axis:])))


@onnx_op("Softmax")
def softmax_flattened(call: Call, x: Tensor) -> Tensor:
    return _flattened(call, x).softmax(-1).reshape(x.shape)


@onnx_op("Softmax", since=13)
def softmax(call: Call, x: Tensor) -> Tensor:
    return x.softmax(call.integer("axis", -1))


@onnx_op("LogSoftmax")
def log_softmax_flattened(call: Call, x: Tensor) -> Tensor:
    return _flattened(call, x).log_softmax(-1).reshape(x.shape)


@onnx_op("LogSoftmax", since=13)
def log_softmax(call: Call, x: Tensor) -> Tensor:
    return x.log_softmax(call.integer("axis", -1))


def _hard_max(x: Tensor, axis: int) -> Tensor:
    best = x.argmax(axis, keepdim=True)
    shape = tuple(x.shape[axis] if dim == axis % x.ndim else 1 for dim in range(x.ndim))
    from_zero = type(x).arange(x.shape[axis], device=x.device).reshape(shape)
    return (from_zero.cast(dtypes.int64) == best.cast(dtypes.int64)).cast(x.dtype)


@onnx_op("Hardmax")
def hardmax_flattened(call: Call, x: Tensor) -> Tensor:
    return _hard_max(_flattened(call, x), -1).reshape(x.shape)


@onnx_op("Hardmax", since=13)
def hardmax(call: Call, x: Tensor) -> Tensor:
    return _hard_max(x, call.integer("axis", -1))
