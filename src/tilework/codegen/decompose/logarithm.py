"""log2, log, log10 and log1p of float32.

A positive x is written as `2**e * (1 + f)` with 1 + f in [sqrt(1/2), sqrt(2)), where `f` is
exact; then log(1 + f) = f + f**2 * q(f), so that the result keeps its relative accuracy near 1.
"""

from __future__ import annotations

import math

from tilework.codegen.decompose import coefficients
from tilework.codegen.decompose.builder import Raw, Value, fma, polynomial, where

ROOT_HALF_BITS = 0x3F3504F3
EXPONENT_MASK = -0x800000
SMALLEST_NORMAL = 2.0**-126
LN2_HIGH, LN2_LOW = coefficients.LN2_WORDS
LOG2_E_HIGH, LOG2_E_LOW = coefficients.LOG2_E_WORDS
LOG10_E_HIGH, LOG10_E_LOW = coefficients.LOG10_E_WORDS
LOG10_2_HIGH, LOG10_2_LOW = coefficients.LOG10_2_WORDS


def split(x: Value[Raw]) -> tuple[Value[Raw], Value[Raw]]:
    """Return `e` and `f` with `x = 2**e * (1 + f)`, for positive finite `x`."""
    small = x.less(SMALLEST_NORMAL)
    scaled = where(small, x * 2.0**23, x)
    bits = scaled.bits("int32")
    above = bits - ROOT_HALF_BITS
    exponent = (above >> 23).cast("float32")
    mantissa = (bits - (above & EXPONENT_MASK)).bits("float32")
    return exponent + where(small, x.const(-23.0), 0.0), mantissa - 1.0


def with_specials(x: Value[Raw], result: Value[Raw]) -> Value[Raw]:
    """Return `result`, or a logarithm's value at zeros, negatives, infinity and NaN."""
    result = where(x.less(math.inf), result, x)
    return where(x.greater(0.0), result, where(x.equal(0.0), x.const(-math.inf), _not_positive(x)))


def _not_positive(x: Value[Raw]) -> Value[Raw]:
    """Return NaN, keeping the NaN that `x` may be."""
    return where(x.less(0.0), x.const(math.nan), x)


def log2(x: Value[Raw]) -> Value[Raw]:
    """Return the logarithm to base 2, exact for powers of two."""
    e, f = split(x)
    tail = fma(f, LOG2_E_LOW, f * f * polynomial(f, coefficients.LOG2))
    return with_specials(x, e + fma(f, LOG2_E_HIGH, tail))


def log(x: Value[Raw]) -> Value[Raw]:
    """Return the natural logarithm."""
    e, f = split(x)
    tail = fma(e, LN2_LOW, f * f * polynomial(f, coefficients.LOG))
    return with_specials(x, fma(e, LN2_HIGH, f + tail))


def log10(x: Value[Raw]) -> Value[Raw]:
    """Return the logarithm to base 10."""
    e, f = split(x)
    tail = fma(f, LOG10_E_LOW, f * f * polynomial(f, coefficients.LOG10))
    low = fma(e, LOG10_2_LOW, tail)
    return with_specials(x, fma(e, LOG10_2_HIGH, fma(f, LOG10_E_HIGH, low)))


def log1p(x: Value[Raw]) -> Value[Raw]:
    """Return log(1 + x), with full relative accuracy near 0."""
    sum_ = x + 1.0
    # What the rounding of 1 + x lost, whichever of the two is larger.
    lost = where(x.less(1.0), x - (sum_ - 1.0), 1.0 - (sum_ - x))
    bits = sum_.bits("int32")
    above = (bits - ROOT_HALF_BITS) & EXPONENT_MASK
    e = (above >> 23).cast("float32")
    mantissa = (bits - above).bits("float32")
    # 4 * 2**-e, since 2**-128 would be subnormal.
    inverse = (x.const(4.0).bits("int32") - above).bits("float32")
    f = where(above.equal(0), x, fma(lost * 0.25, inverse, mantissa - 1.0))
    tail = fma(e, LN2_LOW, f * f * polynomial(f, coefficients.LOG))
    result = fma(e, LN2_HIGH, f + tail)
    result = where(x.less(math.inf), result, x)
    result = where(sum_.greater(0.0), result, where(sum_.less(0.0), x.const(math.nan), x))
    result = where(x.equal(-1.0), -math.inf, result)
    return where(x.equal(0.0), x, result)
