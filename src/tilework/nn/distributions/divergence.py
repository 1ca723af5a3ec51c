"""How far one distribution is from another, in nats."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from tilework.base.errors import UnsupportedError
from tilework.nn.distributions.continuous import (
    Beta,
    Cauchy,
    Exponential,
    Gamma,
    Laplace,
    LogNormal,
    Normal,
    Uniform,
)
from tilework.nn.distributions.counts import Binomial, Geometric, OneHotCategorical
from tilework.nn.distributions.crossing import crossing
from tilework.nn.distributions.discrete import Bernoulli, Categorical, Poisson
from tilework.nn.distributions.distribution import Distribution, Trials
from tilework.nn.distributions.tails import Gumbel, HalfNormal, Pareto
from tilework.nn.distributions.transformed import TransformedDistribution
from tilework.nn.distributions.transforms import sum_of_last
from tilework.nn.distributions.vectors import Dirichlet, Independent, MultivariateNormal
from tilework.tensor.tensor import Tensor

_EULER: Final = 0.57721566490153286


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The mean of log(p / q) under p.

    Args:
        p: what is drawn from.
        q: what it is compared with; infinitely far where p draws what q never does.

    Raises:
        UnsupportedError: there is no formula for this pair.

    Example:
        >>> kl_divergence(Normal(0.0, 1.0), Normal(1.0, 1.0)).item()
        0.5
        >>> kl_divergence(Normal(0.0, 1.0), Exponential(1.0)).item()
        inf
    """
    formula = next((f for kind, f in _FORMULAS.items() if _are(kind, p, q)), None)
    found = formula(p, q) if formula is not None else crossing(p, q)
    if found is None:
        raise UnsupportedError(
            "kl_divergence: there is no formula for this pair",
            got=f"{type(p).__name__} and {type(q).__name__}",
            expected=f"two of one kind of {', '.join(kind.__name__ for kind in _FORMULAS)}",
            try_="the mean of p.log_prob(x) - q.log_prob(x) over draws x of p",
        )
    return found


def _are(kind: type, p: Distribution, q: Distribution) -> bool:
    return isinstance(p, kind) and isinstance(q, kind)


def _normal(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale).square()
    distance = ((p.loc - q.loc) / q.scale).square()
    return (ratio + distance - 1 - ratio.log()) * 0.5


def _laplace(p: Laplace, q: Laplace) -> Tensor:
    ratio, distance = p.scale / q.scale, (p.loc - q.loc).abs()
    return -ratio.log() + distance / q.scale + ratio * (-distance / p.scale).exp() - 1


def _exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return -ratio.log() + ratio - 1


def _uniform(p: Uniform, q: Uniform) -> Tensor:
    found = ((q.high - q.low) / (p.high - p.low)).log()
    return ((q.low > p.low) | (q.high < p.high)).where(float("inf"), found)


def _gamma(p: Gamma, q: Gamma) -> Tensor:
    a, b = p.concentration, q.concentration
    found = b * (p.rate / q.rate).log() + b.lgamma() - a.lgamma()
    return found + (a - b) * a.digamma() + (q.rate - p.rate) * (a / p.rate)


def _beta(p: Beta, q: Beta) -> Tensor:
    a, b = p.concentration1, p.concentration0
    total = a + b
    of_totals = q.concentration1 + q.concentration0
    found = q._log_beta() - p._log_beta()
    found = found + (a - q.concentration1) * a.digamma() + (b - q.concentration0) * b.digamma()
    return found + (of_totals - total) * total.digamma()


def _trials(p: Trials, q: Trials) -> Tensor:
    ones = p._successes(p.probs) - q._successes(p.probs)
    rest = p._rest()
    return ones + p._failures(rest) - q._failures(rest)


def _categorical(p: Categorical, q: Categorical) -> Tensor:
    return _share(p.probs, q.probs).sum(-1)


def _share(p: Tensor, q: Tensor) -> Tensor:
    """p log(p / q): 0 where p is, infinite where q alone is."""
    return p.xlogy(p) - p.xlogy(q)


def _poisson(p: Poisson, q: Poisson) -> Tensor:
    return _share(p.rate, q.rate) - (p.rate - q.rate)


def _geometric(p: Geometric, q: Geometric) -> Tensor:
    return _trials(p, q) / p.probs


def _cauchy(p: Cauchy, q: Cauchy) -> Tensor:
    square = (p.scale + q.scale).square() + (p.loc - q.loc).square()
    return square.log() - (p.scale * 4 * q.scale).log()


def _gumbel(p: Gumbel, q: Gumbel) -> Tensor:
    ratio = p.scale / q.scale
    of_loc, other = p.loc / q.scale, q.loc / q.scale
    mean = of_loc - other + ratio * _EULER
    return mean - ratio.log() - (1 + _EULER) + (other + (ratio + 1).lgamma() - of_loc).exp()


def _pareto(p: Pareto, q: Pareto) -> Tensor:
    ratio = q.alpha / p.alpha
    found = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return (p.scale < q.scale).where(math.inf, found)


def _dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    slope = a.digamma() - a.sum(-1, keepdim=True).digamma()
    return q._normaliser() - p._normaliser() + ((a - b) * slope).sum(-1)


def _multivariate_normal(p: MultivariateNormal, q: MultivariateNormal) -> Tensor:
    size = p.event_shape[0]
    batch = Tensor.broadcast_shapes(p.batch_shape, q.batch_shape)
    lower = q.scale_tril.expand(*batch, size, size)
    spread = lower.solve_triangular(p.scale_tril.expand(*batch, size, size), upper=False)
    distance = (q.loc - p.loc).expand(*batch, size).unsqueeze(-1)
    moved = lower.solve_triangular(distance, upper=False).square().sum((-2, -1))
    determinants = q._half_log_determinant() - p._half_log_determinant()
    return determinants + (spread.square().sum((-2, -1)) + moved - size) * 0.5


def _binomial(p: Binomial, q: Binomial) -> Tensor:
    """Of as many trials it is that of each; more trials than q has are infinitely far."""
    fewer = (p.total_count < q.total_count).where(math.nan, _trials(p, q) * p.total_count)
    return (p.total_count > q.total_count).where(math.inf, fewer)


def _transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise UnsupportedError("kl_divergence: draws are transformed in two ways")
    distance = kl_divergence(p.base_dist, q.base_dist)
    return sum_of_last(distance, distance.ndim - len(p.batch_shape))


def _independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise UnsupportedError("kl_divergence: other axes are taken together")
    return p._added(kl_divergence(p.base_dist, q.base_dist))


_FORMULAS: Final[dict[type, Callable[[Any, Any], Tensor]]] = {
    Normal: _normal, Laplace: _laplace, Exponential: _exponential, Uniform: _uniform,
    Gamma: _gamma, Beta: _beta, Bernoulli: _trials, Categorical: _categorical,
    Poisson: _poisson, LogNormal: lambda p, q: _normal(p.base, q.base),
    HalfNormal: lambda p, q: _normal(p.base, q.base), Geometric: _geometric, Cauchy: _cauchy,
    OneHotCategorical: lambda p, q: _categorical(p.categorical, q.categorical), Gumbel: _gumbel,
    Pareto: _pareto, Dirichlet: _dirichlet,
    MultivariateNormal: _multivariate_normal, Independent: _independent,
    Binomial: _binomial, TransformedDistribution: _transformed,
}  # fmt: skip
