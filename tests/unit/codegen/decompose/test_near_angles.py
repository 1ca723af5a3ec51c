"""Angles of float64 below 2**20 are reduced in another way than all others, with equal results."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest

from tilework import Tensor
from tilework.codegen.decompose.transcendental import FLOAT64
from tilework.codegen.decompose.trigonometric_float64 import NEAR
from tilework.testing.accuracy.numpy_builder import evaluate

Array = np.ndarray[Any, Any]


def angles(count: int) -> Array:
    """Of all sizes below and around the limit, and beside multiples of quarter turns."""
    rng = np.random.default_rng(count)
    near = rng.integers(1, round(NEAR / math.pi * 2), count) * (math.pi / 2)
    found = [
        rng.standard_normal(count),
        rng.uniform(-NEAR, NEAR, count),
        np.exp(rng.uniform(-40, 20, count)),
        near,
        np.nextafter(near, 0),
        -np.nextafter(near, math.inf),
        np.array([0.0, -0.0, 5e-324, 0.5, math.pi / 4, math.pi / 2, NEAR, np.nextafter(NEAR, 0)]),
        np.array([-NEAR, 1e300, math.inf, -math.inf, math.nan]),
    ]
    return np.concatenate(found)


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_both_ways_have_the_same_bits_but_half_way_between_two(name: str) -> None:
    x = angles(20_000)
    with np.errstate(invalid="ignore"):
        wanted = evaluate(FLOAT64[name], x)  # without branches: the general way alone
    found = getattr(Tensor(x), name)().numpy()
    np.testing.assert_array_equal(found.view(np.int64) >> 63, wanted.view(np.int64) >> 63)
    # The second words differ in their last bits: that decides what is all but half way between two.
    are_equal = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
    assert np.count_nonzero(~are_equal) <= 2
    finite = np.isfinite(wanted)
    assert np.all(np.abs(found - wanted)[finite] <= np.spacing(np.abs(wanted[finite])))


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_TRN_13_near_angles_are_right_to_a_unit(name: str) -> None:
    x = angles(60)
    x = x[np.abs(x) < NEAR]
    found = getattr(Tensor(x), name)().numpy()
    with mpmath.workprec(250):
        for angle, value in zip(x, found, strict=True):
            exact = getattr(mpmath, name)(mpmath.mpf(float(angle)))
            unit = float(np.spacing(abs(float(exact))))
            assert abs(mpmath.mpf(float(value)) - exact) <= unit
