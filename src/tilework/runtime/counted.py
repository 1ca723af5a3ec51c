"""What a driver says of its memory, from the counters of its allocator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tilework.runtime import reclaim


class Counted(Protocol):
    """An allocator with counters: bytes handed out, kept for reuse, and the most of the first."""

    @property
    def used_bytes(self) -> int:
        """Bytes handed out now."""
        ...

    @property
    def kept_bytes(self) -> int:
        """Bytes that wait for reuse."""
        ...

    @property
    def peak_bytes(self) -> int:
        """The most that was handed out at once."""
        ...

    def restart_peak(self) -> None:
        """Count the peak from what is handed out now."""
        ...


class CountsMemory:
    """The part of a driver that reports memory; `allocator` has the counters."""

    allocator: Counted

    def memory_used(self) -> Mapping[str, int]:
        """Bytes handed out, kept for reuse, and the most that was handed out at once."""
        reclaim.run()
        allocator = self.allocator
        return {
            "used": allocator.used_bytes,
            "kept": allocator.kept_bytes,
            "peak": allocator.peak_bytes,
        }

    def restart_peak(self) -> None:
        """Count the peak from what is handed out now."""
        self.allocator.restart_peak()
