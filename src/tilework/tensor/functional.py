"""Normalisation, losses and attention.

Statistics and losses of small floats are computed in float32.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Self

from tilework import dtypes
from tilework.base.errors import ShapeError, UserError
from tilework.tensor.random import Random
from tilework.tensor.variable import format_shape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Functional(Random):
    """layernorm, batchnorm, cross_entropy, scaled_dot_product_attention and their kin."""

    __slots__ = ()

    def sequential(self, ll: Sequence[Callable[[Self], Self]]) -> Self:
        """The functions (or layers) applied one after the other."""
        x = self
        for function in ll:
            x = function(x)
        return x

    # --- normalisation -----------------------------------------------------------------------

    def layernorm(self, axis: int | tuple[int, ...] = -1, eps: float = 1e-5) -> Self:
        """Mean 0 and variance 1 along `axis`."""
        x = self._as_float()
        axes = x._axes(axis, "layernorm")
        wide = x._wide()
        centered = wide - wide.mean(axes, keepdim=True)
        variance = centered.square().mean(axes, keepdim=True)
        return (centered * (variance + eps).rsqrt()).cast(x.dtype)

    def rms_norm(self, axis: int | tuple[int, ...] = -1, eps: float = 1e-5) -> Self:
        """Divided by the root of the mean square along `axis`."""
        x = self._as_float()
        wide = x._wide()
        return (wide * (wide.square().mean(axis, keepdim=True) + eps).rsqrt()).cast(x.dtype)

    def batchnorm(
        self,
        weight: Self | None,
        bias: Self | None,
        mean: Self,
        invstd: Self,
        axis: int | tuple[int, ...] = 1,
    ) -> Self:
        """(self - mean) * invstd * weight + bias, each given along `axis`.

        Args:
            weight: a factor, or None.
            bias: a summand, or None.
            mean: what is subtracted.
            invstd: 1 / sqrt(variance + eps).
            axis: the axis (or axes) that the other tensors have.
        """
        axes = self._axes(axis, "batchnorm")
        shape = [size if number in axes else 1 for number, size in enumerate(self.shape)]
        wanted = math.prod(size for number, size in enumerate(self.shape) if number in axes)
        for name, given in (("mean", mean), ("weight", weight), ("bias", bias)):
            if given is not None and given.numel() != wanted:
                raise ShapeError(
                    f"batchnorm: the {name} has another size than the input's axis {axis}",
                    got=f"{given.shape} for an input of {self.shape}",
                    expected=f"{wanted} elements",
                )
        x = self._wide() - mean.reshape(shape)
        if weight is not None:
            x = x * weight.reshape(shape)
        scale = invstd.reshape(shape) if invstd.ndim == len(axes) else invstd
        x = x * scale
        if bias is not None:
            x = x + bias.reshape(shape)
        return x.cast(self.dtype) if self.dtype.is_float else x

    # --- losses ------------------------------------------------------------------------------

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

    def mse_loss(self, target: Self, reduction: str = "mean") -> Self:
        """The squared difference."""
        return self._loss(lambda x: (x - target).square()._reduced(reduction))

    def l1_loss(self, target: Self, reduction: str = "mean") -> Self:
        """The magnitude of the difference."""
        return self._loss(lambda x: (x - target).abs()._reduced(reduction))

    def smooth_l1_loss(self, target: Self, beta: float = 1.0, reduction: str = "mean") -> Self:
        """The squared difference below `beta`, its magnitude above."""

        def compute(x: Self) -> Self:
            distance = (x - target).abs()
            low = distance.square() * (0.5 / beta)
            return (distance < beta).where(low, distance - 0.5 * beta)._reduced(reduction)

        return self._loss(compute)

    def binary_crossentropy(self, Y: Self, reduction: str = "mean") -> Self:
        """Of probabilities and targets in [0, 1]; logarithms stop at -100, as in PyTorch."""

        def compute(x: Self) -> Self:
            yes = x.log().clamp(min_=-100.0)
            no = (-x).log1p().clamp(min_=-100.0)
            return -(yes * Y + no * (1 - Y))._reduced(reduction)

        return self._loss(compute)

    def binary_crossentropy_logits(
        self,
        Y: Self,
        reduction: str = "mean",
        pos_weight: Self | None = None,
    ) -> Self:
        """Of logits and targets in [0, 1], without overflow."""

        def compute(x: Self) -> Self:
            yes = Y * (-x).softplus()
            yes = yes if pos_weight is None else yes * pos_weight
            return (yes + (1 - Y) * x.softplus())._reduced(reduction)

        return self._loss(compute)

    def sparse_categorical_crossentropy(
        self,
        Y: Self,
        ignore_index: int = -1,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
    ) -> Self:
        """Cross entropy of logits (classes last) and class numbers.

        Args:
            Y: class numbers; those equal to `ignore_index` don't count.
            ignore_index: see `Y`.
            label_smoothing: share of the target that is spread over all classes.
            reduction: "mean" (over what counts), "sum" or "none".

        Shape: self (..., classes), Y (...) -> () or (...)
        """
        if self._dims[:-1] != Y._dims:
            raise ShapeError(
                "sparse_categorical_crossentropy: the targets don't fit",
                got=f"{format_shape(self._dims)} and {format_shape(Y._dims)}",
                expected="logits of the shape of the targets, with the classes last",
            )

        def compute(x: Self) -> Self:
            logs = x.log_softmax(-1)
            counts = Y.ne(ignore_index)
            target = counts.where(Y, 0).cast(dtypes.index)
            picked = -logs.gather(-1, target.unsqueeze(-1)).squeeze(-1)
            if label_smoothing:
                spread = -logs.mean(-1)
                picked = picked * (1 - label_smoothing) + spread * label_smoothing
            losses = counts.where(picked, 0.0)
            if reduction != "mean":
                return losses._reduced(reduction)
            return losses.sum() / counts.cast(dtypes.int64).sum().cast(losses.dtype)

        return self._loss(compute)

    def cross_entropy(
        self,
        Y: Self,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        ignore_index: int = -100,
        weight: Self | None = None,
    ) -> Self:
        """Cross entropy of logits with classes on axis 1, as PyTorch's.

        Args:
            Y: class numbers, or probabilities in the shape of the logits.
            reduction: "mean", "sum" or "none".
            label_smoothing: share of the target that is spread over all classes.
            ignore_index: class number that doesn't count.
            weight: of each class.

        Shape: self (n, classes, ...), Y (n, ...) or (n, classes, ...) -> () or (n, ...)
        """
        axis = 1 if self.ndim > 1 else 0
        if Y.ndim == self.ndim:
            return self._soft_cross_entropy(Y, axis, reduction, label_smoothing, weight)
        if label_smoothing:
            classes = self._fixed_size(axis, "cross_entropy")
            hot = Y.one_hot(classes).movedim(-1, axis).cast(self.dtype)
            ignored = Y.eq(ignore_index).unsqueeze(axis)
            if weight is None:
                return self._smoothed(hot, ignored, axis, reduction, label_smoothing)
            raise UserError("cross_entropy: weight with label_smoothing is not there yet")
        return self.log_softmax(axis).nll_loss(Y, weight, ignore_index, reduction)

    def _smoothed(
        self, hot: Self, ignored: Self, axis: int, reduction: str, smoothing: float
    ) -> Self:
        def compute(x: Self) -> Self:
            logs = x.log_softmax(axis)
            target = hot.cast(x.dtype) * (1 - smoothing) + smoothing / self.shape[axis]
            losses = -(logs * target).sum(axis)
            counts = ignored.squeeze(axis).logical_not()
            losses = counts.where(losses, 0.0)
            if reduction != "mean":
                return losses._reduced(reduction)
            return losses.sum() / counts.cast(dtypes.int64).sum().cast(losses.dtype)

        return self._loss(compute)

    def _soft_cross_entropy(
        self, target: Self, axis: int, reduction: str, smoothing: float, weight: Self | None
    ) -> Self:
        def compute(x: Self) -> Self:
            wanted = target.cast(x.dtype)
            if smoothing:
                wanted = wanted * (1 - smoothing) + smoothing / self.shape[axis]
            logs = x.log_softmax(axis)
            if weight is not None:
                shape = [1] * x.ndim
                shape[axis] = -1
                logs = logs * weight.reshape(shape)
            losses = -(logs * wanted).sum(axis)
            return losses._reduced(reduction)

        return self._loss(compute)

    def nll_loss(
        self,
        Y: Self,
        weight: Self | None = None,
        ignore_index: int | None = None,
        reduction: str = "mean",
    ) -> Self:
        """The negative of the log-probability (axis 1) at each class number.

        Shape: self (n, classes, ...), Y (n, ...) -> () or (n, ...)
        """
        axis = 1 if self.ndim > 1 else 0
        if Y._dims != (*self._dims[:axis], *self._dims[axis + 1 :]):
            raise ShapeError(
                "nll_loss: the targets don't fit",
                got=f"{format_shape(self._dims)} and {format_shape(Y._dims)}",
                expected="the shape of the logits without the classes",
            )

        def compute(x: Self) -> Self:
            counts = Y.eq(Y) if ignore_index is None else Y.ne(ignore_index)
            target = counts.where(Y, 0).cast(dtypes.index)
            picked = -x.gather(axis, target.unsqueeze(axis)).squeeze(axis)
            shares = counts.cast(x.dtype)
            if weight is not None:
                shares = counts.where(weight.cast(x.dtype)[target], 0.0)
            losses = counts.where(picked * shares, 0.0)
            if reduction != "mean":
                return losses._reduced(reduction)
            if weight is None:
                return losses.sum() / counts.cast(dtypes.int64).sum().cast(x.dtype)
            return losses.sum() / shares.sum()

        return self._loss(compute)

    def kl_div(self, target: Self, reduction: str = "mean") -> Self:
        """target * (log(target) - self), of logarithms and probabilities; 0 * log(0) is 0."""

        def compute(x: Self) -> Self:
            p = target.cast(x.dtype)
            logs = (p > 0).where(p, 1.0).log()
            return ((p > 0).where(p * logs, p * 0) - p * x)._reduced(reduction)

        return self._loss(compute)

    # --- attention ---------------------------------------------------------------------------

    def scaled_dot_product_attention(
        self,
        key: Self,
        value: Self,
        attn_mask: Self | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        enable_gqa: bool = False,
        scale: float | None = None,
    ) -> Self:
        """softmax(self @ key^T * scale + mask) @ value.

        Args:
            key: what queries are compared with.
            value: what is mixed.
            attn_mask: bool (True takes part) or a summand; a row that nothing takes part in is 0.
            dropout_p: probability of dropping a weight while training.
            is_causal: position i sees positions up to i only.
            enable_gqa: key and value have fewer heads, each used by several of the queries.
            scale: 1 / sqrt(e) by default.

        Shape: self (..., l, e), key (..., s, e), value (..., s, v) -> (..., l, v)
        """
        query, keys, values = self._wide(), key._wide(), value._wide()
        if enable_gqa:
            times = query._fixed_size(-3, "attention") // keys._fixed_size(-3, "attention")
            keys, values = keys.repeat_interleave(times, -3), values.repeat_interleave(times, -3)
        factor = 1 / math.sqrt(query._fixed_size(-1, "attention")) if scale is None else scale
        scores = query.matmul(keys.transpose(-2, -1)) * factor
        if is_causal:
            if attn_mask is not None:
                raise UserError("scaled_dot_product_attention: both attn_mask and is_causal")
            row, column = scores._positions(scores.ndim - 2), scores._positions(scores.ndim - 1)
            weights = (column <= row).where(scores, -math.inf).softmax(-1)
        elif attn_mask is not None:
            if attn_mask.dtype.is_bool:
                scores = attn_mask.where(scores, -math.inf)
            else:
                scores = scores + attn_mask
            is_empty = scores.detach().max(-1, keepdim=True).eq(-math.inf)
            weights = is_empty.where(0.0, is_empty.where(0.0, scores).softmax(-1))
        else:
            weights = scores.softmax(-1)
        return weights.dropout(dropout_p).matmul(values).cast(self.dtype)
