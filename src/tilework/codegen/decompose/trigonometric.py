"""sin, cos and tan of float32, for every finite angle.

One reduction serves all 2^32 inputs, in float64 arithmetic and without a table look-up. For
|x| < 2**44, x/pi is `x * A + x * B` with A + B = 1/pi to 107 bits: the nearest integer k leaves
`fma(x, A, -k)`, whose rounding error is relative to the small difference, and adding `x * B` gives
the fraction of a half turn. A float32 at or above 2**44 is an integer times a power of two, so that
`x = y * 2**s` with an integer y < 2**44; whole turns of x/pi vanish if A + B stands for 2**s/pi
modulo 2 instead. Five shifts s reach the largest float32. The nearest that a float32 comes to a
multiple of pi/2 leaves a fraction of about 2**-33, known here to 2**-63.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.codegen.decompose import coefficients
from tilework.codegen.decompose.builder import (
    Raw,
    Value,
    fma,
    needs,
    polynomial,
    unless_rare,
    where,
)

if TYPE_CHECKING:
    from collections.abc import Callable

MAGIC_FLOAT64 = 1.5 * 2.0**52
MAGIC = 1.5 * 2.0**23
TWO_OVER_PI = 0.636619746685028076171875
# Largest angle of the float32 reduction; beyond it n * HALF_PI[1] is no longer small.
FLOAT32_LIMIT = 2.0**16


def _by_magnitude(
    magnitude: Value[Raw], like: Value[Raw], choices: tuple[float, ...]
) -> Value[Raw]:
    """Return the choice for the range of REDUCE_SWITCH in which `magnitude` lies."""
    result: Value[Raw] = like.const(choices[-1])
    for switch, choice in zip(
        reversed(coefficients.REDUCE_SWITCH), reversed(choices[:-1]), strict=True
    ):
        result = where(magnitude.less(2.0**switch), choice, result)
    return result


def _scaled(
    x: Value[Raw], table: tuple[tuple[float, float], ...]
) -> tuple[Value[Raw], Value[Raw], Value[Raw]]:
    """Return float64 `y`, `high` and `low` with `y * (high + low)` the turns of x, modulo some."""
    magnitude = x.abs()
    powers = tuple(2.0**-shift for shift in coefficients.REDUCE_SHIFT)
    y = (x * _by_magnitude(magnitude, x, powers)).cast("float64")
    high = _by_magnitude(magnitude, y, tuple(row[0] for row in table))
    low = _by_magnitude(magnitude, y, tuple(row[1] for row in table))
    return y, high, low


def _near(
    x: Value[Raw], table: tuple[tuple[float, float], ...]
) -> tuple[Value[Raw], Value[Raw], Value[Raw]]:
    """Return the same for angles in the first range, as almost all are."""
    y = x.cast("float64")
    return y, y.const(table[0][0]), y.const(table[0][1])


def _reduced(
    x: Value[Raw],
    table: tuple[tuple[float, float], ...],
    compute: Callable[[Value[Raw], Value[Raw], Value[Raw]], Value[Raw]],
) -> Value[Raw]:
    """Return what `compute` makes of the turns of x."""
    is_near = x.abs().less(2.0 ** coefficients.REDUCE_SWITCH[0])
    return unless_rare(
        is_near.equal(False),
        lambda: compute(*_scaled(x, table)),
        lambda: compute(*_near(x, table)),
    )


def _sin_half_turns(fraction: Value[Raw], parity: Value[Raw]) -> Value[Raw]:
    """Return sin(pi * fraction) as float32, negated if the low bit of `parity` is set."""
    result = fraction * polynomial(fraction * fraction, coefficients.FLOAT64["SIN_HALF_TURN"])
    return (result.bits("int64") ^ (parity << 63)).bits("float64").cast("float32")


def _sin(y: Value[Raw], high: Value[Raw], low: Value[Raw]) -> Value[Raw]:
    shifted = fma(y, high, MAGIC_FLOAT64)
    k = shifted - MAGIC_FLOAT64
    fraction = fma(y, low, fma(y, high, -k))
    return _sin_half_turns(fraction, shifted.bits("int64"))


def _cos(y: Value[Raw], high: Value[Raw], low: Value[Raw]) -> Value[Raw]:
    # The odd constant turns the parity around: cos(pi*(n + 1/2 + f)) = -(-1)**n * sin(pi*f).
    shifted = fma(y, high, -0.5) + (MAGIC_FLOAT64 + 1.0)
    k = (shifted - (MAGIC_FLOAT64 + 1.0)) + 0.5
    fraction = fma(y, low, fma(y, high, -k))
    return _sin_half_turns(fraction, shifted.bits("int64"))


def _tan(y: Value[Raw], high: Value[Raw], low: Value[Raw]) -> Value[Raw]:
    shifted = fma(y, high, MAGIC_FLOAT64)
    fraction = fma(y, low, fma(y, high, -(shifted - MAGIC_FLOAT64)))
    z = fraction * fraction
    sine = fraction * polynomial(z, coefficients.FLOAT64["SIN_QUADRANT"])
    cosine = polynomial(z, coefficients.FLOAT64["COS_QUADRANT"])
    odd = (shifted.bits("int64") & 1).equal(1)
    return (where(odd, -cosine, sine) / where(odd, sine, cosine)).cast("float32")


def sin(x: Value[Raw]) -> Value[Raw]:
    """Return the sine of x radians; NaN for an infinity."""
    return _reduced(x, coefficients.HALF_TURNS, _sin)


def cos(x: Value[Raw]) -> Value[Raw]:
    """Return the cosine of x radians, as the sine around odd multiples of a quarter turn."""
    return _reduced(x, coefficients.HALF_TURNS, _cos)


def tan(x: Value[Raw]) -> Value[Raw]:
    """Return the tangent of x radians."""
    return _reduced(x, coefficients.QUADRANTS, _tan)


def _quadrant(x: Value[Raw]) -> tuple[Value[Raw], Value[Raw], Value[Raw]]:
    """Return `n` in low bits and two words of `x - n * pi/2`, for |x| <= FLOAT32_LIMIT."""
    needs(x, -FLOAT32_LIMIT, FLOAT32_LIMIT, "_quadrant")
    first, second, third = coefficients.FLOAT32["HALF_PI"]
    shifted = fma(x, TWO_OVER_PI, MAGIC)
    n = shifted - MAGIC
    near = fma(n, -first, x)  # exact
    product = n * second
    high = near - product
    low = ((near - high) - product) - fma(n, second, -product)
    low = fma(n, -third, low)
    return shifted.bits("int32"), high, low


def _quadrant_value(n: Value[Raw], high: Value[Raw], low: Value[Raw]) -> Value[Raw]:
    """Return sin(n * pi/2 + high + low)."""
    z = high * high
    sine = high + fma(high * z, polynomial(z, coefficients.FLOAT32["SIN"]), low)
    tail = fma(z * z, polynomial(z, coefficients.FLOAT32["COS"]), -(high * low))
    half = z * 0.5
    lead = 1.0 - half
    cosine = lead + (((1.0 - lead) - half) + tail)
    chosen = where((n & 1).equal(1), cosine, sine)
    return (chosen.bits("int32") ^ ((n & 2) << 30)).bits("float32")


def sin_limited(x: Value[Raw]) -> Value[Raw]:
    """Return the sine of an angle that is proven to be at most FLOAT32_LIMIT in magnitude."""
    return where(x.equal(0.0), x, _quadrant_value(*_quadrant(x)))


def cos_limited(x: Value[Raw]) -> Value[Raw]:
    """Return the cosine of an angle that is proven to be at most FLOAT32_LIMIT in magnitude."""
    n, high, low = _quadrant(x)
    return _quadrant_value(n + 1, high, low)
