"""`tilework bench`: built-in kernels, or a model, timed over many calls."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

from tilework.base.errors import UserError
from tilework.base.records import dataclass
from tilework.base.text import format_seconds
from tilework.engine.device import Device
from tilework.onnx import OnnxRunner
from tilework.tensor.jit import jit
from tilework.tensor.tensor import Tensor
from tilework.tools.console import Console
from tilework.tools.inputs import read_input, seeded_inputs
from tilework.tools.measure import time_calls
from tilework.tools.run import parse_sizes

_WARM_UP = 3


@dataclass(frozen=True, slots=True)
class Workload:
    """One built-in kernel: its inputs' shapes, and what a call costs."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    function: Callable[..., Tensor]
    flops: float = 0.0
    moved_bytes: float = 0.0


WORKLOADS = (
    Workload("matmul 256", ((256, 256),) * 2, lambda a, b: a.matmul(b), 2.0 * 256**3),
    Workload("matmul 1024", ((1024, 1024),) * 2, lambda a, b: a.matmul(b), 2.0 * 1024**3),
    Workload(
        "conv 3x3, 64 channels, 56x56",
        ((1, 64, 56, 56), (64, 64, 3, 3)),
        lambda x, w: x.conv2d(w, padding=1),
        2.0 * 64 * 64 * 9 * 56 * 56,
    ),
    Workload(
        "softmax 1024 x 1024",
        ((1024, 1024),),
        lambda x: x.softmax(-1),
        moved_bytes=2.0 * 4 * 1024**2,
    ),
    Workload(
        "a * b + c, 4 M elements",
        ((1 << 22,),) * 3,
        lambda a, b, c: a * b + c,
        moved_bytes=4.0 * 4 * (1 << 22),
    ),
    Workload("sum, 4 M elements", ((1 << 22,),), lambda x: x.sum(), moved_bytes=4.0 * (1 << 22)),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of `tilework bench`."""
    parser.add_argument("model", nargs="?", help="an .onnx file; built-in kernels if left out")
    parser.add_argument("--only", metavar="TEXT", help="only kernels whose name contains this")
    parser.add_argument("--device", help="where to run; the default device if left out")
    parser.add_argument("--repeat", type=int, default=50, metavar="N", help="calls to time")
    parser.add_argument("--input", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=N")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(arguments: argparse.Namespace) -> int:
    """Time and print."""
    if arguments.repeat < 1:
        raise UserError("--repeat: at least one call is timed", got=arguments.repeat)
    console = Console(is_json=arguments.json)
    device = Device.canonicalize(arguments.device)
    if arguments.model:
        found = [_model(arguments, console)]
    else:
        wanted = [w for w in WORKLOADS if arguments.only is None or arguments.only in w.name]
        if not wanted:
            names = "; ".join(w.name for w in WORKLOADS)
            raise UserError("--only: no kernel has such a name", got=arguments.only, expected=names)
        with console.progress("timing", total=len(wanted)) as progress:
            found = []
            for workload in wanted:
                progress.advance(0, workload.name)
                found.append(_kernel(workload, device, arguments.repeat))
                progress.advance()
    console.result({"device": device, "results": found})
    console.table(
        f"{device}, {arguments.repeat} calls each",
        ["what", "p50", "p99", "least", "GFLOP/s", "GB/s"],
        [_row(row) for row in found],
    )
    return 0


def _row(row: dict[str, Any]) -> list[str]:
    seconds = [format_seconds(row[key] / 1e3) for key in ("p50_ms", "p99_ms", "min_ms")]
    rates = [row.get("gflops"), row.get("gb_per_s")]
    return [row["name"], *seconds, *["" if rate is None else f"{rate:.4g}" for rate in rates]]


def _kernel(workload: Workload, device: str, repeat: int) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    tensors = [
        Tensor(generator.standard_normal(shape).astype(np.float32), device=device).realize()
        for shape in workload.shapes
    ]
    captured = jit(lambda *xs: workload.function(*xs).realize())
    opened = Device[device]

    def call() -> None:
        captured(*tensors)
        opened.synchronize()

    for _ in range(_WARM_UP):
        call()
    latency = time_calls(call, repeat)
    found: dict[str, Any] = {"name": workload.name, **latency.to_milliseconds()}
    if workload.flops:
        found["gflops"] = workload.flops / latency.p50 / 1e9
    if workload.moved_bytes:
        found["gb_per_s"] = workload.moved_bytes / latency.p50 / 1e9
    return found


def _model(arguments: argparse.Namespace, console: Console) -> dict[str, Any]:
    runner = OnnxRunner(arguments.model, arguments.device)
    given = dict(read_input(pair, runner.inputs) for pair in arguments.input)
    inputs = seeded_inputs(runner, given, parse_sizes(arguments.dim), arguments.seed)
    tensors = runner.place(inputs)

    def call() -> None:
        runner(tensors)
        runner.wait()

    with console.progress("compiling") as progress:
        for _ in range(_WARM_UP):
            call()
        progress.describe("timing")
        latency = time_calls(call, arguments.repeat)
    return {"name": arguments.model, **latency.to_milliseconds()}
