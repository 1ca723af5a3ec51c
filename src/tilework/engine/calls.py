"""Who else takes part when the calls of a thread are seen: profilers, and garbage collection.

`engine.watcher` takes the place of whatever saw the calls before, a coverage tool or a profiler in
C, and gives it back.  What a garbage collection runs in between, finalisers and callbacks of
others, is no part of the function that is seen.
"""

from __future__ import annotations

import gc
import sys
import threading
from typing import Any


def resume_profiler(profiler: Any) -> None:
    """Give calls back to whoever saw them before: a function, or a profiler in C like cProfile."""
    if profiler is None or callable(profiler):
        sys.setprofile(profiler)
        return
    sys.setprofile(None)
    enable = getattr(profiler, "enable", None)
    if enable is not None:
        enable()


class Collector:
    """Knows when this thread collects garbage: what runs then is no part of any function.

    These are finalisers and the callbacks of others, hence one callback before and one after them.
    """

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self.runs = False

    def follow(self) -> None:
        """Hear of each collection from now on."""
        # The end first: a collection that comes in between must not look as if it went on for ever.
        gc.callbacks.append(self._end)
        gc.callbacks.insert(0, self._begin)

    def leave(self) -> None:
        """Hear of none any more."""
        for callback in (self._begin, self._end):
            if callback in gc.callbacks:  # nobody emptied the list
                gc.callbacks.remove(callback)

    def _begin(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start" and threading.get_ident() == self._thread:
            self.runs = True

    def _end(self, phase: str, _: dict[str, int]) -> None:
        if phase == "stop" and threading.get_ident() == self._thread:
            self.runs = False
