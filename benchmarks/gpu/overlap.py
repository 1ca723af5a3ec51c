"""What goes on at the same time over two cards: copies and sums of gradients beside kernels, timed.

    python -m benchmarks.gpu.overlap [--kind CUDA]

First all folds of all dtypes over two cards against one processor, by each way of folding, bit for
bit: two numbers are folded in one order only.  Then captured steps, medians of host time over runs
that are waited for together: a copy from the other card, products that do not need it, and both;
a step of data-parallel training, the same without its sums of gradients, and those sums alone.
`hidden` is the share of the shorter part that takes no time beside the longer.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tilework import Tensor, autocast, distributed, dtypes, jit, nn
from tilework.base.errors import TileworkError
from tilework.base.settings import override
from tilework.engine.device import Device
from tilework.nn.state import get_parameters

WAYS = ("naive", "all2all", "ring", "library")
DTYPES = (
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "fp8e4m3", "fp8e5m2"),
)
FOLDS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda x: x.sum(0),
    "prod": lambda x: x.prod(0),
    "max": lambda x: x.max(0),
    "min": lambda x: x.min(0),
}
#: None, one, a prime, and around 64 KiB of float32, from where on other ways are taken.
SIZES = (0, 1, 10007, (1 << 14) - 1, (1 << 14) + 1)
_WIDTH, _LAYERS, _ROWS = 4096, 8, 2048


def check_folds(devices: tuple[str, ...], way: str) -> list[str]:
    """What folds of all dtypes get wrong; empty if nothing.

    Args:
        devices: that have one part each.
        way: how they fold.
    """
    random, found, wanted, names = np.random.default_rng(), [], [], []
    for dtype in DTYPES:
        for size in SIZES if dtype in ("float32", "int32") else SIZES[2:3]:
            rows = random.integers(0, 8, (len(devices), size)).astype(np.float32)
            if dtype.startswith(("float", "bf")):
                rows = random.standard_normal(rows.shape).astype(np.float32)
            whole = Tensor(rows, device="CPU").cast(dtype).realize()
            parts = Tensor(rows, device="CPU").cast(dtype).shard(devices, 0).realize()
            for name, fold in FOLDS.items():
                found.append(fold(parts))
                wanted.append(fold(whole))
                names.append(f"{way}: {name} of {dtype} x {size}")
    Tensor.realize(*found)
    Tensor.realize(*wanted)
    return [
        f"{name}, on {part.device}"
        for name, got, want in zip(names, found, wanted, strict=True)
        for part in got.shards()
        if bits(part) != bits(want)
    ]


def bits(x: Tensor) -> bytes:
    """The bytes of a tensor."""
    here = x.to("CPU").contiguous()
    words = here if x.dtype.is_bool else here.bitcast(_WORDS[x.dtype.itemsize])
    return bytes(words.numpy().tobytes())


_WORDS = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}


def seconds_of(step: Callable[[], Any], devices: tuple[str, ...], repeat: int) -> float:
    """The time of a captured step, of ten that are waited for together."""
    found = []
    for number in range(repeat + 2):
        for name in devices:
            Device[name].synchronize()
        started = time.perf_counter()
        kept = [step() for _ in range(10)]
        for name in devices:
            Device[name].synchronize()
        if number >= 2:
            found.append((time.perf_counter() - started) / 10)
        del kept
    return statistics.median(found)


def report(what: str, first: float, second: float, both: float) -> None:
    """Print the times of two parts and of both, and how much of the shorter one is hidden."""
    hidden = (first + second - both) / min(first, second)
    times = f"{first * 1e3:.2f} ms and {second * 1e3:.2f} ms, together {both * 1e3:.2f} ms"
    print(f"{what}: {times}, {100 * hidden:.0f} % hidden", flush=True)


def time_copies(devices: tuple[str, ...], repeat: int, scale: int) -> None:
    """A copy from the other card beside products."""
    x = Tensor.rand((1 << 28) // scale, device=devices[1]).realize()
    side = 8192 // scale
    a = Tensor.rand(side, side, device=devices[0]).cast("bfloat16").realize()

    def work(a: Tensor) -> Tensor:
        for _ in range(2):
            a = (a @ a).contiguous()
        return a

    copy, products = jit(lambda x: x.to(devices[0])), jit(work)
    together = jit(lambda x, a: (x.to(devices[0]), work(a)))
    times = [
        seconds_of(step, devices, repeat)
        for step in (lambda: copy(x), lambda: products(a), lambda: together(x, a))
    ]
    report("a copy between cards, and products", *times)


class Net:
    """Layers of one width."""

    def __init__(self, width: int) -> None:
        self.layers = [nn.Linear(width, width, bias=False) for _ in range(_LAYERS)]

    def __call__(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x).relu()
        return x


def training(devices: tuple[str, ...], width: int, rows: int) -> Callable[[], Any]:
    """A captured step of training, data parallel, with so many rows on each device."""
    net = Net(width)
    parameters = get_parameters(net)
    if len(devices) > 1:
        distributed.replicate(parameters, devices)
    optimizer = nn.optim.SGD(parameters, lr=1e-6)

    @jit
    def step(x: Tensor) -> Tensor:
        with Tensor.train(), autocast(dtypes.bfloat16):
            optimizer.zero_grad()
            loss = net(x).float().square().mean()
            loss.backward()
            optimizer.step()
        return loss

    x = Tensor.rand(rows * len(devices), width, device=devices[0]).realize()
    if len(devices) > 1:
        x = x.shard(devices, 0).realize()
    return lambda: step(x)


def time_training(devices: tuple[str, ...], way: str, repeat: int, scale: int) -> None:
    """Sums of gradients beside the backward pass that gives the next ones."""
    width, rows = _WIDTH // scale, _ROWS // scale
    with override(dev=devices[0]):
        alone = seconds_of(training(devices[:1], width, rows), devices, repeat)
    with override(allreduce=way, dev=devices[0]):
        both = seconds_of(training(devices, width, rows), devices, repeat)
        parts = [
            [Tensor.rand(1, width, width, device=each).realize() for each in devices]
            for _ in range(_LAYERS)
        ]
        gradients = [distributed.assemble(row).realize() for row in parts]
        sums = jit(lambda *rows: tuple([row.sum(0) for row in rows]))
        folding = seconds_of(lambda: sums(*gradients), devices, repeat)
    report(f"training, and sums of gradients ({way})", alone, folding, both)


def main() -> int:
    """Check, time, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", default="CUDA")
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--scale", type=int, default=1, help="divides all sizes")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--no-checks", action="store_true")
    given = parser.parse_args()
    devices = tuple([f"{given.kind}:{number}" for number in range(2)])
    devices = tuple([Device.canonicalize(name) for name in devices])
    faults = []
    for way in given.ways.split(",") if not given.no_checks else ():
        with override(allreduce=way):
            try:
                found = check_folds(devices, way)
            except TileworkError as error:
                found = [f"{way}: {error}"]
        print(f"{way}: {'; '.join(found[:20]) or 'right'}", flush=True)
        faults += found
    time_copies(devices, given.repeat, given.scale)
    for way in ("naive", "library"):
        time_training(devices, way, given.repeat, given.scale)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
