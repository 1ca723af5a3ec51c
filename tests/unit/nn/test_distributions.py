"""Distributions have PyTorch's densities, entropies and divergences, and draws of their moments."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from tilework import Tensor, jit
from tilework.base.errors import ShapeError, UnsupportedError, UserError
from tilework.nn import distributions

A = np.array([0.5, 1.0, 3.5], np.float32)
B = np.array([[0.25], [2.0]], np.float32)
CHANCES = np.array([0.0, 0.2, 0.9, 1.0], np.float32)
SHARES = np.array([[1.0, 2.0, 1.0], [0.5, 0.0, 0.5]], np.float32)

#: Name, parameters, other parameters for divergences, and where densities are asked for.
ROWS: list[tuple[str, dict[str, Any], dict[str, Any], Any]] = [
    ("Normal", {"loc": A, "scale": B}, {"loc": B, "scale": A}, A - 1),
    ("LogNormal", {"loc": A, "scale": B}, {}, A),
    ("Laplace", {"loc": A, "scale": B}, {"loc": B, "scale": A}, A - 1),
    ("Exponential", {"rate": A}, {"rate": A + 1}, A),
    ("Uniform", {"low": A - 1, "high": A + B}, {"low": A - 2, "high": A + B}, A),
    ("Gamma", {"concentration": A, "rate": B}, {"concentration": A + 1, "rate": B + 1}, A),
    (
        "Beta",
        {"concentration1": A, "concentration0": B},
        {"concentration1": A + 1, "concentration0": B * 2},
        np.array([0.1, 0.5, 0.9], np.float32),
    ),
    ("Bernoulli", {"probs": CHANCES[1:3]}, {"probs": CHANCES[1:3][::-1].copy()}, CHANCES[[0, 3]]),
    ("Bernoulli", {"logits": A}, {"logits": A - 1}, np.array([0.0, 1.0, 1.0], np.float32)),
    ("Categorical", {"probs": SHARES}, {"probs": SHARES + 1}, np.array([0, 2])),
    ("Categorical", {"logits": SHARES}, {"logits": SHARES + 1}, np.array([[0, 2], [1, 1]])),
    ("Poisson", {"rate": A}, {"rate": A + 1}, np.array([0.0, 2.0, 5.0], np.float32)),
]  # fmt: skip
IDS = [f"{name}-{'-'.join(given)}" for name, given, *_ in ROWS]


def both(name: str, given: dict[str, Any]) -> tuple[Any, Any]:
    ours = {key: Tensor(value) for key, value in given.items()}
    theirs = {key: torch.from_numpy(value) for key, value in given.items()}
    made = getattr(torch.distributions, name)(**theirs, validate_args=False)
    return getattr(distributions, name)(**ours), made


def check(found: Any, expected: Any, places: float = 2e-5) -> None:
    assert found.shape == tuple(expected.shape)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=places, atol=2e-6)


@pytest.mark.parametrize(("name", "given", "other", "at"), ROWS, ids=IDS)
def test_a_density_is_pytorchs(name: str, given: Any, other: Any, at: Any) -> None:
    ours, theirs = both(name, given)
    check(ours.log_prob(Tensor(at)), theirs.log_prob(torch.from_numpy(at)))


@pytest.mark.parametrize(("name", "given", "other", "at"), ROWS, ids=IDS)
def test_shapes_moments_and_entropies_are_pytorchs(
    name: str, given: Any, other: Any, at: Any
) -> None:
    ours, theirs = both(name, given)
    assert ours.batch_shape == tuple(theirs.batch_shape)
    assert ours.event_shape == tuple(theirs.event_shape)
    if name != "Categorical":
        check(ours.mean, theirs.mean)
        check(ours.variance, theirs.variance)
        check(ours.stddev, theirs.stddev)
    if name != "Poisson":
        check(ours.entropy(), theirs.entropy())


@pytest.mark.parametrize(("name", "given", "other", "at"), ROWS, ids=IDS)
def test_a_divergence_is_pytorchs(name: str, given: Any, other: Any, at: Any) -> None:
    if not other:
        return
    (p, theirs_p), (q, theirs_q) = both(name, given), both(name, other)
    found = torch.distributions.kl_divergence(theirs_p, theirs_q)
    check(distributions.kl_divergence(p, q), found, 5e-5)


@pytest.mark.parametrize("name", ["Normal", "LogNormal", "Laplace", "Exponential", "Uniform"])
def test_shares_and_their_places_are_pytorchs(name: str) -> None:
    row = next(row for row in ROWS if row[0] == name)
    ours, theirs = both(name, row[1])
    check(ours.cdf(Tensor(row[3])), theirs.cdf(torch.from_numpy(row[3])))
    shares = np.array([0.1, 0.5, 0.9], np.float32)
    check(ours.icdf(Tensor(shares)), theirs.icdf(torch.from_numpy(shares)))


@pytest.mark.parametrize(("name", "given", "other", "at"), ROWS, ids=IDS)
def test_draws_have_the_moments_of_their_law(name: str, given: Any, other: Any, at: Any) -> None:
    Tensor.manual_seed(7)
    ours, theirs = both(name, given)
    count = 40_000
    drawn = ours.sample((count,))
    assert drawn.shape == (count, *ours.batch_shape)
    values = drawn.numpy().astype(np.float64)
    if name == "Categorical":
        shares = np.stack([(values == kind).mean(0) for kind in range(3)], -1)
        np.testing.assert_allclose(shares, theirs.probs.numpy(), atol=0.02)
        return
    if name == "LogNormal":  # whose moments are those of a few large draws
        values, theirs = np.log(values), theirs.base_dist
    error = np.sqrt(theirs.variance.numpy() / count)
    assert (np.abs(values.mean(0) - theirs.mean.numpy()) < 5 * error).all()
    np.testing.assert_allclose(values.var(0), theirs.variance.numpy(), rtol=0.12)


def test_small_concentrations_of_gamma_have_the_right_shares() -> None:
    Tensor.manual_seed(3)
    law = distributions.Gamma(0.3, 1.0)
    drawn = np.sort(law.sample((20_000,)).numpy())
    shares = law.cdf(Tensor(drawn)).numpy()
    assert np.abs(shares - np.arange(20_000) / 20_000).max() < 0.02


@pytest.mark.parametrize("name", ["Normal", "LogNormal", "Laplace", "Exponential", "Uniform"])
def test_gradients_flow_through_draws(name: str) -> None:
    row = next(row for row in ROWS if row[0] == name)
    given = {key: Tensor(value, requires_grad=True) for key, value in row[1].items()}
    law = getattr(distributions, name)(**given)
    law.rsample((5,)).sum().backward()
    assert all(each.grad is not None for each in given.values())
    assert law.sample((5,)).requires_grad is not True


def test_the_gradient_of_a_mean_by_draws_is_that_of_the_mean() -> None:
    Tensor.manual_seed(5)
    loc, scale = Tensor(1.0, requires_grad=True), Tensor(2.0, requires_grad=True)
    distributions.Normal(loc, scale).rsample((50_000,)).square().mean().backward()
    assert loc.grad is not None
    assert scale.grad is not None
    assert abs(loc.grad.item() - 2.0) < 0.1  # of loc ** 2 + scale ** 2
    assert abs(scale.grad.item() - 4.0) < 0.2


def test_captured_draws_differ_from_call_to_call() -> None:
    law = distributions.Normal(Tensor([0.0]), Tensor([1.0]))
    draw = jit(lambda: law.sample((4,)) + 0.0)
    assert len({str(draw().tolist()) for _ in range(4)}) == 4


def test_impossible_outcomes_have_the_probability_zero() -> None:
    law = distributions.Bernoulli(Tensor([0.0, 1.0]))
    assert law.log_prob(Tensor([1.0, 0.0])).tolist() == [-math.inf, -math.inf]
    assert law.log_prob(Tensor([0.0, 1.0])).tolist() == [0.0, 0.0]
    assert law.entropy().tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    "make",
    [
        lambda: distributions.Normal(0.0, 0.0),
        lambda: distributions.Gamma(-1.0, 1.0),
        lambda: distributions.Uniform(2.0, 1.0),
        lambda: distributions.Exponential(float("nan")),
        lambda: distributions.Bernoulli(),
        lambda: distributions.Bernoulli(0.5, 0.1),
    ],
)
def test_numbers_that_are_no_parameters_are_refused(make: Any) -> None:
    with pytest.raises(UserError):
        make()


def test_categories_need_an_axis() -> None:
    with pytest.raises(ShapeError, match="axis of categories"):
        distributions.Categorical(Tensor(0.5))


def test_what_a_kind_lacks_is_told() -> None:
    with pytest.raises(UnsupportedError, match="no rsample"):
        distributions.Gamma(1.0, 1.0).rsample()
    with pytest.raises(UnsupportedError, match="no formula"):
        distributions.kl_divergence(distributions.Normal(0, 1), distributions.Gamma(1, 1))
