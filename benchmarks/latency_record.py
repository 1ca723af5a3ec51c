"""What it costs to note where the time of a call goes: calls with and without a record, in turns.

    python benchmarks/latency_record.py [--rounds 40] [--json]

Medians over rounds of the least time of a call.  The record may cost 1 microsecond, or 2 % of the
call where that is more; the exit status is 1 if it costs more.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from statistics import median
from typing import Any

import numpy as np

from tilework import Tensor, jit

#: Elements of the sizes that are timed.  A record costs the same for all; times of large arrays
#: vary by more than that with where the arrays lie.
SIZES = (16, 1 << 10, 1 << 14)
CALLS = 200


def least_seconds(step: Any, x: Tensor) -> float:
    """The least time of a call, after which the result is dropped."""
    found = float("inf")
    for _ in range(CALLS):
        start = time.perf_counter()
        step(x)
        found = min(found, time.perf_counter() - start)
    return found


def compare(size: int, rounds: int) -> dict[str, float]:
    """Seconds of a call without and with a record."""
    x = Tensor(np.ones(size, np.float32)).realize()
    step = jit(lambda x: x * 2 + 1)
    for _ in range(10):
        step(x)
    plain: list[float] = []
    noted: list[float] = []
    for number in range(2 * rounds):
        is_noted = number % 4 in (1, 2)  # in turns, each as often after the other as before it
        if is_noted:
            step.measure()
        (noted if is_noted else plain).append(least_seconds(step, x))
        if is_noted:
            step.stop_measuring()
    cost = median(noted) - median(plain)
    return {"elements": size, "plain": median(plain), "noted": median(noted), "cost": cost}


def main() -> int:
    """Print the rows; return 1 if a record costs too much."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    rows = [compare(size, options.rounds) for size in SIZES]
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        for row in rows:
            times = " ".join(
                f"{row[key] * 1e6:9.2f} us {key}" for key in ("plain", "noted", "cost")
            )
            print(f"{row['elements']:8} elements: {times}")
    return int(any(row["cost"] > max(1e-6, 0.02 * row["plain"]) for row in rows))


if __name__ == "__main__":
    sys.exit(main())
