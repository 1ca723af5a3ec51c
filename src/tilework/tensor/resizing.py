"""Resizing of the last axes, sampling at places of a grid, and blocks of pixels as channels."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

from tilework import dtypes
from tilework.base.errors import ShapeError, UserError
from tilework.dtypes import promote
from tilework.tensor.signals import Signals
from tilework.tensor.variable import format_shape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_MODES = (
    "nearest", "nearest-exact", "linear", "bilinear", "trilinear", "bicubic", "area",
)  # fmt: skip


class Resizing(Signals):
    """interpolate, grid_sample, affine_grid, pixel_shuffle."""

    __slots__ = ()

    # --- resizing ----------------------------------------------------------------------------

    def interpolate(
        self,
        size: Sequence[int] | int | None = None,
        mode: str = "linear",
        align_corners: bool = False,
        scale_factor: Sequence[float] | float | None = None,
        recompute_scale_factor: bool | None = None,
        antialias: bool = False,
    ) -> Self:
        """The last axes resized.

        Args:
            size: their new sizes; a number for the last axis alone.
            mode: "linear" (also "bilinear", "trilinear"), "bicubic", "area", "nearest" or
                "nearest-exact".
            align_corners: let the first and the last elements stay where they are.
            scale_factor: instead of `size`: what the sizes are multiplied with; one number for all
                axes after the first two.
            recompute_scale_factor: take the ratio of the sizes, which are whole, for coordinates.
            antialias: when shrinking, let each element see all that it stands for.

        Example:
            >>> Tensor([[[1.0, 3.0]]]).interpolate(4, mode="nearest").tolist()
            [[[1.0, 1.0, 3.0, 3.0]]]
        """
        if mode not in _MODES:
            raise UserError("interpolate: unknown mode", got=mode, expected=", ".join(_MODES))
        new, ratios = self._new_sizes(size, scale_factor, bool(recompute_scale_factor))
        first = self.ndim - len(new)
        if mode == "area":
            return self._adaptive_mean(new)
        x = self
        for axis, (target, ratio) in enumerate(zip(new, ratios, strict=True), first):
            own = x._fixed_size(axis, "interpolate")
            if target == own and (ratio == 1 or align_corners):
                continue
            if mode.startswith("nearest"):
                x = x._nearest(axis, target, ratio, 0.5 if mode == "nearest-exact" else 0.0)
            else:
                width = 2 if mode == "bicubic" else 1
                if antialias:
                    taps = _spread_taps(own, target, ratio, align_corners, width)
                else:
                    places = _places(own, target, ratio, align_corners)
                    taps = [_taps(place, width, own) for place in places]
                x = x._blended(axis, taps)
        return x._apply(None) if x is self else x

    def _new_sizes(
        self, size: Any, scale: Any, recompute: bool
    ) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """The new sizes, and how far apart their elements lie in the old ones."""
        if (size is None) == (scale is None):
            raise UserError("interpolate: give either size or scale_factor")
        given = size if size is not None else scale
        if hasattr(type(given), "__len__"):
            found = tuple(given)
        else:
            # One number: PyTorch's inputs are (n, c, ...); a plain size means the last axis.
            found = (given,) * max(self.ndim - 2, 1)
        if len(found) > self.ndim:
            raise ShapeError(
                "interpolate: there are too few axes",
                got=f"{found} for {format_shape(self._dims)}",
            )
        first = self.ndim - len(found)
        old = [self._fixed_size(axis, "interpolate") for axis in range(first, self.ndim)]
        if size is not None:
            new = found
        else:
            new = tuple([math.floor(a * b) for a, b in zip(old, found, strict=True)])
        if min(new, default=1) < 1 or min(old, default=1) < 1:
            raise ShapeError(
                "interpolate: the mode or the size doesn't fit",
                got=f"size {new} for {format_shape(self._dims)}",
                expected="sizes from 1 on",
            )
        if math.prod(self.shape[:first]) * math.prod(new) >= 2**63:
            raise ShapeError(
                "interpolate: there are more elements than 64 bits count", got=f"sizes {new}"
            )
        if size is not None or recompute:
            return new, tuple([a / b for a, b in zip(old, new, strict=True)])
        return new, tuple([1 / each for each in found])

    def _nearest(self, axis: int, target: int, ratio: float, shift: float) -> Self:
        size = self._fixed_size(axis, "interpolate")
        places = [min(int((i + shift) * ratio + 1e-9), size - 1) for i in range(target)]
        return self._gathered(axis, [self._from_numbers(places, dtypes.index, self.device)])

    def _blended(self, axis: int, taps: list[list[tuple[int, float]]]) -> Self:
        """Weighted sums of the elements that each new one is made of."""
        wide = self._wide() if self.dtype.is_float else self.float()
        shape = [1] * self.ndim
        shape[axis] = len(taps)
        total: Self | None = None
        for number in range(max(len(tap) for tap in taps)):
            chosen = [tap[number] if number < len(tap) else (0, 0.0) for tap in taps]
            index = self._from_numbers([place for place, _ in chosen], dtypes.index, self.device)
            share = self._from_numbers([weight for _, weight in chosen], wide.dtype, self.device)
            part = wide._gathered(axis, [index]) * share.reshape(shape)
            total = part if total is None else total + part
        assert total is not None
        return total.cast(self.dtype) if self.dtype.is_float else total

    def _adaptive_mean(self, sizes: tuple[int, ...]) -> Self:
        """`adaptive_avg_pool2d`; pooling says how."""
        raise NotImplementedError

    # --- sampling ----------------------------------------------------------------------------

    @classmethod
    def affine_grid(cls, theta: Self, size: Sequence[int], align_corners: bool = False) -> Self:
        """The places that an affine map takes the elements of an image to, for `grid_sample`.

        Args:
            theta: maps, (n, 2, 3) or (n, 3, 4).
            size: of the output, (n, c, h, w) or (n, c, d, h, w).
            align_corners: -1 and 1 are the middles of the edge elements, not their borders.

        Shape: (n, h, w, 2) or (n, d, h, w, 3)
        """
        count = len(size) - 2
        if theta.ndim != 3 or theta._dims[1:] != (count, count + 1) or count not in (2, 3):
            raise ShapeError(
                "affine_grid: the maps don't fit",
                got=f"{format_shape(theta._dims)} for size {tuple(size)}",
                expected="(n, 2, 3) for images, (n, 3, 4) for volumes",
            )
        axes = []
        for axis, length in enumerate(size[2:]):
            low = -1.0 if align_corners else 1 / length - 1
            options: dict[str, Any] = {"dtype": theta.dtype, "device": theta.device}
            steps = cls.zeros(1, **options)
            if length > 1:
                steps = cls.linspace(low, -low, length, **options)
            shape = [1] * count
            shape[axis] = length
            axes.append(steps.reshape(shape).expand(*size[2:]))
        ones = axes[0].ones_like()
        places = axes[-1].stack(*axes[-2::-1], ones, dim=-1).reshape(-1, count + 1)
        found = places.unsqueeze(0).matmul(theta.transpose(1, 2))
        return found.reshape(theta.shape[0], *size[2:], count)

    def grid_sample(
        self,
        grid: Self,
        mode: str = "bilinear",
        padding_mode: str = "zeros",
        align_corners: bool = False,
    ) -> Self:
        """The values of images at the places of a grid.

        Args:
            grid: places, x first, from -1 to 1.
            mode: "bilinear", "nearest", or of images "bicubic".
            padding_mode: what lies outside: "zeros", "border" or "reflection".
            align_corners: -1 and 1 are the middles of the edge elements, not their borders.

        Shape: self (n, c, h, w), grid (n, oh, ow, 2) -> (n, c, oh, ow); volumes likewise
        """
        count = self.ndim - 2
        fits = grid.ndim == self.ndim and grid._dims[-1] == count and count in (2, 3)
        if not fits or grid._dims[0] != self._dims[0]:
            raise ShapeError(
                "grid_sample: the grid doesn't fit",
                got=f"{format_shape(grid._dims)} for {format_shape(self._dims)}",
                expected="(n, oh, ow, 2) for images, (n, od, oh, ow, 3) for volumes",
            )
        if mode not in ("bilinear", "nearest", "bicubic") or (mode == "bicubic" and count == 3):
            raise UserError("grid_sample: unknown mode", got=f"{mode} over {count} axes")
        if padding_mode not in ("zeros", "border", "reflection"):
            raise UserError("grid_sample: unknown padding_mode", got=padding_mode)
        sizes = [self._fixed_size(axis, "grid_sample") for axis in range(2, self.ndim)]
        # Rounded to a small float a place may lie between other elements than it does.
        exact = grid._wide()
        places = []
        for axis, size in enumerate(sizes):
            place = exact[..., count - 1 - axis]
            if align_corners:
                place = (place + 1) * ((size - 1) / 2)
            else:
                place = ((place + 1) * size - 1) * 0.5
            if mode != "bicubic":
                place = _inside(place, size, padding_mode, align_corners)
            places.append(place)
        wide = self._wide() if self.dtype.is_float else self
        channels = wide.permute(0, *range(2, self.ndim), 1)
        found = channels._sampled(places, sizes, mode, padding_mode, align_corners)
        is_kept = mode == "nearest" and self.dtype.is_float
        kept = self.dtype if is_kept else promote(self.dtype, grid.dtype)
        if found.dtype != kept:
            found = found.cast(kept)
        return found.permute(0, found.ndim - 1, *range(1, found.ndim - 1))

    def _sampled(
        self, places: list[Self], sizes: list[int], mode: str, padding: str, aligned: bool
    ) -> Self:
        """Sums over the elements around each place, of (n, ..., c)."""
        choices: list[list[tuple[Self, Any]]] = []
        for place in places:
            if mode == "nearest":
                choices.append([(place.round(), None)])
                continue
            low = place.detach().floor()
            share = place - low
            if mode == "bilinear":
                choices.append([(low, 1 - share), (low + 1, share)])
            else:
                weights = [_cubic_at(share, offset) for offset in (-1, 0, 1, 2)]
                choices.append([(low + n - 1, weight) for n, weight in enumerate(weights)])
        total: Self | None = None
        stack: list[tuple[list[Any], Any]] = [([], None)]
        for options in choices:
            stack = [
                ([*chosen, place], _times(weight, share))
                for chosen, weight in stack
                for place, share in options
            ]
        for chosen, weight in stack:
            if mode == "bicubic":
                chosen = [
                    _inside(place, size, padding, aligned)
                    for place, size in zip(chosen, sizes, strict=True)
                ]
            part = self._picked(chosen, sizes)
            part = part if weight is None else part * weight.unsqueeze(-1)
            total = part if total is None else total + part
        assert total is not None
        return total

    def _picked(self, places: list[Self], sizes: list[int]) -> Self:
        """Elements at whole places, 0 outside."""
        is_in: Any = None
        indices = []
        for place, size in zip(places, sizes, strict=True):
            fits = (place >= 0) & (place <= size - 1)
            is_in = fits if is_in is None else is_in & fits
            safe = fits.where(place, 0.0).detach()
            indices.append(safe.cast(dtypes.index))
        found = self._gathered(0, [indices[0]._positions(0), *indices])
        chosen: Self = is_in.unsqueeze(-1).where(found, 0.0)
        return chosen

    # --- blocks ------------------------------------------------------------------------------

    def pixel_shuffle(self, upscale_factor: int) -> Self:
        """Groups of channels as blocks of pixels.

        Shape: (..., c * r * r, h, w) -> (..., c, h * r, w * r)

        Example:
            >>> Tensor.arange(4).reshape(1, 4, 1, 1).pixel_shuffle(2).tolist()
            [[[[0, 1], [2, 3]]]]
        """
        r = upscale_factor
        if self.ndim < 3 or r < 1 or self._fixed_size(-3, "pixel_shuffle") % (r * r):
            raise ShapeError(
                "pixel_shuffle: the channels don't divide",
                got=f"{format_shape(self._dims)} by {r} * {r}",
            )
        *lead, channels, height, width = self.shape
        count = len(lead)
        x = self.reshape(*lead, channels // (r * r), r, r, height, width)
        order = [count, count + 3, count + 1, count + 4, count + 2]
        return (
            x.permute(*range(count), *order)
            .reshape(*lead, channels // (r * r), height * r, width * r)
            ._apply(None)
        )

    def pixel_unshuffle(self, downscale_factor: int) -> Self:
        """The inverse of `pixel_shuffle`."""
        r = downscale_factor
        if (
            self.ndim < 3
            or r < 1
            or any(self._fixed_size(n, "pixel_unshuffle") % r for n in (-1, -2))
        ):
            raise ShapeError(
                "pixel_unshuffle: the sides don't divide",
                got=f"{format_shape(self._dims)} by {r}",
            )
        *lead, channels, height, width = self.shape
        count = len(lead)
        x = self.reshape(*lead, channels, height // r, r, width // r, r)
        order = [count, count + 2, count + 4, count + 1, count + 3]
        return (
            x.permute(*range(count), *order)
            .reshape(*lead, channels * r * r, height // r, width // r)
            ._apply(None)
        )

    def channel_shuffle(self, groups: int) -> Self:
        """Channels of all groups in turn: the first of each, then the second of each, ..."""
        if self.ndim < 2 or groups < 1 or self._fixed_size(1, "channel_shuffle") % groups:
            raise ShapeError(
                "channel_shuffle: the channels don't divide",
                got=f"{format_shape(self._dims)} into {groups} groups",
            )
        first, channels, *rest = self.shape
        x = self.reshape(first, groups, channels // groups, *rest)
        return x.transpose(1, 2).reshape(self.shape)._apply(None)


def _times(weight: Any, share: Any) -> Any:
    if share is None:
        return weight
    return share if weight is None else weight * share


def _inside(place: Any, size: int, padding: str, aligned: bool) -> Any:
    """A coordinate brought into the image, as `padding` says."""
    if padding == "zeros":
        return place
    if padding == "reflection":
        low, high = (0, 2 * (size - 1)) if aligned else (-1, 2 * size - 1)
        span = (high - low) / 2
        if span == 0:
            return place * 0.0
        start = low / 2
        away = (place - start).abs()
        turns = (away.detach() / span).floor()
        rest = away - turns * span
        is_even = (turns * 0.5).floor().eq(turns * 0.5)
        place = is_even.where(rest + start, span - rest + start)
    place = (place <= 0).where(0.0, place)
    return (place >= size - 1).where(size - 1.0, place)


def _places(size: int, target: int, ratio: float, align_corners: bool) -> list[float]:
    """Where in the input each element of the output lies."""
    if align_corners:
        step = (size - 1) / (target - 1) if target > 1 else 0.0
        return [i * step for i in range(target)]
    return [(i + 0.5) * ratio - 0.5 for i in range(target)]


def _taps(place: float, width: int, size: int) -> list[tuple[int, float]]:
    """The elements that a place is made of, with their weights; outside the edge is repeated."""
    kernel: Callable[[float], float] = _triangle if width == 1 else _cubic
    if width == 1:
        place = min(max(place, 0.0), size - 1.0)
    low = math.floor(place)
    taps = range(low - width + 1, low + width + 1)
    return [(min(max(n, 0), size - 1), kernel(place - n)) for n in taps]


def _spread_taps(
    size: int, target: int, ratio: float, align_corners: bool, width: int
) -> list[list[tuple[int, float]]]:
    """As `_taps` for each new element, by a kernel that is stretched and cut at the edges.

    PyTorch takes the middles of elements for coordinates even where corners are aligned.
    """
    if align_corners:
        ratio = (size - 1) / (target - 1) if target > 1 else 0.0
    scale = max(ratio, 1.0)
    kernel = _triangle if width == 1 else _cubic_half
    found = []
    for number in range(target):
        middle = (number + 0.5) * ratio
        low = max(math.floor(middle - width * scale + 0.5), 0)
        high = min(math.floor(middle + width * scale + 0.5), size)
        raw = [(n, kernel((n + 0.5 - middle) / scale)) for n in range(low, high)]
        total = sum(weight for _, weight in raw)
        found.append([(n, weight / total) for n, weight in raw])
    return found


def _triangle(distance: float) -> float:
    return max(1.0 - abs(distance), 0.0)


def _cubic(distance: float, bend: float = -0.75) -> float:
    """The convolution kernel of Keys (1981)."""
    x = abs(distance)
    if x <= 1:
        return ((bend + 2) * x - (bend + 3)) * x * x + 1
    if x < 2:
        return ((bend * x - 5 * bend) * x + 8 * bend) * x - 4 * bend
    return 0.0


def _cubic_half(distance: float) -> float:
    return _cubic(distance, -0.5)


def _cubic_at(share: Any, offset: int) -> Any:
    """The weight of the element at `offset` of a place at `share` behind element 0."""
    bend = -0.75
    x = (share - offset) if offset <= 0 else (offset - share)
    if offset in (0, 1):
        return ((x * (bend + 2)) - (bend + 3)) * x * x + 1
    return ((x * bend - 5 * bend) * x + 8 * bend) * x - 4 * bend
