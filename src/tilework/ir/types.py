"""The type of a node: shape, dtype and, for addresses, the memory pointed into."""

from __future__ import annotations

import sys
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Union

from tilework.base.errors import ShapeError
from tilework.base.forks import new_outer_lock

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

    def __repr__(self) -> str:
        dims = ",".join(str(size) for size in self.shape)
        memory = f"@{self.memory.value}" if self.memory else ""
        return f"{self.dtype.name}[{dims}]{memory}"


class TypeTable:
    """The table that makes equal types one object.  Thread-safe; see `ir.node.InternTable`.

    `epoch` is odd while types are dropped, and tells `make` that this ran meanwhile: it then asks
    again under the lock, so that no type is handed out that the table has just forgotten.
    """

    def __init__(self) -> None:
        self.types: dict[tuple[Shape, DType, Memory | None], Type] = {}
        self.lock = new_outer_lock(5)
        self.epoch = 0

    def make(self, shape: Shape, dtype: DType, memory: Memory | None = None) -> Type:
        """The one `Type` with these fields.

        Raises:
            ShapeError: there are more bytes than 63 bits count; offsets would wrap.
        """
        epoch = self.epoch
        key = (shape, dtype, memory)
        found = self.types.get(key)
        if found is None:
            if shape:
                _check_size(shape, dtype)
            found = self.types.setdefault(key, Type(shape, dtype, memory))
        if epoch != self.epoch or epoch & 1:
            with self.lock:
                return self.types.setdefault(key, found)
        return found

    def drop_unused(self) -> int:
        """Forget the types that only this table holds; returns how many."""
        dropped = 0
        with self.lock:
            self.epoch += 1
            try:
                for key in list(self.types):
                    if _references(self.types, key) == _UNUSED:
                        del self.types[key]
                        dropped += 1
            finally:
                self.epoch += 1
        return dropped


def _check_size(shape: Shape, dtype: DType) -> None:
    size = dtype.itemsize or 1
    for extent in shape:
        if type(extent) is int and extent:
            size *= extent
    if size > _MOST_BYTES:
        raise ShapeError(
            "shape: there are more bytes than 63 bits count",
            got=f"{dtype.name}[{', '.join([str(extent) for extent in shape])}]",
            expected="fewer than 2**63 bytes",
        )


def _references(types: dict[tuple[Shape, DType, Memory | None], Type], key: Any) -> int:
    """How many references to a type there are while it is looked at."""
    kind = types[key]
    return sys.getrefcount(kind)


def _count_unused() -> int:
    """What `_references` counts where a table alone holds a type: compiled code counts less."""
    key: Any = ()
    return _references({key: Type((), key, None)}, key)


_MOST_BYTES: Final = 2**63 - 1
_UNUSED: Final = _count_unused()
#: The types of all nodes; each sweep of the nodes drops those that it freed.
TYPES: Final = TypeTable()
make_type: Final = TYPES.make
