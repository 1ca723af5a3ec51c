"""Further functions of PyTorch: strided readings, histograms, checked decompositions, norms."""

from __future__ import annotations

import math
from numbers import Real
from typing import TYPE_CHECKING, Any, Self

from tilework import dtypes
from tilework.base.errors import ShapeError, UserError
from tilework.base.integers import product
from tilework.tensor.inplace_further import FurtherInPlace
from tilework.tensor.named import (
    CheckedCholesky,
    CheckedInverse,
    CheckedLU,
    CheckedSolution,
    Histogram,
    HistogramOfPoints,
)
from tilework.tensor.variable import format_shape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.tensor.fourier import Dims


class TorchNames(FurtherInPlace):
    """as_strided, histogram, fractional_max_pool2d, cholesky_ex, layer_norm and their kin."""

    __slots__ = ()

    # --- what it is --------------------------------------------------------------------------

    @property
    def itemsize(self) -> int:
        """The bytes of one element."""
        return self.element_size()

    def is_same_size(self, other: Self) -> bool:
        """Whether another tensor has this one's shape."""
        return bool(self._dims == other._dims)

    @staticmethod
    def broadcast_shapes(*shapes: Sequence[int] | int) -> tuple[int, ...]:
        """The shape that tensors of these shapes have together.

        Raises:
            ShapeError: there is none.

        Example:
            >>> Tensor.broadcast_shapes((2, 1), (3,))
            (2, 3)
        """
        given = [(shape,) if isinstance(shape, int) else tuple(shape) for shape in shapes]
        ndim = max([len(shape) for shape in given], default=0)
        padded = [(1,) * (ndim - len(shape)) + shape for shape in given]
        found = []
        for sizes in zip(*padded, strict=True):
            wide = {size for size in sizes if size != 1}
            if len(wide) > 1:
                raise ShapeError(
                    "broadcast_shapes: the shapes don't fit",
                    got=" and ".join([format_shape(shape) for shape in given]),
                    expected="equal sizes, or 1",
                )
            found.append(wide.pop() if wide else 1)
        return tuple(found)

    # --- strided readings --------------------------------------------------------------------

    def as_strided(
        self, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
    ) -> Self:
        """Elements of this tensor, row-major, at given distances: a copy, unlike PyTorch's view.

        Args:
            size: the shape.
            stride: for each axis, by how many elements its next one is further on.
            storage_offset: where the first element is, counted from that of this tensor.

        Raises:
            ShapeError: a stride is negative, or an element would be outside.

        Example:
            >>> Tensor.arange(5).as_strided((3, 2), (1, 2)).tolist()
            [[0, 2], [1, 3], [2, 4]]
        """
        places = self._strided_places(size, stride, storage_offset or 0, "as_strided")
        return self.flatten().gather(0, places.flatten()).reshape(tuple(size))

    def as_strided_scatter(
        self,
        src: Self,
        size: Sequence[int],
        stride: Sequence[int],
        storage_offset: int | None = None,
    ) -> Self:
        """This tensor with `src` at the elements that `as_strided` would read, all different ones.

        Raises:
            ShapeError: as of `as_strided`, or `src` has another shape than `size`.
        """
        if src._dims != tuple(size):
            raise ShapeError(
                "as_strided_scatter: the source has another shape",
                got=format_shape(src._dims),
                expected=format_shape(tuple(size)),
            )
        places = self._strided_places(size, stride, storage_offset or 0, "as_strided_scatter")
        found = self.flatten().scatter(0, places.flatten(), src.cast(self.dtype).flatten())
        return found.reshape(self.shape)

    def _strided_places(
        self, size: Sequence[int], stride: Sequence[int], offset: int, what: str
    ) -> Self:
        if len(size) != len(stride) or min([*size, *stride, offset], default=0) < 0:
            raise ShapeError(
                f"{what}: sizes and strides make no sense",
                got=f"sizes {tuple(size)}, strides {tuple(stride)}, offset {offset}",
                expected="one stride of at least 0 for each size",
            )
        last = offset + sum([(n - 1) * step for n, step in zip(size, stride, strict=True)])
        if product(tuple(size)) and last >= int(self.numel()):
            raise ShapeError(
                f"{what}: an element would be outside",
                got=f"place {last} of {self.numel()} elements",
                expected=f"at most {self.numel() - 1}",
            )
        kind, device = dtypes.index, self.device
        places: Any = type(self).full((1,) * len(size), offset, dtype=kind, device=device)
        for axis, (count, step) in enumerate(zip(size, stride, strict=True)):
            line: Any = type(self).arange(count, dtype=kind, device=device) * step
            places = places + line.reshape(*[1] * axis, count, *[1] * (len(size) - axis - 1))
        found: Self = places.expand(tuple(size))
        return found

    # --- histograms --------------------------------------------------------------------------

    def histogram(
        self,
        bins: int | Self,
        *,
        range: tuple[float, float] | None = None,
        weight: Self | None = None,
        density: bool = False,
    ) -> Histogram[Self]:
        """How many elements fall into each interval, and where the intervals end.

        Args:
            bins: how many intervals of equal width, or all their ends in ascending order.
            range: the outermost ends; by default the least and the greatest element.
            weight: what each element counts; 1 by default.
            density: divide by the total and by the widths.

        Shape: any -> (bins,), (bins + 1,)

        Raises:
            UserError: there is no interval.

        Example:
            >>> counts, edges = Tensor([1.0, 2.0, 1.0]).histogram(2, range=(0.0, 4.0))
            >>> counts.tolist(), edges.tolist()
            ([2.0, 1.0], [0.0, 2.0, 4.0])
        """
        flat = self.flatten().unsqueeze(-1)
        weights = None if weight is None else weight.flatten()
        found, edges = flat.histogramdd(
            bins if isinstance(bins, int) else [bins],
            range=None if range is None else list(range),
            weight=weights,
            density=density,
        )
        return Histogram(found, edges[0])

    def histogramdd(
        self,
        bins: int | Sequence[Any],
        *,
        range: Sequence[float] | None = None,
        weight: Self | None = None,
        density: bool = False,
    ) -> HistogramOfPoints[Self]:
        """`histogram` of points: the last axis of this tensor holds their coordinates.

        Args:
            bins: how many intervals (for each axis), or the ends of the intervals of each axis.
            range: the least and the greatest end of each axis, one behind the other.
            weight: what each point counts.
            density: divide by the total and by the volumes.

        Shape: (..., d) -> (bins of axis 0, ..., bins of axis d - 1), d tensors (bins + 1,)

        Raises:
            UserError: there is no interval, or the arguments are not one for each coordinate.
        """
        x = self._as_float()
        count = x._fixed_size(x.ndim - 1, "histogramdd")
        points = x.reshape(-1, count)
        each = [bins] * count if isinstance(bins, int) else list(bins)
        if len(each) != count or (range is not None and len(range) != 2 * count):
            raise UserError(
                "histogramdd: there must be one of each for each coordinate",
                got=f"{len(each)} bins and {len(range or ())} ends for {count} coordinates",
            )
        if not all(isinstance(end, Real) for end in range or ()):
            raise UserError("histogram: the ends of the range are no numbers", got=range)
        bounds = None if range is None else list(zip(range[::2], range[1::2], strict=True))
        edges = [
            points[:, axis]._edges(given, None if bounds is None else bounds[axis])
            for axis, given in enumerate(each)
        ]
        sizes = [ends._fixed_size(0, "histogramdd") - 1 for ends in edges]
        place: Any = 0
        is_inside: Any = True
        for axis, ends in enumerate(edges):
            values = points[:, axis]
            is_inside = (values >= ends[0]) & (values <= ends[-1]) & is_inside
            # The greatest end belongs to the last interval.
            own = (ends.searchsorted(values, right=True) - 1).clamp(0, sizes[axis] - 1)
            place = place * sizes[axis] + own
        shares = x.ones_like()[..., 0].flatten() if weight is None else weight.flatten()
        zeros = type(self).zeros(product(tuple(sizes)), dtype=x.dtype, device=self.device)
        shares = is_inside.where(shares.cast(x.dtype), 0.0)
        found = zeros.scatter_add(0, is_inside.where(place, 0), shares).reshape(tuple(sizes))
        if density:
            found = found / found.sum()
            for axis, ends in enumerate(edges):
                widths = ends[1:] - ends[:-1]
                found = found / widths.reshape(-1, *[1] * (len(sizes) - axis - 1))
        return HistogramOfPoints(found, tuple(edges))

    def _edges(self, bins: Any, bounds: tuple[float, float] | None) -> Self:
        """The ends of intervals of the values of a line."""
        if not isinstance(bins, int):
            ends: Self = bins.cast(self.dtype)
            if ends.ndim != 1 or ends._fixed_size(0, "histogram") < 2:
                raise UserError("histogram: there is no interval", got=f"ends of {ends.shape}")
            return ends
        if bins < 1 or (bounds is not None and bounds[1] < bounds[0]):
            raise UserError("histogram: there is no interval", got=f"{bins} bins, range {bounds}")
        if bounds is None and not self._fixed_size(0, "histogram"):
            bounds = (0.0, 1.0)
        low: Any = self.min() if bounds is None else self._line_of(bounds[0])
        high: Any = self.max() if bounds is None else self._line_of(bounds[1])
        low, high = low.reshape(1), high.reshape(1)
        is_point = low.eq(high)
        low, high = is_point.where(low - 0.5, low), is_point.where(high + 0.5, high)
        step = (high - low) / bins
        numbers: Any = type(self).arange(bins + 1, dtype=dtypes.int64, device=self.device)
        # From both ends, so that both are exact.
        rising = low + step * numbers.cast(self.dtype)
        falling = high - step * (bins - numbers).cast(self.dtype)
        found: Self = (numbers * 2 < bins + 1).where(rising, falling)
        return found

    def _line_of(self, number: float) -> Self:
        return self._from_numbers([number], self.dtype, self.device)

    # --- pooling -----------------------------------------------------------------------------

    def fractional_max_pool2d(
        self,
        kernel_size: int | Sequence[int],
        output_size: int | Sequence[int] | None = None,
        output_ratio: float | Sequence[float] | None = None,
        return_indices: bool = False,
        _random_samples: Self | None = None,
    ) -> Any:
        """The greatest element of windows whose places are drawn (Graham, 2014).

        Args:
            kernel_size: of the windows.
            output_size: of the result, or
            output_ratio: that of the result divided by that of the input.
            return_indices: also where the elements are, row-major in the last two axes.
            _random_samples: what is drawn from [0, 1), of the shape (n, c, 2).

        Shape: (n, c, h, w) or (c, h, w) -> the same with the output's size

        Raises:
            UserError: neither or both of size and ratio are given.
            ShapeError: windows don't fit into the input.
        """
        sizes = (kernel_size, output_size, output_ratio)
        return self._fractional(2, *sizes, return_indices, _random_samples)

    def fractional_max_pool3d(
        self,
        kernel_size: int | Sequence[int],
        output_size: int | Sequence[int] | None = None,
        output_ratio: float | Sequence[float] | None = None,
        return_indices: bool = False,
        _random_samples: Self | None = None,
    ) -> Any:
        """`fractional_max_pool2d` over three axes.

        Shape: (n, c, d, h, w) or (c, d, h, w) -> the same with the output's size
        """
        sizes = (kernel_size, output_size, output_ratio)
        return self._fractional(3, *sizes, return_indices, _random_samples)

    def _fractional(
        self, axes: int, kernel: Any, size: Any, ratio: Any, wants_places: bool, samples: Any
    ) -> Any:
        if (size is None) == (ratio is None):
            raise UserError("fractional_max_pool: needs one of output_size and output_ratio")
        if self.ndim == axes + 1:
            given = None if samples is None else samples.reshape(1, -1, axes)
            found = self.unsqueeze(0)._fractional(axes, kernel, size, ratio, wants_places, given)
            return tuple([x.squeeze(0) for x in found]) if wants_places else found.squeeze(0)
        first = self.ndim - axes
        spatial = [self._fixed_size(first + axis, "fractional_max_pool") for axis in range(axes)]
        kernels = list(kernel) if isinstance(kernel, tuple | list) else [kernel] * axes
        wanted = list(size) if isinstance(size, tuple | list) else [size] * axes
        if ratio is not None:
            ratios = list(ratio) if isinstance(ratio, tuple | list) else [ratio] * axes
            wanted = [int(n * part) for n, part in zip(spatial, ratios, strict=True)]
        for n, k, out in zip(spatial, kernels, wanted, strict=True):
            if out < 1 or out + k - 1 > n:
                raise ShapeError(
                    "fractional_max_pool: the windows don't fit",
                    got=f"{out} windows of {k} in {n}",
                    expected=f"at most {n - k + 1} windows",
                )
        lead = self.shape[:first]
        if samples is None:
            kind = self.dtype if self.dtype is dtypes.float64 else dtypes.float32
            samples = type(self).rand(*lead, axes, dtype=kind, device=self.device)
        count = product(tuple(spatial))
        counted: Any = type(self).arange(count, dtype=dtypes.int64, device=self.device)
        place = counted.reshape(*[1] * first, *spatial).expand(self.shape)
        x = self
        for number in range(axes):
            axis = first + 2 * number
            n, k, out = spatial[number], kernels[number], wanted[number]
            # The last axis takes the first of the draws of two, as PyTorch does; else in order.
            draw = samples[..., axes - 1 - number if axes == 2 else number]
            starts = _interval_starts(draw, n, k, out)
            x, place = (each._windows(axis, starts, k) for each in (x, place))
        taps = tuple(range(first + 1, first + 2 * axes, 2))
        found = x._greatest_in(taps, place)
        return (found, x._first_greatest(taps, place)) if wants_places else found

    def _windows(self, axis: int, starts: Any, kernel: int) -> Self:
        """Windows of an axis, which becomes two, from where each plane's own begin."""
        inside: Any = type(self).arange(kernel, dtype=dtypes.int64, device=self.device)
        places = (starts.unsqueeze(-1) + inside).flatten(-2)
        lead = places.shape[:-1]
        index = places.reshape(*lead, *[1] * (axis - len(lead)), -1, *[1] * (self.ndim - axis - 1))
        shape = list(self.shape)
        shape[axis] = places.shape[-1]
        return self.gather(axis, index.expand(tuple(shape))).unflatten(axis, (-1, kernel))

    # --- checked decompositions --------------------------------------------------------------

    def cholesky_ex(self, upper: bool = False, check_errors: bool = False) -> CheckedCholesky[Self]:
        """`cholesky`, and for each matrix 0 or the order of its first minor that is not positive.

        Shape: (..., n, n) -> (..., n, n), (...) int32

        Raises:
            UserError: `check_errors` is set, and a matrix is not positive definite.
        """
        found = self.cholesky(upper)
        is_bad = found.detach().diagonal(dim1=-2, dim2=-1).isnan()
        return CheckedCholesky(found, is_bad._first_bad(check_errors, "cholesky_ex"))

    def lu_factor_ex(self, *, pivot: bool = True, check_errors: bool = False) -> CheckedLU[Self]:
        """`lu_factor`, and for each matrix 0 or the place (from 1) of the first pivot that is 0.

        Raises:
            UserError: `pivot` is False, or `check_errors` is set, and a pivot is 0.
        """
        if not pivot:
            raise UserError(
                "lu_factor_ex: rows are always exchanged",
                got="pivot=False",
                try_="the same call without pivot",
            )
        packed, pivots = self.lu_factor()
        is_bad = packed.detach().diagonal(dim1=-2, dim2=-1).eq(0)
        return CheckedLU(packed, pivots, is_bad._first_bad(check_errors, "lu_factor_ex"))

    def inv_ex(self, check_errors: bool = False) -> CheckedInverse[Self]:
        """`inv`, and for each matrix 0 or the place of the first pivot that is 0."""
        info = self.detach().lu_factor_ex(check_errors=check_errors).info
        return CheckedInverse(self.inv(), info)

    def solve_ex(
        self, B: Self, left: bool = True, check_errors: bool = False
    ) -> CheckedSolution[Self]:
        """`solve`, and for each matrix 0 or the place of the first pivot that is 0."""
        info = self.detach().lu_factor_ex(check_errors=check_errors).info
        return CheckedSolution(self.solve(B, left), info)

    def _first_bad(self, check_errors: bool, what: str) -> Self:
        """The place (from 1) of the first True along the last axis, 0 where there is none."""
        if self.shape[-1] == 0:  # there is no factor that could be bad
            return type(self).zeros(*self.shape[:-1], dtype=dtypes.int32, device=self.device)
        number = self.int().argmax(-1) + 1
        found = self.any(-1).where(number, 0).cast(dtypes.int32)
        if check_errors and bool(found.ne(0).any().item()):
            raise UserError(
                f"{what}: a matrix has no such factors",
                try_="leave check_errors out, and look at what is given beside them",
            )
        return found

    # --- transforms --------------------------------------------------------------------------

    def hfft2(self, s: Any = None, dim: Dims = (-2, -1), norm: str | None = None) -> Self:
        """`hfftn` along two axes."""
        return self.hfftn(s, dim, norm)

    def ihfft2(self, s: Any = None, dim: Dims = (-2, -1), norm: str | None = None) -> Self:
        """`ihfftn` along two axes."""
        return self.ihfftn(s, dim, norm)

    # --- normalisation -----------------------------------------------------------------------

    def layer_norm(
        self,
        normalized_shape: int | Sequence[int],
        weight: Self | None = None,
        bias: Self | None = None,
        eps: float = 1e-5,
    ) -> Self:
        """`layernorm` along the last axes, times `weight`, plus `bias`.

        Raises:
            ShapeError: the last axes have other sizes.
        """
        given = normalized_shape
        sizes = (given,) if isinstance(given, int) else tuple(given)
        if not sizes or self.shape[-len(sizes) :] != sizes:
            raise ShapeError(
                "layer_norm: the last axes have other sizes",
                got=format_shape(self._dims),
                expected=f"sizes that end with {format_shape(sizes)}",
            )
        x = self.layernorm(tuple(range(-len(sizes), 0)), eps)
        x = x if weight is None else x * weight
        return x if bias is None else x + bias

    def group_norm(
        self,
        num_groups: int,
        weight: Self | None = None,
        bias: Self | None = None,
        eps: float = 1e-5,
    ) -> Self:
        """Mean 0 and variance 1 of groups of channels (axis 1), times `weight`, plus `bias`.

        Raises:
            ShapeError: the channels don't fall into so many groups.
        """
        channels = self.shape[1] if self.ndim > 1 else 0
        if num_groups < 1 or not channels or channels % num_groups:
            raise ShapeError(
                "group_norm: the channels don't fall into groups",
                got=f"{num_groups} groups, shape {format_shape(self._dims)}",
            )
        x = self.reshape(self.shape[0], num_groups, -1).layernorm(-1, eps).reshape(self.shape)
        return x._by_channel(weight, bias)

    def instance_norm(
        self, weight: Self | None = None, bias: Self | None = None, eps: float = 1e-5
    ) -> Self:
        """`group_norm` with a group for each channel."""
        return self.group_norm(self.shape[1] if self.ndim > 1 else 0, weight, bias, eps)

    def _by_channel(self, weight: Self | None, bias: Self | None) -> Self:
        shape = (-1,) + (1,) * (self.ndim - 2)
        x = self if weight is None else self * weight.reshape(shape)
        return x if bias is None else x + bias.reshape(shape)

    def embedding(self, weight: Self) -> Self:
        """The rows of `weight` that this tensor of integers names.

        Shape: (...), weight (n, d) -> (..., d)
        """
        return weight[self]

    # --- losses ------------------------------------------------------------------------------

    def binary_cross_entropy(
        self, target: Self, weight: Self | None = None, reduction: str = "mean"
    ) -> Self:
        """Another name for `binary_crossentropy`."""
        return self.binary_crossentropy(target, reduction, weight)

    def binary_cross_entropy_with_logits(
        self,
        target: Self,
        weight: Self | None = None,
        reduction: str = "mean",
        pos_weight: Self | None = None,
    ) -> Self:
        """Another name for `binary_crossentropy_logits`."""
        return self.binary_crossentropy_logits(target, reduction, pos_weight, weight)

    def triplet_margin_with_distance_loss(
        self,
        positive: Self,
        negative: Self,
        distance_function: Any = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> Self:
        """How much nearer to `positive` than to `negative` this is not, in a distance of one's own.

        Args:
            positive: what is to be near.
            negative: what is to be far.
            distance_function: takes two tensors; the pairwise distance by default.
            margin: by how much.
            swap: use the distance between the two others where that is less.
            reduction: "mean", "sum" or "none".
        """
        distance = distance_function or type(self).pairwise_distance
        near, far = distance(self, positive), distance(self, negative)
        if swap:
            far = far.minimum(distance(positive, negative))
        found: Self = (near - far + margin).clamp(min_=0.0)._reduced(reduction)
        return found


def _interval_starts(draw: Any, size: int, kernel: int, count: int) -> Any:
    """Where windows begin: spread over the axis, shifted by what was drawn; the last at its end."""
    last = size - kernel
    numbers = type(draw).arange(count, dtype=dtypes.int64, device=draw.device)
    if count == 1:
        return (draw.unsqueeze(-1) * 0).cast(dtypes.int64) + last
    step = _rounded(last / (count - 1), draw.dtype.name)
    shift = draw.unsqueeze(-1)
    starts = ((numbers.cast(draw.dtype) + shift) * step).cast(dtypes.int64)
    starts = starts - (shift * step).cast(dtypes.int64)
    return numbers.eq(count - 1).where(last, starts)


def _rounded(value: float, dtype: str) -> float:
    """A number as float32 has it, where that is what is computed with."""
    if dtype == "float64" or not math.isfinite(value):
        return value
    mantissa, exponent = math.frexp(value)
    return math.ldexp(round(mantissa * (1 << 24)), exponent - 24)
