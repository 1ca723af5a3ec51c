"""Run every kind of kernel under NVIDIA's `compute-sanitizer`, and see that it would tell.

    python -m benchmarks.gpu.sanitize --out report.md        # or: make sanitize-gpu
    python -m benchmarks.gpu.sanitize --suite                # the behaviour suite instead

First without a checker, which fills the cache of compiled code and says whether the results are
right.  Then once for each tool (memcheck, racecheck, synccheck), a process with a time limit each.
Last, for each tool a kernel with a fault of its sort, which it must find: a checker that says
nothing about those says nothing about ours.  Racecheck gets programs in which each thread that has
read a slot hands it back by itself (`kinds --release`): it follows no order through a barrier and
then one thread's signal (docs/cuda.md).  Ends with 1 unless all of this is so.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from pathlib import Path

#: Each tool, and the kernel of `planted` that it must find fault with.
TOOLS = {"memcheck": "outside", "racecheck": "race", "synccheck": "divergent"}
_FOUND = 9
_SUMMARY = re.compile(r"^=+ *(?:ERROR|RACECHECK) SUMMARY: *(.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """What a process said; `status` is None where its time was up."""

    what: str
    status: int | None
    seconds: float
    text: str

    @property
    def summary(self) -> str:
        """The tool's last line, or ours."""
        found = _SUMMARY.findall(self.text)
        if self.status is None:
            return "its time was up"
        return found[-1] if found else f"ended with {self.status}"


def run(what: str, command: Sequence[str], seconds: float) -> Outcome:
    """Run a process of at most so many seconds, and keep what it says."""
    started = time.perf_counter()
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            timeout=seconds, env=environment, check=False,
        )  # fmt: skip
        status, raw = done.returncode, done.stdout
    except subprocess.TimeoutExpired as error:
        status, raw = None, error.stdout or b""
    text = raw.decode(errors="replace")
    found = Outcome(what, status, time.perf_counter() - started, text)
    print(f"{what}: {found.summary}, {found.seconds:.0f} s", flush=True)
    return found


def checked(tool: str, sanitizer: str, module: Sequence[str]) -> list[str]:
    """The command that runs a module of Python under a tool."""
    options = ["--tool", tool, "--error-exitcode", str(_FOUND), "--print-limit", "200"]
    if tool == "racecheck":
        options += ["--racecheck-report", "analysis", "--show-backtrace", "no"]
        module = [*module, "--release"] if module[0] == "benchmarks.gpu.kinds" else module
    return [sanitizer, *options, sys.executable, "-m", *module]


def main() -> int:
    """Check, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sanitizer", default="compute-sanitizer")
    parser.add_argument("--tools", default=",".join(TOOLS))
    parser.add_argument("--only", default="", help="programs whose name contains this")
    parser.add_argument("--suite", action="store_true", help="take `tilework conformance CUDA`")
    parser.add_argument("--seconds", type=float, default=300.0, help="of each process at most")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    programs = ["tilework", "conformance", "CUDA"] if given.suite else ["benchmarks.gpu.kinds"]
    programs += ["--only", given.only]
    plain = run("without a checker", [sys.executable, "-m", *programs], given.seconds)
    tools = given.tools.split(",")
    with ThreadPoolExecutor(given.jobs) as pool:
        clean = [
            pool.submit(run, tool, checked(tool, given.sanitizer, programs), given.seconds)
            for tool in tools
        ]
        planted = [
            pool.submit(
                run,
                f"{tool}, a planted fault",
                checked(tool, given.sanitizer, ["benchmarks.gpu.planted", TOOLS[tool]]),
                given.seconds,
            )
            for tool in tools
        ]
    rows = [plain, *(job.result() for job in (*clean, *planted))]
    wrong = [row for row in rows[: len(tools) + 1] if row.status != 0]
    wrong += [row for row in rows[len(tools) + 1 :] if row.status != _FOUND]
    count = plain.text.count(": right")
    lines = [
        f"{date.today()}, {count} programs",
        "",
        "| process | says | seconds |",
        "| - | - | - |",
    ]
    lines += [f"| {row.what} | {row.summary} | {row.seconds:.0f} |" for row in rows]
    lines += [f"\n## {row.what}\n\n```\n{row.text[-60000:]}\n```" for row in wrong]
    if given.out:
        given.out.write_text("\n".join(lines) + "\n")
    print("\n".join(lines[: 4 + len(rows)]), flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
