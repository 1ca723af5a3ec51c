"""exp2, exp, expm1 and sigmoid of float32 and float64.

All reduce to `2**n * p` with an integer `n` and `p` near 1. Adding the constant 1.5 * 2**23 (2**52
for float64) makes a float round to an integer, which then stands in the low bits of the sum; adding
twice the exponent's bias as well puts both halves of the exponent within reach of one shift each.
Two scalings by half the exponent overflow and underflow as one correctly rounded product would,
since the first is exact.
"""

from __future__ import annotations

from tilework.codegen.decompose.builder import Raw, Value, fma, needs, polynomial, where
from tilework.codegen.decompose.formats import clamp, format_of


def scale_by_power(p: Value[Raw], shifted: Value[Raw], offset: int = 0) -> Value[Raw]:
    """Return `p * 2**(n + offset)`.

    Args:
        p: in [1/2, 2], or the second word of such a number.
        shifted: `n + magic + 2 * bias`, for an integer n of at most 2 * bias in magnitude, or NaN.
        offset: added to n.
    """
    form = format_of(p)
    n_limit = 2.0 * form.bias
    needs(shifted, form.magic, form.magic + 2 * n_limit, "scale_by_power")
    if p.builder.has_scale:
        n = shifted - (form.magic + 2 * form.bias)
        return p.scale(n + float(offset) if offset else n)
    both = shifted.bits(form.integer)
    if offset:
        both = both + offset
    first = both >> 1
    second = both - first
    half = (first << form.mantissa_bits).bits(p.dtype)
    rest = (second << form.mantissa_bits).bits(p.dtype)
    return p * half * rest


def reduce_exp(x: Value[Raw], excess: int) -> tuple[Value[Raw], Value[Raw] | None, Value[Raw]]:
    """Return two words of `r`, and `n + magic + excess`, with `x = n * ln(2) + r`, |r| <= ln(2)/2.

    The second word is left out for float32, whose bounds hold without it.

    Args:
        x: at most four times the exponent's bias in magnitude, or NaN.
        excess: what the integer in the low bits of the last result is larger than n.
    """
    form = format_of(x)
    needs(x, -4.0 * form.bias, 4.0 * form.bias, "reduce_exp")
    ln2_high, ln2_low = form.tables["LN2"]
    magic = form.magic + excess
    shifted = fma(x, form.tables["LOG2_E"][0], magic)
    n = shifted - magic
    near = fma(n, -ln2_high, x)  # exact: the first word of ln(2) is short
    if x.dtype == "float32":
        return fma(n, -ln2_low, near), None, shifted
    product = n * ln2_low
    r = near - product
    return r, (near - r) - product, shifted


def power_near_one(
    r: Value[Raw], table: tuple[float, ...], low: Value[Raw] | None = None
) -> Value[Raw]:
    """Return `1 + (r + low) * p(r)` so that its rounded value never falls as r grows.

    The term that carries the slope is added last but one: what is added to it is so small that its
    rounding error stays below the change from one `r` to the next.
    """
    tail = polynomial(r, table[1:])
    tail = (r * r) * tail if low is None else fma(r * r, tail, low)
    return fma(r, table[0], tail) + 1.0


def exp2(x: Value[Raw]) -> Value[Raw]:
    """Return 2**x: exact for integers, 0 and infinite exactly where the true power rounds so."""
    form = format_of(x)
    x = clamp(x, float(-form.bias - form.mantissa_bits - 1), form.bias + 1.0)
    magic = form.magic + 2 * form.bias
    shifted = x + magic
    r = x - (shifted - magic)
    return scale_by_power(power_near_one(r, form.tables["EXP2"]), shifted)


def exp(x: Value[Raw], offset: int = 0) -> Value[Raw]:
    """Return e**x * 2**offset, without overflow before the offset is applied."""
    form = format_of(x)
    least, most = form.exp_limits
    # A result that underflows takes processors as long as a hundred others, so where it is 0 (a
    # masked score is -inf) it is not come by in that way.
    is_zero = x.less(least)
    limited = where(x.greater(most), most, x)
    if not x.builder.has_scale:
        # With it one operation gives the result, and is left out in lanes that are 0 in the end.
        limited = where(is_zero, 0.0, limited)
    r, low, shifted = reduce_exp(limited, 2 * form.bias)
    return where(is_zero, 0.0, scale_by_power(_power(r, low), shifted, offset))


def _power(r: Value[Raw], low: Value[Raw] | None) -> Value[Raw]:
    """Return e**(r + low) for the reduced words of an argument."""
    table = format_of(r).tables["EXP"]
    if low is None:
        # Two operations fewer than the form that never falls.
        return fma(r, polynomial(r, table), 1.0)
    return power_near_one(r, table, low)


def expm1(x: Value[Raw]) -> Value[Raw]:
    """Return e**x - 1, with full relative accuracy near 0."""
    form = format_of(x)
    # e**x - 1 = 2 * (s * expm1(r) + (s - 1/2)) with s = 2**(n-1), finite for the largest n.
    r, low, shifted = reduce_exp(clamp(x, *form.expm1_limits), form.bias - 1)
    tail = polynomial(r, form.tables["EXPM1"])
    power = fma(r * r, tail, r) if low is None else r + fma(r * r, tail, low)
    scale = (shifted.bits(form.integer) << form.mantissa_bits).bits(x.dtype)
    result = fma(scale, power, scale - 0.5) * 2.0
    # Zeros keep their sign, and halves of subnormal numbers are inexact.
    return where(x.abs().less(2.0 ** -(form.mantissa_bits + 2)), x, result)


def sigmoid(x: Value[Raw]) -> Value[Raw]:
    """Return 1 / (1 + e**-x), without overflow on either side."""
    power = exp(-x.abs())
    return where(x.less(0.0), power, 1.0) / (power + 1.0)


def reciprocal(x: Value[Raw]) -> Value[Raw]:
    """Return 1 / x, correctly rounded."""
    return 1.0 / x
