"""Sums, quotients and roots in two words, of which the second holds what the first one lost.

With them float64 functions stay below one unit in the last place where a sum of rounded terms
would not.  A second word is itself rounded: its errors are about 2**-106 of the value.
"""

from __future__ import annotations

from typing import TypeAlias

from tilework.codegen.decompose.builder import Raw, Value, fma

Words: TypeAlias = tuple[Value[Raw], Value[Raw]]


def ordered_sum(large: Value[Raw], small: Value[Raw]) -> Words[Raw]:
    """Return x + y exactly, where |x| >= |y| or x = 0."""
    total = large + small
    return total, (large - total) + small


def exact_sum(x: Value[Raw], y: Value[Raw]) -> Words[Raw]:
    """Return x + y exactly, whichever is larger."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def quotient(numerator: Words[Raw], denominator: Words[Raw]) -> Words[Raw]:
    """Return a quotient in two words; the second is NaN where the first one is not finite."""
    n, n_low = numerator
    d, d_low = denominator
    first = n / d
    return first, (fma(-first, d, n) + fma(-first, d_low, n_low)) / d


def root(x: Value[Raw], low: Value[Raw]) -> Words[Raw]:
    """Return the square root of x + low in two words; the second is NaN where x is 0."""
    first = x.sqrt()
    return first, (fma(-first, first, x) + low) / (first * 2.0)
