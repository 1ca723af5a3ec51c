"""`tilework devices`: every back end, whether its device can be opened, and why not."""

from __future__ import annotations

import argparse
from typing import Any

from tilework.base import settings
from tilework.base.errors import DeviceUnavailableError
from tilework.engine.device import Device
from tilework.tools.console import Console


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `tilework devices`."""
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def rows() -> list[dict[str, Any]]:
    """Return what is known of each back end; nothing is opened."""
    try:
        default = Device.DEFAULT
    except DeviceUnavailableError:  # no row is the default; `run` and `doctor` tell why
        default = ""
    found = []
    for backend, probe in Device.probe():
        name = Device.canonicalize(f"{backend.kind}:{backend.renderer}")
        found.append(
            {
                "device": name,
                "default": name == default,
                "state": "ready" if probe.is_openable else "missing",
                "summary": backend.summary,
                "isa": probe.isa,
                "driver": probe.driver,
                "reason": probe.reason,
            }
        )
    return found


def run(arguments: argparse.Namespace) -> int:
    """Print the table."""
    console = Console(is_json=arguments.json)
    found = rows()
    console.result({"devices": found})
    console.table(
        "devices",
        ["device", "state", "what it is", "why not"],
        [
            [
                row["device"] + (" (default)" if row["default"] else ""),
                row["state"],
                row["summary"] + (f" [{row['isa']}]" if row["isa"] else ""),
                row["reason"],
            ]
            for row in found
        ],
    )
    if not any(row["default"] for row in found):
        name = settings.current().dev
        console.text(f"the default device is to be {name}, which no back end has; DEV sets it")
    return 0
