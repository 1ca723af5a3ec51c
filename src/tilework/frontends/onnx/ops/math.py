"""Arithmetic: elementwise operators, matrix products, running sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tilework import dtypes
from tilework.base.errors import UnsupportedError
from tilework.frontends.onnx.element_types import FOUR_BITS, dtype_of_number
from tilework.frontends.onnx.load import import_onnx
from tilework.frontends.onnx.registry import onnx_op
from tilework.frontends.onnx.values import Array, full
from tilework.tensor.tensor import Tensor

if TYPE_CHECKING:
    from tilework.dtypes import DType
    from tilework.frontends.onnx.call import Call


def legacy_broadcast(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """Align `b` with `a` as operators did before version 7, by the attribute `axis`."""
    if call.version >= 7 or not call.integer("broadcast", 0) or b.ndim == 0:
        return b
    axis = call.integer("axis", a.ndim - b.ndim)
    axis += a.ndim if axis < 0 else 0
    return b.reshape((*b.shape, *([1] * (a.ndim - axis - b.ndim))))


def _register_binary(name: str, function: Callable[[Tensor, Tensor], Tensor]) -> None:
    @onnx_op(name)
    def rule(call: Call, a: Tensor, b: Tensor) -> Tensor:
        return function(a, legacy_broadcast(call, a, b))


_register_binary("Add", lambda a, b: a + b)
_register_binary("Sub", lambda a, b: a - b)
_register_binary("Mul", lambda a, b: a * b)


@onnx_op("Div")
def div(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """a / b; integers round towards zero."""
    b = legacy_broadcast(call, a, b)
    return a / b if a.dtype.is_float else a.div(b, rounding_mode="trunc").cast(a.dtype)


@onnx_op("Pow")
def power(call: Call, base: Tensor, exponent: Tensor) -> Tensor:
    """base ** exponent, in the base's dtype."""
    known = call.known(1)
    if known is not None and known.size == 1 and known.item() in (1, 2, 3):
        result = base
        for _ in range(int(known.item()) - 1):
            result = result * base
        wider = len(known.shape) > base.ndim
        return result.reshape((1,) * known.ndim) if wider else result
    exponent = legacy_broadcast(call, base, exponent)
    if base.dtype.is_float:
        return base ** exponent.cast(base.dtype)
    if exponent.dtype.is_float:
        return (base.cast(exponent.dtype) ** exponent).cast(base.dtype)
    return (base ** exponent.cast(base.dtype)).cast(base.dtype)


@onnx_op("Mod")
def mod(call: Call, a: Tensor, b: Tensor) -> Tensor:
    """The remainder: with `fmod` it has the sign of `a`, else that of `b`."""
    return a.fmod(b) if call.integer("fmod", 0) else a % b


def _fold(operands: tuple[Tensor, ...], function: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    result = operands[0]
    for operand in operands[1:]:
        result = function(result, operand)
    return result


@onnx_op("Max", least=1)
def maximum(call: Call, *operands: Tensor) -> Tensor:
    return _fold(operands, lambda a, b: a.maximum(b))


@onnx_op("Min", least=1)
def minimum(call: Call, *operands: Tensor) -> Tensor:
    return _fold(operands, lambda a, b: a.minimum(b))


@onnx_op("Sum", least=1)
def add_all(call: Call, *operands: Tensor) -> Tensor:
    return _fold(operands, lambda a, b: a + b)


@onnx_op("Mean", least=1)
def mean_of_all(call: Call, *operands: Tensor) -> Tensor:
    return _fold(operands, lambda a, b: a + b) / len(operands)


_UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "Abs": lambda x: x.abs(),
    "Acos": lambda x: x.acos(),
    "Acosh": lambda x: x.acosh(),
    "Asin": lambda x: x.asin(),
    "Asinh": lambda x: x.asinh(),
    "Atan": lambda x: x.atan(),
    "Atanh": lambda x: x.atanh(),
    "Ceil": lambda x: x.ceil(),
    "Cos": lambda x: x.cos(),
    "Cosh": lambda x: x.cosh(),
    "Erf": lambda x: x.erf(),
    "Exp": lambda x: x.exp(),
    "Floor": lambda x: x.floor(),
    "Log": lambda x: x.log(),
    "Neg": lambda x: -x,
    "Reciprocal": lambda x: 1 / x,
    "Round": lambda x: x.round(),
    "Sign": lambda x: x.sign(),
    "Sin": lambda x: x.sin(),
    "Sinh": lambda x: x.sinh(),
    "Sqrt": lambda x: x.sqrt(),
    "Tan": lambda x: x.tan(),
}


def _register_unary(name: str, function: Callable[[Tensor], Tensor]) -> None:
    @onnx_op(name)
    def rule(call: Call, x: Tensor) -> Tensor:
        return function(x)


for _name, _unary in _UNARY.items():
    _register_unary(_name, _unary)


@onnx_op("Cast")
def cast_by_name(call: Call, x: Tensor) -> Tensor:
    """The first versions write the element type as a word, `INT32`."""
    number = import_onnx().TensorProto.DataType.Value(call.attribute("to").upper())
    return _cast(call, x, dtype_of_number(number, f"onnx: {call.node}"), None)


@onnx_op("Cast", since=6)
def cast(call: Call, x: Tensor) -> Tensor:
    number = call.integer("to")
    return _cast(call, x, dtype_of_number(number, f"onnx: {call.node}"), FOUR_BITS.get(number))


@onnx_op("CastLike")
def cast_like(call: Call, x: Tensor, like: Tensor) -> Tensor:
    return _cast(call, x, like.dtype, None)


def _cast(call: Call, x: Tensor, dtype: DType, limits: tuple[int, int] | None) -> Tensor:
    if limits is not None:  # 4-bit integers lie in bytes
        low = x.cast(dtypes.int32) & 15
        return (low if limits[0] == 0 else (low ^ 8) - 8).cast(dtype)
    if dtype not in (dtypes.fp8e4m3, dtypes.fp8e5m2) or not x.dtype.is_float:
        return x.cast(dtype)
    return to_float8(x, dtype, saturate=bool(call.integer("saturate", 1)))


def to_float8(x: Tensor, dtype: DType, *, saturate: bool) -> Tensor:
    """Round to an 8-bit float; what is too large becomes the largest value, or NaN or infinity."""
    largest = 448.0 if dtype is dtypes.fp8e4m3 else 57344.0
    wide = x.cast(dtypes.float32)
    if saturate:
        return wide.clip(-largest, largest).cast(dtype)
    # Half a step beyond the largest value is where rounding leaves the format.
    limit, outside = (464.0, float("nan")) if largest == 448.0 else (61440.0, float("inf"))
    beyond = full((), outside, dtypes.float32, x.device)
    wide = (wide > limit).where(beyond, (wide < -limit).where(-beyond, wide))
    return wide.cast(dtype)


@onnx_op("BitCast")
def bit_cast(call: Call, x: Tensor) -> Tensor:
    dtype = dtype_of_number(call.integer("to"), f"onnx: {call.node}")
    if x.dtype.is_bool or dtype.is_bool:  # a truth value is a byte of 0 or 1 in a file
        x = x.cast(dtypes.uint8) if x.dtype.is_bool else x
        return x.cast(dtype) if dtype.is_bool else x.bitcast(dtype)
    return x.bitcast(dtype)


@onnx_op("Clip")
def clip_by_attribute(call: Call, x: Tensor) -> Tensor:
    """Before version 11 the limits are attributes."""
    if call.has("min"):
        x = x.maximum(full((), call.number("min"), x.dtype, call.device))
    if call.has("max"):
        x = x.minimum(full((), call.number("max"), x.dtype, call.device))
    return x


@onnx_op("Clip", since=11)
def clip(call: Call, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    """min(max(x, low), high): where the limits cross, the upper one wins."""
    if low is not None:
        x = x.maximum(low.reshape(()))
    return x if high is None else x.minimum(high.reshape(()))


@onnx_op("MatMul")
def matmul(call: Call, a: Tensor, b: Tensor) -> Tensor:
    return a.matmul(b)


@onnx_op("Gemm")
def gemm(call: Call, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    """alpha * a @ b + beta * c, each matrix transposed on demand."""
    a = a.transpose(0, 1) if call.integer("transA", 0) else a
    b = b.transpose(0, 1) if call.integer("transB", 0) else b
    result = _scaled(a.matmul(b), call.number("alpha", 1.0))
    beta = call.number("beta", 1.0)
    return result if c is None else result + _scaled(c, beta)


def _scaled(x: Tensor, factor: float) -> Tensor:
    return x if factor == 1.0 else (x * factor).cast(x.dtype)


@onnx_op("Einsum", least=1)
def einsum(call: Call, *operands: Tensor) -> Tensor:
    return Tensor.einsum(call.text("equation").replace(" ", ""), *operands)


@onnx_op("CumSum", host=(1,))
def cum_sum(call: Call, x: Tensor, axis: Array) -> Tensor:
    """Running sums along an axis, from either end, with or without the element itself."""
    return _running(call, x, int(axis.item()), 0, lambda t, dim: t.cumsum(dim).cast(x.dtype))


@onnx_op("CumProd", host=(1,))
def cum_prod(call: Call, x: Tensor, axis: Array) -> Tensor:
    return _running(call, x, int(axis.item()), 1, lambda t, dim: t.cumprod(dim).cast(x.dtype))


def _running(
    call: Call, x: Tensor, axis: int, first: int, scan: Callable[[Tensor, int], Tensor]
) -> Tensor:
    axis += x.ndim if axis < 0 else 0
    is_reversed = bool(call.integer("reverse", 0))
    x = x.flip(axis) if is_reversed else x
    if call.integer("exclusive", 0) and x.shape[axis]:
        head = tuple(1 if dim == axis else size for dim, size in enumerate(x.shape))
        kept = [slice(None)] * x.ndim
        kept[axis] = slice(0, x.shape[axis] - 1)
        x = full(head, first, x.dtype, call.device).cat(x[tuple(kept)], dim=axis)
    x = scan(x, axis)
    return x.flip(axis) if is_reversed else x


@onnx_op("BitShift")
def bit_shift(call: Call, x: Tensor, count: Tensor) -> Tensor:
    """Shift; a count of the width or more leaves 0, or the sign of what is shifted right."""
    is_left = call.text("direction") == "LEFT"
    width = x.dtype.bits
    if not is_left and x.dtype.is_signed:
        return x >> count.minimum(full((), width - 1, count.dtype, call.device))
    inside = count < width
    safe = inside.where(count, full((), 0, count.dtype, call.device))
    shifted = (x << safe) if is_left else (x >> safe)
    return inside.where(shifted, full((), 0, x.dtype, call.device))


@onnx_op("Det")
def determinant(call: Call, x: Tensor) -> Tensor:
    """The determinant by elimination with row exchange, unrolled over the columns."""
    size = int(x.shape[-1])
    if size > 16:
        raise UnsupportedError("onnx: Det of matrices beyond 16 x 16", got=f"shape {x.shape}")
    result = full(x.shape[:-2], 1.0, x.dtype, call.device)
    rows = x
    for step in range(size):
        left = size - step
        pivot = rows[..., :, 0].abs().argmax(axis=-1, keepdim=True)
        lines = Tensor.arange(left, device=call.device).cast(dtypes.int64)
        chosen = (lines == pivot).unsqueeze(-1)
        zero = full((), 0.0, x.dtype, call.device)
        best = chosen.where(rows, zero).sum(-2, keepdim=True)
        first = rows[..., 0:1, :]
        swapped = chosen.where(first, rows)[..., 1:, :]
        sign = (pivot.squeeze(-1) == 0).where(1.0, -1.0).cast(x.dtype)
        head = best[..., 0, 0]
        result = result * head * sign
        safe = (best[..., :, 0:1] == 0).where(1.0, best[..., :, 0:1])
        rows = (swapped - swapped[..., :, 0:1] / safe * best)[..., :, 1:]
    return result
