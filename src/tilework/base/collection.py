"""Python's garbage collector, paused where it would only walk graphs again and again."""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class NoCollection:
    """What `no_collection` gives; a class, since small programs enter it with each run."""

    __slots__ = ("_was_on",)

    def __enter__(self) -> None:
        self._was_on = gc.isenabled()
        gc.disable()

    def __exit__(self, *error: object) -> None:
        if self._was_on:
            gc.enable()


def no_collection() -> NoCollection:
    """Pause garbage collection while the block runs.

    Scheduling and code generation make very many nodes, nearly all of which live until the end,
    and graphs have no cycles.

    Example:
        >>> with no_collection():
        ...     gc.isenabled()
        False
    """
    return NoCollection()


@contextmanager
def thawed() -> Iterator[None]:
    """Let the collector find what the program has put aside by `gc.freeze` while the block runs.

    What is alive at its end is put aside as well; Python can't tell which objects were.

    Example:
        >>> with thawed():
        ...     gc.get_freeze_count()
        0
    """
    if not gc.get_freeze_count():
        yield
        return
    gc.collect()  # garbage that is put aside is never found
    with no_collection():
        gc.unfreeze()
        try:
            yield
        finally:
            gc.freeze()
