"""Floats that a target stores but does not compute with: arithmetic in float32, one rounding each.

A sum, difference, product, quotient or square root of two numbers with p significant bits that is
rounded to at least 2p + 2 bits and then to p gives the correctly rounded result (Figueroa, "When
is double rounding innocuous?", 1995); float32 has 24 bits, float16 11, bfloat16 8, fp8 3 or 4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.codegen.decompose.builder import Value
from tilework.codegen.decompose.multiply_add import odd_sum
from tilework.codegen.decompose.node_builder import NodeBuilder
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
    """The exact float32 value of a value of a narrower float."""
    dtype = node.dtype
    if dtype is bfloat16:
        raw = cast(bitcast(node, uint16), uint32)
        return bitcast(math.SHL(raw, _unsigned(16, raw)), float32)
    return _narrow_to_float32(node, dtype)


def from_float32(node: Node, dtype: DType) -> Node:
    """A float32 value rounded to a narrower float, to nearest even."""
    if dtype is bfloat16:
        return _to_bfloat16(node)
    return _float32_to_narrow(node, dtype)


def copysign_bits(node: Node) -> Node:
    """COPYSIGN of a narrow float by its bits: a conversion may lose the sign of a NaN."""
    x, y = node.src
    raw = uint8 if node.dtype.bits == 8 else uint16
    sign = 1 << (node.dtype.bits - 1)
    magnitude = math.AND(bitcast(x, raw), const_bits(sign - 1, raw, node.shape))
    signed = math.AND(bitcast(y, raw), const_bits(sign, raw, node.shape))
    return bitcast(math.OR(magnitude, signed), node.dtype)


def _to_bfloat16(node: Node) -> Node:
    raw = bitcast(node, uint32)
    odd = math.AND(math.SHR(raw, _unsigned(16, raw)), _unsigned(1, raw))
    rounded = math.ADD(math.ADD(raw, _unsigned(0x7FFF, raw)), odd)
    # Adding to a NaN could carry it away: it is made quiet instead.
    quiet = math.OR(raw, _unsigned(0x400000, raw))
    chosen = math.WHERE(math.NE(node, node), quiet, rounded)
    high = math.SHR(chosen, _unsigned(16, chosen))
    return bitcast(cast(high, uint16), bfloat16)


def _raw_dtype(dtype: DType) -> DType:
    return uint8 if dtype.bits == 8 else uint16


def _infinity(dtype: DType) -> int:
    """The bits of infinity, or where there is none of NaN: the first that is no number."""
    if dtype.finite_only:
        return nan_bits(dtype)
    return ((1 << dtype.exponent_bits) - 1) << dtype.mantissa_bits


def _narrow_to_float32(node: Node, dtype: DType) -> Node:
    """Shift exponent and fraction into place and rescale by a power of two, which is exact."""
    raw = cast(bitcast(node, _raw_dtype(dtype)), uint32)
    top_bit = 1 << (dtype.bits - 1)
    magnitude = math.AND(raw, _unsigned(top_bit - 1, raw))
    sign = math.SHL(math.AND(raw, _unsigned(top_bit, raw)), _unsigned(32 - dtype.bits, raw))
    placed = bitcast(math.SHL(magnitude, _unsigned(23 - dtype.mantissa_bits, raw)), float32)
    bias = (1 << (dtype.exponent_bits - 1)) - 1
    scaled = math.MUL(placed, const_like(2.0 ** (127 - bias), placed))
    value = math.OR(bitcast(scaled, uint32), sign)
    top = _infinity(dtype)
    is_special = math.LE(_unsigned(top, magnitude), magnitude)
    if dtype.finite_only:
        special = math.OR(sign, _unsigned(0x7FC00000, sign))
    else:
        kept = math.AND(magnitude, _unsigned((1 << dtype.mantissa_bits) - 1, magnitude))
        fraction = math.SHL(kept, _unsigned(23 - dtype.mantissa_bits, magnitude))
        special = math.OR(math.OR(sign, _unsigned(0x7F800000, sign)), fraction)
    return bitcast(math.WHERE(is_special, special, value), float32)


def _float32_to_narrow(node: Node, dtype: DType) -> Node:
    """Round in integer arithmetic; subnormal results through a magic addition."""
    mantissa = dtype.mantissa_bits
    bias = (1 << (dtype.exponent_bits - 1)) - 1
    raw = bitcast(node, uint32)
    sign_bit = math.AND(raw, _unsigned(0x80000000, raw))
    sign = math.SHR(sign_bit, _unsigned(32 - dtype.bits, raw))
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
    overflow = _infinity(dtype)
    largest = overflow - 1
    result = math.WHERE(
        math.LT(_unsigned(largest, result), result), _unsigned(overflow, result), result
    )
    infinite = math.LE(_unsigned(0x7F800000, raw), magnitude)
    result = math.WHERE(infinite, _unsigned(overflow, result), result)
    is_nan = math.LT(_unsigned(0x7F800000, raw), magnitude)
    result = math.WHERE(is_nan, _unsigned(nan_bits(dtype), result), result)
    return bitcast(cast(math.OR(result, sign), _raw_dtype(dtype)), dtype)


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


def multiply_add_to_odd(node: Node) -> Node:
    """MULACC of a narrow float in float64, rounded to odd: products are exact there."""
    builder = NodeBuilder(node.shape, has_fma=False)
    x, y, z = (Value(builder, cast(source, float64), "float64") for source in node.src)
    result: Node = odd_sum(x * y, z).raw
    return result


def dot_of_bfloat16(node: Node) -> Node:
    """Products of the bfloat16 in two words, added one after the other by FMA."""
    x, y, total = node.src
    for place in (0, 1):
        factors = [bitcast(_half_of_word(word, place), float32) for word in (x, y)]
        total = math.MULACC(*factors, total)
    return total


def _half_of_word(word: Node, place: int) -> Node:
    """The bits of the float32 that a bfloat16 of a word is."""
    if place:
        return math.AND(word, _unsigned(0xFFFF_0000, word))
    return math.SHL(word, const_like(16, word))


def to_53_bits(x: Node) -> Node:
    """A 64-bit integer that float64 holds, on the same side of every narrower float.

    From 2**53 on in magnitude the low 12 bits, if any is set, become the middle of their range.
    """
    if x.dtype.bits < 64:
        return x
    low = math.AND(x, const_like(0xFFF, x))
    middle = math.OR(math.SUB(x, low), const_like(0x800, x))
    is_large = math.LT(const_like(1 << 53, x), x)
    if x.dtype.is_signed:
        is_large = math.OR(is_large, math.LT(x, const_like(-(1 << 53), x)))
    lossy = math.AND(is_large, math.NE(low, const_like(0, x)))
    return math.WHERE(lossy, middle, x)
