"""Pooling: one number for each window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilework.tensor.tensor import Tensor

Ints = int | Sequence[int]
OptionalInts = int | Sequence[int] | None


def max_pool1d(
    input: Tensor,
    kernel_size: Ints,
    stride: OptionalInts = None,
    padding: Ints = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The greatest of each window, and where it is, if asked for."""
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
    """The mean of each window."""
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
    """The p-norm of each window."""
    return input.lp_pool1d(norm_type, kernel_size, stride, ceil_mode)


def adaptive_avg_pool1d(input: Tensor, output_size: Any) -> Tensor:
    """Means of as many windows as the output is to have; None keeps an axis."""
    return input.adaptive_avg_pool1d(output_size)


def adaptive_max_pool1d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The greatest of as many windows as the output is to have; None keeps an axis."""
    return input.adaptive_max_pool1d(output_size, return_indices)


def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Ints,
    stride: OptionalInts = None,
    padding: Ints = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Elements at the places that `max_pool1d` took them from, and zeros."""
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
    """The greatest of each window, and where it is, if asked for."""
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
    """The mean of each window."""
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
    """The p-norm of each window."""
    return input.lp_pool2d(norm_type, kernel_size, stride, ceil_mode)


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """Means of as many windows as the output is to have; None keeps an axis."""
    return input.adaptive_avg_pool2d(output_size)


def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The greatest of as many windows as the output is to have; None keeps an axis."""
    return input.adaptive_max_pool2d(output_size, return_indices)


def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Ints,
    stride: OptionalInts = None,
    padding: Ints = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Elements at the places that `max_pool2d` took them from, and zeros."""
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
    """The greatest of each window, and where it is, if asked for."""
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
    """The mean of each window."""
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
    """The p-norm of each window."""
    return input.lp_pool3d(norm_type, kernel_size, stride, ceil_mode)


def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """Means of as many windows as the output is to have; None keeps an axis."""
    return input.adaptive_avg_pool3d(output_size)


def adaptive_max_pool3d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The greatest of as many windows as the output is to have; None keeps an axis."""
    return input.adaptive_max_pool3d(output_size, return_indices)


def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Ints,
    stride: OptionalInts = None,
    padding: Ints = 0,
    output_size: Sequence[int] | None = None,
) -> Tensor:
    """Elements at the places that `max_pool3d` took them from, and zeros."""
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
    """The greatest of windows whose places are drawn (Graham, 2014)."""
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
    """The greatest of windows whose places are drawn (Graham, 2014)."""
    return input.fractional_max_pool3d(
        kernel_size, output_size, output_ratio, return_indices, _random_samples
    )
