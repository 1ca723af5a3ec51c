"""Derive the polynomials of erfinv in float32 and print their coefficients.

Usage: `python scripts/derive_erfinv.py`; `src/tilework/tensor/erfinv_coefficients.py` holds them.
With w = -log(1 - x * x), erfinv(x) / x is a smooth function of w.
"""

import numpy as np
from scipy import special

LIMIT, LARGEST = 5.0, 16.0  # 1 - x * x of the last float32 below 1 is 2 ** -23
NEAR_MIDDLE, NEAR_DEGREE = 1.5, 8
FAR_MIDDLE, FAR_DEGREE = 9.0, 10
POINTS, TURNS = 400, 100


def quotient(log: np.ndarray) -> np.ndarray:
    """Return erfinv(x) / x."""
    rest = np.exp(-log)
    x = np.sqrt(-np.expm1(-log))
    return np.asarray(np.where(x > 0.5, special.erfcinv(rest / (1 + x)), special.erfinv(x)) / x)


def fit(low: float, high: float, middle: float, degree: int) -> None:
    """Print the value at the middle in two parts, and what is added for each step from there.

    The largest relative error is nearly the least there is (Lawson's weights).
    """
    steps = (np.arange(POINTS) + 0.5) / POINTS
    places = (low + high) / 2 + (high - low) / 2 * np.cos(np.pi * steps)
    whole, away = quotient(places), places - middle
    centre = quotient(np.array(middle))
    scale = away / whole
    width = (high - low) / 2
    powers = np.vander(away / width, degree + 1, increasing=True)
    wanted = (whole - centre) / whole
    weights = np.ones(POINTS)
    for _ in range(TURNS):
        roots = np.sqrt(weights)
        found = np.linalg.lstsq(powers * (scale * roots)[:, None], wanted * roots, rcond=None)[0]
        errors = np.abs(scale * (powers @ found) - wanted)
        weights *= errors / errors.max() + 1e-3
        weights /= weights.mean()
    first = float(np.float32(centre))
    print("# relative error", errors.max())
    print(
        (first, float(np.float32(centre - first))),
        [float(np.float32(each / width**power)) for power, each in enumerate(found)],
    )


fit(1e-6, LIMIT, NEAR_MIDDLE, NEAR_DEGREE)
fit(LIMIT, LARGEST, FAR_MIDDLE, FAR_DEGREE)
