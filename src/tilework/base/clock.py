"""Time that tests can inject, and waits that always end."""

import time
from typing import Protocol

from tilework.base.errors import DeviceTimeoutError
from tilework.base.records import dataclass, field


class Clock(Protocol):
    """A source of time in seconds."""

    def now(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass."""
        ...


class MonotonicClock:
    """The clock of the machine."""

    def now(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass; less than nothing is nothing."""
        if seconds > 0:
            time.sleep(seconds)


@dataclass(slots=True)
class ManualClock:
    """A clock that moves only when told to, for tests."""

    seconds: float = 0.0

    def now(self) -> float:
        """The time that was set."""
        return self.seconds

    def sleep(self, seconds: float) -> None:
        """Move on by `seconds`."""
        self.seconds += max(0.0, seconds)


SYSTEM_CLOCK = MonotonicClock()


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment by which something must be over."""

    at: float
    clock: Clock = field(default=SYSTEM_CLOCK, compare=False)

    @classmethod
    def after(cls, seconds: float, clock: Clock = SYSTEM_CLOCK) -> "Deadline":
        """The moment `seconds` from now."""
        return cls(clock.now() + seconds, clock)

    def remaining(self) -> float:
        """Seconds left, never below zero."""
        return max(0.0, self.at - self.clock.now())

    def is_past(self) -> bool:
        """Whether the moment has come."""
        return self.clock.now() >= self.at

    def sooner(self, other: "Deadline") -> "Deadline":
        """The earlier of two deadlines: a part never outlasts the whole."""
        return self if self.at <= other.at else other


@dataclass(frozen=True, slots=True)
class WaitLimit:
    """How long a wait may last: to an absolute deadline, and no span without progress."""

    deadline: Deadline
    no_progress_seconds: float

    @classmethod
    def of(
        cls, seconds: float, no_progress_seconds: float | None = None, clock: Clock = SYSTEM_CLOCK
    ) -> "WaitLimit":
        """A limit that starts now; without a second figure only the deadline counts."""
        span = seconds if no_progress_seconds is None else no_progress_seconds
        return cls(Deadline.after(seconds, clock), span)

    def start(self, what: str) -> "Wait":
        """Begin to wait for `what` (device, queue, signal and program, for the message)."""
        return Wait(self, what)


class Wait:
    """One wait under a limit; call `check` on each turn of the polling loop."""

    def __init__(self, limit: WaitLimit, what: str) -> None:
        self._limit = limit
        self._what = what
        self._began = self._moved = limit.deadline.clock.now()
        self._seen: object = None

    def check(self, progress: object = None) -> None:
        """Go on waiting, or give up.

        Args:
            progress: a value that changes when the device moves (a signal's value).

        Raises:
            DeviceTimeoutError: the deadline has come, whatever the progress, or nothing moved
                for the span of the limit.
        """
        now = self._limit.deadline.clock.now()
        if progress != self._seen:
            self._seen, self._moved = progress, now
        still = now - self._moved
        is_stuck = still >= self._limit.no_progress_seconds
        if not is_stuck and now < self._limit.deadline.at:
            return
        reason = "no progress" if is_stuck else "the deadline has passed"
        raise DeviceTimeoutError(
            f"{self._what}: {reason}",
            got=f"{now - self._began:.6g} s waited, last progress {still:.6g} s ago",
            waited=now - self._began,
            last_progress=still,
        )

    def pause_seconds(self, wanted: float) -> float:
        """Return how long the loop may sleep: `wanted`, but not past the deadline."""
        return min(wanted, self._limit.deadline.remaining())
