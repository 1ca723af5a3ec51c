"""Counters of what the engine did; tests and the replay contract read them."""

from __future__ import annotations

from typing import Final

from tilework.base.records import dataclass, fields


@dataclass(slots=True)
class Counters:
    """Events since the start of the process.

    Changed without a lock: exact when one thread works, close to it otherwise.
    """

    compiles: int = 0  # kernels lowered and compiled, so in no cache
    links: int = 0  # schedules turned into launch tables
    launches: int = 0  # native calls or submissions
    kernels: int = 0  # kernels in those
    allocations: int = 0  # buffers that the engine asked a device for
    schedules: int = 0  # graphs scheduled, cached or not
    captures: int = 0
    replays: int = 0

    def snapshot(self) -> dict[str, int]:
        """Return all counters by name."""
        return {row.name: getattr(self, row.name) for row in fields(self)}


COUNTERS: Final = Counters()
"""The counters of this process."""


def counters() -> dict[str, int]:
    """Return how often the engine did what in this process, by name.

    Example:
        >>> sorted(counters())[:4]
        ['allocations', 'captures', 'compiles', 'kernels']
    """
    return COUNTERS.snapshot()


def difference(before: dict[str, int]) -> dict[str, int]:
    """Return by how much each counter has risen since `before`, those at rest left out."""
    now = COUNTERS.snapshot()
    return {name: now[name] - count for name, count in before.items() if now[name] != count}
