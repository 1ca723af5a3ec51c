"""Progress bars and timers that write to the terminal, as programs expect them."""

from __future__ import annotations

import contextlib
import cProfile
import math
import pstats
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from tilework import errors

T = TypeVar("T")
_EIGHTHS = " ▏▎▍▌▋▊▉"


class Timing(contextlib.ContextDecorator):
    """Writes how long a block took.

    Args:
        prefix: text before the time.
        on_exit: makes text after the time out of the nanoseconds.
        enabled: whether anything is written.
    """

    def __init__(
        self, prefix: str = "", on_exit: Callable[[int], str] | None = None, enabled: bool = True
    ) -> None:
        self.prefix = prefix
        self.on_exit = on_exit
        self.enabled = enabled
        #: Nanoseconds when it was entered, and how many went by until it was left.
        self.st = 0
        self.et = 0

    def __enter__(self) -> Timing:
        self.st = time.perf_counter_ns()
        return self

    def __exit__(self, *error: object) -> None:
        self.et = time.perf_counter_ns() - self.st
        if self.enabled:
            rest = self.on_exit(self.et) if self.on_exit is not None else ""
            sys.stdout.write(f"{self.prefix}{self.et * 1e-6:6.2f} ms{rest}\n")


class Profiling(contextlib.ContextDecorator):
    """Profiles the Python code of a block and writes the functions that took longest.

    Args:
        enabled: whether it does anything.
        sort: the order, as `pstats` has it.
        frac: the share of functions to show.
        fn: a file that gets the whole profile.
        ts: accepted for programs that say it.
    """

    def __init__(
        self,
        enabled: bool = True,
        sort: str = "cumtime",
        frac: float = 0.2,
        fn: str | None = None,
        ts: float = 1,
    ) -> None:
        self.enabled = enabled
        self.sort = sort
        self.frac = frac
        self.fn = fn
        self.profile = cProfile.Profile()

    def __enter__(self) -> Profiling:
        if self.enabled:
            self.profile.enable()
        return self

    def __exit__(self, *error: object) -> None:
        if not self.enabled:
            return
        self.profile.disable()
        if self.fn:
            self.profile.dump_stats(self.fn)
        stats = pstats.Stats(self.profile, stream=sys.stdout)
        stats.strip_dirs().sort_stats(self.sort).print_stats(self.frac)


def _clock(seconds: float) -> str:
    """Hours, minutes and seconds, without leading zeros."""
    whole = int(seconds)
    parts = [whole // 3600, whole // 60 % 60, whole % 60]
    while len(parts) > 2 and parts[0] == 0:
        parts.pop(0)
    return ":".join(f"{part:02d}" for part in parts)


def _scaled(number: float) -> str:
    """A number with a letter for its power of 1000."""
    power = 0 if number < 1 else min(int(math.log10(number)) // 3, 6)
    return f"{number / 1000**power:.2f}{' kMGTPE'[power].strip()}"


class tqdm(Generic[T]):
    """A progress bar on standard error, around an iterable or moved by `update`.

    Args:
        iterable: what is iterated over.
        desc: text before the bar.
        disable: write nothing; None writes to terminals only.
        unit: the name of one step.
        unit_scale: show counts with a letter for thousands, millions...
        total: the number of steps, if the iterable has no length.
        rate: the most writes for a second.
    """

    def __init__(
        self,
        iterable: Iterable[T] | None = None,
        desc: str = "",
        disable: bool | None = False,
        unit: str = "it",
        unit_scale: bool = False,
        total: int | None = None,
        rate: int = 100,
    ) -> None:
        self.iterable = iterable
        self.disable = not sys.stderr.isatty() if disable is None else disable
        self.unit = unit
        self.unit_scale = unit_scale
        self.rate = rate
        length = getattr(iterable, "__len__", None)
        self.t = total if total is not None else (length() if length is not None else 0)
        #: Steps done.
        self.n = 0
        self._started = time.perf_counter()
        self._shown = -math.inf
        self.set_description(desc)
        self.update(0)

    def __iter__(self) -> Iterator[T]:
        if self.iterable is None:
            raise errors.UserError("tqdm: there is nothing to iterate over")
        for item in self.iterable:
            yield item
            self.update(1)
        self.update(close=True)

    def __enter__(self) -> tqdm[T]:
        return self

    def __exit__(self, *error: object) -> None:
        self.update(close=True)

    def set_description(self, desc: str) -> None:
        """Change the text before the bar."""
        self.desc = f"{desc}: " if desc else ""

    def update(self, n: int = 0, close: bool = False) -> None:
        """Note `n` more steps, and show them now and then."""
        self.n += n
        now = time.perf_counter()
        if self.disable or (not close and now - self._shown < 1 / self.rate):
            return
        self._shown = now
        sys.stderr.write("\r" + self._line(now - self._started) + ("\n" if close else ""))
        sys.stderr.flush()

    def _line(self, elapsed: float) -> str:
        show: Callable[[Any], str] = _scaled if self.unit_scale else str
        speed = self.n / elapsed if elapsed > 0 and self.n else 0.0
        pace = f"{show(speed) if self.unit_scale else f'{speed:5.2f}'}{self.unit}/s"
        if not self.t:
            return f"{self.desc}{show(self.n)}{self.unit} [{_clock(elapsed)}, {pace}]"
        share = min(self.n / self.t, 1.0)
        left = f"<{_clock(elapsed / share - elapsed)}" if share else ""
        tail = f"| {show(self.n)}/{show(self.t)} [{_clock(elapsed)}{left}, {pace}]"
        head = f"{self.desc}{100 * share:3.0f}%|"
        width = max(shutil.get_terminal_size().columns - len(head) - len(tail), 1)
        filled = width * share
        partial = _EIGHTHS[int(8 * filled) % 8].strip()
        bar = "█" * int(filled) + partial
        return f"{head}{bar[:width]:<{width}}{tail}"

    @classmethod
    def write(cls, s: str) -> None:
        """Write a line above the bar."""
        sys.stderr.write(f"\r\033[K{s}\n")


def trange(n: int, **options: Any) -> tqdm[int]:
    """A progress bar around `range(n)`."""
    return tqdm(range(n), total=n, **options)
