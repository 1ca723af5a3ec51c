"""Quantised operators of ONNX Runtime's own domain: what its quantiser writes into files.

Each takes the scale and the zero point of its operands and of its result.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tilework import dtypes
from tilework.frontends.onnx.call import axis_of, split_of
from tilework.frontends.onnx.ops.pool import average_of_windows, max_pool
from tilework.frontends.onnx.ops.quantise import (
    dequantised,
    minus_zero_point,
    qlinear_conv,
    quantised,
    requantised,
)
from tilework.frontends.onnx.registry import onnx_op
from tilework.frontends.onnx.values import filled
from tilework.tensor.tensor import Tensor

if TYPE_CHECKING:
    from tilework.frontends.onnx.call import Call

MICROSOFT = "com.microsoft"


@onnx_op("QGemm", domain=MICROSOFT, least=6, optional=(2, 5))
def qgemm(call: Call, *operands: Tensor | None) -> Tensor:
    """alpha * (A B + C) in integers, as floats, or quantised where a scale for that is given."""
    a, a_scale, a_point, b, b_scale, b_point, *rest = operands
    assert a is not None
    assert b is not None
    assert a_scale is not None
    assert b_scale is not None
    bias, y_scale, y_point = filled(rest, 3)
    left = minus_zero_point(a, a_point)
    right = minus_zero_point(
        b, b_point if b_point is None or b_point.ndim == 0 else _columns(call, b_point)
    )
    left = left.transpose(0, 1) if call.integer("transA", 0) else left
    right = right.transpose(0, 1) if call.integer("transB", 0) else right
    total = left.matmul(right, dtype=dtypes.int32)
    if bias is not None:
        total = total + bias
    factor = a_scale * b_scale * call.number("alpha", 1.0)
    if y_scale is None:
        return total.cast(dtypes.float32) * factor
    if y_point is None:
        y_point = Tensor(0, dtype=dtypes.uint8, device=a.device)
    return requantised(total, factor / y_scale, y_point)


def _columns(call: Call, point: Tensor) -> Tensor:
    """A zero point for each column of B, which may be given transposed."""
    return point.reshape((-1, 1)) if call.integer("transB", 0) else point


@onnx_op("QLinearAdd", "QLinearMul", domain=MICROSOFT, least=7, optional=(2, 5))
def qlinear_binary(call: Call, *operands: Tensor | None) -> Tensor:
    a, a_scale, a_point, b, b_scale, b_point, y_scale, *rest = operands
    (y_point,) = filled(rest, 1)
    left, right = _real(a, a_scale, a_point), _real(b, b_scale, b_point)
    total = left + right if call.node.op == "QLinearAdd" else left * right
    return _narrow(total, y_scale, y_point, a)


def _real(x: Tensor | None, scale: Tensor | None, point: Tensor | None) -> Tensor:
    """What a quantised operand stands for; the registry has seen that it is there."""
    assert x is not None
    assert scale is not None
    return dequantised(x, _one(scale), None if point is None else _one(point))


def _narrow(
    value: Tensor, scale: Tensor | None, point: Tensor | None, like: Tensor | None
) -> Tensor:
    """A result in the dtype of an operand."""
    assert like is not None
    assert scale is not None
    return quantised(value, _one(scale), None if point is None else _one(point), like.dtype)


def _one(parameter: Tensor) -> Tensor:
    """A scale or zero point for all, which files also write as a list of one."""
    return parameter.reshape(()) if math.prod(parameter.shape) == 1 else parameter


@onnx_op("QLinearConv", domain=MICROSOFT, least=8)
def channels_last_qlinear_conv(call: Call, x: Tensor, *rest: Tensor | None) -> Tensor:
    """QLinearConv of the standard, which may have its channels at the end."""
    if not call.integer("channels_last", 0):
        return qlinear_conv(call, x, *rest)
    return _last(qlinear_conv(call, _first(x), *rest))


def _first(x: Tensor) -> Tensor:
    """Channels from the end to their usual place."""
    return x.permute((0, x.ndim - 1, *range(1, x.ndim - 1)))


def _last(x: Tensor) -> Tensor:
    return x.permute((0, *range(2, x.ndim), 1))


@onnx_op("NhwcMaxPool", domain=MICROSOFT)
def channels_last_max_pool(call: Call, x: Tensor) -> Tensor:
    found = max_pool(call, _first(x))
    assert isinstance(found, Tensor)
    return _last(found)


@onnx_op("QLinearAveragePool", domain=MICROSOFT, least=4, optional=(2,))
def qlinear_average_pool(call: Call, *operands: Tensor | None) -> Tensor:
    x, x_scale, x_point, y_scale, *rest = operands
    (y_point,) = filled(rest, 1)
    is_last = bool(call.integer("channels_last", 0))
    value = _real(x, x_scale, x_point)
    # As in ONNX Runtime, whose integers are divided by the size of the kernel if padding counts.
    mean = average_of_windows(call, _first(value) if is_last else value, beyond_counts=True)
    return _narrow(_last(mean) if is_last else mean, y_scale, y_point, x)


@onnx_op("QLinearReduceMean", domain=MICROSOFT, least=4, optional=(2,))
def qlinear_reduce_mean(call: Call, *operands: Tensor | None) -> Tensor:
    x, x_scale, x_point, y_scale, *rest = operands
    (y_point,) = filled(rest, 1)
    value = _real(x, x_scale, x_point)
    axes = call.integers("axes", None) or tuple(range(value.ndim))
    mean = value.mean(axes, keepdim=bool(call.integer("keepdims", 1)))
    return _narrow(mean, y_scale, y_point, x)


@onnx_op("QLinearSoftmax", domain=MICROSOFT, least=4, optional=(2,))
def qlinear_softmax(call: Call, *operands: Tensor | None) -> Tensor:
    """Softmax over an axis, or before version 13 over it and all that follow."""
    x, x_scale, x_point, y_scale, *rest = operands
    (y_point,) = filled(rest, 1)
    value = _real(x, x_scale, x_point)
    if call.integer("opset") >= 13:
        found = value.softmax(axis_of(call, value.ndim, -1))
    else:
        at = split_of(call, value.ndim, -1)
        flat = value.reshape((math.prod(value.shape[:at]), math.prod(value.shape[at:])))
        found = flat.softmax(-1).reshape(value.shape)
    return _narrow(found, y_scale, y_point, x)


@onnx_op("QLinearWhere", domain=MICROSOFT, least=9)
def qlinear_where(call: Call, *operands: Tensor | None) -> Tensor:
    condition, x, x_scale, x_point, y, y_scale, y_point, scale, point = operands
    assert condition is not None
    first = _narrow(_real(x, x_scale, x_point), scale, point, x)
    second = _narrow(_real(y, y_scale, y_point), scale, point, x)
    return condition.where(first, second)


@onnx_op("QLinearGlobalAveragePool", domain=MICROSOFT, least=5)
def qlinear_global_average_pool(call: Call, *operands: Tensor) -> Tensor:
    x, x_scale, x_point, y_scale, y_point = operands
    is_last = bool(call.integer("channels_last", 0))
    axes = tuple(range(1, x.ndim - 1)) if is_last else tuple(range(2, x.ndim))
    total = minus_zero_point(x, x_point).sum(axes, keepdim=True, dtype=dtypes.int32)
    return requantised(
        total, x_scale / (y_scale * float(math.prod(x.shape[axis] for axis in axes))), y_point
    )


@onnx_op("QLinearLeakyRelu", domain=MICROSOFT, least=4, optional=(2,))
def qlinear_leaky_relu(call: Call, *operands: Tensor | None) -> Tensor:
    x, x_scale, x_point, y_scale, *rest = operands
    (y_point,) = filled(rest, 1)
    value = _real(x, x_scale, x_point)
    found = (value < 0).where(value * call.number("alpha", 0.01), value)
    return _narrow(found, y_scale, y_point, x)


@onnx_op("QLinearSigmoid", domain=MICROSOFT, least=4, optional=(2,))
def qlinear_sigmoid(call: Call, *operands: Tensor | None) -> Tensor:
    x, x_scale, x_point, y_scale, *rest = operands
    (y_point,) = filled(rest, 1)
    return _narrow(_real(x, x_scale, x_point).sigmoid(), y_scale, y_point, x)


@onnx_op("QLinearConcat", domain=MICROSOFT, least=5, optional=(1, 4))
def qlinear_concat(call: Call, *operands: Tensor | None) -> Tensor:
    """Operands after the result's scale and zero point come in threes."""
    y_scale, y_point, *rest = operands
    parts = [
        _narrow(_real(x, scale, point), y_scale, y_point, x)
        for x, scale, point in zip(rest[::3], rest[1::3], rest[2::3], strict=True)
    ]
    return parts[0].cat(*parts[1:], dim=call.integer("axis", 0))
