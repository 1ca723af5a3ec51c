"""Schedules that were made before, in memory by identity of the function.

The key holds everything that changes a schedule: the function's structure, the limits and the
settings that say so.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from tilework.base import settings, trace

if TYPE_CHECKING:
    from tilework.ir.node import Node
    from tilework.schedule.schedule import Limits, Schedule

_Key = tuple["Node", "Limits", Any]

#: Schedules kept in memory; the least recently used goes first.
CAPACITY = 256

_lock = threading.Lock()
_kept: OrderedDict[_Key, Schedule] = OrderedDict()


def _key(function: Node, limits: Limits) -> _Key:
    return function, limits, settings.current().key(settings.Affects.SCHEDULE)


def lookup(function: Node, limits: Limits) -> Schedule | None:
    """The schedule of `function` made before under the settings in force, if it is kept."""
    key = _key(function, limits)
    with _lock:
        found = _kept.get(key)
        if found is not None:
            _kept.move_to_end(key)
    if trace.enabled():
        trace.emit(trace.CacheLookup("schedule", str(id(function)), found is not None))
    return found


def remember(function: Node, limits: Limits, schedule: Schedule) -> None:
    """Keep a schedule for `lookup`."""
    key = _key(function, limits)
    with _lock:
        _kept[key] = schedule
        _kept.move_to_end(key)
        while len(_kept) > CAPACITY:
            _kept.popitem(last=False)


def clear() -> None:
    """Forget all schedules that are kept in memory."""
    with _lock:
        _kept.clear()
