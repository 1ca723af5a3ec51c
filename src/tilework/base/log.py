"""The console as one subscriber of the event stream.

Levels, each including those before: 0 nothing, 1 warnings and devices, 2 kernels and caches,
3 passes, 4 rules and graphs.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from tilework.base import trace
from tilework.base.settings import current
from tilework.base.text import format_bytes, format_seconds

_LEVELS: dict[type[trace.Event], int] = {
    trace.Warned: 1,
    trace.Allocated: 1,
    trace.Recaptured: 1,
    trace.KernelCompiled: 2,
    trace.Launched: 2,
    trace.CacheLookup: 2,
    trace.Waited: 2,
    trace.PassEnded: 3,
    trace.RuleFired: 4,
}


def level_of(event: trace.Event) -> int:
    """Return the lowest log level that shows `event`."""
    return _LEVELS.get(type(event), 1)


def describe(event: trace.Event, level: int = 3) -> str:
    """Return `event` as console text; graphs are printed from level 4 on."""
    match event:
        case trace.Warned(source, message):
            return f"warning: {source}: {message}"
        case trace.Allocated(device, size_bytes, kind):
            verb = "allocated" if size_bytes >= 0 else "freed"
            return f"{device}: {verb} {format_bytes(abs(size_bytes))} of {kind}"
        case trace.KernelCompiled(name, device, seconds, code_bytes, cached):
            verb = "found" if cached else "compiled"
            return f"{device}: {verb} {name}, {format_bytes(code_bytes)}, {format_seconds(seconds)}"
        case trace.Launched(name, device, seconds, flops, moved_bytes):
            return f"{device}: ran {name}{_rates(seconds, flops, moved_bytes)}"
        case trace.Waited(device, what, seconds):
            return f"{device}: waited {format_seconds(seconds)} for {what}"
        case trace.CacheLookup(cache, key, hit):
            return f"{cache} cache: {'hit' if hit else 'miss'} {key}"
        case trace.Recaptured(function, changed):
            return f"captured {function} again: {changed}"
        case trace.PassEnded(name, _, after, seconds):
            note = "" if event.is_changed else " (unchanged)"
            graph = f"\n{after}" if level >= 4 and event.is_changed else ""
            return f"pass {name}, {format_seconds(seconds)}{note}{graph}"
        case trace.RuleFired(rule, before, after):
            return f"rule {rule}: {before!r} -> {after!r}"
        case _:
            return repr(event)


def _rates(seconds: float | None, flops: int, moved_bytes: int) -> str:
    if not seconds:
        return ""
    text = f", {format_seconds(seconds)}"
    if flops:
        text += f", {flops / seconds / 1e9:.3g} GFLOP/s"
    if moved_bytes:
        text += f", {moved_bytes / seconds / 1e9:.3g} GB/s"
    return text


class Console:
    """A subscriber that writes one line per event to a stream."""

    def __init__(self, level: int, stream: TextIO | None = None) -> None:
        self.level = level
        self._stream = stream

    def __call__(self, event: trace.Event) -> None:
        """Write `event` if the level shows it."""
        if level_of(event) <= self.level:
            stream = sys.stderr if self._stream is None else self._stream
            stream.write(f"tilework: {describe(event, self.level)}\n")


@contextmanager
def console(level: int | None = None, stream: TextIO | None = None) -> Iterator[Console]:
    """Log to `stream` (standard error) while the block runs.

    Args:
        level: 0 to 4; None takes `log_level` of the settings.
        stream: where the lines go.
    """
    subscriber = Console(current().log_level if level is None else level, stream)
    if subscriber.level <= 0:
        yield subscriber
        return
    with trace.subscribe(subscriber):
        yield subscriber


class _Attached:
    """The console that `attach` installed for this process, if any."""

    console: Console | None = None


def attach() -> None:
    """Log at `log_level` of the settings from now on; cheap, so that each run calls it again."""
    level = current().log_level
    if level <= 0:
        detach()
    elif _Attached.console is not None:
        _Attached.console.level = level
    else:
        _Attached.console = Console(level)
        trace.add_subscriber(_Attached.console)


def detach() -> None:
    """Undo `attach`."""
    if _Attached.console is not None:
        trace.remove_subscriber(_Attached.console)
        _Attached.console = None
