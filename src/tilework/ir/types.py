"""The type of a node: shape, dtype and, for addresses, the memory pointed into."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, Union

if TYPE_CHECKING:
    from tilework.dtypes import DType
    from tilework.ir.node import Node

#: One extent: a number, or an integer node over VARIABLEs whose bounds are known.
Dim = Union[int, "Node"]
Shape = tuple[Dim, ...]


class Memory(Enum):
    """Where a value lives.  A target says which of these it has, and how large and fast they are.

    GLOBAL is a buffer that other kernels see.  TILE is memory of one task: a thread's pack buffer
    in L2 on a CPU, shared memory on a GPU, LDS on AMD, VTCM on Hexagon, threadgroup memory on
    Apple GPUs.  REGISTER belongs to one lane or thread.
    """

    GLOBAL = "global"
    TILE = "tile"
    REGISTER = "register"


class Type:
    """Shape, dtype and memory of a node's value; interned, so equal types are one object.

    `shape` is () for the scalars of a kernel and (lanes,) for its vectors; `memory` is None for
    values and says where an address points for buffers and INDEX nodes.
    """

    __slots__ = ("dtype", "memory", "shape")

    def __init__(self, shape: Shape, dtype: DType, memory: Memory | None) -> None:
        self.shape: Final = shape
        self.dtype: Final = dtype
        self.memory: Final = memory

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def lanes(self) -> int:
        """Lanes of a kernel's vector; 0 for its scalars."""
        return self.shape[0] if self.shape and isinstance(self.shape[0], int) else 0

    def with_dtype(self, dtype: DType) -> Type:
        """This type with another dtype."""
        return make_type(self.shape, dtype, self.memory)

    def with_shape(self, shape: Shape) -> Type:
        """This type with another shape."""
        return make_type(shape, self.dtype, self.memory)

    def __repr__(self) -> str:
        dims = ",".join(str(size) for size in self.shape)
        memory = f"@{self.memory.value}" if self.memory else ""
        return f"{self.dtype.name}[{dims}]{memory}"


_TYPES: Final[dict[tuple[Shape, DType, Memory | None], Type]] = {}


def make_type(shape: Shape, dtype: DType, memory: Memory | None = None) -> Type:
    """The one `Type` with these fields."""
    key = (shape, dtype, memory)
    found = _TYPES.get(key)
    if found is None:
        found = _TYPES.setdefault(key, Type(shape, dtype, memory))
    return found


def clear_types() -> None:
    """Forget all interned types.  Only safe when no node is alive (used by the sweep's tests)."""
    _TYPES.clear()
