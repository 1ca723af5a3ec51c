"""Pooling: one number for each window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilework.base.errors import ShapeError
from tilework.tensor.padding import per_axis
from tilework.tensor.tensor import Tensor

Ints = int | Sequence[int]
OptionalInts = int | Sequence[int] | None


def check_padding(
    what: str, axes: int, kernel_size: Ints, padding: Ints, dilation: Ints = 1
) -> None:
    """See that no window of a pooling lies in the padding alone.

    Args:
        what: who asks.
        axes: how many are pooled.
        kernel_size: of a window.
        padding: on each side.
        dilation: the distance of a window's elements.

    Raises:
        ShapeError: there is not a number for each axis, or the padding is more than half of a
            window along one.
    """
    sizes = per_axis(kernel_size, axes, what)
    pads = per_axis(padding, axes, what, least=0)
    for size, pad, step in zip(sizes, pads, per_axis(dilation, axes, what), strict=True):
        if 2 * pad > (size - 1) * step + 1:
            raise ShapeError(
                f"{what}: the padding is more than half of a window",
                got=f"padding {padding}, kernel_size {kernel_size}, dilation {dilation}",
                expected=f"padding of at most {((size - 1) * step + 1) // 2}",
            )


def max_pool1d(
    input: Tensor,
    kernel_size: Ints,
    stride: OptionalInts = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The greatest of each window, and where it is, if asked for.

    Args:
        input: (n, c, l) or (c, l).
        kernel_size: the length of a window, in elements.
        stride: the distance of windows, in elements; by default their size.
        padding: elements on both sides of each axis that never win.
        dilation: the distance of the elements of a window.
        ceil_mode: a window that reaches over the end counts too.
        return_indices: also give where the elements are, row-major in the pooled axes.

    Shape: (n, c, l) -> (n, c, ol), and the same in int64 for the places
    """
    check_padding("max_pool1d", 1, kernel_size, padding, dilation)
    return input.max_pool1d(
        kernel_size, stride, padding=padding, dilation=dilation, ceil_mode=ceil_mode,
        return_indices=return_indices,
    )  # fmt: skip


def avg_pool1d(
    input: Tensor,
    kernel_size: Ints,
    stride: OptionalInts = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window.

    Args:
        input: (n, c, l) or (c, l).
        kernel_size: the length of a window, in elements.
        stride: the distance of windows, in elements; by default their size.
        padding: zeros on both sides of each axis.
        ceil_mode: a window that reaches over the end counts too.
        count_include_pad: zeros of the padding count as elements.

    Shape: (n, c, l) -> (n, c, ol)
    """
    check_padding("avg_pool1d", 1, kernel_size, padding)
    return input.avg_pool1d(
        kernel_size, stride, padding=padding, ceil_mode=ceil_mode,
        count_include_pad=count_include_pad,
    )  # fmt: skip


def lp_pool1d(
    input: Tensor,
    norm_type: float,
    kernel_size: Ints,
    stride: OptionalInts = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The p-norm of each window.

    Args:
        input: (n, c, l) or (c, l).
        norm_type: p.
        kernel_size: the length of a window, in elements.
        stride: the distance of windows, in elements; by default their size.
        ceil_mode: a window that reaches over the end counts too.

    Shape: (n, c, l) -> (n, c, ol)
    """
    return input.lp_pool1d(norm_type, kernel_size, stride, ceil_mode)


def adaptive_avg_pool1d(input: Tensor, output_size: Any) -> Tensor:
    """Means of as many windows as the output is to have; None keeps an axis.

    Shape: (n, c, l) or (c, l) -> the same with `output_size` as its last size
    """
    return input.adaptive_avg_pool1d(output_size)


def adaptive_max_pool1d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The greatest of as many windows as the output is to have; None keeps an axis.

    Shape: (n, c, l) or (c, l) -> the same with `output_size` as its last size, and the places
        in int64 if `return_indices`
    """
    return input.adaptive_max_pool1d(output_size, return_indices)


def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Ints,
    stride: OptionalInts = None,
    padding: Ints = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Elements at the places that `max_pool1d` took them from, and zeros.

    Args:
        input: what `max_pool1d` gave.
        indices: the places that it gave.
        kernel_size: the length of a window, in elements.
        stride: the distance of windows, in elements; by default their size.
        padding: that of the pooling.
        output_size: the last sizes of the result, where several lead to one pooled size.

    Shape: (n, c, ol), indices the same -> (n, c, l)
    """
    return input.max_unpool1d(
        indices, kernel_size, stride, padding=padding, output_size=output_size
    )


def max_pool2d(
    input: Tensor,
    kernel_size: Ints,
    stride: OptionalInts = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The greatest of each window, and where it is, if asked for.

    Args:
        input: (n, c, h, w) or (c, h, w).
        kernel_size: height and width of a window, or one number for both, in elements.
        stride: the distance of windows, in elements; by default their size.
        padding: elements on both sides of each axis that never win.
        dilation: the distance of the elements of a window.
        ceil_mode: a window that reaches over the end counts too.
        return_indices: also give where the elements are, row-major in the pooled axes.

    Shape: (n, c, h, w) -> (n, c, oh, ow), and the same in int64 for the places
    """
    check_padding("max_pool2d", 2, kernel_size, padding, dilation)
    return input.max_pool2d(
        kernel_size, stride, padding=padding, dilation=dilation, ceil_mode=ceil_mode,
        return_indices=return_indices,
    )  # fmt: skip


def avg_pool2d(
    input: Tensor,
    kernel_size: Ints,
    stride: OptionalInts = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window.

    Args:
        input: (n, c, h, w) or (c, h, w).
        kernel_size: height and width of a window, or one number for both, in elements.
        stride: the distance of windows, in elements; by default their size.
        padding: zeros on both sides of each axis.
        ceil_mode: a window that reaches over the end counts too.
        count_include_pad: zeros of the padding count as elements.
        divisor_override: what sums are divided by instead.

    Shape: (n, c, h, w) -> (n, c, oh, ow)
    """
    check_padding("avg_pool2d", 2, kernel_size, padding)
    return input.avg_pool2d(
        kernel_size, stride, padding=padding, ceil_mode=ceil_mode,
        count_include_pad=count_include_pad, divisor_override=divisor_override,
    )  # fmt: skip


def lp_pool2d(
    input: Tensor,
    norm_type: float,
    kernel_size: Ints,
    stride: OptionalInts = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The p-norm of each window.

    Args:
        input: (n, c, h, w) or (c, h, w).
        norm_type: p.
        kernel_size: height and width of a window, or one number for both, in elements.
        stride: the distance of windows, in elements; by default their size.
        ceil_mode: a window that reaches over the end counts too.

    Shape: (n, c, h, w) -> (n, c, oh, ow)
    """
    return input.lp_pool2d(norm_type, kernel_size, stride, ceil_mode)


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """Means of as many windows as the output is to have; None keeps an axis.

    Shape: (n, c, h, w) or (c, h, w) -> the same with `output_size` as its last sizes
    """
    return input.adaptive_avg_pool2d(output_size)


def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The greatest of as many windows as the output is to have; None keeps an axis.

    Shape: (n, c, h, w) or (c, h, w)
        -> the same with `output_size` as its last sizes, and the places
        in int64 if `return_indices`
    """
    return input.adaptive_max_pool2d(output_size, return_indices)


def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Ints,
    stride: OptionalInts = None,
    padding: Ints = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Elements at the places that `max_pool2d` took them from, and zeros.

    Args:
        input: what `max_pool2d` gave.
        indices: the places that it gave.
        kernel_size: height and width of a window, or one number for both, in elements.
        stride: the distance of windows, in elements; by default their size.
        padding: that of the pooling.
        output_size: the last sizes of the result, where several lead to one pooled size.

    Shape: (n, c, oh, ow), indices the same -> (n, c, h, w)
    """
    return input.max_unpool2d(
        indices, kernel_size, stride, padding=padding, output_size=output_size
    )


def max_pool3d(
    input: Tensor,
    kernel_size: Ints,
    stride: OptionalInts = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The greatest of each window, and where it is, if asked for.

    Args:
        input: (n, c, d, h, w) or (c, d, h, w).
        kernel_size: depth, height and width of a window, or one number for all, in elements.
        stride: the distance of windows, in elements; by default their size.
        padding: elements on both sides of each axis that never win.
        dilation: the distance of the elements of a window.
        ceil_mode: a window that reaches over the end counts too.
        return_indices: also give where the elements are, row-major in the pooled axes.

    Shape: (n, c, d, h, w) -> (n, c, od, oh, ow), and the same in int64 for the places
    """
    check_padding("max_pool3d", 3, kernel_size, padding, dilation)
    return input.max_pool3d(
        kernel_size, stride, padding=padding, dilation=dilation, ceil_mode=ceil_mode,
        return_indices=return_indices,
    )  # fmt: skip


def avg_pool3d(
    input: Tensor,
    kernel_size: Ints,
    stride: OptionalInts = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window.

    Args:
        input: (n, c, d, h, w) or (c, d, h, w).
        kernel_size: depth, height and width of a window, or one number for all, in elements.
        stride: the distance of windows, in elements; by default their size.
        padding: zeros on both sides of each axis.
        ceil_mode: a window that reaches over the end counts too.
        count_include_pad: zeros of the padding count as elements.
        divisor_override: what sums are divided by instead.

    Shape: (n, c, d, h, w) -> (n, c, od, oh, ow)
    """
    check_padding("avg_pool3d", 3, kernel_size, padding)
    return input.avg_pool3d(
        kernel_size, stride, padding=padding, ceil_mode=ceil_mode,
        count_include_pad=count_include_pad, divisor_override=divisor_override,
    )  # fmt: skip


def lp_pool3d(
    input: Tensor,
    norm_type: float,
    kernel_size: Ints,
    stride: OptionalInts = None,
    ceil_mode: bool = False,
) -> Tensor:
    """The p-norm of each window.

    Args:
        input: (n, c, d, h, w) or (c, d, h, w).
        norm_type: p.
        kernel_size: depth, height and width of a window, or one number for all, in elements.
        stride: the distance of windows, in elements; by default their size.
        ceil_mode: a window that reaches over the end counts too.

    Shape: (n, c, d, h, w) -> (n, c, od, oh, ow)
    """
    return input.lp_pool3d(norm_type, kernel_size, stride, ceil_mode)


def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """Means of as many windows as the output is to have; None keeps an axis.

    Shape: (n, c, d, h, w) or (c, d, h, w) -> the same with `output_size` as its last sizes
    """
    return input.adaptive_avg_pool3d(output_size)


def adaptive_max_pool3d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The greatest of as many windows as the output is to have; None keeps an axis.

    Shape: (n, c, d, h, w) or (c, d, h, w)
        -> the same with `output_size` as its last sizes, and the places
        in int64 if `return_indices`
    """
    return input.adaptive_max_pool3d(output_size, return_indices)


def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Ints,
    stride: OptionalInts = None,
    padding: Ints = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Elements at the places that `max_pool3d` took them from, and zeros.

    Args:
        input: what `max_pool3d` gave.
        indices: the places that it gave.
        kernel_size: depth, height and width of a window, or one number for all, in elements.
        stride: the distance of windows, in elements; by default their size.
        padding: that of the pooling.
        output_size: the last sizes of the result, where several lead to one pooled size.

    Shape: (n, c, od, oh, ow), indices the same -> (n, c, d, h, w)
    """
    return input.max_unpool3d(
        indices, kernel_size, stride, padding=padding, output_size=output_size
    )


def fractional_max_pool2d(
    input: Tensor,
    kernel_size: Ints,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """The greatest of windows whose places are drawn (Graham, 2014).

    Args:
        input: (n, c, h, w) or (c, h, w).
        kernel_size: height and width of a window, or one number for both.
        output_size: the last sizes of the result, or
        output_ratio: those divided by the sizes of the input.
        return_indices: also give where the elements are, row-major in the pooled axes.
        _random_samples: the draws from [0, 1), (n, c, 2).

    Shape: (n, c, h, w) or (c, h, w) -> the same with the output's sizes

    Raises:
        UserError: neither or both of size and ratio are given.
        ShapeError: windows don't fit into the input.
    """
    return input.fractional_max_pool2d(
        kernel_size, output_size, output_ratio, return_indices, _random_samples
    )


def fractional_max_pool3d(
    input: Tensor,
    kernel_size: Ints,
    output_size: Any = None,
    output_ratio: Any = None,
    return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:
    """The greatest of windows whose places are drawn (Graham, 2014).

    Args:
        input: (n, c, d, h, w) or (c, d, h, w).
        kernel_size: depth, height and width of a window, or one number for all.
        output_size: the last sizes of the result, or
        output_ratio: those divided by the sizes of the input.
        return_indices: also give where the elements are, row-major in the pooled axes.
        _random_samples: the draws from [0, 1), (n, c, 3).

    Shape: (n, c, d, h, w) or (c, d, h, w) -> the same with the output's sizes

    Raises:
        UserError: neither or both of size and ratio are given.
        ShapeError: windows don't fit into the input.
    """
    return input.fractional_max_pool3d(
        kernel_size, output_size, output_ratio, return_indices, _random_samples
    )
