"""Operators of ONNX Runtime's own domain that exported files use."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tilework import dtypes
from tilework.base.errors import UnsupportedError
from tilework.frontends.onnx.ops.activation import gelu
from tilework.frontends.onnx.ops.convolution import convolved
from tilework.frontends.onnx.ops.math import gemm
from tilework.frontends.onnx.ops.quantise import (
    dynamic_parameters,
    matmul_integer,
    quantised,
)
from tilework.frontends.onnx.ops.recurrent import LSTM, Product, run_cells
from tilework.frontends.onnx.registry import onnx_op
from tilework.frontends.onnx.values import filled

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilework.frontends.onnx.call import Call
    from tilework.tensor.tensor import Tensor

MICROSOFT = "com.microsoft"


@onnx_op("Gelu", domain=MICROSOFT)
def microsoft_gelu(call: Call, x: Tensor) -> Tensor:
    return gelu(call, x)


@onnx_op("FastGelu", domain=MICROSOFT)
def fast_gelu(call: Call, x: Tensor, bias: Tensor | None = None) -> Tensor:
    x = x if bias is None else x + bias
    inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
    return x * 0.5 * (inner.tanh() + 1)


@onnx_op("BiasGelu", domain=MICROSOFT)
def bias_gelu(call: Call, x: Tensor, bias: Tensor) -> Tensor:
    return gelu(call, x + bias)


@onnx_op("QuickGelu", domain=MICROSOFT)
def quick_gelu(call: Call, x: Tensor) -> Tensor:
    return x * (x * call.number("alpha", 1.702)).sigmoid()


@onnx_op("FusedMatMul", "TransposeMatMul", domain=MICROSOFT)
def fused_matmul(call: Call, a: Tensor, b: Tensor) -> Tensor:
    a = _batch_first(a) if call.integer("transBatchA", 0) else a
    b = _batch_first(b) if call.integer("transBatchB", 0) else b
    a = a.transpose(-1, -2) if call.integer("transA", 0) else a
    b = b.transpose(-1, -2) if call.integer("transB", 0) else b
    alpha = call.number("alpha", 1.0)
    return a.matmul(b) if alpha == 1.0 else a.matmul(b) * alpha


def _batch_first(x: Tensor) -> Tensor:
    """Move the first axis behind those of the batch, just before the last one."""
    return x.permute((*range(1, x.ndim - 1), 0, x.ndim - 1))


@onnx_op("FusedMatMulActivation", domain=MICROSOFT)
def fused_matmul_activation(call: Call, a: Tensor, b: Tensor) -> Tensor:
    return _activated(call, fused_matmul(call, a, b), _activation_numbers(call))


@onnx_op("FusedConv", domain=MICROSOFT)
def fused_conv(
    call: Call,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    addend: Tensor | None = None,
) -> Tensor:
    y = convolved(call, x, weight, bias)
    y = y if addend is None else y + addend
    given = call.attribute("activation_params", ())
    return _activated(call, y, tuple(float(value) for value in given))


@onnx_op("FusedGemm", domain=MICROSOFT)
def fused_gemm(call: Call, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    return _activated(call, gemm(call, a, b, c), _activation_numbers(call))


def _activation_numbers(call: Call) -> tuple[float, ...]:
    names = ("activation_alpha", "activation_beta", "activation_gamma")
    return tuple(call.number(name) for name in names if call.has(name))


def _activated(call: Call, x: Tensor, given: tuple[float, ...]) -> Tensor:
    """Apply the attribute `activation` with its parameters, or their defaults.

    Raises:
        UnsupportedError: it is another one than ONNX Runtime fuses.
    """
    name = call.text("activation", "")
    table: dict[str, tuple[Callable[..., Tensor], tuple[float, ...]]] = {
        "": (lambda x: x, ()),
        "Relu": (lambda x: x.relu(), ()),
        "Tanh": (lambda x: x.tanh(), ()),
        "Sigmoid": (lambda x: x.sigmoid(), ()),
        "LeakyRelu": (lambda x, slope: (x < 0).where(x * slope, x), (0.01,)),
        "Clip": (lambda x, low, high: x.clip(low, high), (-math.inf, math.inf)),
        "HardSigmoid": (lambda x, slope, shift: (x * slope + shift).clip(0.0, 1.0), (0.2, 0.5)),
    }
    if name not in table:
        raise UnsupportedError(f"onnx: {call.node} has no activation {name!r}")
    function, defaults = table[name]
    return function(x, *given[: len(defaults)], *defaults[len(given) :])


@onnx_op("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_quantize_matmul(
    call: Call,
    a: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_point: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Quantise `a` by its own range, multiply in integers, scale back."""
    scale, point = dynamic_parameters(a)
    left = quantised(a, scale, point, dtypes.uint8)
    total = matmul_integer(call, left, b, point, b_point)
    y = total.cast(dtypes.float32) * (scale * b_scale)
    return y if bias is None else y + bias


@onnx_op("MatMulIntegerToFloat", domain=MICROSOFT, least=4)
def matmul_integer_to_float(call: Call, *operands: Tensor | None) -> Tensor:
    a, b, a_scale, b_scale, *rest = operands
    assert a is not None
    assert b is not None
    assert a_scale is not None
    assert b_scale is not None
    a_point, b_point, bias = filled(rest, 3)
    total = matmul_integer(call, a, b, a_point, b_point)
    y = total.cast(dtypes.float32) * (a_scale * b_scale)
    return y if bias is None else y + bias


@onnx_op("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_quantize_lstm(
    call: Call, x: Tensor, w: Tensor, r: Tensor, *rest: Tensor | None
) -> tuple[Tensor, ...]:
    """An LSTM with 8-bit weights; inputs and states are quantised by their own range.

    Weights are (directions, inputs, gates), unlike LSTM's.
    """
    padded = filled(rest, 9)
    w_scale, w_point, r_scale, r_point = padded[5:]

    def products(index: int) -> tuple[Product, Product, Product]:
        by_w = _quantised_product(w[index], w_scale, w_point, index)
        by_r = _quantised_product(r[index], r_scale, r_point, index)
        return by_w, by_r, by_r

    return run_cells(call, LSTM, x, int(r.shape[1]), products, padded[:5])


def _quantised_product(
    weight: Tensor, scale: Tensor | None, point: Tensor | None, index: int
) -> Product:
    """Multiply in integers what `dynamic_parameters` makes of the left side."""
    integers = weight.cast(dtypes.int32)
    if point is not None:
        integers = integers - _of_direction(point, index).cast(dtypes.int32)

    def product(x: Tensor) -> Tensor:
        own_scale, own_point = dynamic_parameters(x)
        left = quantised(x, own_scale, own_point, dtypes.uint8).cast(dtypes.int32)
        total = (left - own_point.cast(dtypes.int32)).matmul(integers, dtype=dtypes.int32)
        total = total.cast(dtypes.float32)
        factor = own_scale if scale is None else own_scale * _of_direction(scale, index)
        return total * factor

    return product


def _of_direction(parameter: Tensor, index: int) -> Tensor:
    return parameter if parameter.ndim == 0 else parameter[index]
