"""log1p, asin, atan, atan2, asinh, acosh and atanh of float64, within one unit in the last place.

Like their float32 counterparts in `inverse` and `logarithm`, but what each argument and each sum
lost is carried in a second word.
"""

from __future__ import annotations

import math
from fractions import Fraction

from tilework.codegen.decompose import coefficients
from tilework.codegen.decompose.builder import Raw, Value, fma, polynomial, where
from tilework.codegen.decompose.formats import format_of, with_sign_of
from tilework.codegen.decompose.inverse import asin_parts
from tilework.codegen.decompose.words import Words, exact_sum, ordered_sum, quotient, root

_TABLES = coefficients.FLOAT64
#: From here on log(2x) is the inverse hyperbolic sine and cosine.
_HUGE = 2.0**53


def _quarter_turns(count: int) -> tuple[float, float]:
    """Two words of count * pi/4."""
    exact = sum(Fraction(word) for word in _TABLES["HALF_PI"]) * count / 2
    high = float(exact)
    return high, float(exact - Fraction(high))


# ---- logarithms


def _log1p(
    x: Value[Raw], low: Value[Raw] | None = None, doublings: Value[Raw] | None = None
) -> Value[Raw]:
    """Return log((1 + x + low) * 2**doublings); x > -1 is finite, `low` within its last place."""
    form = format_of(x)
    ln2_high, ln2_low = form.tables["LN2"]
    sum_ = x + 1.0
    # What the rounding of 1 + x lost, whichever of the two is larger.
    lost = where(x.less(1.0), x - (sum_ - 1.0), 1.0 - (sum_ - x))
    if low is not None:
        lost = lost + low
    bits = sum_.bits(form.integer)
    above = (bits - form.root_half_bits) & form.exponent_mask
    e = (above >> form.mantissa_bits).cast(x.dtype)
    if doublings is not None:
        e = e + doublings
    mantissa = (bits - above).bits(x.dtype)
    # 4 * 2**-e, since 2**-e may be subnormal.
    inverse = (x.const(4.0).bits(form.integer) - above).bits(x.dtype)
    near = above.equal(0)
    f, f_low = ordered_sum(mantissa - 1.0, lost * 0.25 * inverse)
    f = where(near, x, f)
    f_low = where(near, 0.0 if low is None else low, f_low)
    # The slope of the logarithm is 1/(1 + f), of which two terms are enough for the second word.
    tail = fma(f * f, polynomial(f, form.tables["LOG"]), fma(-f, f_low, f_low))
    total, rest = ordered_sum(e * ln2_high, f)
    return total + (rest + fma(e, ln2_low, tail))


def log1p(x: Value[Raw]) -> Value[Raw]:
    """Return log(1 + x), with full relative accuracy near 0."""
    result = where(x.less(math.inf), _log1p(x), x)
    result = where(x.greater(-1.0), result, where(x.less(-1.0), x.const(math.nan), x))
    result = where(x.equal(-1.0), -math.inf, result)
    return where(x.equal(0.0), x, result)


def _log_of_huge(x: Value[Raw], huge: Value[Raw], words: Words[Raw]) -> Value[Raw]:
    """Return log(1 + words), or log(2x) where x is huge."""
    argument, low = words
    doublings = where(huge, x.const(1.0), 0.0)
    result = _log1p(where(huge, x, argument), where(huge, 0.0, low), doublings)
    return where(x.less(math.inf), result, x)


def asinh(x: Value[Raw]) -> Value[Raw]:
    """Return the inverse hyperbolic sine, as log1p(x + x**2 / (1 + sqrt(1 + x**2)))."""
    magnitude = x.abs()
    huge = magnitude.greater(_HUGE)
    safe = where(huge, 1.0, magnitude)
    square = safe * safe
    square_low = fma(safe, safe, -square)
    total, rest = exact_sum(square, safe.const(1.0))
    length, length_low = root(total, rest + square_low)
    below, below_low = ordered_sum(length, safe.const(1.0))
    rise, rise_low = quotient((square, square_low), (below, below_low + length_low))
    argument, low = ordered_sum(safe, rise)
    return with_sign_of(x, _log_of_huge(magnitude, huge, (argument, low + rise_low)).abs())


def acosh(x: Value[Raw]) -> Value[Raw]:
    """Return the inverse hyperbolic cosine, as log1p(x - 1 + sqrt(x**2 - 1)); NaN below 1."""
    huge = x.greater(_HUGE)
    safe = where(huge, 2.0, x)
    above = safe - 1.0  # exact
    other, other_low = ordered_sum(safe, safe.const(1.0))
    square = above * other
    square_low = fma(above, other_low, fma(above, other, -square))
    length, length_low = root(square, square_low)
    argument, low = ordered_sum(length, above)
    low = where(above.equal(0.0), 0.0, low + length_low)
    result = _log_of_huge(x, huge, (argument, low))
    return where(x.less(1.0), x.const(math.nan), result)


def atanh(x: Value[Raw]) -> Value[Raw]:
    """Return the inverse hyperbolic tangent, as log1p(2x / (1 - x)) / 2; NaN outside [-1, 1]."""
    magnitude = x.abs()
    safe = where(magnitude.less(1.0), magnitude, 0.0)
    below, below_low = ordered_sum(safe.const(1.0), -safe)
    words = quotient((safe * 2.0, safe.const(0.0)), (below, below_low))
    result = where(magnitude.less(2.0**-28), magnitude, _log1p(*words) * 0.5)
    result = where(magnitude.less(1.0), result, x.const(math.nan))
    result = where(magnitude.equal(1.0), math.inf, result)
    return with_sign_of(x, where(x.equal(x), result, magnitude))


# ---- angles


def asin(x: Value[Raw]) -> Value[Raw]:
    """Return the arc sine; NaN outside [-1, 1]."""
    high, low = _quarter_turns(2)
    beyond, t, tail = asin_parts(x)
    total, rest = ordered_sum(x.const(high), t * -2.0)
    far = total + (rest + fma(tail, -2.0, low))
    return with_sign_of(x, where(beyond, far, t + tail))


def _arc_tangent(words: Words[Raw], high: Value[Raw], low: Value[Raw]) -> Value[Raw]:
    """Return the arc tangent of at most 1/2, added to two words of another angle."""
    t, t_low = words
    z = t * t
    tail = t * z * polynomial(z, _TABLES["ATAN"])
    total, rest = ordered_sum(high, t)
    return total + (rest + (tail + (low + t_low)))


def atan(x: Value[Raw]) -> Value[Raw]:
    """Return the arc tangent: of x up to 1/2, of (x - 1)/(x + 1) up to 2, of -1/x beyond."""
    magnitude = x.abs()
    one = x.const(1.0)
    beyond, middle = magnitude.greater(2.0), magnitude.greater(0.5)
    numerator = where(beyond, -1.0, where(middle, magnitude - 1.0, magnitude))
    total, rest = exact_sum(magnitude, one)
    denominator = where(beyond, magnitude, where(middle, total, one))
    rest = where(beyond, 0.0, where(middle, rest, 0.0))
    t, t_low = quotient((numerator, x.const(0.0)), (denominator, rest))
    t_low = where(magnitude.less(math.inf), t_low, 0.0)
    (quarter, quarter_low), (half, half_low) = _quarter_turns(1), _quarter_turns(2)
    high = where(beyond, half, where(middle, x.const(quarter), 0.0))
    low = where(beyond, half_low, where(middle, x.const(quarter_low), 0.0))
    return with_sign_of(x, _arc_tangent((t, t_low), high, low).abs())


def _by_octant(
    like: Value[Raw], is_left: Value[Raw], steep: Value[Raw], middle: Value[Raw], word: int
) -> Value[Raw]:
    """Return a word of the multiple of pi/4 from which the angle of a point is counted."""
    eighths = [like.const(_quarter_turns(count)[word]) for count in range(5)]
    upper = where(middle, where(is_left, eighths[3], eighths[1]), eighths[2])
    flat = where(middle, where(is_left, eighths[3], eighths[1]), 0.0)
    flat = where(middle, flat, where(is_left, eighths[4], eighths[0]))
    return where(steep, upper, flat)


def atan2(y: Value[Raw], x: Value[Raw]) -> Value[Raw]:
    """Return the angle of the point (x, y) in [-pi, pi], with the sign of y."""
    form = format_of(x)
    width, height = x.abs(), y.abs()
    steep = height.greater(width)
    large, small = where(steep, height, width), where(steep, width, height)
    # Scaled, so that their sum is finite and what a quotient loses no subnormal number.
    scale = where(large.greater(2.0**1000), x.const(2.0**-100), 1.0)
    scale = where(large.less(2.0**-800), x.const(2.0**200), scale)
    large, small = large * scale, small * scale
    # Equal ones may both be infinite, or both be 0, where the angle is that of (1, 0).
    even, nothing = small.equal(large), large.equal(0.0)
    # Twice an infinite one is not greater than the other.
    middle = where(even, where(nothing, x.const(0.0), 2.0), small * 2.0).greater(
        where(even, 1.0, large)
    )
    numerator = where(middle, where(even, 0.0, small - large), small)
    total, rest = ordered_sum(large, small)
    denominator = where(nothing, 1.0, where(middle, total, large))
    t, t_low = quotient((numerator, x.const(0.0)), (denominator, where(middle, rest, 0.0)))
    t = where(even, 0.0, t)
    t_low = where((t_low - t_low).equal(0.0), t_low, 0.0)
    is_left = x.bits(form.integer).less(0)
    flip = where(steep, x.const(-1.0), 1.0) * where(is_left, x.const(-1.0), 1.0)
    high = _by_octant(x, is_left, steep, middle, 0)
    low = _by_octant(x, is_left, steep, middle, 1)
    result = with_sign_of(y, _arc_tangent((t * flip, t_low * flip), high, low).abs())
    result = where(x.not_equal(x), x, result)
    return where(y.not_equal(y), y, result)
