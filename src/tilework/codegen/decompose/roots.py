"""Square root, correctly rounded, for targets without the instruction."""

from __future__ import annotations

import math

from tilework.codegen.decompose.builder import Raw, Value, fma, where
from tilework.codegen.decompose.formats import format_of

SEEDS = {"float32": 0x5F3759DF, "float64": 0x5FE6EB50C7B537A9}
NEWTON_STEPS = {"float32": 3, "float64": 4}


def sqrt(x: Value[Raw]) -> Value[Raw]:
    """Return the correctly rounded square root: that of -0 is -0, of a negative number NaN.

    Newton's iteration for 1/sqrt(x) from an estimate in the bits, then two corrections of the root
    by its exact remainder (Markstein): the first leaves an error below one unit, and a root that
    is off by less is rounded right by the second, since no root lies halfway between two floats.
    """
    form = format_of(x)
    # Scaled by an even power of two, so that no step of a tiny or huge x leaves the range.
    tiny = x.less(form.smallest_normal * 2.0 ** (form.mantissa_bits + 2))
    power = form.mantissa_bits + form.mantissa_bits % 2 + 2
    a = where(tiny, x * 2.0**power, x)
    inverse = (a.const(SEEDS[x.dtype], form.integer) - (a.bits(form.integer) >> 1)).bits(x.dtype)
    half = a * 0.5
    for _ in range(NEWTON_STEPS[x.dtype]):
        inverse = inverse * fma(-(half * inverse), inverse, 1.5)
    root = a * inverse
    middle = inverse * 0.5
    for _ in range(2):
        root = fma(fma(-root, root, a), middle, root)
    root = where(tiny, root * 2.0 ** -(power // 2), root)
    root = where(x.less(0.0), x.const(math.nan), root)
    root = where(x.equal(0.0), x, root)
    return where(x.less(math.inf), root, x)
