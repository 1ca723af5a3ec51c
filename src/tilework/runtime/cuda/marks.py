"""Events of a card that are used again: marks behind what a queue was given.

mark = marks.take()            # within the driver's guard
library.event_record(mark, stream)
marks.give_back([mark])        # whoever waits for it has been queued
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from threading import RLock

    from tilework.runtime.bus.cuda import CudaLibrary


class CudaMarks:
    """The marks of one context that nobody uses now.  Thread-safe, by the lock of its driver."""

    def __init__(self, library: CudaLibrary, lock: RLock) -> None:
        self._library = library
        self._lock = lock
        self._spare: list[int] = []
        self._is_closed = False

    def take(self) -> int:
        """A mark that nobody uses; called with the context current."""
        with self._lock:
            return self._spare.pop() if self._spare else self._library.event_create(timing=False)

    def give_back(self, marks: Iterable[int]) -> None:
        """Take marks back, unless they went with the context."""
        with self._lock:
            if not self._is_closed:
                self._spare.extend(marks)

    def close(self, *, destroy: bool) -> None:
        """Hand out and take back none any more; `destroy` them, if their context lives."""
        with self._lock:
            self._is_closed = True
            for mark in self._spare if destroy else ():
                self._library.event_destroy(mark)
            self._spare.clear()
