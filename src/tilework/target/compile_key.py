"""What every cache of schedules and programs is keyed on, besides the graph itself."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from time import time_ns
from typing import Any, Final

from tilework import __version__
from tilework.base import LOADED_AT_NS
from tilework.base.hashing import digest
from tilework.base.records import dataclass
from tilework.base.settings import Affects, Settings
from tilework.target.spec import TargetSpec

# The folders whose sources decide what a graph is compiled to.
_COMPILER: Final = (
    *("base", "dtypes", "ir", "target", "schedule", "codegen", "render", "toolchain", "backends"),
    "engine",
)


# Times of files are those of the kernel's last tick.
_TICK_NS: Final = 20_000_000


@cache
def compiler_stamp() -> str:
    """Return a digest of this copy of the compiler: its version, and its sources.

    Of the sources it takes names, sizes and times.  A changed compiler thus never finds what an
    older one left in a cache on disk.  If a source has changed since this process began, it may run
    the older one: then the digest is this process's own, and nobody else finds what it leaves.
    """
    return stamp_of(Path(__file__).parent.parent, LOADED_AT_NS)


def stamp_of(root: Path, loaded_at_ns: int) -> str:
    """Return the digest of the compiler in the folder `root`, which runs since `loaded_at_ns`."""
    rows: list[tuple[str, int, int]] = []
    newest = 0
    now = time_ns()
    waiting = [str(root / folder) for folder in _COMPILER if (root / folder).is_dir()]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.name.endswith((".py", ".so", ".json")):
                    status = entry.stat()
                    changed_at = status.st_mtime_ns
                    rows.append((entry.path, status.st_size, changed_at))
                    if newest < changed_at <= now:  # what is from the future tells nothing
                        newest = changed_at
                elif entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
    rows.sort()
    sources = repr([(path.removeprefix(str(root)), *rest) for path, *rest in rows])
    is_ours = newest + _TICK_NS > loaded_at_ns
    return digest(__version__, sources, os.urandom(16) if is_ours else b"")


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
