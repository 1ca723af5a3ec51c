"""Where the intermediates of a captured program live in its arena."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilework.base.records import dataclass

BLOCK_BYTES: Final = 256


@dataclass(frozen=True, slots=True)
class Lifetime:
    """An intermediate: its bytes, and the first and the last time at which it is needed."""

    size_bytes: int
    first: int
    last: int


def plan_arena(lifetimes: Sequence[Lifetime]) -> tuple[list[int], int]:
    """Return an offset for each intermediate, and the bytes of the arena.

    Two that are needed at one time never share a byte.  The largest are placed first, each at the
    lowest place that is free during its life.
    """
    offsets = [0] * len(lifetimes)
    order = sorted(range(len(lifetimes)), key=lambda i: (-lifetimes[i].size_bytes, i))
    placed: list[int] = []
    total = 0
    for index in order:
        life = lifetimes[index]
        size = -(-life.size_bytes // BLOCK_BYTES) * BLOCK_BYTES
        taken = sorted(
            (offsets[other], offsets[other] + _rounded(lifetimes[other]))
            for other in placed
            if lifetimes[other].first <= life.last and life.first <= lifetimes[other].last
        )
        place = 0
        for start, end in taken:
            if start - place >= size:
                break
            place = max(place, end)
        offsets[index] = place
        total = max(total, place + size)
        placed.append(index)
    return offsets, total


def _rounded(life: Lifetime) -> int:
    return -(-life.size_bytes // BLOCK_BYTES) * BLOCK_BYTES
