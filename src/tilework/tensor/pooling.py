"""Pooling by other names and kinds: adaptive, of powers, and over one or three axes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

from tilework import dtypes
from tilework.base.errors import ShapeError
from tilework.base.integers import ceil_div
from tilework.ir.ops.tensor import Fold
from tilework.tensor.resizing import Resizing
from tilework.tensor.variable import format_shape

if TYPE_CHECKING:
    from collections.abc import Sequence

Ints = Any  # one int for all axes, or a sequence with one for each


class Pooling(Resizing):
    """conv1d, avg_pool1d, adaptive_max_pool2d, lp_pool2d and their kin."""

    __slots__ = ()

    # --- convolution -------------------------------------------------------------------------

    def conv1d(
        self,
        weight: Self,
        bias: Self | None = None,
        stride: Ints = 1,
        padding: Ints = 0,
        dilation: Ints = 1,
        groups: int = 1,
    ) -> Self:
        """`conv2d` over one axis, with PyTorch's order of arguments."""
        return self.conv2d(weight, bias, groups, stride, dilation, padding)

    def conv3d(
        self,
        weight: Self,
        bias: Self | None = None,
        stride: Ints = 1,
        padding: Ints = 0,
        dilation: Ints = 1,
        groups: int = 1,
    ) -> Self:
        """`conv2d` over three axes, with PyTorch's order of arguments."""
        return self.conv2d(weight, bias, groups, stride, dilation, padding)

    def conv_transpose1d(
        self,
        weight: Self,
        bias: Self | None = None,
        stride: Ints = 1,
        padding: Ints = 0,
        output_padding: Ints = 0,
        groups: int = 1,
        dilation: Ints = 1,
    ) -> Self:
        """`conv_transpose2d` over one axis, with PyTorch's order of arguments."""
        rest = (groups, stride, dilation, padding, output_padding)
        return self.conv_transpose2d(weight, bias, *rest)

    def conv_transpose3d(
        self,
        weight: Self,
        bias: Self | None = None,
        stride: Ints = 1,
        padding: Ints = 0,
        output_padding: Ints = 0,
        groups: int = 1,
        dilation: Ints = 1,
    ) -> Self:
        """`conv_transpose2d` over three axes, with PyTorch's order of arguments."""
        rest = (groups, stride, dilation, padding, output_padding)
        return self.conv_transpose2d(weight, bias, *rest)

    def im2col(
        self, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1
    ) -> Self:
        """The windows of images as columns (PyTorch's `nn.functional.unfold`).

        Shape: (n, c, h, w) -> (n, c * kh * kw, windows); without n likewise
        """
        if self.ndim == 3:
            return self.unsqueeze(0).im2col(kernel_size, dilation, padding, stride).squeeze(0)
        if self.ndim != 4:
            raise ShapeError("im2col: needs images", got=format_shape(self._dims))
        kernel, pads = _each(kernel_size, 2), _each(padding, 2)
        x = self._pad_axes([(one, one) for one in pads])
        x = x._pooled(kernel, _each(stride, 2), _each(dilation, 2), "im2col")
        count, channels, height, width, *_ = x.shape
        x = x.permute(0, 1, 4, 5, 2, 3)
        return x.reshape(count, channels * kernel[0] * kernel[1], height * width)._apply(None)

    # --- windows -----------------------------------------------------------------------------

    def avg_pool1d(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> Self:
        """`avg_pool2d` over the last axis."""
        return self._mean_pool(1, kernel_size, stride, padding, ceil_mode, count_include_pad)

    def avg_pool3d(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Self:
        """`avg_pool2d` over the last three axes."""
        rest = (ceil_mode, count_include_pad, divisor_override)
        return self._mean_pool(3, kernel_size, stride, padding, *rest)

    def _mean_pool(self, axes: int, kernel: Ints, stride: Ints, padding: Ints, *rest: Any) -> Self:
        sizes = _each(kernel, axes)
        steps = sizes if stride is None or stride == () else _each(stride, axes)
        return self.avg_pool2d(sizes, steps, 1, _each(padding, axes), *rest)

    def _sum_pool(self, axes: int, kernel: Ints, stride: Ints, padding: Ints, ceil: bool) -> Self:
        """Sums over windows."""
        sizes = _each(kernel, axes)
        steps = sizes if stride is None or stride == () else _each(stride, axes)
        pads = [(one, one) for one in _each(padding, axes)]
        plan = (sizes, steps, (1,) * axes)
        grown = self._overhang(pads, plan) if ceil else pads
        windows = self._pad_axes(grown)._pooled(*plan, "pool")
        return windows._fold(Fold.ADD, tuple(range(self.ndim, self.ndim + axes)), keepdim=False)

    def max_pool1d(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        dilation: Ints = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        """`max_pool2d` over the last axis, with PyTorch's order of arguments."""
        return self._greatest_pool(
            1, kernel_size, stride, padding, dilation, ceil_mode, return_indices
        )

    def max_pool3d(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        dilation: Ints = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        """`max_pool2d` over the last three axes, with PyTorch's order of arguments."""
        return self._greatest_pool(
            3, kernel_size, stride, padding, dilation, ceil_mode, return_indices
        )

    def _greatest_pool(
        self, axes: int, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, *flags: bool
    ) -> Any:
        sizes = _each(kernel, axes)
        steps = sizes if stride is None or stride == () else _each(stride, axes)
        return self.max_pool2d(sizes, steps, _each(dilation, axes), _each(padding, axes), *flags)

    def max_unpool1d(
        self,
        indices: Self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        output_size: Sequence[int] | None = None,
    ) -> Self:
        """`max_unpool2d` over the last axis."""
        return self._unpooled(1, indices, kernel_size, stride, padding, output_size)

    def max_unpool3d(
        self,
        indices: Self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Ints = 0,
        output_size: Sequence[int] | None = None,
    ) -> Self:
        """`max_unpool2d` over the last three axes."""
        return self._unpooled(3, indices, kernel_size, stride, padding, output_size)

    def _unpooled(
        self, axes: int, indices: Self, kernel: Ints, stride: Ints, padding: Ints, size: Any
    ) -> Self:
        sizes = _each(kernel, axes)
        steps = sizes if stride is None or stride == () else _each(stride, axes)
        return self.max_unpool2d(indices, sizes, steps, 1, _each(padding, axes), size)

    def lp_pool1d(
        self, norm_type: float, kernel_size: Ints, stride: Ints = None, ceil_mode: bool = False
    ) -> Self:
        """The root of the sum of powers of each window over the last axis."""
        return self._power_pool(1, norm_type, kernel_size, stride, ceil_mode)

    def lp_pool2d(
        self, norm_type: float, kernel_size: Ints, stride: Ints = None, ceil_mode: bool = False
    ) -> Self:
        """The root of the sum of powers of each window over the last two axes."""
        return self._power_pool(2, norm_type, kernel_size, stride, ceil_mode)

    def lp_pool3d(
        self, norm_type: float, kernel_size: Ints, stride: Ints = None, ceil_mode: bool = False
    ) -> Self:
        """The root of the sum of powers of each window over the last three axes."""
        return self._power_pool(3, norm_type, kernel_size, stride, ceil_mode)

    def _power_pool(self, axes: int, power: float, kernel: Ints, stride: Ints, ceil: bool) -> Self:
        x = self._as_float()
        total = x._wide().pow(power)._sum_pool(axes, kernel, stride, 0, ceil)
        return total._root(power).cast(x.dtype)

    # --- adaptive ----------------------------------------------------------------------------

    def adaptive_avg_pool1d(self, output_size: Ints) -> Self:
        """The mean of parts of the last axis, so many and of nearly one size."""
        return self._adaptive_mean(self._adaptive_sizes(output_size, 1))

    def adaptive_avg_pool2d(self, output_size: Ints) -> Self:
        """The mean of parts of the last two axes; None keeps a size."""
        return self._adaptive_mean(self._adaptive_sizes(output_size, 2))

    def adaptive_avg_pool3d(self, output_size: Ints) -> Self:
        """The mean of parts of the last three axes; None keeps a size."""
        return self._adaptive_mean(self._adaptive_sizes(output_size, 3))

    def adaptive_max_pool1d(self, output_size: Ints, return_indices: bool = False) -> Any:
        """The greatest element of parts of the last axis."""
        return self._adaptive_greatest(self._adaptive_sizes(output_size, 1), return_indices)

    def adaptive_max_pool2d(self, output_size: Ints, return_indices: bool = False) -> Any:
        """The greatest element of parts of the last two axes; None keeps a size."""
        return self._adaptive_greatest(self._adaptive_sizes(output_size, 2), return_indices)

    def adaptive_max_pool3d(self, output_size: Ints, return_indices: bool = False) -> Any:
        """The greatest element of parts of the last three axes; None keeps a size."""
        return self._adaptive_greatest(self._adaptive_sizes(output_size, 3), return_indices)

    def _adaptive_sizes(self, output_size: Ints, axes: int) -> tuple[int, ...]:
        given = _each(output_size, axes)
        if axes > self.ndim:
            raise ShapeError("adaptive pool: too few axes", got=format_shape(self._dims))
        first = self.ndim - axes
        return tuple(
            [
                self._fixed_size(first + number, "adaptive pool") if size is None else size
                for number, size in enumerate(given)
            ]
        )

    def _parts(self, axis: int, count: int, value: Any) -> tuple[Self, Self]:
        """(..., count, longest part, ...) along `axis`, filled with `value`; and the mask of it."""
        size = self._fixed_size(axis, "adaptive pool")
        if count * math.prod(each for each in self._dims if isinstance(each, int)) >= 2**63:
            raise ShapeError(
                "adaptive pool: there are more elements than 64 bits count", got=f"size {count}"
            )
        starts = [i * size // count for i in range(count)]
        ends = [ceil_div((i + 1) * size, count) for i in range(count)]
        longest = max([b - a for a, b in zip(starts, ends, strict=True)], default=0)
        places = [min(a + n, size - 1) for a in starts for n in range(longest)]
        counts = [a + n < b for a, b in zip(starts, ends, strict=True) for n in range(longest)]
        index = self._from_numbers(places, dtypes.index, self.device).reshape(count, longest)
        mask = self._from_numbers(counts, dtypes.bool_, self.device)
        mask = mask.reshape(count, longest, *[1] * (self.ndim - axis - 1))
        found = self._gathered(axis, [index])
        return mask.where(found, value).cast(self.dtype), mask

    def _adaptive_mean(self, sizes: tuple[int, ...]) -> Self:
        x = self._wide() if self.dtype.is_float else self.float()
        for axis, count in enumerate(sizes, self.ndim - len(sizes)):
            parts, mask = x._parts(axis, count, 0.0)
            x = parts.sum(axis + 1) / mask.cast(x.dtype).sum(1)
        return x.cast(self.dtype) if self.dtype.is_float else x

    def _adaptive_greatest(self, sizes: tuple[int, ...], return_indices: bool) -> Any:
        first = self.ndim - len(sizes)
        spatial = self.shape[first:]
        count = 1
        for size in spatial:
            count *= size
        x = self
        counted: Any = type(self).arange(count, dtype=dtypes.int64, device=self.device)
        place = counted.reshape((1,) * first + spatial).expand(self.shape)
        for axis, number in enumerate(sizes, first):
            x = x._parts(axis + axis - first, number, self._least())[0]
            place = place._parts(axis + axis - first, number, 1 << 62)[0]
        taps = tuple(range(first + 1, first + 2 * len(sizes), 2))
        found = x._greatest_in(taps, place)
        return (found, x._first_greatest(taps, place)) if return_indices else found


def _each(value: Ints, count: int) -> tuple[Any, ...]:
    """One entry for each axis."""
    if value is None or hasattr(type(value), "__index__"):
        return (value,) * count
    found = tuple(value)
    return found * count if len(found) == 1 else found
