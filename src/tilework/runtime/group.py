"""A buffer over several devices: one buffer on each, which are made, written and lost together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tilework.base.errors import InternalError
from tilework.runtime.buffer import Buffer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.runtime.buffer import Memory

#: Between the names of the devices of a group.
SEPARATOR: Final = ","


def join_names(names: Sequence[str]) -> str:
    """The name of a group of devices; of one device its own."""
    return SEPARATOR.join(names)


def split_name(name: str) -> tuple[str, ...]:
    """The devices of a group by its name; a device alone is a group of one."""
    return tuple(name.split(SEPARATOR))


def is_group(name: str) -> bool:
    """Whether this is the name of several devices."""
    return SEPARATOR in name


class GroupMemory:
    """What the memories of a group are together."""

    __slots__ = ("__weakref__", "memories")

    lease: Final = None

    def __init__(self, memories: Sequence[Memory]) -> None:
        self.memories = tuple(memories)

    @property
    def is_readonly(self) -> bool:
        """Whether some device must not write to its part."""
        return any(memory.is_readonly for memory in self.memories)


class BufferGroup(Buffer):
    """One buffer on each of several devices.

    It stands where a value is held; whoever runs kernels takes `parts_of`.
    """

    __slots__ = ("parts",)

    def __init__(self, parts: Sequence[Buffer]) -> None:
        self.parts = tuple(parts)
        together: Any = GroupMemory([part.memory for part in self.parts])
        self._memory = together
        self.device = join_names([part.device for part in self.parts])
        self.size_bytes = sum(part.size_bytes for part in self.parts)
        self.offset_bytes = 0
        self.base = None

    @property
    def address(self) -> int:
        """Raises: InternalError, since there are several."""
        raise InternalError("buffer: a group of devices has no one address", got=self.device)

    def __repr__(self) -> str:
        """The parts."""
        return f"BufferGroup({', '.join(map(repr, self.parts))})"


def parts_of(buffer: Buffer) -> tuple[Buffer, ...]:
    """The buffers on single devices that a buffer is made of."""
    return buffer.parts if isinstance(buffer, BufferGroup) else (buffer,)
