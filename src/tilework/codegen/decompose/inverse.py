"""asin, acos, atan, asinh, acosh and atanh of float32 and float64."""

from __future__ import annotations

import math

from tilework.codegen.decompose.builder import Raw, Value, fma, polynomial, where
from tilework.codegen.decompose.formats import format_of, with_sign_of
from tilework.codegen.decompose.logarithm import log1p


def atan(x: Value[Raw]) -> Value[Raw]:
    """Return the arc tangent: an odd polynomial up to 1, that of 1/x beyond."""
    form = format_of(x)
    half_pi_high, half_pi_low, _ = form.tables["HALF_PI"]
    magnitude = x.abs()
    beyond = magnitude.greater(1.0)
    t = where(beyond, -1.0 / magnitude, magnitude)
    z = t * t
    tail = t * z * polynomial(z, form.tables["ATAN"])
    high = where(beyond, t.const(half_pi_high), 0.0)
    low = where(beyond, t.const(half_pi_low), 0.0)
    return with_sign_of(x, high + (t + (tail + low)))


def asin_parts(x: Value[Raw]) -> tuple[Value[Raw], Value[Raw], Value[Raw]]:
    """Return |x| > 1/2, and two words of asin(t): t = |x| up to 1/2, sqrt((1 - |x|)/2) beyond."""
    magnitude = x.abs()
    beyond = magnitude.greater(0.5)
    z = where(beyond, fma(magnitude, -0.5, 0.5), magnitude * magnitude)
    root = z.sqrt()
    t = where(beyond, root, magnitude)
    # What the root's rounding lost matters once the sum is doubled.
    lost = where(beyond, fma(root, -root, z) / (root * 2.0), 0.0)
    lost = where(z.equal(0.0), 0.0, lost)
    return beyond, t, fma(t * z, polynomial(z, format_of(x).tables["ASIN"]), lost)


def asin(x: Value[Raw]) -> Value[Raw]:
    """Return the arc sine; NaN outside [-1, 1]."""
    half_pi_high, half_pi_low, _ = format_of(x).tables["HALF_PI"]
    beyond, t, tail = asin_parts(x)
    far = half_pi_high - (t * 2.0 - fma(tail, -2.0, half_pi_low))
    return with_sign_of(x, where(beyond, far, t + tail))


def acos(x: Value[Raw]) -> Value[Raw]:
    """Return the arc cosine; NaN outside [-1, 1]."""
    half_pi_high, half_pi_low, _ = format_of(x).tables["HALF_PI"]
    beyond, t, tail = asin_parts(x)
    signed = with_sign_of(x, t)
    signed_tail = where(x.less(0.0), -tail, tail)
    near = half_pi_high - (signed - (half_pi_low - signed_tail))
    twice = (t + tail) * 2.0
    opposite = half_pi_high * 2.0 - (t * 2.0 - fma(tail, -2.0, half_pi_low * 2.0))
    return where(beyond, where(x.less(0.0), opposite, twice), near)


def asinh(x: Value[Raw]) -> Value[Raw]:
    """Return the inverse hyperbolic sine, as log1p(x + x**2 / (1 + sqrt(1 + x**2)))."""
    form = format_of(x)
    (ln2,) = form.tables["LN2_ROUNDED"]
    huge_from = 2.0 ** (form.mantissa_bits + 1)
    magnitude = x.abs()
    huge = magnitude.greater(huge_from)
    safe = where(huge, 1.0, magnitude)
    square = safe * safe
    sum_ = safe + square / ((square + 1.0).sqrt() + 1.0)
    logarithm = log1p(where(huge, magnitude, sum_))
    return with_sign_of(x, logarithm + where(huge, x.const(ln2), 0.0))


def acosh(x: Value[Raw]) -> Value[Raw]:
    """Return the inverse hyperbolic cosine; NaN below 1."""
    form = format_of(x)
    (ln2,) = form.tables["LN2_ROUNDED"]
    huge_from = 2.0 ** (form.mantissa_bits + 1)
    huge = x.greater(huge_from)
    safe = where(huge, 2.0, x)
    above = safe - 1.0
    sum_ = above + (above * (safe + 1.0)).sqrt()
    logarithm = log1p(where(huge, x, sum_))
    result = logarithm + where(huge, x.const(ln2), 0.0)
    return where(x.less(1.0), x.const(math.nan), result)


def atanh(x: Value[Raw]) -> Value[Raw]:
    """Return the inverse hyperbolic tangent, as log1p(2x / (1 - x)) / 2; NaN outside [-1, 1]."""
    magnitude = x.abs()
    result = log1p((magnitude * 2.0) / (1.0 - magnitude)) * 0.5
    result = where(magnitude.less(2.0 ** -(format_of(x).mantissa_bits // 2 + 1)), magnitude, result)
    result = where(magnitude.greater(1.0), x.const(math.nan), result)
    return with_sign_of(x, result)


def atan2(y: Value[Raw], x: Value[Raw]) -> Value[Raw]:
    """Return the angle of the point (x, y) in [-pi, pi], with the sign of y."""
    form = format_of(x)
    half_pi_high, half_pi_low, _ = form.tables["HALF_PI"]
    width, height = x.abs(), y.abs()
    steep = height.greater(width)
    large, small = where(steep, height, width), where(steep, width, height)
    quotient = small / large
    # What the quotient's rounding lost; nothing where the remainder is no number.
    lost = fma(-quotient, large, small) / large
    lost = where((lost - lost).equal(0.0), lost, 0.0)
    quotient = where(large.equal(0.0), 0.0, where(small.equal(large), 1.0, quotient))
    t = where(steep, -quotient, quotient)
    z = t * t
    tail = fma(t * z, polynomial(z, form.tables["ATAN"]), where(steep, -lost, lost))
    # Angles from the positive axis: t, pi/2 - 1/t; from the negative one pi minus these.
    is_left = x.bits(form.integer).less(0)
    t, tail = where(is_left, -t, t), where(is_left, -tail, tail)
    high = where(steep, half_pi_high, where(is_left, x.const(2 * half_pi_high), 0.0))
    low = where(steep, half_pi_low, where(is_left, x.const(2 * half_pi_low), 0.0))
    result = with_sign_of(y, (high + (t + (tail + low))).abs())
    result = where(x.not_equal(x), x, result)
    return where(y.not_equal(y), y, result)
