"""Convolution, and windows as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilework.base.errors import ShapeError
from tilework.tensor.padding import named_padding
from tilework.tensor.tensor import Tensor

Ints = int | Sequence[int]


def padding_of(padding: Ints | str, kernel: Sequence[int], stride: Ints, dilation: Ints) -> Ints:
    """The padding of a convolution in numbers: "same" and "valid" are words for some.

    Returns:
        What was given, or for a word the places before and after each axis, the last axis first.

    Raises:
        UserError: the word is unknown, or does not go with the stride.
    """
    if not isinstance(padding, str):
        return padding
    pads = named_padding(padding, tuple(kernel), stride, dilation)
    return [part for pair in pads[::-1] for part in pair]


def _convolved(
    axes: int,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Ints,
    padding: Ints | str,
    dilation: Ints,
    groups: int,
) -> Tensor:
    _check_axes(f"conv{axes}d", axes, x, weight)
    return x.conv2d(weight, bias, groups, stride, dilation, padding)


def _transposed(axes: int, x: Tensor, weight: Tensor, *rest: Any) -> Tensor:
    _check_axes(f"conv_transpose{axes}d", axes, x, weight)
    if x.ndim == axes + 1:
        return x.unsqueeze(0).conv_transpose2d(weight, *rest).squeeze(0)
    return x.conv_transpose2d(weight, *rest)


def _check_axes(what: str, axes: int, x: Tensor, weight: Tensor) -> None:
    if x.ndim not in (axes + 1, axes + 2) or weight.ndim != axes + 2:
        raise ShapeError(
            f"{what}: the input or the weight has other axes",
            got=f"{x.shape} and {weight.shape}",
            expected=f"{axes + 1} or {axes + 2} axes, and {axes + 2}",
        )


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints | str = 0,
    dilation: Ints = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution over one axis; `padding` may be "same" or "valid".

    Shape: (n, ci, l), weight (co, ci / groups, kl), bias (co,) -> (n, co, ol);
        without n likewise

    Raises:
        ShapeError: channels, groups or sizes don't fit.
        UserError: the padding is another word, or "same" with a stride.
    """
    return _convolved(1, input, weight, bias, stride, padding, dilation, groups)


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints | str = 0,
    dilation: Ints = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution over two axes; `padding` may be "same" or "valid".

    Shape: (n, ci, h, w), weight (co, ci / groups, kh, kw), bias (co,) -> (n, co, oh, ow);
        without n likewise

    Raises:
        ShapeError: channels, groups or sizes don't fit.
        UserError: the padding is another word, or "same" with a stride.
    """
    return _convolved(2, input, weight, bias, stride, padding, dilation, groups)


def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints | str = 0,
    dilation: Ints = 1,
    groups: int = 1,
) -> Tensor:
    """Convolution over three axes; `padding` may be "same" or "valid".

    Shape: (n, ci, d, h, w), weight (co, ci / groups, kd, kh, kw), bias (co,)
        -> (n, co, od, oh, ow);
        without n likewise

    Raises:
        ShapeError: channels, groups or sizes don't fit.
        UserError: the padding is another word, or "same" with a stride.
    """
    return _convolved(3, input, weight, bias, stride, padding, dilation, groups)


def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    dilation: Ints = 1,
) -> Tensor:
    """The adjoint of convolution over one axis.

    Shape: (n, ci, l), weight (ci, co / groups, kl), bias (co,) -> (n, co, ol);
        without n likewise

    Raises:
        ShapeError: channels, groups or sizes don't fit.
    """
    return _transposed(1, input, weight, bias, groups, stride, dilation, padding, output_padding)


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    dilation: Ints = 1,
) -> Tensor:
    """The adjoint of convolution over two axes.

    Shape: (n, ci, h, w), weight (ci, co / groups, kh, kw), bias (co,) -> (n, co, oh, ow);
        without n likewise

    Raises:
        ShapeError: channels, groups or sizes don't fit.
    """
    return _transposed(2, input, weight, bias, groups, stride, dilation, padding, output_padding)


def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: int = 1,
    dilation: Ints = 1,
) -> Tensor:
    """The adjoint of convolution over three axes.

    Shape: (n, ci, d, h, w), weight (ci, co / groups, kd, kh, kw), bias (co,)
        -> (n, co, od, oh, ow);
        without n likewise

    Raises:
        ShapeError: channels, groups or sizes don't fit.
    """
    return _transposed(3, input, weight, bias, groups, stride, dilation, padding, output_padding)


def unfold(
    input: Tensor, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1
) -> Tensor:
    """The windows of pictures as columns; `Tensor.im2col`.

    Shape: (n, c, h, w) -> (n, c * kh * kw, windows)
    """
    return input.im2col(kernel_size, dilation, padding, stride)


def fold(
    input: Tensor,
    output_size: Ints,
    kernel_size: Ints,
    dilation: Ints = 1,
    padding: Ints = 0,
    stride: Ints = 1,
) -> Tensor:
    """Pictures from their windows: what windows say of one place is added up.

    Shape: (n, c * kh * kw, windows) -> (n, c, h, w)
    """
    return input.fold(output_size, kernel_size, dilation, padding, stride)
