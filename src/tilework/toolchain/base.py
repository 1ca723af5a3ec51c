"""The contract of a toolchain.

A toolchain puts the note of `target.isa` into each object that it makes, so that a loader can
tell whether the processor has what the code uses.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

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
