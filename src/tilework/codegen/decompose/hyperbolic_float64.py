"""expm1, sinh and cosh of float64, within one unit in the last place."""

from __future__ import annotations

import math

from tilework.codegen.decompose.builder import Raw, Value, fma, polynomial, where
from tilework.codegen.decompose.exponential import reduce_exp, scale_by_power
from tilework.codegen.decompose.formats import clamp, format_of, with_sign_of
from tilework.codegen.decompose.words import Words, exact_sum, ordered_sum


def _rise(x: Value[Raw], excess: int) -> tuple[Words[Raw], Value[Raw]]:
    """Return two words of e**r - 1 for the reduced argument r, and the integer of `reduce_exp`."""
    r, low, shifted = reduce_exp(x, excess)
    tail = r * r * polynomial(r, format_of(x).tables["EXPM1"])
    if low is not None:
        tail = tail + fma(low, r, low)
    return ordered_sum(r, tail), shifted


def expm1(x: Value[Raw]) -> Value[Raw]:
    """Return e**x - 1, with full relative accuracy near 0."""
    form = format_of(x)
    # e**x - 1 = 2 * (s * expm1(r) + (s - 1/2)) with s = 2**(n-1), finite for the largest n.
    (rise, rise_low), shifted = _rise(clamp(x, *form.expm1_limits), form.bias - 1)
    scale = (shifted.bits(form.integer) << form.mantissa_bits).bits(x.dtype)
    base, base_low = exact_sum(scale, x.const(-0.5))
    total, rest = ordered_sum(base, scale * rise)
    result = (total + (fma(scale, rise_low, base_low) + rest)) * 2.0
    # Halves of subnormal numbers are inexact.
    return where(x.abs().less(2.0**-54), x, result)


def _halves(magnitude: Value[Raw]) -> tuple[Value[Raw], Value[Raw], Value[Raw]]:
    """Return two words of e**x / 2, and e**-x / 2."""
    form = format_of(magnitude)
    most = form.exp_limits[1]
    limited = where(magnitude.greater(most), most, magnitude)
    (rise, rise_low), shifted = _rise(limited, 2 * form.bias)
    power, power_low = ordered_sum(rise.const(1.0), rise)
    half = scale_by_power(power, shifted, -1)
    return half, scale_by_power(power_low + rise_low, shifted, -1), 0.25 / half


def cosh(x: Value[Raw]) -> Value[Raw]:
    """Return the hyperbolic cosine."""
    half, half_low, other = _halves(x.abs())
    total, rest = ordered_sum(half, other)
    # What the second word changes in the other half: its slope is -4 * other**2.
    result = total + (rest + fma(other * other * -4.0, half_low, half_low))
    return where(half.less(math.inf), result, half)


def sinh(x: Value[Raw]) -> Value[Raw]:
    """Return the hyperbolic sine: an odd polynomial up to 1, exponentials above."""
    magnitude = x.abs()
    half, half_low, other = _halves(magnitude)
    total, rest = ordered_sum(half, -other)
    large = total + (rest + fma(other * other * 4.0, half_low, half_low))
    large = where(half.less(math.inf), large, half)
    z = x * x
    small = fma(magnitude * z, polynomial(z, format_of(x).tables["SINH"]), magnitude)
    return with_sign_of(x, where(magnitude.less(1.0), small, large))
