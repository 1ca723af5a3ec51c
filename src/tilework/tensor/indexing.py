"""Reading and writing parts by index: views for slices, GATHER and SCATTER for tensors.

What the host knows is checked at once; an index computed on a device that is out of range reads 0
and is reported at the next readback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from tilework import dtypes
from tilework.base.errors import IndexingError
from tilework.ir.ops import tensor
from tilework.ir.ops.tensor import Fold, GatherAttrs
from tilework.ir.symbolic import dims
from tilework.tensor import host
from tilework.tensor.assigning import Assigning
from tilework.tensor.core import TensorBase
from tilework.tensor.index_plans import KnownIndex, Plan, Switch, known_items
from tilework.tensor.promotion import broadcast_shapes
from tilework.tensor.variable import (
    Variable,
    as_dim,
    as_size,
    bindings_of,
    evaluate,
    format_dim,
    format_shape,
)
from tilework.tensor.version import merge_bindings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.ir.types import Dim


class Indexing(Assigning):
    """`x[...]` and `x[...] = v`."""

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
        return known_items(item)

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
        found = host.places_of_true(values).T if values.ndim else ()
        places = [axis.astype("int64", order="C", copy=False) for axis in found]
        return [
            KnownIndex([], (len(axis),), size, memoryview(axis))
            for axis, size in zip(places, self._sizes(), strict=True)
        ]

    def _upload_index(self, index: KnownIndex, size: Dim, axis: int) -> Self:
        """A known index in int64, checked against the size of its axis."""
        # A mask that was read is of this call; what is written down may meet other sizes later.
        wanted = evaluate(size, self._bindings) if index.packed is not None else size
        if index.mask_size is not None and index.mask_size != wanted:
            raise IndexingError(
                f"index: the mask doesn't fit axis {axis}",
                got=f"{index.mask_size} for {format_shape(self._dims)}",
                expected=format_dim(wanted),
            )
        if index.packed is not None:
            return self._over(host.upload(index.packed, index.shape, dtypes.index, self.device))
        length = dims.least(size)
        for position in index.positions:
            if not -length <= position < length:
                raise IndexingError(
                    f"index: {position} is out of range",
                    got=f"axis {axis} of shape {format_shape(self._dims)}",
                    expected=f"{-length} to {length - 1}",
                )
        is_fixed = isinstance(size, int)
        places = (
            [position % length for position in index.positions] if is_fixed else index.positions
        )
        data = host.pack(places, dtypes.index)
        found = self._over(host.upload(data, index.shape, dtypes.index, self.device))
        return found if is_fixed else self._wrapped(found, size)

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

    # --- what other families build on --------------------------------------------------------

    def _gathered(self, axis: int, indices: Sequence[Self]) -> Self:
        return self._apply(tensor.GATHER, *indices, attrs=GatherAttrs(axis))

    def _scattered(
        self, axis: int, updates: Self, indices: Sequence[Self], fold: Fold | None
    ) -> Self:
        return self._apply(tensor.SCATTER, updates, *indices, attrs=GatherAttrs(axis, fold))

    def item(self) -> bool | int | float:
        """The only element; `Tensor` says how."""
        raise NotImplementedError
