"""tanh, sinh and cosh of float32 and float64."""

from __future__ import annotations

from tilework.codegen.decompose.builder import Raw, Value, fma, polynomial, where
from tilework.codegen.decompose.exponential import exp, reduce_exp
from tilework.codegen.decompose.formats import format_of, with_sign_of

SWITCH = 0.55078125


def _one_minus_quotient(scale: Value[Raw], rise: Value[Raw]) -> Value[Raw]:
    """Return 1 - 2 / (1 + scale * (1 + rise)), the quotient corrected by its remainder."""
    whole = scale + 1.0  # exact: the scale is at most 2**mantissa_bits
    below = fma(scale, rise, whole)
    lost = fma(scale, rise, whole - below)
    quotient = 2.0 / below
    remainder = fma(-quotient, lost, fma(-quotient, below, 2.0))
    return 1.0 - fma(remainder * 0.5, quotient, quotient)


def tanh(x: Value[Raw]) -> Value[Raw]:
    """Return the hyperbolic tangent: an odd polynomial near 0, 1 - 2 / (1 + e**2|x|) beyond."""
    form = format_of(x)
    magnitude = x.abs()
    z = x * x
    small = fma(magnitude * z, polynomial(z, form.tables["TANH"]), magnitude)
    y = where(magnitude.greater(form.tanh_limit), form.tanh_limit, magnitude)
    r, low, shifted = reduce_exp(y + y, form.bias)
    scale = (shifted.bits(form.integer) << form.mantissa_bits).bits(x.dtype)
    table = form.tables["EXP"]
    if low is None:
        rise = r * polynomial(r, table)
        large = 1.0 - 2.0 / (fma(scale, rise, scale) + 1.0)
    else:
        rise = fma(r, table[0], fma(r * r, polynomial(r, table[1:]), low))
        large = _one_minus_quotient(scale, rise)
    return with_sign_of(x, where(magnitude.less(SWITCH), small, large))


def cosh(x: Value[Raw]) -> Value[Raw]:
    """Return the hyperbolic cosine."""
    half = exp(x.abs(), offset=-1)
    return half + 0.25 / half


def sinh(x: Value[Raw]) -> Value[Raw]:
    """Return the hyperbolic sine: an odd polynomial up to 1, exponentials above."""
    magnitude = x.abs()
    half = exp(magnitude, offset=-1)
    z = x * x
    small = fma(magnitude * z, polynomial(z, format_of(x).tables["SINH"]), magnitude)
    return with_sign_of(x, where(magnitude.less(1.0), small, half - 0.25 / half))
