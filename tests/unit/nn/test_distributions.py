"""Distributions have PyTorch's densities, entropies and divergences, and draws of their moments."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from tilework import Tensor, jit
from tilework.base.errors import BoundsError, ShapeError, UnsupportedError, UserError
from tilework.nn import distributions

A = np.array([0.5, 1.0, 3.5], np.float32)
B = np.array([[0.25], [2.0]], np.float32)
CHANCES = np.array([0.0, 0.2, 0.9, 1.0], np.float32)
SHARES = np.array([[1.0, 2.0, 1.0], [0.5, 0.0, 0.5]], np.float32)

COVARIANCE = np.array([[2.0, 0.5, 0.1], [0.5, 1.0, 0.2], [0.1, 0.2, 3.0]], np.float32)

#: Kinds of which PyTorch says no entropy, or gives it by another way.
NO_ENTROPY = {"Poisson", "FisherSnedecor", "NegativeBinomial", "Binomial"}
#: Kinds of which no moments are compared: they are infinite, or draws tell little of them.
NO_MOMENTS = {"Cauchy", "HalfCauchy", "Pareto", "InverseGamma", "FisherSnedecor", "StudentT"}

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
    ("Cauchy", {"loc": A, "scale": B}, {"loc": A + 1, "scale": B * 2}, A - 1),
    ("HalfCauchy", {"scale": A}, {}, A),
    ("HalfNormal", {"scale": A}, {"scale": A + 1}, A),
    ("StudentT", {"df": A + 1.7, "loc": B, "scale": A}, {}, A - 1),
    ("Gumbel", {"loc": A, "scale": B + 1}, {"loc": A - 1, "scale": B * 2 + 1}, A - 1),
    ("Weibull", {"scale": A, "concentration": B + 1},
     {}, A),
    ("Pareto", {"scale": A, "alpha": B + 4}, {"scale": A / 2, "alpha": B + 1}, A + 1),
    ("InverseGamma", {"concentration": A + 4, "rate": B}, {}, A),
    ("Chi2", {"df": A}, {"df": A + 1}, A),
    ("FisherSnedecor", {"df1": A, "df2": B + 9}, {}, A),
    ("Kumaraswamy", {"concentration1": A, "concentration0": B}, {},
     np.array([0.1, 0.5, 0.9], np.float32)),
    ("Binomial", {"total_count": np.array([3.0, 10.0, 40.0], np.float32), "probs": CHANCES[1:2]},
     {}, np.array([0.0, 4.0, 17.0], np.float32)),
    ("Geometric", {"probs": CHANCES[1:3]}, {"probs": CHANCES[1:3][::-1].copy()},
     np.array([0.0, 3.0], np.float32)),
    ("NegativeBinomial", {"total_count": A, "logits": -B}, {},
     np.array([0.0, 2.0, 5.0], np.float32)),
    ("OneHotCategorical", {"logits": SHARES}, {"logits": SHARES * 2},
     np.eye(3, dtype=np.float32)[[0, 2]]),
    ("Dirichlet", {"concentration": SHARES + 0.5}, {"concentration": SHARES + 1},
     np.array([0.2, 0.3, 0.5], np.float32)),
    ("MultivariateNormal", {"loc": A, "covariance_matrix": COVARIANCE},
     {"loc": A - 1, "covariance_matrix": COVARIANCE * 2}, A - B),
    ("MultivariateNormal", {"loc": A, "precision_matrix": COVARIANCE}, {}, A - B),
    ("MultivariateNormal", {"loc": A, "scale_tril": np.tril(COVARIANCE)}, {}, A - B),
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
    if name not in NO_ENTROPY:
        check(ours.entropy(), theirs.entropy())


@pytest.mark.parametrize(("name", "given", "other", "at"), ROWS, ids=IDS)
def test_a_divergence_is_pytorchs(name: str, given: Any, other: Any, at: Any) -> None:
    if not other:
        return
    (p, theirs_p), (q, theirs_q) = both(name, given), both(name, other)
    found = torch.distributions.kl_divergence(theirs_p, theirs_q)
    check(distributions.kl_divergence(p, q), found, 5e-5)


@pytest.mark.parametrize(
    "name",
    ["Normal", "LogNormal", "Laplace", "Exponential", "Uniform", "Cauchy", "HalfCauchy",
     "HalfNormal", "Gumbel", "Weibull", "Pareto", "Kumaraswamy"],
)  # fmt: skip
def test_shares_and_their_places_are_pytorchs(name: str) -> None:
    row = next(row for row in ROWS if row[0] == name)
    ours, theirs = both(name, row[1])
    check(ours.cdf(Tensor(row[3])), theirs.cdf(torch.from_numpy(row[3])))
    shares = np.array([0.1, 0.5, 0.9], np.float32)
    check(ours.icdf(Tensor(shares)), theirs.icdf(torch.from_numpy(shares)))


@pytest.mark.parametrize(
    ("name", "given", "other", "at"),
    [
        pytest.param(*row, id=name)
        for row, name in zip(ROWS, IDS, strict=True)
        if row[0] not in NO_MOMENTS
    ],
)
def test_draws_have_the_moments_of_their_law(name: str, given: Any, other: Any, at: Any) -> None:
    Tensor.manual_seed(7)
    ours, theirs = both(name, given)
    count = 40_000
    drawn = ours.sample((count,))
    assert drawn.shape == (count, *ours.batch_shape, *ours.event_shape)
    values = drawn.numpy().astype(np.float64)
    if name == "Categorical":
        shares = np.stack([(values == kind).mean(0) for kind in range(3)], -1)
        np.testing.assert_allclose(shares, theirs.probs.numpy(), atol=0.02)
        return
    if name == "LogNormal":  # whose moments are those of a few large draws
        values, theirs = np.log(values), theirs.base_dist
    error = np.sqrt(theirs.variance.numpy() / count)
    assert (np.abs(values.mean(0) - theirs.mean.numpy()) <= 5 * error).all()
    np.testing.assert_allclose(values.var(0), theirs.variance.numpy(), rtol=0.12)


@pytest.mark.parametrize("name", sorted(NO_MOMENTS - {"FisherSnedecor", "StudentT"}))
def test_draws_without_moments_have_the_shares_of_their_law(name: str) -> None:
    Tensor.manual_seed(4)
    law = both(name, next(row[1] for row in ROWS if row[0] == name))[0]
    drawn = law.sample((20_000,))
    shares = np.sort(law.cdf(drawn).numpy(), 0)
    even = (np.arange(20_000) / 20_000).reshape(-1, *[1] * len(law.batch_shape))
    assert np.abs(shares - even).max() < 0.02


@pytest.mark.parametrize("name", ["StudentT", "FisherSnedecor"])
def test_draws_have_the_quartiles_of_pytorchs(name: str) -> None:
    Tensor.manual_seed(4)
    ours, theirs = both(name, next(row[1] for row in ROWS if row[0] == name))
    found = np.quantile(ours.sample((20_000,)).numpy(), [0.25, 0.5, 0.75], 0)
    torch.manual_seed(4)
    want = np.quantile(theirs.sample((20_000,)).numpy(), [0.25, 0.5, 0.75], 0)
    np.testing.assert_allclose(found, want, rtol=0.1, atol=0.1)


def test_draws_of_several_categories_add_up() -> None:
    Tensor.manual_seed(3)
    law = distributions.Multinomial(5, Tensor(SHARES))
    theirs = torch.distributions.Multinomial(5, torch.tensor(SHARES), validate_args=False)
    check(law.mean, theirs.mean)
    check(law.variance, theirs.variance)
    drawn = law.sample((4000,)).numpy()
    assert (drawn.sum(-1) == 5).all()
    np.testing.assert_allclose(drawn.mean(0), theirs.mean.numpy(), atol=0.1)
    value = np.array([2.0, 0.0, 3.0], np.float32)
    check(law.log_prob(Tensor(value)), theirs.log_prob(torch.tensor(value)))  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("name", ["RelaxedBernoulli", "RelaxedOneHotCategorical"])
def test_relaxed_draws_have_pytorchs_density_and_go_to_the_ends_in_the_cold(name: str) -> None:
    at = np.array([0.2, 0.3, 0.5], np.float32)
    given = {"temperature": np.array(0.7, np.float32), "logits": SHARES}
    ours, theirs = both(name, given)
    check(ours.log_prob(Tensor(at)), theirs.log_prob(torch.tensor(at)), 1e-4)
    Tensor.manual_seed(2)
    cold = getattr(distributions, name)(0.01, probs=Tensor(CHANCES[1:3] / CHANCES[1:3].sum()))
    drawn = cold.rsample((5000,)).numpy()
    assert (np.abs(drawn - 0.5) > 0.4).mean() > 0.95
    np.testing.assert_allclose(drawn.mean(0), cold.probs.numpy(), atol=0.03)


def test_straight_through_draws_have_the_gradient_of_the_probabilities() -> None:
    logits = Tensor(SHARES, requires_grad=True)
    law = distributions.OneHotCategoricalStraightThrough(logits=logits)
    drawn = law.rsample()
    assert set(drawn.numpy().round(6).reshape(-1)) == {0.0, 1.0}
    weights = np.array([1.0, 2.0, 5.0], np.float32)
    (drawn * Tensor(weights)).sum().backward()
    other = torch.tensor(SHARES, requires_grad=True)
    (other.softmax(-1) * torch.tensor(weights)).sum().backward()  # type: ignore[no-untyped-call]
    check(logits.grad, other.grad)


def test_laws_taken_together_add_up() -> None:
    ours, theirs = both("Normal", {"loc": A, "scale": B})
    law = distributions.Independent(ours, 1)
    other = torch.distributions.Independent(theirs, 1)
    assert (law.batch_shape, law.event_shape) == ((2,), (3,))
    check(law.log_prob(Tensor(A)), other.log_prob(torch.tensor(A)))  # type: ignore[no-untyped-call]
    check(law.entropy(), other.entropy())  # type: ignore[no-untyped-call]
    shifted = distributions.Independent(both("Normal", {"loc": A + 1, "scale": B})[0], 1)
    theirs_shifted = torch.distributions.Independent(
        both("Normal", {"loc": A + 1, "scale": B})[1], 1
    )
    check(
        distributions.kl_divergence(law, shifted),
        torch.distributions.kl_divergence(other, theirs_shifted),
    )
    with pytest.raises(ShapeError, match="not so many axes"):
        distributions.Independent(ours, 3)


def test_mixtures_are_pytorchs() -> None:
    Tensor.manual_seed(6)
    ours, theirs = both("Normal", {"loc": A, "scale": B})
    shares, other = both("Categorical", {"probs": SHARES})
    law = distributions.MixtureSameFamily(shares, ours)
    mixture = torch.distributions.MixtureSameFamily(other, theirs, validate_args=False)
    at = np.array([0.3, 2.0], np.float32)
    check(law.log_prob(Tensor(at)), mixture.log_prob(torch.tensor(at)))  # type: ignore[no-untyped-call]
    check(law.cdf(Tensor(at)), mixture.cdf(torch.tensor(at)))  # type: ignore[no-untyped-call]
    check(law.mean, mixture.mean)
    check(law.variance, mixture.variance)
    drawn = law.sample((20_000,)).numpy()
    np.testing.assert_allclose(drawn.mean(0), mixture.mean.numpy(), atol=0.06)
    np.testing.assert_allclose(drawn.var(0), mixture.variance.numpy(), rtol=0.1)


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
    ("name", "count"), [("Bernoulli", None), ("Binomial", 3.0), ("NegativeBinomial", 2.0)]
)
def test_great_odds_have_pytorchs_density_and_gradient(name: str, count: float | None) -> None:
    odds, at = np.array([-100.0, 100.0, 0.3], np.float32), np.ones((2, 1), np.float32)
    at[0] = 0.0
    others = {} if count is None else {"total_count": count}
    ours, theirs = Tensor(odds, requires_grad=True), torch.tensor(odds, requires_grad=True)
    found = getattr(distributions, name)(logits=ours, **others).log_prob(Tensor(at))
    law = getattr(torch.distributions, name)(logits=theirs, validate_args=False, **others)
    want = law.log_prob(torch.tensor(at))
    check(found.detach(), want.detach())
    found.sum().backward()
    want.sum().backward()
    check(ours.grad, theirs.grad)


def test_certain_trials_have_densities_and_divergences() -> None:
    never = distributions.NegativeBinomial(2.0, Tensor([0.0]))
    np.testing.assert_allclose(
        never.log_prob(Tensor([0.0, 1.0])).numpy(), [0.0, -math.inf], atol=1e-6
    )
    p = distributions.Geometric(Tensor([0.5, 1.0]))
    found = distributions.kl_divergence(p, distributions.Geometric(1.0))
    assert found.tolist() == [math.inf, 0.0]
    nothing = distributions.Poisson(Tensor([0.0]))
    assert distributions.kl_divergence(nothing, distributions.Poisson(2.0)).tolist() == [2.0]


OUTSIDE: dict[str, tuple[distributions.Distribution, list[float]]] = {
    "LogNormal": (distributions.LogNormal(0.0, 1.0), [-1.0, 0.0]),
    "Exponential": (distributions.Exponential(2.0), [-1.0]),
    "Gamma": (distributions.Gamma(1.0, 3.0), [-1.0]),
    "Beta": (distributions.Beta(1.0, 1.0), [-1.0, 2.0]),
    "Bernoulli": (distributions.Bernoulli(0.3), [-1.0, 2.0]),
    "Binomial": (distributions.Binomial(3, 0.3), [-0.5, 3.5]),
    "Geometric": (distributions.Geometric(0.3), [-1.0]),
    "NegativeBinomial": (distributions.NegativeBinomial(3, 0.3), [-0.5]),
    "Poisson": (distributions.Poisson(2.0), [-1.5]),
    "HalfNormal": (distributions.HalfNormal(1.0), [-1.0]),
    "HalfCauchy": (distributions.HalfCauchy(1.0), [-1.0]),
    "Weibull": (distributions.Weibull(1.0, 2.0), [-1.0]),
    "Pareto": (distributions.Pareto(1.0, 2.0), [0.5]),
    "InverseGamma": (distributions.InverseGamma(1.0, 2.0), [-1.0, 0.0]),
    "Kumaraswamy": (distributions.Kumaraswamy(1.0, 1.0), [-1.0, 2.0]),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_cannot_be_drawn_has_no_density_and_shares_from_0_to_1(name: str) -> None:
    law, places = OUTSIDE[name]
    assert set(law.log_prob(Tensor(places)).tolist()) == {-math.inf}
    assert law.log_prob(Tensor([math.nan])).isnan().all().item()
    if type(law).cdf is not distributions.Distribution.cdf:
        assert law.cdf(Tensor(places)).tolist() == [float(place > 1) for place in places]


def test_vectors_that_cannot_be_drawn_have_no_density() -> None:
    assert distributions.Dirichlet(Tensor([1.0, 1.0])).log_prob(Tensor([-1.0, 2.0])).item() < -1e9
    law = distributions.Multinomial(3, Tensor([0.5, 0.5]))
    assert law.log_prob(Tensor([[1.0, 1.0], [-1.0, 4.0]])).tolist() == [-math.inf, -math.inf]


def test_a_category_below_0_is_an_error() -> None:
    with pytest.raises(BoundsError, match="out of range"):
        distributions.Categorical(Tensor([0.5, 0.5])).log_prob(Tensor([-1])).tolist()


def test_draws_of_tiny_concentrations_are_at_the_ends() -> None:
    Tensor.manual_seed(9)
    tiny = Tensor([1e-3, 1e-3])
    shares = distributions.Dirichlet(tiny).sample((2000,)).numpy()
    np.testing.assert_allclose(shares.sum(-1), 1.0, atol=1e-6)
    for drawn in (shares[:, 0], distributions.Beta(tiny[0], tiny[1]).sample((2000,)).numpy()):
        assert (np.minimum(drawn, 1 - drawn) < 1e-3).mean() > 0.98
        assert abs(drawn.mean() - 0.5) < 0.05
    assert (distributions.Gamma(tiny, 1.0).sample((2000,)).numpy() > 0).all()


def test_cold_relaxed_draws_have_a_density() -> None:
    Tensor.manual_seed(9)
    law = distributions.RelaxedBernoulli(0.01, logits=Tensor([0.0, 50.0]))
    assert law.log_prob(law.sample((500,))).isfinite().all().item()


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
        distributions.kl_divergence(distributions.Cauchy(0, 1), distributions.Laplace(0, 1))
