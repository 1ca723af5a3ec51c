"""fmod: the exact remainder of a quotient rounded towards zero."""

from __future__ import annotations

from tilework.codegen.decompose.builder import Raw, Value, fma, unless_rare, where
from tilework.codegen.decompose.formats import format_of, with_sign_of

BITS_PER_STEP = 50
MAGIC_FLOAT64 = 1.5 * 2.0**52


def fmod(x: Value[Raw], y: Value[Raw]) -> Value[Raw]:
    """Return `x - trunc(x / y) * y` without rounding, with the sign of x.

    Long division in float64, 50 bits of the quotient a step: what is left after each step is a
    float64 again, so that one multiply-add gives it exactly. The steps cover the largest quotient,
    2**277 for float32 and 2**2098 for float64; where it is one step long, as it mostly is, the
    others leave everything as it is.
    """
    form = format_of(x)
    longest = 2 * form.bias + form.mantissa_bits
    whole = x.abs().cast("float64")
    divisor = y.abs().cast("float64")

    def left_by(steps: int) -> Value[Raw]:
        rest = whole
        for step in reversed(range(steps)):
            scaled = divisor
            for part in _powers(BITS_PER_STEP * step):
                scaled = scaled * part
            rest = where(rest.less(scaled), rest, _reduced(rest, scaled))
        return rest

    is_short = whole.less(divisor * 2.0**BITS_PER_STEP)
    rest = unless_rare(
        is_short.equal(False),
        lambda: left_by(longest // BITS_PER_STEP + 1),
        lambda: left_by(1),
    )
    return with_sign_of(x, rest.cast(x.dtype).abs())


def _powers(exponent: int) -> list[float]:
    """Return float64 factors whose product is 2**exponent."""
    return [2.0**1000] * (exponent // 1000) + ([2.0 ** (exponent % 1000)] if exponent else [])


def _reduced(rest: Value[Raw], divisor: Value[Raw]) -> Value[Raw]:
    """Return `rest` modulo `divisor`, for a quotient below 2**51."""
    quotient = (rest / divisor + MAGIC_FLOAT64) - MAGIC_FLOAT64
    left = fma(-quotient, divisor, rest)
    return where(left.less(0.0), left + divisor, left)
