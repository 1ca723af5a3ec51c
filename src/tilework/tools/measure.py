"""Time and events of a run, as plain numbers."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tilework.base import trace
from tilework.base.records import dataclass, field


@dataclass(slots=True)
class Recorder:
    """Sums up the events of this process while `recording`."""

    passes: dict[str, float] = field(default_factory=dict)
    compiled: list[trace.KernelCompiled] = field(default_factory=list)
    launched: int = 0
    allocated_bytes: int = 0
    peak_bytes: int = 0
    warnings: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, event: trace.Event) -> None:
        """Take one event, on whichever thread it happens."""
        with self._lock:
            match event:
                case trace.PassEnded(name=name, seconds=seconds):
                    self.passes[name] = self.passes.get(name, 0.0) + seconds
                case trace.KernelCompiled():
                    self.compiled.append(event)
                case trace.Launched():
                    self.launched += 1
                case trace.Allocated(size_bytes=size_bytes):
                    self.allocated_bytes += size_bytes
                    self.peak_bytes = max(self.peak_bytes, self.allocated_bytes)
                case trace.Warned(source=source, message=message):
                    self.warnings.append(f"{source}: {message}")
                case _:
                    pass

    def pass_seconds(self) -> dict[str, float]:
        """Time of the compiler's passes, by the part that comes before the dot in their names."""
        found: dict[str, float] = {}
        for name, seconds in self.passes.items():
            part = name.partition(".")[0]
            found[part] = found.get(part, 0.0) + seconds
        return found

    @property
    def compile_seconds(self) -> float:
        """Time of the toolchain, over all kernels that no cache held."""
        return sum(event.seconds for event in self.compiled if not event.cached)


@contextmanager
def recording() -> Iterator[Recorder]:
    """Collect events while the block runs."""
    recorder = Recorder()
    with trace.subscribe(recorder):
        yield recorder


@dataclass(slots=True)
class Stages:
    """Named spans of time, in order."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Time the block under a name; the same name again adds up."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


def percentile(sorted_values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least `share` of all values do not exceed.

    Example:
        >>> percentile([1.0, 2.0, 3.0, 4.0], 0.5)
        2.0
    """
    if not sorted_values:
        return math.nan
    rank = max(1, math.ceil(share * len(sorted_values)))
    return sorted_values[rank - 1]


@dataclass(frozen=True, slots=True)
class Latency:
    """Times of repeated calls, in seconds."""

    count: int
    p50: float
    p99: float
    least: float
    most: float
    mean: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Latency:
        """Sum up the times of calls."""
        ordered = sorted(seconds)
        return cls(
            count=len(ordered),
            p50=percentile(ordered, 0.5),
            p99=percentile(ordered, 0.99),
            least=ordered[0] if ordered else math.nan,
            most=ordered[-1] if ordered else math.nan,
            mean=sum(ordered) / len(ordered) if ordered else math.nan,
        )

    def to_milliseconds(self) -> dict[str, float | int]:
        """Return the figures for a report."""
        return {
            "count": self.count,
            "p50_ms": round(self.p50 * 1e3, 4),
            "p99_ms": round(self.p99 * 1e3, 4),
            "min_ms": round(self.least * 1e3, 4),
            "max_ms": round(self.most * 1e3, 4),
            "mean_ms": round(self.mean * 1e3, 4),
        }


def time_calls(
    call: Callable[[], object], repeat: int, step: Callable[[], object] | None = None
) -> Latency:
    """Call something `repeat` times, to completion each time; `step` runs between calls."""
    seconds = []
    for _ in range(repeat):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
        if step is not None:
            step()
    return Latency.of(seconds)
