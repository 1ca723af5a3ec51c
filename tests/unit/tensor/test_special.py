"""Special functions against SciPy in float64, and their slopes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special as scipy_special

from tilework import Tensor
from tilework.base.errors import UserError

AXIS = np.concatenate([np.linspace(-9.7, 9.7, 401), [1e-20, 1e-5, 1.0, 2.0, 50.0, 170.0]])
UNIT = np.concatenate([np.linspace(-1, 1, 201), 1 - np.logspace(-15, -1, 20)])
SHARES = np.concatenate([np.linspace(0, 1, 201), np.logspace(-30, -1, 20)])
POSITIVE = AXIS[AXIS > 0.01]


# The absolute bound counts near zeros of the function, where no digits are left.
@pytest.mark.parametrize(
    ("name", "reference", "places", "absolute"),
    [
        ("erfc", scipy_special.erfc, AXIS, 0.0),
        ("erfcx", scipy_special.erfcx, AXIS[AXIS > -5], 0.0),
        ("erfinv", scipy_special.erfinv, UNIT, 0.0),
        ("ndtr", scipy_special.ndtr, AXIS, 0.0),
        ("log_ndtr", scipy_special.log_ndtr, AXIS, 0.0),
        ("ndtri", scipy_special.ndtri, SHARES, 1e-15),
        ("lgamma", scipy_special.gammaln, AXIS, 1e-14),
        ("digamma", scipy_special.digamma, AXIS, 1e-14),
        ("i0", scipy_special.i0, AXIS, 0.0),
        ("i0e", scipy_special.i0e, AXIS, 0.0),
        ("i1", scipy_special.i1, AXIS, 0.0),
        ("i1e", scipy_special.i1e, AXIS, 0.0),
        ("sinc", np.sinc, AXIS, 1e-16),
        ("entr", scipy_special.entr, AXIS, 0.0),
    ],
)
def test_a_function_agrees_with_scipy(
    name: str, reference: Any, places: Any, absolute: float
) -> None:
    found = getattr(Tensor(places), name)().numpy()
    np.testing.assert_allclose(found, reference(places), rtol=1e-13, atol=absolute)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_polygamma_agrees_with_scipy(order: int) -> None:
    found = Tensor(POSITIVE).polygamma(order).numpy()
    np.testing.assert_allclose(found, scipy_special.polygamma(order, POSITIVE), rtol=1e-13)


@pytest.mark.parametrize("name", ["erfc", "erfcx", "lgamma", "digamma", "i0", "i1", "i0e", "i1e"])
def test_a_slope_is_that_of_the_function(name: str) -> None:
    x = Tensor([0.7, 1.3, 2.4], dtype="float64", requires_grad=True)
    (found,) = getattr(x, name)().sum().gradient(x)
    step = 1e-6
    high, low = getattr(x.detach() + step, name)(), getattr(x.detach() - step, name)()
    np.testing.assert_allclose(found.numpy(), ((high - low) / (2 * step)).numpy(), rtol=1e-7)


def test_float32_is_rounded_once() -> None:
    places = POSITIVE.astype(np.float32)
    exact = scipy_special.gammaln(places.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(Tensor(places).lgamma().numpy(), exact, rtol=1.2e-7, atol=1e-14)


def test_erfinv_of_float32_is_within_two_ulp() -> None:
    bits = np.arange(0x30000000, 0x3F800000, 10007, dtype=np.int32)  # up to 1
    places = np.concatenate([bits.view(np.float32), 1 - np.float32(2.0**-24) * np.arange(1, 999)])
    places = places.astype(np.float32)
    exact = scipy_special.erfcinv(1 - places.astype(np.float64))
    exact = np.where(places > 0.5, exact, scipy_special.erfinv(places.astype(np.float64)))
    found = Tensor(np.concatenate([places, -places])).erfinv().numpy()
    error = np.abs(found[: places.size] - exact) / np.spacing(exact.astype(np.float32))
    assert error.max() < 2
    np.testing.assert_array_equal(found[places.size :], -found[: places.size])


def test_erfinv_of_float32_keeps_signs_and_ends() -> None:
    ends = np.array([0.0, -0.0, 1.0, -1.0, 1.5, np.nan, 1e-45], np.float32)
    found = Tensor(ends).erfinv().numpy()
    expected = np.array([0, 0, np.inf, -np.inf, np.nan, np.nan, 1e-45], np.float32)
    np.testing.assert_array_equal(found, expected)
    assert np.signbit(found[1])


def test_nothing_times_the_logarithm_of_nothing_is_nothing() -> None:
    found = Tensor([0.0, 0.0, 1.0]).xlogy(Tensor([0.0, float("nan"), 0.0])).numpy()
    assert found[0] == 0
    assert np.isnan(found[1])
    assert found[2] == -np.inf


def test_mantissa_and_exponent_make_up_the_number() -> None:
    x = np.array([1.0, -3.5, 0.0, 1e-40, 3e38, np.inf], np.float32)
    mantissa, exponent = Tensor(x).frexp()
    expected = np.frexp(x)
    np.testing.assert_array_equal(mantissa.numpy(), expected[0])
    np.testing.assert_array_equal(exponent.numpy()[:5], expected[1][:5])


def test_the_next_float_is_the_next_float() -> None:
    x = np.array([0.0, 1.0, -1.0, 1e-45, 3.4028235e38], np.float32)
    y = np.array([1.0, 0.0, -2.0, -1.0, np.inf], np.float32)
    with np.errstate(over="ignore"):
        expected = np.nextafter(x, y)
    np.testing.assert_array_equal(Tensor(x).nextafter(Tensor(y)).numpy(), expected)


@pytest.mark.parametrize("scale", [1e-40, 1e-30, 1.0, 6e37])
def test_the_slope_of_hypot_is_a_quotient_at_every_scale(scale: float) -> None:
    x = Tensor(np.array([3 * scale], np.float32), requires_grad=True)
    y = Tensor(np.array([4 * scale], np.float32), requires_grad=True)
    found = [each.item() for each in x.hypot(y).sum().gradient(x, y)]
    np.testing.assert_allclose(found, [0.6, 0.8], rtol=1e-4 if scale < 1e-38 else 3e-7)


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: x.chebyshev_polynomial_v(2**31),
        lambda x: x.hermite_polynomial_h(Tensor([1e9])),
        lambda x: x.multigammaln(2**64),
        lambda x: x.polygamma(171),
    ],
    ids=["degree", "degrees", "dimensions", "order"],
)
def test_orders_that_nobody_can_wait_for_are_refused(compute: Any) -> None:
    with pytest.raises(UserError):
        compute(Tensor([1.5]))
