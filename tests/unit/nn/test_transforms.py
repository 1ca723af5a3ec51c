"""Transforms of draws, laws of them, and divergences between kinds are PyTorch's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch

from tilework import Tensor
from tilework.base.errors import ShapeError, UnsupportedError, UserError
from tilework.nn import distributions

X = np.array([[-1.5, 0.25, 2.0], [0.5, -0.75, 1.0]], np.float32)
LOC = np.array([0.5, -1.0, 2.0], np.float32)

#: Names of transforms with their arguments; arrays become tensors.
PARTS: dict[str, list[tuple[str, tuple[Any, ...]]]] = {
    "exp": [("ExpTransform", ())],
    "power": [("ExpTransform", ()), ("PowerTransform", (-1.5,))],
    "sigmoid": [("SigmoidTransform", ())],
    "tanh": [("TanhTransform", ())],
    "softplus": [("SoftplusTransform", ())],
    "affine": [("AffineTransform", (LOC, -2.0))],
    "affine of vectors": [("AffineTransform", (LOC, LOC, 1))],
    "several": [("AffineTransform", (LOC, 0.5)), ("TanhTransform", ()), ("ExpTransform", ())],
    "shares": [("StickBreakingTransform", ())],
    "shares of moved": [("AffineTransform", (LOC, 2.0)), ("StickBreakingTransform", ())],
    "reshaped": [("ReshapeTransform", ((2, 3), (3, 2)))],
}


def made(place: Any, parts: list[tuple[str, tuple[Any, ...]]], tensor: Any) -> list[Any]:
    def given(value: Any) -> Any:
        return tensor(value) if isinstance(value, np.ndarray) else value

    return [getattr(place, name)(*[given(each) for each in args]) for name, args in parts]


def check(found: Any, expected: Any, places: float = 3e-5) -> None:
    assert found.shape == tuple(expected.shape)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=places, atol=1e-5)


@pytest.mark.parametrize("name", PARTS)
def test_a_transform_its_inverse_its_slope_and_its_law_are_pytorchs(name: str) -> None:
    ours = made(distributions, PARTS[name], Tensor)
    theirs = made(torch.distributions, PARTS[name], torch.tensor)
    whole = distributions.ComposeTransform(ours)
    other = torch.distributions.ComposeTransform(theirs)
    x, y = Tensor(X), other(torch.tensor(X))
    made_y = whole(x)
    check(made_y, y)
    check(whole.inv(made_y), torch.tensor(X))
    slopes: Any = other.log_abs_det_jacobian  # without types there
    check(whole.log_abs_det_jacobian(x, made_y), slopes(torch.tensor(X), y))
    law = distributions.TransformedDistribution(
        distributions.Normal(Tensor(np.zeros_like(X)), 1.5), ours
    )
    base = torch.distributions.Normal(torch.zeros(2, 3), 1.5)
    wanted: Any = torch.distributions.TransformedDistribution(base, theirs, validate_args=False)
    assert (law.batch_shape, law.event_shape) == (wanted.batch_shape, wanted.event_shape)
    check(law.log_prob(made_y), wanted.log_prob(y))
    assert law.rsample((2,)).shape == tuple(wanted.sample((2,)).shape)
    if not law.event_shape:
        check(law.cdf(made_y), wanted.cdf(y))
        check(law.icdf(law.cdf(made_y)), y, 1e-3)


def test_a_law_grows_to_the_parameters_of_its_transform() -> None:
    move = distributions.AffineTransform(Tensor(LOC), 2.0)
    law = distributions.TransformedDistribution(distributions.Normal(0.0, 1.0), move)
    assert (law.batch_shape, law.sample((4,)).shape) == ((3,), (4, 3))
    wanted = distributions.Normal(Tensor(LOC), 2.0).log_prob(Tensor(X))
    check(law.log_prob(Tensor(X)), wanted)
    moved = distributions.TransformedDistribution(distributions.Normal(1.0, 1.0), move)
    check(distributions.kl_divergence(law, moved), torch.full((3,), 0.5))
    other = distributions.TransformedDistribution(distributions.Normal(0.0, 1.0), []).expand((3,))
    with pytest.raises(UnsupportedError, match="transformed in two ways"):
        distributions.kl_divergence(law, other)


def test_what_is_remembered_is_the_operand_itself() -> None:
    squash = distributions.TanhTransform(cache_size=1)
    law = distributions.TransformedDistribution(distributions.Normal(30.0, 0.1), squash)
    drawn = law.sample((3,))
    assert drawn.tolist() == [1.0, 1.0, 1.0]
    assert np.isfinite(law.log_prob(drawn).numpy()).all()
    with pytest.raises(UserError, match="so much is not remembered"):
        distributions.TanhTransform(cache_size=2)


def test_a_transform_that_loses_something_has_no_density() -> None:
    law = distributions.TransformedDistribution(
        distributions.Normal(Tensor(LOC), 1.0), distributions.SoftmaxTransform()
    )
    assert law.event_shape == (3,)
    with pytest.raises(UnsupportedError, match="several operands have the same result"):
        law.log_prob(law.sample())
    with pytest.raises(ShapeError, match="too few axes"):
        distributions.TransformedDistribution(
            distributions.Normal(0.0, 1.0), distributions.SoftmaxTransform()
        )


# --- divergences between kinds --------------------------------------------------------------------

KINDS: dict[str, tuple[float, ...]] = {
    "Normal": (0.5, 1.5), "Laplace": (0.3, 0.7), "Exponential": (1.3,), "Gamma": (2.5, 1.7),
    "Beta": (1.5, 2.5), "Uniform": (0.2, 0.9), "Pareto": (0.1, 3.5), "Gumbel": (0.2, 1.4),
    "Bernoulli": (0.3,), "Poisson": (1.2,), "Binomial": (4, 0.3),
}  # fmt: skip


def test_divergences_between_kinds_are_pytorchs() -> None:
    compared, wrong = 0, []
    for first, args in KINDS.items():
        for second, others in KINDS.items():
            p, q = getattr(torch.distributions, first)(*args), None
            q = getattr(torch.distributions, second)(*others)
            try:
                want = float(torch.distributions.kl_divergence(p, q))
            except NotImplementedError:
                continue
            mine = getattr(distributions, first)(*args)
            found = distributions.kl_divergence(mine, getattr(distributions, second)(*others))
            compared += 1
            if not math.isclose(found.item(), want, rel_tol=1e-4, abs_tol=1e-5):
                wrong.append((first, second, found.item(), want))
    assert wrong == []
    assert compared > 55


def test_a_law_of_an_interval_is_infinitely_far_where_it_reaches_beyond() -> None:
    low = Tensor([-0.5, 0.0, 0.25])
    found = distributions.kl_divergence(
        distributions.Uniform(low, 1.0), distributions.Exponential(2.0)
    )
    assert found.tolist()[0] == math.inf
    assert np.isfinite(found.numpy()[1:]).all()
    more = distributions.Binomial(Tensor([2.0, 3.0, 1.0]), 0.5)
    far = distributions.kl_divergence(more, distributions.Binomial(2.0, 0.25)).numpy()
    assert far[1] == math.inf
    assert math.isnan(far[2])  # there is no formula for fewer trials
    assert abs(far[0] - 2 * 0.5 * math.log(4 / 3)) < 1e-6


# --- what laws have in common ---------------------------------------------------------------------


def test_laws_without_a_variance_are_infinitely_far_from_a_normal_one() -> None:
    normal = distributions.Normal(0.0, 1.0)
    cauchy = distributions.kl_divergence(distributions.Cauchy(0.0, 1.0), normal)
    student = distributions.StudentT(Tensor([1.0, 2.0, 3.0]))
    found = distributions.kl_divergence(student, normal).numpy()
    assert cauchy.item() == math.inf
    np.testing.assert_allclose(found, [math.inf, math.inf, 0.6454610], rtol=1e-5)


def test_a_kind_that_is_another_one_with_fixed_parameters_has_its_divergences() -> None:
    p, q = distributions.Exponential(1.3), distributions.Chi2(3.0)
    want = torch.distributions.kl_divergence(
        torch.distributions.Exponential(1.3), torch.distributions.Chi2(3.0)
    )
    check(distributions.kl_divergence(p, q), want)


def test_entropies_of_trials_of_different_numbers() -> None:
    counts, chances = np.array([1.0, 7.0, 300.0]), np.array([[0.0], [0.3], [0.9]])
    law = distributions.Binomial(Tensor(counts), Tensor(chances))
    want = scipy.stats.binom(counts, chances).entropy()
    np.testing.assert_allclose(law.entropy().numpy(), want, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "args"),
    [("Normal", (LOC, 1.0)), ("Categorical", (np.abs(X),)), ("Gamma", (np.abs(LOC), 2.0)),
     ("Beta", (np.array([2.0, 0.5, 3.0], np.float32), 1.5)), ("LogNormal", (LOC, 0.5)),
     ("Bernoulli", (np.array([0.2, 0.7], np.float32),)), ("Exponential", (np.abs(LOC),)),
     ("Pareto", (np.abs(LOC), 2.0)), ("Weibull", (np.abs(LOC), 1.5)), ("Poisson", (np.abs(LOC),)),
     ("Binomial", (5, np.array([0.2, 0.95, 1.0], np.float32))), ("StudentT", (3.0, LOC, 1.0)),
     ("HalfNormal", (np.abs(LOC),)), ("OneHotCategorical", (np.abs(X),)),
     ("NegativeBinomial", (4.0, np.array([0.2, 0.7], np.float32)))],
)  # fmt: skip
def test_the_most_probable_draw_is_pytorchs_and_stays_so_when_laws_are_repeated(
    name: str, args: tuple[Any, ...]
) -> None:
    def of(place: Any, tensor: Any) -> Any:
        given = [tensor(each) if isinstance(each, np.ndarray) else each for each in args]
        return getattr(place, name)(*given)

    ours, theirs = of(distributions, Tensor), of(torch.distributions, torch.tensor)
    check(ours.mode, theirs.mode)
    wide = ours.expand((2, *ours.batch_shape))
    assert wide.batch_shape == (2, *ours.batch_shape)
    check(wide.mode, theirs.expand((2, *theirs.batch_shape)).mode)


def test_laws_grow_only_to_shapes_that_theirs_fit() -> None:
    with pytest.raises(ShapeError, match="don't broadcast to this shape"):
        distributions.Normal(Tensor(LOC), 1.0).expand((2,))
    mixture = distributions.MixtureSameFamily(
        distributions.Categorical(Tensor([0.5, 0.5])),
        distributions.Independent(distributions.Normal(Tensor(np.zeros((2, 3))), 1.0), 1),
    ).expand((4,))
    assert (mixture.sample((5,)).shape, mixture.log_prob(Tensor(LOC)).shape) == ((5, 4, 3), (4,))


def test_shares_that_fit_no_laws_are_told_at_once() -> None:
    laws = distributions.Normal(Tensor(np.zeros((2, 3))), 1.0)
    shares = distributions.Categorical(Tensor(np.ones((5, 3))))
    with pytest.raises(ShapeError, match="the shares don't fit the laws"):
        distributions.MixtureSameFamily(shares, laws)
