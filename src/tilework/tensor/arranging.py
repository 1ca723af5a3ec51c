"""Axes and parts: stacking by name, splitting, diagonals, and parts replaced in a copy."""

from __future__ import annotations

from itertools import combinations, combinations_with_replacement, pairwise
from typing import TYPE_CHECKING, Any, Self

from tilework import dtypes
from tilework.base.errors import ShapeError
from tilework.dtypes import sum_dtype
from tilework.engine.device import Device
from tilework.tensor.joining import as_list
from tilework.tensor.numeric import Numeric
from tilework.tensor.promotion import broadcast_shapes
from tilework.tensor.variable import format_shape

if TYPE_CHECKING:
    from collections.abc import Sequence


class Arranging(Numeric):
    """hstack, tensor_split, diag_embed, select_scatter, block views and their kin."""

    __slots__ = ()

    # --- at least some axes ------------------------------------------------------------------

    def atleast_1d(self) -> Self:
        """A scalar as a vector; all else as it is."""
        return self.reshape(1) if not self.ndim else self

    def atleast_2d(self) -> Self:
        """With axes of size 1 in front, up to two."""
        return self if self.ndim > 1 else self.reshape(1, -1)

    def atleast_3d(self) -> Self:
        """With axes of size 1, up to three: a vector lies along the second, a matrix first."""
        if self.ndim > 2:
            return self
        return self.reshape(1, -1, 1) if self.ndim < 2 else self.unsqueeze(-1)

    # --- stacking ----------------------------------------------------------------------------

    def hstack(self, *others: Any) -> Self:
        """Side by side: along the first axis of vectors, else the second."""
        parts: list[Self] = [part.atleast_1d() for part in as_list(self, others, "hstack")]
        return parts[0].cat(*parts[1:], dim=0 if parts[0].ndim == 1 else 1)

    def vstack(self, *others: Any) -> Self:
        """One above the other."""
        parts: list[Self] = [part.atleast_2d() for part in as_list(self, others, "vstack")]
        return parts[0].cat(*parts[1:], dim=0)

    def dstack(self, *others: Any) -> Self:
        """One behind the other, along the third axis."""
        parts: list[Self] = [part.atleast_3d() for part in as_list(self, others, "dstack")]
        return parts[0].cat(*parts[1:], dim=2)

    def column_stack(self, *others: Any) -> Self:
        """Vectors as columns, and matrices, side by side."""
        parts: list[Self] = [
            part if part.ndim > 1 else part.reshape(-1, 1)
            for part in as_list(self, others, "column_stack")
        ]
        return parts[0].cat(*parts[1:], dim=1)

    # --- splitting ---------------------------------------------------------------------------

    def tensor_split(self, indices_or_sections: Any, dim: int = 0) -> tuple[Self, ...]:
        """Parts along `dim`: so many of nearly one size, or cut at the given places."""
        axis = self._axis(dim, "tensor_split")
        if not self.ndim:
            raise ShapeError("tensor_split: a scalar can't be split")
        size = self._fixed_size(axis, "tensor_split")
        given = indices_or_sections
        if hasattr(given, "tolist"):
            given = given.tolist()
        if hasattr(type(given), "__index__"):
            count = given.__index__()
            if count < 1:
                raise ShapeError("tensor_split: the number must be at least 1", got=count)
            low, extra = divmod(size, count)
            cuts = [low * i + min(i, extra) for i in range(1, count)]
        else:
            cuts = [slice(None, place).indices(size)[1] for place in given]
        ends = [0, *cuts, size]
        return tuple(
            [self._cut_axis(axis, start, max(stop, start)) for start, stop in pairwise(ends)]
        )

    def hsplit(self, indices_or_sections: Any) -> tuple[Self, ...]:
        """`tensor_split` along the first axis of a vector, else the second."""
        return self._even_split(indices_or_sections, 0 if self.ndim == 1 else 1, "hsplit")

    def vsplit(self, indices_or_sections: Any) -> tuple[Self, ...]:
        """`tensor_split` along the first axis of a matrix."""
        return self._even_split(indices_or_sections, 0, "vsplit")

    def dsplit(self, indices_or_sections: Any) -> tuple[Self, ...]:
        """`tensor_split` along the third axis."""
        return self._even_split(indices_or_sections, 2, "dsplit")

    def _even_split(self, given: Any, axis: int, what: str) -> tuple[Self, ...]:
        if axis >= self.ndim:
            raise ShapeError(f"{what}: there are too few axes", got=format_shape(self._dims))
        size = self._fixed_size(axis, what)
        if hasattr(type(given), "__index__") and (given < 1 or size % given.__index__()):
            raise ShapeError(
                f"{what}: the parts are not equal",
                got=f"{given} parts of axis {axis} of {format_shape(self._dims)}",
                try_="tensor_split",
            )
        return self.tensor_split(given, axis)

    def split_with_sizes(self, sizes: Sequence[int], dim: int = 0) -> tuple[Self, ...]:
        """Another name for `split` with a list of sizes."""
        return self.split(list(sizes), dim)

    # --- axes --------------------------------------------------------------------------------

    def t(self) -> Self:
        """A matrix with its axes exchanged; vectors and scalars as they are."""
        if self.ndim > 2:
            raise ShapeError("t: needs at most two axes", got=format_shape(self._dims))
        return self.transpose(0, 1) if self.ndim == 2 else self

    def ravel(self) -> Self:
        """All elements in one vector."""
        return self.reshape(-1)

    def view_as(self, other: Self) -> Self:
        """In the shape of `other`."""
        return self.reshape(other.shape)

    def select(self, dim: int, index: int) -> Self:
        """The slice at `index` along `dim`, without that axis."""
        axis = self._axis(dim, "select")
        return self[(*[slice(None)] * axis, index)]

    def fliplr(self) -> Self:
        """Mirrored along the second axis."""
        if self.ndim < 2:
            raise ShapeError("fliplr: needs two axes", got=format_shape(self._dims))
        return self.flip(1)

    def flipud(self) -> Self:
        """Mirrored along the first axis."""
        if not self.ndim:
            raise ShapeError("flipud: needs an axis", got="a scalar")
        return self.flip(0)

    def sum_to_size(self, *size: Any) -> Self:
        """Summed over axes so that the shape becomes `size`, from which it was broadcast."""
        wanted = tuple(size[0]) if len(size) == 1 and not hasattr(size[0], "__index__") else size
        if wanted == self.shape:
            return self
        extra = self.ndim - len(wanted)
        if extra < 0:
            raise ShapeError(
                "sum_to_size: the size has more axes",
                got=f"{wanted} for {format_shape(self._dims)}",
                expected=f"at most {self.ndim} axes",
            )
        grown = [
            extra + axis
            for axis, (own, new) in enumerate(zip(self.shape[extra:], wanted, strict=True))
            if new == 1 and own != 1
        ]
        axes = (*range(extra), *grown)
        found = self.sum(axes, keepdim=True) if axes else self.cast(sum_dtype(self.dtype))
        return found.reshape(wanted)

    # --- diagonals ---------------------------------------------------------------------------

    def diag_embed(self, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Self:
        """The last axis on a diagonal of two new axes, zeros elsewhere."""
        first = self._axis(dim1, "diag_embed", extra=1)
        second = self._axis(dim2, "diag_embed", extra=1)
        if first == second:
            raise ShapeError("diag_embed: the axes are the same", got=f"{dim1} and {dim2}")
        # With the axes exchanged the diagonal lies on the other side.
        offset = offset if first < second else -offset
        size = self._fixed_size(-1, "diag_embed") + abs(offset)
        low = (max(-offset, 0), max(offset, 0))
        row = self.unsqueeze(-1).pad(((0, 0),) * (self.ndim - 1) + (low, (0, size - 1)))
        is_here = row._positions(row.ndim - 2) + offset == row._positions(row.ndim - 1)
        spread = row[..., :1].expand(*row.shape[:-1], size)
        is_here = is_here[..., :size]
        found = is_here.where(spread, spread.zeros_like())
        return found.movedim((-2, -1), (min(first, second), max(first, second)))

    def diagflat(self, offset: int = 0) -> Self:
        """A square matrix with all elements on its diagonal."""
        return self.reshape(-1).diag_embed(offset)

    # --- copies with a part replaced ---------------------------------------------------------

    def select_scatter(self, src: Self, dim: int, index: int) -> Self:
        """A copy whose slice at `index` along `dim` is `src`."""
        axis = self._axis(dim, "select_scatter")
        return self._with_part((*[slice(None)] * axis, index), src)

    def slice_scatter(
        self,
        src: Self,
        dim: int = 0,
        start: int | None = None,
        end: int | None = None,
        step: int = 1,
    ) -> Self:
        """A copy whose slice along `dim` is `src`."""
        axis = self._axis(dim, "slice_scatter")
        return self._with_part((*[slice(None)] * axis, slice(start, end, step)), src)

    def diagonal_scatter(self, src: Self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Self:
        """A copy whose diagonal is `src`."""
        first, second = self._axis(dim1, "diagonal"), self._axis(dim2, "diagonal")
        is_there = self._positions(first) + offset == self._positions(second)
        shape = self.diagonal(offset, dim1, dim2)._dims
        if src._dims != shape:
            raise ShapeError(
                "diagonal_scatter: the source doesn't fit",
                got=format_shape(src._dims),
                expected=format_shape(shape),
            )
        rest = [axis for axis in range(self.ndim) if axis not in (first, second)]
        moved = self.permute(*rest, first, second)
        low = max(-offset, 0)
        place = (moved._positions(moved.ndim - 2) - low).clamp(min_=0)
        size = src._fixed_size(-1, "diagonal_scatter")
        if not size:
            return self.clone()
        place = place.minimum(size - 1)
        values = src.unsqueeze(-1).expand(*src.shape, moved.shape[-1]).gather(-2, place)
        order = [*rest, first, second]
        back = sorted(range(len(order)), key=order.__getitem__)
        return is_there.where(values.permute(back), self)

    def _with_part(self, index: Any, src: Self) -> Self:
        number = type(self).arange(max(self._count(), 1), dtype=dtypes.index, device=self.device)
        shape = self.shape
        place = number[: self._count()].reshape(shape)[index]
        flat = self.reshape(-1)
        if place._dims != src._dims:
            raise ShapeError(
                "scatter: the source doesn't fit the part",
                got=format_shape(src._dims),
                expected=format_shape(place._dims),
            )
        return flat.scatter(0, place.reshape(-1), src.cast(self.dtype).reshape(-1)).reshape(shape)

    # --- combinations ------------------------------------------------------------------------

    def broadcast_tensors(self, *others: Self) -> tuple[Self, ...]:
        """All expanded to one shape."""
        parts = (self, *others)
        shape = broadcast_shapes([part._dims for part in parts], "broadcast_tensors")
        return tuple([part._broadcast_to(shape, part._bindings, "broadcast") for part in parts])

    def cartesian_prod(self, *others: Self) -> Self:
        """All choices of one element of each vector, one in each row."""
        if not others:
            return self
        grids = self.meshgrid(*others)
        flat = [grid.reshape(-1) for grid in grids]
        return flat[0].stack(*flat[1:], dim=-1)

    def combinations(self, r: int = 2, with_replacement: bool = False) -> Self:
        """All choices of `r` elements of a vector, one in each row."""
        size = self._fixed_size(0, "combinations")
        choose = combinations_with_replacement if with_replacement else combinations
        if r < 0:
            raise ShapeError("combinations: r is negative", got=r, expected="from 0 on")
        rows = [list(row) for row in choose(range(size), r)]
        if not rows or not r:
            return self[:0].reshape(0) if not r else self[:0].reshape(0, 1).expand(0, r)
        return self[rows]

    @classmethod
    def tril_indices(cls, row: int, col: int, offset: int = 0) -> Self:
        """The places (int64) of the lower triangle: rows first, then columns."""
        places = [(i, j) for i in range(row) for j in range(col) if j <= i + offset]
        return cls._as_columns(places)

    @classmethod
    def triu_indices(cls, row: int, col: int, offset: int = 0) -> Self:
        """The places (int64) of the upper triangle: rows first, then columns."""
        places = [(i, j) for i in range(row) for j in range(col) if j >= i + offset]
        return cls._as_columns(places)

    @classmethod
    def _as_columns(cls, places: list[tuple[int, int]]) -> Self:
        if not places:
            return cls.zeros(2, 0, dtype=dtypes.int64)
        flat = [i for i, _ in places] + [j for _, j in places]
        device = Device.canonicalize(None)
        return cls._from_numbers(flat, dtypes.int64, device).reshape(2, -1)
