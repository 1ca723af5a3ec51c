"""Distributions of real numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from tilework.nn.distributions.distribution import (
    Distribution,
    LocationScale,
    Parameter,
    check_positive,
    least_above_zero,
    read_parameters,
)
from tilework.tensor.tensor import Tensor

_LOG_ROOT: Final = math.log(math.sqrt(2 * math.pi))
#: Proposals for one draw of `Gamma`; each is taken with a probability above 0.95.
_PROPOSALS: Final = 8


class Normal(LocationScale):
    """The normal distribution.

    Args:
        loc: the mean.
        scale: the standard deviation.

    Example:
        >>> Normal(0.0, 1.0).cdf(Tensor(0.0)).item()
        0.5
    """

    @property
    def mean(self) -> Tensor:
        """The mean of each law."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """The variance of each law."""
        return self.scale.square()

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        drawn = Tensor.randn(*shape, dtype=self.loc.dtype, device=self.loc.device)
        return drawn * self.scale + self.loc

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        return ((value - self.loc) / self.scale).square() * -0.5 - self.scale.log() - _LOG_ROOT

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of what is at most `value`."""
        return ((value - self.loc) / self.scale).ndtr()

    def icdf(self, value: Tensor) -> Tensor:
        """Where the probability of what is at most that is `value`."""
        return self.loc + self.scale * (value * 2 - 1).erfinv() * math.sqrt(2)

    def entropy(self) -> Tensor:
        """The entropy of each law, in nats."""
        return self.scale.log() + (0.5 + _LOG_ROOT)


class LogNormal(Distribution):
    """The exponential of a normal distribution.

    Args:
        loc: the mean of the logarithm.
        scale: its standard deviation.
    """

    has_rsample = True

    def __init__(self, loc: Parameter, scale: Parameter) -> None:
        check_positive(type(self).__name__, scale=scale)
        self.base = Normal(loc, scale)
        self.loc, self.scale = self.base.loc, self.base.scale
        super().__init__(self.loc.shape)

    @property
    def mean(self) -> Tensor:
        """The mean of each law."""
        return (self.loc + self.scale.square() / 2).exp()

    @property
    def variance(self) -> Tensor:
        """The variance of each law."""
        square = self.scale.square()
        return square.expm1() * (self.loc * 2 + square).exp()

    @property
    def mode(self) -> Tensor:
        """The most probable draw of each law."""
        return (self.loc - self.scale.square()).exp()

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return self.base._draw(shape).exp()

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        logarithm = value.log()
        found = self.base.log_prob(logarithm) - logarithm
        return (value <= 0).where(-math.inf, found)

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of what is at most `value`."""
        return self.base.cdf(value.clamp(0).log())

    def icdf(self, value: Tensor) -> Tensor:
        """Where the probability of what is at most that is `value`."""
        return self.base.icdf(value).exp()

    def entropy(self) -> Tensor:
        """The entropy of each law, in nats."""
        return self.base.entropy() + self.loc


class Laplace(LocationScale):
    """The distribution whose density falls off exponentially on both sides.

    Args:
        loc: the mean.
        scale: the mean distance from it.
    """

    @property
    def mean(self) -> Tensor:
        """The mean of each law."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """The variance of each law."""
        return self.scale.square() * 2

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        # In the middle of an interval of [0, 1): the logarithms are finite.
        options = {"dtype": self.loc.dtype, "device": self.loc.device}
        magnitude = waits(shape, self.loc)
        sign = (Tensor.rand(*shape, **options) < 0.5).where(-1.0, 1.0)
        return self.loc + self.scale * magnitude * sign

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        return -(value - self.loc).abs() / self.scale - (self.scale * 2).log()

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of what is at most `value`."""
        z = (value - self.loc) / self.scale
        return 0.5 - z.sign() * (-z.abs()).expm1() * 0.5

    def icdf(self, value: Tensor) -> Tensor:
        """Where the probability of what is at most that is `value`."""
        term = value - 0.5
        return self.loc - self.scale * term.sign() * (term.abs() * -2).log1p()

    def entropy(self) -> Tensor:
        """The entropy of each law, in nats."""
        return (self.scale * 2).log() + 1


class Cauchy(LocationScale):
    """The distribution of a ratio of two normal draws, which has no mean.

    Args:
        loc: the middle.
        scale: the distance from it within which half of the draws are.
    """

    @property
    def mean(self) -> Tensor:
        """The mean of each law, which does not exist."""
        return self.loc.full_like(math.nan)

    @property
    def variance(self) -> Tensor:
        """The variance of each law: squares of draws have no finite mean."""
        return self.loc.full_like(math.inf)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        drawn = Tensor.rand(*shape, dtype=self.loc.dtype, device=self.loc.device)
        return self.icdf(drawn)

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        square = ((value - self.loc) / self.scale).square()
        return -math.log(math.pi) - self.scale.log() - square.log1p()

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of what is at most `value`."""
        return ((value - self.loc) / self.scale).atan() / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        """Where the probability of what is at most that is `value`."""
        return ((value - 0.5) * math.pi).tan() * self.scale + self.loc

    def entropy(self) -> Tensor:
        """The entropy of each law, in nats."""
        return self.scale.log() + math.log(4 * math.pi)


class Exponential(Distribution):
    """The distribution of waiting times.

    Args:
        rate: how many events there are in a unit of time.
    """

    has_rsample = True

    def __init__(self, rate: Parameter) -> None:
        check_positive(type(self).__name__, rate=rate)
        (self.rate,) = read_parameters(rate)
        super().__init__(self.rate.shape)

    @property
    def mean(self) -> Tensor:
        """The mean of each law."""
        return self.rate.reciprocal()

    @property
    def variance(self) -> Tensor:
        """The variance of each law."""
        return self.rate.square().reciprocal()

    @property
    def mode(self) -> Tensor:
        """The most probable draw of each law."""
        return self.rate.zeros_like()

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return waits(shape, self.rate) / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        return (value < 0).where(-math.inf, self.rate.log() - self.rate * value)

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of what is at most `value`."""
        return -(-self.rate * value.clamp(0)).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        """Where the probability of what is at most that is `value`."""
        return -(-value).log1p() / self.rate

    def entropy(self) -> Tensor:
        """The entropy of each law, in nats."""
        return 1 - self.rate.log()


class Uniform(Distribution):
    """The distribution of numbers that are equally likely in [low, high).

    Args:
        low: the least.
        high: what they stay below.
    """

    has_rsample = True

    def __init__(self, low: Parameter, high: Parameter) -> None:
        if not isinstance(low, Tensor) and not isinstance(high, Tensor):
            check_positive(type(self).__name__, **{"high - low": high - low})
        self.low, self.high = read_parameters(low, high)
        super().__init__(self.low.shape)

    @property
    def mean(self) -> Tensor:
        """The mean of each law."""
        return (self.low + self.high) / 2

    @property
    def variance(self) -> Tensor:
        """The variance of each law."""
        return (self.high - self.low).square() / 12

    @property
    def mode(self) -> Tensor:
        """The most probable draw of each law."""
        return self.low.full_like(math.nan)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        drawn = Tensor.rand(*shape, dtype=self.low.dtype, device=self.low.device)
        return self.low + drawn * (self.high - self.low)

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        is_inside = (value >= self.low) & (value < self.high)
        return is_inside.where(-(self.high - self.low).log(), -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of what is at most `value`."""
        return ((value - self.low) / (self.high - self.low)).clamp(0, 1)

    def icdf(self, value: Tensor) -> Tensor:
        """Where the probability of what is at most that is `value`."""
        return self.low + value * (self.high - self.low)

    def entropy(self) -> Tensor:
        """The entropy of each law, in nats."""
        return (self.high - self.low).log()


class Gamma(Distribution):
    """The gamma distribution; its draws have no gradient.

    Args:
        concentration: the shape.
        rate: what draws of rate 1 are divided by.
    """

    def __init__(self, concentration: Parameter, rate: Parameter) -> None:
        check_positive(type(self).__name__, concentration=concentration, rate=rate)
        self.concentration, self.rate = read_parameters(concentration, rate)
        super().__init__(self.rate.shape)

    @property
    def mean(self) -> Tensor:
        """The mean of each law."""
        return self.concentration / self.rate

    @property
    def variance(self) -> Tensor:
        """The variance of each law."""
        return self.concentration / self.rate.square()

    @property
    def mode(self) -> Tensor:
        """The most probable draw of each law."""
        return ((self.concentration - 1) / self.rate).clamp(0)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return gamma_draws(self.concentration.expand(*shape)) / self.rate

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        a = self.concentration
        found = a * self.rate.log() + (a - 1).xlogy(value) - self.rate * value - a.lgamma()
        return (value < 0).where(-math.inf, found)

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of what is at most `value`."""
        return self.concentration.gammainc(self.rate * value.clamp(0))

    def entropy(self) -> Tensor:
        """The entropy of each law, in nats."""
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1 - a) * a.digamma()


class Beta(Distribution):
    """The beta distribution of numbers in (0, 1); its draws have no gradient.

    Args:
        concentration1: how strongly it leans to 1.
        concentration0: how strongly it leans to 0.
    """

    def __init__(self, concentration1: Parameter, concentration0: Parameter) -> None:
        check_positive(
            type(self).__name__, concentration1=concentration1, concentration0=concentration0
        )
        self.concentration1, self.concentration0 = read_parameters(concentration1, concentration0)
        super().__init__(self.concentration1.shape)

    @property
    def mean(self) -> Tensor:
        """The mean of each law."""
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def variance(self) -> Tensor:
        """The variance of each law."""
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total.square() * (total + 1))

    @property
    def mode(self) -> Tensor:
        """The most probable draw of each law."""
        return most_probable_shares(self.concentration1, self.concentration0)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        # By their logarithms: both draws may be too small for the dtype.
        a = log_gamma_draws(self.concentration1.expand(*shape))
        return (a - log_gamma_draws(self.concentration0.expand(*shape))).sigmoid()

    def _log_beta(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        return a.lgamma() + b.lgamma() - (a + b).lgamma()

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        a, b = self.concentration1, self.concentration0
        found = (a - 1).xlogy(value) + (b - 1).xlog1py(-value) - self._log_beta()
        return ((value < 0) | (value > 1)).where(-math.inf, found)

    def entropy(self) -> Tensor:
        """The entropy of each law, in nats."""
        a, b = self.concentration1, self.concentration0
        found = self._log_beta() - (a - 1) * a.digamma() - (b - 1) * b.digamma()
        return found + (a + b - 2) * (a + b).digamma()


def most_probable_shares(a: Tensor, b: Tensor) -> Tensor:
    """Where x ** (a - 1) * (1 - x) ** (b - 1) is greatest; NaN where no place or many are."""
    inside = (a - 1) / (a + b - 2)
    at_end = ((a < 1) & (b < 1)).where(math.nan, (a > b).where(1.0, 0.0))
    return ((a > 1) & (b > 1)).where(inside, (a.eq(1) & b.eq(1)).where(math.nan, at_end))


def waits(shape: Sequence[int], like: Tensor) -> Tensor:
    """Draws of the exponential distribution of rate 1, above 0, of the dtype of `like`."""
    made = Tensor.empty(*shape, dtype=like.dtype, device=like.device)
    found: Tensor = made._exponential().cast(like.dtype)
    return found


def gamma_draws(concentration: Tensor) -> Tensor:
    """Draws of rate 1, one for each element, above 0."""
    found, power = _gamma_factors(concentration)
    return (found * power.exp()).clamp(least_above_zero(concentration.dtype))


def log_gamma_draws(concentration: Tensor) -> Tensor:
    """The logarithms of draws of rate 1, however small they are."""
    found, power = _gamma_factors(concentration)
    return found.log() + power


def _gamma_factors(concentration: Tensor) -> tuple[Tensor, Tensor]:
    """Draws of rate 1: a factor, and the logarithm of another (Marsaglia and Tsang, 2000).

    Below a concentration of 1 a draw of one more is multiplied by a power of a uniform number.
    Eight proposals are made; where none is taken, once in 10^10, the draw is the mode.
    """
    shape: Sequence[int] = concentration.shape
    options = {"dtype": concentration.dtype, "device": concentration.device}
    is_small = concentration < 1
    d = is_small.where(concentration + 1, concentration) - 1 / 3
    c = (d * 9).rsqrt()
    found = d
    for _ in range(_PROPOSALS):
        x = Tensor.randn(*shape, **options)
        v = (c * x + 1) ** 3
        is_positive = v > 0
        v = is_positive.where(v, 1.0)
        u = Tensor.rand(*shape, **options)
        is_taken = is_positive & (u.log() < x.square() * 0.5 + d - d * v + d * v.log())
        found = is_taken.where(d * v, found)
    power = (1.0 - Tensor.rand(*shape, **options)).log() / concentration
    return found, is_small.where(power, 0.0)
