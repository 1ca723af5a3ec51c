"""What each elementwise op does to scalars: one Python function per op and dtype.

A scalar of the interpreter is a Python bool, int or float that its dtype can hold.
"""

from __future__ import annotations

import math as pymath
import operator
from functools import cache
from typing import TYPE_CHECKING, Any

from tilework.base.errors import DTypeError, InternalError
from tilework.dtypes import DType, Kind, bfloat16, decode, encode, float32, float64
from tilework.ir.interpret import floats
from tilework.ir.interpret.exact import round_integer, truncate
from tilework.ir.ops import math

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilework.ir.node import Node, OpDef

Scalar = bool | int | float


def scalar_from_bits(bits: int, dtype: DType) -> Scalar:
    """The scalar with this bit pattern."""
    return floats.from_bits(bits, dtype) if dtype.is_float else decode(bits, dtype)


def bits_of_scalar(value: Scalar, dtype: DType) -> int:
    """The bit pattern of a scalar."""
    return floats.to_bits(value, dtype) if dtype.is_float else encode(value, dtype)


def zero(dtype: DType) -> Scalar:
    """The scalar 0, 0.0 or False."""
    return scalar_from_bits(0, dtype)


def scalar_function(node: Node) -> Callable[..., Scalar]:
    """What `node` computes for one element of each of its sources."""
    result = node.type.dtype
    if node.op is math.CAST:
        return cast_function(node.src[0].type.dtype, result)
    if node.op is math.WHERE or node.op is math.WHERE_RARE:
        return _where
    if node.op is math.DOT_BFLOAT16_PAIRS:
        return _dot_of_bfloat16
    operand = node.src[0].type.dtype
    return op_function(node.op, operand)


def _dot_of_bfloat16(x: int, y: int, z: float) -> float:
    multiply_add, values = floats.fused_multiply_add(float32), floats.small_values(bfloat16)
    halves = [parts_of_word(word, 16, signed=False) for word in (x, y)]
    for a, b in zip(*halves, strict=True):
        z = multiply_add(values[a], values[b], z)
    return z


def _where(condition: bool, x: Scalar, y: Scalar) -> Scalar:
    return x if condition else y


@cache
def op_function(op: OpDef, dtype: DType) -> Callable[..., Scalar]:
    """What the elementwise op `op` does to scalars of `dtype`."""
    if op in _COMPARISONS:
        return _COMPARISONS[op]
    if dtype.is_float:
        found = _float_function(op, dtype)
    elif dtype.is_bool:
        found = _BOOLEAN.get(op)
    else:
        found = _integer_function(op, dtype)
    if found is None:
        raise DTypeError(f"{op.name}: has no meaning for {dtype.name}")
    return found


_COMPARISONS: dict[OpDef, Callable[..., Scalar]] = {
    math.LT: operator.lt,
    math.LE: operator.le,
    math.EQ: operator.eq,
    math.NE: operator.ne,
}


# --- floats --------------------------------------------------------------------------------------


def _then_round(
    function: Callable[..., float], round_: Callable[[float], float]
) -> Callable[..., float]:
    return lambda *operands: round_(function(*operands))


#: Floats that these give need no rounding: they are operands or their bits.
_UNROUNDED: dict[OpDef, Callable[..., float]] = {
    math.MAXIMUM: floats.greater,
    math.MINIMUM: floats.lesser,
    math.MAXIMUM_NUMBER: lambda x, y: x if y != y else y if x != x else floats.greater(x, y),
    math.MINIMUM_NUMBER: lambda x, y: x if y != y else y if x != x else floats.lesser(x, y),
    math.NEG: operator.neg,
    math.ABS: abs,
    math.COPYSIGN: pymath.copysign,
}
_ROUNDED: dict[OpDef, Callable[..., float]] = {
    math.ADD: operator.add,
    math.SUB: operator.sub,
    math.MUL: operator.mul,
    math.FDIV: floats.divide,
    math.FMOD: floats.remainder,
    math.SCALE_POWER: floats.scale_power,
    math.POW: floats.power,
    math.ATAN2: pymath.atan2,
}


def _float_function(op: OpDef, dtype: DType) -> Callable[..., Scalar] | None:
    if op in _UNROUNDED:
        return _UNROUNDED[op]
    if op is math.MULACC:
        return floats.fused_multiply_add(dtype)
    function = _ROUNDED.get(op) or floats.UNARY.get(op.name)
    if function is None or dtype is float64:
        return function
    return _then_round(function, floats.rounder(dtype))


# --- integers ------------------------------------------------------------------------------------


def floor_divide(x: int, y: int) -> int:
    """The quotient rounded towards minus infinity; 0 for a division by zero."""
    return x // y if y else 0


def floor_modulo(x: int, y: int) -> int:
    """x - floor_divide(x, y) * y; 0 for a division by zero."""
    return x % y if y else 0


def _truncated_divide(x: int, y: int) -> int:
    if y == 0:
        raise InternalError("cdiv: division by zero, which its precondition rules out", got=x)
    quotient = abs(x) // abs(y)
    return quotient if (x < 0) == (y < 0) else -quotient


def _truncated_modulo(x: int, y: int) -> int:
    return x - _truncated_divide(x, y) * y


def _multiply_add(x: int, y: int, z: int) -> int:
    return x * y + z


def parts_of_word(x: int, bits: int, *, signed: bool) -> list[int]:
    """The integers of `bits` bits that a word of 32 bits holds, the lowest first."""
    half, mask = (1 << (bits - 1) if signed else 0), (1 << bits) - 1
    return [((x >> at & mask) + half & mask) - half for at in range(0, 32, bits)]


def _dot(op: OpDef, bits: int) -> Callable[..., int]:
    first, second = op not in math.UNSIGNED_FIRST, op not in math.UNSIGNED_SECOND

    def dot(x: int, y: int, z: int) -> int:
        left = parts_of_word(x, bits, signed=first)
        right = parts_of_word(y, bits, signed=second)
        return sum(a * b for a, b in zip(left, right, strict=True)) + z

    return dot


_WRAPPED: dict[OpDef, Callable[..., int]] = {
    math.ADD: operator.add,
    math.SUB: operator.sub,
    math.MUL: operator.mul,
    math.NEG: operator.neg,
    math.ABS: abs,
    math.MULACC: _multiply_add,
    **{op: _dot(op, 16 if op is math.DOT_PAIRS else 8) for op in math.INTEGER_DOTS},
    math.IDIV: floor_divide,
    math.MOD: floor_modulo,
    math.CDIV: _truncated_divide,
    math.CMOD: _truncated_modulo,
}
_NOT_WRAPPED: dict[OpDef, Callable[..., int]] = {
    math.MAXIMUM: max,
    math.MINIMUM: min,
    math.AND: operator.and_,
    math.OR: operator.or_,
    math.XOR: operator.xor,
}


def wrapper(dtype: DType) -> Callable[[int], int]:
    """The function that takes an integer modulo 2**width into the range of `dtype`."""
    mask = (1 << dtype.bits) - 1
    if dtype.kind is not Kind.SIGNED:
        return lambda value: value & mask
    half = 1 << (dtype.bits - 1)
    return lambda value: ((value + half) & mask) - half


def _integer_function(op: OpDef, dtype: DType) -> Callable[..., Scalar] | None:
    if op in _NOT_WRAPPED:
        return _NOT_WRAPPED[op]
    wrap, bits = wrapper(dtype), dtype.bits
    if op is math.SHL:
        return lambda x, y: wrap(x << y) if 0 <= y < bits else 0
    if op is math.SHR:
        return lambda x, y: x >> y if 0 <= y < bits else (-1 if x < 0 else 0)
    function = _WRAPPED.get(op)
    if function is None:
        return None
    return lambda *operands: wrap(function(*operands))


# --- bool ----------------------------------------------------------------------------------------

#: Sums of bools are OR and products AND, as in reductions.
_BOOLEAN: dict[OpDef, Callable[..., Scalar]] = {
    math.ADD: operator.or_,
    math.MUL: operator.and_,
    math.MULACC: lambda x, y, z: (x and y) or z,
    math.SUB: operator.xor,
    math.MAXIMUM: operator.or_,
    math.MINIMUM: operator.and_,
    math.AND: operator.and_,
    math.OR: operator.or_,
    math.XOR: operator.xor,
    math.NEG: bool,
    math.ABS: bool,
    math.IDIV: operator.and_,
    math.MOD: lambda x, y: False,
    math.SHL: lambda x, y: x and not y,
    math.SHR: lambda x, y: x and not y,
}


# --- conversions ---------------------------------------------------------------------------------


@cache
def cast_function(source: DType, target: DType) -> Callable[[Any], Scalar]:
    """The conversion of a scalar by value."""
    if target.is_bool:
        return bool
    if target.is_float:
        round_ = floats.rounder(target)
        if source.is_float:
            return round_
        if target is float64:
            return lambda value: float(int(value))
        return lambda value: round_integer(int(value), round_)
    if source.is_float:
        minimum, maximum = target.minimum, target.maximum
        return lambda value: truncate(value, minimum, maximum)
    wrap = wrapper(target)
    return lambda value: wrap(int(value))


def bitcast_scalars(values: list[Any], source: DType, target: DType) -> list[Scalar]:
    """Consecutive scalars read as consecutive scalars of another dtype, least byte first."""
    if source.bits == target.bits:
        return [scalar_from_bits(bits_of_scalar(value, source), target) for value in values]
    size, step = source.itemsize, target.itemsize
    raw = b"".join([bits_of_scalar(value, source).to_bytes(size, "little") for value in values])
    return [
        scalar_from_bits(int.from_bytes(raw[at : at + step], "little"), target)
        for at in range(0, len(raw), step)
    ]
