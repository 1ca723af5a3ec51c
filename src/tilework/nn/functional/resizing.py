"""More or fewer elements: padding, interpolation, sampling, pixels and channels."""

from __future__ import annotations

from collections.abc import Sequence

from tilework.base.errors import ShapeError
from tilework.tensor.tensor import Tensor

OptionalInts = int | Sequence[int] | None
Floats = float | Sequence[float]


def pad(
    input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Tensor:
    """More elements around a tensor; fewer where a number is negative.

    Args:
        input: any number of axes.
        pad: before and after the last axis, before and after the last but one...
        mode: "constant", "reflect" (without the edge), "replicate" or "circular".
        value: what to pad with in mode "constant"; 0 by default.

    Example:
        >>> pad(Tensor([[1, 2]]), (1, 0, 0, 1)).tolist()
        [[0, 1, 2], [0, 0, 0]]
    """
    return input.pad(tuple(pad), mode, 0 if value is None else value)


def interpolate(
    input: Tensor,
    size: OptionalInts = None,
    scale_factor: Floats | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """All axes behind the channels resized; see `Tensor.interpolate`.

    Args:
        input: (n, c, ...).
        size: the new sizes; one number stands for all axes.
        scale_factor: instead of `size`: what the sizes are multiplied with.
        mode: "nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear" or "area".
        align_corners: let the first and the last elements stay where they are.
        recompute_scale_factor: take the ratio of the sizes for coordinates.
        antialias: when shrinking, let each element see all that it stands for.

    Example:
        >>> interpolate(Tensor([[[[1.0, 3.0]]]]), scale_factor=2).shape
        (1, 1, 2, 4)
    """
    count = input.ndim - 2
    if count < 1:
        raise ShapeError("interpolate: needs (n, c, ...)", got=f"{input.shape}")
    sizes = (size,) * count if isinstance(size, int) else size
    factors = (scale_factor,) * count if isinstance(scale_factor, int | float) else scale_factor
    return input.interpolate(
        sizes, mode, bool(align_corners), factors, recompute_scale_factor, antialias
    )


def upsample(
    input: Tensor,
    size: OptionalInts = None,
    scale_factor: Floats | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """`interpolate` under its older name.

    Shape: (n, c, ...) -> (n, c, ...) with the new sizes
    """
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(
    input: Tensor, size: OptionalInts = None, scale_factor: Floats | None = None
) -> Tensor:
    """`interpolate` in mode "nearest".

    Shape: (n, c, ...) -> (n, c, ...) with the new sizes
    """
    return interpolate(input, size, scale_factor, "nearest")


def upsample_bilinear(
    input: Tensor, size: OptionalInts = None, scale_factor: Floats | None = None
) -> Tensor:
    """`interpolate` in mode "bilinear" with corners that stay.

    Shape: (n, c, h, w) -> (n, c, oh, ow)
    """
    return interpolate(input, size, scale_factor, "bilinear", True)


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """Elements at positions between -1 and 1; see `Tensor.grid_sample`.

    Shape: (n, c, h, w), grid (n, oh, ow, 2) -> (n, c, oh, ow); with a depth likewise
    """
    return input.grid_sample(grid, mode, padding_mode, bool(align_corners))


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The positions that an affine map takes a picture's elements from.

    Args:
        theta: maps, (n, 2, 3) or (n, 3, 4).
        size: of the output, (n, c, h, w) or (n, c, d, h, w).
        align_corners: -1 and 1 are the middles of the edge elements, not their borders.

    Shape: (n, h, w, 2) or (n, d, h, w, 3)
    """
    return Tensor.affine_grid(theta, size, bool(align_corners))


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """Channels as pixels: (n, c * r * r, h, w) -> (n, c, h * r, w * r)."""
    return input.pixel_shuffle(upscale_factor)


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """Pixels as channels; the inverse of `pixel_shuffle`.

    Shape: (n, c, h * r, w * r) -> (n, c * r * r, h, w)
    """
    return input.pixel_unshuffle(downscale_factor)


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Channels of all groups in turn.

    Shape: (n, c, ...) -> the same; `groups` divides c
    """
    return input.channel_shuffle(groups)


native_channel_shuffle = channel_shuffle
