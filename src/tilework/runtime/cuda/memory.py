"""Memory of an NVIDIA GPU, kept for reuse after it is freed.

All work of a device is in one queue, so a block that was freed may be handed out again at once:
what is queued later runs later.  Only what goes back to the driver must wait for the queue.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Final

from tilework.base import faults
from tilework.base.errors import InternalError, OutOfMemoryError
from tilework.base.forks import new_lock
from tilework.base.ledger import Kind, Ledger
from tilework.base.text import format_bytes
from tilework.runtime.allocator import PLAIN, Block, BufferSpec
from tilework.runtime.bus.cuda import CONTEXT_GONE, OUT_OF_MEMORY, CudaCallError, CudaLibrary

_SMALL_BYTES: Final = 256
_LARGE_BYTES: Final = 2 << 20


def block_bytes(size_bytes: int) -> int:
    """Return the bytes that a block for `size_bytes` really has: eight steps in a power of two.

    Example:
        >>> block_bytes(1), block_bytes(300), block_bytes(3 << 20)
        (256, 512, 4194304)
    """
    if size_bytes <= _SMALL_BYTES:
        return _SMALL_BYTES
    if size_bytes >= _LARGE_BYTES:
        return -(-size_bytes // _LARGE_BYTES) * _LARGE_BYTES
    shift = max((size_bytes - 1).bit_length() - 4, 8)
    return -(-size_bytes >> shift) << shift


class CudaMemory:
    """Hands out memory of one card.  Thread-safe.

    Args:
        device: whose memory it is, for messages and the ledger.
        library: the door to the driver.
        prepare: makes the card's context current in this thread.
        drain: waits for all queued work, before memory goes back to the driver.
        limit_bytes: what may be handed out at once; 0 is no limit.
        ledger: where blocks are counted.
    """

    def __init__(
        self,
        device: str,
        library: CudaLibrary,
        prepare: Callable[[], None],
        drain: Callable[[], None],
        limit_bytes: int,
        ledger: Ledger,
    ) -> None:
        self.device = device
        self._library = library
        self._prepare = prepare
        self._drain = drain
        self._limit_bytes = limit_bytes
        self._ledger = ledger
        self._lock = new_lock()
        self._live: dict[int, Block] = {}
        self._free: dict[tuple[int, BufferSpec], list[int]] = {}
        self.used_bytes = 0
        self.kept_bytes = 0
        self.peak_bytes = 0
        self._is_closed = False

    def allocate(self, size_bytes: int, *, zero: bool = False, spec: BufferSpec = PLAIN) -> Block:
        """Return a block; with `spec.host` pinned memory of the host.  Raises: OutOfMemoryError."""
        capacity = block_bytes(size_bytes)
        with self._lock:
            self._check_limit(size_bytes, capacity)
            waiting = self._free.get((capacity, spec))
            if waiting:
                address = waiting.pop()
                self.kept_bytes -= capacity
            else:
                address = self._acquire(size_bytes, capacity, spec)
            block = Block(address, size_bytes, capacity, (capacity, spec))
            self._live[address] = block
            self.used_bytes += capacity
            self.peak_bytes = max(self.peak_bytes, self.used_bytes)
        return block

    def restart_peak(self) -> None:
        """Count the peak from what is handed out now."""
        with self._lock:
            self.peak_bytes = self.used_bytes

    def free(self, block: Block) -> None:
        """Take a block back.  Raises: InternalError when it is not handed out."""
        with self._lock:
            if self._live.pop(block.address, None) is not block:
                raise InternalError(f"{self.device}: a block was freed twice", got=repr(block))
            self.used_bytes -= block.capacity_bytes
            kind = block.kind
            if not isinstance(kind, tuple):
                raise InternalError(f"{self.device}: a block of another pool", got=repr(block))
            if self._is_closed:
                self._release(block.address, kind[1])
                return
            self._free.setdefault(kind, []).append(block.address)
            self.kept_bytes += block.capacity_bytes

    def kept_count(self) -> int:
        """How many blocks wait for reuse."""
        with self._lock:
            return sum(map(len, self._free.values()))

    def trim(self) -> None:
        """Give everything that waits for reuse back to the driver."""
        with self._lock:
            self._trim()

    def close(self) -> None:
        """Give back what waits; what is still handed out goes back when it is freed."""
        with self._lock:
            self._is_closed = True
            self._trim()

    def abandon(self) -> None:
        """Forget all memory: the context that it was in is gone."""
        with self._lock:
            count = len(self._live) + sum(map(len, self._free.values()))
            self._ledger.give_back(self.device, Kind.PAGES, count)
            self._live.clear()
            self._free.clear()
            self.used_bytes = self.kept_bytes = 0
            self._is_closed = True

    def _check_limit(self, size_bytes: int, capacity: int) -> None:
        if self._limit_bytes and self.used_bytes + capacity > self._limit_bytes:
            raise OutOfMemoryError(
                f"{self.device}: the memory limit is reached",
                pool=self.device,
                got=f"{format_bytes(size_bytes)} more, {format_bytes(self.used_bytes)} in use",
                expected=f"at most {format_bytes(self._limit_bytes)}",
                try_="free tensors, or raise the setting memory_limit",
            )

    def _acquire(self, size_bytes: int, capacity: int, spec: BufferSpec) -> int:
        faults.hit("cuda.memory.acquire")
        self._prepare()
        make = self._library.host_allocate if spec.host else self._library.memory_allocate
        try:
            address = make(capacity)
        except CudaCallError as error:
            if error.code != OUT_OF_MEMORY:
                raise
            self._trim()
            try:
                address = make(capacity)
            except CudaCallError as again:
                if again.code != OUT_OF_MEMORY:
                    raise
                free, total = self._library.memory_info()
                raise OutOfMemoryError(
                    f"{self.device}: the card has no room",
                    pool=self.device,
                    got=f"{format_bytes(size_bytes)} more, {format_bytes(self.used_bytes)} in use"
                    f" here, {format_bytes(free)} of {format_bytes(total)} free on the card",
                    try_="free tensors, or use smaller batches",
                ) from again
        self._ledger.take(self.device, Kind.PAGES)
        return address

    def _trim(self) -> None:
        if not self.kept_bytes:
            return
        self._prepare()
        self._drain()
        for (_, spec), addresses in self._free.items():
            for address in addresses:
                self._release(address, spec)
        self._free.clear()
        self.kept_bytes = 0

    def _release(self, address: int, spec: BufferSpec) -> None:
        give = self._library.host_free if spec.host else self._library.memory_free
        try:
            self._prepare()
            give(address)
        except CudaCallError as error:
            if error.code not in CONTEXT_GONE or not self._is_closed:
                raise  # else the memory went with the context when the device was closed
        self._ledger.give_back(self.device, Kind.PAGES)


def as_bytes_address(view: memoryview) -> tuple[int, object]:
    """The address of contiguous bytes of the host, and what keeps it valid.

    Memory that may only be read is copied first, since Python gives no address of it.
    """
    flat = view.cast("B") if view.nbytes else memoryview(b"")
    if not flat.nbytes:
        return 0, None
    if flat.readonly:
        copied = ctypes.create_string_buffer(flat.tobytes(), flat.nbytes)
        return ctypes.addressof(copied), copied
    kind = ctypes.c_ubyte * flat.nbytes
    array = kind.from_buffer(flat)
    return ctypes.addressof(array), array
