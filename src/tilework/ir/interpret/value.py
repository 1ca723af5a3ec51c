"""Values of the interpreter: a shape, a dtype, and the elements in row-major order."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from tilework.base.errors import ShapeError
from tilework.base.records import dataclass
from tilework.dtypes import DType, decode, encode, index
from tilework.ir.interpret import floats

if TYPE_CHECKING:
    from tilework.ir.interpret.scalars import Scalar


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """An array: `elements` holds Python bools, ints or floats that `dtype` can hold exactly."""

    shape: tuple[int, ...]
    dtype: DType
    elements: list[Any]

    def __post_init__(self) -> None:
        if prod(self.shape) != len(self.elements):
            raise ShapeError(
                "value: the shape does not fit the elements",
                got=f"shape {self.shape}, {len(self.elements)} elements",
            )

    def item(self) -> Scalar:
        """The only element."""
        (element,) = self.elements
        result: Scalar = element
        return result

    def to_list(self) -> Any:
        """The elements as nested lists; a scalar by itself."""
        nested: list[Any] = self.elements
        for axis in range(len(self.shape) - 1, 0, -1):
            size = self.shape[axis]
            count = prod(self.shape[:axis])
            nested = [nested[at * size : (at + 1) * size] for at in range(count)]
        return nested if self.shape else nested[0]

    def bits(self) -> list[int]:
        """The bit pattern of each element, in row-major order."""
        if self.dtype.is_float:
            return [floats.to_bits(element, self.dtype) for element in self.elements]
        return [encode(element, self.dtype) for element in self.elements]

    @staticmethod
    def scalar(element: Scalar, dtype: DType = index) -> Value:
        """One number, rounded or wrapped to `dtype`."""
        return Value((), dtype, [decode(encode(element, dtype), dtype)])

    @staticmethod
    def from_list(nested: Any, dtype: DType) -> Value:
        """Nested lists of numbers as a value; numbers are rounded or wrapped to `dtype`."""
        shape: list[int] = []
        level = nested
        while isinstance(level, list | tuple):
            shape.append(len(level))
            level = level[0] if level else None
        flat: list[Any] = [nested]
        for size in shape:
            if any(len(part) != size for part in flat):
                raise ShapeError("value: the nested lists are ragged", got=f"{nested!r:.80}")
            flat = [element for part in flat for element in part]
        return Value(tuple(shape), dtype, [decode(encode(x, dtype), dtype) for x in flat])


def strides_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Distance in elements between neighbours along each axis, row-major."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))
