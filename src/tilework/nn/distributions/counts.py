"""Distributions of counts, and of categories as vectors."""

from __future__ import annotations

import math

from tilework.base.errors import UserError
from tilework.nn.distributions.continuous import gamma_draws, waits
from tilework.nn.distributions.discrete import Categorical
from tilework.nn.distributions.distribution import (
    Distribution,
    Parameter,
    Trials,
    least_above_zero,
    one_of,
)
from tilework.tensor.tensor import Tensor


class Binomial(Trials):
    """How many of so many trials succeed.

    Args:
        total_count: how many trials there are.
        probs: the chance of each.
        logits: the logarithm of its odds, instead.
    """

    def __init__(
        self,
        total_count: Parameter = 1,
        probs: Parameter | None = None,
        logits: Parameter | None = None,
    ) -> None:
        super().__init__(probs, logits, total_count)
        (self.total_count,) = self._others

    @property
    def mean(self) -> Tensor:
        """The mean of each law."""
        return self.total_count * self.probs

    @property
    def variance(self) -> Tensor:
        """The variance of each law."""
        return self.mean * self._rest()

    @property
    def mode(self) -> Tensor:
        """The most probable draw of each law."""
        return ((self.total_count + 1) * self.probs).floor().minimum(self.total_count)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        drawn: Tensor = self.total_count.expand(*shape).contiguous().binomial(self.probs)
        return drawn

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the probability."""
        n, rest = self.total_count, self.total_count - value
        ways = (n + 1).lgamma() - (value + 1).lgamma() - (rest + 1).lgamma()
        found = ways + self._successes(value) + self._failures(rest)
        return ((value < 0) | (rest < 0)).where(-math.inf, found)

    def entropy(self) -> Tensor:
        """The entropy of each law, in nats; the greatest number of trials is read for it."""
        most = int(self.total_count.max().item())
        counts = Tensor.arange(most + 1, dtype=self.probs.dtype, device=self.probs.device)
        counts = counts.reshape(-1, *[1] * len(self.batch_shape))
        # Beyond its own trials a law has no share, and a count of 0 stands for such counts.
        is_one = counts <= self.total_count
        found = self.log_prob(is_one.where(counts, 0.0))
        share = is_one.where(found.exp(), 0.0)
        return -(share.eq(0).where(0.0, share * found.maximum(-1e4))).sum(0)


class Geometric(Trials):
    """How many trials fail before one succeeds.

    Args:
        probs: the chance of each.
        logits: the logarithm of its odds, instead.
    """

    def __init__(self, probs: Parameter | None = None, logits: Parameter | None = None) -> None:
        super().__init__(probs, logits)

    @property
    def mean(self) -> Tensor:
        """The mean of each law."""
        return self.probs.reciprocal() - 1

    @property
    def variance(self) -> Tensor:
        """The variance of each law."""
        return self.mean / self.probs

    @property
    def mode(self) -> Tensor:
        """The most probable draw of each law."""
        return self.probs.zeros_like()

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return (waits(shape, self.probs) / -(-self.probs).log1p()).floor()

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the probability."""
        found = self._failures(value) + self._successes(value.full_like(1))
        return (value < 0).where(-math.inf, found)

    def entropy(self) -> Tensor:
        """The entropy of each law, in nats."""
        return self._entropy_of_one() / self.probs


class NegativeBinomial(Trials):
    """How many trials succeed before so many have failed.

    Args:
        total_count: how many must fail; need not be whole.
        probs: the chance of each trial to succeed.
        logits: the logarithm of its odds, instead.
    """

    def __init__(
        self,
        total_count: Parameter,
        probs: Parameter | None = None,
        logits: Parameter | None = None,
    ) -> None:
        super().__init__(probs, logits, total_count)
        (self.total_count,) = self._others

    @property
    def mean(self) -> Tensor:
        """The mean of each law."""
        return self.total_count * self.logits.exp()

    @property
    def variance(self) -> Tensor:
        """The variance of each law."""
        return self.mean / (-self.logits).sigmoid()

    @property
    def mode(self) -> Tensor:
        """The most probable draw of each law."""
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(0)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        rates = gamma_draws(self.total_count.expand(*shape)) * self.logits.exp()
        drawn: Tensor = rates.contiguous().poisson()
        return drawn

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the probability."""
        n = self.total_count
        ways = (n + value).lgamma() - (value + 1).lgamma() - n.lgamma()
        # No failure is waited for: there is no trial.
        ways = (n + value).eq(0).where(0.0, ways)
        found = ways + self._failures(n) + self._successes(value)
        return (value < 0).where(-math.inf, found)


class _Categories(Distribution):
    """What is drawn are vectors with a number for each category."""

    def __init__(self, probs: Tensor | None, logits: Tensor | None) -> None:
        one_of(type(self).__name__, probs, logits)
        self.categorical = Categorical(probs, logits)
        self.probs, self.logits = self.categorical.probs, self.categorical.logits
        super().__init__(self.categorical.batch_shape, (int(self.probs.shape[-1]),))

    def _one_hot(self, shape: tuple[int, ...]) -> Tensor:
        drawn = self.categorical._draw(shape)
        count = self.event_shape[0]
        return (
            drawn.unsqueeze(-1).eq(Tensor.arange(count, device=drawn.device)).cast(self.probs.dtype)
        )


class Multinomial(_Categories):
    """How often each category comes up in so many draws.

    Args:
        total_count: how many draws there are.
        probs: of each category, along the last axis, up to a common factor.
        logits: their logarithms, up to a common summand, instead.

    Raises:
        UserError: the number of draws is no number from 0 on.
    """

    def __init__(
        self, total_count: int = 1, probs: Tensor | None = None, logits: Tensor | None = None
    ) -> None:
        if isinstance(total_count, bool) or not isinstance(total_count, int) or total_count < 0:
            raise UserError(
                "Multinomial: the number of draws makes no sense",
                got=total_count,
                expected="an integer from 0 on",
            )
        self.total_count = total_count
        super().__init__(probs, logits)

    @property
    def mean(self) -> Tensor:
        """The mean of each law."""
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        """The variance of each law."""
        return self.mean * (1 - self.probs)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return self._one_hot((self.total_count, *shape[:-1])).sum(0)

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the probability."""
        ways = math.lgamma(self.total_count + 1) - (value + 1).lgamma().sum(-1)
        found = ways + value.xlogy(self.probs).sum(-1)
        is_other_count = (value.sum(-1) - self.total_count).abs() > 0
        return ((value < 0).any(-1) | is_other_count).where(-math.inf, found)


class OneHotCategorical(_Categories):
    """One category in each draw, as a vector of zeros and a one.

    Args:
        probs: of each category, along the last axis, up to a common factor.
        logits: their logarithms, up to a common summand, instead.
    """

    def __init__(self, probs: Tensor | None = None, logits: Tensor | None = None) -> None:
        super().__init__(probs, logits)

    @property
    def mean(self) -> Tensor:
        """The mean of each law."""
        return self.probs

    @property
    def variance(self) -> Tensor:
        """The variance of each law."""
        return self.probs * (1 - self.probs)

    @property
    def mode(self) -> Tensor:
        """The most probable draw of each law."""
        count = self.event_shape[0]
        return self.categorical.mode.one_hot(count).cast(self.probs.dtype)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return self._one_hot(shape[:-1])

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the probability."""
        return self.categorical.log_prob(value.argmax(-1))

    def entropy(self) -> Tensor:
        """The entropy of each law, in nats."""
        return self.categorical.entropy()


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """`OneHotCategorical` whose draws have the gradient of the probabilities."""

    has_rsample = True

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return self._one_hot(shape[:-1]).detach() + (self.probs - self.probs.detach())


class RelaxedBernoulli(Trials):
    """Numbers between 0 and 1 that are near one of them the colder it is; draws have gradients.

    Args:
        temperature: the colder, the nearer.
        probs: of 1.
        logits: the logarithm of the odds, instead.
    """

    has_rsample = True

    def __init__(
        self,
        temperature: Parameter,
        probs: Parameter | None = None,
        logits: Parameter | None = None,
    ) -> None:
        super().__init__(probs, logits, temperature)
        (self.temperature,) = self._others

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        # The logarithm of the odds of a uniform number.
        noise = waits(shape, self.logits).log() - waits(shape, self.logits).log()
        found = ((self.logits + noise) / self.temperature).sigmoid()
        # A draw that is rounded to 0 or 1 would have no density.
        kind = found.dtype
        return found.clamp(least_above_zero(kind), 1 - 2.0**-kind.mantissa_bits)

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        other = (-value).log1p()
        difference = self.logits - (value.log() - other) * self.temperature
        found = self.temperature.log() + difference - difference.softplus() * 2
        return found - value.log() - other


class RelaxedOneHotCategorical(_Categories):
    """Vectors that are near one category the colder it is; draws have gradients.

    Args:
        temperature: the colder, the nearer.
        probs: of each category, along the last axis, up to a common factor.
        logits: their logarithms, up to a common summand, instead.
    """

    has_rsample = True

    def __init__(
        self,
        temperature: Parameter,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
    ) -> None:
        super().__init__(probs, logits)
        if not isinstance(temperature, Tensor):
            options = {"dtype": self.logits.dtype, "device": self.logits.device}
            temperature = Tensor(float(temperature), **options)
        self.temperature = temperature

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        scores = self.logits - waits(shape, self.logits).log()
        return (scores / self.temperature).softmax(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        count = self.event_shape[0]
        logarithm = value.log()
        found = (self.logits - logarithm * self.temperature).log_softmax(-1).sum(-1)
        scale = self.temperature.log() * (count - 1) + math.lgamma(count)
        return found + scale - logarithm.sum(-1)
