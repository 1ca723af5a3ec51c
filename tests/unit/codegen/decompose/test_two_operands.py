"""fmod and atan2: exact remainders, angles in all quadrants."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tilework.codegen.decompose.inverse import atan2
from tilework.codegen.decompose.remainder import fmod
from tilework.testing.accuracy.measure import ulp_errors
from tilework.testing.accuracy.numpy_builder import evaluate

MAGNITUDES = (
    *(0.0, 5e-324, 2.0**-149, 1e-40, 0.5, 1.0, 1.5, 3.0, 7.25, 1e10, 3e38, 1e300, 1.7e308),
    *(math.inf, math.nan),
)


def pairs(dtype: str) -> tuple[NDArray[Any], NDArray[Any]]:
    rng = np.random.default_rng(21)
    both_signs = [sign * value for value in MAGNITUDES for sign in (1, -1)]
    with np.errstate(all="ignore"):
        special = np.array(list(itertools.product(both_signs, repeat=2))).astype(dtype)
    width = np.dtype(dtype).itemsize
    random = rng.integers(0, 2 ** (8 * width), (2000, 2), dtype=np.uint64)
    near = (rng.standard_normal((2000, 2)) * [100, 1]).astype(dtype)
    table = np.concatenate((special, random.astype(f"u{width}").view(dtype), near))
    return np.ascontiguousarray(table[:, 0]), np.ascontiguousarray(table[:, 1])


def test_fmod_of_float32_and_float64_is_exact_for_every_quotient() -> None:
    for dtype in ("float32", "float64"):
        x, y = pairs(dtype)
        with np.errstate(invalid="ignore"):
            wanted = np.fmod(x, y)
        found = evaluate(fmod, x, y)
        known = ~np.isnan(wanted)
        assert np.array_equal(np.isnan(found), ~known)
        assert np.array_equal(found[known], wanted[known])
        assert np.array_equal(np.signbit(found[known]), np.signbit(wanted[known]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_TRN_18_atan2_is_right_in_all_quadrants(dtype: str) -> None:
    y, x = pairs(dtype)
    with np.errstate(all="ignore"):
        wanted = np.arctan2(y.astype(np.float64), x.astype(np.float64))
    found = evaluate(atan2, y, x)
    known = ~np.isnan(wanted)
    assert np.array_equal(np.signbit(found[known]), np.signbit(wanted[known]))
    if dtype == "float32":
        assert ulp_errors(found, wanted).max() <= 1.5
    else:  # NumPy's own value may be one unit off
        assert np.array_equal(np.isnan(found), ~known)
        found, wanted = found[known], wanted[known]
        assert (np.abs(found - wanted) <= 2.5 * np.spacing(np.abs(wanted))).all()
