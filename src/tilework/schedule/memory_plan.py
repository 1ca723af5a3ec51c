"""Where intermediates live: arenas in which buffers that are never alive together share bytes.

Lifetimes come from the order of the calls.  There is one arena for each device and lane; buffers
that a copy between devices touches have a lane of their own, so that a later kernel does not wait
for a copy because of the memory alone.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilework.base.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Offsets and arenas are multiples of this.
BLOCK = 256
COMPUTE_LANE, COPY_LANE = 0, 1


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A buffer: its arena, its bytes, and the first and last call that touches it."""

    arena: tuple[str, int]
    size_bytes: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The byte offset of each buffer in its arena, and the size of each arena."""

    offsets: tuple[int, ...]
    arena_bytes: dict[tuple[str, int], int]


def rounded(size_bytes: int) -> int:
    """Whole blocks for so many bytes, at least one."""
    return max(-(-size_bytes // BLOCK), 1) * BLOCK


def plan_memory(lifetimes: Sequence[Lifetime]) -> Plan:
    """Place buffers so that those alive at one call do not overlap; same input, same plan."""
    offsets = [0] * len(lifetimes)
    sizes: dict[tuple[str, int], int] = {}
    for arena in sorted({item.arena for item in lifetimes}):
        members = [number for number, item in enumerate(lifetimes) if item.arena == arena]
        placed, size_bytes = _place(lifetimes, members)
        for number, offset in zip(members, placed, strict=True):
            offsets[number] = offset
        sizes[arena] = size_bytes
    return Plan(tuple(offsets), sizes)


def live_bytes(lifetimes: Sequence[Lifetime]) -> int:
    """The most bytes alive at one call: no plan can need less."""
    change: dict[int, int] = {}
    for item in lifetimes:
        size_bytes = rounded(item.size_bytes)
        change[item.first] = change.get(item.first, 0) + size_bytes
        change[item.last + 1] = change.get(item.last + 1, 0) - size_bytes
    most = now = 0
    for call in sorted(change):
        now += change[call]
        most = max(most, now)
    return most


_EXACT = 400


def _place(lifetimes: Sequence[Lifetime], members: list[int]) -> tuple[list[int], int]:
    online = _in_order(lifetimes, members)
    if len(members) > _EXACT or online[1] == live_bytes([lifetimes[m] for m in members]):
        return online
    by_size = _largest_first(lifetimes, members)
    return by_size if by_size[1] < online[1] else online


def _in_order(lifetimes: Sequence[Lifetime], members: list[int]) -> tuple[list[int], int]:
    """Serve the calls in order from a list of free ranges, best fit."""
    events = []
    for place, number in enumerate(members):
        item = lifetimes[number]
        # At one call all buffers are taken before any that ends there is given back.
        events.append((item.first, 0, place))
        events.append((item.last, 1, place))
    events.sort()
    space = FreeSpace()
    offsets = [0] * len(members)
    for _, closes, place in events:
        size_bytes = rounded(lifetimes[members[place]].size_bytes)
        if closes:
            space.give_back(offsets[place], size_bytes)
        else:
            offsets[place] = space.take(size_bytes)
    return offsets, space.size_bytes


def _largest_first(lifetimes: Sequence[Lifetime], members: list[int]) -> tuple[list[int], int]:
    """Place the largest buffer first, each at the lowest offset that is free all its life."""
    order = sorted(
        range(len(members)), key=lambda place: (-lifetimes[members[place]].size_bytes, place)
    )
    offsets = [0] * len(members)
    done: list[int] = []
    total = 0
    for place in order:
        item = lifetimes[members[place]]
        size_bytes = rounded(item.size_bytes)
        taken = sorted(
            (offsets[other], offsets[other] + rounded(lifetimes[members[other]].size_bytes))
            for other in done
            if lifetimes[members[other]].first <= item.last
            and item.first <= lifetimes[members[other]].last
        )
        offset = 0
        for start, end in taken:
            if offset + size_bytes <= start:
                break
            offset = max(offset, end)
        offsets[place] = offset
        total = max(total, offset + size_bytes)
        done.append(place)
    return offsets, total


class FreeSpace:
    """A growing range of bytes: the smallest free part that fits is taken, neighbours merge."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self._starts: list[int] = []
        self._end_of: dict[int, int] = {}
        self._by_size: list[tuple[int, int]] = []
        self._taken: dict[int, int] = {}

    def take(self, size_bytes: int) -> int:
        """The offset of `size_bytes` free bytes."""
        place = bisect.bisect_left(self._by_size, (size_bytes, -1))
        if place < len(self._by_size):
            length, start = self._by_size[place]
            self._remove(start)
            if length > size_bytes:
                self._insert(start + size_bytes, start + length)
        elif self._starts and self._end_of[self._starts[-1]] == self.size_bytes:
            # The free part at the end grows.
            start = self._starts[-1]
            self._remove(start)
            self.size_bytes = start + size_bytes
        else:
            start = self.size_bytes
            self.size_bytes += size_bytes
        self._taken[start] = size_bytes
        return start

    def give_back(self, start: int, size_bytes: int) -> None:
        """Free what `take` gave.

        Raises:
            InternalError: it is not taken, or has another size.
        """
        if self._taken.pop(start, None) != size_bytes:
            raise InternalError(
                "memory plan: bytes are given back that were not taken",
                got=f"{size_bytes} bytes at {start}",
            )
        end = start + size_bytes
        place = bisect.bisect_left(self._starts, start)
        if place < len(self._starts) and self._starts[place] == end:
            following = self._starts[place]
            end = self._end_of[following]
            self._remove(following)
        if place and self._end_of[self._starts[place - 1]] == start:
            start = self._starts[place - 1]
            self._remove(start)
        self._insert(start, end)

    def _insert(self, start: int, end: int) -> None:
        bisect.insort(self._starts, start)
        self._end_of[start] = end
        bisect.insort(self._by_size, (end - start, start))

    def _remove(self, start: int) -> None:
        end = self._end_of.pop(start)
        self._starts.pop(bisect.bisect_left(self._starts, start))
        self._by_size.pop(bisect.bisect_left(self._by_size, (end - start, start)))
