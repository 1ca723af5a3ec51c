"""Searching and counting: unique, searchsorted, bucketize, bincount, histc."""

from __future__ import annotations

from typing import Any, Final, Self

from tilework import dtypes
from tilework.base.errors import DTypeError, IndexingError, ShapeError, UserError
from tilework.ir.ops.tensor import Fold
from tilework.tensor.core import TensorBase
from tilework.tensor.realize import check_size_of_rows
from tilework.tensor.selecting import Selecting
from tilework.tensor.variable import format_shape

_IN_ROWS: Final = "sort() of the row, and ne() of neighbours to see which are new"


class Counting(Selecting):
    """Which elements there are, where they would stand, and how many of each."""

    __slots__ = ()

    # --- searching ---------------------------------------------------------------------------

    def searchsorted(
        self, values: Any, right: bool = False, side: str | None = None, sorter: Self | None = None
    ) -> Self:
        """Where each of `values` would be put into this sorted tensor to keep its order.

        Args:
            values: what to look for, a tensor or a number; NaN counts as greatest.
            right: behind its equals, else in front of them.
            side: "left" or "right", another way to say it.
            sorter: positions that sort the last axis, if it is not sorted.

        Shape: self (n,), values (...) -> (...); or self (..., n), values (..., m) -> (..., m)

        Raises:
            ShapeError: the leading axes differ.

        Example:
            >>> Tensor([1, 3, 3, 5]).searchsorted(Tensor([3, 4])).tolist()
            [1, 3]
        """
        if side not in (None, "left", "right"):
            raise UserError("searchsorted: unknown side", got=side, expected="left or right")
        behind = right or side == "right"
        if not isinstance(values, TensorBase):
            values = self._lift(values, self.device)
        if not self.ndim or (self.ndim > 1 and self._dims[:-1] != values._dims[:-1]):
            raise ShapeError(
                "searchsorted: the leading axes differ",
                got=f"{format_shape(self._dims)} and {format_shape(values._dims)}",
            )
        kept = self if sorter is None else self.gather(-1, sorter)
        x, wanted = kept._as_comparable(values)
        length = x._fixed_size(x.ndim - 1, "searchsorted")
        place = wanted._constant(0, dtypes.index)
        step = 1 << max(length.bit_length() - 1, 0) if length else 0
        while step:
            probe = place + step
            found = x._at_last(probe.minimum(length) - 1)
            is_before = (probe <= length) & _precedes(found, wanted, behind)
            place = is_before.where(probe, place)
            step >>= 1
        return place

    def _as_comparable(self, values: Self) -> tuple[Self, Self]:
        """Both in the dtype that holds the values of both."""
        kind = dtypes.promote(self.dtype, values.dtype)
        return self.cast(kind), values.to(self.device).cast(kind)

    def _at_last(self, place: Self) -> Self:
        """The elements at positions along the last axis."""
        if self.ndim == 1:
            return self._gathered(0, [place])
        return self._gathered(0, [*[place._positions(i) for i in range(self.ndim - 1)], place])

    def bucketize(self, boundaries: Self, right: bool = False) -> Self:
        """The number of the interval between sorted `boundaries` that each element falls into.

        Args:
            boundaries: a sorted vector.
            right: an interval holds its left end, not its right one.
        """
        return boundaries.searchsorted(self, right=right)

    # --- counting ----------------------------------------------------------------------------

    def bincount(self, weights: Self | None = None, minlength: int = 0) -> Self:
        """How often each number from 0 on occurs in a vector of integers; reads the vector.

        Args:
            weights: what each element counts; 1 by default.
            minlength: the least length of the result.

        Raises:
            IndexingError: a number is negative.
        """
        if not self.dtype.is_integer or self.ndim != 1:
            raise DTypeError(
                "bincount: needs a vector of integers",
                got=f"{self.dtype.name}{format_shape(self._dims)}",
            )
        check_size_of_rows(
            self._storage.version, "bincount", "one_hot(count).sum(0), or histc of floats"
        )
        is_empty = self._dims[0] == 0
        least, most = (0, -1)
        if not is_empty:
            ends = self.min().stack(self.max())._host_array()  # of one pass
            least, most = int(ends[0]), int(ends[1])
        if least < 0:
            raise IndexingError("bincount: a number is negative", got=least, expected="0 or more")
        each = self._constant(1, dtypes.int64) if weights is None else weights
        kind = each.dtype if each.dtype.is_float else dtypes.int64
        zeros = type(self).zeros(max(most + 1, minlength), dtype=kind, device=self.device)
        if is_empty:
            return zeros
        return zeros._added_at(self, each.cast(kind), "bincount")

    def _added_at(self, place: Self, each: Self, what: str) -> Self:
        """This vector with what each element counts added at a place that is none below 0."""
        updates = self._updates(place, each, what)
        return self._scattered(0, updates, [place.cast(dtypes.index)], Fold.ADD)

    def histc(self, bins: int = 100, min: float = 0, max: float = 0) -> Self:
        """How many elements fall into each of `bins` intervals of equal width.

        Args:
            bins: how many intervals.
            min: where the first begins; elements outside count nowhere.
            max: where the last ends; that end belongs to it.  Where it begins there too, the
                least and the greatest element are the ends.

        Raises:
            UserError: there is no interval, or `max` is below `min`.
        """
        if bins < 1 or max < min:
            raise UserError("histc: there is no interval", got=f"bins={bins}, {min} to {max}")
        x = self.flatten()
        wide = x.cast(dtypes.accumulation_dtype(dtypes.float_of(self.dtype)))
        low, high = wide._constant(min, wide.dtype), wide._constant(max, wide.dtype)
        if min == max and x._dims[0] != 0:
            low, high = wide.min().expand(wide.shape), wide.max().expand(wide.shape)
        is_point = low == high
        low, high = is_point.where(low - 1, low), is_point.where(high + 1, high)
        is_inside = (wide >= low) & (wide <= high)
        share = is_inside.where((wide - low) / (high - low), 0) * bins
        place = share.cast(dtypes.index).minimum(bins - 1)
        zeros = type(self).zeros(bins, dtype=dtypes.int64, device=self.device)
        return zeros._added_at(place, is_inside.cast(dtypes.int64), "histc").cast(self.dtype)

    # --- which there are ---------------------------------------------------------------------

    def unique(
        self,
        sorted: bool = True,
        return_inverse: bool = False,
        return_counts: bool = False,
        dim: int | None = None,
    ) -> Any:
        """The different elements (or slices along `dim`) in ascending order; reads the tensor.

        Args:
            sorted: accepted: they are always sorted.
            return_inverse: also where each element of the tensor stands among them.
            return_counts: also how often each occurs.
            dim: an axis; None takes the elements of the whole tensor.

        Returns:
            The elements, or a tuple of them and what was asked for.  Each NaN is one of its own.

        Example:
            >>> Tensor([3, 1, 3]).unique(return_counts=True)[1].tolist()
            [1, 2]
        """
        check_size_of_rows(self._storage.version, "unique", _IN_ROWS)
        rows = self._as_rows(dim, "unique")
        order = rows._row_order()
        ordered = rows._gathered(0, [order])
        found, place, counts = ordered._without_repeats()
        values = self._from_rows(found, dim)
        inverse = place.zeros_like()._scattered(0, place, [order], None)
        return self._answer(values, inverse, counts, dim, (return_inverse, return_counts))

    def unique_consecutive(
        self, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
    ) -> Any:
        """The elements (or slices along `dim`) without those that repeat the one before.

        Args:
            return_inverse: also where each element of the tensor went.
            return_counts: also how many each stands for.
            dim: an axis; None takes the elements of the whole tensor.
        """
        check_size_of_rows(self._storage.version, "unique_consecutive", _IN_ROWS)
        rows = self._as_rows(dim, "unique_consecutive")
        found, place, counts = rows._without_repeats()
        values = self._from_rows(found, dim)
        return self._answer(values, place, counts, dim, (return_inverse, return_counts))

    def _as_rows(self, dim: int | None, what: str) -> Self:
        """What is compared, as the rows of a matrix."""
        if dim is None:
            return self.reshape(-1, 1)
        axis = self._axis(dim, what)
        moved = self.movedim(axis, 0) if self.ndim else self.reshape(1)
        rows = moved.shape[0]
        return moved.reshape(rows, moved.numel() // max(rows, 1))

    def _from_rows(self, found: Self, dim: int | None) -> Self:
        if dim is None:
            return found.flatten()
        axis = self._axis(dim, "unique")
        rest = [size for place, size in enumerate(self.shape) if place != axis]
        return found.reshape(found.shape[0], *rest).movedim(0, axis)

    def _row_order(self) -> Self:
        """The positions that sort the rows of a matrix, the first column first."""
        rows, columns = self._sizes()
        order = type(self).arange(rows, dtype=dtypes.index, device=self.device)
        for column in reversed(range(columns)):
            values = self._cut_axis(1, column, column + 1).reshape(rows)
            step = values._gathered(0, [order]).argsort(0)
            order = order._gathered(0, [step]).contiguous()
        return order

    def _without_repeats(self) -> tuple[Self, Self, Self]:
        """Rows that differ from the one before, where each row went, and how many each is."""
        rows = self._sizes()[0]
        if rows == 0:
            nothing = type(self).zeros(0, dtype=dtypes.int64, device=self.device)
            return self, nothing, nothing
        differs = self._cut_axis(0, 1, rows).ne(self._cut_axis(0, 0, rows - 1)).any(1)
        first = type(self).ones(1, dtype=dtypes.bool_, device=self.device)
        is_new = first.cat(differs, dim=0).contiguous()
        place = is_new.cast(dtypes.int64).cumsum(0) - 1
        kept = is_new.nonzero().flatten()
        ends = kept._cut_axis(0, 1, kept._sizes()[0]).cat(
            type(self).full((1,), rows, dtype=dtypes.index, device=self.device), dim=0
        )
        return self._gathered(0, [kept]), place, ends - kept

    def _answer(
        self, values: Self, place: Self, counts: Self, dim: int | None, wanted: tuple[bool, bool]
    ) -> Any:
        inverse = place.reshape(self.shape) if dim is None else place
        found = (values, *([inverse] if wanted[0] else []), *([counts] if wanted[1] else []))
        return found if len(found) > 1 else values


def _precedes(a: Any, b: Any, or_equal: bool) -> Any:
    """Whether `a` stands before `b` (or is its equal) in an order in which NaN comes last."""
    is_before = a <= b if or_equal else a < b
    if not a.dtype.is_float:
        return is_before
    return is_before | (b.isnan() if or_equal else b.isnan() & a.isnan().logical_not())
