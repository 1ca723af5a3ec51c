"""Gradients where a formula has no number, and its limit has one."""

import math

import numpy as np
import pytest

from tilework import Tensor

INF = math.inf


def gradient(function: object, *values: float) -> list[float]:
    """The gradient of the sum of a function of one tensor."""
    x = Tensor(np.array(values, np.float32))
    (found,) = function(x).sum().gradient(x)  # type: ignore[operator]
    return found.tolist()  # type: ignore[no-any-return]


def test_atan2_has_no_slope_at_the_origin() -> None:
    x, y = Tensor([0.0, 0.0, 3.0]), Tensor([0.0, -0.0, 4.0])
    found = [part.tolist() for part in x.atan2(y).sum().gradient(x, y)]
    np.testing.assert_allclose(found, [[0, 0, 4 / 25], [0, 0, -3 / 25]], rtol=1e-6)


def test_logit_is_steep_at_both_ends_and_nowhere_beyond() -> None:
    found = gradient(lambda x: x.logit(), 0.0, 1.0, 0.5, 0.2, -1.0, 2.0)
    np.testing.assert_allclose(found, [INF, INF, 4, 6.25, math.nan, math.nan], rtol=1e-6)


def test_logit_with_a_margin_is_flat_beyond_it() -> None:
    found = gradient(lambda x: x.logit(0.1), 0.0, 0.5, 1.0)
    np.testing.assert_allclose(found, [0, 4, 0], rtol=1e-6)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_polygamma_ends_at_zero(order: int) -> None:
    assert Tensor([INF]).polygamma(order).item() == 0


def test_digamma_is_flat_at_infinity() -> None:
    assert gradient(lambda x: x.digamma(), INF) == [0]


@pytest.mark.parametrize("loss", ["smooth_l1_loss", "huber_loss"])
def test_losses_with_a_line_have_its_slope_at_infinity(loss: str) -> None:
    target = Tensor([0.0, 0.0, 0.0, 0.0])
    found = gradient(lambda x: getattr(x, loss)(target, reduction="sum"), INF, -INF, 0.5, math.nan)
    np.testing.assert_allclose(found, [1, -1, 0.5, math.nan])
