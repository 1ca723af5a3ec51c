"""One command: check tilework on fresh random inputs, time it and its peers in turn, write a table.

    python -m benchmarks.gpu --only matmul --out table.md

Times are medians of device time over `--repeat` runs, tilework and each peer in turn, between two
events around whole calls that the card finds queued.  A result is compared with the first peer's
arithmetic in a wider dtype on the same inputs; a wrong row says so.  `host` is the time that a call
of the captured function keeps the host.
"""

from __future__ import annotations

import argparse
import gc
import re
import statistics
import sys
import time
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import torch
from benchmarks.gpu.case import Case
from benchmarks.gpu.cases import cases

from tilework import Tensor, dtypes, jit
from tilework.base.errors import TileworkError
from tilework.base.settings import override
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
    buffer: Any = x._storage.version.buffer
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


def exact_results(case: Case, inputs: list[Any]) -> list[Any]:
    """What the first peer makes of the inputs in a wider dtype."""
    reference = next(iter(case.peers.values()))
    _allow_tf32(False)
    return _several(reference(*[x.to(getattr(torch, case.exact)) for x in inputs]))


def difference(got: list[Tensor], exact: list[Any]) -> float:
    """The distance from the exact results, relative to their size; NaN where they have one."""
    Device["CUDA"].synchronize()
    error = 0.0
    for mine, want in zip(map(as_torch, got), exact, strict=True):
        own = (mine.double() - want.double()).norm() / want.double().norm()
        error = max(error, float(own)) if own == own else float("nan")
    return error


def _several(found: Any) -> list[Any]:
    return list(found) if isinstance(found, (list, tuple)) else [found]


def _allow_tf32(allowed: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


def seconds_of(run: Callable[[], Any], stream: Any, repeat: int) -> tuple[float, float]:
    """The median seconds of device time, and those that the call keeps the host."""
    device, host = [], []
    # Something to do for the card, so that the time is its own and not that of the host's queueing.
    runway = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    # Read last, so that no run pays for writes of the runway that are still in the cache.
    clean = torch.ones(1 << 26, dtype=torch.float32, device="cuda")
    with torch.cuda.stream(stream):
        for _ in range(repeat + 3):
            for _ in range(4):
                runway.fill_(0)
            clean.amax()
            start, end = (_mark() for _ in range(2))
            start.record(stream)
            began = time.perf_counter()
            run()
            host.append(time.perf_counter() - began)
            end.record(stream)
            end.synchronize()
            device.append(start.elapsed_time(end) * 1e-3)
    return statistics.median(device[3:]), statistics.median(host[3:])


def _mark() -> Any:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def as_graph(peer: Callable[..., Any], inputs: list[Any]) -> Callable[[], Any]:
    """A peer's work captured once; replaying it is one launch."""
    peer(*inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        peer(*inputs)
    return graph.replay


def run_case(case: Case, repeat: int) -> dict[str, Any]:
    """One row of the table."""
    pairs = [random_input(*row) for row in case.inputs]
    ours, theirs = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    row: dict[str, Any] = {"case": case.name}
    driver: Any = Device["CUDA"].driver
    stream = torch.cuda.ExternalStream(driver.stream)  # type: ignore[no-untyped-call]
    with override(**case.settings):
        function = jit(case.ours)
        started = time.perf_counter()
        results = _several(function(*ours))
        for result in results:
            result.realize()
        Device["CUDA"].synchronize()
        row["compile"] = time.perf_counter() - started
        exact = exact_results(case, theirs)
        first = difference(results, exact)
        for _ in range(3):
            results = _several(function(*ours))
        # Replays run as graphs, in which kernels overlap.
        row["error"] = max(first, difference(results, exact), key=lambda x: (x != x, x))
        row["wrong"] = not row["error"] <= case.tolerance
        del exact, results
        row["tilework"], row["host"] = seconds_of(lambda: function(*ours), stream, repeat)
    _allow_tf32(case.allows_tf32)
    for name, peer in case.peers.items():
        run = as_graph(peer, theirs) if case.is_graph else partial(peer, *theirs)
        for _ in range(3):
            run()
        torch.cuda.synchronize()
        row[name], _ = seconds_of(run, torch.cuda.current_stream(), repeat)
    return row


def main() -> int:
    """Run, print and write the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=1e9, help="start no row after so many")
    arguments = parser.parse_args()
    Device.DEFAULT = "CUDA"
    lines = [
        f"{date.today()}, {torch.cuda.get_device_name(0)}, {Device['CUDA'].backend.probe().driver},"
        f" PyTorch {torch.__version__}", "",
        "| case | tilework | of it | peers | ratio to the best | error | first call | host |",
        "|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    failed, began = 0, time.monotonic()
    for case in cases(torch):
        if not re.search(arguments.only, case.name):
            continue
        try:
            row = run_case(case, arguments.repeat)
        except (TileworkError, RuntimeError) as error:
            lines.append(f"| {case.name} | failed: {type(error).__name__}: {str(error)[:300]} |")
            failed += 1
        else:
            failed += bool(row["wrong"])
            lines.append(_line(case, row))
        print(lines[-1], flush=True)
        gc.collect()
        torch.cuda.empty_cache()
        if time.monotonic() - began > arguments.seconds:
            lines.append("the time is up")
            break
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
    wrong = " WRONG" if row["wrong"] else ""
    text = ", ".join(f"{name} {rate(seconds)}" for name, seconds in peers.items())
    return (
        f"| {case.name} | {row['tilework'] * 1e3:.3f} ms | {rate(row['tilework'])}{wrong} |"
        f" {text} | {best / row['tilework']:.2f} | {row['error']:.1e} | {row['compile']:.2f} s |"
        f" {row['host'] * 1e6:.0f} us |"
    )


if __name__ == "__main__":
    sys.exit(main())
