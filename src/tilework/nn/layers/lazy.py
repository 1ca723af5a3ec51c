"""Layers that take the number of their channels from the first input."""

from __future__ import annotations

from typing import Any

from tilework.base.errors import ShapeError, UserError
from tilework.engine import capture
from tilework.nn.layers.convolution import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    Sizes,
    _Convolution,
)
from tilework.nn.layers.linear import Linear
from tilework.nn.layers.normalization import (
    BatchNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    _InstanceNorm,
)
from tilework.tensor.tensor import Tensor


class _Lazy:
    """What these layers share: the first call makes the object one of the class `_plain`.

    Until then `nn.state` refuses it, so that no optimizer and no file is without its parameters.
    """

    is_without_parameters = True
    _plain: type
    _given: dict[str, Any]

    def _channels(self, x: Tensor) -> int:
        """The size that the constructor of the plain layer takes first."""
        raise NotImplementedError

    def __call__(self, x: Tensor) -> Tensor:
        """Make the parameters, and apply the layer."""
        kind = type(self)
        if capture.is_capturing():
            raise UserError(
                f"{kind.__name__}: a captured function cannot make the parameters of a lazy layer",
                try_="calling the layer once before it is captured",
            )
        size, given = self._channels(x), self._given
        del self._given
        self.__class__ = self._plain  # as in PyTorch the object is an ordinary layer from here on
        try:
            self.__init__(size, **given)  # type: ignore[misc]  # the constructor of the plain layer
            found: Tensor = self(x)
        except BaseException:
            # The input did not fit: the next one may.
            vars(self).clear()
            self.__class__ = kind
            self._given = given
            raise
        return found


class LazyLinear(_Lazy, Linear):
    """`Linear` whose `in_features` is the last size of its first input.

    Args:
        out_features: size of the last axis of the output.
        bias: whether something is added.

    Shape: (..., any size) -> (..., out_features)

    Example:
        >>> layer = LazyLinear(4)
        >>> layer(Tensor.ones(2, 3)).shape, layer.weight.shape
        ((2, 4), (4, 3))
    """

    _plain = Linear

    def __init__(self, out_features: int, bias: bool = True) -> None:
        self._given = {"out_features": out_features, "bias": bias}

    def _channels(self, x: Tensor) -> int:
        if not x.ndim:
            raise ShapeError("LazyLinear: the input has no last axis", got=x.shape)
        size: int = x.shape[-1]
        return size


class _LazyConvolution(_Lazy, _Convolution):
    """What the lazy convolutions share."""

    def __init__(
        self,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
    ) -> None:
        self._given = {
            "out_channels": out_channels, "kernel_size": kernel_size, "stride": stride,
            "padding": padding, "dilation": dilation, "groups": groups, "bias": bias,
            "padding_mode": padding_mode,
        }  # fmt: skip

    def _channels(self, x: Tensor) -> int:
        if x.ndim < self.axes + 1:
            raise ShapeError(
                f"{type(self).__name__}: the input has too few axes",
                got=x.shape,
                expected=f"channels and {self.axes} axes behind them",
            )
        size: int = x.shape[-self.axes - 1]
        return size


class LazyConv1d(_LazyConvolution, Conv1d):
    """`Conv1d` whose `in_channels` are those of its first input; arguments as of `Conv1d`."""

    _plain = Conv1d


class LazyConv2d(_LazyConvolution, Conv2d):
    """`Conv2d` whose `in_channels` are those of its first input; arguments as of `Conv2d`.

    Example:
        >>> layer = LazyConv2d(4, 3)
        >>> layer(Tensor.ones(2, 1, 8, 8)).shape, layer.weight.shape
        ((2, 4, 6, 6), (4, 1, 3, 3))
    """

    _plain = Conv2d


class LazyConv3d(_LazyConvolution, Conv3d):
    """`Conv3d` whose `in_channels` are those of its first input; arguments as of `Conv3d`."""

    _plain = Conv3d


class _LazyNorm(_Lazy):
    """What the lazy norms with running statistics share."""

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        bias: bool = True,
    ) -> None:
        self._given = {
            "eps": eps, "momentum": momentum, "affine": affine,
            "track_running_stats": track_running_stats, "bias": bias,
        }  # fmt: skip


class LazyBatchNorm(_LazyNorm, BatchNorm):
    """`BatchNorm` whose number of channels is that of its first input.

    Args:
        eps: added to the variance.
        momentum: share of the new batch in the running statistics; None for their mean.
        affine: whether there are a weight and a bias.
        track_running_stats: whether running statistics are kept.
        bias: whether there is a bias beside a weight.

    Shape: (n, channels, ...) -> (n, channels, ...)
    """

    _plain = BatchNorm

    def _channels(self, x: Tensor) -> int:
        if x.ndim < 2:
            raise ShapeError("LazyBatchNorm: the input has no channels", got=x.shape)
        size: int = x.shape[1]
        return size


LazyBatchNorm1d = LazyBatchNorm
LazyBatchNorm2d = LazyBatchNorm
LazyBatchNorm3d = LazyBatchNorm


class _LazyTransposed(_LazyConvolution, ConvTranspose2d):
    """What the lazy adjoints of convolutions share; the arguments are PyTorch's, in its order."""

    def __init__(  # noqa: PLR0913  # the arguments are PyTorch's
        self,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Sizes = 1,
        padding_mode: str = "zeros",
    ) -> None:
        if padding_mode != "zeros":
            raise UserError(
                f"{type(self).__name__}: only zeros lie around a transposed convolution",
                got=f"padding_mode {padding_mode!r}", expected="zeros",
            )  # fmt: skip
        self._given = {
            "out_channels": out_channels, "kernel_size": kernel_size, "stride": stride,
            "padding": padding, "output_padding": output_padding, "dilation": dilation,
            "groups": groups, "bias": bias,
        }  # fmt: skip


class LazyConvTranspose1d(_LazyTransposed, ConvTranspose1d):
    """`ConvTranspose1d` whose `in_channels` are those of its first input.

    Arguments as of `LazyConvTranspose2d`.
    """

    _plain = ConvTranspose1d


class LazyConvTranspose2d(_LazyTransposed):
    """`ConvTranspose2d` whose `in_channels` are those of its first input.

    The order of the arguments is PyTorch's: `groups` and `bias` come before `dilation`.

    Args:
        out_channels: channels of the output.
        kernel_size: of the window.
        stride: distance of windows.
        padding: cut off around the output.
        output_padding: makes the output longer where several sizes are possible.
        groups: parts of the channels that don't mix.
        bias: whether something is added.
        dilation: distance of taps.
        padding_mode: "zeros", as in PyTorch.

    Raises: UserError for another `padding_mode`.

    Example:
        >>> layer = LazyConvTranspose2d(4, 3)
        >>> layer(Tensor.ones(2, 1, 8, 8)).shape, layer.weight.shape
        ((2, 4, 10, 10), (1, 4, 3, 3))
    """

    _plain = ConvTranspose2d


class LazyConvTranspose3d(_LazyTransposed, ConvTranspose3d):
    """`ConvTranspose3d` whose `in_channels` are those of its first input.

    Arguments as of `LazyConvTranspose2d`.
    """

    _plain = ConvTranspose3d


class _LazyInstanceNorm(_LazyNorm, _InstanceNorm):
    """What the lazy instance norms share.

    Args:
        eps: added to the variance.
        momentum: share of the new batch in the running statistics; None for 0.
        affine: whether there are a weight and a bias.
        track_running_stats: keep running statistics, and use them when not training.
        bias: whether there is a bias beside a weight.
    """

    def _channels(self, x: Tensor) -> int:
        if x.ndim not in (self.axes + 1, self.axes + 2):
            raise ShapeError(
                f"{type(self).__name__}: the input has other axes",
                got=x.shape,
                expected=f"channels and {self.axes} axes behind them",
            )
        size: int = x.shape[-self.axes - 1]
        return size


class LazyInstanceNorm1d(_LazyInstanceNorm, InstanceNorm1d):
    """`InstanceNorm1d` of the channels of its first input; arguments as of `LazyInstanceNorm2d`."""

    _plain = InstanceNorm1d


class LazyInstanceNorm2d(_LazyInstanceNorm, InstanceNorm2d):
    """`InstanceNorm2d` of the channels of its first input.

    As in PyTorch, and unlike `InstanceNorm2d`, it has a weight, a bias and running statistics
    unless told otherwise.

    Shape: (n, channels, h, w) or (channels, h, w) -> the same

    Example:
        >>> layer = LazyInstanceNorm2d()
        >>> layer(Tensor.ones(2, 3, 4, 4)).shape, layer.weight.shape
        ((2, 3, 4, 4), (3,))
    """

    _plain = InstanceNorm2d


class LazyInstanceNorm3d(_LazyInstanceNorm, InstanceNorm3d):
    """`InstanceNorm3d` of the channels of its first input; arguments as of `LazyInstanceNorm2d`."""

    _plain = InstanceNorm3d
