"""Where intermediates live: arenas in which buffers that are never alive together share bytes.

Lifetimes come from the order of the calls.  There is one arena for each device and lane; buffers
that a copy between devices touches have a lane of their own, so that a later kernel does not wait
for a copy because of the memory alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.records import dataclass
from tilework.schedule.free_space import BLOCK, FreeSpace

if TYPE_CHECKING:
    from collections.abc import Sequence

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
