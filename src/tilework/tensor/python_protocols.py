"""What Python's built-in functions and statements do with tensors.

names[scores.argmax()]    # an integer of one element is an index
len(rows), list(rows)     # a tensor with axes is a sequence of its rows
divmod(seconds, 60)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from tilework.base.errors import DTypeError, ScalarError, ShapeError
from tilework.tensor.core import TensorBase
from tilework.tensor.differentiation import Differentiation
from tilework.tensor.variable import format_shape

if TYPE_CHECKING:
    from collections.abc import Iterator


class PythonProtocols(Differentiation):
    """`float`, `int`, `bool`, `len`, `iter`, `in`, `format`, `round`, `divmod`, `del`, an index."""

    __slots__ = ()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        if not (self.dtype.is_integer or self.dtype.is_bool) or self._count() != 1:
            raise DTypeError(
                "index: only an integer tensor of one element stands for a Python integer",
                got=f"{self.dtype.name} of shape {format_shape(self._dims)}",
                try_="int(x) for its whole part, .tolist() for a list of several",
            )
        return int(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __bool__(self) -> bool:
        if self._count() != 1:
            raise ShapeError(
                "bool: a tensor of several elements is neither true nor false",
                got=f"shape {format_shape(self._dims)}",
                try_=".any() or .all()",
            )
        return bool(self.item())

    def __len__(self) -> int:
        if not self.ndim:
            raise ScalarError("len: a scalar has no length", try_=".numel()")
        return self._sizes()[0]

    def __iter__(self) -> Iterator[Self]:
        if not self.ndim:
            raise ScalarError("iter: a scalar can't be iterated over", try_=".item()")
        return iter([self[position] for position in range(self._fixed_size(0, "iter"))])

    def __contains__(self, value: object) -> bool:
        found: Any = self == value
        return isinstance(found, TensorBase) and bool(found.any().item())  # type: ignore[attr-defined]

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec else repr(self)

    def __round__(self, ndigits: int | None = None) -> Self:
        return self.round(ndigits or 0)

    def __divmod__(self, other: Any) -> tuple[Self, Self]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Self, Self]:
        return other // self, other % self

    def __delitem__(self, index: object) -> None:
        raise DTypeError(
            "del: elements of a tensor can't be deleted",
            try_="take the ones to keep: x[mask], or cat of two slices",
        )


__all__ = ["PythonProtocols"]
