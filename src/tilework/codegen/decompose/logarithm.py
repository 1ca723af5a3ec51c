"""log2, log, log10 and log1p of float32 and float64.

A positive x is written as `2**e * (1 + f)` with 1 + f in [sqrt(1/2), sqrt(2)), where `f` is
exact; then log(1 + f) = f + f**2 * q(f), so that the result keeps its relative accuracy near 1.
"""

from __future__ import annotations

import math

from tilework.codegen.decompose.builder import Raw, Value, fma, polynomial, where
from tilework.codegen.decompose.formats import format_of


def split(x: Value[Raw]) -> tuple[Value[Raw], Value[Raw]]:
    """Return `e` and `f` with `x = 2**e * (1 + f)`, for positive finite `x`.

    For any other x they are numbers without a meaning, which `with_specials` and its kin replace:
    bits are taken apart as integers, so nothing is out of range. `e` is at most the bias and the
    mantissa's bits in magnitude, f in [-0.3, 0.42) where x is positive and finite.
    """
    form = format_of(x)
    small = x.less(form.smallest_normal)
    scaled = where(small, x * 2.0**form.mantissa_bits, x)
    bits = scaled.bits(form.integer)
    above = bits - form.root_half_bits
    exponent = (above >> form.mantissa_bits).cast(x.dtype)
    mantissa = (bits - (above & form.exponent_mask)).bits(x.dtype)
    return exponent + where(small, x.const(-form.mantissa_bits), 0.0), mantissa - 1.0


def with_specials(x: Value[Raw], result: Value[Raw]) -> Value[Raw]:
    """Return `result`, or a logarithm's value at zeros, negatives, infinity and NaN."""
    result = where(x.less(math.inf), result, x)
    not_positive = where(x.less(0.0), x.const(math.nan), x)
    return where(x.greater(0.0), result, where(x.equal(0.0), -math.inf, not_positive))


def log2(x: Value[Raw]) -> Value[Raw]:
    """Return the logarithm to base 2, exact for powers of two."""
    tables = format_of(x).tables
    high, low = tables["LOG2_E"]
    e, f = split(x)
    slope = polynomial(f, tables["LOG2"])
    square = f * f
    if x.dtype == "float64":
        # What the square lost is seen in the last place, where float32 has bits to spare.
        tail = fma(square, slope, fma(fma(f, f, -square), slope, f * low))
    else:
        tail = fma(f, low, square * slope)
    return with_specials(x, e + fma(f, high, tail))


def log(x: Value[Raw]) -> Value[Raw]:
    """Return the natural logarithm."""
    tables = format_of(x).tables
    high, low = tables["LN2"]
    e, f = split(x)
    tail = fma(e, low, f * f * polynomial(f, tables["LOG"]))
    return with_specials(x, fma(e, high, f + tail))


def log10(x: Value[Raw]) -> Value[Raw]:
    """Return the logarithm to base 10."""
    tables = format_of(x).tables
    high, low = tables["LOG10_E"]
    exponent_high, exponent_low = tables["LOG10_2"]
    e, f = split(x)
    tail = fma(f, low, f * f * polynomial(f, tables["LOG10"]))
    tail = fma(e, exponent_low, tail)
    return with_specials(x, fma(e, exponent_high, fma(f, high, tail)))


def log1p(x: Value[Raw]) -> Value[Raw]:
    """Return log(1 + x), with full relative accuracy near 0."""
    form = format_of(x)
    high, low = form.tables["LN2"]
    sum_ = x + 1.0
    # What the rounding of 1 + x lost, whichever of the two is larger.
    lost = where(x.less(1.0), x - (sum_ - 1.0), 1.0 - (sum_ - x))
    bits = sum_.bits(form.integer)
    above = (bits - form.root_half_bits) & form.exponent_mask
    e = (above >> form.mantissa_bits).cast(x.dtype)
    mantissa = (bits - above).bits(x.dtype)
    # 4 * 2**-e, since 2**-e may be subnormal.
    inverse = (x.const(4.0).bits(form.integer) - above).bits(x.dtype)
    f = where(above.equal(0), x, fma(lost * 0.25, inverse, mantissa - 1.0))
    tail = fma(e, low, f * f * polynomial(f, form.tables["LOG"]))
    result = fma(e, high, f + tail)
    result = where(x.less(math.inf), result, x)
    result = where(sum_.greater(0.0), result, where(sum_.less(0.0), x.const(math.nan), x))
    result = where(x.equal(-1.0), -math.inf, result)
    return where(x.equal(0.0), x, result)
