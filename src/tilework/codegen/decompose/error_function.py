"""erf of float32."""

from __future__ import annotations

from tilework.codegen.decompose import coefficients
from tilework.codegen.decompose.builder import Raw, Value, fma, polynomial, where
from tilework.codegen.decompose.exponential import MAGIC

BIAS = 127.0
SATURATED = 3.9375  # erf rounds to 1 from here on
SWITCH = 0.90625
SLOPE_HIGH, SLOPE_LOW = coefficients.ERF_SLOPE


def erf(x: Value[Raw]) -> Value[Raw]:
    """Return the error function: an odd polynomial near 0, 1 - 2**p(|x|) beyond."""
    z = x * x
    tail = fma(z, polynomial(z, coefficients.ERF), SLOPE_LOW)
    small = fma(x, SLOPE_HIGH, x * tail)
    sign = x.bits("int32") & -0x80000000
    magnitude = x.abs()
    t = where(magnitude.greater(SATURATED), SATURATED, magnitude)
    exponent = polynomial(t, coefficients.LOG2_ERFC)
    shifted = exponent + (MAGIC + BIAS)
    r = exponent - (shifted - (MAGIC + BIAS))
    scale = (shifted.bits("int32") << 23).bits("float32")
    large = 1.0 - polynomial(r, coefficients.EXP2) * scale
    large = (large.bits("int32") | sign).bits("float32")
    return where(magnitude.less(SWITCH), small, large)
