"""sin, cos and tan of float64, for every finite angle.

The fraction of a turn is computed in integers: the mantissa times a window of 192 bits of
1/(2*pi), of which the window's place follows from the exponent, so that whole turns never appear.
What is left after the nearest quarter turn is known to 2**-136 of a turn, and the nearest that a
float64 comes to a quarter turn is about 2**-64, so that two words of the remainder are right.
Windows are picked by selects, one bit of their number at a time; no table is read.

Angles below 2**20, as almost all are, have fewer than 2**20 quarter turns: these times the three
words of pi/2 are taken away one after the other.  The first difference is exact, and what the third
word leaves out is below 2**-140.  Both ways end in the same two words, but for the last bits of the
second.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tilework.codegen.decompose import coefficients
from tilework.codegen.decompose.builder import (
    Raw,
    Value,
    fma,
    polynomial,
    unless_rare,
    where,
)
from tilework.codegen.decompose.words import Words, ordered_sum, quotient

if TYPE_CHECKING:
    from collections.abc import Callable

LOW_HALF = 0xFFFFFFFF
MANTISSA = (1 << 52) - 1
SMALL = 0.5  # angles below are their own remainder
LEAD = 53  # zero bits before the table, for the least exponent that is not small
TWO_TO_52_BITS = 0x4330000000000000
NEAR = 2.0**20  # angles below are reduced by three words of pi/2
MAGIC = 1.5 * 2.0**52


def _table() -> list[int]:
    """Return 1/(2*pi) after LEAD zero bits, in 64-bit words."""
    total = 0
    for word in coefficients.TURN:
        total = total << 64 | word
    total >>= LEAD
    count = len(coefficients.TURN)
    return [total >> 64 * (count - 1 - at) & (2**64 - 1) for at in range(count)]


def _window(offset: Value[Raw]) -> list[Value[Raw]]:
    """Return the four table words that begin with word `offset // 64`, in 0..16."""
    number = offset >> 6
    words: list[Value[Raw]] = [offset.const(word) for word in _table()]
    picked = words[:16]
    for bit, needed in ((3, 11), (2, 7), (1, 5), (0, 4)):
        step = 1 << bit
        is_set = (number & step).not_equal(0)
        shifted = words if bit == 3 else picked
        picked = [where(is_set, shifted[at + step], picked[at]) for at in range(needed)]
    last = (number & 16).not_equal(0)
    return [where(last, words[16 + at], picked[at]) for at in range(4)]


def _turn_fraction(magnitude: Value[Raw]) -> tuple[Value[Raw], Value[Raw]]:
    """Return 128 bits of `magnitude / (2*pi)` modulo 1, for a magnitude of at least SMALL."""
    bits = magnitude.bits("uint64")
    mantissa = (bits & MANTISSA) | (MANTISSA + 1)
    offset = (bits >> 52) - 1022
    words = _window(offset)
    left = offset & 63
    right = left ^ 63
    limbs: list[Value[Raw]] = []  # 32 bits each, the lowest first
    for high, low in zip(reversed(words[:3]), reversed(words[1:]), strict=True):
        word = (high << left) | ((low >> 1) >> right)
        limbs += [word & LOW_HALF, word >> 32]
    lower, upper = mantissa & LOW_HALF, mantissa >> 32
    products = [lower * limb for limb in limbs]
    total = products[0] & LOW_HALF
    sums: list[Value[Raw]] = []
    for at in range(1, 6):
        carried = (total >> 32) + upper * limbs[at - 1] + (products[at - 1] >> 32)
        total = carried + (products[at] & LOW_HALF)
        sums.append(total)
    _, second, third, fourth, fifth = sums
    return (fifth << 32) | (fourth & LOW_HALF), (third << 32) | (second & LOW_HALF)


def _half_as_float(half: Value[Raw]) -> Value[Raw]:
    """Return a uint64 below 2**32 as float64."""
    return (half | TWO_TO_52_BITS).bits("float64") - 2.0**52


def _signed_as_floats(word: Value[Raw]) -> tuple[Value[Raw], Value[Raw]]:
    """Return two words of a uint64 that stands for a signed integer."""
    biased = word + (1 << 63)  # the sign becomes an offset of the upper half
    upper = (_half_as_float(biased >> 32) - 2.0**31) * 2.0**32
    lower = _half_as_float(word & LOW_HALF)
    total = upper + lower
    return total, lower - (total - upper)


def reduce_angle(magnitude: Value[Raw]) -> tuple[Value[Raw], Value[Raw], Value[Raw]]:
    """Return `n` modulo 4 (uint64) and two words of `magnitude - n * pi/2`."""
    high, low = _turn_fraction(magnitude)
    quarter = (high + (1 << 61)) >> 62
    # The lower word becomes signed as well, so that a small negative remainder has no large part.
    remainder = (high - (quarter << 62)) + (low >> 63)
    first, first_rest = _signed_as_floats(remainder)
    second, _ = _signed_as_floats(low)
    second = fma(second, 2.0**-64, first_rest)
    total = first + second
    rest = second - (total - first)
    turn_high, turn_low, _ = (4 * 2.0**-64 * word for word in coefficients.FLOAT64["HALF_PI"])
    angle = total * turn_high
    error = fma(total, turn_high, -angle) + fma(total, turn_low, rest * turn_high)
    angle, error = _in_order(angle, error)
    small = magnitude.less(SMALL)
    return (
        where(small, 0, quarter),
        where(small, magnitude, angle),
        where(small, 0.0, error),
    )


def _in_order(high: Value[Raw], low: Value[Raw]) -> tuple[Value[Raw], Value[Raw]]:
    """Return the same sum as its float64 and the rest; `high` is the larger one, if any is."""
    total = high + low
    return total, low - (total - high)


def _reduce_near(magnitude: Value[Raw]) -> tuple[Value[Raw], Value[Raw], Value[Raw]]:
    """Return the same for angles below NEAR."""
    first, second, third = coefficients.FLOAT64["HALF_PI"]
    shifted = fma(magnitude, 2.0 / math.pi, MAGIC)
    count = shifted - MAGIC
    near = fma(count, -first, magnitude)  # exact
    product = count * second
    total = near - product
    # What is near may be less than the product, so that either may be rounded off.
    back = total + product
    rest = (near - back) + ((back - total) - product)
    low = rest - fma(count, second, -product)
    return (shifted.bits("uint64") & 3, *_in_order(total, fma(count, -third, low)))


def _reduced(
    x: Value[Raw],
    compute: Callable[[Value[Raw], Value[Raw], Value[Raw]], Value[Raw]],
) -> Value[Raw]:
    """Return what `compute` makes of the quarter turns of x and what they leave."""
    magnitude = x.abs()
    return unless_rare(
        magnitude.less(NEAR).equal(False),
        lambda: compute(*reduce_angle(magnitude)),
        lambda: compute(*_reduce_near(magnitude)),
    )


def _sine_and_cosine(high: Value[Raw], low: Value[Raw]) -> tuple[Words[Raw], Words[Raw]]:
    """Return two words of each, not yet added up: the second is small beside the first."""
    tables = coefficients.FLOAT64
    z = high * high
    rest = fma(high * z, polynomial(z, tables["SIN"]), fma(z * -0.5, low, low))
    # The cosine falls by half the square, and the square's own rounding would be seen in it.
    tail = fma(z * z, polynomial(z, tables["COS"]), fma(high, high, -z) * -0.5 - high * low)
    half = z * 0.5
    lead = 1.0 - half
    return (high, rest), (lead, ((1.0 - lead) - half) + tail)


def _finish(x: Value[Raw], bits: Value[Raw]) -> Value[Raw]:
    """Return the float64 of `bits`, or NaN where x is not finite."""
    return where(x.abs().less(math.inf), bits.bits("float64"), x - x)


def sin(x: Value[Raw]) -> Value[Raw]:
    """Return the sine of x radians; NaN for an infinity."""

    def compute(n: Value[Raw], high: Value[Raw], low: Value[Raw]) -> Value[Raw]:
        (sine, sine_rest), (cosine, cosine_rest) = _sine_and_cosine(high, low)
        odd = (n & 1).equal(1)
        chosen = where(odd, cosine + cosine_rest, sine + sine_rest).bits("uint64")
        sign = x.bits("uint64") & (1 << 63)
        return _finish(x, chosen ^ ((n >> 1) << 63) ^ sign)

    return _reduced(x, compute)


def cos(x: Value[Raw]) -> Value[Raw]:
    """Return the cosine of x radians; NaN for an infinity."""

    def compute(n: Value[Raw], high: Value[Raw], low: Value[Raw]) -> Value[Raw]:
        (sine, sine_rest), (cosine, cosine_rest) = _sine_and_cosine(high, low)
        odd = (n & 1).equal(1)
        chosen = where(odd, sine + sine_rest, cosine + cosine_rest).bits("uint64")
        return _finish(x, chosen ^ (((n + 1) >> 1) << 63))

    return _reduced(x, compute)


def tan(x: Value[Raw]) -> Value[Raw]:
    """Return the tangent of x radians; NaN for an infinity."""

    def compute(n: Value[Raw], high: Value[Raw], low: Value[Raw]) -> Value[Raw]:
        sine, cosine = (ordered_sum(*words) for words in _sine_and_cosine(high, low))
        odd = (n & 1).equal(1)
        above, above_low = (where(odd, -c, s) for s, c in zip(sine, cosine, strict=True))
        below, below_low = (where(odd, s, c) for s, c in zip(sine, cosine, strict=True))
        found, found_low = quotient((above, above_low), (below, below_low))
        return _finish(x, (found + found_low).bits("uint64") ^ (x.bits("uint64") & (1 << 63)))

    return _reduced(x, compute)
