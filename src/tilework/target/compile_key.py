"""What every cache of schedules and programs is keyed on, besides the graph itself."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from tilework.base.hashing import digest
from tilework.base.settings import Affects, Settings
from tilework.target.spec import TargetSpec

# The folders whose sources decide what a graph is compiled to.
_COMPILER: Final = (
    *("base", "dtypes", "ir", "target", "schedule", "codegen", "render", "toolchain", "backends"),
    "engine",
)


@cache
def compiler_stamp() -> str:
    """Return a digest of this copy of the compiler: the names, sizes and times of its sources.

    A changed compiler thus never finds what an older one left in a cache on disk.
    """
    rows: list[tuple[str, int, int]] = []
    root = Path(__file__).parent.parent
    waiting = [str(root / folder) for folder in _COMPILER if (root / folder).is_dir()]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif entry.name.endswith((".py", ".so", ".json")):
                    status = entry.stat()
                    rows.append((entry.path, status.st_size, status.st_mtime_ns))
    rows.sort()
    return digest(repr([(path.removeprefix(str(root)), *rest) for path, *rest in rows]))


@dataclass(frozen=True, slots=True)
class CompileKey:
    """Every setting that changes a schedule or a program, the target, and the compiler."""

    settings: tuple[tuple[str, Any], ...]
    target: str
    compiler: str

    def text(self) -> str:
        """Return one line for the key of a cache."""
        return f"{self.settings!r};{self.target};{self.compiler}"


def compile_key(
    settings: Settings, target: TargetSpec, affects: Affects = Affects.SCHEDULE | Affects.CODE
) -> CompileKey:
    """Return the key under these settings for `target`."""
    return CompileKey(settings.key(affects), target.key(), compiler_stamp())
