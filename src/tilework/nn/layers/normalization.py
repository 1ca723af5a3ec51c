"""Normalisation layers."""

from __future__ import annotations

from tilework import dtypes
from tilework.base.errors import ShapeError
from tilework.tensor.tensor import Tensor


class BatchNorm:
    """Each channel normalised over the batch; running statistics are used when not training.

    Args:
        sz: number of channels, axis 1 of the input.
        eps: added to the variance.
        affine: whether there are a weight and a bias.
        track_running_stats: whether running statistics are kept.
        momentum: share of the new batch in the running statistics.

    Shape: (n, sz, ...) -> (n, sz, ...)
    """

    def __init__(
        self,
        sz: int,
        eps: float = 1e-5,
        affine: bool = True,
        track_running_stats: bool = True,
        momentum: float = 0.1,
    ) -> None:
        self.eps = eps
        self.track_running_stats = track_running_stats
        self.momentum = momentum
        self.weight = Tensor.ones(sz).contiguous() if affine else None
        self.bias = Tensor.zeros(sz).contiguous() if affine else None
        if track_running_stats:
            self.running_mean = Tensor.empty(sz, requires_grad=False)
            self.running_var = Tensor([1.0] * sz, requires_grad=False)
            self.num_batches_tracked = Tensor(0, dtype=dtypes.int64, requires_grad=False)

    def calc_stats(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The mean and the variance (divided by the count) to normalise with."""
        axes = tuple([axis for axis in range(x.ndim) if axis != 1])
        if self.track_running_stats and not Tensor.training:
            return self.running_mean, self.running_var
        wide = x if x.dtype is dtypes.float64 else x.float()
        mean = wide.mean(axes)
        shape = [1, -1, *[1] * (x.ndim - 2)]
        return mean, (wide - mean.reshape(shape)).square().mean(axes)

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        mean, variance = self.calc_stats(x)
        if self.track_running_stats and Tensor.training:
            self._update(x, mean.detach(), variance.detach())
        return x.batchnorm(self.weight, self.bias, mean, (variance + self.eps).rsqrt())

    def _update(self, x: Tensor, mean: Tensor, variance: Tensor) -> None:
        count = 1
        for axis, size in enumerate(x.shape):
            count *= 1 if axis == 1 else int(size)
        unbiased = variance * (count / max(count - 1, 1))
        share = self.momentum
        with Tensor.no_grad():
            self.running_mean.assign(self.running_mean * (1 - share) + mean * share)
            self.running_var.assign(self.running_var * (1 - share) + unbiased * share)
            self.num_batches_tracked += 1


BatchNorm1d = BatchNorm
BatchNorm2d = BatchNorm
BatchNorm3d = BatchNorm


class LayerNorm:
    """The last axes normalised.

    Args:
        normalized_shape: their sizes.
        eps: added to the variance.
        elementwise_affine: whether there are a weight and a bias.

    Shape: (..., *normalized_shape) -> the same
    """

    def __init__(
        self,
        normalized_shape: int | tuple[int, ...],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
    ) -> None:
        if isinstance(normalized_shape, int):
            normalized_shape = (normalized_shape,)
        self.normalized_shape = tuple(normalized_shape)
        self.axis = tuple([-1 - number for number in range(len(self.normalized_shape))])
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        sizes = self.normalized_shape
        self.weight = Tensor.ones(*sizes).contiguous() if elementwise_affine else None
        self.bias = Tensor.zeros(*sizes).contiguous() if elementwise_affine else None

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        if x.shape[-len(self.normalized_shape) :] != self.normalized_shape:
            raise ShapeError(
                "LayerNorm: the last axes have other sizes",
                got=f"{x.shape}",
                expected=f"(..., {', '.join(map(str, self.normalized_shape))})",
            )
        x = x.layernorm(axis=self.axis, eps=self.eps)
        if self.weight is None or self.bias is None:
            return x
        return x * self.weight + self.bias


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

    Shape: (n, num_channels, ...) -> the same
    """

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True
    ) -> None:
        if num_groups < 1 or num_channels % num_groups:
            raise ShapeError(
                "GroupNorm: the channels don't divide into the groups",
                got=f"{num_channels} channels, {num_groups} groups",
            )
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.weight = Tensor.ones(num_channels).contiguous() if affine else None
        self.bias = Tensor.zeros(num_channels).contiguous() if affine else None

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        shape = x.shape
        found = x.reshape(shape[0], self.num_groups, -1).layernorm(eps=self.eps).reshape(shape)
        if self.weight is None or self.bias is None:
            return found
        spread = (1, -1, *[1] * (len(shape) - 2))
        return found * self.weight.reshape(spread) + self.bias.reshape(spread)


class InstanceNorm(GroupNorm):
    """Each channel of each image normalised."""

    def __init__(self, num_features: int, eps: float = 1e-5, affine: bool = True) -> None:
        super().__init__(num_features, num_features, eps, affine)


class RMSNorm:
    """The last axis divided by its root mean square, times a weight.

    Args:
        dim: its size.
        eps: added to the mean square.
        elementwise_affine: whether there is a weight.
    """

    def __init__(self, dim: int, eps: float = 1e-6, elementwise_affine: bool = True) -> None:
        self.eps = eps
        self.weight = Tensor.ones(dim).contiguous() if elementwise_affine else None

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        found = x.rms_norm(-1, self.eps)
        return found if self.weight is None else found * self.weight
