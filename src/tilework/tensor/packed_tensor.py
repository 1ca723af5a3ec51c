"""`PackedTensor`: what `Tensor(..., dtype=dtypes.int4)` and `x.cast(dtypes.int4)` give."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final, Self

from tilework import dtypes
from tilework.base.errors import DTypeError, ShapeError
from tilework.base.late import late_module
from tilework.tensor import packed
from tilework.tensor.conversion import destination
from tilework.tensor.creation import as_dtype
from tilework.tensor.promotion import check_same_kind
from tilework.tensor.tensor import Tensor
from tilework.tensor.variable import format_shape
from tilework.tensor.wrong_calls import told

if TYPE_CHECKING:
    import inspect
    from collections.abc import Callable, Sequence

    from tilework.dtypes import DType
    from tilework.tensor.version import Version
else:
    inspect = late_module("inspect")


class PackedTensor(Tensor):
    """Elements of a packed dtype: stored, moved, indexed and converted, never computed with.

    `_packed` holds the bytes and the dtype; the rest of the state is that of their values, an
    expression over the bytes in `dtypes.value_dtype(dtype)`, so that whatever computes with this
    tensor reads bytes and unpacks them on the way.  Results of movement and indexing are packed
    again, and values of their own: a packed tensor has no views to write through, and `x[i] = v`
    packs all of it anew.
    """

    __slots__ = ()

    # --- what it is --------------------------------------------------------------------------

    @property
    def dtype(self) -> DType:
        """The packed dtype."""
        return self._packed[1]

    @property
    def is_realized(self) -> bool:
        """Whether the bytes are in memory."""
        return self._held.is_realized

    @property
    def _held(self) -> Tensor:
        found: Tensor = self._packed[0]
        return found

    def nbytes(self) -> int:
        """The bytes that the elements take."""
        return self._held.nbytes()

    def unpacked(self) -> Tensor:
        """The values, in the dtype that they are computed with."""
        found = Tensor.__new__(Tensor)
        found._set(self._storage, self._chain, self._type, self._bindings)
        return found._apply(None)

    def _host_array(self) -> Any:
        return self.unpacked()._host_array()

    def _host_lists(self) -> Any:
        return self.unpacked()._host_lists()

    # --- conversion --------------------------------------------------------------------------

    def cast(self, dtype: DType | str) -> Any:
        """The values in another dtype."""
        kind = as_dtype(dtype, may_be_packed=True)
        return self if kind is self.dtype else self.unpacked().cast(kind)

    def bitcast(self, dtype: DType | str) -> Any:
        """The bytes in a dtype of one byte, the last axis half as long; or in another packed one.

        Raises:
            DTypeError: an element of the dtype has more than one byte.
            ShapeError: the last axis has an odd size.
        """
        kind = as_dtype(dtype, may_be_packed=True)
        if kind.is_packed:
            return made(self._held, kind, self._sizes())
        if kind.bits != 8:
            raise DTypeError(
                "bitcast: the elements share bytes", got=kind.name, expected="a dtype of 8 bits"
            )
        if not self.ndim or self._sizes()[-1] % 2:
            raise ShapeError(
                "bitcast: the last axis has an odd size",
                got=format_shape(self._dims),
                expected="an even number of elements, two for each byte",
            )
        return self._held._apply(None).bitcast(kind)

    # --- memory ------------------------------------------------------------------------------

    def _version_to_realize(self) -> Version:
        return self._held._version_to_realize()

    def to(self, device: Any = (), dtype: DType | str | None = None) -> Any:
        """This tensor on a device, in a dtype, or both; see `Tensor.to`."""
        place, kind = destination(device, dtype)
        moved = self._held if place == () else self._held.to(place)
        found = self if moved is self._held else made(moved, self.dtype, self._sizes())
        return found if kind is None else found.cast(kind)

    def contiguous(self) -> Any:
        """This tensor; it has no other order."""
        return self

    def clone(self, device: str | None = None) -> Any:
        """A copy with memory of its own."""
        return made(self._held.clone(device), self.dtype, self._sizes())

    def detach(self) -> Any:
        """The same bytes, through which no gradient flows."""
        return made(self._held, self.dtype, self._sizes())

    def assign(self, value: Any) -> Self:
        """Write all elements; returns this tensor.

        Raises:
            DTypeError: the value is of another kind.
            ShapeError: it has another shape.
        """
        given = self._as_given(value)
        if given.dtype is not self.dtype:
            given = _checked_for(given, self, "assign")
        if given._dims != self._dims:
            given = given.unpacked() if isinstance(given, PackedTensor) else given
            given = given.expand(self.shape)
        self._held.assign(given.cast(self.dtype)._packed[0])
        _see(self, self._held, self.dtype, self._sizes())
        return self

    def _as_given(self, value: Any) -> Tensor:
        """What is to be written; numbers are checked to fit."""
        if isinstance(value, Tensor):
            return value
        found: Tensor = Tensor(value, dtype=self.dtype, device=self.device)
        return found

    def replace(self, other: Any) -> Self:
        """Make this tensor refer to the bytes of `other`.

        Raises:
            ShapeError: it has another shape or dtype.
        """
        if other.dtype is not self.dtype or other._dims != self._dims:
            raise ShapeError(
                "replace: the tensors differ",
                got=f"{other.dtype.name}{format_shape(other._dims)}",
                expected=f"{self.dtype.name}{format_shape(self._dims)}",
            )
        _see(self, other._held, self.dtype, self._sizes())
        return self

    def __setitem__(self, index: Any, value: Any) -> None:
        """Write some elements: all are unpacked, changed and packed again, as they share bytes."""
        given = self._as_given(value)
        if given.dtype is not self.dtype:
            given = _checked_for(given, self, "setitem").cast(self.dtype)
        values = self.unpacked().clone()
        values[index] = given.cast(values.dtype)
        self.assign(values.cast(self.dtype))

    def __copy__(self) -> Any:
        return made(self._held, self.dtype, self._sizes())

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        copied = self.clone()
        memo[id(self)] = copied
        return copied

    def __reduce__(self) -> tuple[Any, ...]:
        return made, (self._held, self.dtype, self._sizes())

    # --- moved as bytes ----------------------------------------------------------------------

    def reshape(self, *shape: Any) -> Any:
        """The same elements under another shape; see `Tensor.reshape`."""
        values = Tensor.reshape(self.unpacked(), *shape)
        sizes = packed.packed_shape(values._sizes())
        return self._moved(values, lambda bits: bits.reshape(sizes), are_whole=True)

    def permute(self, *order: Any) -> Any:
        """The same elements with the axes in another order; see `Tensor.permute`."""
        values = Tensor.permute(self.unpacked(), *order)
        axes = order[0] if len(order) == 1 and isinstance(order[0], list | tuple) else order
        stays = bool(axes) and axes[-1] in (-1, self.ndim - 1)
        return self._moved(values, lambda bits: bits.permute(*axes), are_whole=stays)

    def __getitem__(self, index: Any) -> Any:
        values = Tensor.__getitem__(self.unpacked(), index)
        parts = index if isinstance(index, tuple) else (index,)
        plain = all(
            isinstance(part, int | slice | None) and part is not True and part is not False
            for part in parts
        )
        taken = sum([part is not None for part in parts])
        return self._moved(values, lambda bits: bits[index], are_whole=plain and taken < self.ndim)

    def _moved(self, values: Tensor, move: Callable[[Tensor], Tensor], *, are_whole: bool) -> Any:
        """Values of this tensor in another order, packed again.

        Bytes are moved as they are where the halves of each stay together.  Floats may carry a
        gradient, which only their values know.
        """
        ends = (self._sizes()[-1:], values._sizes()[-1:])
        if are_whole and self.dtype.is_integer and all(end and end[0] % 2 == 0 for end in ends):
            return made(move(self._held), self.dtype, values._sizes())
        return values.cast(self.dtype)

    # --- what is made of it ------------------------------------------------------------------

    def _apply(self, *arguments: Any, **options: Any) -> Any:
        return self.unpacked()._apply(*arguments, **options)

    def _seen(self, *arguments: Any, **options: Any) -> Any:
        return self.unpacked()._seen(*arguments, **options)


def _checked_for(given: Tensor, target: PackedTensor, what: str) -> Tensor:
    """A tensor that is to be written, if its kind lets it.

    Raises: DTypeError: it is of another kind, or of integers that may not fit.
    """
    check_same_kind(dtypes.value_dtype(given.dtype), target._type.dtype, what)
    if given.dtype.is_integer and not given.dtype.is_packed:
        raise DTypeError(
            f"{what}: the integers may not fit",
            got=f"{given.dtype.name} into {target.dtype.name}",
            try_=f"cast them: value.cast(dtypes.{target.dtype.name})",
        )
    return given


def made(bits: Tensor, dtype: DType, shape: Sequence[int]) -> PackedTensor:
    """The tensor of a packed dtype whose bytes are `bits`, as `packed.packed_shape` lays them."""
    found = PackedTensor.__new__(PackedTensor)
    _see(found, bits, dtype, shape)
    return found


def become_packed(target: Tensor, values: Tensor, dtype: DType) -> None:
    """Turn a tensor that is being made into one of a packed dtype with these values."""
    target.__class__ = PackedTensor
    found = packed_as(values, dtype)
    target._set(found._storage, found._chain, found._type, found._bindings)
    target._packed = found._packed


def packed_as(values: Tensor, dtype: DType) -> PackedTensor:
    """Values in a packed dtype; the gradient of a float passes as that of a cast."""
    found = made(packed.pack(values.detach(), dtype), dtype, values._sizes())
    if dtype.is_float and values.dtype.is_float:
        own = values.dtype
        through = found.unpacked()._with_gradient(lambda _, g: (g.cast(own),), values)
        found._set(through._storage, through._chain, through._type, through._bindings)
    return found


def _see(target: PackedTensor, bits: Tensor, dtype: DType, shape: Sequence[int]) -> None:
    """Make `target` show `bits`."""
    value = packed.unpack(bits, dtype, tuple(shape))
    target._set(value._storage, value._chain, value._type, value._bindings)
    target._packed = (bits, dtype)


#: Methods whose result keeps the dtype; those of one operand or more of the same dtype.
_MOVEMENT: Final = frozenset((
    "__iter__", "as_strided", "broadcast_to", "chunk", "diag", "diagonal", "expand", "expand_as",
    "flatten", "flip", "gather", "index_copy", "index_fill", "index_put", "index_select",
    "masked_fill", "masked_scatter", "masked_select", "movedim", "narrow", "pad", "ravel", "repeat",
    "repeat_interleave", "reshape_as", "roll", "rot90", "scatter", "select", "select_scatter",
    "shrink", "slice_scatter", "sort", "split", "squeeze", "swapaxes", "t", "take",
    "take_along_dim", "tile", "transpose", "tril", "triu", "unbind", "unflatten", "unfold",
    "unsqueeze", "view", "view_as",
))  # fmt: skip
_SPECIAL: Final = frozenset((
    "__getitem__", "__iter__", "__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__",
    "__truediv__", "__rtruediv__", "__floordiv__", "__rfloordiv__", "__mod__", "__rmod__",
    "__pow__", "__rpow__", "__matmul__", "__rmatmul__", "__and__", "__or__", "__xor__",
    "__invert__", "__lshift__", "__rshift__", "__neg__", "__lt__", "__le__", "__gt__", "__ge__",
    "__eq__", "__ne__", "__contains__",
))  # fmt: skip
_KEPT: Final = frozenset((
    "cat", "dim", "element_size", "item", "max_numel", "numel", "numpy", "realize",
    "requires_grad_", "size", "stack", "tolist", "type", "data",
))  # fmt: skip


def _again(found: Any, dtype: DType) -> Any:
    if isinstance(found, Tensor):
        # Positions, as of `sort`, stay what they are.
        return found.cast(dtype) if found.dtype is dtypes.value_dtype(dtype) else found
    items = [_again(each, dtype) for each in found]
    return getattr(type(found), "_make", type(found))(items)  # named tuples take them apart


def _moved(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def method(self: PackedTensor, *arguments: Any, **options: Any) -> Any:
        dtype = self.dtype
        found = plain(self.unpacked(), *arguments, **options)
        return iter(_again(list(found), dtype)) if name == "__iter__" else _again(found, dtype)

    return method


def _computed(plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def method(self: PackedTensor, *arguments: Any, **options: Any) -> Any:
        return plain(self.unpacked(), *arguments, **options)

    return method


def _fill() -> None:
    """Give `PackedTensor` all methods of `Tensor`, computed from its values."""
    own = vars(PackedTensor)
    for name in dir(Tensor):
        is_wanted = name in _SPECIAL if name.startswith("_") else name not in _KEPT
        if not is_wanted or name in own:
            continue
        plain = inspect.getattr_static(Tensor, name)
        if not inspect.isfunction(plain):
            continue
        method = _moved(name, plain) if name in _MOVEMENT else _computed(plain)
        setattr(PackedTensor, name, told(method))


_fill()
