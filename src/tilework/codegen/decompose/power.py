"""pow of float32 and float64, through 2**(y * log2|x|).

For float32 the product reaches 150, so that the logarithm is needed to 33 bits, which float64
gives. For float64 it reaches 1100, and the logarithm is computed in two words, to 70 bits. Signs,
zeros, infinities and NaN follow IEEE 754 and Annex F of the C standard.
"""

from __future__ import annotations

import math

from tilework.codegen.decompose import coefficients
from tilework.codegen.decompose.builder import Raw, Value, fma, needs, polynomial, where
from tilework.codegen.decompose.exponential import power_near_one, scale_by_power
from tilework.codegen.decompose.formats import clamp, format_of
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
    needs(t, -160.0, 160.0, "wide_exp2")
    shifted = t + MAGIC_FLOAT64
    power = polynomial(t - (shifted - MAGIC_FLOAT64), coefficients.FLOAT64["EXP2_WIDE"])
    return (power.bits("int64") + (shifted.bits("int64") << 52)).bits("float64").cast("float32")


def _log2_in_two_words(magnitude: Value[Raw]) -> tuple[Value[Raw], Value[Raw]]:
    """Return log2 of a positive finite float64 to about 70 bits, as 2/ln(2) * atanh(s) + e."""
    tables = coefficients.FLOAT64
    third_high, third_low = tables["THIRD"]
    scale_high, scale_low = tables["TWO_OVER_LN2"]
    e, f = split(magnitude)
    below = f + 2.0
    s = f / below
    s_low = fma(s, 2.0 - below + f, fma(s, below, -f)) / -below
    z = s * s
    z_low = fma(s, s, -z) + (s + s) * s_low
    # 1 + u = 1 + z * (1/3 + z * tail), each sum and product in two words.
    table = tables["ATANH_TAIL"]
    inner = polynomial(z, table[1:])
    tail = fma(z, inner, table[0])
    tail_low = fma(z, inner, table[0] - tail)
    rise = z * tail
    rise_low = fma(z, tail, -rise) + fma(z, tail_low, z_low * tail)
    slope = rise + third_high
    slope_low = (rise - (slope - third_high)) + (rise_low + third_low)
    u = z * slope
    u_low = fma(z, slope, -u) + fma(z, slope_low, z_low * slope)
    v = u + 1.0
    v_low = (u - (v - 1.0)) + u_low
    w = s * v
    w_low = fma(s, v, -w) + fma(s, v_low, s_low * v)
    fraction = w * scale_high
    fraction_low = fma(w, scale_high, -fraction) + fma(w, scale_low, w_low * scale_high)
    total = e + fraction
    return total, (fraction - (total - e)) + fraction_low


def _power_float64(magnitude: Value[Raw], y: Value[Raw]) -> Value[Raw]:
    """Return |x|**y for a finite `y`."""
    form = format_of(y)
    high, low = _log2_in_two_words(magnitude)
    finite = where(magnitude.less(math.inf), high, magnitude)
    high = where(magnitude.equal(0.0), -math.inf, finite)
    t = y * high
    rest = fma(y, high, -t) + y * low
    t_limited = clamp(t, -1080.0, 1080.0)
    rest = where(t.equal(t_limited), rest, 0.0)
    magic = form.magic + 2 * form.bias
    shifted = t_limited + magic
    near = t_limited - (shifted - magic)
    r = near + rest
    r_low = (rest - (r - near)) * form.tables["LN2_ROUNDED"][0]
    return scale_by_power(power_near_one(r, form.tables["EXP2"], r_low), shifted)


def _is_whole(x: Value[Raw]) -> Value[Raw]:
    """Return whether a non-negative `x` is an integer, if it is too small to be one by format."""
    threshold = 2.0 ** format_of(x).mantissa_bits
    return ((x + threshold) - threshold).equal(x)


def pow(x: Value[Raw], y: Value[Raw]) -> Value[Raw]:
    """Return x**y."""
    form = format_of(x)
    magnitude = x.abs()
    # A large finite exponent acts as an infinite one, but makes no NaN with log2(1) = 0.
    largest = 2.0 ** (form.bias - 23)
    bounded = clamp(y, -largest, largest)
    if x.dtype == "float32":
        result = wide_exp2(bounded.cast("float64") * wide_log2(magnitude))
    else:
        result = _power_float64(magnitude, bounded)
    # Each float from 2**mantissa_bits on is an integer, from twice that on an even one.
    threshold = 2.0**form.mantissa_bits
    steepness = y.abs()
    is_whole = _is_whole(where(steepness.less(threshold), steepness, 0.0))
    is_even = _is_whole(where(steepness.less(2 * threshold), steepness, 0.0) * 0.5)
    sign = where(is_even, 0, x.bits(form.integer) & form.sign_bit)
    signed = (result.bits(form.integer) ^ sign).bits(x.dtype)
    is_real = where(is_whole, signed, where(x.equal(-math.inf), result, x.const(math.nan)))
    result = where(x.less(0.0), is_real, where(is_whole, signed, result))
    result = where(y.equal(0.0), 1.0, result)
    return where(x.equal(1.0), 1.0, result)
