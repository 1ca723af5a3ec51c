"""erf of float32 and float64."""

from __future__ import annotations

from tilework.codegen.decompose.builder import Raw, Value, fma, polynomial, where
from tilework.codegen.decompose.formats import format_of, with_sign_of
from tilework.codegen.decompose.words import ordered_sum

SWITCH = {"float32": 0.90625, "float64": 0.890625}


def erf(x: Value[Raw]) -> Value[Raw]:
    """Return the error function: an odd polynomial near 0, 1 - 2**p(|x|) beyond."""
    form = format_of(x)
    slope_high, slope_low = form.tables["ERF_SLOPE"]
    magnitude = x.abs()
    z = x * x
    curve = polynomial(z, form.tables["ERF"])
    tail = fma(z, curve, slope_low)
    if x.dtype == "float64":
        # What the square and the sum of the slopes lose is seen in the last place.
        tail = fma(fma(x, x, -z), curve, tail)
        near, near_low = ordered_sum(x.const(slope_high), tail)
        small = fma(magnitude, near, magnitude * near_low)
    else:
        small = fma(magnitude, slope_high, magnitude * tail)
    t = where(magnitude.greater(form.erf_limit), form.erf_limit, magnitude)
    table = form.tables["LOG2_ERFC"]
    inner = polynomial(t, table[2:])
    slope = fma(t, inner, table[1])
    exponent = fma(t, slope, table[0])
    magic = form.magic + form.bias
    shifted = exponent + magic
    n = shifted - magic
    # For float64 what the exponent and its slope lost is added back.
    r = exponent - n
    if x.dtype == "float64":
        lost = t * fma(t, inner, table[1] - slope)
        r = r + (fma(t, slope, table[0] - exponent) + lost)
    scale = (shifted.bits(form.integer) << form.mantissa_bits).bits(x.dtype)
    # 1 - scale * (1 + rise), of which the first difference is exact.
    rise = r * polynomial(r, form.tables["EXP2"])
    large = fma(-scale, rise, 1.0 - scale)
    return with_sign_of(x, where(magnitude.less(SWITCH[x.dtype]), small, large))
