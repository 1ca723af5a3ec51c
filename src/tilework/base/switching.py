"""How often Python's threads take turns, while some of them only wait for each other."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_SECONDS: Final = 0.0002


@contextmanager
def prompt_switching() -> Iterator[None]:
    """Let threads that come back from native code go on at once while the block runs.

    A thread that makes many short native calls (LLVM's, say) has to take Python's lock again after
    each; one that computes in Python meanwhile gives it up after 5 ms by default, so that the
    native calls of one kernel would wait longer than they take.

    Example:
        >>> import sys
        >>> with prompt_switching():
        ...     sys.getswitchinterval() < 0.001
        True
    """
    before = sys.getswitchinterval()
    if before <= _SECONDS:
        yield
        return
    sys.setswitchinterval(_SECONDS)
    ours = sys.getswitchinterval()
    try:
        yield
    finally:
        if sys.getswitchinterval() == ours:  # or else somebody has set it meanwhile
            sys.setswitchinterval(before)
