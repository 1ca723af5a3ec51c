"""Memory that kernels load from and store to, with every access checked."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tilework.base.errors import BoundsError
from tilework.dtypes import DType, Kind, float32, float64
from tilework.ir.interpret import floats

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilework.ir.node import Node

Bytes = memoryview | bytearray | bytes

_SIGNED = {8: "b", 16: "h", 32: "i", 64: "q"}
_UNSIGNED = {8: "B", 16: "H", 32: "I", 64: "Q"}


def cell_format(dtype: DType) -> Any:
    """The memoryview format that one element of `dtype` is read and written by."""
    if dtype is float32:
        return "f"
    if dtype is float64:
        return "d"
    if dtype.kind is Kind.SIGNED:
        return _SIGNED[dtype.bits]
    return _UNSIGNED[dtype.itemsize * 8]


def codec(dtype: DType) -> tuple[Callable[[Any], Any] | None, Callable[[Any], Any] | None]:
    """What turns a cell into a scalar and back; None where they are the same."""
    if dtype.is_bool:
        return bool, int
    if dtype.is_float and dtype.bits < 32:
        return floats.small_values(dtype).__getitem__, partial(floats.to_bits, dtype=dtype)
    return None, None


class Cells:
    """Elements of one dtype at addresses 0 .. count - 1."""

    __slots__ = ("cells", "count", "decode", "encode", "name")

    def __init__(self, cells: Any, dtype: DType, name: str, *, is_raw: bool) -> None:
        self.cells = cells
        self.count = len(cells)
        self.name = name
        self.decode, self.encode = codec(dtype) if is_raw else (None, None)

    def load(self, at: int, node: Node) -> Any:
        """The element at `at`; `node` is who asks."""
        if not 0 <= at < self.count:
            raise self._outside(at, node)
        cell = self.cells[at]
        return cell if self.decode is None else self.decode(cell)

    def store(self, at: int, element: Any, node: Node) -> None:
        """Replace the element at `at`; `node` is who asks."""
        if not 0 <= at < self.count:
            raise self._outside(at, node)
        self.cells[at] = element if self.encode is None else self.encode(element)

    def append(self, element: Any) -> None:
        """Add an element at the end (of a STAGE)."""
        self.cells.append(element)
        self.count += 1

    def _outside(self, at: int, node: Node) -> BoundsError:
        return BoundsError(
            f"{node.op.name}: the address lies outside of {self.name}",
            got=f"element {at}, by {node!r}",
            expected=f"0 <= element < {self.count}",
        )


def cells_of_bytes(raw: Bytes, dtype: DType, count: int, name: str) -> Cells:
    """The first `count` elements of a buffer of bytes."""
    size = count * dtype.itemsize
    held = memoryview(raw).cast("B") if len(raw) else memoryview(b"")
    if len(held) < size:
        raise BoundsError(
            f"kernel: {name} is smaller than its shape",
            got=f"{len(held)} bytes",
            expected=f"{size} bytes",
        )
    if not count:
        return Cells([], dtype, name, is_raw=False)
    return Cells(held[:size].cast(cell_format(dtype)), dtype, name, is_raw=True)
