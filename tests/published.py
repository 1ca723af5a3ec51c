"""What docs/conformance.md says of each case of the behaviour suite."""

from __future__ import annotations

import functools
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "conformance.md"


@functools.cache
def published() -> dict[str, dict[str, str]]:
    """By device and case: how it came out when the page was written."""
    rows = [
        [cell.strip() for cell in line.strip("|\n").split("|")]
        for line in PAGE.read_text(encoding="utf-8").splitlines()
        if line.startswith("|") and not line.startswith("| ---")
    ]
    (_, *devices), cases = rows[0], rows[1:]
    return {
        device: {row[0]: row[number] for row in cases} for number, device in enumerate(devices, 1)
    }
