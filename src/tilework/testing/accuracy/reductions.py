"""The errors of reductions of many elements, against sums in extended precision.

Usage: `python -m tilework.testing.accuracy.reductions [--count N] [--save FILE.json]`.  What was
measured is kept in the file after each kind of data, so that a stopped run goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tilework import Tensor

#: Elements of the arrays that docs/accuracy.md tells of.
MANY = 10**8
DTYPES = ("float32", "float16", "bfloat16", "float64")
DATA = ("positive", "cancelling", "huge and tiny")
NAMES = ("sum", "mean", "var", "std", "norm")
#: The largest error of `MANY` elements in epsilons of the dtype that adds up (float32, or float64),
#: relative to the same reduction of magnitudes, before the result is rounded to its dtype.
BOUND = 32.0
_BLOCK = 10**6


def elements(kind: str, dtype: str, count: int) -> Tensor:
    """Return `count` elements of one kind.

    Args:
        kind: "positive" between 0 and 1; "cancelling", normal numbers whose sum is exactly 0; or
            "huge and tiny", a few numbers that are a million (thousand for 16 bits) times others.
        dtype: name of the dtype.
        count: how many, an even number.
    """
    generator = np.random.default_rng(1)
    if kind == "positive":
        x = generator.random(count, dtype=np.float32)
    elif kind == "cancelling":
        half = generator.standard_normal(count // 2, dtype=np.float32)
        x = np.concatenate([half, -half[::-1]])
    else:
        is_narrow = dtype in ("float16", "bfloat16")
        x = generator.random(count, dtype=np.float32) * np.float32(1e-3 if is_narrow else 1e-6)
        x[:: max(count // 100, 1)] = 1.0
    return Tensor(x).cast(dtype).realize()


def _folded(x: Any, change: Any) -> np.longdouble:
    parts = [np.sum(change(x[at : at + _BLOCK].astype(np.longdouble)))
             for at in range(0, x.size, _BLOCK)]  # fmt: skip
    return np.longdouble(np.sum(np.array(parts)))


def truths(x: Any) -> dict[str, tuple[np.longdouble, np.longdouble]]:
    """Return each reduction of an array, and the magnitude that its error is relative to."""
    total, magnitude = _folded(x, lambda part: part), _folded(x, np.abs)
    mean = total / x.size
    squares = _folded(x, lambda part: (part - mean) ** 2)
    var = squares / (x.size - 1)
    norm = np.sqrt(_folded(x, lambda part: part * part))
    return {
        "sum": (total, magnitude),
        "mean": (mean, magnitude / x.size),
        "var": (var, var),
        "std": (np.sqrt(var), np.sqrt(var)),
        "norm": (norm, norm),
    }


def measure(kind: str, dtype: str, count: int) -> dict[str, float]:
    """Return the error of each reduction, in epsilons of the dtype that adds up.

    What the rounding to the dtype of the result adds is not counted.
    """
    tensor = elements(kind, dtype, count)
    wanted = truths(tensor.numpy())
    found = {name: getattr(tensor, name)() for name in NAMES}
    Tensor.realize(*found.values())
    epsilon = float(np.finfo("float64" if dtype == "float64" else "float32").eps)
    errors: dict[str, float] = {}
    for name, result in found.items():
        exact, magnitude = wanted[name]
        got = np.longdouble(result.cast("float64").item())
        rounding = 0.0
        if dtype in ("float16", "bfloat16"):
            half = 2.0**-11 if dtype == "float16" else 2.0**-8
            rounding = half * float(abs(exact)) + 2.0**-25
            greatest = 65504.0 if dtype == "float16" else 3.39e38
            if abs(exact) > greatest and np.isinf(got):
                errors[name] = 0.0  # the sum is beyond the dtype, and infinite in it
                continue
        errors[name] = max(float(abs(got - exact)) - rounding, 0.0) / float(magnitude) / epsilon
    return errors


def main() -> None:
    """Measure all kinds and save the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=MANY)
    parser.add_argument("--save", type=Path, help="JSON file that collects the errors")
    options = parser.parse_args()
    save: Path | None = options.save
    known: dict[str, Any] = {}
    if save is not None and save.exists():
        known = json.loads(save.read_text())
    for dtype in DTYPES:
        for kind in DATA:
            key = f"{dtype}, {kind}"
            if key in known and known[key]["count"] >= options.count:
                continue
            known[key] = {"count": options.count, "errors": measure(kind, dtype, options.count)}
            sys.stdout.write(f"{key} {known[key]}\n")
            sys.stdout.flush()
            if save is not None:
                save.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
