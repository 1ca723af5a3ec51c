"""`tilework conformance DEVICE`: the shared behaviour suite against one device."""

from __future__ import annotations

import argparse

from tilework.base.errors import UserError
from tilework.engine.device import Device
from tilework.testing.conformance import all_cases, run_suite
from tilework.tools.console import Console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `tilework conformance`."""
    parser.add_argument("device", help="for example CPU, CPU:CLANG or PYTHON")
    parser.add_argument("--only", metavar="TEXT", help="only cases whose name contains this")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Run the suite; the exit status is 1 where a case fails."""
    console = Console(is_json=arguments.json)
    device = Device.canonicalize(arguments.device)
    only: str | None = arguments.only
    count = sum(only is None or only in case.name for case in all_cases())
    if not count:
        raise UserError("--only: no case has such a name", got=only)
    with console.progress(f"conformance of {device}", total=count) as progress:
        results = run_suite(device, only=only, on_case=lambda name: progress.advance(1, name))
    counts: dict[str, int] = {}
    for row in results:
        counts[row.status] = counts.get(row.status, 0) + 1
    console.result(
        {
            "device": device,
            "counts": counts,
            "cases": [
                {"name": row.name, "status": row.status, "detail": row.detail} for row in results
            ],
        }
    )
    console.table(
        f"{device}: what did not pass",
        ["case", "status", "detail"],
        [[row.name, row.status, row.detail] for row in results if row.status != "passed"],
    )
    console.text(", ".join(f"{count} {status}" for status, count in sorted(counts.items())))
    return 1 if counts.get("failed") else 0
