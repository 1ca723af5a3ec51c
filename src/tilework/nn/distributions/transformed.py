"""Laws of functions of draws."""

from __future__ import annotations

from collections.abc import Sequence

from tilework.base.errors import ShapeError
from tilework.nn.distributions.continuous import Normal
from tilework.nn.distributions.distribution import Distribution, Parameter
from tilework.nn.distributions.transforms import (
    ComposeTransform,
    StickBreakingTransform,
    Transform,
    sum_of_last,
)
from tilework.nn.distributions.vectors import Independent
from tilework.tensor.tensor import Tensor
from tilework.tensor.variable import format_shape


class TransformedDistribution(Distribution):
    """The law of a function of draws.

    Args:
        base_distribution: the law of the draws.
        transforms: what is made of them, the first one first.

    Raises:
        ShapeError: a draw has fewer axes than a transform takes together.

    Example:
        >>> from tilework.nn.distributions import TanhTransform
        >>> law = TransformedDistribution(Normal(0.0, 1.0), TanhTransform(cache_size=1))
        >>> f"{law.log_prob(Tensor(0.5)).item():.4f}"
        '-0.7821'
    """

    def __init__(
        self, base_distribution: Distribution, transforms: Transform | Sequence[Transform]
    ) -> None:
        self.transforms = [transforms] if isinstance(transforms, Transform) else list(transforms)
        whole = ComposeTransform(self.transforms)
        own = (*base_distribution.batch_shape, *base_distribution.event_shape)
        if len(own) < whole.domain_dim:
            raise ShapeError(
                "TransformedDistribution: a draw has too few axes for the transforms",
                got=f"draws of shape {format_shape(own)}",
                expected=f"at least {whole.domain_dim} axes",
            )
        shape = whole.forward_shape(own)
        wide = whole.inverse_shape(shape)
        events = len(base_distribution.event_shape)
        base = base_distribution
        if wide != own:  # a transform has parameters of more laws
            base = base.expand(wide[: len(wide) - events])
        if whole.domain_dim > events:
            base = Independent(base, whole.domain_dim - events)
        self.base_dist = base
        self.has_rsample = base.has_rsample
        count = whole.codomain_dim + max(events - whole.domain_dim, 0)
        super().__init__(shape[: len(shape) - count], shape[len(shape) - count :])

    def expand(self, batch_shape: Sequence[int]) -> TransformedDistribution:
        """The same laws, repeated along axes of one or of none.

        Args:
            batch_shape: how many laws there are then.
        """
        made = super().expand(batch_shape)
        made.transforms = self.transforms
        return made

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        for transform in reversed(self.transforms):
            shape = transform.inverse_shape(shape)
        drawn = self.base_dist._draw(shape)
        for transform in self.transforms:
            drawn = transform(drawn)
        return drawn

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Draws; no gradient flows through them.

        Args:
            sample_shape: how many of each law; its axes come first.
        """
        with Tensor.no_grad():  # the draw itself, which a transform may remember
            return self._draw(self._extended(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        count = len(self.event_shape)
        stretched: Tensor | float = 0.0
        for transform in reversed(self.transforms):
            before = transform.undo(value)
            count += transform.domain_dim - transform.codomain_dim
            slope = transform.log_abs_det_jacobian(before, value)
            stretched = stretched + sum_of_last(slope, count - transform.domain_dim)
            value = before
        found = self.base_dist.log_prob(value)
        return sum_of_last(found, count - len(self.base_dist.event_shape)) - stretched

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of what is at most `value`."""
        for transform in reversed(self.transforms):
            value = transform.undo(value)
        return self._of_rising(self.base_dist.cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        """Where the probability of what is at most that is `value`."""
        found = self.base_dist.icdf(self._of_rising(value))
        for transform in self.transforms:
            found = transform(found)
        return found

    def _of_rising(self, share: Tensor) -> Tensor:
        """A share of draws, counted from the other end where the transforms fall."""
        if not all(transform.bijective for transform in self.transforms) or self.event_shape:
            raise self._lacking("cdf")
        sign = ComposeTransform(self.transforms).sign
        return (share - 0.5) * sign + 0.5


class LogisticNormal(TransformedDistribution):
    """Shares that add up to 1, made of normal draws.

    Args:
        loc: the means of the normal draws, along the last axis; there is a share more.
        scale: their standard deviations.

    Example:
        >>> LogisticNormal(Tensor([0.0, 0.0]), 1.0).event_shape
        (3,)
    """

    def __init__(self, loc: Parameter, scale: Parameter) -> None:
        super().__init__(Normal(loc, scale), StickBreakingTransform())
