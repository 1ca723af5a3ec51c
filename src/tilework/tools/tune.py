"""`tilework tune`: measure other plans for a program's kernels, and keep the best."""

from __future__ import annotations

import argparse
import runpy
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from tilework.base import settings
from tilework.base.errors import ModelFileError, UserError
from tilework.base.text import format_seconds, plural
from tilework.engine import tune
from tilework.onnx import OnnxRunner
from tilework.tools import tune_report
from tilework.tools.console import Console, Progress
from tilework.tools.inputs import seeded_inputs
from tilework.tools.measure import time_calls

_STOPPED = 130  # what a shell says of a command that was interrupted
_WARM_UP = 3
_CALLS = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `tilework tune`."""
    parser.add_argument(
        "script",
        nargs="?",
        help="a Python file that computes something with tilework, or an .onnx file",
    )
    parser.add_argument("script_arguments", nargs="*", metavar="ARG", help="handed to the script")
    parser.add_argument(
        "--seconds", type=float, default=60.0, metavar="N", help="how long to measure (60)"
    )
    parser.add_argument(
        "--report",
        type=Path,
        metavar="FOLDER",
        help="compare the cost model's predictions with measurements of many plans instead, of the"
        " script's kernels or of built-in ones; a table, and a plot where matplotlib is installed",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Run the program, tune its kernels, and print what was found."""
    if arguments.script is None and arguments.report is None:
        raise UserError("tune: there is nothing to tune", try_="name a script, or an .onnx file")
    script = None if arguments.script is None else Path(arguments.script)
    if script is not None and not script.is_file():
        raise ModelFileError("tune: there is no such script", got=str(script))
    if arguments.seconds <= 0:
        raise UserError("--seconds: a time above zero", got=arguments.seconds)
    console = Console(is_json=arguments.json)
    program = _program(script, arguments.script_arguments)
    if arguments.report is not None:
        return tune_report.run(arguments.report, program, arguments.seconds, console)
    if settings.current().cache_dir is None:
        raise UserError(
            "tune: plans are kept below the cache folder, and there is none",
            try_="set TILEWORK_CACHE_DIR",
        )
    latency = _Latency(script)
    calls = tune.collect(program or latency.run)
    before = latency.seconds()
    tuner = tune.Tuner(arguments.seconds)
    with console.progress("tuning", total=round(arguments.seconds)) as progress:
        rows = tuner.run(calls, _Bar(progress, arguments.seconds).show)
    after = latency.seconds() if any(row.seconds < row.default_seconds for row in rows) else before
    _print(console, str(script), rows, (before, after))
    for name, error in tuner.failed:
        console.text(f"{name} was not tuned: {error}")
    if tuner.is_stopped:
        console.text("stopped: what was measured is kept; run it again to go on")
        return _STOPPED
    if any(not row.is_done for row in rows) or len(rows) < len(calls):
        console.text("there are plans left to be measured: run it again to go on")
    return 0


def _program(script: Path | None, arguments: list[str]) -> Callable[[], None] | None:
    if script is None or script.suffix == ".onnx":
        return None
    return lambda: _run_script(script, arguments)


class _Latency:
    """Calls of an .onnx model, linked anew, so that plans found meanwhile are used."""

    def __init__(self, script: Path | None) -> None:
        self.model = script if script is not None and script.suffix == ".onnx" else None

    def run(self) -> Callable[[], None]:
        """Load the model and call it until it runs as it will."""
        runner = OnnxRunner(str(self.model))
        tensors = runner.place(seeded_inputs(runner, {}, {}, 0))

        def call() -> None:
            runner(tensors)
            runner.wait()

        for _ in range(_WARM_UP):
            call()
        return call

    def seconds(self) -> float | None:
        """The median of some calls; None where the program is a script."""
        if self.model is None:
            return None
        tune.forget_linked()
        return time_calls(self.run(), _CALLS).p50


class _Bar:
    """Shows the time that has passed, and which kernel is measured."""

    def __init__(self, progress: Progress, seconds: float) -> None:
        self._progress = progress
        self._seconds = round(seconds)
        self._start = time.perf_counter()
        self._shown = 0

    def show(self, name: str, row: tune.Row | None) -> None:
        """Move the bar to where the clock is."""
        passed = min(int(time.perf_counter() - self._start), self._seconds)
        gain = "" if row is None else f", {row.default_seconds / row.seconds:.2f} times as fast"
        self._progress.advance(passed - self._shown, name + gain)
        self._shown = passed


def _run_script(script: Path, script_arguments: list[str]) -> None:
    kept = sys.argv
    sys.argv = [str(script), *script_arguments]
    try:
        with redirect_stdout(sys.stderr):
            runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.argv = kept


def _print(
    console: Console,
    script: str,
    rows: list[tune.Row],
    latency: tuple[float | None, float | None],
) -> None:
    ranks = tune.correlations(rows)
    default = sum(row.default_seconds * row.launches for row in rows)
    tuned = sum(row.seconds * row.launches for row in rows)
    console.result(
        {
            "script": script,
            "kernels": [_plain(row) for row in rows],
            "program": {"default_seconds": default, "seconds": tuned},
            "latency": None if latency[0] is None else dict(zip(_NAMES, latency, strict=True)),
            "rank_correlation": ranks,
        }
    )
    console.table(
        f"{plural(len(rows), 'kernel')} of {Path(script).name}",
        ["kernel", "class", "launches", "default", "tuned", "gain", "plans"],
        [_cells(row) for row in rows],
    )
    if rows:
        console.text(_change("all kernels together", default, tuned))
    if latency[0] is not None and latency[1] is not None:
        console.text(_change("a call of the model", latency[0], latency[1]))
    for kind, rank in ranks.items():
        found = "too few kernels" if rank is None else f"{rank:.2f}"
        console.text(f"estimate against measurement, {kind}: rank correlation {found}")


_NAMES = ("default_seconds", "seconds")


def _change(what: str, before: float, after: float) -> str:
    gain = before / after if after else 1.0
    return f"{what}: {format_seconds(before)} before, {format_seconds(after)} after, {gain:.2f}"


def _plain(row: tune.Row) -> dict[str, Any]:
    return {
        "name": row.name,
        "class": row.kind,
        "launches": row.launches,
        "estimate": row.estimate,
        "default_seconds": row.default_seconds,
        "seconds": row.seconds,
        "plans": row.tried,
        "is_done": row.is_done,
    }


def _cells(row: tune.Row) -> list[str]:
    gain = row.default_seconds / row.seconds if row.seconds else 1.0
    return [
        row.name,
        row.kind,
        str(row.launches),
        format_seconds(row.default_seconds),
        format_seconds(row.seconds),
        f"{gain:.2f}",
        str(row.tried),
    ]
