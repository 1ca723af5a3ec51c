"""What `from tinygrad.nn import ...` gives: the layers."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

from tilework import Tensor, dtypes, nn
from tilework.nn import *  # noqa: F403  # all layers, whatever is added to them

#: Layers alone: modules are served themselves, or are none of tinygrad's.
__all__ = [
    "Tensor", "dtypes",
    *(name for name in nn.__all__ if not isinstance(getattr(nn, name), ModuleType)),
]  # fmt: skip

_Sizes = int | Sequence[int]


class Conv2d(nn.Conv2d):  # type: ignore[no-redef]  # takes the place of that of the star
    """`tilework.nn.Conv2d` over as many axes as its window has sizes."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: _Sizes,
        stride: _Sizes = 1,
        padding: _Sizes | str = 0,
        dilation: _Sizes = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        self.axes = 2 if isinstance(kernel_size, int) else len(kernel_size)
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias
        )


class ConvTranspose2d(nn.ConvTranspose2d):  # type: ignore[no-redef]  # likewise
    """`tilework.nn.ConvTranspose2d` over as many axes as its window has sizes."""

    def __init__(  # noqa: PLR0913  # its arguments
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: _Sizes,
        stride: _Sizes = 1,
        padding: _Sizes = 0,
        output_padding: _Sizes = 0,
        dilation: _Sizes = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        self.axes = 2 if isinstance(kernel_size, int) else len(kernel_size)
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, output_padding, dilation,
            groups, bias,
        )  # fmt: skip
