"""How many cores this process may keep busy: its affinity, and the quotas of its control groups.

A container that is given two of 64 cores by a quota still sees 64 in its affinity; as many threads
would stop each other for most of each period.  A quota of a part of a core counts as a whole one.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Final

_ROOT: Final = Path("/")


def available_cores(root: Path = _ROOT) -> int:
    """Return how many cores this process may use at once, at least one.

    Args:
        root: where `proc` and `sys` are; tests pass a folder of their own.
    """
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    quota = _own_quota() if root == _ROOT else quota_of_groups(root)
    return max(1, cores if quota is None else min(cores, quota))


@cache
def _own_quota() -> int | None:
    return quota_of_groups(_ROOT)


def quota_of_groups(root: Path) -> int | None:
    """Return the whole cores that the control groups of this process allow; None if they don't say.

    Args:
        root: where `proc` and `sys` are.
    """
    quotas: list[int] = []
    for line in _lines(root / "proc/self/cgroup"):
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if not controllers:  # version 2
            groups = root / "sys/fs/cgroup"
            quotas += [found for folder in _upwards(groups, path) for found in _of_group(folder)]
        elif "cpu" in controllers.split(","):
            for name in (controllers, "cpu"):
                groups = root / "sys/fs/cgroup" / name
                quotas += [found for folder in _upwards(groups, path) for found in _of_old(folder)]
    return min(quotas, default=None)


def _upwards(groups: Path, path: str) -> list[Path]:
    """The folder of a group and those of the groups around it."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    # Inside a container the own group may be mounted as the outermost one.
    return [groups.joinpath(*parts[:count]) for count in range(len(parts), -1, -1)]


def _of_group(folder: Path) -> list[int]:
    """The quota in `cpu.max`: microseconds of a period, or `max`."""
    for line in _lines(folder / "cpu.max"):
        words = line.split()
        return _whole(words[0], words[1]) if len(words) == 2 else []
    return []


def _of_old(folder: Path) -> list[int]:
    quota, period = (
        next(iter(_lines(folder / f"cpu.cfs_{what}_us")), "") for what in ("quota", "period")
    )
    return _whole(quota, period)


def _whole(quota: str, period: str) -> list[int]:
    if not quota.isdecimal() or not period.isdecimal() or int(period) == 0 or int(quota) == 0:
        return []  # `max`, -1, or nothing to be read
    return [-(-int(quota) // int(period))]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []
