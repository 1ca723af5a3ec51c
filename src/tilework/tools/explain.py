"""`tilework explain SCRIPT`: every compiler stage of what a script computes, as text."""

from __future__ import annotations

import argparse
import runpy
import sys
import threading
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from tilework.base import settings, trace
from tilework.base.errors import ModelFileError
from tilework.base.records import dataclass, field
from tilework.base.text import format_seconds, plural
from tilework.ir.node import Node
from tilework.ir.ops.memory import SINK
from tilework.ir.text import format_node
from tilework.schedule.schedule import Schedule, explain_schedule
from tilework.tools.console import Console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `tilework explain`."""
    parser.add_argument("script", help="a Python file that computes something with tilework")
    parser.add_argument("script_arguments", nargs="*", metavar="ARG", help="handed to the script")
    parser.add_argument("--only", metavar="TEXT", help="only passes whose name contains this")
    parser.add_argument("--summary", action="store_true", help="only names and times, no graphs")
    parser.add_argument("--output", metavar="FILE", help="write there instead of to the terminal")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def graph_text(result: object) -> str:
    """Return what a pass made as text: a node as IR that can be parsed, a schedule as its kernels.

    The scheduler's own working records only say how many there are.
    """
    match result:
        case Node():
            return format_node(result)
        case Schedule():
            kernels = [call.src[0] for call in result.linear.src if call.src]
            texts = [format_node(kernel) for kernel in kernels if kernel.op is SINK]
            return "\n\n".join([explain_schedule(result), *texts])
        case list() | tuple():
            return f"{len(result)} x {type(result[0]).__name__}" if result else "nothing"
        case _:
            return type(result).__name__


@dataclass(slots=True)
class Story:
    """The events of a run, in order."""

    events: list[trace.Event] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, event: trace.Event) -> None:
        """Keep what can be told."""
        if isinstance(event, trace.PassEnded | trace.KernelCompiled | trace.Launched):
            with self._lock:
                self.events.append(event)

    def lines(self, only: str | None, *, with_graphs: bool) -> list[str]:
        """Return the story as text: each pass, and the graph after it where it changed."""
        told: list[str] = []
        for event in self.events:
            match event:
                case trace.PassEnded(name=name, before=before, after=after, seconds=seconds):
                    if only is not None and only not in name:
                        continue
                    note = "" if event.is_changed else " (unchanged)"
                    told.append(f"--- {name}, {format_seconds(seconds)}{note}")
                    if with_graphs and (event.is_changed or before is None):
                        told += [f"    {line}" for line in graph_text(after).splitlines()]
                case trace.KernelCompiled(name=name, device=device, seconds=seconds):
                    verb = "found in a cache" if event.cached else "compiled"
                    told.append(f"=== {name} on {device}: {verb}, {format_seconds(seconds)}")
                case trace.Launched(name=name, device=device):
                    told.append(f">>> ran {name} on {device}")
                case _:
                    pass
        return told


def tell(script: Path, script_arguments: list[str]) -> Story:
    """Run a script and return what the compiler did for it.

    Raises:
        ModelFileError: there is no such script.
    """
    if not script.is_file():
        raise ModelFileError("explain: there is no such script", got=str(script))
    story = Story()
    kept = sys.argv
    sys.argv = [str(script), *script_arguments]
    try:
        # Without the disk cache every stage happens, whatever ran before; one worker keeps order.
        with (
            settings.override(cache_dir=None, compile_workers=1),
            trace.subscribe(story),
            redirect_stdout(sys.stderr),
        ):
            runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.argv = kept
    return story


def run(arguments: argparse.Namespace) -> int:
    """Run the script and print its story."""
    console = Console(is_json=arguments.json)
    story = tell(Path(arguments.script), arguments.script_arguments)
    passes: dict[str, list[float]] = {}
    kernels: list[dict[str, Any]] = []
    for event in story.events:
        if isinstance(event, trace.PassEnded):
            passes.setdefault(event.name, []).append(event.seconds)
        elif isinstance(event, trace.KernelCompiled):
            kernels.append({"name": event.name, "seconds": event.seconds, "cached": event.cached})
    lines = story.lines(arguments.only, with_graphs=not arguments.summary)
    console.result(
        {
            "script": arguments.script,
            "passes": {name: {"runs": len(t), "seconds": sum(t)} for name, t in passes.items()},
            "kernels": kernels,
            "story": lines,
        }
    )
    if arguments.output:
        Path(arguments.output).write_text("\n".join(lines) + "\n", encoding="utf-8")
    else:
        for line in lines:
            console.text(line)
    rows = [[name, str(len(t)), format_seconds(sum(t))] for name, t in passes.items()]
    console.table("passes", ["pass", "runs", "time"], rows)
    console.text(f"{plural(len(kernels), 'kernel')} in all")
    return 0
