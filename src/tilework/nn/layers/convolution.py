"""Convolution layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilework.base.errors import ShapeError, UserError
from tilework.base.integers import product
from tilework.nn.functional.windows import padding_of
from tilework.tensor.padding import per_axis, read_padding
from tilework.tensor.tensor import Tensor

Sizes = int | Sequence[int]

#: The modes of padding, and what `Tensor.pad` calls them.
_MODES: Final = {
    "zeros": "constant", "reflect": "reflect", "replicate": "replicate", "circular": "circular",
}  # fmt: skip


class _Convolution:
    """What all convolutions share; `axes` is the number of axes that they run over."""

    axes = 2

    def __init__(  # noqa: PLR0913  # PyTorch's arguments
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
    ) -> None:
        if isinstance(groups, bool) or not isinstance(bias, bool):
            raise UserError(
                "convolution: groups must be a number, and bias True or False",
                got=f"groups {groups!r}, bias {bias!r}",
                try_="dilation, groups and bias by name: their order differs between libraries",
            )
        if padding_mode not in _MODES:
            raise UserError(
                "convolution: unknown padding_mode", got=padding_mode, expected=", ".join(_MODES)
            )
        kind = type(self).__name__
        self.kernel_size = per_axis(kernel_size, self.axes, f"{kind}: kernel_size")
        per_axis(stride, self.axes, f"{kind}: stride")
        per_axis(dilation, self.axes, f"{kind}: dilation")
        if groups < 1 or min(in_channels, out_channels) < 0:
            raise ShapeError(
                "convolution: groups are from 1 on, and channels from 0 on",
                got=f"{in_channels} to {out_channels} channels in {groups} groups",
            )
        if in_channels % groups or out_channels % groups:
            raise ShapeError(
                "convolution: the channels don't divide into the groups",
                got=f"{in_channels} and {out_channels} channels, {groups} groups",
            )
        self.stride = stride
        self.dilation = dilation
        self.groups = groups
        self.padding = padding_of(padding, self.kernel_size, stride, dilation)
        self.padding_mode = padding_mode
        shape = self._weight_shape(in_channels, out_channels)
        bound = max(product(shape[1:]), 1) ** -0.5
        self.weight = Tensor.uniform(*shape, low=-bound, high=bound)
        self.bias = Tensor.uniform(out_channels, low=-bound, high=bound) if bias else None

    def _weight_shape(self, in_channels: int, out_channels: int) -> tuple[int, ...]:
        return (out_channels, in_channels // self.groups, *self.kernel_size)

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        pads = self.padding
        if self.padding_mode != "zeros":
            x = x.pad(self._each_side(), _MODES[self.padding_mode])
            pads = 0
        return x.conv2d(self.weight, self.bias, self.groups, self.stride, self.dilation, pads)

    def _each_side(self) -> list[int]:
        """The padding before and after each axis, from the last to the first."""
        pads = read_padding(self.padding, self.axes, type(self).__name__)
        return [part for pair in pads[::-1] for part in pair]


class Conv2d(_Convolution):
    """Convolution over two axes.

    Args:
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: of the window; one number, or one for each axis.
        stride: distance of windows.
        padding: zeros around the input: one number, one for each axis, before and after each axis
            from the last to the first, "same" or "valid".
        dilation: distance of taps.
        groups: parts of the channels that don't mix.
        bias: whether something is added.
        padding_mode: "zeros", "reflect" (without the edge), "replicate" or "circular".

    Shape: (n, in_channels, h, w) -> (n, out_channels, oh, ow)

    Example:
        >>> Conv2d(1, 4, 3)(Tensor.ones(2, 1, 8, 8)).shape
        (2, 4, 6, 6)
    """


class Conv1d(_Convolution):
    """Convolution over one axis; arguments as of `Conv2d`.

    Shape: (n, in_channels, l) -> (n, out_channels, ol)
    """

    axes = 1


class ConvTranspose2d(_Convolution):
    """The adjoint of convolution over two axes; arguments as of `Conv2d`.

    `output_padding` (an attribute, 0) makes the output longer where several sizes are possible.

    Shape: (n, in_channels, h, w) -> (n, out_channels, oh, ow)
    """

    output_padding: Sizes = 0

    def __init__(  # noqa: PLR0913  (PyTorch's arguments)
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias
        )
        self.output_padding = output_padding

    def _weight_shape(self, in_channels: int, out_channels: int) -> tuple[int, ...]:
        return (in_channels, out_channels // self.groups, *self.kernel_size)

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        return x.conv_transpose2d(
            self.weight, self.bias, self.groups, self.stride, self.dilation, self.padding,
            self.output_padding,
        )  # fmt: skip


class ConvTranspose1d(ConvTranspose2d):
    """The adjoint of convolution over one axis; arguments as of `ConvTranspose2d`."""

    axes = 1


class Conv3d(_Convolution):
    """Convolution over three axes; arguments as of `Conv2d`.

    Shape: (n, in_channels, d, h, w) -> (n, out_channels, od, oh, ow)
    """

    axes = 3


class ConvTranspose3d(ConvTranspose2d):
    """The adjoint of convolution over three axes; arguments as of `ConvTranspose2d`."""

    axes = 3
