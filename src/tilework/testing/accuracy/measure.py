"""The error of computed floats in units in the last place."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def ulp_errors(found: NDArray[Any], exact: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the distance of each value to the exact one, in units of the latter's last place.

    An infinite result is right where the exact value rounds to it; a NaN where the exact value is
    one. Everything else that is not finite has an infinite error.

    Args:
        found: float16 or float32.
        exact: the exact results, to float64 accuracy.
    """
    info = np.finfo(found.dtype)
    with np.errstate(all="ignore"):
        _, exponents = np.frexp(exact)
        lowest = int(info.minexp)
        scale = np.ldexp(1.0, info.nmant - np.maximum(exponents - 1, lowest))
        errors = np.abs(found.astype(np.float64) - exact) * scale
        edge = float(info.max) * (1 + 0.25 * float(info.eps))
        overflows = np.abs(exact) >= edge
        right = np.isinf(found) & (np.signbit(found) == np.signbit(exact))
    errors = np.where(overflows, np.where(right, 0.0, np.inf), errors)
    errors = np.where(np.isnan(exact), np.where(np.isnan(found), 0.0, np.inf), errors)
    return np.where(np.isnan(errors), np.inf, errors)
