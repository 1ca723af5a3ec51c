"""Locks that a forked child finds free.

Only the thread that forks lives on in the child, so a lock that another thread held stays locked
there for ever.  Two things are done about it: the outer locks, under which state changes in many
steps, are taken before the fork, so that no other thread is in the middle of such a change; and in
the child every other lock is renewed.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Final

#: How long a fork waits for an outer lock; a child must not wait for a thread that hangs.
WAIT_SECONDS: Final = 60.0

_locks: Final[weakref.WeakSet[Any]] = weakref.WeakSet()
_outer: Final[list[tuple[int, weakref.ref[Any]]]] = []
_held: Final[list[Any]] = []


def new_lock() -> threading.Lock:
    """A lock that is free in a forked child."""
    lock = threading.Lock()
    _locks.add(lock)
    return lock


def new_rlock() -> threading.RLock:
    """A lock that its holder may take again, and that is free in a forked child."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


def new_outer_lock(rank: int) -> threading.RLock:
    """A lock that a fork takes: those of lower rank are taken first, as everywhere else."""
    lock = threading.RLock()
    _locks.add(lock)
    _outer.append((rank, weakref.ref(lock)))
    _outer.sort(key=lambda pair: pair[0])
    return lock


def _before() -> None:
    for _, reference in _outer:
        lock = reference()
        if lock is not None and lock.acquire(timeout=WAIT_SECONDS):
            _held.append(lock)


def _release() -> None:
    while _held:
        _held.pop().release()


def _in_child() -> None:
    _release()
    for lock in list(_locks):
        # What this thread held at the fork it holds in the child too.
        is_ours = getattr(lock, "_is_owned", None)
        if is_ours is None or not is_ours():
            lock._at_fork_reinit()


os.register_at_fork(before=_before, after_in_parent=_release, after_in_child=_in_child)
