"""What distributions share: shapes, draws, and how parameters are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilework import dtypes
from tilework.base.errors import UnsupportedError, UserError
from tilework.tensor.tensor import Tensor

Parameter = float | Tensor


class Distribution:
    """A law of random numbers, one for each element of its parameters.

    Args:
        batch_shape: how many laws there are.
        event_shape: the shape of one draw.
    """

    #: Whether draws can be differentiated by the parameters.
    has_rsample = False

    def __init__(self, batch_shape: Sequence[int], event_shape: Sequence[int] = ()) -> None:
        self.batch_shape = tuple(batch_shape)
        self.event_shape = tuple(event_shape)

    @property
    def mean(self) -> Tensor:
        """The mean of each law."""
        raise self._lacking("mean")

    @property
    def variance(self) -> Tensor:
        """The variance of each law."""
        raise self._lacking("variance")

    @property
    def stddev(self) -> Tensor:
        """The root of the variance."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws; no gradient flows through them.

        Args:
            sample_shape: how many of each law; its axes come first.
        """
        with Tensor.no_grad():
            return self._draw(self._extended(sample_shape)).detach()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws through which gradients flow to the parameters.

        Args:
            sample_shape: how many of each law; its axes come first.

        Raises:
            UnsupportedError: draws of this kind have no gradient.
        """
        if not self.has_rsample:
            raise self._lacking("rsample")
        return self._draw(self._extended(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density, or of the probability, at `value`."""
        raise self._lacking("log_prob")

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of what is at most `value`."""
        raise self._lacking("cdf")

    def icdf(self, value: Tensor) -> Tensor:
        """Where the probability of what is at most that is `value`."""
        raise self._lacking("icdf")

    def entropy(self) -> Tensor:
        """The entropy of each law, in nats."""
        raise self._lacking("entropy")

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        raise self._lacking("sample")

    def _extended(self, sample_shape: Sequence[int]) -> tuple[int, ...]:
        return (*sample_shape, *self.batch_shape, *self.event_shape)

    def _lacking(self, what: str) -> UnsupportedError:
        return UnsupportedError(f"{type(self).__name__}: there is no {what} of this distribution")

    def __repr__(self) -> str:
        """The name and the shapes."""
        return (
            f"{type(self).__name__}(batch_shape={self.batch_shape}, event_shape={self.event_shape})"
        )


def read_parameters(*given: Any) -> tuple[Tensor, ...]:
    """Parameters as tensors of one shape, of floats."""
    first = next((each for each in given if isinstance(each, Tensor)), None)
    device = None if first is None else first.device
    kind = dtypes.default_float if first is None or not first.dtype.is_float else first.dtype
    found = []
    for each in given:
        made = each if isinstance(each, Tensor) else Tensor(float(each), dtype=kind, device=device)
        found.append(made if made.dtype.is_float else made.cast(kind))
    return tuple(found[0].broadcast_tensors(*found[1:])) if len(found) > 1 else tuple(found)


def check_positive(name: str, **given: Any) -> None:
    """See that parameters that are plain numbers are above 0; tensors are not read.

    Raises:
        UserError: one is not.
    """
    for parameter, value in given.items():
        if not isinstance(value, Tensor) and not value > 0:
            raise UserError(f"{name}: {parameter} is not above 0", got=value, expected="above 0")


def one_of(name: str, probs: Any, logits: Any) -> None:
    """See that exactly one of two descriptions is given.

    Raises:
        UserError: none or both are.
    """
    if (probs is None) == (logits is None):
        raise UserError(f"{name}: give either probs or logits")


def read_chances(
    name: str, probs: Parameter | None, logits: Parameter | None
) -> tuple[Tensor, Tensor]:
    """Chances and the logarithms of their odds, of which exactly one is given.

    Raises:
        UserError: none or both are given.
    """
    one_of(name, probs, logits)
    if probs is not None:
        (chances,) = read_parameters(probs)
        return chances, chances.log() - (-chances).log1p()
    (odds,) = read_parameters(logits)
    return odds.sigmoid(), odds
