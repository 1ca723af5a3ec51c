"""erf of float32 and float64."""

from __future__ import annotations

from tilework.codegen.decompose.builder import Raw, Value, fma, polynomial, where
from tilework.codegen.decompose.formats import format_of, with_sign_of

SWITCH = 0.90625


def erf(x: Value[Raw]) -> Value[Raw]:
    """Return the error function: an odd polynomial near 0, 1 - 2**p(|x|) beyond."""
    form = format_of(x)
    slope_high, slope_low = form.tables["ERF_SLOPE"]
    magnitude = x.abs()
    z = x * x
    tail = fma(z, polynomial(z, form.tables["ERF"]), slope_low)
    small = fma(magnitude, slope_high, magnitude * tail)
    t = where(magnitude.greater(form.erf_limit), form.erf_limit, magnitude)
    exponent = polynomial(t, form.tables["LOG2_ERFC"])
    magic = form.magic + form.bias
    shifted = exponent + magic
    r = exponent - (shifted - magic)
    scale = (shifted.bits(form.integer) << form.mantissa_bits).bits(x.dtype)
    power = fma(r, polynomial(r, form.tables["EXP2"]), 1.0)
    return with_sign_of(x, where(magnitude.less(SWITCH), small, 1.0 - power * scale))
