"""Floats that a target stores but does not compute with: arithmetic in float32, one rounding each.

A sum, difference, product, quotient or square root of two numbers with p significant bits that is
rounded to at least 2p + 2 bits and then to p gives the correctly rounded result (Figueroa, "When
is double rounding innocuous?", 1995); float32 has 24 bits, float16 11, bfloat16 8, fp8 3 or 4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.dtypes import (
    DType,
    bfloat16,
    float16,
    float32,
    float64,
    int32,
    nan_bits,
    uint8,
    uint16,
    uint32,
)
from tilework.ir.build import bitcast, cast, const_bits, const_like
from tilework.ir.ops import math

if TYPE_CHECKING:
    from tilework.ir.node import Node


def _unsigned(value: int, node: Node) -> Node:
    return const_bits(value, node.dtype, node.shape)


def to_float32(node: Node) -> Node:
    """The exact float32 value of a bfloat16 or fp8 value."""
    dtype = node.dtype
    if dtype is bfloat16:
        raw = cast(bitcast(node, uint16), uint32)
        return bitcast(math.SHL(raw, _unsigned(16, raw)), float32)
    return _fp8_to_float32(node, dtype)


def from_float32(node: Node, dtype: DType) -> Node:
    """A float32 value rounded to bfloat16 or fp8, to nearest even."""
    if dtype is bfloat16:
        return _to_bfloat16(node)
    return _float32_to_fp8(node, dtype)


def _to_bfloat16(node: Node) -> Node:
    raw = bitcast(node, uint32)
    odd = math.AND(math.SHR(raw, _unsigned(16, raw)), _unsigned(1, raw))
    rounded = math.ADD(math.ADD(raw, _unsigned(0x7FFF, raw)), odd)
    # Adding to a NaN could carry it away: it is made quiet instead.
    quiet = math.OR(raw, _unsigned(0x400000, raw))
    chosen = math.WHERE(math.NE(node, node), quiet, rounded)
    high = math.SHR(chosen, _unsigned(16, chosen))
    return bitcast(cast(high, uint16), bfloat16)


def _fp8_to_float32(node: Node, dtype: DType) -> Node:
    """Shift exponent and fraction into place and rescale by a power of two, which is exact."""
    raw = cast(bitcast(node, uint8), uint32)
    magnitude = math.AND(raw, _unsigned(0x7F, raw))
    sign = math.SHL(math.AND(raw, _unsigned(0x80, raw)), _unsigned(24, raw))
    placed = bitcast(math.SHL(magnitude, _unsigned(23 - dtype.mantissa_bits, raw)), float32)
    bias = (1 << (dtype.exponent_bits - 1)) - 1
    scaled = math.MUL(placed, const_like(2.0 ** (127 - bias), placed))
    value = math.OR(bitcast(scaled, uint32), sign)
    top = nan_bits(dtype) if dtype.finite_only else 0x7C
    is_special = math.LE(_unsigned(top, magnitude), magnitude)
    if dtype.finite_only:
        special = math.OR(sign, _unsigned(0x7FC00000, sign))
    else:
        fraction = math.SHL(
            math.AND(magnitude, _unsigned(0x3, magnitude)), _unsigned(21, magnitude)
        )
        special = math.OR(math.OR(sign, _unsigned(0x7F800000, sign)), fraction)
    return bitcast(math.WHERE(is_special, special, value), float32)


def _float32_to_fp8(node: Node, dtype: DType) -> Node:
    """Round in integer arithmetic; subnormal results through a magic addition."""
    mantissa = dtype.mantissa_bits
    bias = (1 << (dtype.exponent_bits - 1)) - 1
    raw = bitcast(node, uint32)
    sign = math.SHR(math.AND(raw, _unsigned(0x80000000, raw)), _unsigned(24, raw))
    magnitude = math.AND(raw, _unsigned(0x7FFFFFFF, raw))
    shift = 23 - mantissa
    odd = math.AND(math.SHR(magnitude, _unsigned(shift, raw)), _unsigned(1, raw))
    rebias = ((bias - 127) << 23) & 0xFFFFFFFF
    half = (1 << (shift - 1)) - 1
    normal = math.ADD(math.ADD(magnitude, _unsigned((rebias + half) & 0xFFFFFFFF, raw)), odd)
    normal = math.SHR(normal, _unsigned(shift, raw))
    # Below the least normal number: adding 2**k aligns the last place with a subnormal's.
    least = 127 + 1 - bias
    magic = const_bits((least + shift) << 23, float32, node.shape)
    aligned = bitcast(math.ADD(bitcast(magnitude, float32), magic), uint32)
    subnormal = math.SUB(aligned, bitcast(magic, uint32))
    is_small = math.LT(magnitude, _unsigned(least << 23, raw))
    result = math.WHERE(is_small, subnormal, normal)
    largest = nan_bits(dtype) - 1 if dtype.finite_only else 0x7B
    overflow = nan_bits(dtype) if dtype.finite_only else 0x7C
    result = math.WHERE(
        math.LT(_unsigned(largest, result), result), _unsigned(overflow, result), result
    )
    infinite = math.LE(_unsigned(0x7F800000, raw), magnitude)
    result = math.WHERE(infinite, _unsigned(overflow, result), result)
    is_nan = math.LT(_unsigned(0x7F800000, raw), magnitude)
    result = math.WHERE(is_nan, _unsigned(nan_bits(dtype), result), result)
    return bitcast(cast(math.OR(result, sign), uint8), dtype)


def float64_to_small(node: Node, dtype: DType) -> Node:
    """A float64 rounded once to a float of at most 16 bits, through float32 rounded to odd.

    A result of rounding to odd keeps in its last bit whether anything was lost, so the second
    rounding sees the truth (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums",
    2008).
    """
    near = cast(node, float32)
    back = cast(near, float64)
    raw = bitcast(near, int32)
    inexact = math.AND(math.NE(back, node), math.EQ(node, node))
    even = math.EQ(math.AND(raw, const_like(1, raw)), const_like(0, raw))
    is_larger = math.LT(math.ABS(node), math.ABS(back))
    step = math.WHERE(is_larger, const_like(-1, raw), const_like(1, raw))
    finite = math.LT(math.ABS(near), const_like(float("inf"), near))
    odd = math.WHERE(math.AND(math.AND(inexact, even), finite), math.ADD(raw, step), raw)
    rounded = bitcast(odd, float32)
    return cast(rounded, float16) if dtype is float16 else from_float32(rounded, dtype)
