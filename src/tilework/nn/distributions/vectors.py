"""Distributions of vectors, and distributions made of others."""

from __future__ import annotations

import math

from tilework.base.errors import ShapeError, UserError
from tilework.nn.distributions.continuous import log_gamma_draws
from tilework.nn.distributions.discrete import Categorical
from tilework.nn.distributions.distribution import Distribution, fits_into, read_parameters
from tilework.tensor.tensor import Tensor


class Dirichlet(Distribution):
    """Shares that add up to 1; draws have no gradient.

    Args:
        concentration: how strongly draws lean to each share, along the last axis.

    Raises:
        ShapeError: there is no axis of shares.
    """

    def __init__(self, concentration: Tensor) -> None:
        (self.concentration,) = read_parameters(concentration)
        if not self.concentration.ndim:
            raise ShapeError("Dirichlet: there is no axis of shares", got=self.concentration.shape)
        shape = self.concentration.shape
        super().__init__(shape[:-1], shape[-1:])

    @property
    def mean(self) -> Tensor:
        """The mean of each law."""
        return self.concentration / self.concentration.sum(-1, keepdim=True)

    @property
    def variance(self) -> Tensor:
        """The variance of each share."""
        total = self.concentration.sum(-1, keepdim=True)
        return self.concentration * (total - self.concentration) / (total.square() * (total + 1))

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        # By their logarithms: all draws may be too small for the dtype.
        return log_gamma_draws(self.concentration.expand(*shape)).softmax(-1)

    def _normaliser(self) -> Tensor:
        a = self.concentration
        return a.lgamma().sum(-1) - a.sum(-1).lgamma()

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        found = (self.concentration - 1).xlogy(value).sum(-1) - self._normaliser()
        return (value < 0).any(-1).where(-math.inf, found)

    def entropy(self) -> Tensor:
        """The entropy of each law, in nats."""
        a, count = self.concentration, self.event_shape[0]
        total = a.sum(-1)
        found = self._normaliser() + (total - count) * total.digamma()
        return found - ((a - 1) * a.digamma()).sum(-1)


class MultivariateNormal(Distribution):
    """Normal vectors; exactly one of the three matrices is given.

    Args:
        loc: the mean, along the last axis.
        covariance_matrix: the covariances.
        precision_matrix: their inverse.
        scale_tril: the lower triangle whose product with its transpose they are.

    Raises:
        UserError: not exactly one matrix is given.
        ShapeError: the mean is no vector, or the matrix does not fit it.

    Example:
        >>> law = MultivariateNormal(Tensor([0.0, 0.0]), Tensor([[1.0, 0.0], [0.0, 4.0]]))
        >>> law.variance.tolist()
        [1.0, 4.0]
    """

    has_rsample = True

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
    ) -> None:
        given = [x for x in (covariance_matrix, precision_matrix, scale_tril) if x is not None]
        if len(given) != 1:
            raise UserError(
                "MultivariateNormal: give exactly one of its matrices", got=f"{len(given)} of them"
            )
        size = loc.shape[-1] if loc.ndim else None
        if size is None or given[0].ndim < 2 or given[0].shape[-2:] != (size, size):
            raise ShapeError(
                "MultivariateNormal: mean and matrix don't fit",
                got=f"{loc.shape} and {given[0].shape}",
                expected="(..., n) and (..., n, n)",
            )
        batch = Tensor.broadcast_shapes(loc.shape[:-1], given[0].shape[:-2])
        self.loc = loc.expand(*batch, size)
        if scale_tril is not None:
            lower = scale_tril
        elif covariance_matrix is not None:
            lower = covariance_matrix.cholesky()
        else:
            lower = given[0].inv().cholesky()
        self.scale_tril = lower.expand(*batch, size, size)
        super().__init__(batch, (size,))

    @property
    def mean(self) -> Tensor:
        """The mean of each law."""
        return self.loc

    @property
    def covariance_matrix(self) -> Tensor:
        """The covariances of each law."""
        return self.scale_tril @ self.scale_tril.transpose(-2, -1)

    @property
    def variance(self) -> Tensor:
        """The variance of each element."""
        return self.scale_tril.square().sum(-1)

    @property
    def mode(self) -> Tensor:
        """The most probable draw of each law."""
        return self.loc

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        drawn = Tensor.randn(*shape, dtype=self.loc.dtype, device=self.loc.device)
        found: Tensor = self.loc + (self.scale_tril @ drawn.unsqueeze(-1)).squeeze(-1)
        return found

    def _half_log_determinant(self) -> Tensor:
        diagonal: Tensor = self.scale_tril.diagonal(0, -2, -1)
        return diagonal.log().sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        centred = (value - self.loc).unsqueeze(-1)
        batch = centred.shape[:-2]
        lower = self.scale_tril.expand(*batch, *self.scale_tril.shape[-2:])
        solved: Tensor = lower.solve_triangular(centred, upper=False).squeeze(-1)
        constant = self.event_shape[0] * math.log(2 * math.pi)
        return (solved.square().sum(-1) + constant) * -0.5 - self._half_log_determinant()

    def entropy(self) -> Tensor:
        """The entropy of each law, in nats."""
        return self._half_log_determinant() + self.event_shape[0] * 0.5 * (
            1 + math.log(2 * math.pi)
        )


class Independent(Distribution):
    """Some of the last axes of laws taken together as one draw.

    Args:
        base_distribution: the laws.
        reinterpreted_batch_ndims: how many axes.

    Raises:
        ShapeError: there are not so many axes.
    """

    def __init__(self, base_distribution: Distribution, reinterpreted_batch_ndims: int) -> None:
        batch = base_distribution.batch_shape
        kept = len(batch) - reinterpreted_batch_ndims
        if reinterpreted_batch_ndims < 0 or kept < 0:
            raise ShapeError(
                "Independent: there are not so many axes",
                got=f"{reinterpreted_batch_ndims} of {batch}",
            )
        self.base_dist = base_distribution
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        self.has_rsample = base_distribution.has_rsample
        super().__init__(batch[:kept], (*batch[kept:], *base_distribution.event_shape))

    @property
    def mean(self) -> Tensor:
        """The mean of each law."""
        return self.base_dist.mean

    @property
    def variance(self) -> Tensor:
        """The variance of each element."""
        return self.base_dist.variance

    @property
    def mode(self) -> Tensor:
        """The most probable draw of each law."""
        return self.base_dist.mode

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return self.base_dist._draw(shape)

    def _added(self, x: Tensor) -> Tensor:
        count = self.reinterpreted_batch_ndims
        return x.sum(tuple(range(-count, 0))) if count else x

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density of all together."""
        return self._added(self.base_dist.log_prob(value))

    def entropy(self) -> Tensor:
        """The entropy of all together, in nats."""
        return self._added(self.base_dist.entropy())


class MixtureSameFamily(Distribution):
    """One of some laws of a kind, drawn anew for each draw.

    Args:
        mixture_distribution: which law is drawn.
        component_distribution: the laws, along the last axis of its batch.

    Raises:
        ShapeError: the numbers of laws differ, or the shares don't broadcast to the laws.

    Example:
        >>> from tilework.nn.distributions import Normal
        >>> law = MixtureSameFamily(
        ...     Categorical(Tensor([0.5, 0.5])), Normal(Tensor([0.0, 2.0]), Tensor([1.0, 1.0]))
        ... )
        >>> law.mean.item(), law.variance.item()
        (1.0, 2.0)
    """

    def __init__(
        self, mixture_distribution: Categorical, component_distribution: Distribution
    ) -> None:
        batch = component_distribution.batch_shape
        if not batch or mixture_distribution.probs.shape[-1] != batch[-1]:
            raise ShapeError(
                "MixtureSameFamily: the numbers of laws differ",
                got=f"{mixture_distribution.probs.shape} and {batch}",
            )
        lead = mixture_distribution.batch_shape
        # As many axes as the laws have, or fewer, each of the same size or of one.
        if not fits_into(lead, batch[:-1]):
            raise ShapeError(
                "MixtureSameFamily: the shares don't fit the laws",
                got=f"shares of shape {mixture_distribution.probs.shape}, laws of shape {batch}",
                expected=f"shares that broadcast to {batch}",
            )
        self.mixture_distribution = mixture_distribution
        self.component_distribution = component_distribution
        super().__init__(batch[:-1], component_distribution.event_shape)

    def _shares(self) -> Tensor:
        probs = self.mixture_distribution.probs
        return probs.reshape(*probs.shape, *[1] * len(self.event_shape))

    def _axis(self) -> int:
        return -1 - len(self.event_shape)

    @property
    def mean(self) -> Tensor:
        """The mean of each law."""
        return (self._shares() * self.component_distribution.mean).sum(self._axis())

    @property
    def variance(self) -> Tensor:
        """The variance of each law."""
        means = self.component_distribution.mean
        spread = (means - self.mean.unsqueeze(self._axis())).square()
        within = self.component_distribution.variance
        return (self._shares() * (within + spread)).sum(self._axis())

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        lead = shape[: len(shape) - len(self.event_shape)]
        count = self.component_distribution.batch_shape[-1]
        drawn = self.component_distribution._draw((*lead, count, *self.event_shape))
        chosen = self.mixture_distribution._draw(lead)
        place = chosen.reshape(*lead, 1, *[1] * len(self.event_shape))
        place = place.expand(*lead, 1, *self.event_shape)
        found: Tensor = drawn.gather(len(lead), place).squeeze(len(lead))
        return found

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density."""
        each = self.component_distribution.log_prob(value.unsqueeze(self._axis()))
        return (each + self.mixture_distribution.logits).logsumexp(-1)

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of what is at most `value`."""
        each = self.component_distribution.cdf(value.unsqueeze(-1))
        return (each * self.mixture_distribution.probs).sum(-1)
