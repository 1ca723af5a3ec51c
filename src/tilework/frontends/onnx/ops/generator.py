"""Operators that make tensors: constants, ranges, masks, random draws."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tilework import dtypes
from tilework.base.errors import ModelFileError, UnsupportedError
from tilework.frontends.onnx.element_types import dtype_of_array, dtype_of_number
from tilework.frontends.onnx.registry import onnx_op
from tilework.frontends.onnx.values import Array, full
from tilework.tensor.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.dtypes import DType
    from tilework.frontends.onnx.call import Call

_VALUE_TYPES: dict[str, Any] = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
}


@onnx_op("Constant")
def constant(call: Call) -> Array:
    for name, kind in _VALUE_TYPES.items():
        if call.has(name):
            return np.array(call.attribute(name), kind)
    if call.has("value_string") or call.has("value_strings"):
        raise UnsupportedError("onnx: strings are not supported", got=str(call.node))
    name = "sparse_value" if call.has("sparse_value") else "value"
    array: Array = call.attribute(name)
    return array


@onnx_op("ConstantOfShape", host=(0,))
def constant_of_shape(call: Call, shape: Array) -> Tensor:
    value = call.attribute("value", np.zeros(1, np.float32)).reshape(-1)
    dtype = dtype_of_array(value) or dtypes.float32
    sizes = tuple(int(size) for size in shape)
    if value.size != 1 or min(sizes, default=0) < 0:
        raise ModelFileError(
            f"onnx: {call.node} repeats one value over sizes from 0 on",
            got=f"{value.size} values, sizes {sizes}",
        )
    return full(sizes, value[0].item(), dtype, call.device)


@onnx_op("Range", host=(0, 1, 2))
def range_(call: Call, start: Array, limit: Array, delta: Array) -> Tensor:
    """start + i * delta for i < ceil((limit - start) / delta)."""
    first, last, step = start.item(), limit.item(), delta.item()
    count = max(0, math.ceil((last - first) / step))
    dtype = dtype_of_array(start) or dtypes.float32
    steps: Tensor = Tensor.arange(count, device=call.device).cast(dtype)
    values: Tensor = steps * step + first
    return values


@onnx_op("EyeLike")
def eye_like(call: Call, x: Tensor) -> Tensor:
    rows, columns = x.shape
    number = call.attribute("dtype", None)
    dtype = x.dtype if number is None else dtype_of_number(int(number), f"onnx: {call.node}")
    down = Tensor.arange(rows, device=call.device).reshape((rows, 1))
    across = Tensor.arange(columns, device=call.device).reshape((1, columns))
    return (across - down == call.integer("k", 0)).cast(dtype)


@onnx_op("Trilu", host=(1,))
def trilu(call: Call, x: Tensor, k: Array | None = None) -> Tensor:
    """Keep the triangle above (or below) a diagonal."""
    rows, columns = x.shape[-2:]
    offset = 0 if k is None else int(k.item())
    down = Tensor.arange(rows, device=call.device).reshape((rows, 1))
    across = Tensor.arange(columns, device=call.device).reshape((1, columns))
    place = across - down
    kept = place >= offset if call.integer("upper", 1) else place <= offset
    return kept.where(x, full((), 0, x.dtype, call.device))


# --- random draws; numbers come from tilework's generator, not from ONNX Runtime's --------------


def _random_dtype(call: Call, like: DType | None = None) -> DType:
    number = call.attribute("dtype", None)
    if number is not None:
        return dtype_of_number(int(number), f"onnx: {call.node}")
    return dtypes.float32 if like is None else like


def _uniform(call: Call, shape: Sequence[int], dtype: DType) -> Tensor:
    low, high = call.number("low", 0.0), call.number("high", 1.0)
    draw = Tensor.rand(*shape, device=call.device)
    return (draw * (high - low) + low).cast(dtype)


def _normal(call: Call, shape: Sequence[int], dtype: DType) -> Tensor:
    mean, scale = call.number("mean", 0.0), call.number("scale", 1.0)
    return (Tensor.randn(*shape, device=call.device) * scale + mean).cast(dtype)


@onnx_op("RandomUniform")
def random_uniform(call: Call) -> Tensor:
    return _uniform(call, call.integers("shape"), _random_dtype(call))


@onnx_op("RandomUniformLike")
def random_uniform_like(call: Call, x: Tensor) -> Tensor:
    return _uniform(call, x.shape, _random_dtype(call, x.dtype))


@onnx_op("RandomNormal")
def random_normal(call: Call) -> Tensor:
    return _normal(call, call.integers("shape"), _random_dtype(call))


@onnx_op("RandomNormalLike")
def random_normal_like(call: Call, x: Tensor) -> Tensor:
    return _normal(call, x.shape, _random_dtype(call, x.dtype))


@onnx_op("Bernoulli")
def bernoulli(call: Call, x: Tensor) -> Tensor:
    draw = Tensor.rand(*x.shape, device=call.device)
    return (draw < x.cast(dtypes.float32)).cast(_random_dtype(call, x.dtype))


@onnx_op("Multinomial")
def multinomial(call: Call, x: Tensor) -> Tensor:
    """Draw classes by unnormalised log probabilities, by the largest of x + Gumbel noise."""
    count = call.integer("sample_size", 1)
    rows, classes = x.shape
    draw = Tensor.rand(rows, count, classes, device=call.device)
    noise = -((-(draw + 1e-20).log()) + 1e-20).log()
    number = int(call.attribute("dtype", 6))
    found = (x.unsqueeze(1) + noise).argmax(-1)
    return found.cast(dtype_of_number(number, f"onnx: {call.node}"))
