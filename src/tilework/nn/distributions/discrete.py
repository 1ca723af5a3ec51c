"""Distributions of integers, kept in floats as in PyTorch; those of categories in int64."""

from __future__ import annotations

import math

from tilework import dtypes
from tilework.base.errors import ShapeError
from tilework.nn.distributions.distribution import (
    Distribution,
    Parameter,
    Trials,
    check_positive,
    one_of,
    read_parameters,
)
from tilework.tensor.tensor import Tensor


class Bernoulli(Trials):
    """1 with a probability, else 0.

    Args:
        probs: of 1.
        logits: the logarithm of the odds, instead.

    Example:
        >>> Bernoulli(0.5).entropy().item() == Bernoulli(logits=0.0).entropy().item()
        True
    """

    def __init__(self, probs: Parameter | None = None, logits: Parameter | None = None) -> None:
        super().__init__(probs, logits)

    @property
    def mean(self) -> Tensor:
        """The mean of each law."""
        return self.probs

    @property
    def variance(self) -> Tensor:
        """The variance of each law."""
        return self.probs * self._rest()

    @property
    def mode(self) -> Tensor:
        """The most probable draw of each law."""
        of_one = (self.probs >= 0.5).cast(self.probs.dtype)
        return self.probs.eq(0.5).where(math.nan, of_one)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        drawn = Tensor.rand(*shape, device=self.probs.device)
        return (drawn < self.probs).cast(self.probs.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the probability."""
        # Infinite where an outcome is impossible, and 0 where it is certain.
        found = self._successes(value) + self._failures(1 - value)
        return ((value < 0) | (value > 1)).where(-math.inf, found)

    def entropy(self) -> Tensor:
        """The entropy of each law, in nats."""
        return self._entropy_of_one()


class Categorical(Distribution):
    """Categories 0, 1, ... with probabilities along the last axis.

    Args:
        probs: of each category, up to a common factor.
        logits: their logarithms, up to a common summand, instead.

    Raises:
        ShapeError: there is no axis of categories.
    """

    def __init__(self, probs: Tensor | None = None, logits: Tensor | None = None) -> None:
        one_of(type(self).__name__, probs, logits)
        (given,) = read_parameters(logits if probs is None else probs)
        if not given.ndim:
            raise ShapeError("Categorical: there is no axis of categories", got=given.shape)
        if probs is None:
            self.logits = given.log_softmax(-1)
            self.probs = self.logits.exp()
        else:
            self.probs = given / given.sum(-1, keepdim=True)
            self.logits = self.probs.log()
        super().__init__(given.shape[:-1])

    @property
    def mode(self) -> Tensor:
        """The most probable draw of each law."""
        return self.probs.argmax(-1)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        # The greatest of logits with Gumbel's noise is a draw of their categories.
        count = self.logits.shape[-1]
        made = Tensor.empty(*shape, count, dtype=dtypes.float32, device=self.logits.device)
        noise = -made._exponential().log()
        return (self.logits.cast(dtypes.float32) + noise).argmax(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the probability of a category."""
        # A category below 0 is looked up where nothing is, which is an error.
        place = (value < 0).where(self.logits.shape[-1], value).cast(dtypes.index).unsqueeze(-1)
        lead = Tensor.broadcast_shapes(value.shape, self.batch_shape)
        logits = self.logits.expand(*lead, self.logits.shape[-1])
        return logits.gather(-1, place.expand(*lead, 1)).squeeze(-1)

    def entropy(self) -> Tensor:
        """The entropy of each law, in nats."""
        return -self.probs.xlogy(self.probs).sum(-1)


class Poisson(Distribution):
    """How many events there are in a unit of time.

    Args:
        rate: how many there are on the average.
    """

    def __init__(self, rate: Parameter) -> None:
        check_positive(type(self).__name__, rate=rate)
        (self.rate,) = read_parameters(rate)
        super().__init__(self.rate.shape)

    @property
    def mean(self) -> Tensor:
        """The mean of each law."""
        return self.rate

    @property
    def variance(self) -> Tensor:
        """The variance of each law."""
        return self.rate

    @property
    def mode(self) -> Tensor:
        """The most probable draw of each law."""
        return self.rate.floor()

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return self.rate.expand(*shape).contiguous().poisson()

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the probability."""
        found = value.xlogy(self.rate) - self.rate - (value + 1).lgamma()
        return (value < 0).where(-math.inf, found)
