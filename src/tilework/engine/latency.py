"""Where the time of repeated calls goes: percentiles by stage over a window.

Nothing is measured until somebody asks: `jit(...).measure()` gives a `Latency` that is filled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

WINDOW: Final = 1024
#: The stages of a call, in their order; "call" is all of it.
STAGES: Final = ("check", "prepare", "run", "results", "read", "call")


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Seconds of one stage over the window."""

    count: int
    p50: float
    p99: float
    most: float
    mean: float


class Latency:
    """Times of the last calls by stage, in nanoseconds.  Filled by one thread at a time."""

    def __init__(self, window: int = WINDOW) -> None:
        self._rows: dict[str, deque[int]] = {stage: deque(maxlen=window) for stage in STAGES}

    def add(self, stage: str, nanoseconds: int) -> None:
        """Note one duration."""
        self._rows[stage].append(nanoseconds)

    def last(self) -> Mapping[str, float]:
        """Return the seconds of the last call by stage."""
        return {stage: row[-1] * 1e-9 for stage, row in self._rows.items() if row}

    def summary(self) -> Mapping[str, Percentiles]:
        """Return the percentiles of each stage that was measured."""
        return {stage: percentiles(row) for stage, row in self._rows.items() if row}

    def clear(self) -> None:
        """Forget all times."""
        for row in self._rows.values():
            row.clear()


def percentiles(nanoseconds: deque[int] | list[int]) -> Percentiles:
    """Return the percentiles of durations, by the nearest rank."""
    row = sorted(nanoseconds)
    count = len(row)

    def rank(share: float) -> float:
        return row[min(count - 1, max(0, -(-int(share * count * 1000) // 1000) - 1))] * 1e-9

    return Percentiles(count, rank(0.50), rank(0.99), row[-1] * 1e-9, sum(row) / count * 1e-9)
