"""Schedules that were made before: in memory by identity of the function, on disk by its digest.

The key holds everything that changes a schedule: the function's structure, the limits, the
settings that say so, and the code that makes schedules.  What is read from disk is checked like
what was just made.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilework.base import hashing, settings, trace
from tilework.base.diskcache import DiskCache
from tilework.base.errors import TileworkError
from tilework.base.forks import new_lock
from tilework.dtypes import by_name
from tilework.ir.digest import digest
from tilework.ir.node import Node
from tilework.ir.text import format_nodes, parse_all
from tilework.schedule.check import LEVELS, check_schedule
from tilework.schedule.schedule import Intermediates, KernelReport, Schedule, Slot, SlotKind
from tilework.target.compile_key import compiler_stamp

if TYPE_CHECKING:
    from tilework.ir.types import Shape
    from tilework.schedule.schedule import Limits

_Key = tuple["Node", "Limits", Any]

#: Schedules kept in memory; the least recently used goes first.
CAPACITY = 256
#: Functions of fewer nodes are scheduled faster than a file is found and read, once the passes are
#: loaded; so the first ones of a process are kept too, and a start that finds them loads no pass.
FEWEST_NODES = 100
FIRST_SMALL = 32
_SHARE_OF_CACHE = 16


class _Entry:
    """A schedule and the level of checks that it passed."""

    __slots__ = ("level", "schedule")

    def __init__(self, schedule: Schedule, level: int) -> None:
        self.schedule = schedule
        self.level = level


class _Made:
    """How many schedules this process has made itself."""

    count = 0


_lock = new_lock()
_kept: OrderedDict[_Key, _Entry] = OrderedDict()


def lookup(function: Node, limits: Limits) -> Schedule | None:
    """The schedule of `function` made before under the settings in force, if it is known.

    Raises:
        VerifyError: it is found, but does not pass checks that are stricter now than when it was
            made.
    """
    current = settings.current()
    key = (function, limits, current.key(settings.Affects.SCHEDULE))
    with _lock:
        entry = _kept.get(key)
        if entry is not None:
            _kept.move_to_end(key)
    if trace.enabled():
        name = digest(function).hex()
        trace.emit(trace.CacheLookup("schedule-memory", name, entry is not None))
    level = LEVELS[current.verify]
    if entry is None:
        stored = _read(function, limits, current)
        if stored is None:
            return None
        entry = _keep(key, stored, 0)
    if level > entry.level:
        check_schedule(entry.schedule)
        entry.level = level
    return entry.schedule


def remember(function: Node, limits: Limits, schedule: Schedule) -> None:
    """Keep a schedule, which has passed the checks of the settings in force, for `lookup`."""
    current = settings.current()
    key = (function, limits, current.key(settings.Affects.SCHEDULE))
    _keep(key, schedule, LEVELS[current.verify])
    is_early = _Made.count < FIRST_SMALL
    _Made.count += 1
    if current.cache_dir is not None and (is_early or _is_large(function)):
        name = _disk_key(function, limits, current)
        _disk(current.cache_dir, current.cache_size_bytes).put(name, to_bytes(schedule))


def clear() -> None:
    """Forget all schedules that are kept in memory."""
    with _lock:
        _kept.clear()


def _keep(key: _Key, schedule: Schedule, level: int) -> _Entry:
    entry = _Entry(schedule, level)
    with _lock:
        _kept[key] = entry
        _kept.move_to_end(key)
        while len(_kept) > CAPACITY:
            _kept.popitem(last=False)
    return entry


# --- on disk -------------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def _disk(folder: Path | None, size_limit_bytes: int) -> DiskCache:
    share = size_limit_bytes // _SHARE_OF_CACHE
    return DiskCache(folder and folder / "schedules", share, "schedule")


def _is_large(function: Node) -> bool:
    seen = {function}
    stack = [function]
    while stack and len(seen) < FEWEST_NODES:
        for source in stack.pop().src:
            if source not in seen:
                seen.add(source)
                stack.append(source)
    return len(seen) >= FEWEST_NODES


def _disk_key(function: Node, limits: Limits, current: settings.Settings) -> str:
    affects = current.key(settings.Affects.SCHEDULE)
    return hashing.digest(digest(function), limits, affects, compiler_stamp())


def _read(function: Node, limits: Limits, current: settings.Settings) -> Schedule | None:
    if current.cache_dir is None or (_Made.count and not _is_large(function)):
        return None
    disk = _disk(current.cache_dir, current.cache_size_bytes)
    name = _disk_key(function, limits, current)
    raw = disk.get(name)
    if raw is None:
        return None
    try:
        return from_bytes(raw)
    except (TileworkError, ValueError, KeyError, TypeError, IndexError) as error:
        trace.warn("schedule", f"a schedule on disk cannot be read, and is made again: {error}")
        disk.remove(name)
        return None


def to_bytes(schedule: Schedule) -> bytes:
    """A schedule as text."""
    sizes: dict[Node, int] = {}
    slots = []
    for slot in schedule.slots:
        shape = [
            size if isinstance(size, int) else f"%{sizes.setdefault(size, len(sizes))}"
            for size in slot.shape
        ]
        slots.append((slot.kind.value, slot.size_bytes, shape, slot.dtype.name, slot.device))
    reports = [
        (r.kind, r.stores, r.reasons, r.buffers, r.read_bytes, r.written_bytes, r.nodes)
        for r in schedule.reports
    ]
    needs = (schedule.intermediates.live_bytes, schedule.intermediates.unshared_bytes)
    plain = {
        "slots": slots, "outputs": schedule.outputs, "reports": reports, "needs": needs,
        "dead": schedule.dead,
    }  # fmt: skip
    head = json.dumps(plain)
    return f"{head}\n{format_nodes((schedule.linear, *sizes))}".encode()


def from_bytes(raw: bytes) -> Schedule:
    """The schedule that `to_bytes` wrote.

    Raises:
        ValueError: it is no such text (or KeyError, TypeError, IndexError, TileworkError).
    """
    line, _, text = raw.decode().partition("\n")
    head = json.loads(line)
    linear, *sizes = parse_all(text)
    slots = tuple(
        Slot(SlotKind(kind), size_bytes, _shape(shape, sizes), by_name(dtype), device)
        for kind, size_bytes, shape, dtype, device in head["slots"]
    )
    reports = tuple(
        KernelReport(kind, tuple(stores), tuple(reasons), *numbers)
        for kind, stores, reasons, *numbers in head["reports"]
    )
    needs = Intermediates(*map(int, head["needs"]))
    dead = tuple(
        tuple((int(slot), int(offset), int(size)) for slot, offset, size in row)
        for row in head["dead"]
    )
    return Schedule(linear, slots, tuple(head["outputs"]), reports, needs, dead)


def _shape(shape: list[int | str], sizes: list[Node]) -> Shape:
    return tuple([size if isinstance(size, int) else sizes[int(size[1:])] for size in shape])
