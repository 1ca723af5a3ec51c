"""One command: check tilework on fresh random inputs, time it and its peers in turn, write a table.

    python -m benchmarks.gpu --only matmul --out table.md

Times are medians of device time over `--repeat` runs, tilework and each peer in turn, on inputs
that are larger than the caches.  A result is compared with the peer's arithmetic in float64 on the
same inputs; a row that is wrong has no time.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any

import torch
from benchmarks.gpu.cases import Case, cases

from tilework import Tensor, dtypes, jit
from tilework.engine.device import Device


class _Foreign:
    """Memory of a tilework tensor as PyTorch takes it."""

    def __init__(self, address: int, shape: tuple[int, ...], kind: str) -> None:
        self.__cuda_array_interface__ = {
            "shape": shape, "typestr": kind, "data": (address, False), "version": 2,
            "strides": None,
        }  # fmt: skip


def as_torch(x: Tensor) -> Any:
    """The same memory as a tensor of PyTorch; it must be realised."""
    buffer = x._storage.version.buffer
    kinds = {"float32": "<f4", "bfloat16": "<i2", "float16": "<f2", "int32": "<i4"}
    name = x.dtype.name
    wrapped = torch.as_tensor(_Foreign(buffer.address, tuple(x.shape), kinds[name]), device="cuda")
    return wrapped.view(torch.bfloat16) if name == "bfloat16" else wrapped


def random_input(shape: tuple[int, ...], dtype: str, scale: float) -> tuple[Tensor, Any]:
    """A tensor of normal random numbers, seen by both."""
    ours = Tensor.zeros(*shape, dtype=getattr(dtypes, dtype), device="CUDA").contiguous().realize()
    theirs = as_torch(ours)
    theirs.normal_(0.0, scale)
    torch.cuda.synchronize()
    return ours, theirs


def difference(got: Any, case: Case, inputs: list[Any]) -> float:
    """The distance from the result in float64, relative to its size; NaN where it has one."""
    reference = next(iter(case.peers.values()))
    torch.backends.cuda.matmul.allow_tf32 = False
    want = reference(*[x.double() for x in inputs])
    error = (got.double() - want.double()).norm() / want.double().norm()
    return float(error)


def time_peer(function: Any, inputs: list[Any], repeat: int) -> float:
    """The median seconds of device time."""
    for _ in range(3):
        function(*inputs)
    torch.cuda.synchronize()
    seconds = []
    # Something to do for the card, so that the time is its own and not that of the host's queueing.
    runway = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    for _ in range(repeat):
        runway.fill_(0)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        function(*inputs)
        end.record()
        end.synchronize()
        seconds.append(start.elapsed_time(end) * 1e-3)
    return statistics.median(seconds)


def run_case(case: Case, repeat: int) -> dict[str, Any]:
    """One row of the table."""
    pairs = [random_input(*row) for row in case.inputs]
    ours, theirs = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    row: dict[str, Any] = {"case": case.name}
    function = jit(case.ours)
    started = time.perf_counter()
    result = function(*ours)
    result.realize()
    row["compile"] = time.perf_counter() - started
    row["error"] = difference(as_torch(result), case, theirs)
    if not row["error"] <= case.tolerance:
        row["wrong"] = True
    latency = function.measure(window=repeat, kernels=True)
    for _ in range(repeat + 2):
        function(*ours)
    row["tilework"] = sum(latency.kernel_seconds())
    for name, peer in case.peers.items():
        row[name] = time_peer(peer, theirs, repeat)
    return row


def main() -> int:
    """Run, print and write the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repeat", type=int, default=15)
    arguments = parser.parse_args()
    Device.DEFAULT = "CUDA"
    lines = [
        f"{date.today()}, {torch.cuda.get_device_name(0)}, {Device['CUDA'].backend.probe().driver},"
        f" PyTorch {torch.__version__}", "",
        "| case | tilework | of it | peers | ratio to the best | relative error | first call |",
        "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    failed = 0
    for case in cases(torch):
        if not re.search(arguments.only, case.name):
            continue
        row = run_case(case, arguments.repeat)
        failed += bool(row.get("wrong"))
        lines.append(_line(case, row))
        print(lines[-1], flush=True)
        torch.cuda.empty_cache()
    if arguments.out is not None:
        arguments.out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 1 if failed else 0


def _line(case: Case, row: dict[str, Any]) -> str:
    def rate(seconds: float) -> str:
        if case.flops:
            return f"{case.flops / seconds * 1e-12:.1f} TFLOP/s"
        return f"{case.moved_bytes / seconds * 1e-12:.2f} TB/s"

    peers = {name: row[name] for name in case.peers}
    best = min(peers.values())
    wrong = " WRONG" if row.get("wrong") else ""
    text = ", ".join(f"{name} {rate(seconds)}" for name, seconds in peers.items())
    return (
        f"| {case.name} | {row['tilework'] * 1e3:.3f} ms | {rate(row['tilework'])}{wrong} |"
        f" {text} | {best / row['tilework']:.2f} | {row['error']:.1e} | {row['compile']:.2f} s |"
    )


if __name__ == "__main__":
    sys.exit(main())
