"""Judge the generated cases of tests/differential and write docs/generated-cases.md.

Usage: `python scripts/write_generated_cases.py [--device DEVICE] [--total TOTAL]
[--family FAMILY] [--fresh] [--page]`.

Without options everything that is not counted yet: 20,000 cases on the CPU (about an hour on one
core), and the 2,000 of `make test` on the CPU and on the other devices. What was counted is kept in
docs/generated-cases.json, so that an interrupted run goes on where it was, in the middle of a
family too; `--fresh` counts what is asked for again. What is wrong is printed, and makes the
status 1.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.differential.generated.draw import FAMILIES, Drawn, cases_of, shares  # noqa: E402
from tests.differential.generated.judge import judge  # noqa: E402
from tests.differential.test_generated import FEW, MANY, OTHERS  # noqa: E402

from tilework.base import settings  # noqa: E402

PAGE = ROOT / "docs" / "generated-cases.md"
COUNTS = ROOT / "docs" / "generated-cases.json"

#: (device, cases in all, where the drawing starts, what the table is called), as the tests have it.
SWEEPS = (
    ("CPU", MANY, 2, "20,000 cases on the CPU"),
    *((device, FEW, 1, f"The 2,000 of `make test` on `{device}`") for device in ("CPU", *OTHERS)),
)
#: Seconds after which the counts of an unfinished family are written.
KEPT_EVERY = 20
Rows = dict[str, dict[str, Any]]


def read() -> Rows:
    """Return what was counted before."""
    return dict(json.loads(COUNTS.read_text())) if COUNTS.exists() else {}


def revision() -> str:
    """Return the revision of the sources, or an empty text outside a repository."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def key_of(device: str, total: int, family: str) -> str:
    """Return the name of a row."""
    return f"{device}/{total}/{family}"


def count(device: str, total: int, number: int, family: str) -> list[str]:
    """Judge a family's cases, go on where an interrupted run was, and return what is wrong."""
    key, wanted = key_of(device, total, family), shares(total)[family]
    row = read().get(key, {})
    done, seconds = row.get("batches", 0), row.get("seconds", 0)
    dtypes: Counter[str] = Counter(row.get("dtypes", {}))
    began, kept, faults = time.process_time(), time.monotonic(), list[str]()
    batches = list(cases_of(family, wanted, number))
    for place, batch in enumerate(batches[done:], done + 1):
        found = Drawn()
        found.add(batch, judge(batch, device))
        faults += found.faults
        dtypes.update(found.dtypes)
        row = {
            "operations": len(FAMILIES[family]),
            "batches": place,
            "cases": row.get("cases", 0) + len(found.structures),
            "wrong": row.get("wrong", 0) + len(found.faults),
            "differentiated": row.get("differentiated", 0) + found.differentiated,
            "dtypes": dict(dtypes),
            "seconds": seconds + round(time.process_time() - began),
            "date": date.today().isoformat(),
            "revision": revision() if place == len(batches) else "",
            "whole": place == len(batches),
        }
        for fault in found.faults:
            print(f"{key}: {fault}", flush=True)
        if place == len(batches) or time.monotonic() > kept + KEPT_EVERY:
            kept = time.monotonic()
            keep(key, row)
    print(key, row["cases"], "cases", row["wrong"], "wrong", row["seconds"], "s", flush=True)
    return faults


def keep(key: str, row: dict[str, Any]) -> None:
    """Write a row to the file, which another process may have changed."""
    text = json.dumps(read() | {key: row}, indent=1, sort_keys=True) + "\n"
    whole = COUNTS.with_suffix(f".{os.getpid()}")
    whole.write_text(text)
    whole.replace(COUNTS)  # never seen half written


def page(rows: Rows) -> str:
    """Return the page."""
    lines = [
        "# Generated cases",
        "",
        "Made by `python scripts/write_generated_cases.py`; do not edit.",
        "",
        "A case is an operation with dtypes, shapes, views and parameters that hypothesis draws",
        "(`tests/differential/generated`); two are distinct if more than their random numbers",
        "differs. An operand is a view of a larger tensor: flips, permutations, expanded axes,",
        "slices with steps of either sign and picked indices, up to four of them in turn. Values",
        "are plain, positive, tied, extreme, NaN, infinite or of the whole range of the dtype.",
        "Integers must be equal to PyTorch's (NumPy's, for what PyTorch does not have); floats",
        "are compared with PyTorch's answer in float64, within the bound of the operation, which",
        "is told beside it; so are gradients, wherever the values are finite.",
        "",
        "`make test` judges the 2,000 on the CPU and the first of each family on the other",
        "devices; `make test-full` judges 20,000 on the CPU and all of the 2,000 on the others.",
        "Seconds are those of one core, with the drawing and with PyTorch's side.",
    ]
    for device, total, _, title in SWEEPS:
        lines += ["", f"## {title}", "", *_table(rows, device, total)]
    return "\n".join(lines) + "\n"


def _table(rows: Rows, device: str, total: int) -> list[str]:
    """Return the table of a sweep, with its sum."""
    lines = [
        "| family | operations | cases | with gradients | wrong | seconds | run on | revision |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    sums: Counter[str] = Counter()
    dtypes: Counter[str] = Counter()
    columns = ("operations", "cases", "differentiated", "wrong", "seconds")
    for family in FAMILIES:
        row = rows.get(key_of(device, total, family))
        if not row:
            lines.append(f"| {family} | | | | | | not yet | |")
            continue
        sums.update({column: row[column] for column in columns})
        dtypes.update(row["dtypes"])
        cells = " | ".join(str(row[column]) for column in columns)
        when = f"{row['date']} | {row['revision']}" if row["whole"] else "in part |"
        lines.append(f"| {family} | {cells} | {when} |")
    lines.append(f"| all | {' | '.join(str(sums[column]) for column in columns)} | | |")
    kinds = ", ".join(f"{name} {dtypes[name]}" for name in sorted(dtypes))
    return [*lines, "", f"Operands by dtype: {kinds}."]


def main() -> int:
    """Count and write; return the exit status."""
    parser = argparse.ArgumentParser(description="Judge the generated cases.")
    parser.add_argument("--device", help="that of the rows to count, all by default")
    parser.add_argument("--total", type=int, choices=(FEW, MANY), help="of which sweep")
    parser.add_argument("--family", choices=list(FAMILIES), help="one of the families")
    parser.add_argument("--fresh", action="store_true", help="count again")
    parser.add_argument("--page", action="store_true", help="write the page of what is counted")
    options = parser.parse_args()
    wrong = False
    # No kernel of an older compiler, and each pass verified, as in the tests.
    settings.install(settings.Settings(cache_dir=None, verify="pass", compile_workers=1))
    for device, total, number, _ in () if options.page else SWEEPS:
        if options.device not in (None, device) or options.total not in (None, total):
            continue
        for family in [options.family] if options.family else FAMILIES:
            key = key_of(device, total, family)
            if options.fresh:
                keep(key, {})
            if not read().get(key, {}).get("whole"):
                wrong |= bool(count(device, total, number, family))
    PAGE.write_text(page(read()), encoding="utf-8")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
