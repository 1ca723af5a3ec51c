"""Memory of the host for the CPU device, kept for reuse after it is freed.

Fresh pages cost more than most kernels that fill them, so freed blocks wait in a pool, by size
class, until the pool's bound in bytes makes the oldest go.  Blocks of 2 MiB and more are aligned
to huge pages and ask for them.

Sizes are rounded up to a class: eight steps in each power of two, so at most an eighth is lost.
Every block starts on a cache line, one of at least a page on a page.
"""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from functools import lru_cache
from typing import Final

from tilework.base import faults
from tilework.base.errors import InternalError, OutOfMemoryError
from tilework.base.forks import new_lock
from tilework.base.ledger import LEDGER, Kind, Ledger
from tilework.base.records import dataclass
from tilework.base.text import format_bytes
from tilework.runtime.hostos import HostOs, host_os

ALIGNMENT_BYTES: Final = 64
HUGE_PAGE_BYTES: Final = 2 << 20
MAPPED_BYTES: Final = 64 << 10  # from here on a block has pages of its own
DEFAULT_KEPT_BYTES: Final = 1 << 30
POISON: Final = 0xFF  # NaN in every float format, -1 in every integer


@dataclass(frozen=True, slots=True)
class BufferSpec:
    """What kind of memory is asked for; freed blocks are reused only for an equal spec.

    The host has one kind, so the CPU takes every spec as plain memory, yet does not mix them.
    """

    uncached: bool = False
    host: bool = False  # memory of the host that a device reads, on devices with their own
    cpu_access: bool = False


PLAIN: Final = BufferSpec()


_Class = int | tuple[int, BufferSpec]  # capacity in bytes, and the kind of memory unless plain


class Block:
    """Memory that an allocator handed out; it must come back to it exactly once."""

    __slots__ = ("address", "capacity_bytes", "kind", "size_bytes")

    def __init__(self, address: int, size_bytes: int, capacity_bytes: int, kind: _Class) -> None:
        self.address = address
        self.size_bytes = size_bytes
        self.capacity_bytes = capacity_bytes
        self.kind = kind

    def __repr__(self) -> str:
        """Address and sizes."""
        return f"Block({self.address:#x}, {self.size_bytes} of {self.capacity_bytes} bytes)"


@lru_cache(maxsize=1024)
def size_class(size_bytes: int) -> int:
    """Return the bytes that a block for `size_bytes` really has.

    Example:
        >>> size_class(1), size_class(65), size_class(1000), size_class(1 << 20)
        (64, 128, 1024, 1048576)
    """
    if size_bytes <= ALIGNMENT_BYTES:
        return ALIGNMENT_BYTES
    shift = max((size_bytes - 1).bit_length() - 4, 6)
    if size_bytes >= MAPPED_BYTES:
        shift = max(shift, 12)
    return -(-size_bytes >> shift) << shift


class HostAllocator:
    """Hands out host memory.  Thread-safe.

    `used_bytes` is what is handed out, `kept_bytes` what waits for reuse; both count classes.
    """

    def __init__(
        self,
        *,
        device: str = "CPU",
        limit_bytes: int = 0,
        kept_limit_bytes: int = DEFAULT_KEPT_BYTES,
        poison: bool = False,
        host: HostOs | None = None,
        ledger: Ledger = LEDGER,
    ) -> None:
        """Make an empty allocator.

        Args:
            device: whose memory it is, for messages and the ledger.
            limit_bytes: what may be handed out at once; 0 is no limit.
            kept_limit_bytes: what may wait for reuse.
            poison: fill blocks with `POISON`, so that a read before the first write shows, and one
                after the block was freed.
            host: the operating system; tests pass a fake one.
            ledger: where blocks are counted.
        """
        self.device = device
        self.limit_bytes = limit_bytes
        self.kept_limit_bytes = kept_limit_bytes
        self.poison = poison
        self._host = host or host_os()
        self._ledger = ledger
        self._lock = new_lock()
        self._used_bytes = 0
        self._kept_bytes = 0
        self._peak_bytes = 0
        self._live: dict[int, Block] = {}  # by address: what is handed out
        self._free: dict[_Class, list[int]] = {}  # addresses, the last freed last
        self._kept: OrderedDict[int, _Class] = OrderedDict()  # by address, oldest first

    @property
    def used_bytes(self) -> int:
        """Bytes handed out now."""
        return self._used_bytes

    @property
    def kept_bytes(self) -> int:
        """Bytes that wait for reuse."""
        return self._kept_bytes

    @property
    def peak_bytes(self) -> int:
        """The most that was handed out at once."""
        return self._peak_bytes

    def restart_peak(self) -> None:
        """Count the peak from what is handed out now."""
        with self._lock:
            self._peak_bytes = self._used_bytes

    def allocate(self, size_bytes: int, *, zero: bool = False, spec: BufferSpec = PLAIN) -> Block:
        """Return a block of at least `size_bytes`, aligned to 64 bytes.

        Args:
            size_bytes: may be 0.
            zero: whether it must be filled with zeros.
            spec: the kind of memory; all kinds are the same on the host.

        Raises: OutOfMemoryError, with the pool's name, over the limit or when the system has none.
        """
        capacity = size_class(size_bytes)
        kind: _Class = capacity if spec is PLAIN else (capacity, spec)
        with self._lock:
            waiting = self._free.get(kind)
            is_fresh = not waiting
            if waiting:
                address = waiting.pop()
                del self._kept[address]
                self._kept_bytes -= capacity
            else:
                address = self._acquire(capacity, size_bytes)
            block = self._live[address] = Block(address, size_bytes, capacity, kind)
            self._used_bytes += capacity
            if self._used_bytes > self._peak_bytes:
                self._peak_bytes = self._used_bytes
            if is_fresh:
                self._ledger.take(self.device, Kind.PAGES)
        if zero:
            if not is_fresh or capacity < MAPPED_BYTES:  # new pages are zero already
                ctypes.memset(address, 0, capacity)
        elif self.poison:
            ctypes.memset(address, POISON, capacity)
        return block

    def free(self, block: Block) -> None:
        """Take a block back; the device must be done with it.

        Raises: InternalError when the block is not handed out.
        """
        with self._lock:
            if self.poison and self._live.get(block.address) is block:
                ctypes.memset(block.address, POISON, block.capacity_bytes)
            self._take_back(block)

    def trim(self, keep_bytes: int = 0) -> None:
        """Give blocks back to the system until at most `keep_bytes` wait for reuse."""
        with self._lock:
            self._trim(keep_bytes)

    def close(self) -> None:
        """Release what waits for reuse; blocks that are still handed out stay valid."""
        self.trim()
        self.kept_limit_bytes = 0

    def _take_back(self, block: Block) -> None:
        address, capacity = block.address, block.capacity_bytes
        if self._live.get(address) is not block:
            raise InternalError(f"{self.device}: a block was freed twice", got=repr(block))
        del self._live[address]
        kind = block.kind
        self._used_bytes -= capacity
        self._kept[address] = kind
        waiting = self._free.get(kind)
        if waiting is None:
            waiting = self._free[kind] = []
        waiting.append(address)
        self._kept_bytes += capacity
        if self._kept_bytes > self.kept_limit_bytes:
            self._trim(self.kept_limit_bytes)

    def _trim(self, keep_bytes: int) -> None:
        while self._kept_bytes > keep_bytes:
            address, kind = self._kept.popitem(last=False)
            self._free[kind].remove(address)
            capacity = kind if isinstance(kind, int) else kind[0]
            self._kept_bytes -= capacity
            self._release(address, capacity)

    def _acquire(self, capacity: int, size_bytes: int) -> int:
        """Get memory from the system; what waits for reuse makes room for it."""
        if self.limit_bytes and self._used_bytes + capacity > self.limit_bytes:
            raise OutOfMemoryError(
                f"{self.device}: the memory limit is reached",
                pool=self.device,
                got=f"{format_bytes(size_bytes)} more, {format_bytes(self._used_bytes)} in use",
                expected=f"at most {format_bytes(self.limit_bytes)}",
                try_="free tensors, or raise the setting memory_limit",
            )
        if self.limit_bytes:
            self._trim(max(self.limit_bytes - self._used_bytes - capacity, 0))
        faults.hit("allocator.acquire")
        try:
            return self._from_system(capacity)
        except OutOfMemoryError:
            if not self._kept:
                raise
            self._trim(0)
            return self._from_system(capacity)

    def _from_system(self, capacity: int) -> int:
        if capacity < MAPPED_BYTES:
            return self._host.allocate_small(capacity, ALIGNMENT_BYTES)
        if capacity < HUGE_PAGE_BYTES:
            return self._host.map_pages(capacity)
        # Huge pages need an aligned start: map more, and give the edges back.
        start = self._host.map_pages(capacity + HUGE_PAGE_BYTES)
        before = -start % HUGE_PAGE_BYTES
        address = start + before
        if before:
            self._host.unmap_pages(start, before)
        if after := HUGE_PAGE_BYTES - before:
            self._host.unmap_pages(address + capacity, after)
        self._host.advise_huge_pages(address, capacity)
        return address

    def _release(self, address: int, capacity: int) -> None:
        if capacity < MAPPED_BYTES:
            self._host.free_small(address)
        else:
            self._host.unmap_pages(address, capacity)
        self._ledger.give_back(self.device, Kind.PAGES)
