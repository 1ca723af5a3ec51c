"""Roundings that binary64 arithmetic cannot do by itself, through exact integers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def exact_fma(x: float, y: float, z: float) -> float:
    """x * y + z rounded once to binary64."""
    if not (math.isfinite(x) and math.isfinite(y)):
        return x * y + z
    if not math.isfinite(z):
        return z
    (p, q), (r, s), (u, v) = (number.as_integer_ratio() for number in (x, y, z))
    numerator, denominator = p * r * v + u * q * s, q * s * v
    if numerator == 0:
        # An exact zero: of a cancellation it is +0, of two zeros their sum.
        return 0.0 if x * y != 0 or z != 0 else x * y + z
    try:
        return numerator / denominator  # of integers, so rounded once
    except OverflowError:
        return math.inf if numerator > 0 else -math.inf


def round_integer(value: int, round_: Callable[[float], float]) -> float:
    """The integer `value` rounded once by `round_`, which rounds binary64 to a smaller format.

    The first 53 bits are kept and the last of them says whether anything was lost, so that the
    second rounding sees on which side of a tie the value lies.
    """
    extra = value.bit_length() - 53
    if extra <= 0:
        return round_(float(value))
    magnitude = abs(value)
    kept = magnitude >> extra
    if magnitude & ((1 << extra) - 1):
        kept |= 1
    return round_(math.copysign(math.ldexp(float(kept), extra), value))


def truncate(value: float, minimum: int, maximum: int) -> int:
    """`value` without its fraction, held within the bounds; NaN gives 0."""
    if value != value:
        return 0
    if value >= maximum:
        return maximum
    if value <= minimum:
        return minimum
    return int(value)
