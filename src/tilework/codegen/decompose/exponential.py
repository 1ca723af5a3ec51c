"""exp2, exp, expm1 and sigmoid of float32.

All reduce to `2**n * p` with an integer `n` and `p` near 1. Adding the constant 1.5 * 2**23 makes
a float round to an integer, which then stands in the low bits of the sum; adding 254 as well puts
both halves of the exponent within reach of one shift each. Two scalings by half the exponent
overflow and underflow as one correctly rounded product would, since the first is exact.
"""

from __future__ import annotations

from tilework.codegen.decompose import coefficients
from tilework.codegen.decompose.builder import Raw, Value, fma, polynomial, where

SPLIT = 254  # twice the exponent bias
MAGIC = 1.5 * 2.0**23
LOG2_E = coefficients.LOG2_E_WORDS[0]
# The first word has 16 bits, so that its product with an exponent is exact.
LN2_HIGH, LN2_LOW = coefficients.LN2_WORDS


def clamp(x: Value[Raw], low: float, high: float) -> Value[Raw]:
    """Return `x` limited to [low, high]; a NaN stays."""
    x = where(x.greater(high), high, x)
    return where(x.less(low), low, x)


def scale_by_power(p: Value[Raw], shifted: Value[Raw], offset: int = 0) -> Value[Raw]:
    """Return `p * 2**(n + offset)`.

    Args:
        p: in [1/2, 2].
        shifted: `n + MAGIC + SPLIT`, for an integer n in [-252, 254].
        offset: added to n.
    """
    both = shifted.bits("int32")
    if offset:
        both = both + offset
    first = both >> 1
    second = both - first
    half = (first << 23).bits("float32")
    rest = (second << 23).bits("float32")
    return p * half * rest


def reduce_exp(x: Value[Raw]) -> tuple[Value[Raw], Value[Raw]]:
    """Return `r` and `n + MAGIC + SPLIT` with `x = n * ln(2) + r` and |r| <= ln(2)/2.

    Args:
        x: at most 512 in magnitude.
    """
    shifted = fma(x, LOG2_E, MAGIC + SPLIT)
    n = shifted - (MAGIC + SPLIT)
    r = fma(n, -LN2_HIGH, x)
    return fma(n, -LN2_LOW, r), shifted


def power_near_one(r: Value[Raw], coefficients_: tuple[float, ...]) -> Value[Raw]:
    """Evaluate a polynomial with constant term 1 so that its rounded value never falls as r grows.

    The term that carries the slope is added last but one: what is added to it is so small that its
    rounding error stays below the change from one `r` to the next.
    """
    tail = (r * r) * polynomial(r, coefficients_[2:])
    return fma(r, coefficients_[1], tail) + 1.0


def exp2(x: Value[Raw]) -> Value[Raw]:
    """Return 2**x: exact for integers, 0 from -150 down, infinite from 128 up."""
    x = clamp(x, -151.0, 128.0)
    shifted = x + (MAGIC + SPLIT)
    r = x - (shifted - (MAGIC + SPLIT))
    return scale_by_power(power_near_one(r, coefficients.EXP2), shifted)


def exp(x: Value[Raw], offset: int = 0) -> Value[Raw]:
    """Return e**x * 2**offset, without overflow before the offset is applied."""
    x = clamp(x, -105.0, 90.0)
    r, shifted = reduce_exp(x)
    return scale_by_power(power_near_one(r, coefficients.EXP), shifted, offset)


def expm1(x: Value[Raw]) -> Value[Raw]:
    """Return e**x - 1, with full relative accuracy near 0."""
    limited = clamp(x, -18.0, 88.75)
    r, shifted = reduce_exp(limited)
    # e**x - 1 = 2 * (s * expm1(r) + (s - 1/2)) with s = 2**(n-1), which is finite for n = 128.
    power = fma(r * r, polynomial(r, coefficients.EXPM1), r)
    scale = ((shifted.bits("int32") - (SPLIT - 126)) << 23).bits("float32")
    result = fma(scale, power, scale - 0.5) * 2.0
    return where(x.equal(0.0), x, result)


def sigmoid(x: Value[Raw]) -> Value[Raw]:
    """Return 1 / (1 + e**-x), without overflow on either side."""
    magnitude = x.abs()
    power = exp(-magnitude)
    return where(x.less(0.0), power, 1.0) / (power + 1.0)


def reciprocal(x: Value[Raw]) -> Value[Raw]:
    """Return 1 / x, correctly rounded."""
    return 1.0 / x
