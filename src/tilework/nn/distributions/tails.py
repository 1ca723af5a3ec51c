"""Distributions of real numbers with long tails, of extremes, and of ratios."""

from __future__ import annotations

import math
from typing import Final

from tilework.nn.distributions.continuous import Cauchy, Gamma, Normal, gamma_draws, waits
from tilework.nn.distributions.distribution import (
    Distribution,
    LocationScale,
    Parameter,
    check_positive,
    read_parameters,
)
from tilework.tensor.tensor import Tensor

_EULER: Final = 0.57721566490153286


class _Half(Distribution):
    """The magnitude of a draw of a distribution that is even around 0."""

    has_rsample = True
    base: Normal | Cauchy

    @property
    def scale(self) -> Tensor:
        """The scale of the whole distribution."""
        return self.base.scale

    @property
    def mode(self) -> Tensor:
        """The most probable draw of each law."""
        return self.scale.zeros_like()

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return self.base._draw(shape).abs()

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        return (value < 0).where(-math.inf, self.base.log_prob(value) + math.log(2))

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of what is at most `value`."""
        return self.base.cdf(value.clamp(0)) * 2 - 1

    def icdf(self, value: Tensor) -> Tensor:
        """Where the probability of what is at most that is `value`."""
        return self.base.icdf((value + 1) / 2)

    def entropy(self) -> Tensor:
        """The entropy of each law, in nats."""
        return self.base.entropy() - math.log(2)


class HalfNormal(_Half):
    """The magnitude of a normal draw around 0.

    Args:
        scale: the standard deviation of the whole distribution.
    """

    def __init__(self, scale: Parameter) -> None:
        self.base = Normal(0.0, scale)
        super().__init__(self.base.batch_shape)

    @property
    def mean(self) -> Tensor:
        """The mean of each law."""
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Tensor:
        """The variance of each law."""
        return self.scale.square() * (1 - 2 / math.pi)


class HalfCauchy(_Half):
    """The magnitude of a draw of a Cauchy distribution around 0; its mean is infinite.

    Args:
        scale: the distance within which half of the draws are.
    """

    def __init__(self, scale: Parameter) -> None:
        self.base = Cauchy(0.0, scale)
        super().__init__(self.base.batch_shape)

    @property
    def mean(self) -> Tensor:
        """The mean of each law."""
        return self.scale.full_like(math.inf)

    @property
    def variance(self) -> Tensor:
        """The variance of each law, which is infinite too."""
        return self.scale.full_like(math.inf)


class StudentT(Distribution):
    """Student's t-distribution; its draws have no gradient.

    Args:
        df: the degrees of freedom.
        loc: the middle.
        scale: what draws around 0 are multiplied by.
    """

    def __init__(self, df: Parameter, loc: Parameter = 0.0, scale: Parameter = 1.0) -> None:
        check_positive(type(self).__name__, df=df, scale=scale)
        self.df, self.loc, self.scale = read_parameters(df, loc, scale)
        super().__init__(self.df.shape)

    @property
    def mean(self) -> Tensor:
        """The mean of each law; NaN where there is none."""
        return (self.df > 1).where(self.loc, math.nan)

    @property
    def variance(self) -> Tensor:
        """The variance of each law; NaN where there is none."""
        is_finite = self.df > 2
        safe = is_finite.where(self.df, 3.0)
        found = is_finite.where(self.scale.square() * safe / (safe - 2), math.inf)
        return (self.df > 1).where(found, math.nan)

    @property
    def mode(self) -> Tensor:
        """The most probable draw of each law."""
        return self.loc

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        drawn = Tensor.randn(*shape, dtype=self.df.dtype, device=self.df.device)
        half = self.df / 2
        ratio = half / gamma_draws(half.expand(*shape))
        return self.loc + self.scale * drawn * ratio.sqrt()

    def _normaliser(self) -> Tensor:
        of_scale = self.scale.log() + self.df.log() * 0.5 + 0.5 * math.log(math.pi)
        return of_scale + (self.df * 0.5).lgamma() - ((self.df + 1) * 0.5).lgamma()

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        square = ((value - self.loc) / self.scale).square()
        return (self.df + 1) * -0.5 * (square / self.df).log1p() - self._normaliser()

    def entropy(self) -> Tensor:
        """The entropy of each law, in nats."""
        above = (self.df + 1) * 0.5
        return above * (above.digamma() - (self.df * 0.5).digamma()) + self._normaliser()


class Gumbel(LocationScale):
    """The distribution of the greatest of many.

    Args:
        loc: the most probable value.
        scale: how far draws are from it.
    """

    @property
    def mean(self) -> Tensor:
        """The mean of each law."""
        return self.loc + self.scale * _EULER

    @property
    def variance(self) -> Tensor:
        """The variance of each law."""
        return self.scale.square() * (math.pi**2 / 6)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return self.loc - self.scale * waits(shape, self.loc).log()

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        z = (self.loc - value) / self.scale
        return z - z.exp() - self.scale.log()

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of what is at most `value`."""
        return (-((self.loc - value) / self.scale).exp()).exp()

    def icdf(self, value: Tensor) -> Tensor:
        """Where the probability of what is at most that is `value`."""
        return self.loc - self.scale * (-value.log()).log()

    def entropy(self) -> Tensor:
        """The entropy of each law, in nats."""
        return self.scale.log() + (1 + _EULER)


class Weibull(Distribution):
    """The distribution of lifetimes that end more or less often the longer they last.

    Args:
        scale: the time by which all but 1 / e have ended.
        concentration: above 1 they end more often later.
    """

    has_rsample = True

    def __init__(self, scale: Parameter, concentration: Parameter) -> None:
        check_positive(type(self).__name__, scale=scale, concentration=concentration)
        self.scale, self.concentration = read_parameters(scale, concentration)
        super().__init__(self.scale.shape)

    def _moment(self, power: int) -> Tensor:
        return (self.concentration.reciprocal() * power + 1).lgamma().exp()

    @property
    def mean(self) -> Tensor:
        """The mean of each law."""
        return self.scale * self._moment(1)

    @property
    def variance(self) -> Tensor:
        """The variance of each law."""
        return self.scale.square() * (self._moment(2) - self._moment(1).square())

    @property
    def mode(self) -> Tensor:
        """The most probable draw of each law."""
        inverse = self.concentration.reciprocal()
        return self.scale * (1 - inverse).clamp(0) ** inverse

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return self.scale * waits(shape, self.scale) ** self.concentration.reciprocal()

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        share, power = value / self.scale, self.concentration
        found = (power / self.scale).log() + (power - 1).xlogy(share) - share**power
        return (value < 0).where(-math.inf, found)

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of what is at most `value`."""
        return -(-((value.clamp(0) / self.scale) ** self.concentration)).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        """Where the probability of what is at most that is `value`."""
        return self.scale * (-(-value).log1p()) ** self.concentration.reciprocal()

    def entropy(self) -> Tensor:
        """The entropy of each law, in nats."""
        inverse = self.concentration.reciprocal()
        return (1 - inverse) * _EULER + (self.scale * inverse).log() + 1


class Pareto(Distribution):
    """The distribution of what is at least a scale and falls off by a power.

    Args:
        scale: the least value.
        alpha: the power.
    """

    has_rsample = True

    def __init__(self, scale: Parameter, alpha: Parameter) -> None:
        check_positive(type(self).__name__, scale=scale, alpha=alpha)
        self.scale, self.alpha = read_parameters(scale, alpha)
        super().__init__(self.scale.shape)

    @property
    def mean(self) -> Tensor:
        """The mean of each law, which may be infinite."""
        a = self.alpha.maximum(1.0)
        return a * self.scale / (a - 1)

    @property
    def variance(self) -> Tensor:
        """The variance of each law, which may be infinite."""
        a = self.alpha.maximum(2.0)
        return self.scale.square() * a / ((a - 1).square() * (a - 2))

    @property
    def mode(self) -> Tensor:
        """The most probable draw of each law."""
        return self.scale

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return self.scale * (waits(shape, self.scale) / self.alpha).exp()

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        a = self.alpha
        found = a.log() + a * self.scale.log() - (a + 1) * value.log()
        return (value < self.scale).where(-math.inf, found)

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of what is at most `value`."""
        found = -(self.alpha * (self.scale / value).log()).expm1()
        return (value < self.scale).where(0.0, found)

    def icdf(self, value: Tensor) -> Tensor:
        """Where the probability of what is at most that is `value`."""
        return self.scale * (-(-value).log1p() / self.alpha).exp()

    def entropy(self) -> Tensor:
        """The entropy of each law, in nats."""
        inverse = self.alpha.reciprocal()
        return (self.scale * inverse).log() + inverse + 1


class InverseGamma(Distribution):
    """The distribution of what one is divided by a draw of `Gamma`; its draws have no gradient.

    Args:
        concentration: of the gamma distribution.
        rate: what its draws are divided by.
    """

    def __init__(self, concentration: Parameter, rate: Parameter) -> None:
        self.base = Gamma(concentration, rate)
        self.concentration, self.rate = self.base.concentration, self.base.rate
        super().__init__(self.base.batch_shape)

    @property
    def mean(self) -> Tensor:
        """The mean of each law, which may be infinite."""
        a = self.concentration
        return (a > 1).where(self.rate / (a > 1).where(a - 1, 1.0), math.inf)

    @property
    def variance(self) -> Tensor:
        """The variance of each law, which may be infinite."""
        a = (self.concentration > 2).where(self.concentration, 3.0)
        found = self.rate.square() / ((a - 1).square() * (a - 2))
        return (self.concentration > 2).where(found, math.inf)

    @property
    def mode(self) -> Tensor:
        """The most probable draw of each law."""
        return self.rate / (self.concentration + 1)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return self.base._draw(shape).reciprocal()

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        found = self.base.log_prob(value.reciprocal()) - value.log() * 2
        return (value <= 0).where(-math.inf, found)

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of what is at most `value`."""
        return (value <= 0).where(0.0, 1 - self.base.cdf(value.reciprocal()))

    def entropy(self) -> Tensor:
        """The entropy of each law, in nats."""
        a = self.concentration
        return a + self.rate.log() + a.lgamma() - (a + 1) * a.digamma()


class Chi2(Gamma):
    """The distribution of a sum of squares of standard normal draws; no gradient by `df`.

    Args:
        df: how many they are.
    """

    def __init__(self, df: Parameter) -> None:
        check_positive(type(self).__name__, df=df)
        (self.df,) = read_parameters(df)
        super().__init__(self.df * 0.5, self.df.full_like(0.5))


class FisherSnedecor(Distribution):
    """The distribution of a ratio of two means of squares; its draws have no gradient.

    Args:
        df1: how many squares there are above.
        df2: and below.
    """

    def __init__(self, df1: Parameter, df2: Parameter) -> None:
        check_positive(type(self).__name__, df1=df1, df2=df2)
        self.df1, self.df2 = read_parameters(df1, df2)
        super().__init__(self.df1.shape)

    @property
    def mean(self) -> Tensor:
        """The mean of each law; NaN where there is none."""
        below = (self.df2 > 2).where(self.df2, math.nan)
        return below / (below - 2)

    @property
    def variance(self) -> Tensor:
        """The variance of each law; NaN where there is none."""
        a, b = self.df1, (self.df2 > 4).where(self.df2, math.nan)
        return b.square() * 2 * (a + b - 2) / (a * (b - 2).square() * (b - 4))

    @property
    def mode(self) -> Tensor:
        """The most probable draw of each law."""
        found = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return (self.df1 > 2).where(found, math.nan)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        a, b = self.df1 * 0.5, self.df2 * 0.5
        above = gamma_draws(a.expand(*shape)) / a
        return above / (gamma_draws(b.expand(*shape)) / b)

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        a, b = self.df1 * 0.5, self.df2 * 0.5
        ratio = self.df1 / self.df2
        found = (a + b).lgamma() - a.lgamma() - b.lgamma() + a * ratio.log()
        found = found + (a - 1).xlogy(value) - (a + b) * (ratio * value).log1p()
        return (value < 0).where(-math.inf, found)


class Kumaraswamy(Distribution):
    """A distribution of numbers in (0, 1) like `Beta`, whose draws have gradients.

    Args:
        concentration1: how strongly it leans to 1.
        concentration0: how strongly it leans to 0.
    """

    has_rsample = True

    def __init__(self, concentration1: Parameter, concentration0: Parameter) -> None:
        check_positive(
            type(self).__name__, concentration1=concentration1, concentration0=concentration0
        )
        self.concentration1, self.concentration0 = read_parameters(concentration1, concentration0)
        super().__init__(self.concentration1.shape)

    def _moment(self, power: int) -> Tensor:
        a, b = self.concentration1.reciprocal() * power + 1, self.concentration0
        return (a.lgamma() + b.lgamma() - (a + b).lgamma() + b.log()).exp()

    @property
    def mean(self) -> Tensor:
        """The mean of each law."""
        return self._moment(1)

    @property
    def variance(self) -> Tensor:
        """The variance of each law."""
        return self._moment(2) - self._moment(1).square()

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        wait = waits(shape, self.concentration1) / self.concentration0
        return (-(-wait).expm1()) ** self.concentration1.reciprocal()

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        a, b = self.concentration1, self.concentration0
        found = a.log() + b.log() + (a - 1).xlogy(value) + (b - 1).xlog1py(-(value**a))
        return ((value < 0) | (value > 1)).where(-math.inf, found)

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of what is at most `value`."""
        logarithm = (-(value.clamp(0, 1) ** self.concentration1)).log1p()
        return -(self.concentration0 * logarithm).expm1()

    def icdf(self, value: Tensor) -> Tensor:
        """Where the probability of what is at most that is `value`."""
        share = -((-value).log1p() / self.concentration0).expm1()
        return share ** self.concentration1.reciprocal()

    def entropy(self) -> Tensor:
        """The entropy of each law, in nats."""
        a, b = self.concentration1, self.concentration0
        steps = (b + 1).digamma() + _EULER
        return 1 - b.reciprocal() + (1 - a.reciprocal()) * steps - a.log() - b.log()
