"""Python's garbage collector, paused where it would only walk graphs again and again."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Pause garbage collection while the block runs.

    Scheduling and code generation make very many nodes, nearly all of which live until the end,
    and graphs have no cycles.

    Example:
        >>> with no_collection():
        ...     gc.isenabled()
        False
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
