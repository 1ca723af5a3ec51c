"""Where the time of repeated calls goes: percentiles by part over a window.

Nothing is measured until somebody asks: `jit(...).measure()` gives a `Latency` that is filled.
The parts of a call follow each other without a gap, so that they sum to its wall time:

    check    arguments and everything else that the function reads are compared
    bind     memory for results, old contents that others still need, addresses into the program
    run      the launch; for a device that works beside the host, the submission alone
    wait     until the device is done
    results  tensors around the results

Reading a result on the host afterwards is noted as well: "read wait" until the value is there,
"readback" for the copy.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from time import perf_counter_ns
from typing import Final

from tilework.base.records import dataclass
from tilework.base.text import format_seconds

WINDOW: Final = 1024
#: The parts of a call, in their order.
PARTS: Final = ("check", "bind", "run", "wait", "results")
#: All that is measured; "call" is the parts together.
STAGES: Final = (*PARTS, "call", "read wait", "readback")

#: How many latencies are filled in this process; others test it before they note a read.
active = 0
_calling = threading.local()


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Seconds of one stage over the window."""

    count: int
    p50: float
    p99: float
    most: float
    mean: float


class Latency:
    """Times of the last calls by stage.  Filled by one thread at a time.

    Args:
        window: how many calls are kept.
        kernels: also time each kernel, which costs more.
    """

    def __init__(self, window: int = WINDOW, *, kernels: bool = False) -> None:
        # One row a call: the times at which its parts begin, and at which it ends.
        self._calls: deque[Sequence[int]] = deque(maxlen=window)
        self._reads: deque[tuple[int, int]] = deque(maxlen=window)
        self._kernels: deque[Sequence[float]] | None = deque(maxlen=window) if kernels else None

    @property
    def times_kernels(self) -> bool:
        """Whether each kernel is timed too."""
        return self._kernels is not None

    def note_call(self, stamps: list[int]) -> None:
        """Note a call that ends now; `stamps` are the nanoseconds at which its parts began."""
        stamps.append(perf_counter_ns())
        self._calls.append(stamps)
        _calling.latest = self

    def note_kernels(self, seconds: Sequence[float]) -> None:
        """Note the seconds of each step of a call."""
        if self._kernels is not None:
            self._kernels.append(seconds)

    def note_read(self, wait: int, copy: int) -> None:
        """Note the nanoseconds of reading a result on the host."""
        self._reads.append((wait, copy))

    def _row(self, stage: str) -> list[int]:
        if stage == "read wait":
            return [wait for wait, _ in self._reads]
        if stage == "readback":
            return [copy for _, copy in self._reads]
        if stage == "call":
            return [stamps[-1] - stamps[0] for stamps in self._calls]
        part = PARTS.index(stage)
        return [stamps[part + 1] - stamps[part] for stamps in self._calls]

    def last(self) -> Mapping[str, float]:
        """Return the seconds of the last call by stage."""
        rows = {stage: self._row(stage) for stage in STAGES}
        return {stage: row[-1] * 1e-9 for stage, row in rows.items() if row}

    def summary(self) -> Mapping[str, Percentiles]:
        """Return the percentiles of each stage that was measured."""
        rows = {stage: self._row(stage) for stage in STAGES}
        return {stage: percentiles(row) for stage, row in rows.items() if row}

    def kernel_seconds(self) -> list[float]:
        """Return the median seconds of each step; empty if kernels are not timed."""
        rows = list(self._kernels or ())
        if not rows:
            return []
        middle = len(rows) // 2
        return [sorted(column)[middle] for column in zip(*rows, strict=True)]

    def clear(self) -> None:
        """Forget all times."""
        self._calls.clear()
        self._reads.clear()
        if self._kernels is not None:
            self._kernels.clear()

    def __str__(self) -> str:
        """A table: one line a stage."""
        lines = [f"{'':10}{'p50':>10}{'p99':>10}{'max':>10}{'mean':>10}"]
        for stage, row in self.summary().items():
            cells = [format_seconds(value) for value in (row.p50, row.p99, row.most, row.mean)]
            lines.append(f"{stage:10}" + "".join(f"{cell:>10}" for cell in cells))
        return "\n".join(lines)


def start_filling(latency: Latency | None, before: Latency | None) -> None:
    """Count that `latency` is filled from now on in place of `before`."""
    global active
    active += (latency is not None) - (before is not None)


def latest() -> Latency | None:
    """Return what this thread's last measured call has filled."""
    found: Latency | None = getattr(_calling, "latest", None)
    return found


def percentiles(nanoseconds: Sequence[int]) -> Percentiles:
    """Return the percentiles of durations, by the nearest rank."""
    row = sorted(nanoseconds)
    count = len(row)

    def rank(percent: int) -> float:
        return row[max(0, -(-percent * count // 100) - 1)] * 1e-9

    return Percentiles(count, rank(50), rank(99), row[-1] * 1e-9, sum(row) / count * 1e-9)
