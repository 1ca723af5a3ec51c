"""Reading and writing parts by index: views for slices, GATHER and SCATTER for tensors.

What the host knows is checked at once; an index computed on a device that is out of range reads 0
and is reported at the next readback.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from tilework import dtypes
from tilework.base.errors import DTypeError, IndexingError, ShapeError, UserError
from tilework.base.sequences import row_major_strides
from tilework.ir.ops import tensor
from tilework.ir.ops.tensor import Fold, GatherAttrs
from tilework.ir.symbolic import dims
from tilework.tensor import host, observe
from tilework.tensor.core import TensorBase
from tilework.tensor.joining import Joining
from tilework.tensor.promotion import (
    Number,
    broadcast_shapes,
    check_fits,
    check_same_kind,
)
from tilework.tensor.variable import (
    Variable,
    as_dim,
    as_size,
    bindings_of,
    format_dim,
    format_shape,
)
from tilework.tensor.version import merge_bindings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tilework.ir.types import Dim


@dataclass(frozen=True, slots=True)
class KnownIndex:
    """Positions that the host knows; `mask_size` is the size of the mask's axis they came from."""

    positions: list[int]
    shape: tuple[int, ...]
    mask_size: int | None = None


@dataclass(frozen=True, slots=True)
class Switch:
    """A single bool as an index: a new axis of size 1 if it is True, else of size 0."""

    is_on: bool


def _known_items(item: Any) -> list[Any]:
    """A list or array as an index: positions, or for a mask the positions of its True elements."""
    nested = item.tolist() if hasattr(item, "tolist") else item
    if isinstance(nested, bool):
        return [Switch(nested)]
    if isinstance(nested, range):
        nested = list(nested)
    if not isinstance(nested, list | tuple):
        raise IndexingError(
            "index: this is not an index",
            got=f"{item!r} of type {type(item).__name__}",
            expected="an int, a slice, None, ..., or a tensor or list of integers or bools",
        )
    flat, shape = host.flatten(nested)
    if flat and all(isinstance(each, bool) for each in flat):
        strides = row_major_strides(shape)
        found = [number for number, each in enumerate(flat) if each]
        return [
            KnownIndex([number // stride % size for number in found], (len(found),), size)
            for stride, size in zip(strides, shape, strict=True)
        ]
    for each in flat:
        if isinstance(each, bool) or not isinstance(each, int):
            raise IndexingError("index: an index must be an integer", got=f"{each!r}")
    return [KnownIndex(flat, tuple(shape))]


def _as_vector(value: Any) -> Any:
    """A scalar as a vector of one element; a number or a longer tensor as it is."""
    return value.reshape(1) if isinstance(value, Indexing) and not value.ndim else value


def _not_integers(index: Any, what: str) -> IndexingError:
    return IndexingError(
        f"{what}: the index must hold integers",
        got=index.dtype.name,
        try_="index.cast(dtypes.int64)",
    )


@dataclass
class Plan:
    """An index taken apart: cuts of a view, mirrored axes, the new shape, and index tensors."""

    bounds: list[tuple[Dim, Dim, int]] = field(default_factory=list)
    flips: list[int] = field(default_factory=list)
    shape: list[Any] = field(default_factory=list)
    #: Axis of the viewed tensor and the index tensor for it.
    advanced: list[tuple[int, Any]] = field(default_factory=list)
    bindings: Mapping[str, int] | None = None

    def order(self) -> tuple[list[int], int]:
        """The axes with all indexed ones side by side, and where those begin.

        As in PyTorch an index tensor without axes picks like a number, so it does not count: index
        tensors with axes that are neighbours else keep their place, others come to the front.
        """
        axes = [axis for axis, _ in self.advanced]
        points = [axis for axis, index in self.advanced if not index.ndim]
        left = [axis for axis in range(len(self.shape)) if axis not in points]
        places = [left.index(axis) for axis in axes if axis not in points]
        is_adjacent = not places or places[-1] - places[0] == len(places) - 1
        rest = [axis for axis in left if axis not in axes]
        first = sum([place < places[0] for place in map(left.index, rest)]) if places else 0
        first = first if is_adjacent else 0
        return [*rest[:first], *axes, *rest[first:]], first


class Indexing(Joining):
    """`x[...]`, `x[...] = v`, gather, scatter and their kin."""

    __slots__ = ()

    # --- x[index] ----------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> Self:
        """Part of the tensor; slices and integers give views, tensors and lists copies.

        Raises:
            IndexingError: an index that the host knows is out of range, or there are too many.
        """
        plan = self._plan(index)
        view = self._view_of(plan)
        if not plan.advanced:
            return view
        x, first, indices = view._arranged(plan)
        return x._gathered(first, indices)

    def __setitem__(self, index: Any, value: Any) -> None:
        """Write part of the tensor; bases and other views of the storage see it.

        Raises:
            AliasError: two elements of the part are one place in memory.
            DTypeError: the value would be changed by the tensor's dtype.
        """
        mask = self._mask_of(index, value)
        if mask is not None:
            self._put(mask.where(self._fitting(value, self._dims, "setitem"), self))
            return
        plan = self._plan(index)
        view = self._view_of(plan)
        if not plan.advanced:
            view._put(value)
            return
        x, first, indices = view._arranged(plan)
        shape = (*x._dims[:first], *indices[0]._dims, *x._dims[first + len(indices) :])
        updates = x._fitting(value, shape, "setitem")
        x._write(x._scattered(first, updates, indices, None))

    def _mask_of(self, index: Any, value: Any) -> Any:
        """The mask of `x[mask] = value` in the shape of x, if each row gets the same value.

        Which elements are written is then found on the device; nobody has to read the mask.
        """
        item = index[0] if isinstance(index, tuple) and len(index) == 1 else index
        if not isinstance(item, TensorBase) or not item.dtype.is_bool or not item.ndim:
            return None
        ndim = value.ndim if isinstance(value, TensorBase) else getattr(value, "ndim", 0)
        is_plain = isinstance(value, bool | int | float | TensorBase) or not ndim
        rest = self.ndim - item.ndim
        if not is_plain or ndim > rest or item._dims != self._dims[: item.ndim]:
            return None
        mask: Any = item.to(self.device)
        return mask.reshape(*item.shape, *[1] * rest).expand(self.shape)

    def _view_of(self, plan: Plan) -> Self:
        x = self
        if plan.bounds:
            x = x._cut(plan.bounds, plan.bindings)
        x = x._flipped_view(tuple(plan.flips))
        return x.reshape(plan.shape)

    def _arranged(self, plan: Plan) -> tuple[Self, int, list[Self]]:
        """The view with its indexed axes side by side, the first of them, and the indices."""
        given = [each for _, each in plan.advanced]
        shape = broadcast_shapes([each._dims for each in given], "index")
        indices = [each._broadcast_to(shape, each._bindings, "index") for each in given]
        order, first = plan.order()
        return self.permute(order), first, indices

    def _plan(self, index: Any) -> Plan:
        items = self._expanded(list(index) if isinstance(index, tuple) else [index])
        plan = Plan()
        axis = 0
        for item in items:
            if item is None:
                plan.shape.append(1)
                continue
            if isinstance(item, Switch):
                found = KnownIndex([0], (1,)) if item.is_on else KnownIndex([], (0,))
                plan.advanced.append((len(plan.shape), self._upload_index(found, 1, axis)))
                plan.shape.append(1)
                continue
            if isinstance(item, TensorBase | KnownIndex):
                size = self._dims[axis]
                plan.advanced.append((len(plan.shape), self._index_tensor(item, size, axis)))
                plan.bounds.append((0, size, 1))
                plan.shape.append(self.shape[axis])
            elif isinstance(item, slice):
                self._plan_slice(plan, item, axis)
            else:
                self._plan_position(plan, item, axis)
            axis += 1
        if all(
            start == 0 and stop is size and step == 1
            for (start, stop, step), size in zip(plan.bounds, self._dims, strict=True)
        ):
            plan.bounds.clear()
        return plan

    def _expanded(self, items: list[Any]) -> list[Any]:
        """The index with one item for each axis: lists as tensors, masks as positions."""
        found: list[Any] = []
        for item in items:
            found.extend(self._read_item(item))
        free = (Switch, type(None), type(...))
        used = sum([not isinstance(item, free) for item in found])
        dots = [place for place, item in enumerate(found) if item is Ellipsis]
        if used > self.ndim or len(dots) > 1:
            what = "more than one ..." if len(dots) > 1 else "too many indices"
            raise IndexingError(
                f"index: {what}",
                got=f"{used} for shape {format_shape(self._dims)}",
                expected=f"at most {self.ndim}",
            )
        rest = [slice(None)] * (self.ndim - used)
        place = dots[0] if dots else len(found)
        return [*found[:place], *rest, *found[place + len(dots) :]]

    def _read_item(self, item: Any) -> list[Any]:
        if item is None or item is Ellipsis or isinstance(item, slice | Variable):
            return [item]
        if isinstance(item, bool):
            return [Switch(item)]
        if isinstance(item, TensorBase):
            return self._read_tensor(item)
        is_bool = str(getattr(item, "dtype", "")) == "bool"
        if hasattr(type(item), "__index__") and not getattr(item, "ndim", 0) and not is_bool:
            return [item]
        if isinstance(item, float):
            raise IndexingError(
                "index: an index must be an integer", got=f"{item!r}", try_="int(index)"
            )
        return _known_items(item)

    def _read_tensor(self, item: Any) -> list[Any]:
        if item.dtype.is_bool:
            return list(item._known_positions()) if item.ndim else [Switch(bool(item.item()))]
        if not item.dtype.is_integer:
            raise IndexingError(
                "index: an index tensor must hold integers or bool",
                got=item.dtype.name,
                try_="index.cast(dtypes.int64)",
            )
        return [item]

    def _known_positions(self) -> list[KnownIndex]:
        """The positions where a mask is True, one list for each axis; reads the mask."""
        values = self._host_array()
        places = values.nonzero() if values.ndim else ()
        return [
            KnownIndex(axis.tolist(), (len(axis),), size)
            for axis, size in zip(places, self._sizes(), strict=True)
        ]

    def _upload_index(self, index: KnownIndex, size: Dim, axis: int) -> Self:
        """A known index in int64, checked against the size of its axis."""
        length = dims.least(size)
        if index.mask_size is not None and index.mask_size != length:
            raise IndexingError(
                f"index: the mask doesn't fit axis {axis}",
                got=f"{index.mask_size} for {format_shape(self._dims)}",
                expected=f"{length}",
            )
        for position in index.positions:
            if not -length <= position < length:
                raise IndexingError(
                    f"index: {position} is out of range",
                    got=f"axis {axis} of shape {format_shape(self._dims)}",
                    expected=f"{-length} to {length - 1}",
                )
        wrapped = [position % length for position in index.positions]
        data = host.pack(wrapped, dtypes.index)
        return self._over(host.upload(data, index.shape, dtypes.index, self.device))

    def _host_array(self) -> Any:
        """The values on the host; `Tensor` says how."""
        raise NotImplementedError

    def _index_tensor(self, item: Any, size: Dim, axis: int) -> Any:
        if isinstance(item, KnownIndex):
            return self._upload_index(item, size, axis)
        return self._wrapped(item, size)

    def _wrapped(self, index: Any, size: Dim) -> Any:
        """An index tensor in int64 with negative positions counted from the end."""
        x = index.to(self.device).cast(dtypes.index)
        if index.dtype.is_unsigned:
            return x
        return (x < 0).where(x + x._size_as(size, dtypes.index), x)

    def _plan_slice(self, plan: Plan, item: slice, axis: int) -> None:
        size = self._dims[axis]
        ends = [item.start, item.stop]
        if isinstance(size, int) and not any(isinstance(each, Variable) for each in ends):
            step = 1 if item.step is None else item.step.__index__()
            if step == 0:
                raise IndexingError("index: the step of a slice is 0")
            start, stop, step = item.indices(size)
            count = len(range(start, stop, step))
            if step < 0:
                plan.flips.append(axis)
                start, stop, step = start + (count - 1) * step, start + 1, -step
            low = start if count else 0
            plan.bounds.append((low, max(stop, low) if count else low, step))
            plan.shape.append(count)
            return
        if item.step not in (None, 1):
            raise IndexingError(
                "index: a slice of a symbolic size can't have a step", got=f"step {item.step}"
            )
        begin = self._end_of(item.start, size, 0)
        end = self._end_of(item.stop, size, size)
        plan.bindings = merge_bindings(
            (plan.bindings, self._bindings, *[bindings_of(each) for each in ends]), "index"
        )
        plan.bounds.append((begin, end, 1))
        plan.shape.append(as_size(dims.sub(end, begin), plan.bindings))

    def _end_of(self, end: Any, size: Dim, default: Dim) -> Dim:
        if end is None:
            return default
        found = as_dim(end)
        if isinstance(found, int):
            if found < 0:
                return dims.add(size, found)
            if found > dims.least(size):
                raise IndexingError(
                    "index: the slice may reach past the end of a symbolic size",
                    got=f"{found} of {format_dim(size)}",
                    expected=f"at most {dims.least(size)}",
                )
        elif dims.greatest(found) > dims.greatest(size) or dims.least(found) < 0:
            raise IndexingError(
                "index: the bounds of the variable reach outside",
                got=f"{dims.least(found)} to {dims.greatest(found)} of {format_dim(size)}",
            )
        return found

    def _plan_position(self, plan: Plan, item: Any, axis: int) -> None:
        size = self._dims[axis]
        position = as_dim(item)
        if isinstance(position, int):
            length = dims.least(size)
            if not -length <= position < length:
                raise IndexingError(
                    f"index: {position} is out of range",
                    got=f"axis {axis} of shape {format_shape(self._dims)}",
                    expected=f"{-length} to {length - 1}",
                )
            position = dims.add(size, position) if position < 0 else position
        elif dims.least(position) < 0 or dims.greatest(position) >= dims.least(size):
            raise IndexingError(
                "index: the bounds of the variable reach outside",
                got=f"{dims.least(position)} to {dims.greatest(position)} of {format_dim(size)}",
            )
        plan.bindings = merge_bindings((plan.bindings, bindings_of(item)), "index")
        plan.bounds.append((position, dims.add(position, 1), 1))

    # --- gather and scatter on axes ----------------------------------------------------------

    def _gathered(self, axis: int, indices: Sequence[Self]) -> Self:
        return self._apply(tensor.GATHER, *indices, attrs=GatherAttrs(axis))

    def _scattered(
        self, axis: int, updates: Self, indices: Sequence[Self], fold: Fold | None
    ) -> Self:
        return self._apply(tensor.SCATTER, updates, *indices, attrs=GatherAttrs(axis, fold))

    def _all_indices(self, axis: int, index: Self) -> list[Self]:
        """Index tensors for every axis: `index` along `axis`, the own position elsewhere."""
        found = [index._positions(other) for other in range(self.ndim)]
        found[axis] = self._wrapped(index, self._dims[axis])
        return found

    def _check_index(self, axis: int, index: Self, what: str) -> None:
        if not index.dtype.is_integer:
            raise _not_integers(index, what)
        fits = index.ndim == self.ndim and all(
            other == axis or dims.greatest(own) <= dims.least(size)
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
        positions = self._truth()._known_positions()
        if not positions:
            return type(self).zeros(int(bool(self.item())), 0, dtype=dtypes.index)
        rows = list(zip(*[each.positions for each in positions], strict=True))
        flat = [place for row in rows for place in row]
        data = host.pack(flat, dtypes.index)
        shape = (len(rows), self.ndim)
        return self._over(host.upload(data, shape, dtypes.index, self.device))

    def _nonzero_of(self, size: int, fill_value: Number) -> Self:
        place, is_there = self._truth().flatten()._places_of_true(size)
        columns = []
        for stride, length in zip(row_major_strides(self._sizes()), self._sizes(), strict=True):
            column = (place // max(stride, 1)) % max(length, 1)
            columns.append(is_there.where(column, fill_value).unsqueeze(1))
        if not columns:
            return type(self).zeros(size, 0, dtype=dtypes.index, device=self.device)
        return columns[0].cat(*columns[1:], dim=1)

    def item(self) -> bool | int | float:
        """The only element; `Tensor` says how."""
        raise NotImplementedError

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

    # --- whole writes ------------------------------------------------------------------------

    def assign(self, value: Any) -> Self:
        """Write `value`, broadcast to this tensor's shape, into its memory; returns this tensor.

        Raises:
            DTypeError: the value would be changed by this tensor's dtype.
            AliasError: two elements of this view are one place in memory.
        """
        self._put(value)
        return self

    def replace(self, other: Self) -> Self:
        """Make this tensor refer to the storage of `other`; nothing is copied."""
        if other._dims != self._dims:
            raise ShapeError(
                "replace: the shapes differ",
                got=f"{format_shape(other._dims)} for {format_shape(self._dims)}",
            )
        old = self._storage
        self._storage, self._chain, self._type = other._storage, other._chain, other._type
        observe.tensor_moved(old)
        return self

    def _put(self, value: Any) -> None:
        if isinstance(value, TensorBase) and self._shares_place_with(value):
            return  # `x[i] += 1` ends with x[i] = x[i]
        self._write(self._fitting(value, self._dims, "assign"))

    def _fitting(self, value: Any, shape: tuple[Dim, ...], what: str) -> Self:
        """A value to write, in this tensor's dtype and the given shape."""
        found = self._operand(value, what)
        if isinstance(found, bool | int | float):
            return self._from_number(found, shape, what)
        check_same_kind(found.dtype, self.dtype, what)
        if found.ndim > len(shape):
            extra = found.ndim - len(shape)
            if any(size != 1 for size in found._dims[:extra]):
                raise ShapeError(
                    f"{what}: the value doesn't fit",
                    got=f"{format_shape(found._dims)} into {format_shape(shape)}",
                )
            found = found.reshape(found.shape[extra:])
        return found.cast(self.dtype)._broadcast_to(shape, self._bindings, what)

    def _from_number(self, value: Number, shape: tuple[Dim, ...], what: str) -> Self:
        check_fits(self.dtype, value, what)
        return self._like(shape)._constant(value, self.dtype)

    def _add_in_place(self, found: Self, what: str) -> Self:
        if self._wants_gradient and found._storage.version.is_tracked:
            raise UserError(
                f"{what}: a tensor with requires_grad is changed in place",
                try_="write `x = x + y`, or do it inside `with Tensor.no_grad():`",
            )
        self._put(found)
        return self

    def __iadd__(self, other: Any) -> Self:
        return self._add_in_place(self + other, "+=")

    def __isub__(self, other: Any) -> Self:
        return self._add_in_place(self - other, "-=")

    def __imul__(self, other: Any) -> Self:
        return self._add_in_place(self * other, "*=")

    def __itruediv__(self, other: Any) -> Self:
        return self._add_in_place(self / other, "/=")

    def __ifloordiv__(self, other: Any) -> Self:
        return self._add_in_place(self // other, "//=")

    def __imod__(self, other: Any) -> Self:
        return self._add_in_place(self % other, "%=")

    def __ipow__(self, other: Any) -> Self:
        return self._add_in_place(self**other, "**=")

    def __iand__(self, other: Any) -> Self:
        return self._add_in_place(self & other, "&=")

    def __ior__(self, other: Any) -> Self:
        return self._add_in_place(self | other, "|=")

    def __ixor__(self, other: Any) -> Self:
        return self._add_in_place(self ^ other, "^=")
