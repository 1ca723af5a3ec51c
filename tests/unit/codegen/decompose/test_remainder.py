"""fmod is exact, whether its quotient takes one step or several."""

from __future__ import annotations

import numpy as np
import pytest

from tilework import Tensor


def numbers(kind: str) -> np.ndarray:
    """Numbers of all magnitudes, ordinary ones, and those at the ends."""
    rng = np.random.default_rng(5)
    limits = np.finfo(kind)
    ends = np.array([0, 1, 3.5, limits.max, limits.tiny, limits.smallest_subnormal, np.inf, np.nan])
    exponents = rng.uniform(limits.minexp, limits.maxexp, 400)
    found = np.concatenate([np.exp2(exponents), rng.standard_normal(400), ends]).astype(kind)
    return np.concatenate([found, -found])


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_remainders_are_exact_for_short_and_long_quotients(kind: str) -> None:
    x = numbers(kind)
    y = np.random.default_rng(6).permutation(x)
    with np.errstate(all="ignore"):
        wanted = np.fmod(x, y)
    found = Tensor(x).fmod(Tensor(y)).numpy()
    assert (np.isnan(found) == np.isnan(wanted)).all()
    is_number = ~np.isnan(wanted)
    assert found[is_number].tobytes() == wanted[is_number].tobytes()
