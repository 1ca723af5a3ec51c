"""tanh, sinh and cosh of float32."""

from __future__ import annotations

from tilework.codegen.decompose import coefficients
from tilework.codegen.decompose.builder import Raw, Value, fma, polynomial, where
from tilework.codegen.decompose.exponential import LN2_HIGH, LN2_LOW, LOG2_E, MAGIC, exp

BIAS = 127.0


def tanh(x: Value[Raw]) -> Value[Raw]:
    """Return the hyperbolic tangent: an odd polynomial near 0, 1 - 2 / (1 + e**2|x|) beyond."""
    magnitude = x.abs()
    z = x * x
    small = fma(magnitude * z, polynomial(z, coefficients.TANH), magnitude)
    y = where(magnitude.greater(9.5), 9.5, magnitude)
    shifted = fma(y, 2.0 * LOG2_E, MAGIC + BIAS)
    n = shifted - (MAGIC + BIAS)
    r = fma(n, -LN2_LOW, fma(y, 2.0, n * -LN2_HIGH))
    scale = (shifted.bits("int32") << 23).bits("float32")
    power = fma(polynomial(r, coefficients.EXP), scale, 1.0)
    result = where(magnitude.less(0.55078125), small, 1.0 - 2.0 / power)
    return (result.bits("int32") | (x.bits("int32") & -0x80000000)).bits("float32")


def _half_exp(x: Value[Raw]) -> tuple[Value[Raw], Value[Raw]]:
    """Return |x| and e**|x| / 2."""
    magnitude = x.abs()
    return magnitude, exp(magnitude, offset=-1)


def cosh(x: Value[Raw]) -> Value[Raw]:
    """Return the hyperbolic cosine."""
    _, half = _half_exp(x)
    return half + 0.25 / half


def sinh(x: Value[Raw]) -> Value[Raw]:
    """Return the hyperbolic sine: an odd polynomial up to 1, exponentials above."""
    magnitude, half = _half_exp(x)
    sign = x.bits("int32") & -0x80000000
    large = ((half - 0.25 / half).bits("int32") | sign).bits("float32")
    z = x * x
    small = fma(x * z, polynomial(z, coefficients.SINH), x)
    return where(magnitude.less(1.0), small, large)
