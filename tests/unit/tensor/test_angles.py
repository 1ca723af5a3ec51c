"""Angles of points whose coordinates are the ends of a dtype are those of the plane."""

import math

import numpy as np
import pytest

from tilework import Tensor

ENDS = (math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_angles_of_infinite_and_zero_coordinates_are_those_of_numpy(dtype: str) -> None:
    least = float(np.finfo(dtype).smallest_subnormal)
    ends = (*ENDS, least, -least, float(np.finfo(dtype).max))
    y, x = (np.array(each, dtype).reshape(-1) for each in np.meshgrid(ends, ends))
    found, exact = Tensor(y).atan2(Tensor(x)).numpy(), np.arctan2(y, x)
    np.testing.assert_allclose(found, exact, rtol=2 * float(np.finfo(dtype).eps))
    assert (np.signbit(found) == np.signbit(exact)).all()
