"""Gradients whose formula has a square are right where the square alone is beyond the dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilework import Tensor

#: (function, operand, what the gradient is weighed by, the exact gradient), all held by float16.
CASES = [
    ("tan", 1.5673828125, 0.0099945068359375, 857.748),
    ("asinh", 300.0, 1.0, 1 / np.hypot(300, 1)),
    ("acosh", 300.0, 1.0, 1 / np.sqrt(300.0**2 - 1)),
    ("exp2", 15.0, 2.0, 2 * 2.0**15 * np.log(2)),
    ("atanh", 0.99951171875, 1.0, 1 / (1 - 0.99951171875**2)),
    ("asin", 0.99951171875, 1.0, 1 / np.sqrt(1 - 0.99951171875**2)),
]


def gradient(name: str, x: float, weight: float, dtype: str) -> Any:
    tensor = Tensor([x], dtype=dtype)
    result = getattr(tensor, name)() * Tensor([weight], dtype=dtype)
    return result.sum().gradient(tensor)[0].numpy()[0]


@pytest.mark.parametrize(("name", "x", "weight", "exact"), CASES)
def test_gradients_of_float16_pass_by_squares_that_it_cannot_hold(
    name: str, x: float, weight: float, exact: float
) -> None:
    assert gradient(name, x, weight, "float16") == pytest.approx(exact, rel=4e-3)


@pytest.mark.parametrize("name", ["asinh", "acosh"])
def test_gradients_of_float32_pass_by_squares_that_it_cannot_hold(name: str) -> None:
    assert gradient(name, 1e30, 1.0, "float32") == pytest.approx(1e-30, rel=1e-6)


def test_the_gradient_of_an_angle_passes_by_the_square_of_its_distance() -> None:
    x, y = Tensor([300.0], dtype="float16"), Tensor([300.0], dtype="float16")
    found = [float(each.numpy()[0]) for each in x.atan2(y).sum().gradient(x, y)]
    assert found == pytest.approx([1 / 600, -1 / 600], rel=2e-3)


def test_the_gradient_of_a_power_passes_by_a_power_that_float16_cannot_hold() -> None:
    x, y = Tensor([0.0625], dtype="float16"), Tensor([-2.875], dtype="float16")
    weight = Tensor([0.0625], dtype="float16")
    (found,) = (x.pow(y) * weight).sum().gradient(x)
    assert found.numpy()[0] == pytest.approx(-2.875 * 0.0625**-3.875 * 0.0625, rel=4e-3)


def test_the_gradient_of_a_power_is_infinite_and_not_nan_where_it_is_beyond_float16() -> None:
    x, y = Tensor([0.0009765625], dtype="float16"), Tensor([-0.75], dtype="float16")
    (found,) = x.pow(y).sum().gradient(x)
    assert found.numpy()[0] == -np.inf


def test_the_gradient_of_acosh_is_nan_outside_of_its_domain() -> None:
    assert np.isnan(gradient("acosh", -2.0, 1.0, "float32"))
