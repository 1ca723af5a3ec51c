"""Floating-point arithmetic of every format, by Python's binary64 and exact integers.

Sums, products, quotients and square roots of formats of at most 24 significand bits are computed
in binary64 and rounded once more: 53 bits are more than twice 24 plus 2, so the second rounding
never changes the result.  A fused multiply-add has no such slack and is made exact here.
"""

from __future__ import annotations

import math
import struct
from functools import cache
from typing import TYPE_CHECKING

from tilework.dtypes import (
    DType,
    decode,
    encode,
    float16,
    float32,
    float64,
    nan_bits,
)
from tilework.ir.interpret.exact import exact_fma

if TYPE_CHECKING:
    from collections.abc import Callable

INFINITY = math.inf
NAN = math.nan

_F64 = struct.Struct("<d")
_U64 = struct.Struct("<Q")
_F32 = struct.Struct("<f")
_F16 = struct.Struct("<e")


@cache
def rounder(dtype: DType) -> Callable[[float], float]:
    """The function that rounds a binary64 value once to `dtype`."""
    if dtype is float64:
        return float
    if dtype is float32:
        return _round_float32
    if dtype is float16:
        return _round_float16
    values = small_values(dtype)
    return lambda value: values[encode(value, dtype)]


def _round_float32(value: float) -> float:
    try:
        return float(_F32.unpack(_F32.pack(value))[0])
    except OverflowError:
        return math.copysign(INFINITY, value)


def _round_float16(value: float) -> float:
    try:
        return float(_F16.unpack(_F16.pack(value))[0])
    except OverflowError:
        return math.copysign(INFINITY, value)


@cache
def small_values(dtype: DType) -> tuple[float, ...]:
    """The value of each bit pattern of a float format of at most 16 bits."""
    return tuple([from_bits(bits, dtype) for bits in range(1 << dtype.bits)])


def from_bits(bits: int, dtype: DType) -> float:
    """The value of a bit pattern; of a NaN sign and payload are kept."""
    if dtype is float64:
        return float(_F64.unpack(_U64.pack(bits))[0])
    value = float(decode(bits, dtype))
    if value == value:
        return value
    sign = bits >> (dtype.bits - 1) << 63
    payload = (bits & ((1 << dtype.mantissa_bits) - 1)) << (52 - dtype.mantissa_bits)
    return float(_F64.unpack(_U64.pack(sign | 0x7FF << 52 | payload))[0])


def to_bits(value: float, dtype: DType) -> int:
    """The bit pattern of a value; of a NaN the sign and the upper payload bits are kept."""
    if value == value or dtype is float64:
        return encode(value, dtype)
    raw = int(_U64.unpack(_F64.pack(value))[0])
    sign = raw >> 63 << (dtype.bits - 1)
    if dtype.finite_only:
        return sign | nan_bits(dtype)
    payload = (raw >> (52 - dtype.mantissa_bits)) & ((1 << dtype.mantissa_bits) - 1)
    top = ((1 << dtype.exponent_bits) - 1) << dtype.mantissa_bits
    return sign | top | payload if payload else sign | nan_bits(dtype)


def divide(x: float, y: float) -> float:
    """x / y with the quotients by zero of IEEE 754."""
    if y:
        return x / y
    if x != x or x == 0:
        return x or NAN
    return math.copysign(INFINITY, x) * math.copysign(1.0, y)


def scale_power(x: float, n: float) -> float:
    """x * 2**floor(n)."""
    if not math.isfinite(n):
        return x * (2.0**n if n == n else n)
    if not math.isfinite(x):
        return x
    try:
        return math.ldexp(x, math.floor(n))
    except OverflowError:
        return math.copysign(INFINITY, x)


def greater(x: float, y: float) -> float:
    """The greater value; NaN wins, and -0.0 lies below +0.0."""
    if x != x:
        return x
    if y != y:
        return y
    if x == y:
        return y if math.copysign(1.0, x) < 0 else x
    return max(x, y)


def lesser(x: float, y: float) -> float:
    """The lesser value; NaN wins, and -0.0 lies below +0.0."""
    if x != x:
        return x
    if y != y:
        return y
    if x == y:
        return x if math.copysign(1.0, x) < 0 else y
    return min(x, y)


def remainder(x: float, y: float) -> float:
    """x - trunc(x / y) * y, exactly."""
    if x != x or y != y or math.isinf(x) or y == 0:
        return NAN
    return math.fmod(x, y)


def power(x: float, y: float) -> float:
    """x to the power of y, with the special cases of C's Annex F."""
    try:
        return math.pow(x, y)
    except ValueError:
        if x != 0:
            return NAN  # a negative number to a fraction
        return math.copysign(INFINITY, x) if _is_odd(y) else INFINITY
    except OverflowError:
        return -INFINITY if x < 0 and _is_odd(y) else INFINITY


def _is_odd(y: float) -> bool:
    return math.isfinite(y) and math.fmod(abs(y), 2.0) == 1.0


def square_root(x: float) -> float:
    """The square root; NaN below zero."""
    return math.sqrt(x) if x >= 0 else x if x != x else NAN


def fused_multiply_add(dtype: DType) -> Callable[[float, float, float], float]:
    """x * y + z, rounded once to `dtype`."""
    if dtype is float64:
        return exact_fma
    round_ = rounder(dtype)

    def fma(x: float, y: float, z: float) -> float:
        product = x * y  # exact: at most 48 significand bits, and no exponent is out of reach
        total = product + z
        if not math.isfinite(total):
            return round_(total)
        # What `total` lost (two-sum) must not turn a value beside a tie into the tie itself.
        part = total - product
        lost = (product - (total - part)) + (z - part)
        if lost == 0:
            return round_(total)
        (raw,) = _U64.unpack(_F64.pack(total))
        if raw & 1 == 0:
            total = math.nextafter(total, INFINITY if lost > 0 else -INFINITY)
        return round_(total)

    return fma


def _whole(function: Callable[[float], int]) -> Callable[[float], float]:
    def rounded(x: float) -> float:
        if not math.isfinite(x):
            return x
        return math.copysign(float(function(x)), x)

    return rounded


def _guarded(
    function: Callable[[float], float], poles: dict[float, float], is_odd: bool = False
) -> Callable[[float], float]:
    """`function` with NaN outside its domain, its poles, and infinity on overflow."""

    def guarded(x: float) -> float:
        try:
            return function(x)
        except ValueError:
            return poles.get(x, NAN)
        except OverflowError:
            return math.copysign(INFINITY, x) if is_odd else INFINITY

    return guarded


_LOG_POLE = {0.0: -INFINITY}
#: Unary functions by the name of their op, from binary64 to binary64.
UNARY: dict[str, Callable[[float], float]] = {
    "sqrt": square_root,
    "reciprocal": lambda x: divide(1.0, x),
    "exp": _guarded(math.exp, {}),
    "exp2": _guarded(math.exp2, {}),
    "expm1": _guarded(math.expm1, {}),
    "log": _guarded(math.log, _LOG_POLE),
    "log2": _guarded(math.log2, _LOG_POLE),
    "log1p": _guarded(math.log1p, {-1.0: -INFINITY}),
    "sin": _guarded(math.sin, {}),
    "cos": _guarded(math.cos, {}),
    "tan": _guarded(math.tan, {}),
    "asin": _guarded(math.asin, {}),
    "acos": _guarded(math.acos, {}),
    "atan": math.atan,
    "sinh": _guarded(math.sinh, {}, is_odd=True),
    "cosh": _guarded(math.cosh, {}),
    "tanh": math.tanh,
    "asinh": math.asinh,
    "acosh": _guarded(math.acosh, {}),
    "atanh": _guarded(math.atanh, {1.0: INFINITY, -1.0: -INFINITY}),
    "erf": math.erf,
    "floor": _whole(math.floor),
    "ceil": _whole(math.ceil),
    "trunc": _whole(math.trunc),
    "round": _whole(round),
}
