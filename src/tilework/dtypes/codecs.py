"""Bits of one element <-> Python value, for every dtype, by the standard library alone.

Encoding rounds once, to nearest with ties to even, from the exact Python value; overflow goes to
infinity (to NaN in formats without one, as ml_dtypes does for e4m3), NaN stays NaN.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from tilework.dtypes.table import Kind, float32, float64

if TYPE_CHECKING:
    from tilework.dtypes.table import DType

_F32 = struct.Struct("<f")
_U32 = struct.Struct("<I")
_F64 = struct.Struct("<d")
_U64 = struct.Struct("<Q")


def encode(value: float | int | bool, dtype: DType) -> int:
    """The bit pattern of `value` in `dtype`, as an unsigned integer of `dtype.bits` bits.

    Integers are taken modulo 2**bits; floats are rounded to nearest even.
    """
    if dtype.kind is Kind.BOOL:
        return int(bool(value))
    if dtype.kind is not Kind.FLOAT:
        return int(value) & ((1 << dtype.bits) - 1)
    if dtype is float64:
        return int(_U64.unpack(_F64.pack(float(value)))[0])
    return _encode_small_float(float(value), dtype)


def decode(bits: int, dtype: DType) -> float | int | bool:
    """The Python value of the bit pattern `bits` in `dtype`."""
    if dtype.kind is Kind.BOOL:
        return bool(bits)
    if dtype.kind is Kind.UNSIGNED:
        return bits
    if dtype.kind is Kind.SIGNED:
        return bits - (1 << dtype.bits) if bits >> (dtype.bits - 1) else bits
    if dtype is float64:
        return float(_F64.unpack(_U64.pack(bits))[0])
    if dtype is float32:
        return float(_F32.unpack(_U32.pack(bits))[0])
    return _decode_small_float(bits, dtype)


def round_to(value: float, dtype: DType) -> float:
    """`value` rounded once to the float format `dtype`."""
    return float(decode(encode(value, dtype), dtype))


def nan_bits(dtype: DType) -> int:
    """The canonical quiet NaN of the float format `dtype`."""
    exponent = ((1 << dtype.exponent_bits) - 1) << dtype.mantissa_bits
    if dtype.finite_only:
        return exponent | ((1 << dtype.mantissa_bits) - 1)
    return exponent | (1 << (dtype.mantissa_bits - 1))


def _encode_small_float(value: float, dtype: DType) -> int:
    """Round a binary64 value to a format of at most 32 bits, in integer arithmetic."""
    raw = int(_U64.unpack(_F64.pack(value))[0])
    sign = (raw >> 63) << (dtype.bits - 1)
    exponent = (raw >> 52) & 0x7FF
    fraction = raw & ((1 << 52) - 1)
    mantissa_bits = dtype.mantissa_bits
    top = (1 << dtype.exponent_bits) - 1
    infinity = nan_bits(dtype) if dtype.finite_only else top << mantissa_bits
    if exponent == 0x7FF:
        return sign | (nan_bits(dtype) if fraction else infinity)
    if exponent == 0:
        return sign  # zero, or a binary64 subnormal: below half of any smaller format's least value
    bias = (1 << (dtype.exponent_bits - 1)) - 1
    target = exponent - 1023 + bias
    significand = fraction | (1 << 52)
    shift = 52 - mantissa_bits
    if target <= 0:
        shift += 1 - target
        target = 0
        if shift > 54:
            return sign
    kept = significand >> shift
    rest = significand & ((1 << shift) - 1)
    half = 1 << (shift - 1)
    if rest > half or (rest == half and kept & 1):
        kept += 1
    # A carry out of the significand moves into the exponent by plain addition.
    magnitude = kept if target == 0 else kept + ((target - 1) << mantissa_bits)
    largest = nan_bits(dtype) - 1 if dtype.finite_only else infinity - 1
    return sign | (infinity if magnitude > largest else magnitude)


def _decode_small_float(bits: int, dtype: DType) -> float:
    mantissa_bits = dtype.mantissa_bits
    sign = -1.0 if bits >> (dtype.bits - 1) else 1.0
    exponent = (bits >> mantissa_bits) & ((1 << dtype.exponent_bits) - 1)
    fraction = bits & ((1 << mantissa_bits) - 1)
    top = (1 << dtype.exponent_bits) - 1
    bias = (1 << (dtype.exponent_bits - 1)) - 1
    if exponent == top:
        if dtype.finite_only:
            if fraction == (1 << mantissa_bits) - 1:
                return float("nan")
        else:
            return float("nan") if fraction else sign * float("inf")
    if exponent == 0:
        return sign * fraction * 2.0 ** (1 - bias - mantissa_bits)
    return sign * (1.0 + fraction / (1 << mantissa_bits)) * 2.0 ** (exponent - bias)
