"""Quantised operators of ONNX Runtime's own domain: what its quantiser writes into files.

Each takes the scale and the zero point of its operands and of its result.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tilework import dtypes
from tilework.frontends.onnx.ops.quantise import (
    dequantised,
    minus_zero_point,
    quantised,
    requantised,
)
from tilework.frontends.onnx.registry import onnx_op
from tilework.frontends.onnx.values import filled
from tilework.tensor.tensor import Tensor

if TYPE_CHECKING:
    from tilework.frontends.onnx.call import Call

MICROSOFT = "com.microsoft"


@onnx_op("QGemm", domain=MICROSOFT, least=6)
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


@onnx_op("QLinearGlobalAveragePool", domain=MICROSOFT, least=5)
def qlinear_global_average_pool(call: Call, *operands: Tensor) -> Tensor:
    x, x_scale, x_point, y_scale, y_point = operands
    is_last = bool(call.integer("channels_last", 0))
    axes = tuple(range(1, x.ndim - 1)) if is_last else tuple(range(2, x.ndim))
    total = minus_zero_point(x, x_point).sum(axes, keepdim=True, dtype=dtypes.int32)
    return requantised(
        total, x_scale / (y_scale * float(math.prod(x.shape[axis] for axis in axes))), y_point
    )


@onnx_op("QLinearLeakyRelu", domain=MICROSOFT, least=4)
def qlinear_leaky_relu(call: Call, *operands: Tensor | None) -> Tensor:
    x, x_scale, x_point, y_scale, *rest = operands
    assert x is not None
    assert x_scale is not None
    assert y_scale is not None
    (y_point,) = filled(rest, 1)
    value = dequantised(x, x_scale, x_point)
    found = (value < 0).where(value * call.number("alpha", 0.01), value)
    return quantised(found, y_scale, y_point, x.dtype)


@onnx_op("QLinearSigmoid", domain=MICROSOFT, least=4)
def qlinear_sigmoid(call: Call, *operands: Tensor | None) -> Tensor:
    x, x_scale, x_point, y_scale, *rest = operands
    assert x is not None
    assert x_scale is not None
    assert y_scale is not None
    (y_point,) = filled(rest, 1)
    return quantised(dequantised(x, x_scale, x_point).sigmoid(), y_scale, y_point, x.dtype)


@onnx_op("QLinearConcat", domain=MICROSOFT, least=5)
def qlinear_concat(call: Call, *operands: Tensor) -> Tensor:
    """Operands after the result's scale and zero point come in threes."""
    y_scale, y_point, *rest = operands
    parts = [
        quantised(dequantised(x, scale, point), y_scale, y_point, x.dtype)
        for x, scale, point in zip(rest[::3], rest[1::3], rest[2::3], strict=True)
    ]
    return parts[0].cat(*parts[1:], dim=call.integer("axis", 0))
