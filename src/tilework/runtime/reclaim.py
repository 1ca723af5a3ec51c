"""Release, a little later, what belonged to objects that were collected.

The collector may run inside any line, where taking a lock could wait for ever.  So a finalizer
only queues what must be undone (`later`), and the runtime does it at its next quiet point (`run`):
when memory or code is taken or closed, when work is submitted, when counters are read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from tilework.base import trace
from tilework.base.errors import TileworkError

#: What is queued; whoever is in a hurry calls `run` only if there is any.
waiting: deque[Callable[[], object]] = deque()


def later(undo: Callable[[], object]) -> None:
    """Queue `undo`; takes no lock."""
    waiting.append(undo)


def run() -> None:
    """Do what is queued.  A failure is a warning, and the rest is done all the same."""
    while waiting:
        try:
            undo = waiting.popleft()
        except IndexError:
            return  # another thread took the last one
        try:
            undo()
        except TileworkError as error:
            trace.warn("runtime", f"something could not be released: {error}")
