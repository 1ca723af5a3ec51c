"""Run PyTorch's sample inputs here and write docs/torch-coverage.md.

Usage: `python scripts/write_torch_coverage.py [--most N] [--operator NAME] [--fresh] [--page]`.

N samples of each operator and dtype, evenly spread, or all 95,000 (some three hours of one core);
operators of few samples come first. What was counted is kept in docs/torch-coverage.json after each
operator, with the date and the revision, so that an interrupted run goes on where it was, and a run
with more samples counts again only what was counted with fewer; `--fresh` counts all again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.differential.report import tally  # noqa: E402
from tests.differential.samples import operators, samples_of  # noqa: E402
from tests.differential.table import FAULTS, comparison_of  # noqa: E402

PAGE = ROOT / "docs" / "torch-coverage.md"
COUNTS = ROOT / "docs" / "torch-coverage.json"
Rows = dict[str, dict[str, Any]]


def is_enough(row: dict[str, Any], most: int | None) -> bool:
    """Whether an operator was counted with that many samples, or with all of them."""
    counted = row.get("most", 0)
    return "second" in row and (counted is None or (most is not None and counted >= most))


def revision() -> str:
    """Return the revision of the sources, or an empty text outside a repository."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def number_of_samples(name: str) -> int:
    """How many samples an operator has in the dtype that has most."""
    op = operators()[name]
    dtypes = {torch.float32, torch.int64, torch.bool} & op.supported_dtypes("cpu")
    return max((sum(1 for _ in samples_of(op, dtype)) for dtype in dtypes), default=0)


def count(most: int | None, only: str | None, fresh: bool) -> Rows:
    """Return the counts and reasons by operator."""
    found: Rows = json.loads(COUNTS.read_text()) if COUNTS.exists() else {}
    kinds = {name: comparison_of(op, name) for name, op in operators().items()}
    found |= {name: {"absent": how} for name, how in kinds.items() if isinstance(how, str)}
    wanted = [
        name
        for name, how in kinds.items()
        if not isinstance(how, str)
        and only in (None, name)
        and (fresh or not is_enough(found.get(name, {}), most))
    ]
    for name in sorted(wanted, key=number_of_samples):
        made, second = tally(operators()[name], name, most)
        found[name] = {
            "counts": dict(made.counts),
            "reasons": dict(made.reasons),
            "second": dict(second.counts),
            "second_reasons": dict(second.reasons),
            "most": most,
            "date": date.today().isoformat(),
            "revision": revision(),
        }
        print(name, dict(made.counts), dict(made.reasons), flush=True)
        COUNTS.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    found = {name: row for name, row in found.items() if name in operators()}
    COUNTS.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    return found


def page(found: Rows) -> str:
    """Return the page."""
    total: Counter[str] = Counter()
    second: Counter[str] = Counter()
    for row in found.values():
        total.update(row.get("counts", {}))
        second.update(row.get("second", {}))
    ran = total["passed"] + total["failed"]
    share = 100 * total["passed"] / max(ran, 1)
    compared = [name for name, row in found.items() if "counts" in row]
    twice = sum("second" in row for row in found.values())
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
        *_extent(
            [row for row in found.values() if "counts" in row],
            sum("absent" in row for row in found.values()),
        ),
        "",
        f"Of {len(operators())} operators {len(compared)} are compared.",
        f"{total['passed']} samples agree, {total['failed']} do not ({share:.2f} % agree),",
        f"{total['differs']} differ on purpose, {total['skipped']} ask for what is not here.",
        f"Of gradients of gradients, of {twice} operators, {second['passed']} agree",
        f"and {second['failed']} do not.",
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


def _extent(rows: list[dict[str, Any]], absent: int) -> list[str]:
    """Say how many samples were run, of what and when."""
    few = Counter(row["most"] for row in rows if row["most"] is not None)
    whole = sum(row["most"] is None for row in rows)
    lines = [f"All samples of {whole} operators were run."]
    lines += [
        f"Of {operators_of} operators at most {most} samples in each dtype, evenly spread."
        for most, operators_of in sorted(few.items())
    ]
    dates = sorted({row["date"] for row in rows})
    revisions = ", ".join(f"`{each}`" for each in sorted({row["revision"] for row in rows}))
    if rest := len(operators()) - len(rows) - absent:
        lines.append(f"{rest} operators are not counted yet.")
    return [*lines, f"Run from {dates[0]} to {dates[-1]}; revisions {revisions}."]


def _table(found: Rows, state: str, which: str = "counts") -> list[str]:
    rows = []
    reasons_of = "reasons" if which == "counts" else "second_reasons"
    for name, row in sorted(found.items()):
        number = row.get(which, {}).get(state, 0)
        if not number:
            continue
        reasons = [key for key in row[reasons_of] if key.startswith(f"{state}: ")]
        reason = FAULTS.get(name) if state == "failed" else None
        text = reason or "; ".join(each.partition(": ")[2] for each in reasons[:3])
        rows.append(f"| `{name}` | {number} | {' '.join(text.split()).replace('|', ' ')} |")
    return ["| operator | samples | why |", "| --- | --- | --- |", *rows] if rows else []


def main() -> int:
    """Count and write; return the exit status."""
    parser = argparse.ArgumentParser(description="Compare with PyTorch's sample inputs.")
    parser.add_argument("--most", type=int, help="samples of each operator and dtype")
    parser.add_argument("--operator", choices=list(operators()), help="one of the operators")
    parser.add_argument("--fresh", action="store_true", help="count again")
    parser.add_argument("--page", action="store_true", help="write the page of what is counted")
    options = parser.parse_args()
    torch.set_num_threads(1)  # its threads wait for each other where the cores are busy
    if options.page:
        found: Rows = json.loads(COUNTS.read_text())
        kinds = {name: comparison_of(op, name) for name, op in operators().items()}
        found |= {name: {"absent": how} for name, how in kinds.items() if isinstance(how, str)}
    else:
        found = count(options.most, options.operator, options.fresh)
    PAGE.write_text(page(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
