"""Order: sort, argsort, topk, kthvalue, median, and the greatest along an axis with its place.

SORT gives positions, a stable order in which NaN comes last; the values are gathered by them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Self, overload

from tilework import dtypes
from tilework.base.errors import DTypeError, ShapeError, UserError
from tilework.ir.ops import tensor
from tilework.ir.ops.tensor import Fold
from tilework.tensor.core import TensorBase
from tilework.tensor.gathering import Gathering
from tilework.tensor.named import ValuesAndIndices
from tilework.tensor.variable import format_shape

if TYPE_CHECKING:
    from tilework.tensor.reduce import Axis


class Sorting(Gathering):
    """Sorting along an axis."""

    __slots__ = ()

    def argsort(self, dim: int = -1, descending: bool = False) -> Self:
        """The positions (int64) that sort along `dim`; equals keep their order.

        Example:
            >>> Tensor([3, 9, 5]).argsort().tolist()
            [0, 2, 1]
        """
        if not self.ndim:
            return self._constant(0, dtypes.index)
        axis = self._axis(dim, "argsort")
        return self.detach()._apply(tensor.SORT, attrs=tensor.SortAttrs(axis, bool(descending)))

    def sort(self, dim: int = -1, descending: bool = False) -> ValuesAndIndices[Self]:
        """The elements in order along `dim`, and the positions they had; NaN counts as greatest.

        Example:
            >>> Tensor([3, 1, 2]).sort()[0].tolist()
            [1, 2, 3]
        """
        if not self.ndim:
            return ValuesAndIndices(self._apply(None), self._constant(0, dtypes.index))
        axis = self._axis(dim, "sort")
        order = self.argsort(axis, descending)
        return ValuesAndIndices(self._in_order(axis, order), order)

    def _in_order(self, axis: int, order: Self) -> Self:
        """The elements at positions that a sort along `axis` gave, which need no check."""
        places = [order if at == axis else order._positions(at) for at in range(self.ndim)]
        return self._gathered(0, places)

    def topk(
        self, k: int, dim: int = -1, largest: bool = True, sorted_: bool = True
    ) -> ValuesAndIndices[Self]:
        """The `k` greatest (or least) elements along `dim`, in order, and their positions.

        Raises:
            ShapeError: there are fewer than `k`.

        Example:
            >>> Tensor([3, 9, 5]).topk(2)[0].tolist()
            [9, 5]
        """
        axis = self._axis(dim, "topk")
        length = self._fixed_size(axis, "topk") if self.ndim else 1
        _check_count(k, "topk")
        if not 0 <= k <= length:
            raise ShapeError(
                "topk: there are not so many elements",
                got=f"k={k} on axis {axis} of {format_shape(self._dims)}",
                expected=f"0 to {length}",
            )
        if not self.ndim:
            return ValuesAndIndices(self._apply(None), self._constant(0, dtypes.index))
        order = self._ranked(axis, largest, 0, k)
        return ValuesAndIndices(self._in_order(axis, order), order)

    def _ranked(self, axis: int, descending: bool, first: int, count: int) -> Self:
        """The positions of `count` elements along `axis`, in order, from rank `first` on."""
        if (first, count) == (0, 1) and (descending or not self.dtype.is_float):
            # The first of the greatest ones, and NaN is greatest, as `argmax` has it.
            fold = Fold.MAX if descending else Fold.MIN
            return self._position_of(fold, axis, keepdim=True)
        attrs = tensor.SortAttrs(axis, bool(descending), first, count)
        return self.detach()._apply(tensor.SORT, attrs=attrs)

    @overload
    def max(self, axis: Axis = None, keepdim: bool = False, *, dim: None = None) -> Self: ...
    @overload
    def max(self, *, keepdim: bool = False, dim: int) -> ValuesAndIndices[Self]: ...
    def max(
        self, axis: Axis = None, keepdim: bool = False, *, dim: int | None = None
    ) -> Self | ValuesAndIndices[Self]:
        """The greatest element over `axis`; NaN if there is one.

        Args:
            axis: one or more axes, all by default; equals share their gradient.
            keepdim: keep the axes with size 1.
            dim: give the values along this axis and their positions, as PyTorch does; of equals
                the first is taken, and gets the gradient.

        Raises:
            ShapeError: there is no element.
            UserError: both `axis` and `dim` are given.

        Example:
            >>> Tensor([[1, 2], [3, 4]]).max(1).tolist()
            [2, 4]
            >>> Tensor([[1, 2], [3, 4]]).max(dim=1).indices.tolist()
            [1, 1]
        """
        if dim is None:
            return super().max(axis, keepdim)
        return self._best_along(Fold.MAX, axis, dim, keepdim)

    @overload
    def min(self, axis: Axis = None, keepdim: bool = False, *, dim: None = None) -> Self: ...
    @overload
    def min(self, *, keepdim: bool = False, dim: int) -> ValuesAndIndices[Self]: ...
    def min(
        self, axis: Axis = None, keepdim: bool = False, *, dim: int | None = None
    ) -> Self | ValuesAndIndices[Self]:
        """The least element over `axis`; NaN if there is one.  Arguments as of `max`."""
        if dim is None:
            return super().min(axis, keepdim)
        return self._best_along(Fold.MIN, axis, dim, keepdim)

    def _best_along(
        self, fold: Fold, given: Axis, dim: int | tuple[int, ...] | list[int], keepdim: bool
    ) -> ValuesAndIndices[Self]:
        """The greatest or least elements along `dim`, and the first positions of them."""
        what = "max" if fold is Fold.MAX else "min"
        if given is not None:
            raise UserError(
                f"{what}: an axis is given twice",
                got=f"axis={given!r}, dim={dim!r}",
                expected="`axis` for the values, or `dim` for values and positions",
            )
        if isinstance(dim, tuple | list):
            raise DTypeError(
                f"{what}: there are positions along one axis only",
                got=f"dim={dim!r}",
                expected="an integer",
                try_=f"{what}(axis={tuple(dim)!r}) for the values alone",
            )
        axis = self._axis(dim, what)
        if not self.ndim:
            return ValuesAndIndices(self._apply(None), self._constant(0, dtypes.index))
        place = self._position_of(fold, axis, keepdim=True).contiguous()
        found = self._in_order(axis, place)
        if keepdim:
            return ValuesAndIndices(found, place)
        return ValuesAndIndices(found.squeeze(axis), place.squeeze(axis))

    def kthvalue(self, k: int, dim: int = -1, keepdim: bool = False) -> ValuesAndIndices[Self]:
        """The k-th least element along `dim` (counted from 1), and its position."""
        axis = self._axis(dim, "kthvalue")
        _check_count(k, "kthvalue")
        if not self.ndim:
            if k != 1:
                raise ShapeError("kthvalue: k is out of range", got=k, expected="1")
            return ValuesAndIndices(self._apply(None), self._constant(0, dtypes.index))
        length = self._fixed_size(axis, "kthvalue")
        if not 1 <= k <= length:
            raise ShapeError("kthvalue: k is out of range", got=k, expected=f"1 to {length}")
        place = self._ranked(axis, False, k - 1, 1)
        found = self._in_order(axis, place)
        if keepdim:
            return ValuesAndIndices(found, place)
        return ValuesAndIndices(found.squeeze(axis), place.squeeze(axis))

    @overload
    def median(self, dim: None = None, keepdim: bool = False) -> Self: ...
    @overload
    def median(self, dim: int, keepdim: bool = False) -> ValuesAndIndices[Self]: ...
    def median(
        self, dim: int | None = None, keepdim: bool = False
    ) -> Self | ValuesAndIndices[Self]:
        """The median, the lower of the two middle elements; with its position if `dim` is given.

        NaN if one of them is NaN.

        Example:
            >>> Tensor([3, 9, 5]).median().item()
            5
        """
        if dim is None:
            if self.dtype.is_float and 0 in self._dims:
                return self.sum() + math.nan
            return self.flatten().median(0)[0]
        axis = self._axis(dim, "median")
        if not self.ndim:
            return ValuesAndIndices(self._apply(None), self._constant(0, dtypes.index))
        middle, place = self.kthvalue((self._fixed_size(axis, "median") + 1) // 2, axis, keepdim)
        if not self.dtype.is_float:
            return ValuesAndIndices(middle, place)
        is_nan = self.isnan()
        has_nan = is_nan.any(axis, keepdim)
        first = is_nan.argmax(axis, keepdim).cast(place.dtype)
        return ValuesAndIndices(has_nan.where(math.nan, middle), has_nan.where(first, place))


def _check_count(k: int, what: str) -> None:
    given: object = k
    if isinstance(given, TensorBase) or not hasattr(type(k), "__index__"):
        raise DTypeError(
            f"{what}: k is not an integer", got=f"{k!r} of type {type(k).__name__}",
            expected="an integer",
        )  # fmt: skip
