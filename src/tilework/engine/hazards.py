"""Which steps must wait for which: byte-range exact, and over any number of queues.

    tracker = HazardTracker()
    tracker.add([Access(memory=1, start=0, end=64, writes=True)])        # frozenset()
    tracker.add([Access(memory=1, start=32, end=48, writes=False)])      # frozenset({0})

`plan_waits` turns hazards into the waits of steps that are spread over queues.  A queue does its
steps in order and counts them on a timeline; a step waits until the timelines of other queues have
reached a number.  What the order within a queue or an earlier wait guarantees is left out.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Mapping, Sequence

from tilework.base.records import dataclass


@dataclass(frozen=True, slots=True)
class Access:
    """Bytes [start, end) of one memory, counted from its base: views and bitcasts do not matter."""

    memory: Hashable
    start: int
    end: int
    writes: bool

    def overlaps(self, other: Access) -> bool:
        """Whether both touch some byte."""
        return self.memory == other.memory and self.start < other.end and other.start < self.end

    def covers(self, other: Access) -> bool:
        """Whether this touches all bytes that the other does."""
        return self.memory == other.memory and self.start <= other.start and other.end <= self.end


@dataclass(slots=True)
class _Segment:
    """Bytes with one history: who wrote them last, and who has read them since."""

    start: int
    end: int
    writer: int | None
    readers: frozenset[int]


class HazardTracker:
    """Finds, for each step in the order of a program, the earlier ones that it depends on.

    RAW: the last writer of a byte that is read.  WAR: every reader since that write, of a byte that
    is written.  WAW: the last writer of a byte that is written.
    """

    def __init__(self) -> None:
        self._count = 0
        self._segments: dict[Hashable, list[_Segment]] = {}

    def add(self, accesses: Sequence[Access]) -> frozenset[int]:
        """Append a step and return the numbers of the steps that must be done before it.

        Steps that those depend on themselves are not all listed: a write hides what it waited for.
        """
        step = self._count
        self._count += 1
        found: set[int] = set()
        for access in accesses:
            for segment in self._overlapping(access):
                if segment.writer is not None:
                    found.add(segment.writer)
                if access.writes:
                    found |= segment.readers
        for access in accesses:
            if not access.writes:
                for segment in self._overlapping(access):
                    segment.readers |= {step}
        for access in accesses:
            if access.writes:
                self._overwrite(access, step)
        found.discard(step)
        return frozenset(found)

    def _overlapping(self, access: Access) -> list[_Segment]:
        """The segments that lie within an access, cut at its ends; gaps become segments."""
        if access.start >= access.end:
            return []
        segments = self._segments.setdefault(access.memory, [])
        self._cut(segments, access.start)
        self._cut(segments, access.end)
        first = bisect_left(segments, access.start, key=_start_of)
        last = bisect_left(segments, access.end, key=_start_of)
        filled: list[_Segment] = []
        place = access.start
        for segment in segments[first:last]:
            if segment.start > place:
                filled.append(_Segment(place, segment.start, None, frozenset()))
            filled.append(segment)
            place = segment.end
        if place < access.end:
            filled.append(_Segment(place, access.end, None, frozenset()))
        segments[first:last] = filled
        return filled

    def _overwrite(self, access: Access, step: int) -> None:
        if access.start >= access.end:
            return
        segments = self._segments[access.memory]
        self._cut(segments, access.start)
        self._cut(segments, access.end)
        first = bisect_left(segments, access.start, key=_start_of)
        last = bisect_left(segments, access.end, key=_start_of)
        segments[first:last] = [_Segment(access.start, access.end, step, frozenset())]

    @staticmethod
    def _cut(segments: list[_Segment], at: int) -> None:
        index = bisect_right(segments, at, key=_start_of) - 1
        if index < 0:
            return
        segment = segments[index]
        if segment.start < at < segment.end:
            rest = _Segment(at, segment.end, segment.writer, segment.readers)
            segment.end = at
            segments.insert(index + 1, rest)


def _start_of(segment: _Segment) -> int:
    return segment.start


@dataclass(frozen=True, slots=True)
class QueuedStep:
    """A step: the queue that does it, and what it touches."""

    queue: Hashable
    accesses: tuple[Access, ...]


def plan_waits(steps: Sequence[QueuedStep]) -> list[dict[Hashable, int]]:
    """Return for each step the timelines that it waits for: queue -> number of steps done there.

    Args:
        steps: in the order in which they would run one after the other.
    """
    tracker = HazardTracker()
    done: dict[Hashable, int] = {}  # steps put into each queue so far
    place: list[tuple[Hashable, int]] = []  # of each step: its queue, and its number there
    #: What is certain to be done when a step is: queue -> number of steps.
    known: list[dict[Hashable, int]] = []
    latest: dict[Hashable, dict[Hashable, int]] = {}  # the same of each queue's last step
    waits: list[dict[Hashable, int]] = []
    for step in steps:
        sure = dict(latest.get(step.queue, {}))
        needed: dict[Hashable, int] = {}
        for before in sorted(tracker.add(step.accesses), reverse=True):
            queue, number = place[before]
            if queue == step.queue or sure.get(queue, 0) >= number:
                continue
            needed[queue] = max(needed.get(queue, 0), number)
            _join(sure, known[before])
        own = done.get(step.queue, 0) + 1
        done[step.queue] = own
        sure[step.queue] = own
        place.append((step.queue, own))
        known.append(sure)
        latest[step.queue] = sure
        waits.append(needed)
    return waits


def _join(into: dict[Hashable, int], other: Mapping[Hashable, int]) -> None:
    for queue, number in other.items():
        if number > into.get(queue, 0):
            into[queue] = number
