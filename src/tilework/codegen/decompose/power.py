"""pow of float32, through a logarithm and an exponential in float64.

The product `y * log2|x|` reaches 150, so that its float32 result needs the logarithm to 33 bits;
float64 gives that without double words. Signs, zeros, infinities and NaN follow IEEE 754 and
Annex F of the C standard.
"""

from __future__ import annotations

import math

from tilework.codegen.decompose import coefficients
from tilework.codegen.decompose.builder import Raw, Value, fma, polynomial, where
from tilework.codegen.decompose.formats import clamp
from tilework.codegen.decompose.logarithm import split

MAGIC_FLOAT64 = 1.5 * 2.0**52


def wide_log2(magnitude: Value[Raw]) -> Value[Raw]:
    """Return log2 of a non-negative float32 as float64, with at least 35 right bits."""
    exponent, fraction = split(magnitude)
    f = fraction.cast("float64")
    result = fma(f, polynomial(f, coefficients.FLOAT64["LOG2_WIDE"]), exponent.cast("float64"))
    finite = where(magnitude.less(math.inf), result, magnitude.cast("float64"))
    return where(magnitude.equal(0.0), -math.inf, finite)


def wide_exp2(t: Value[Raw]) -> Value[Raw]:
    """Return 2**t for a float64 `t`, rounded to float32."""
    t = clamp(t, -160.0, 160.0)
    shifted = t + MAGIC_FLOAT64
    power = polynomial(t - (shifted - MAGIC_FLOAT64), coefficients.FLOAT64["EXP2_WIDE"])
    return (power.bits("int64") + (shifted.bits("int64") << 52)).bits("float64").cast("float32")


def _is_whole(x: Value[Raw]) -> Value[Raw]:
    """Return whether a float32 in [0, 2**23) is an integer."""
    return ((x + 2.0**23) - 2.0**23).equal(x)


def pow(x: Value[Raw], y: Value[Raw]) -> Value[Raw]:
    """Return x**y."""
    magnitude = x.abs()
    # From 2**23 on each float32 is an integer, from 2**24 on an even one.
    steepness = y.abs()
    # A large finite exponent acts as an infinite one, but makes no NaN with log2(1) = 0.
    bounded = clamp(y, -(2.0**127), 2.0**127).cast("float64")
    result = wide_exp2(bounded * wide_log2(magnitude))
    is_whole = _is_whole(where(steepness.less(2.0**23), steepness, 0.0))
    is_even = _is_whole(where(steepness.less(2.0**24), steepness, 0.0) * 0.5)
    sign = where(is_even, 0, x.bits("int32") & -0x80000000)
    signed = (result.bits("int32") ^ sign).bits("float32")
    is_real = where(is_whole, signed, where(x.equal(-math.inf), result, x.const(math.nan)))
    result = where(x.less(0.0), is_real, where(is_whole, signed, result))
    result = where(y.equal(0.0), 1.0, result)
    return where(x.equal(1.0), 1.0, result)
