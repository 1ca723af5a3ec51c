"""What distributions share: shapes, draws, and how parameters are read."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Self

from tilework import dtypes
from tilework.base.errors import ShapeError, UnsupportedError, UserError
from tilework.tensor.tensor import Tensor
from tilework.tensor.variable import format_shape

if TYPE_CHECKING:
    from tilework.dtypes import DType

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
    def mode(self) -> Tensor:
        """The most probable draw of each law; NaN where there is no such one."""
        raise self._lacking("mode")

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

    def perplexity(self) -> Tensor:
        """The exponential of the entropy."""
        return self.entropy().exp()

    def expand(self, batch_shape: Sequence[int]) -> Self:
        """The same laws, repeated along axes of one or of none.

        Args:
            batch_shape: how many laws there are then.

        Raises:
            ShapeError: the shape of the laws does not broadcast to that.

        Example:
            >>> from tilework.nn.distributions import Normal
            >>> Normal(Tensor([0.0, 1.0]), 1.0).expand((3, 2)).sample().shape
            (3, 2)
        """
        old, new = self.batch_shape, tuple(batch_shape)
        if not fits_into(old, new):
            raise ShapeError(
                f"{type(self).__name__}: the laws don't broadcast to this shape",
                got=format_shape(new),
                expected=f"one that {format_shape(old)} broadcasts to",
            )

        def widened(value: Any) -> Any:
            # Parameters, and laws that this one is made of, begin with the axes of the laws.
            if isinstance(value, Distribution):
                return value.expand((*new, *value.batch_shape[len(old) :]))
            if isinstance(value, Tensor):
                return value.expand(*new, *value.shape[len(old) :])
            return [widened(each) for each in value] if isinstance(value, list) else value

        made = copy(self)
        for name, value in vars(self).items():
            if name != "temperature":  # one for all laws
                setattr(made, name, widened(value))
        made.batch_shape = new
        return made

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


class LocationScale(Distribution):
    """Laws of a standard one moved and scaled; draws have gradients.

    Args:
        loc: what is added.
        scale: what draws around 0 are multiplied by.

    Raises:
        UserError: the scale is a number that is not above 0.
    """

    has_rsample = True

    def __init__(self, loc: Parameter, scale: Parameter) -> None:
        check_positive(type(self).__name__, scale=scale)
        self.loc, self.scale = read_parameters(loc, scale)
        super().__init__(self.loc.shape)

    @property
    def mode(self) -> Tensor:
        """The most probable draw of each law."""
        return self.loc


class Trials(Distribution):
    """Laws of trials that succeed by chance; they are exact for great odds and for certain ones.

    Args:
        probs: the chance of each trial, or None.
        logits: the logarithm of its odds, or None.
        others: what else belongs to the law; `_others` has it in one shape with the chances.

    Raises:
        UserError: none or both of `probs` and `logits` are given.
    """

    def __init__(
        self, probs: Parameter | None, logits: Parameter | None, *others: Parameter
    ) -> None:
        one_of(type(self).__name__, probs, logits)
        self._is_of_odds = probs is None
        first, *self._others = read_parameters(logits if probs is None else probs, *others)
        if probs is None:
            self.probs, self.logits = first.sigmoid(), first
        else:
            self.probs, self.logits = first, first.log() - (-first).log1p()
        super().__init__(first.shape)

    def _rest(self) -> Tensor:
        """The chance to fail."""
        return (-self.logits).sigmoid() if self._is_of_odds else 1 - self.probs

    def _successes(self, count: Tensor) -> Tensor:
        """`count` times the logarithm of the chance; 0 where `count` is."""
        if self._is_of_odds:
            return _times(count, self.logits.logsigmoid())
        return count.xlogy(self.probs)

    def _failures(self, count: Tensor) -> Tensor:
        """`count` times the logarithm of the chance to fail; 0 where `count` is."""
        if self._is_of_odds:
            return _times(count, (-self.logits).logsigmoid())
        return count.xlog1py(-self.probs)

    def _entropy_of_one(self) -> Tensor:
        return -(self._successes(self.probs) + self._failures(self._rest()))


def fits_into(shape: Sequence[int], wide: Sequence[int]) -> bool:
    """Whether a shape broadcasts to another, which stays as it is."""
    pairs = zip(reversed(shape), reversed(wide), strict=False)
    return len(shape) <= len(wide) and all(size in (1, other) for size, other in pairs)


def _times(count: Tensor, logarithm: Tensor) -> Tensor:
    return count * (count.eq(0) & logarithm.isinf()).where(0.0, logarithm)


def least_above_zero(dtype: DType) -> float:
    """The least positive number that has all its digits."""
    found: float = 2.0 ** (2 - 2 ** (dtype.exponent_bits - 1))
    return found


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
