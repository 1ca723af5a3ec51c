"""What each elementary function costs: nanoseconds for an element, and at its slowest inputs.

Usage: `python -m tilework.testing.accuracy.cost --save COSTS.json`, on a machine that does nothing
else.  One thread, arrays that stay in the second cache.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilework import Tensor, jit
from tilework.base import settings
from tilework.testing.accuracy.sweep import BINARY, SKIPPED, function_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilework.codegen.decompose.builder import Dtype

#: Elements of an array, and runs of which the fastest and the slowest count.
ELEMENTS = 2**15
RUNS = 60
#: Kinds of inputs: ordinary ones, and those at which other libraries branch off.
KINDS = ("ordinary", "huge", "tiny", "special")


def inputs(kind: str, dtype: Dtype) -> Any:
    """An array of one kind of numbers."""
    generator = np.random.default_rng(1)
    info = np.finfo(dtype)
    if kind == "ordinary":
        return generator.uniform(0.05, 0.95, ELEMENTS).astype(dtype)
    if kind == "huge":
        return (generator.uniform(0.5, 1, ELEMENTS) * float(info.max)).astype(dtype)
    if kind == "tiny":
        return (generator.uniform(0, 1, ELEMENTS) * float(info.tiny)).astype(dtype)
    edges = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0], dtype)
    return generator.choice(edges, ELEMENTS)


def _function(name: str) -> Callable[..., Tensor]:
    def call(*operands: Tensor) -> Tensor:
        found: Tensor = getattr(operands[0], name)(*operands[1:])
        return found

    return call


def measure(name: str, dtype: Dtype) -> dict[str, float]:
    """Return the nanoseconds for an element by kind of inputs, each the median of all runs.

    `slowest` is the greatest of these; `longest` the longest run of all, which holds whatever the
    machine did besides.
    """
    captured = jit(_function(name))
    count = 2 if name in BINARY else 1
    found: dict[str, float] = {}
    longest = 0.0
    for kind in KINDS:
        operands = [Tensor(inputs(kind, dtype)).realize() for _ in range(count)]
        for _ in range(5):
            captured(*operands)
        times = []
        for _ in range(RUNS):
            start = time.perf_counter_ns()
            captured(*operands)
            times.append((time.perf_counter_ns() - start) / ELEMENTS)
        found[kind] = round(sorted(times)[RUNS // 2], 3)
        longest = max(longest, *times)
    return found | {"slowest": max(found.values()), "longest": round(longest, 3)}


def main() -> None:
    """Measure all functions and save the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--save", type=Path, help="JSON file that collects the costs")
    options = parser.parse_args()
    costs: dict[str, Any] = {}
    kinds: tuple[Dtype, ...] = ("float32", "float64")
    with settings.override(num_threads=1):
        for dtype in kinds:
            for name in options.names or function_names(dtype):
                if name in SKIPPED or name.endswith("_limited"):
                    continue
                costs[f"{name} {dtype}"] = measure(name, dtype)
                sys.stdout.write(f"{name} {dtype} {costs[f'{name} {dtype}']}\n")
    if options.save:
        options.save.write_text(json.dumps(costs, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
