"""The operating system below the CPU runtime, behind one contract.

Everything that differs between operating systems stands in one implementation each
(`platform_linux`); the rest of the runtime asks `host_os()`.  Tests pass their own `HostOs` to
inject failures.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Protocol

from tilework.base.errors import UnsupportedError
from tilework.runtime.platform_linux import LinuxHost


class HostOs(Protocol):
    """Pages, symbols and processor facts of the running process."""

    name: str
    page_bytes: int

    def map_pages(self, size_bytes: int) -> int:
        """Return the address of new zeroed pages, readable and writable.

        Raises: OutOfMemoryError.
        """
        ...

    def make_executable(self, address: int, size_bytes: int) -> None:
        """Turn written pages into readable, executable ones that can't be written.

        Raises: MapError.
        """
        ...

    def unmap_pages(self, address: int, size_bytes: int) -> None:
        """Give pages back.  Raises: MapError."""
        ...

    def allocate_small(self, size_bytes: int, alignment_bytes: int) -> int:
        """Return the address of memory from the C library's heap, for less than some pages.

        Raises: OutOfMemoryError.
        """
        ...

    def free_small(self, address: int) -> None:
        """Give memory of `allocate_small` back."""
        ...

    def advise_huge_pages(self, address: int, size_bytes: int) -> None:
        """Ask for huge pages; a hint, so a refusal is not an error."""
        ...

    def symbol_address(self, name: str) -> int:
        """Return the address of a function of the C library; 0 when it has none."""
        ...

    def start_thread(self, entry: int, argument: int, name: str) -> int:
        """Start a native thread that no signal interrupts; return its handle.

        Raises: DeviceError when the system allows no more threads.
        """
        ...

    def join_thread(self, handle: int) -> None:
        """Wait for a thread that is about to end, and release it."""
        ...

    def usable_cores(self) -> int:
        """How many cores this process may run on."""
        ...

    def isa(self) -> str:
        """The instruction set of this process: `x86-64` or `aarch64`."""
        ...

    def cpu_features(self) -> frozenset[str]:
        """The features of the processor, in the names of `target.features`."""
        ...

    def cache_bytes(self) -> dict[str, int]:
        """Sizes of `L1`, `L2` (of one core) and `L3`, as far as they are known."""
        ...


@cache
def host_os() -> HostOs:
    """Return the implementation for this operating system.

    Raises: UnsupportedError where there is none yet.
    """
    if sys.platform.startswith("linux"):
        return LinuxHost()
    raise UnsupportedError(
        "cpu: running compiled code is not supported on this operating system yet",
        got=sys.platform,
        expected="linux",
    )
