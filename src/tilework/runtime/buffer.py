"""Buffers: who owns a piece of memory, and who looks at a part of it.

A `Buffer` is a range of one `Memory`.  Buffers and views share the `Memory` by reference, so it
lives as long as the last of them and no longer; views never copy and always refer to the root.
The release order is views, mappings into other devices, memory.  `close` gives up one buffer's
share at a definite point; the collector does it for those that nobody closes.
"""

from __future__ import annotations

import ctypes
import math
import sys
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from tilework.base.errors import BoundsError, StaleHandleError
from tilework.runtime import reclaim
from tilework.runtime.allocator import PLAIN, Block, BufferSpec
from tilework.runtime.lease import Lease

Mapping = tuple[int, Callable[[], object]]
"""An address on another device, and what undoes the mapping."""


class MemorySource(Protocol):
    """Where memory comes from: the allocator of a device."""

    device: str

    def allocate(self, size_bytes: int, *, zero: bool = False, spec: BufferSpec = PLAIN) -> Block:
        """Return a block.  Raises: OutOfMemoryError."""
        ...

    def free(self, block: Block) -> None:
        """Take a block back."""
        ...


class _Watch(weakref.ref["Memory"]):
    """Notices that a `Memory` is gone; holds what is needed to release it, and nothing of it."""

    __slots__ = ("undos",)

    undos: list[Callable[[], object]]


_watches: dict[int, _Watch] = {}  # weak references must outlive what they watch


def _memory_died(
    watch: weakref.ref[Memory], is_finalizing: Callable[[], bool] = sys.is_finalizing
) -> None:
    if is_finalizing():
        return  # the process ends and gives all back; names of modules are None already
    found = _watches.pop(id(watch), None)
    if found is not None:
        # In the order of release: the last mapping first, the base last.
        for undo in reversed(found.undos):
            reclaim.later(undo)


class Memory:
    """An address range with one owner; made by `allocate_buffer` and `lease_buffer`."""

    __slots__ = (
        "__weakref__", "_addresses", "_watch", "address", "changes", "device", "home",
        "is_readonly", "lease",
    )  # fmt: skip

    def __init__(
        self, device: str, address: int, release: Callable[[], object], lease: Lease | None
    ) -> None:
        self.device = device
        self.address = address
        self.lease = lease
        #: What stands for the driver that made it, where memory goes with its driver.
        self.home: object = None
        self.is_readonly = lease is not None and lease.is_readonly
        #: How often it was written in place; what was derived from its contents compares this.
        self.changes: float = 0
        self._addresses: dict[str, int] = {}
        watch = _Watch(self, _memory_died)
        watch.undos = [release]
        self._watch = watch
        _watches[id(watch)] = watch

    def share(self) -> None:
        """Note that others may write to it whenever they like: it is never known to be unchanged.

        From now on `changes` is NaN, which equals nothing, itself included.
        """
        self.changes = math.nan

    def address_on(self, device: str, map_memory: Callable[[Memory], Mapping]) -> int:
        """Return the address at which another device sees this memory; mapped on first use.

        Args:
            device: the other device.
            map_memory: maps the memory there, and says how to undo it.
        """
        if device == self.device:
            return self.address
        known = self._addresses.get(device)
        if known is None:
            known, undo = map_memory(self)
            self._addresses[device] = known
            self._watch.undos.append(undo)
        return known


class Buffer:
    """A range of bytes on a device.

    `base` is the root buffer, or None for a root; `offset_bytes` counts from the root.
    """

    __slots__ = ("__weakref__", "_memory", "base", "device", "offset_bytes", "size_bytes")

    def __init__(
        self, memory: Memory, size_bytes: int, offset_bytes: int = 0, base: Buffer | None = None
    ) -> None:
        self._memory: Memory | None = memory
        self.device = memory.device
        self.size_bytes = size_bytes
        self.offset_bytes = offset_bytes
        self.base = base

    @property
    def memory(self) -> Memory:
        """The memory below.  Raises: StaleHandleError after `close`."""
        if self._memory is None:
            raise StaleHandleError("buffer: it was closed", got=repr(self))
        return self._memory

    @property
    def address(self) -> int:
        """The address of the first byte, as the device's kernels see it."""
        memory = self._memory
        if memory is None:
            raise StaleHandleError("buffer: it was closed", got=repr(self))
        return memory.address + self.offset_bytes

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called on this very buffer."""
        return self._memory is None

    @property
    def lease(self) -> Lease | None:
        """The loan that the memory is from, None for memory of the device's own."""
        return self.memory.lease

    def view(self, offset_bytes: int, size_bytes: int) -> Buffer:
        """Return a buffer for a part of this one; its base is the root.

        Raises: BoundsError when the part is not inside.
        """
        if offset_bytes < 0 or size_bytes < 0 or offset_bytes + size_bytes > self.size_bytes:
            raise BoundsError(
                "buffer: the view reaches outside",
                got=f"bytes {offset_bytes} to {offset_bytes + size_bytes}",
                expected=f"inside 0 to {self.size_bytes}",
            )
        return Buffer(self.memory, size_bytes, self.offset_bytes + offset_bytes, self.base or self)

    def overlaps(self, other: Buffer) -> bool:
        """Whether the two share a byte."""
        if self.memory is not other.memory or not self.size_bytes or not other.size_bytes:
            return False
        return (
            self.offset_bytes < other.offset_bytes + other.size_bytes
            and other.offset_bytes < self.offset_bytes + self.size_bytes
        )

    def as_memoryview(self) -> memoryview:
        """Return the bytes themselves, no copy, for memory that the host can address.

        The view keeps the memory alive, after `close` too.  Work that a device still does in it is
        the caller's to wait for.
        """
        memory = self.memory
        array_type: Any = ctypes.c_ubyte * self.size_bytes
        array = array_type.from_address(memory.address + self.offset_bytes)
        array.owner = memory
        view = memoryview(array).cast("B")
        return view.toreadonly() if memory.is_readonly else view

    def close(self) -> None:
        """Give up this buffer's share; the memory is freed with the last one."""
        self._memory = None
        self.base = None
        reclaim.run()

    def __repr__(self) -> str:
        """Device, size and place."""
        state = "closed" if self._memory is None else f"{self._memory.address:#x}"
        return f"Buffer({self.device}, {self.size_bytes} bytes at {state}+{self.offset_bytes})"


def allocate_buffer(
    source: MemorySource, size_bytes: int, *, zero: bool = False, spec: BufferSpec = PLAIN
) -> Buffer:
    """Return a root buffer with memory of its own.

    Raises: OutOfMemoryError.
    """
    if reclaim.waiting:
        reclaim.run()
    block = source.allocate(size_bytes, zero=zero, spec=spec)
    memory = Memory(source.device, block.address, partial(source.free, block), None)
    return Buffer(memory, size_bytes)


def lease_buffer(device: str, lease: Lease) -> Buffer:
    """Return a root buffer over memory on loan; the loan ends with the last buffer over it.

    Raises: StaleHandleError when the loan has ended.
    """
    reclaim.run()
    if lease.is_released:
        raise StaleHandleError("buffer: the lease has ended", got=lease.owner)
    return Buffer(Memory(device, lease.address, lease.release, lease), lease.size_bytes)
