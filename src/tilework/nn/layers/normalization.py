"""Normalisation layers."""

from __future__ import annotations

from collections.abc import Sequence

from tilework import dtypes
from tilework.base.errors import ShapeError, UserError
from tilework.nn.functional.layers import (
    batch_statistics,
    elements_of_channel,
    instance_norm,
    take_in,
)
from tilework.nn.layers.names import also_named, flag
from tilework.tensor.tensor import Tensor


class BatchNorm:
    """Each channel normalised over the batch; running statistics are used when not training.

    The order of the arguments is tinygrad's; a number for `affine`, or None, is taken for PyTorch's
    order, in which `momentum` comes third.

    Args:
        sz: number of channels, axis 1 of the input; also named `num_features`.
        eps: added to the variance.
        affine: whether there are a weight and a bias.
        track_running_stats: whether running statistics are kept.
        momentum: share of the new batch in the running statistics; None for their mean.
        bias: whether there is a bias beside a weight.

    Shape: (n, sz, ...) -> (n, sz, ...)

    Raises:
        UserError: an argument that is True or False is a number.
        ShapeError: a channel of a training batch has one element.
    """

    @also_named(num_features="sz")
    def __init__(
        self,
        sz: int,
        eps: float = 1e-5,
        affine: bool | float | None = True,
        track_running_stats: bool = True,
        momentum: float | bool | None = 0.1,
        bias: bool = True,
    ) -> None:
        if not isinstance(affine, bool):
            is_kept = momentum if isinstance(momentum, bool) else True
            momentum, affine, track_running_stats = affine, track_running_stats, is_kept
        if isinstance(momentum, bool):
            raise UserError("BatchNorm: momentum must be a number or None", got=momentum)
        affine = flag(affine, "affine", "BatchNorm")
        self.eps = eps
        self.track_running_stats = flag(track_running_stats, "track_running_stats", "BatchNorm")
        self.momentum = momentum
        self.weight = Tensor.ones(sz).contiguous() if affine else None
        self.bias = Tensor.zeros(sz).contiguous() if affine and bias else None
        if track_running_stats:
            self.running_mean = Tensor.empty(sz, requires_grad=False)
            self.running_var = Tensor([1.0] * sz, requires_grad=False)
            self.num_batches_tracked = Tensor(0, dtype=dtypes.int64, requires_grad=False)

    def calc_stats(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The mean and the variance (divided by the count) to normalise with."""
        if self.track_running_stats and not Tensor.training:
            return self.running_mean, self.running_var
        return batch_statistics(x)

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        mean, variance = self.calc_stats(x)
        if self.track_running_stats and Tensor.training:
            self._update(x, mean.detach(), variance.detach())
        return x.batchnorm(self.weight, self.bias, mean, (variance + self.eps).rsqrt())

    def _update(self, x: Tensor, mean: Tensor, variance: Tensor) -> None:
        count = elements_of_channel(x)
        unbiased = variance * (count / max(count - 1, 1))
        with Tensor.no_grad():
            self.num_batches_tracked += 1
        share = running_share(self.momentum, self.num_batches_tracked)
        take_in(self.running_mean, mean, share)
        take_in(self.running_var, unbiased, share)


def running_share(momentum: float | None, batches: Tensor) -> float | Tensor:
    """A new batch's share of running statistics: all batches' alike if there is no momentum."""
    return batches.cast(dtypes.float32).reciprocal() if momentum is None else momentum


BatchNorm1d = BatchNorm
BatchNorm2d = BatchNorm
BatchNorm3d = BatchNorm


class LayerNorm:
    """The last axes normalised.

    Args:
        normalized_shape: their sizes.
        eps: added to the variance.
        elementwise_affine: whether there are a weight and a bias.
        bias: whether there is a bias beside a weight.

    Shape: (..., *normalized_shape) -> the same
    """

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
    ) -> None:
        if isinstance(normalized_shape, int):
            normalized_shape = (normalized_shape,)
        self.normalized_shape = tuple(normalized_shape)
        self.axis = tuple([-1 - number for number in range(len(self.normalized_shape))])
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        sizes = self.normalized_shape
        self.weight = Tensor.ones(*sizes).contiguous() if elementwise_affine else None
        has_bias = elementwise_affine and bias
        self.bias = Tensor.zeros(*sizes).contiguous() if has_bias else None

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        if x.shape[-len(self.normalized_shape) :] != self.normalized_shape:
            raise ShapeError(
                "LayerNorm: the last axes have other sizes",
                got=f"{x.shape}",
                expected=f"(..., {', '.join(map(str, self.normalized_shape))})",
            )
        x = x.layernorm(axis=self.axis, eps=self.eps)
        if self.weight is None:
            return x
        return x * self.weight if self.bias is None else x * self.weight + self.bias


class LayerNorm2d(LayerNorm):
    """`LayerNorm` over the channels of images.

    Shape: (n, c, h, w) -> (n, c, h, w)
    """

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        return super().__call__(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class GroupNorm:
    """Groups of channels normalised, each image by itself.

    Args:
        num_groups: parts of the channels.
        num_channels: axis 1 of the input.
        eps: added to the variance.
        affine: whether there are a weight and a bias for each channel.
        bias: whether there is a bias beside a weight.

    Shape: (n, num_channels, ...) -> the same
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        bias: bool = True,
    ) -> None:
        if num_groups < 1 or num_channels % num_groups:
            raise ShapeError(
                "GroupNorm: the channels don't divide into the groups",
                got=f"{num_channels} channels, {num_groups} groups",
            )
        affine = flag(affine, "affine", type(self).__name__)
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.weight = Tensor.ones(num_channels).contiguous() if affine else None
        self.bias = Tensor.zeros(num_channels).contiguous() if affine and bias else None

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        shape = x.shape
        if len(shape) < 2 or shape[1] != self.num_channels:
            raise ShapeError(
                f"{type(self).__name__}: the input has other channels",
                got=f"{shape}",
                expected=f"(n, {self.num_channels}, ...)",
            )
        found = x.reshape(shape[0], self.num_groups, -1).layernorm(eps=self.eps).reshape(shape)
        spread = (1, -1, *[1] * (len(shape) - 2))
        if self.weight is not None:
            found = found * self.weight.reshape(spread)
        return found if self.bias is None else found + self.bias.reshape(spread)


class InstanceNorm(GroupNorm):
    """Each channel of each image normalised; the order of the arguments is tinygrad's.

    Args:
        num_features: number of channels.
        eps: added to the variance.
        affine: whether there are a weight and a bias.
    """

    def __init__(self, num_features: int, eps: float = 1e-5, affine: bool = True) -> None:
        super().__init__(num_features, num_features, eps, affine)


class _InstanceNorm(InstanceNorm):
    """What PyTorch's instance norms share.

    Args:
        num_features: number of channels.
        eps: added to the variance.
        momentum: share of the new batch in the running statistics; None for 0.
        affine: whether there are a weight and a bias.
        track_running_stats: keep running statistics, and use them when not training.
        bias: whether there is a bias beside a weight.
    """

    axes = 1

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, affine)
        if not bias:
            self.bias = None
        self.momentum = momentum
        self.track_running_stats = track_running_stats
        if track_running_stats:
            self.running_mean = Tensor.empty(num_features, requires_grad=False)
            self.running_var = Tensor([1.0] * num_features, requires_grad=False)
            self.num_batches_tracked = Tensor(0, dtype=dtypes.int64, requires_grad=False)

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        if x.ndim not in (self.axes + 1, self.axes + 2):
            raise ShapeError(
                f"{type(self).__name__}: the input has other axes",
                got=f"{x.shape}",
                expected=f"{self.axes + 1} or {self.axes + 2} axes",
            )
        if x.ndim == self.axes + 1:
            return self(x.unsqueeze(0)).squeeze(0)
        if not self.track_running_stats:
            return instance_norm(x, None, None, self.weight, self.bias, eps=self.eps)
        return instance_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, Tensor.training,
            self.momentum or 0.0, self.eps,
        )  # fmt: skip


class InstanceNorm1d(_InstanceNorm):
    """Each channel of each sequence normalised; arguments as of `InstanceNorm2d`."""


class InstanceNorm2d(_InstanceNorm):
    """Each channel of each image normalised.

    Args:
        num_features: number of channels.
        eps: added to the variance.
        momentum: share of the new batch in the running statistics; None for 0.
        affine: whether there are a weight and a bias.
        track_running_stats: keep running statistics, and use them when not training.
        bias: whether there is a bias beside a weight.

    Shape: (n, num_features, h, w) or (num_features, h, w) -> the same

    Example:
        >>> InstanceNorm2d(1)(Tensor([[[[1.0, 3.0]]]])).round().tolist()
        [[[[-1.0, 1.0]]]]
    """

    axes = 2


class InstanceNorm3d(_InstanceNorm):
    """Each channel of each volume normalised; arguments as of `InstanceNorm2d`."""

    axes = 3


class RMSNorm:
    """The last axes divided by the root of their mean square, times a weight.

    Args:
        dim: their sizes; also named `normalized_shape`.
        eps: added to the mean square; None for the distance from 1 to the next number.
        elementwise_affine: whether there is a weight.
    """

    @also_named(normalized_shape="dim")
    def __init__(
        self,
        dim: int | Sequence[int],
        eps: float | None = 1e-6,
        elementwise_affine: bool = True,
    ) -> None:
        sizes = (dim,) if isinstance(dim, int) else tuple(dim)
        self.eps = eps
        self.axis = tuple(range(-len(sizes), 0))
        self.weight = Tensor.ones(*sizes).contiguous() if elementwise_affine else None

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        eps = 2.0**-x.dtype.mantissa_bits if self.eps is None else self.eps
        found = x.rms_norm(self.axis, eps)
        return found if self.weight is None else found * self.weight
