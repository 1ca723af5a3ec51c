"""Rows that the comparison with peers has not: time of tilework beside PyTorch and NumPy.

    python benchmarks/rows.py [--only TEXT] [--seconds 0.3]

All run in one process, in turns, on two threads; each row's results are compared first.  What has
a size that depends on values (`unique`, `nonzero`) is called as it is, the rest is captured.  The
figures are milliseconds, the least of the turns.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from operator_rows import best

from tilework import Tensor, TinyJit

if TYPE_CHECKING:
    from collections.abc import Callable

COUNT = 1_000_000
ROUNDS = 3


class Row(NamedTuple):
    """One computation in the three packages, on the same arrays."""

    name: str
    arrays: tuple[Any, ...]
    ours: Callable[..., Any]
    torch: Callable[..., Any]
    numpy: Callable[..., Any] | None
    is_captured: bool = True


def rows() -> list[Row]:
    rng = np.random.default_rng(0)
    floats = rng.standard_normal(COUNT, dtype=np.float32)
    square = floats.reshape(1000, 1000)
    few = rng.integers(0, 1000, COUNT)
    mask = floats > 0
    edges = np.sort(rng.standard_normal(4096, dtype=np.float32))
    found = [
        Row("unique", (few,), lambda x: x.unique(), lambda x: x.unique(), np.unique, False),
        Row("nonzero", (mask,), lambda x: x.nonzero(), lambda x: x.nonzero(), np.argwhere, False),
        Row(
            "masked_select", (floats, mask), lambda x, m: x.masked_select(m),
            lambda x, m: x.masked_select(m), lambda x, m: x[m], False,
        ),
        Row("bincount", (few,), lambda x: x.bincount(minlength=1000),
            lambda x: x.bincount(minlength=1000), lambda x: np.bincount(x, minlength=1000), False),
        Row(
            "histc", (floats,), lambda x: x.histc(100, -4.0, 4.0),
            lambda x: x.histc(100, -4.0, 4.0),
            lambda x: np.histogram(x, 100, (-4.0, 4.0))[0].astype(np.float32),
        ),
        Row("searchsorted", (edges, floats), lambda e, x: Tensor.searchsorted(e, x),
            torch.searchsorted, np.searchsorted),
        Row("tan", (floats,), lambda x: x.tan(), torch.tan, np.tan),
        Row(
            "reflect pad", (square,), lambda x: x.pad((16, 16, 16, 16), mode="reflect"),
            lambda x: torch.nn.functional.pad(x[None], (16, 16, 16, 16), mode="reflect")[0],
            lambda x: np.pad(x, 16, mode="reflect"),
        ),
        Row("topk(1) of rows", (square,), lambda x: x.topk(1)[0], lambda x: x.topk(1)[0],
            lambda x: x.max(1, keepdims=True)),
        Row("topk(8) of rows", (square,), lambda x: x.topk(8)[0], lambda x: x.topk(8)[0], None),
    ]  # fmt: skip
    for kind in ("int64", "float64", "float16", "uint8"):
        x = (rng.standard_normal(COUNT) * 50).astype(kind)
        found.append(
            Row(f"sort {kind}", (x,), lambda x: x.sort()[0], lambda x: x.sort()[0], np.sort)
        )
        # Sums of small types have types of their own, which differ.
        total = x if kind != "float16" else (x / 1000).astype(kind)
        found.append(
            Row(f"cumsum {kind}", (total,), lambda x: x.cumsum(0), lambda x: x.cumsum(0), np.cumsum)
        )
    return found


def measure(row: Row, seconds: float) -> tuple[dict[str, float], str]:
    ours = [Tensor(array).realize() for array in row.arrays]
    theirs = [torch.from_numpy(array) for array in row.arrays]

    def compute(*tensors: Any) -> Any:
        return row.ours(*tensors).realize()

    run = TinyJit(compute) if row.is_captured else compute
    for _ in range(2):
        got = run(*ours).numpy()
    want = row.torch(*theirs).numpy()
    is_same = got.shape == want.shape and np.allclose(got, want, rtol=2e-2, atol=1e-2)
    calls = {"tilework": lambda: run(*ours), "torch": lambda: row.torch(*theirs)}
    if row.numpy is not None:
        plain = row.numpy
        calls["numpy"] = lambda: plain(*row.arrays)
    times = {name: float("inf") for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            times[name] = min(times[name], best(call, seconds / ROUNDS))
    return times, "" if is_same else "differs"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="only rows whose name contains this")
    parser.add_argument("--seconds", type=float, default=0.3, help="for each row and package")
    options = parser.parse_args()
    torch.set_num_threads(2)
    print(f"{'':18}{'tilework':>10}{'torch':>10}{'numpy':>10}{'ratio':>8}")
    for row in rows():
        if options.only not in row.name:
            continue
        times, note = measure(row, options.seconds)
        cells = "".join(
            f"{times.get(name, float('nan')):10.3f}" for name in ("tilework", "torch", "numpy")
        )
        peer = min(least for name, least in times.items() if name != "tilework")
        print(f"{row.name:18}{cells}{peer / times['tilework']:8.2f} {note}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
