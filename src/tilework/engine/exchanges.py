"""Copies between devices of several processes that begin together.

    waiting = Exchanges()
    if not waiting.take(copy_call, slots):      # one that goes by the library waits for more
        waiting.begin()
        ...                                     # what comes after them
    waiting.begin()

So what each device sends to all others and gets from them (all-to-all, a gather) takes no longer
than the longest of it.  Ranks need not cut alike: all queue what they have a part in in one order,
so the first copy that is not done is begun on both of its ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilework.base import trace
from tilework.engine.copies import Route, device_here, exchange_in_order
from tilework.engine.steps import CopyCall, part_of
from tilework.engine.world import Exchange, by_library, exchange_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.engine.steps import PlannedStep, Step
    from tilework.runtime.buffer import Buffer

_MOST_TOGETHER: Final = 64


class Exchanges:
    """Copies that were come to and have not begun."""

    def __init__(self) -> None:
        self._moves: list[Exchange] = []
        self._ranks: tuple[int, ...] = ()
        self._name = ""

    def take(self, call: Step | PlannedStep, slots: Sequence[Buffer | None]) -> bool:
        """Whether a step is a copy by the library, which then begins with others.

        One that touches what another one brings comes after it.
        """
        if not isinstance(call, CopyCall):
            return False
        ranks = by_library(call.target_device, call.source_device)
        if not ranks:
            return False
        target, source = part_of(slots, call.target), part_of(slots, call.source)
        move = exchange_of(call.target_device, target, call.source_device, source)
        is_full = len(self._moves) >= _MOST_TOGETHER or self._ranks not in ((), ranks)
        if is_full or (move and any(_depend(move, other) for other in self._moves)):
            self.begin()
        self._ranks, self._name = ranks, call.target_device
        if move is not None:
            self._moves.append(move)
            if trace.enabled():
                name = f"copy from {call.source_device} ({Route.LIBRARY})"
                moved = source.size_bytes
                trace.emit(trace.Launched(name, call.target_device, moved_bytes=moved))
        return True

    def begin(self) -> None:
        """Queue what waits, after all that the device was given, and before all that it gets."""
        ranks, moves = self._ranks, self._moves
        self._ranks, self._moves = (), []
        if ranks:
            exchange_in_order(device_here(self._name), ranks, moves)


def _depend(one: Exchange, other: Exchange) -> bool:
    """Whether two copies touch the same bytes here, and one of them changes those."""
    return not (one.is_sent and other.is_sent) and one.buffer.overlaps(other.buffer)
