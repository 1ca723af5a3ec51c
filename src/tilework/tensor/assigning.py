"""Writing whole tensors in place: `assign`, `replace` and `x += y`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from tilework.base.errors import ShapeError, UserError
from tilework.tensor import observe
from tilework.tensor.core import TensorBase
from tilework.tensor.joining import Joining
from tilework.tensor.promotion import Number, check_fits, check_same_kind
from tilework.tensor.variable import format_shape

if TYPE_CHECKING:
    from tilework.ir.types import Dim


class Assigning(Joining):
    """`assign`, `replace` and the operators that write."""

    __slots__ = ()

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
