"""`tilework tune`: measure other plans for a script's kernels, and keep the best for later runs."""

from __future__ import annotations

import argparse
import runpy
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from tilework.base import settings
from tilework.base.errors import ModelFileError, UserError
from tilework.base.text import format_seconds, plural
from tilework.engine import tune
from tilework.tools.console import Console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `tilework tune`."""
    parser.add_argument("script", help="a Python file that computes something with tilework")
    parser.add_argument("script_arguments", nargs="*", metavar="ARG", help="handed to the script")
    parser.add_argument(
        "--seconds", type=float, default=60.0, metavar="N", help="how long to measure (60)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Run the script, tune its kernels, and print what was found."""
    script = Path(arguments.script)
    if not script.is_file():
        raise ModelFileError("tune: there is no such script", got=str(script))
    if arguments.seconds <= 0:
        raise UserError("--seconds: a time above zero", got=arguments.seconds)
    if settings.current().cache_dir is None:
        raise UserError(
            "tune: plans are kept below the cache folder, and there is none",
            try_="set TILEWORK_CACHE_DIR",
        )
    console = Console(is_json=arguments.json)
    calls = tune.collect(lambda: _run_script(script, arguments.script_arguments))
    with console.progress("tuning", total=len(calls)) as progress:
        rows = tune.Tuner(arguments.seconds).run(calls, lambda row: progress.advance(1, row.name))
    ranks = _correlations(rows)
    console.result(
        {
            "script": str(script),
            "kernels": [_plain(row) for row in rows],
            "rank_correlation": ranks,
        }
    )
    console.table(
        f"{plural(len(rows), 'kernel')} of {script.name}",
        ["kernel", "class", "default", "tuned", "gain", "plans"],
        [_cells(row) for row in rows],
    )
    for kind, rank in ranks.items():
        found = "too few kernels" if rank is None else f"{rank:.2f}"
        console.text(f"estimate against measurement, {kind}: rank correlation {found}")
    if any(not row.is_done for row in rows):
        console.text("there are plans left to be measured: run it again to go on")
    return 0


def _run_script(script: Path, script_arguments: list[str]) -> None:
    kept = sys.argv
    sys.argv = [str(script), *script_arguments]
    try:
        with redirect_stdout(sys.stderr):
            runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.argv = kept


def _correlations(rows: list[tune.Row]) -> dict[str, float | None]:
    """How well the cost model orders the kernels of each class."""
    found: dict[str, float | None] = {}
    for kind in sorted({row.kind for row in rows}):
        own = [row for row in rows if row.kind == kind]
        found[kind] = tune.correlation(
            [row.estimate for row in own], [row.default_seconds for row in own]
        )
    return found


def _plain(row: tune.Row) -> dict[str, Any]:
    return {
        "name": row.name,
        "class": row.kind,
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
        format_seconds(row.default_seconds),
        format_seconds(row.seconds),
        f"{gain:.2f}",
        str(row.tried),
    ]
