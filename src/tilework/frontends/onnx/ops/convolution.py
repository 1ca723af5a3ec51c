"""Convolution and transposed convolution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilework import dtypes
from tilework.base.errors import ModelFileError
from tilework.frontends.onnx.ops.shape import padded
from tilework.frontends.onnx.registry import onnx_op

if TYPE_CHECKING:
    from tilework.dtypes import DType
    from tilework.frontends.onnx.call import Call
    from tilework.tensor.tensor import Tensor

Pairs = list[tuple[int, int]]


class Window:
    """The attributes that convolutions and pools share, with their defaults."""

    def __init__(self, call: Call, sizes: Sequence[int], kernel: Sequence[int]) -> None:
        rank = len(sizes)
        self.kernel = tuple(kernel)
        self.strides = call.integers("strides", (1,) * rank)
        self.dilations = call.integers("dilations", (1,) * rank)
        self.auto_pad = call.text("auto_pad", "NOTSET")
        given = call.integers("pads", (0,) * (2 * rank))
        rows = (self.kernel, self.strides, self.dilations, given[:rank], given[rank:])
        if any(len(row) != rank for row in rows) or min(*self.strides, *self.dilations) < 1:
            raise ModelFileError(
                f"onnx: {call.node} has windows that do not fit its operand",
                got=f"kernel {self.kernel}, strides {self.strides}, dilations {self.dilations}, "
                f"pads {given}",
                expected=f"a number of 1 or more for each of {rank} axes, and two pads",
            )
        self.pads: Pairs = list(zip(given[:rank], given[rank:], strict=True))
        if self.auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            self.pads = [self._same(axis, size) for axis, size in enumerate(sizes)]
        elif self.auto_pad == "VALID":
            self.pads = [(0, 0)] * rank
        elif self.auto_pad != "NOTSET":
            raise ModelFileError(f"onnx: {call.node} has an unknown auto_pad", got=self.auto_pad)

    def extent(self, axis: int) -> int:
        """The size of the dilated kernel along an axis."""
        return (self.kernel[axis] - 1) * self.dilations[axis] + 1

    def _same(self, axis: int, size: int) -> tuple[int, int]:
        """Pad so that the result has ceil(size / stride) elements."""
        stride = self.strides[axis]
        total = max(0, (-(-size // stride) - 1) * stride + self.extent(axis) - size)
        small = total // 2
        return (small, total - small) if self.auto_pad == "SAME_UPPER" else (total - small, small)


def kernel_of(call: Call, weight: Tensor) -> tuple[int, ...]:
    """Return the sizes of the kernel: the weight's, which the node may repeat.

    Raises:
        ModelFileError: the node gives others.
    """
    sizes = tuple(weight.shape[2:])
    given = call.integers("kernel_shape", sizes)
    if given != sizes:
        raise ModelFileError(
            f"onnx: {call.node} has a kernel_shape that is not its weight's",
            got=str(given),
            expected=str(sizes),
        )
    return sizes


@onnx_op("Conv")
def conv(call: Call, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return convolved(call, x, weight, bias)


def convolved(
    call: Call,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    dtype: DType | None = None,
) -> Tensor:
    """Apply Conv with the attributes of `call`."""
    window = Window(call, x.shape[2:], kernel_of(call, weight))
    if all(before == after for before, after in window.pads):
        padding = tuple(before for before, _ in window.pads)
    else:
        x = padded(x, [(0, 0), (0, 0), *window.pads])
        padding = (0,) * len(window.pads)
    return x.conv2d(
        weight,
        bias,
        groups=call.integer("group", 1),
        stride=window.strides,
        dilation=window.dilations,
        padding=padding,
        dtype=dtype,
    )


@onnx_op("ConvTranspose")
def conv_transpose(call: Call, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The full transposed convolution, then cut to the wanted output."""
    sizes = x.shape[2:]
    rank = len(sizes)
    kernel = kernel_of(call, weight)
    strides = call.integers("strides", (1,) * rank)
    dilations = call.integers("dilations", (1,) * rank)
    extra = call.integers("output_padding", (0,) * rank)
    whole = [
        strides[axis] * (sizes[axis] - 1) + (kernel[axis] - 1) * dilations[axis] + 1
        for axis in range(rank)
    ]
    pads = _transposed_pads(call, sizes, whole, strides, extra)
    y = x.conv_transpose2d(
        weight,
        None,
        groups=call.integer("group", 1),
        stride=strides,
        dilation=dilations,
        padding=(0,) * rank,
    )
    # What the output has beyond the full result is zero; `output_padding` adds it at the end.
    y = padded(
        y,
        [(0, 0), (0, 0), *((-b, extra[axis] - a) for axis, (b, a) in enumerate(pads))],
    )
    return y if bias is None else y + bias.reshape((1, -1, *([1] * rank)))


def _transposed_pads(
    call: Call,
    sizes: Sequence[int],
    whole: Sequence[int],
    strides: Sequence[int],
    extra: Sequence[int],
) -> Pairs:
    rank = len(sizes)
    auto_pad = call.text("auto_pad", "NOTSET")
    wanted = call.integers("output_shape", None)
    if wanted is None and auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        wanted = tuple(sizes[axis] * strides[axis] for axis in range(rank))
    if wanted is None:
        given = call.integers("pads", (0,) * (2 * rank))
        return list(zip(given[:rank], given[rank:], strict=True))
    pads = []
    for axis, size in enumerate(wanted[-rank:]):
        total = max(0, whole[axis] + extra[axis] - size)
        before = total // 2 if auto_pad == "SAME_UPPER" else total - total // 2
        # What is cut at the end is whatever gives the wanted size; below zero it adds zeros.
        pads.append((before, whole[axis] + extra[axis] - size - before))
    return pads


@onnx_op("DeformConv")
def deform_conv(
    call: Call,
    x: Tensor,
    weight: Tensor,
    offset: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Convolution whose taps are read at learnt places, by bilinear interpolation."""
    from_vision = sample_taps(call, x, weight, offset, mask)
    groups = call.integer("group", 1)
    n, c, taps, rows, columns = from_vision.shape
    outputs = weight.shape[0]
    patches = from_vision.reshape((n, groups, c // groups * taps, rows * columns))
    filters = weight.reshape((1, groups, outputs // groups, -1))
    y = filters.matmul(patches).reshape((n, outputs, rows, columns))
    return y if bias is None else y + bias.reshape((1, -1, 1, 1))


def sample_taps(
    call: Call, x: Tensor, weight: Tensor, offset: Tensor, mask: Tensor | None
) -> Tensor:
    """Read `x` at kernel places plus offsets: (n, c, taps, rows, columns)."""
    window = Window(call, x.shape[2:], kernel_of(call, weight))
    n, c = x.shape[:2]
    rows, columns = offset.shape[2:]
    kernel_rows, kernel_columns = window.kernel
    taps = kernel_rows * kernel_columns
    shares = call.integer("offset_group", 1)
    moved = offset.reshape((n, shares, taps, 2, rows, columns))
    places = []
    for axis, count in enumerate((rows, columns)):
        start = tensor_arange(x, count) * window.strides[axis] - window.pads[axis][0]
        start = start.reshape((count, 1) if axis == 0 else (1, count))
        tap = tensor_arange(x, taps)
        tap = tap // kernel_columns if axis == 0 else tap % kernel_columns
        base = tap.reshape((taps, 1, 1)) * window.dilations[axis] + start
        places.append(moved[:, :, :, axis] + base.cast(x.dtype))
    grouped = x.reshape((n, shares, c // shares, *x.shape[2:]))
    read = bilinear(grouped, places[0], places[1])
    if mask is not None:
        read = read * mask.reshape((n, shares, 1, taps, rows, columns))
    return read.reshape((n, c, taps, rows, columns))


def tensor_arange(like: Tensor, count: int) -> Tensor:
    """0, 1, ... on the device of `like`, as int64."""
    found: Tensor = type(like).arange(count, device=like.device).cast(dtypes.int64)
    return found


def bilinear(x: Tensor, y_place: Tensor, x_place: Tensor) -> Tensor:
    """Interpolate planes at fractional places; outside there are zeros.

    Shape: x (n, g, c, height, width), places (n, g, ...) -> (n, g, c, ...)
    """
    n, g, c, height, width = x.shape
    flat = x.reshape((n, g, c, height * width))
    spread = y_place.shape[2:]
    top, left = y_place.floor(), x_place.floor()
    total: Tensor | None = None
    for down in (0, 1):
        for across in (0, 1):
            row, column = top + down, left + across
            weight = (1 - (y_place - row).abs()) * (1 - (x_place - column).abs())
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            index = inside.where(row * width + column, row * 0).cast(dtypes.int64)
            index = index.reshape((n, g, 1, -1)).expand((n, g, c, math.prod(spread)))
            read = flat.gather(3, index).reshape((n, g, c, *spread))
            part = inside.unsqueeze(2).where(read * weight.unsqueeze(2), read * 0)
            total = part if total is None else total + part
    assert total is not None
    return total
