"""Parts picked, written, counted and searched by index: index_*, take, put, unique, histc, fold.

What a method writes goes into a copy; the one with an underscore behind its name writes into the
tensor itself, as `x[...] = v` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from tilework import dtypes
from tilework.base.errors import DTypeError, IndexingError, ShapeError
from tilework.ir.ops.tensor import Fold
from tilework.tensor.core import TensorBase
from tilework.tensor.promotion import Number, broadcast_shapes
from tilework.tensor.sorting import Sorting
from tilework.tensor.variable import format_shape

if TYPE_CHECKING:
    pass


class Selecting(Sorting):
    """Indexing by tensors, in the forms that PyTorch has."""

    __slots__ = ()

    # --- slices along one axis ---------------------------------------------------------------

    def _slices(self, dim: int, index: Self, source: Any, what: str) -> tuple[int, Self, Self]:
        """An axis, the positions along it as a vector, and slices to write there."""
        axis = self._axis(dim, what)
        if not index.dtype.is_integer or index.ndim > 1:
            raise IndexingError(
                f"{what}: needs a vector of integers",
                got=f"{index.dtype.name}{format_shape(index._dims)}",
            )
        places = self._wrapped(index.reshape(-1) if not index.ndim else index, self._dims[axis])
        shape = (*self._dims[:axis], *places._dims, *self._dims[axis + 1 :])
        if isinstance(source, TensorBase) and source.ndim and source._dims != shape:
            raise ShapeError(
                f"{what}: the slices don't fit",
                got=f"{format_shape(source._dims)} for {format_shape(self._dims)}, axis {axis}",
                expected=format_shape(shape),
            )
        return axis, places, self._fitting(source, shape, what)

    def index_copy(self, dim: int, index: Self, source: Self) -> Self:
        """A copy with the slices of `source` at the positions of the vector `index`."""
        if not self.ndim:
            return self.reshape(1).index_copy(dim, index, source.reshape(-1)).reshape(())
        axis, places, slices = self._slices(dim, index, source, "index_copy")
        return self._scattered(axis, slices, [places], None)

    def index_fill(self, dim: int, index: Self, value: Number | Self) -> Self:
        """A copy with `value` in all slices at the positions of the vector `index`."""
        if not self.ndim:
            return self.reshape(1).index_fill(dim, index, value).reshape(())
        axis, places, slices = self._slices(dim, index, value, "index_fill")
        return self._scattered(axis, slices, [places], None)

    def index_add(self, dim: int, index: Self, source: Self, *, alpha: Number = 1) -> Self:
        """A copy with `alpha` times the slices of `source` added at the positions of `index`.

        Example:
            >>> Tensor([1, 2, 3]).index_add(0, Tensor([0, 0]), Tensor([10, 20])).tolist()
            [31, 2, 3]
        """
        if not self.ndim:
            vector = self.reshape(1)
            return vector.index_add(dim, index, source.reshape(-1), alpha=alpha).reshape(())
        axis, places, slices = self._slices(dim, index, source, "index_add")
        if alpha != 1:
            # A number that does not fit an integer widens the product; the sum wraps all the same.
            slices = self._fitting(slices * alpha, slices._dims, "index_add")
        return self._scattered(axis, slices, [places], Fold.ADD)

    def index_reduce(
        self, dim: int, index: Self, source: Self, reduce: str, *, include_self: bool = True
    ) -> Self:
        """A copy with the slices of `source` folded into those at the positions of `index`.

        Args:
            dim: the axis that `index` counts along.
            index: a vector of integers.
            source: as many slices.
            reduce: "prod", "mean", "amax" or "amin".
            include_self: whether what was there takes part.
        """
        if not self.ndim:
            found = self.reshape(1).index_reduce(
                dim, index, source.reshape(-1), reduce, include_self=include_self
            )
            return found.reshape(())
        axis, places, slices = self._slices(dim, index, source, "index_reduce")
        shape: list[Any] = [1] * self.ndim
        shape[axis] = -1
        grown = places.reshape(shape).expand(slices.shape)
        return self.scatter_reduce(axis, grown, slices, reduce, include_self)

    # --- any elements ------------------------------------------------------------------------

    def index_put(
        self, indices: Sequence[Self | None], values: Any, accumulate: bool = False
    ) -> Self:
        """A copy with `values` written where `x[indices]` would read.

        Args:
            indices: index tensors or masks for the first axes; None takes an axis whole.
            values: broadcast to the shape of `x[indices]`.
            accumulate: add to what is there; a place that is named twice gets both.
        """
        index = tuple([slice(None) if each is None else each for each in indices])
        plan = self._plan(index)
        if not plan.advanced:
            raise IndexingError("index_put: there is no index tensor", got=f"{indices}")
        x, first, places = self._view_of(plan)._arranged(plan)
        shape = (*x._dims[:first], *places[0]._dims, *x._dims[first + len(places) :])
        updates = x._fitting(values, shape, "index_put")
        found = x._scattered(first, updates, places, Fold.ADD if accumulate else None)
        order, _ = plan.order()
        back = [order.index(axis) for axis in range(len(order))]
        return found.permute(back)

    def take(self, index: Self) -> Self:
        """The elements at positions counted through the whole tensor in row-major order.

        Shape: the result has that of `index`.
        """
        flat = self.flatten()
        return flat._gathered(0, [flat._wrapped(_integers(index, "take"), flat._dims[0])])

    def put(self, index: Self, source: Self, accumulate: bool = False) -> Self:
        """A copy with `source` at positions counted through the whole tensor."""
        flat = self.flatten()
        places = flat._wrapped(_integers(index, "put"), flat._dims[0]).flatten()
        updates = flat._fitting(source.flatten(), places._dims, "put")
        fold = Fold.ADD if accumulate else None
        return flat._scattered(0, updates, [places], fold).reshape(self.shape)

    def masked_scatter(self, mask: Self, source: Self) -> Self:
        """A copy with the elements of `source`, one after another, where `mask` is True.

        Raises:
            ShapeError: `source` has no elements; too few are reported when the result is read.
        """
        shape = broadcast_shapes([self._dims, mask._dims], "masked_scatter")
        if shape != self._dims:
            grown: Self = self._broadcast_to(shape, self._bindings, "masked_scatter")
            return grown.masked_scatter(mask, source)
        chosen = mask.cast(dtypes.bool_).expand(self.shape)
        values = self._fitting(source.flatten(), source.flatten()._dims, "masked_scatter")
        if values._dims[0] == 0:
            raise ShapeError("masked_scatter: there are no elements to write")
        rank = chosen.flatten().cast(dtypes.index)._running(Fold.ADD, 0, "masked_scatter") - 1
        picked = values._gathered(0, [chosen.flatten().where(rank, 0)])
        return chosen.where(picked.reshape(self.shape), self)

    # --- in place ----------------------------------------------------------------------------

    def index_copy_(self, dim: int, index: Self, source: Self) -> Self:
        """`index_copy` into this tensor."""
        return self._replaced(self.index_copy(dim, index, source))

    def index_fill_(self, dim: int, index: Self, value: Number | Self) -> Self:
        """`index_fill` into this tensor."""
        return self._replaced(self.index_fill(dim, index, value))

    def index_add_(self, dim: int, index: Self, source: Self, *, alpha: Number = 1) -> Self:
        """`index_add` into this tensor."""
        return self._replaced(self.index_add(dim, index, source, alpha=alpha))

    def index_put_(
        self, indices: Sequence[Self | None], values: Any, accumulate: bool = False
    ) -> Self:
        """`index_put` into this tensor."""
        return self._replaced(self.index_put(indices, values, accumulate))

    def put_(self, index: Self, source: Self, accumulate: bool = False) -> Self:
        """`put` into this tensor."""
        return self._replaced(self.put(index, source, accumulate))

    def masked_fill_(self, mask: Self, value: Any) -> Self:
        """`masked_fill` into this tensor."""
        return self._replaced(self.masked_fill(mask, value))

    def masked_scatter_(self, mask: Self, source: Self) -> Self:
        """`masked_scatter` into this tensor."""
        return self._replaced(self.masked_scatter(mask, source))

    def scatter_(self, dim: int, index: Self, src: Any, reduce: str | None = None) -> Self:
        """`scatter` into this tensor."""
        return self._replaced(self.scatter(dim, index, src, reduce))

    def scatter_add_(self, dim: int, index: Self, src: Any) -> Self:
        """`scatter_add` into this tensor."""
        return self._replaced(self.scatter_add(dim, index, src))

    def scatter_reduce_(
        self, dim: int, index: Self, src: Self, reduce: str, include_self: bool = True
    ) -> Self:
        """`scatter_reduce` into this tensor."""
        return self._replaced(self.scatter_reduce(dim, index, src, reduce, include_self))

    def fill_(self, value: Any) -> Self:
        """Write `value` into all elements of this tensor."""
        return self._replaced(value)

    def zero_(self) -> Self:
        """Write 0 into all elements of this tensor."""
        return self._replaced(0)

    def copy_(self, other: Any) -> Self:
        """Write the elements of `other`, converted as `cast` does, into this tensor."""
        if not isinstance(other, TensorBase):
            return self._replaced(other)
        value: Any = other.to(self.device)
        return self._replaced(value.cast(self.dtype))

    def _replaced(self, value: Any) -> Self:
        self._put(value)
        return self

    # --- windows added up --------------------------------------------------------------------

    def fold(
        self,
        output_size: int | Sequence[int],
        kernel_size: int | Sequence[int],
        dilation: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        stride: int | Sequence[int] = 1,
    ) -> Self:
        """Pictures from their windows: what windows say of one place is added up.

        Args:
            output_size: height and width of the pictures.
            kernel_size: of the windows.
            dilation: distance of the taps.
            padding: zeros around the pictures when the windows were cut out.
            stride: distance of the windows.

        Shape: (n, channels * taps, windows) or without n -> (n, channels, height, width)

        Raises:
            ShapeError: the sizes contradict each other.
        """
        size, kernel = _pair(output_size), _pair(kernel_size)
        spread, pad, step = _pair(dilation), _pair(padding), _pair(stride)
        counts = [
            (size[i] + 2 * pad[i] - spread[i] * (kernel[i] - 1) - 1) // step[i] + 1
            for i in range(2)
        ]
        taps = kernel[0] * kernel[1]
        windows = counts[0] * counts[1]
        fits = self.ndim in (2, 3) and self.shape[-1] == windows and self.shape[-2] % taps == 0
        if not fits or min(counts) < 1:
            raise ShapeError(
                "fold: the windows don't fit",
                got=format_shape(self._dims),
                expected=f"(n, channels * {taps}, {windows})",
            )
        batch = self.shape[0] if self.ndim == 3 else 1
        channels = self.shape[-2] // taps
        x = self.reshape(batch * channels, *kernel, *counts)
        rows = x._positions(1) * spread[0] + x._positions(3) * step[0]
        columns = x._positions(2) * spread[1] + x._positions(4) * step[1]
        wide = x.cast(dtypes.accumulation_dtype(self.dtype))
        empty = type(self).zeros(
            batch * channels, size[0] + 2 * pad[0], size[1] + 2 * pad[1],
            dtype=wide.dtype, device=self.device,
        )  # fmt: skip
        full = empty._scattered(0, wide, [x._positions(0), rows, columns], Fold.ADD)
        inside = full._cut(
            [(0, batch * channels, 1), (pad[0], pad[0] + size[0], 1), (pad[1], pad[1] + size[1], 1)]
        )
        found = inside.cast(self.dtype).reshape(batch, channels, *size)
        return found if self.ndim == 3 else found.squeeze(0)

    def rot90(self, k: int = 1, dims: Sequence[int] = (0, 1)) -> Self:
        """Turned `k` times by a right angle, from the first axis of `dims` towards the second."""
        if len(dims) != 2:
            raise ShapeError("rot90: needs two axes", got=f"{tuple(dims)}", expected="(from, to)")
        a, b = [self._axis(axis, "rot90") for axis in dims]
        if a == b:
            raise ShapeError("rot90: the two axes are one", got=f"{tuple(dims)}")
        turns = k % 4
        if turns == 2:
            return self.flip(a, b)
        if not turns:
            return self._apply(None)
        flipped = self.flip(b) if turns == 1 else self.flip(a)
        return flipped.transpose(a, b)


def _integers(index: Any, what: str) -> Any:
    if not isinstance(index, TensorBase) or not index.dtype.is_integer:
        raise DTypeError(f"{what}: the index must hold integers", got=f"{index!r}")
    return index


def _pair(size: int | Sequence[int]) -> tuple[int, int]:
    if isinstance(size, int):
        return size, size
    if len(size) != 2:
        raise ShapeError("fold: needs two numbers", got=size, expected="one number, or two")
    first, second = size
    return first, second
