"""Statistics: quantiles, covariances, differences, and folds that leave NaN out."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

from tilework import dtypes
from tilework.base.errors import DTypeError, ShapeError, UserError
from tilework.tensor.named import Extremes, ValuesAndIndices
from tilework.tensor.products import Products
from tilework.tensor.variable import format_shape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.dtypes import DType
    from tilework.tensor.reduce import Axis


class Statistics(Products):
    """quantile, cov, diff, nansum, mode and their kin."""

    __slots__ = ()

    # --- folds -------------------------------------------------------------------------------

    def aminmax(self, dim: int | None = None, keepdim: bool = False) -> Extremes[Self]:
        """The least and the greatest element."""
        return Extremes(self.min(dim, keepdim), self.max(dim, keepdim))

    def count_nonzero(self, axis: Axis = None) -> Self:
        """How many elements over `axis` are not zero (int64)."""
        return self.ne(0).sum(axis)

    def nansum(
        self, axis: Axis = None, keepdim: bool = False, dtype: DType | str | None = None
    ) -> Self:
        """`sum` of the elements that are not NaN.

        Example:
            >>> Tensor([1.0, float("nan")]).nansum().item()
            1.0
        """
        return self.isnan().where(0, self).sum(axis, keepdim, dtype)

    def nanmean(
        self, axis: Axis = None, keepdim: bool = False, dtype: DType | str | None = None
    ) -> Self:
        """`mean` of the elements that are not NaN; NaN where there is none."""
        x = self._as_float() if dtype is None else self.cast(dtype)
        counts = x.isnan().logical_not()
        wide = x._wide()
        total = counts.where(wide, 0.0).sum(axis, keepdim)
        return (total / counts.sum(axis, keepdim).cast(wide.dtype)).cast(x.dtype)

    def dist(self, other: Self, p: float = 2.0) -> Self:
        """The p-norm of self - other."""
        return (self - other).norm(p=p)

    # --- order -------------------------------------------------------------------------------

    def nanmedian(self, dim: int | None = None, keepdim: bool = False) -> Any:
        """`median` of the elements that are not NaN; NaN where there is none."""
        if dim is None:
            return self.flatten().nanmedian(0)[0]
        if not self.ndim:
            return ValuesAndIndices(self._apply(None), self._constant(0, dtypes.index))
        axis = self._axis(dim, "nanmedian")
        order = self.argsort(axis)
        count = self.isnan().logical_not().sum(axis, keepdim=True)
        middle = (count - 1).clamp(min_=0).floordiv(2)
        place = order.gather(axis, middle)
        found = self.gather(axis, place)
        if keepdim:
            return ValuesAndIndices(found, place)
        return ValuesAndIndices(found.squeeze(axis), place.squeeze(axis))

    def mode(self, dim: int = -1, keepdim: bool = False) -> ValuesAndIndices[Self]:
        """The element that is most frequent along `dim` (the least of equals) and its position."""
        if not self.ndim:
            return ValuesAndIndices(self._apply(None), self._constant(0, dtypes.index))
        axis = self._axis(dim, "mode")
        x = self.movedim(axis, -1)
        size = x._fixed_size(-1, "mode")
        if not size:
            raise ShapeError("mode: there is no element", got=format_shape(self._dims))
        ordered, order = x.sort(-1)
        # The length of each run of equals that ends here.
        place = ordered._positions(ordered.ndim - 1)
        before = ordered.roll(1, -1)
        starts = ordered.ne(before) | place.eq(0)
        first = starts.where(place, 0).cummax(-1)[0].contiguous()
        best = (place - first).argmax(-1, keepdim=True)
        value, where = ordered.gather(-1, best), order.gather(-1, best)
        if keepdim:
            return ValuesAndIndices(value.movedim(-1, axis), where.movedim(-1, axis))
        return ValuesAndIndices(value.squeeze(-1), where.squeeze(-1))

    def msort(self) -> Self:
        """The elements in order along the first axis."""
        return self.sort(0)[0] if self.ndim else self._apply(None)

    def quantile(
        self,
        q: Self | float,
        dim: int | None = None,
        keepdim: bool = False,
        interpolation: str = "linear",
    ) -> Self:
        """The value below which the share `q` of the elements lies; NaN if one is NaN.

        Args:
            q: a number in [0, 1], or a vector of them (a first axis of the result).
            dim: the axis; all by default.
            keepdim: keep the axis with size 1.
            interpolation: "linear", "lower", "higher", "midpoint" or "nearest" between elements.

        Example:
            >>> Tensor([0.0, 1.0, 4.0]).quantile(0.75).item()
            2.5
        """
        return self._quantile(q, dim, keepdim, interpolation, skips_nan=False)

    def nanquantile(
        self,
        q: Self | float,
        dim: int | None = None,
        keepdim: bool = False,
        interpolation: str = "linear",
    ) -> Self:
        """`quantile` of the elements that are not NaN."""
        return self._quantile(q, dim, keepdim, interpolation, skips_nan=True)

    def _quantile(
        self, q: Self | float, dim: int | None, keepdim: bool, how: str, skips_nan: bool
    ) -> Self:
        if how not in ("linear", "lower", "higher", "midpoint", "nearest"):
            raise UserError("quantile: unknown interpolation", got=how)
        if not self.dtype.is_float:
            raise DTypeError("quantile: needs floats", got=self.dtype.name, try_=".float()")
        shares = (
            self._from_numbers([q], dtypes.float64, self.device).reshape(())
            if isinstance(q, int | float)
            else self._other(q).cast(dtypes.float64)
        )
        x = self.reshape(-1) if dim is None or not self.ndim else self
        axis = 0 if dim is None or not self.ndim else self._axis(dim, "quantile")
        ordered = x.movedim(axis, -1).sort(-1)[0]
        counts = ordered.isnan().logical_not().sum(-1, keepdim=True)
        rows = shares.reshape(-1, *[1] * ordered.ndim)
        place = rows * (counts - 1).clamp(min_=0).cast(dtypes.float64)
        found = ordered._between(place, how)
        size = ordered._fixed_size(-1, "quantile")
        is_broken = counts.eq(0) if skips_nan else counts.ne(size)
        found = is_broken.where(math.nan, found)
        if not keepdim:
            found = found.squeeze(-1)
        elif dim is None or not self.ndim:
            found = found.reshape(found.shape[0], *[1] * self.ndim)
        else:
            found = found.movedim(-1, axis + 1)
        return found if shares.ndim else found.squeeze(0)

    def _between(self, place: Self, how: str) -> Self:
        """Elements of the last axis at fractional places, (q, ..., 1)."""
        low, high = place.floor(), place.ceil()
        if how == "nearest":
            low = high = place.round()
        grown = self.unsqueeze(0).expand(place.shape[0], *self.shape)
        first = grown.gather(-1, low.cast(dtypes.index))
        if how in ("lower", "nearest"):
            return first
        second = grown.gather(-1, high.cast(dtypes.index))
        if how == "higher":
            return second
        share = (place - low).cast(self.dtype) if how == "linear" else 0.5
        # Equal ends give themselves, infinite ones too.
        mixed = first + (second - first) * share
        return (first.eq(second) | low.eq(high)).where(first, mixed)

    # --- covariance --------------------------------------------------------------------------

    def cov(
        self, correction: int = 1, fweights: Self | None = None, aweights: Self | None = None
    ) -> Self:
        """The covariances of variables in rows, observed in columns.

        Args:
            correction: taken from the count.
            fweights: how often each observation counts (integers).
            aweights: how much each observation counts.

        Example:
            >>> Tensor([[1.0, 2.0], [3.0, 5.0]]).cov().tolist()
            [[0.5, 1.0], [1.0, 2.0]]
        """
        if self.ndim > 2:
            raise ShapeError("cov: needs at most two axes", got=format_shape(self._dims))
        x = self._as_float().reshape(1, -1) if self.ndim < 2 else self._as_float()
        if aweights is not None:
            x = x.cast(dtypes.promote(x.dtype, aweights.dtype))
        weights: Self | None = None
        for given in (fweights, aweights):
            if given is not None:
                weights = given.cast(x.dtype) if weights is None else weights * given.cast(x.dtype)
        total: Any = x._fixed_size(1, "cov") if weights is None else weights.sum()
        mean = (x if weights is None else x * weights).sum(1, keepdim=True) / total
        freedom = total - correction
        if aweights is not None and weights is not None:
            freedom = total - (weights * aweights.cast(x.dtype)).sum() / total * correction
        centered = x - mean
        scaled = centered if weights is None else centered * weights
        least = max(freedom, 0) if isinstance(freedom, int) else freedom.maximum(0.0)
        found: Self = scaled.matmul(centered.transpose()) / least
        return found.squeeze()

    def corrcoef(self) -> Self:
        """The correlations of variables in rows, observed in columns."""
        found = self.cov()
        if not found.ndim:
            return found / found
        root = found.diagonal().sqrt()
        return (found / root.unsqueeze(1) / root.unsqueeze(0)).clamp(-1, 1)

    # --- neighbours --------------------------------------------------------------------------

    def diff(
        self, n: int = 1, dim: int = -1, prepend: Self | None = None, append: Self | None = None
    ) -> Self:
        """The differences of neighbours along `dim`, taken `n` times.

        Example:
            >>> Tensor([1, 4, 9]).diff().tolist()
            [3, 5]
        """
        if not self.ndim:
            raise ShapeError("diff: a scalar has no neighbours")
        if n < 0:
            raise ShapeError("diff: n is negative", got=n)
        axis = self._axis(dim, "diff")
        if n == 0:
            return self._apply(None)
        parts = [part for part in (prepend, self, append) if part is not None]
        x = parts[0].cat(*parts[1:], dim=axis) if len(parts) > 1 else self
        for _ in range(n):
            size = x._fixed_size(axis, "diff")
            low, high = (
                x._cut_axis(axis, 0, max(size - 1, 0)),
                x._cut_axis(axis, min(1, size), size),
            )
            x = high.logical_xor(low) if x.dtype.is_bool else high - low
        return x

    def trapezoid(self, x: Self | None = None, dx: float = 1.0, dim: int = -1) -> Self:
        """The integral along `dim` by the trapezoidal rule, at places `x` or at distances `dx`."""
        return self._trapezoids(x, dx, dim).sum(dim)

    def cumulative_trapezoid(self, x: Self | None = None, dx: float = 1.0, dim: int = -1) -> Self:
        """The integral up to each place along `dim`; see `trapezoid`."""
        return self._trapezoids(x, dx, dim).cumsum(dim)

    def _trapezoids(self, x: Self | None, dx: float, dim: int) -> Self:
        y = self._as_float()
        axis = y._axis(dim, "trapezoid")
        size = y._fixed_size(axis, "trapezoid")
        ends = y._cut_axis(axis, min(1, size), size) + y._cut_axis(axis, 0, max(size - 1, 0))
        if x is None:
            return ends * (0.5 * dx)
        places = x if x.dtype.is_float else x.cast("int64")  # a distance of bytes would wrap
        steps = places.diff(dim=dim) if x.ndim > 1 else places.diff()
        if x.ndim == 1:
            steps = ends._along(steps, axis)
        return ends * steps * 0.5

    def spacing_gradient(
        self, spacing: Sequence[Any] | float = 1.0, dim: Any = None, edge_order: int = 1
    ) -> list[Self]:
        """The slope along each axis from the values at neighbouring places (NumPy's `gradient`).

        Args:
            spacing: the distance of places: one number, one for each axis, or a vector of places
                for each axis.
            dim: the axes; all by default.
            edge_order: 1 or 2, of the formula at the edges.
        """
        axes = self._axes(dim, "spacing_gradient")
        count = len(axes)
        given = [spacing] * count if isinstance(spacing, int | float) else list(spacing)
        if len(given) != count:
            raise ShapeError(
                "spacing_gradient: needs a spacing for each axis",
                got=f"{len(given)} for {count} axes",
                expected=f"one number, or {count}",
            )
        x = self._as_float()
        return [x._slope(axis, each, edge_order) for axis, each in zip(axes, given, strict=True)]

    def _slope(self, axis: int, spacing: Any, edge_order: int) -> Self:
        size = self._fixed_size(axis, "spacing_gradient")
        if size <= edge_order:
            raise ShapeError("spacing_gradient: too few elements", got=f"{size} on axis {axis}")
        if isinstance(spacing, int | float):
            place = type(self).arange(size, dtype=self.dtype, device=self.device) * spacing
        else:
            place = self._other(spacing).cast(self.dtype)
        steps = self._along(place.diff(), axis)

        def cut(x: Self, start: int, stop: int) -> Self:
            return x._cut_axis(axis, start, stop)

        slopes = self.diff(dim=axis) / steps
        if size == 2:
            return slopes.cat(slopes, dim=axis)
        low, high = cut(steps, 0, size - 2), cut(steps, 1, size - 1)
        left, right = cut(slopes, 0, size - 2), cut(slopes, 1, size - 1)
        inner = (left * high + right * low) / (low + high)
        first, last = cut(slopes, 0, 1), cut(slopes, size - 2, size - 1)
        if edge_order == 2:
            a, b = cut(steps, 0, 1), cut(steps, 1, 2)
            first = first + (first - cut(slopes, 1, 2)) * (a / (a + b))
            a, b = cut(steps, size - 2, size - 1), cut(steps, size - 3, size - 2)
            last = last + (last - cut(slopes, size - 3, size - 2)) * (a / (a + b))
        return first.cat(inner, last, dim=axis)
