"""Reading and writing at positions that tensors name: gather, scatter, and where a mask is True.

An index that is out of range reads 0 and is reported at the next readback, as with `x[index]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from tilework import dtypes
from tilework.base.errors import DTypeError, IndexingError, ShapeError, UserError
from tilework.base.sequences import row_major_strides
from tilework.ir.ops.tensor import Fold
from tilework.ir.symbolic import dims
from tilework.tensor import host
from tilework.tensor.core import TensorBase
from tilework.tensor.indexing import Indexing
from tilework.tensor.promotion import Number, broadcast_shapes, check_fits, check_same_kind
from tilework.tensor.realize import check_size_of_rows
from tilework.tensor.variable import format_shape

if TYPE_CHECKING:
    pass


class Gathering(Indexing):
    """gather, scatter and their kin."""

    __slots__ = ()

    def _all_indices(self, axis: int, index: Self) -> list[Self]:
        """Index tensors for every axis: `index` along `axis`, the own position elsewhere."""
        found = [index._positions(other) for other in range(self.ndim)]
        found[axis] = self._wrapped(index, self._dims[axis])
        return found

    def _check_index(self, axis: int, index: Self, what: str) -> None:
        if not index.dtype.is_integer:
            raise _not_integers(index, what)
        fits = index.ndim == self.ndim and all(
            other == axis or dims.greatest(dims.sub(own, size)) <= 0
            for other, (own, size) in enumerate(zip(index._dims, self._dims, strict=True))
        )
        if not fits:
            raise ShapeError(
                f"{what}: the index doesn't fit",
                got=f"index {format_shape(index._dims)} for {format_shape(self._dims)}, dim {axis}",
                expected="as many axes, none longer but for dim",
            )

    def gather(self, dim: int, index: Self) -> Self:
        """The elements at `index` along `dim`: result[i][j] = self[index[i][j]][j] for dim 0.

        Shape: index is the shape of the result.
        """
        axis = self._axis(dim, "gather")
        if not self.ndim:
            # A scalar is a vector of one element; so is the index, unless it is empty.
            return self.reshape(1).gather(0, index.reshape(-1)).reshape(index.shape)
        if not index.ndim and self.ndim == 1:
            return self.gather(0, index.reshape(1)).reshape(())
        self._check_index(axis, index, "gather")
        return self._gathered(0, self._all_indices(axis, index))

    def take_along_dim(self, index: Self, dim: int | None = None) -> Self:
        """`gather` whose operands broadcast along the other axes; else over all elements."""
        if dim is None:
            return self.reshape(-1).gather(0, index.reshape(-1))
        axis = self._axis(dim, "take_along_dim")
        if self.ndim != index.ndim:
            return self.gather(axis, index)  # which says what is wrong
        own = [1 if other == axis else size for other, size in enumerate(self._dims)]
        given = [1 if other == axis else size for other, size in enumerate(index._dims)]
        shape = list(broadcast_shapes([tuple(own), tuple(given)], "take_along_dim"))
        grown = [
            each._broadcast_to(
                (*shape[:axis], each._dims[axis], *shape[axis + 1 :]), each._bindings, "gather"
            )
            for each in (self, index)
        ]
        return grown[0].gather(axis, grown[1])

    def index_select(self, dim: int, index: Self) -> Self:
        """The slices along `dim` at the positions of the vector `index`."""
        axis = self._axis(dim, "index_select")
        if not index.dtype.is_integer:
            raise _not_integers(index, "index_select")
        if index.ndim > 1:
            raise ShapeError(
                "index_select: the index is no vector",
                got=format_shape(index._dims),
                try_="x[index] with index tensors of any shape",
            )
        if not self.ndim:
            return self.reshape(1).index_select(0, index.reshape(-1)).reshape(())
        return self._gathered(axis, [self._wrapped(index, self._dims[axis])])

    def scatter(self, dim: int, index: Self, src: Any, reduce: str | None = None) -> Self:
        """A copy with `src` written at `index` along `dim`; of equal places the last one wins.

        Args:
            dim: the axis that `index` counts along.
            index: integers, with as many axes as this tensor.
            src: a tensor at least as large as `index`, or a number.
            reduce: None, or "add" or "multiply" to combine with what is there.
        """
        folds = {None: None, "add": Fold.ADD, "multiply": Fold.MUL}
        if reduce not in folds:
            raise UserError("scatter: unknown reduce", got=reduce, expected="add or multiply")
        axis = self._axis(dim, "scatter")
        if not self.ndim:
            found = self.reshape(1).scatter(axis, _as_vector(index), _as_vector(src), reduce)
            return found.reshape(())
        self._check_index(axis, index, "scatter")
        updates = self._updates(index, src, "scatter")
        return self._scattered(0, updates, self._all_indices(axis, index), folds[reduce])

    def scatter_add(self, dim: int, index: Self, src: Any) -> Self:
        """A copy with `src` added at `index` along `dim`."""
        return self.scatter(dim, index, src, "add")

    def _updates(self, index: Self, src: Any, what: str) -> Self:
        if not isinstance(src, TensorBase):
            check_fits(self.dtype, src, what)
            return index._constant(src, self.dtype)
        check_same_kind(src.dtype, self.dtype, what)
        updates: Self = src.cast(self.dtype)  # type: ignore[attr-defined]  # from another family
        if updates.ndim != index.ndim:
            raise ShapeError(
                f"{what}: src and index differ in their number of axes",
                got=f"{format_shape(updates._dims)} and {format_shape(index._dims)}",
            )
        return updates._cut([(0, size, 1) for size in index._dims])

    def scatter_reduce(
        self, dim: int, index: Self, src: Self, reduce: str, include_self: bool = True
    ) -> Self:
        """A copy with `src` folded into the places at `index` along `dim`.

        Args:
            dim: the axis that `index` counts along.
            index: integers, with as many axes as this tensor.
            src: a tensor at least as large as `index`.
            reduce: "sum", "prod", "mean", "amax" or "amin".
            include_self: whether what was there takes part.
        """
        folds = {
            "sum": Fold.ADD, "prod": Fold.MUL, "mean": Fold.ADD,
            "amax": Fold.MAX, "amin": Fold.MIN,
        }  # fmt: skip
        if reduce not in folds:
            raise UserError("scatter_reduce: unknown reduce", got=reduce, expected=", ".join(folds))
        axis = self._axis(dim, "scatter_reduce")
        if not self.ndim:
            vector = self.reshape(1)
            found = vector.scatter_reduce(
                axis, _as_vector(index), _as_vector(src), reduce, include_self
            )
            return found.reshape(())
        self._check_index(axis, index, "scatter_reduce")
        indices = self._all_indices(axis, index)
        updates = self._updates(index, src, "scatter_reduce")
        base = self
        if not include_self:
            first = updates._identity_of(folds[reduce])
            base = self._scattered(0, first, indices, None)
        found = base._scattered(0, updates, indices, folds[reduce])
        if reduce != "mean":
            return found
        ones = index._constant(1, dtypes.int64)
        start = self._constant(1, dtypes.int64)
        if not include_self:
            start = start._scattered(0, index._constant(0, dtypes.int64), indices, None)
        count = start._scattered(0, ones, indices, Fold.ADD)
        if self.dtype.is_float:
            return found / count.cast(self.dtype)
        return found.floordiv(count).cast(self.dtype)

    def _identity_of(self, fold: Fold) -> Self:
        """A tensor of this shape that changes nothing when folded."""
        if fold is Fold.ADD or fold is Fold.MUL:
            return self._constant(0 if fold is Fold.ADD else 1, self.dtype)
        is_max = fold is Fold.MAX
        if self.dtype.is_float:
            return self._constant(float("-inf") if is_max else float("inf"), self.dtype)
        return self._constant(self.dtype.minimum if is_max else self.dtype.maximum, self.dtype)

    def masked_select(self, mask: Self, size: int | None = None, fill_value: Number = 0) -> Self:
        """The elements where `mask` is True, as a vector.

        Args:
            mask: bools, broadcast against this tensor.
            size: the length of the result; None counts on the host, which reads the mask.
            fill_value: what stands behind the last element if there are fewer than `size`.

        Example:
            >>> Tensor([5, 6, 7]).masked_select(Tensor([True, False, True]), size=4).tolist()
            [5, 7, 0, 0]
        """
        x, chosen = self._together(mask.cast(dtypes.bool_), "masked_select")
        if not x.ndim:
            x, chosen = x.reshape(1), chosen.reshape(1)
        if size is None:
            check_size_of_rows(
                chosen._storage.version, "masked_select", "masked_select(mask, size=...)"
            )
            return x[chosen]
        check_fits(self.dtype, fill_value, "masked_select")
        if x.numel() == 0:
            return type(self).full((size,), fill_value, dtype=self.dtype, device=self.device)
        place, is_there = chosen.flatten()._places_of_true(size)
        return is_there.where(x.flatten()._gathered(0, [place]), fill_value)

    def _places_of_true(self, size: int) -> tuple[Self, Self]:
        """Positions of the first `size` True elements of a vector of bools, and which are there."""
        if self._dims[0] == 0:
            nothing = type(self).zeros(size, dtype=dtypes.index, device=self.device)
            return nothing, nothing.ne(0)
        rank = self.cast(dtypes.index)._running(Fold.ADD, 0, "nonzero")
        slot = self.where(rank - 1, size).minimum(size)  # the last slot takes what is too much
        slots = type(self).zeros(size + 1, dtype=dtypes.index, device=self.device)
        places = slots._scattered(0, self._positions(0), [slot], None)._cut_axis(0, 0, size)
        length = self._fixed_size(0, "nonzero")
        total = rank._cut_axis(0, length - 1, length)
        return places, places._positions(0) < total

    def nonzero(
        self, size: int | None = None, fill_value: Number = 0, as_tuple: bool = False
    ) -> Any:
        """The positions of the elements that are not zero, one row each.

        Args:
            size: the number of rows; None counts on the host, which reads the tensor.
            fill_value: what the rows behind the last one hold if there are fewer than `size`.
            as_tuple: give one vector for each axis, which together are an index.

        Shape: (...) -> (n, ndim)

        Example:
            >>> Tensor([[0, 1], [2, 0]]).nonzero().tolist()
            [[0, 1], [1, 0]]
        """
        if as_tuple:
            x = self if self.ndim else self.reshape(1)
            return x.nonzero(size, fill_value).unbind(1)
        if size is not None:
            return self._nonzero_of(size, fill_value)
        check_size_of_rows(self._storage.version, "nonzero", "nonzero(size=...)")
        if not self.ndim:
            return type(self).zeros(int(bool(self.item())), 0, dtype=dtypes.index)
        rows = host.places_of_true(self._truth()._host_array())
        return self._over(host.upload(memoryview(rows), rows.shape, dtypes.index, self.device))

    def _nonzero_of(self, size: int, fill_value: Number) -> Self:
        place, is_there = self._truth().flatten()._places_of_true(size)
        columns = []
        for stride, length in zip(row_major_strides(self._sizes()), self._sizes(), strict=True):
            column = (place // max(stride, 1)) % max(length, 1)
            columns.append(is_there.where(column, fill_value).unsqueeze(1))
        if not columns:
            return type(self).zeros(size, 0, dtype=dtypes.index, device=self.device)
        return columns[0].cat(*columns[1:], dim=1)

    def one_hot(self, num_classes: int) -> Self:
        """A new last axis with 1 at the position that each element names, else 0.

        Shape: (...) -> (..., num_classes)
        """
        if not self.dtype.is_integer:
            raise DTypeError(
                "one_hot: needs integers", got=self.dtype.name, try_="x.cast(dtypes.int64)"
            )
        grown = self.unsqueeze(-1).expand(*self.shape, num_classes).cast(dtypes.index)
        return (grown == grown._positions(self.ndim)).cast(dtypes.default_int)


def _as_vector(value: Any) -> Any:
    """A scalar as a vector of one element; a number or a longer tensor as it is."""
    return value.reshape(1) if isinstance(value, Indexing) and not value.ndim else value


def _not_integers(index: Any, what: str) -> IndexingError:
    return IndexingError(
        f"{what}: the index must hold integers",
        got=index.dtype.name,
        try_="index.cast(dtypes.int64)",
    )
