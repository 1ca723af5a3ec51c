"""Bessel functions, incomplete gamma functions, zeta and polynomials, against PyTorch's in float64.

PyTorch's Bessel functions are right to about eight digits only.
"""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest
import torch

from tilework import Tensor
from tilework.base.errors import UserError

ALL = np.array([-1e3, -60.5, -25.1, -7.5, -1.0, -1e-5, 0.0, 1e-20, 0.5, 3.0, 24.99, 25.01, 1e4])
POSITIVE = np.array([1e-30, 1e-5, 0.4, 1.0, 5.0, 24.9, 25.1, 80.0, 650.0, 0.0, -1.0, np.nan])
FUNCTIONS = {
    "bessel_j0": (ALL, 2e-7),
    "bessel_j1": (ALL, 2e-7),
    "bessel_y0": (POSITIVE, 2e-7),
    "bessel_y1": (POSITIVE, 2e-7),
    "modified_bessel_i0": (ALL[2:-1], 1e-7),
    "modified_bessel_i1": (ALL[2:-1], 1e-7),
    "modified_bessel_k0": (POSITIVE, 1e-10),
    "modified_bessel_k1": (POSITIVE, 1e-10),
    "scaled_modified_bessel_k0": (POSITIVE, 1e-10),
    "scaled_modified_bessel_k1": (POSITIVE, 1e-10),
    "spherical_bessel_j0": (ALL, 1e-10),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_bessel_function_is_that_of_pytorch(name: str) -> None:
    values, tolerance = FUNCTIONS[name]
    want = getattr(torch.special, name)(torch.tensor(values)).numpy()
    found = getattr(Tensor(values), name)().numpy()
    np.testing.assert_allclose(found, want, rtol=tolerance, atol=tolerance)


def test_bessel_functions_have_their_known_digits() -> None:
    # From tables: J0(8), Y1(5), K0(2).
    assert Tensor(np.array([8.0])).bessel_j0().item() == pytest.approx(
        0.17165080713755391, abs=1e-15
    )
    assert Tensor(np.array([5.0])).bessel_y1().item() == pytest.approx(
        0.14786314339122683, abs=1e-14
    )
    found = Tensor(np.array([2.0])).modified_bessel_k0().item()
    assert found == pytest.approx(0.11389387274953344, rel=1e-14)


@pytest.mark.parametrize("name", ["bessel_j0", "bessel_j1", "modified_bessel_k1"])
def test_slopes_of_bessel_functions_are_those_of_differences(name: str) -> None:
    x = Tensor(np.array([0.5, 2.0, 9.0]))
    (found,) = getattr(x, name)().sum().gradient(x)
    step = 1e-5
    want = (getattr(x + step, name)() - getattr(x - step, name)()) / (2 * step)
    np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-6)


SHAPES = np.array([0.0, 1e-3, 0.5, 1.0, 2.5, 10.0, 100.0, 1e4, np.inf, -1.0])[:, None]
POINTS = np.array([0.0, 1e-10, 1e-3, 0.5, 2.4, 9.0, 12.0, 99.0, 150.0, 1e4, np.inf, -1.0])[None]


@pytest.mark.parametrize("name", ["igamma", "igammac"])
def test_an_incomplete_gamma_function_is_that_of_pytorch(name: str) -> None:
    pair = [torch.tensor(each) for each in np.broadcast_arrays(SHAPES, POINTS)]
    want = getattr(torch, name)(*pair).numpy()
    found = getattr(Tensor(SHAPES), name)(Tensor(POINTS)).numpy()
    np.testing.assert_allclose(found, want, rtol=1e-9, atol=1e-12)


def test_the_gradient_of_an_incomplete_gamma_function_is_that_of_pytorch() -> None:
    shape, point = np.array([0.5, 1.5, 3.0]), np.array([0.7, 0.7, 5.0])
    theirs = torch.tensor(point, requires_grad=True)
    torch.igamma(torch.tensor(shape), theirs).sum().backward()  # type: ignore[no-untyped-call]
    x = Tensor(point)
    (found,) = Tensor(shape).igamma(x).sum().gradient(x)
    assert theirs.grad is not None
    np.testing.assert_allclose(found.numpy(), theirs.grad.numpy(), rtol=1e-10)


@pytest.mark.parametrize("name", ["igamma", "igammac", "zeta"])
def test_gradients_flow_to_both_arguments_and_to_theirs(name: str) -> None:
    first = np.array([1.3, 2.5, 3.0, 8.0, 20.0])
    second = np.array([0.7, 2.6, 5.0, 2.0, 15.0])
    a, x = Tensor(first), Tensor(second)
    found = getattr(a, name)(x)
    by_first, by_second = found.sum().gradient(a, x)
    twice = by_first.sum().gradient(a)[0]
    call = {"igamma": mpmath_lower, "igammac": mpmath_upper, "zeta": mpmath.zeta}[name]
    with mpmath.workdps(40):
        for number, (p, q) in enumerate(zip(first, second, strict=True)):
            slope = mpmath.diff(lambda v, q=q: call(v, mpmath.mpf(q)), p)
            other = mpmath.diff(lambda v, p=p: call(mpmath.mpf(p), v), q)
            curve = mpmath.diff(lambda v, q=q: call(v, mpmath.mpf(q)), p, 2)
            assert by_first.numpy()[number] == pytest.approx(float(slope), rel=1e-8, abs=1e-13)
            assert by_second.numpy()[number] == pytest.approx(float(other), rel=1e-8, abs=1e-13)
            assert twice.numpy()[number] == pytest.approx(float(curve), rel=1e-6, abs=1e-11)


def mpmath_lower(shape: Any, point: Any) -> Any:
    return mpmath.gammainc(shape, 0, point, regularized=True)


def mpmath_upper(shape: Any, point: Any) -> Any:
    return mpmath.gammainc(shape, point, regularized=True)


def test_zeta_is_that_of_pytorch() -> None:
    power = np.array([1.0, 1.5, 2.0, 3.0, 10.0, 0.5, -1.0])[:, None]
    place = np.array([0.1, 0.5, 1.0, 10.0, 1e4, 0.0, -1.0, -0.5])[None]
    pair = [torch.tensor(each) for each in np.broadcast_arrays(power, place)]
    found = Tensor(power).zeta(Tensor(place)).numpy()
    np.testing.assert_allclose(found, torch.special.zeta(*pair).numpy(), rtol=1e-10)


POLYNOMIALS = [name for name in dir(torch.special) if "polynomial" in name]


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_a_polynomial_is_that_of_pytorch(name: str) -> None:
    values = np.linspace(-0.9, 0.9, 7)
    for degree in (0, 1, 2, 5, 8):
        want = getattr(torch.special, name)(torch.tensor(values), torch.tensor(degree)).numpy()
        found: Any = getattr(Tensor(values), name)(degree)
        np.testing.assert_allclose(found.numpy(), want, rtol=1e-9, atol=1e-9)


def test_a_tensor_gives_a_degree_for_each_element() -> None:
    values, degrees = np.linspace(-0.9, 0.9, 6), np.array([0, 1, 2, 5, 3, -1])
    want = torch.special.hermite_polynomial_h(torch.tensor(values), torch.tensor(degrees)).numpy()
    found = Tensor(values).hermite_polynomial_h(Tensor(degrees)).numpy()
    np.testing.assert_allclose(found, want, rtol=1e-12)


def test_the_polynomial_of_degree_0_is_1_of_all_numbers() -> None:
    x = Tensor([math.inf, -math.inf, math.nan])
    assert x.chebyshev_polynomial_t(0).tolist() == [1.0] * 3
    assert x.legendre_polynomial_p(Tensor([0, 0, 0])).tolist() == [1.0] * 3


def test_a_polynomial_of_a_fraction_as_degree_is_refused() -> None:
    with pytest.raises(UserError, match="degree"):
        Tensor([1.0]).legendre_polynomial_p(1.5)


def test_digamma_of_infinity_is_infinite() -> None:
    assert Tensor([float("inf")]).digamma().item() == float("inf")
