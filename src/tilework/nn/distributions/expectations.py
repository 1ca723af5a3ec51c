"""Where laws draw from, and means of functions of their draws, as divergences need them."""

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
    LogNormal,
    Normal,
    Uniform,
)
from tilework.nn.distributions.counts import Binomial, Geometric
from tilework.nn.distributions.discrete import Bernoulli, Poisson
from tilework.nn.distributions.distribution import Distribution, Parameter
from tilework.nn.distributions.tails import Gumbel, HalfCauchy, HalfNormal, Pareto, StudentT
from tilework.tensor.tensor import Tensor

_EULER: Final = 0.57721566490153286

Table = dict[type, Callable[..., Any]]

_EVERYWHERE: Final = (-math.inf, math.inf)
_ABOVE_ZERO: Final = (0.0, math.inf)

#: The least and the greatest draw of real numbers.
RANGES: Final[Table] = {
    **dict.fromkeys((Normal, Laplace, Cauchy, Gumbel, StudentT), lambda law: _EVERYWHERE),
    **dict.fromkeys(
        (Exponential, Gamma, LogNormal, HalfNormal, HalfCauchy), lambda law: _ABOVE_ZERO
    ),
    Beta: lambda law: (0.0, 1.0),
    Uniform: lambda law: (law.low, law.high),
    Pareto: lambda law: (law.scale, math.inf),
}

#: The same of laws of whole numbers.
COUNTS: Final[Table] = {
    Bernoulli: lambda law: (0.0, 1.0),
    Binomial: lambda law: (0.0, law.total_count),
    **dict.fromkeys((Poisson, Geometric), lambda law: _ABOVE_ZERO),
}


def find(table: Table, law: Distribution) -> Callable[..., Any] | None:
    """The entry of the kind of a law, or of the nearest kind that it is made of."""
    return next((table[kind] for kind in type(law).__mro__ if kind in table), None)


def _of_uniform(law: Uniform) -> Tensor:
    # The antiderivative of log(x) is x log(x) - x.
    return (law.high.xlogy(law.high) - law.low.xlogy(law.low)) / (law.high - law.low) - 1


#: The mean of the logarithm of a draw.
LOGARITHMS: Final[Table] = {
    Beta: lambda law: law.concentration1.digamma() - _total(law).digamma(),
    Exponential: lambda law: -law.rate.log() - _EULER,
    Gamma: lambda law: law.concentration.digamma() - law.rate.log(),
    LogNormal: lambda law: law.loc,
    Pareto: lambda law: law.scale.log() + law.alpha.reciprocal(),
    Uniform: _of_uniform,
}


def _total(law: Beta) -> Tensor:
    return law.concentration1 + law.concentration0


#: The mean of the logarithm of 1 less a draw.
LOGARITHMS_OF_REST: Final[Table] = {
    Beta: lambda law: law.concentration0.digamma() - _total(law).digamma(),
    Uniform: lambda law: _of_uniform(Uniform(1 - law.high, 1 - law.low)),
}


def _exponential_of_uniform(law: Uniform, rate: Tensor) -> Tensor:
    width = rate * (law.high - law.low)
    return (-rate * law.low).exp() * -(-width).expm1() / width


#: The mean of exp(-rate * draw), as a function of the law and the rate.
EXPONENTIALS: Final[Table] = {
    Exponential: lambda law, rate: law.rate / (law.rate + rate),
    Gamma: lambda law, rate: (-law.concentration * (rate / law.rate).log1p()).exp(),
    Normal: lambda law, rate: ((rate * law.scale).square() / 2 - rate * law.loc).exp(),
    Uniform: _exponential_of_uniform,
}


def range_of(law: Distribution) -> tuple[str, tuple[Parameter, Parameter]] | None:
    """Whether a law draws real or whole numbers, and from where to where."""
    for kind, table in (("real", RANGES), ("whole", COUNTS)):
        if (found := find(table, law)) is not None:
            return kind, found(law)
    return None


def reaches_beyond(p: Distribution, q: Distribution) -> Tensor | bool | None:
    """Whether p draws what q never does, for each pair of laws; None if that is not known."""
    first, second = range_of(p), range_of(q)
    if first is None or second is None or first[0] != second[0]:
        return None
    (low, high), (least, greatest) = first[1], second[1]
    below, above = _is_less(low, least), _is_less(greatest, high)
    if isinstance(below, Tensor):
        return True if above is True else below | above
    return True if below else above


def _is_less(a: Parameter, b: Parameter) -> Tensor | bool:
    """Whether a is less than b; parameters that are tensors are taken to be finite."""
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        is_sure = (not isinstance(a, Tensor) and a == -math.inf) or (
            not isinstance(b, Tensor) and b == math.inf
        )
        return is_sure or a < b
    return a < b
