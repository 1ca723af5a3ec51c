"""Losses that measure a distance or a margin.  Those of small floats are computed in float32."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

from tilework.base.errors import ShapeError, UserError
from tilework.tensor.functional import Functional
from tilework.tensor.variable import format_shape

if TYPE_CHECKING:
    from collections.abc import Callable


class Losses(Functional):
    """mse_loss, huber_loss, triplet_margin_loss and their kin."""

    __slots__ = ()

    def _reduced(self, reduction: str) -> Self:
        if reduction == "mean":
            return self.mean()
        if reduction == "sum":
            return self.sum()
        if reduction == "none":
            return self
        raise UserError("loss: unknown reduction", got=reduction, expected="mean, sum or none")

    def _loss(self, compute: Callable[[Self], Self]) -> Self:
        """A loss computed in float32 and given in the dtype of this tensor."""
        x = self._as_float()
        return compute(x._wide()).cast(x.dtype)

    # --- distances of values -----------------------------------------------------------------

    def mse_loss(self, target: Self, reduction: str = "mean") -> Self:
        """The squared difference.

        Example:
            >>> Tensor([1.0, 2.0]).mse_loss(Tensor([1.0, 4.0])).item()
            2.0
        """
        return self._loss(lambda x: (x - target).square()._reduced(reduction))

    def l1_loss(self, target: Self, reduction: str = "mean") -> Self:
        """The magnitude of the difference.

        Example:
            >>> Tensor([1.0, 2.0]).l1_loss(Tensor([1.0, 4.0]), "sum").item()
            2.0
        """
        return self._loss(lambda x: (x - target).abs()._reduced(reduction))

    def smooth_l1_loss(self, target: Self, beta: float = 1.0, reduction: str = "mean") -> Self:
        """The squared difference below `beta`, its magnitude above; `l1_loss` if `beta` is 0."""
        if beta < 0:
            raise UserError("smooth_l1_loss: beta is negative", got=beta)
        if beta == 0:
            return self.l1_loss(target, reduction)

        def compute(x: Self) -> Self:
            distance = (x - target).abs()
            is_near = distance < beta
            low = is_near.where(distance, 0.0).square() * (0.5 / beta)
            return is_near.where(low, distance - 0.5 * beta)._reduced(reduction)

        return self._loss(compute)

    def huber_loss(self, target: Self, reduction: str = "mean", delta: float = 1.0) -> Self:
        """Half the squared difference up to `delta`, from there on a line.

        Raises:
            UserError: `delta` is not positive.

        Example:
            >>> Tensor([0.0]).huber_loss(Tensor([3.0])).item()
            2.5
        """
        if delta <= 0:
            raise UserError("huber_loss: delta must be positive", got=delta)

        def compute(x: Self) -> Self:
            distance = (x - target).abs()
            high = (distance - 0.5 * delta) * delta
            is_near = distance <= delta
            low = is_near.where(distance, 0.0).square() * 0.5
            return is_near.where(low, high)._reduced(reduction)

        return self._loss(compute)

    def gaussian_nll_loss(
        self,
        target: Self,
        var: Self | float,
        full: bool = False,
        eps: float = 1e-6,
        reduction: str = "mean",
    ) -> Self:
        """The negative logarithm of the normal density of `target` around this tensor.

        Args:
            target: what was observed.
            var: the variance, of the shape of this tensor, or without its last axis, or with
                size 1 there.
            full: add the constant log(2 * pi) / 2.
            eps: the least variance; smaller ones count as it, without a gradient beyond.
            reduction: "mean", "sum" or "none".
        """

        def compute(x: Self) -> Self:
            spread = x._other(var).cast(x.dtype)
            if spread._dims != x._dims and spread._dims == x._dims[:-1]:
                spread = spread.unsqueeze(-1)
            # The bound moves the value alone: the gradient is that of the variance.
            bounded = spread + (spread.detach().clamp(min_=eps) - spread.detach())
            found = (bounded.log() + (x - target).square() / bounded) * 0.5
            if full:
                found = found + 0.5 * math.log(2 * math.pi)
            return found._reduced(reduction)

        return self._loss(compute)

    def poisson_nll_loss(
        self,
        target: Self,
        log_input: bool = True,
        full: bool = False,
        eps: float = 1e-8,
        reduction: str = "mean",
    ) -> Self:
        """The negative logarithm of the Poisson probability of `target`.

        Args:
            target: counts.
            log_input: this tensor holds the logarithms of the rates.
            full: add Stirling's approximation of log(target!), where target > 1.
            eps: added to a rate before its logarithm is taken.
            reduction: "mean", "sum" or "none".
        """

        def compute(x: Self) -> Self:
            y = x._other(target).cast(x.dtype)
            found = x.exp() - y * x if log_input else x - y * (x + eps).log()
            if full:
                is_large = y > 1
                safe = is_large.where(y, 1.0)
                stirling = safe * safe.log() - safe + (safe * (2 * math.pi)).log() * 0.5
                found = found + is_large.where(stirling, 0.0)
            return found._reduced(reduction)

        return self._loss(compute)

    # --- margins -----------------------------------------------------------------------------

    def hinge_embedding_loss(
        self, target: Self, margin: float = 1.0, reduction: str = "mean"
    ) -> Self:
        """The distance itself where `target` is 1, what it lacks of `margin` where it is -1.

        Example:
            >>> Tensor([2.0, 0.25]).hinge_embedding_loss(Tensor([1, -1]), reduction="none").tolist()
            [2.0, 0.75]
        """

        def compute(x: Self) -> Self:
            far = target.eq(1).where(0.0, (margin - x).relu())
            near = target.eq(-1).where(0.0, x)
            return (far + near)._reduced(reduction)

        return self._loss(compute)

    def margin_ranking_loss(
        self, other: Self, target: Self, margin: float = 0.0, reduction: str = "mean"
    ) -> Self:
        """max(0, -target * (self - other) + margin): self ranks higher where target is 1."""
        return self._loss(
            lambda x: (-(x - other) * target + margin)._floor_at(0.0)._reduced(reduction)
        )

    def _floor_at(self, least: float) -> Self:
        """Values below `least` become it; the gradient at the bound itself is passed on."""
        return (self < least).where(least, self)

    def cosine_embedding_loss(
        self, other: Self, target: Self, margin: float = 0.0, reduction: str = "mean"
    ) -> Self:
        """1 - cosine where `target` is 1, what the cosine exceeds `margin` by where it is -1.

        Shape: self and other (n, d) or (d,), target (n,) or () -> () or (n,)
        """

        def compute(x: Self) -> Self:
            y = other.cast(x.dtype)
            dot = (x * y).sum(-1)
            norms = ((x.square().sum(-1) + 1e-12) * (y.square().sum(-1) + 1e-12)).sqrt()
            cosine = dot / norms
            near = target.eq(1).where(1 - cosine, 0.0)
            far = target.eq(-1).where((cosine - margin)._floor_at(0.0), 0.0)
            return (near + far)._reduced(reduction)

        return self._loss(compute)

    def soft_margin_loss(self, target: Self, reduction: str = "mean") -> Self:
        """log(1 + exp(-target * self)), of targets 1 and -1."""
        return self._loss(lambda x: (-x * target).softplus()._reduced(reduction))

    def multilabel_soft_margin_loss(
        self, target: Self, weight: Self | None = None, reduction: str = "mean"
    ) -> Self:
        """Binary cross entropy of logits, averaged over the classes on the last axis."""

        def compute(x: Self) -> Self:
            y = target.cast(x.dtype)
            losses = -(y * x.logsigmoid() + (1 - y) * (-x).logsigmoid())
            losses = losses if weight is None else losses * weight
            return losses.mean(-1)._reduced(reduction)

        return self._loss(compute)

    def multi_margin_loss(
        self,
        target: Self,
        p: int = 1,
        margin: float = 1.0,
        weight: Self | None = None,
        reduction: str = "mean",
    ) -> Self:
        """What each wrong class lacks of `margin` to the right one, to the power of `p`.

        Shape: self (n, classes) or (classes,), target (n,) or () -> () or (n,)
        """
        if p not in (1, 2):
            raise UserError("multi_margin_loss: p must be 1 or 2", got=p)

        def compute(x: Self) -> Self:
            rows = x if x.ndim > 1 else x.reshape(1, -1)
            y = target.reshape(-1, 1)
            right = rows.gather(1, y)
            lacking = (margin - right + rows)._floor_at(0.0)
            lacking = lacking if p == 1 else lacking.square()
            if weight is not None:
                lacking = lacking * weight.cast(x.dtype)[y.squeeze(1)].unsqueeze(1)
            is_right = rows._positions(1) == y
            classes = rows._fixed_size(1, "multi_margin_loss")
            losses = is_right.where(0.0, lacking).sum(1) / classes
            return (losses if x.ndim > 1 else losses.squeeze(0))._reduced(reduction)

        return self._loss(compute)

    def multilabel_margin_loss(self, target: Self, reduction: str = "mean") -> Self:
        """What each class that is no target lacks of 1 to each target.

        Shape: self (n, classes) or (classes,), target the same: class numbers up to the first -1
        """

        def compute(x: Self) -> Self:
            rows = x if x.ndim > 1 else x.reshape(1, -1)
            y = target if target.ndim > 1 else target.reshape(1, -1)
            counts = (y < 0).cast("int32").cumsum(1).eq(0)
            place = counts.where(y, 0)
            classes = rows._fixed_size(1, "multilabel_margin_loss")
            hot = (place.one_hot(classes).ne(0) & counts.unsqueeze(-1)).any(1)
            right = rows.gather(1, place)
            lacking = (1 - right.unsqueeze(2) + rows.unsqueeze(1))._floor_at(0.0)
            takes_part = counts.unsqueeze(2) & hot.logical_not().unsqueeze(1)
            losses = takes_part.where(lacking, 0.0).sum((1, 2)) / classes
            return (losses if x.ndim > 1 else losses.squeeze(0))._reduced(reduction)

        return self._loss(compute)

    def triplet_margin_loss(
        self,
        positive: Self,
        negative: Self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        reduction: str = "mean",
    ) -> Self:
        """max(0, distance to `positive` - distance to `negative` + margin).

        Args:
            positive: what should be near.
            negative: what should be far.
            margin: how much farther.
            p: of the norm.
            eps: added to each difference.
            swap: take the distance of positive and negative if that is less.
            reduction: "mean", "sum" or "none".
        """

        def distance(a: Self, b: Self) -> Self:
            return a.pairwise_distance(b, p, eps)

        return self._loss(
            lambda x: x.triplet_margin_with_distance_loss(
                positive, negative, distance, margin, swap, reduction
            )
        )

    def triplet_margin_with_distance_loss(
        self,
        positive: Self,
        negative: Self,
        distance_function: Callable[[Any, Any], Any] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> Self:
        """`triplet_margin_loss` with any distance of two tensors (`pairwise_distance` if None)."""
        measure = distance_function or (lambda a, b: a.pairwise_distance(b))
        near = measure(self, positive)
        far = measure(self, negative)
        if swap:
            far = far.minimum(measure(positive, negative))
        found: Self = (near - far + margin)._floor_at(0.0)._reduced(reduction)
        return found

    # --- distances of vectors ----------------------------------------------------------------

    def cosine_similarity(self, other: Self, dim: int = 1, eps: float = 1e-8) -> Self:
        """The cosine of the angle between vectors along `dim`.

        Args:
            other: vectors that broadcast with these.
            dim: the axis of the vectors.
            eps: the least length; shorter vectors count as it.
        """
        x, y = self._matched(other, "cosine_similarity", as_float=True)
        a, b = x._wide(), y._wide()
        # Each is brought to length 1 first: a product of lengths could overflow.
        first = a / a.norm(dim=dim, keepdim=True)._at_least(eps)
        second = b / b.norm(dim=dim, keepdim=True)._at_least(eps)
        return (first * second).sum(dim).cast(x.dtype)

    def _at_least(self, least: float) -> Self:
        """This tensor, or `least` where it is below; all the gradient flows to it where above."""
        return (self < least).where(least, self)

    def pairwise_distance(
        self, other: Self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
    ) -> Self:
        """The p-norm of self - other + eps along the last axis."""
        x, y = self._matched(other, "pairwise_distance", as_float=True)
        return (x._wide() - y._wide() + eps).norm(p, -1, keepdim).cast(x.dtype)

    def cdist(self, other: Self, p: float = 2.0) -> Self:
        """The p-norm of the difference of each vector here with each vector there.

        Shape: self (..., n, d), other (..., m, d) -> (..., n, m)
        """
        if self.ndim < 2 or other.ndim < 2 or self._dims[-1] != other._dims[-1]:
            raise ShapeError(
                "cdist: needs vectors of one length in rows",
                got=f"{format_shape(self._dims)} and {format_shape(other._dims)}",
                expected="(..., n, d) and (..., m, d)",
            )
        # The other vectors lie side by side, element by element: many distances at a time.
        x, y = self.unsqueeze(-1), other.transpose(-1, -2).contiguous().unsqueeze(-3)
        x, y = x._matched(y, "cdist", as_float=True)
        return (x._wide() - y._wide()).norm(p, -2).cast(x.dtype)

    def pdist(self, p: float = 2.0) -> Self:
        """The p-norm of the difference of each two rows: those of row 0 with 1, 2, ... first.

        Shape: (n, d) -> (n * (n - 1) / 2,)
        """
        if self.ndim != 2:
            raise ShapeError("pdist: needs a matrix", got=format_shape(self._dims))
        count = self._fixed_size(0, "pdist")
        pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
        if not pairs:
            return type(self).zeros(0, dtype=self.dtype, device=self.device)
        first = self[[i for i, _ in pairs]]
        second = self[[j for _, j in pairs]]
        return (first._wide() - second._wide()).norm(p, -1).cast(self.dtype)
