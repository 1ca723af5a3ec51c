"""Quantised operators: exact in integers, ties to even, saturating casts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tilework import dtypes
from tilework.frontends.onnx.call import axis_of
from tilework.frontends.onnx.element_types import FOUR_BITS, dtype_of_number
from tilework.frontends.onnx.ops.convolution import convolved
from tilework.frontends.onnx.ops.math import to_float8
from tilework.frontends.onnx.registry import onnx_op
from tilework.frontends.onnx.values import full

if TYPE_CHECKING:
    from tilework.dtypes import DType
    from tilework.frontends.onnx.call import Call
    from tilework.tensor.tensor import Tensor

#: ONNX Runtime's own operators of these names take more element types, and are the same else.
MICROSOFT = "com.microsoft"


def _along(parameter: Tensor, x: Tensor, call: Call) -> Tensor:
    """Align a scale or zero point with `x`: one for all, one per slice, or one per block."""
    if parameter.ndim == 0 or math.prod(parameter.shape) == 1:
        return parameter.reshape(())
    axis = axis_of(call, x.ndim, 1)
    block = call.integer("block_size", 0)
    if parameter.ndim == 1 and not block:
        return parameter.reshape(tuple(-1 if dim == axis else 1 for dim in range(x.ndim)))
    block = block or -(-x.shape[axis] // parameter.shape[axis])
    sizes = list(parameter.shape)
    split = (*sizes[: axis + 1], 1, *sizes[axis + 1 :])
    wide = (*sizes[: axis + 1], block, *sizes[axis + 1 :])
    joined = (*sizes[:axis], sizes[axis] * block, *sizes[axis + 1 :])
    spread = parameter.reshape(split).expand(wide).reshape(joined)
    return spread[(*([slice(None)] * axis), slice(0, x.shape[axis]))]


def saturated(x: Tensor, dtype: DType, limits: tuple[int, int] | None = None) -> Tensor:
    """Clamp a rounded float to an integer dtype's range and cast it."""
    low, high = limits or (dtype.minimum, dtype.maximum)
    low_value, high_value = full((), low, x.dtype, x.device), full((), high, x.dtype, x.device)
    return x.maximum(low_value).minimum(high_value).cast(dtype)


def quantised(
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor | None,
    dtype: DType,
    limits: tuple[int, int] | None = None,
) -> Tensor:
    """saturate(round_to_even(x / scale) + zero_point)."""
    ratio = x.cast(scale.dtype) / scale
    if dtype.is_float:
        return to_float8(ratio, dtype, saturate=True)
    rounded = ratio.round().cast(dtypes.float32)
    if zero_point is not None:
        rounded = rounded + zero_point.cast(dtypes.float32)
    return saturated(rounded, dtype, limits)


@onnx_op("QuantizeLinear")
@onnx_op("QuantizeLinear", domain=MICROSOFT)
def quantize_linear(
    call: Call, x: Tensor, scale: Tensor, zero_point: Tensor | None = None
) -> Tensor:
    number = call.integer("output_dtype", 0)
    dtype = dtypes.uint8
    if zero_point is not None:
        dtype = zero_point.dtype
    elif number:
        dtype = dtype_of_number(number, f"onnx: {call.node}")
    scale = _along(scale, x, call)
    point = None if zero_point is None else _along(zero_point, x, call)
    return quantised(x, scale, point, dtype, FOUR_BITS.get(number))


@onnx_op("DequantizeLinear")
@onnx_op("DequantizeLinear", domain=MICROSOFT)
def dequantize_linear(
    call: Call, x: Tensor, scale: Tensor, zero_point: Tensor | None = None
) -> Tensor:
    """(x - zero_point) * scale, in the scale's dtype."""
    wide = dtypes.float32 if scale.dtype.bits < 32 else scale.dtype
    if x.dtype.is_float:
        return (x.cast(wide) * _along(scale, x, call).cast(wide)).cast(scale.dtype)
    value = x.cast(dtypes.int32)
    if zero_point is not None:
        value = value - _along(zero_point, x, call).cast(dtypes.int32)
    return (value.cast(wide) * _along(scale, x, call).cast(wide)).cast(scale.dtype)


def dynamic_parameters(x: Tensor) -> tuple[Tensor, Tensor]:
    """The scale and the uint8 zero point that cover the range of `x` and zero."""
    zero = full((), 0.0, x.dtype, x.device)
    high, low = x.max().maximum(zero), x.min().minimum(zero)
    scale = (high - low) / 255
    safe = (scale == 0).where(full((), 1.0, x.dtype, x.device), scale)
    return safe, saturated((zero - low / safe).round(), dtypes.uint8)


@onnx_op("DynamicQuantizeLinear")
def dynamic_quantize_linear(call: Call, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    scale, point = dynamic_parameters(x)
    return quantised(x, scale, point, dtypes.uint8), scale, point


def minus_zero_point(x: Tensor, zero_point: Tensor | None) -> Tensor:
    """A quantised number less its zero point, as int32."""
    value = x.cast(dtypes.int32)
    return value if zero_point is None else value - zero_point.cast(dtypes.int32)


def dequantised(x: Tensor, scale: Tensor, zero_point: Tensor | None) -> Tensor:
    """(x - zero_point) * scale in float32."""
    return minus_zero_point(x, zero_point).cast(dtypes.float32) * scale


def _row_point(point: Tensor | None) -> Tensor | None:
    """A zero point of `a` that differs by row stands along the rows."""
    if point is None or point.ndim != 1 or point.shape[0] == 1:
        return None if point is None else _flat_if_one(point)
    return point.reshape((-1, 1))


def _flat_if_one(point: Tensor) -> Tensor:
    return point.reshape(()) if point.ndim == 1 and point.shape[0] == 1 else point


@onnx_op("MatMulInteger")
def matmul_integer(
    call: Call,
    a: Tensor,
    b: Tensor,
    a_point: Tensor | None = None,
    b_point: Tensor | None = None,
) -> Tensor:
    """(a - a_point) @ (b - b_point) in int32."""
    left = minus_zero_point(a, _row_point(a_point))
    right = minus_zero_point(b, None if b_point is None else _flat_if_one(b_point))
    return left.matmul(right, dtype=dtypes.int32)


@onnx_op("ConvInteger")
def conv_integer(
    call: Call,
    x: Tensor,
    weight: Tensor,
    x_point: Tensor | None = None,
    weight_point: Tensor | None = None,
) -> Tensor:
    """Convolve (x - x_point), which is 0 in the padding, with (weight - weight_point), in int32."""
    value = minus_zero_point(x, None if x_point is None else _flat_if_one(x_point))
    if weight_point is not None and math.prod(weight_point.shape) > 1:
        weight_point = weight_point.reshape((-1, *([1] * (weight.ndim - 1))))
    elif weight_point is not None:
        weight_point = weight_point.reshape(())
    filters = minus_zero_point(weight, weight_point)
    return convolved(call, value, filters, dtype=dtypes.int32)


def requantised(total: Tensor, factor: Tensor, point: Tensor) -> Tensor:
    """Scale an int32 result and quantise it to the zero point's dtype."""
    rounded = (total.cast(dtypes.float32) * factor).round() + point.cast(dtypes.float32)
    return saturated(rounded, point.dtype)


@onnx_op("QLinearMatMul", least=8)
def qlinear_matmul(call: Call, *operands: Tensor) -> Tensor:
    a, a_scale, a_point, b, b_scale, b_point, y_scale, y_point = operands
    left = minus_zero_point(a, _row_point(a_point))
    right = minus_zero_point(b, _flat_if_one(b_point))
    row_scale = _row_point(a_scale)
    assert row_scale is not None
    factor = row_scale * _flat_if_one(b_scale) / _flat_if_one(y_scale)
    return requantised(left.matmul(right, dtype=dtypes.int32), factor, _flat_if_one(y_point))


@onnx_op("QLinearConv", least=8)
def qlinear_conv(call: Call, *operands: Tensor | None) -> Tensor:
    x, x_scale, x_point, w, w_scale, w_point, y_scale, y_point, *rest = operands
    assert x is not None
    assert w is not None
    assert x_scale is not None
    assert w_scale is not None
    assert y_scale is not None
    assert y_point is not None
    by_output = (-1, *([1] * (w.ndim - 1)))
    if w_point is not None:
        w_point = (
            w_point.reshape(by_output) if math.prod(w_point.shape) > 1 else w_point.reshape(())
        )
    bias = rest[0] if rest else None
    total = convolved(
        call,
        minus_zero_point(x, None if x_point is None else x_point.reshape(())),
        minus_zero_point(w, w_point),
        dtype=dtypes.int32,
    )
    along = (1, -1, *([1] * (w.ndim - 2)))
    if bias is not None:
        total = total + bias.reshape(along)
    many = math.prod(w_scale.shape) > 1
    factor = x_scale.reshape(()) * w_scale.reshape(along if many else ()) / y_scale.reshape(())
    return requantised(total, factor, y_point.reshape(()))
