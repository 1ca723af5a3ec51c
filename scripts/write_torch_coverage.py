"""Run PyTorch's sample inputs here and write docs/torch-coverage.md.

Usage: `python scripts/write_torch_coverage.py [--most N]`; N samples of each operator and dtype,
all by default (about half an hour).  What was counted is kept in docs/torch-coverage.json after
each operator, so that an interrupted run goes on where it was; `--fresh` starts over.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.differential.report import tally  # noqa: E402
from tests.differential.samples import operators  # noqa: E402
from tests.differential.table import FAULTS, comparison_of  # noqa: E402

PAGE = ROOT / "docs" / "torch-coverage.md"
COUNTS = ROOT / "docs" / "torch-coverage.json"


def count(most: int | None, fresh: bool) -> dict[str, Any]:
    """Return the counts and reasons by operator."""
    found: dict[str, Any] = {}
    if COUNTS.exists() and not fresh:
        found = json.loads(COUNTS.read_text())
    for name, op in operators().items():
        how = comparison_of(op, name)
        if isinstance(how, str):
            found[name] = {"absent": how}
            continue
        if "counts" in found.get(name, {}):
            continue
        made, second = tally(op, name, most)
        found[name] = {
            "counts": dict(made.counts),
            "reasons": dict(made.reasons),
            "second": dict(second.counts),
            "second_reasons": dict(second.reasons),
        }
        print(name, dict(made.counts), flush=True)
        COUNTS.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    COUNTS.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    return found


def page(found: dict[str, Any], most: int | None) -> str:
    """Return the page."""
    total: Counter[str] = Counter()
    second: Counter[str] = Counter()
    for row in found.values():
        total.update(row.get("counts", {}))
        second.update(row.get("second", {}))
    ran = total["passed"] + total["failed"]
    share = 100 * total["passed"] / max(ran, 1)
    compared = [name for name, row in found.items() if "counts" in row]
    lines = [
        "# PyTorch's samples",
        "",
        "Made by `python scripts/write_torch_coverage.py`; do not edit.",
        "",
        "PyTorch describes its operators with sample inputs (`OpInfo`). Each is run here and in",
        "PyTorch, in the dtypes that it has of float16, bfloat16, float32, float64, int8, int16,",
        "int32, int64, uint8 and bool; PyTorch's answer for floats is that of float64. Values are",
        "compared within 2e-5 of the value and of the largest magnitude of its tensor in float32,",
        "4e-10 in float64, 8e-3 in float16 and 6e-2 in bfloat16; gradients within four times that,",
        "gradients of gradients (in float32) within sixteen times; all with shapes and dtypes.",
        "",
        "All samples of each operator and dtype are run."
        if most is None
        else f"At most {most} samples of each operator and dtype were run for this page.",
        "",
        f"Of {len(found)} operators {len(compared)} are compared. {total['passed']} samples agree,",
        f"{total['failed']} do not ({share:.2f} % agree), {total['differs']} differ on purpose,",
        f"{total['skipped']} ask for what does not exist here. Of gradients of gradients",
        f"{second['passed']} agree and {second['failed']} do not.",
        "",
        "## Samples that do not agree",
        "",
    ]
    lines += _table(found, "failed") or ["None."]
    lines += ["", "## Gradients of gradients that do not agree", ""]
    lines += _table(found, "failed", "second") or ["None."]
    lines += ["", "## Samples that differ on purpose", ""]
    lines += _table(found, "differs") or ["None."]
    lines += ["", "## Samples that ask for what does not exist here", ""]
    lines += _table(found, "skipped") or ["None."]
    lines += [
        "",
        "## Operators that are not compared",
        "",
        "| reason | operators |",
        "| --- | --- |",
    ]
    groups: dict[str, list[str]] = {}
    for name, row in sorted(found.items()):
        if "absent" in row:
            groups.setdefault(row["absent"], []).append(f"`{name}`")
    lines += [f"| {reason} | {', '.join(names)} |" for reason, names in sorted(groups.items())]
    return "\n".join(lines) + "\n"


def _table(found: dict[str, Any], state: str, which: str = "counts") -> list[str]:
    rows = []
    reasons_of = "reasons" if which == "counts" else "second_reasons"
    for name, row in sorted(found.items()):
        number = row.get(which, {}).get(state, 0)
        if not number:
            continue
        reasons = [key for key in row[reasons_of] if key.startswith(f"{state}: ")]
        reason = FAULTS.get(name) if state == "failed" else None
        text = reason or reasons[0].partition(": ")[2]
        rows.append(f"| `{name}` | {number} | {' '.join(text.split()).replace('|', ' ')} |")
    return ["| operator | samples | why |", "| --- | --- | --- |", *rows] if rows else []


def main() -> int:
    """Count and write; return the exit status."""
    parser = argparse.ArgumentParser(description="Compare with PyTorch's sample inputs.")
    parser.add_argument("--most", type=int, help="samples of each operator and dtype")
    parser.add_argument("--fresh", action="store_true", help="forget what was counted")
    options = parser.parse_args()
    found = count(options.most, options.fresh)
    PAGE.write_text(page(found, options.most), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
