"""How far a distribution is from one of another kind, in nats.

The divergence is the mean of -log q under p less the entropy of p.  Here are the means of log q for
each kind of q, made of few means under p; where p draws what q never does it is infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

from tilework.nn.distributions.continuous import (
    Beta,
    Cauchy,
    Exponential,
    Gamma,
    Laplace,
    Normal,
    Uniform,
)
from tilework.nn.distributions.discrete import Bernoulli, Poisson
from tilework.nn.distributions.distribution import Distribution
from tilework.nn.distributions.expectations import (
    EXPONENTIALS,
    LOGARITHMS,
    LOGARITHMS_OF_REST,
    find,
    reaches_beyond,
)
from tilework.nn.distributions.tails import Gumbel, Pareto, StudentT
from tilework.tensor.tensor import Tensor


def crossing(p: Distribution, q: Distribution) -> Tensor | None:
    """The divergence of laws of two kinds, or None where there is no formula.

    Args:
        p: what is drawn from.
        q: of another kind.
    """
    is_beyond = reaches_beyond(p, q)
    if is_beyond is True:
        shape = Tensor.broadcast_shapes(p.batch_shape, q.batch_shape)
        return p.mean.full_like(math.inf).expand(*shape)
    mean = find(_MEANS, q)
    found = None if mean is None or is_beyond is None else mean(p, q)
    if found is None:
        return None
    distance = -p.entropy() - found
    return is_beyond.where(math.inf, distance) if isinstance(is_beyond, Tensor) else distance


def _of_normal(p: Distribution, q: Normal) -> Tensor:
    square = p.variance + (p.mean - q.loc).square()
    if isinstance(p, Cauchy):  # no mean, so that draws are infinitely far on average
        square = square.full_like(math.inf)
    elif isinstance(p, StudentT):
        square = (p.df > 2).where(square, math.inf)
    return square / q.scale.square() * -0.5 - q.scale.log() - 0.5 * math.log(2 * math.pi)


def _of_laplace(p: Distribution, q: Laplace) -> Tensor | None:
    if type(p) is not Normal:
        return None
    # The mean magnitude of a normal draw around another middle.
    shift = (p.loc - q.loc) / p.scale
    bell = (shift.square() * -0.5).exp() * math.sqrt(2 / math.pi)
    distance = p.scale * (bell + shift * (shift / math.sqrt(2)).erf())
    return -distance / q.scale - (q.scale * 2).log()


def _of_exponential(p: Distribution, q: Exponential) -> Tensor:
    return q.rate.log() - q.rate * p.mean


def _of_gamma(p: Distribution, q: Gamma) -> Tensor | None:
    logarithm = find(LOGARITHMS, p)
    if logarithm is None:
        return None
    a = q.concentration
    mean: Tensor = logarithm(p)
    return a * q.rate.log() + (a - 1) * mean - q.rate * p.mean - a.lgamma()


def _of_beta(p: Distribution, q: Beta) -> Tensor | None:
    logarithm, of_rest = find(LOGARITHMS, p), find(LOGARITHMS_OF_REST, p)
    if logarithm is None or of_rest is None:
        return None
    means: tuple[Tensor, Tensor] = logarithm(p), of_rest(p)
    of_draws = (q.concentration1 - 1) * means[0] + (q.concentration0 - 1) * means[1]
    return of_draws - q._log_beta()


def _of_uniform(p: Distribution, q: Uniform) -> Tensor:
    return -(q.high - q.low).log()


def _of_pareto(p: Distribution, q: Pareto) -> Tensor | None:
    logarithm = find(LOGARITHMS, p)
    if logarithm is None:
        return None
    mean: Tensor = logarithm(p)
    return q.alpha.log() + q.alpha * q.scale.log() - (q.alpha + 1) * mean


def _of_gumbel(p: Distribution, q: Gumbel) -> Tensor | None:
    exponential = find(EXPONENTIALS, p)
    if exponential is None:
        return None
    rate = q.scale.reciprocal()
    middle = (q.loc - p.mean) * rate
    mean: Tensor = exponential(p, rate)
    return middle - (q.loc * rate).exp() * mean - q.scale.log()


def _of_poisson(p: Distribution, q: Poisson) -> Tensor | None:
    if type(p) is not Bernoulli:
        return None
    return p.probs.xlogy(q.rate) - q.rate


_MEANS: Final[dict[type, Callable[[Any, Any], Tensor | None]]] = {
    Normal: _of_normal, Laplace: _of_laplace, Exponential: _of_exponential, Gamma: _of_gamma,
    Beta: _of_beta, Uniform: _of_uniform, Pareto: _of_pareto, Gumbel: _of_gumbel,
    Poisson: _of_poisson,
}  # fmt: skip
