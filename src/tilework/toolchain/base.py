"""The contract of a toolchain.

A toolchain puts the note of `target.isa` into each object that it makes, so that a loader can
tell whether the processor has what the code uses.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from typing import Final, Protocol

from tilework.target.spec import TargetSpec


class Passes(Enum):
    """Which optimisation passes run over the source before code generation."""

    NONE = "none"  # the text is already what the machine should do
    LIGHT = "light"  # clean-up alone: common subexpressions, hoisting, address arithmetic
    O1 = "O1"
    O2 = "O2"
    O3 = "O3"


class Toolchain(Protocol):
    """Source -> object code for one target.  Every method may be called from any thread."""

    target: TargetSpec

    @property
    def key(self) -> str:
        """What of this toolchain changes its output: name, version and flags; a cache key part."""
        ...

    def compile(self, source: str) -> bytes:
        """Return an object file of `target.object_format`, with its note.

        Raises: CompileError with the compiler's log; ToolchainError when there is no compiler.
        """
        ...


_log: Final[ContextVar[list[str] | None]] = ContextVar("tilework_compiler_log", default=None)


@contextmanager
def keeping_log() -> Iterator[list[str]]:
    """Collect what compilers say about source that they accept, in this thread or task."""
    lines: list[str] = []
    token = _log.set(lines)
    try:
        yield lines
    finally:
        _log.reset(token)


def note_log(text: str) -> None:
    """Tell whoever collects logs what a compiler has said."""
    lines = _log.get()
    if lines is not None and text.strip():
        lines.append(text.strip())


def wants_log() -> bool:
    """Whether somebody collects logs: to ask for one may cost a call."""
    return _log.get() is not None
