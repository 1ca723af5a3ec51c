"""One command: check sums over several cards, time each way to do them beside PyTorch's NCCL.

    python -m benchmarks.gpu.collectives --cards 2 --out table.md

First the numbers: sums of fresh random inputs of several dtypes and odd sizes, by each way, against
a sum in float64; then a few captured training steps against one card.  Then times: a captured step
whose only work is the sum, medians of host time over batches of runs that are waited for together.
`GB/s` is the bandwidth of the bus as NCCL's own tests count it: 2 (n - 1) / n of the bytes on each.
`--kind CPU` checks the same on devices of the host, without peers.  `--processes 2` does it with as
many processes, each with one card, beside PyTorch's NCCL of as many: `benchmarks.gpu.processes`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from tilework import Tensor, distributed, jit, nn
from tilework.base.errors import TileworkError
from tilework.base.settings import override
from tilework.engine.device import Device
from tilework.nn.state import get_parameters

WAYS = ("naive", "all2all", "ring", "library")
CHECKED = (("float32", 1e-6), ("bfloat16", 8e-3), ("int32", 0.0))
ODD_SIZES = (1, 7, 1 << 10, (1 << 18) + 13)


def exact_inputs(count: int, size: int, dtype: str, seed: int | None = None) -> Any:
    """Random rows, one for each card, as float64 that the dtype holds."""
    random = np.random.default_rng(seed)
    if dtype == "int32":
        return random.integers(-1000, 1000, (count, size)).astype(np.float64)
    rows = random.standard_normal((count, size)).astype(np.float32)
    if dtype == "bfloat16":
        rows = (rows.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    return rows.astype(np.float64)


def check_sums(devices: tuple[str, ...], way: str, seed: int | None = None) -> list[str]:
    """What is wrong with the sums of one way; empty if nothing is.

    Args:
        devices: that hold the parts.
        way: for messages.
        seed: of the inputs, where several processes must have the same.
    """
    faults = []
    for dtype, tolerance in CHECKED:
        for size in ODD_SIZES:
            rows = exact_inputs(len(devices), size, dtype, seed)
            x = Tensor(rows.astype(np.float32)).cast(dtype).shard(devices, 0).realize()
            step = jit(lambda x: x.sum(0))
            for _ in range(3):  # plainly, captured, and recorded
                parts = [part.numpy().astype(np.float64) for part in step(x).shards()]
                worst = np.abs(parts[0] - rows.sum(0)).max()
                if worst > tolerance * max(1.0, np.abs(rows).sum(0).max()):
                    faults.append(f"{way}, {dtype} x {size}: off by {worst:.3g}")
                if any(not np.array_equal(parts[0], part) for part in parts[1:]):
                    faults.append(f"{way}, {dtype} x {size}: the cards differ")
    return faults


class Net:
    """Two layers."""

    def __init__(self) -> None:
        self.up, self.down = nn.Linear(64, 256), nn.Linear(256, 10)

    def __call__(self, x: Tensor) -> Tensor:
        return self.down(self.up(x).relu())


def losses(devices: tuple[str, ...], place: Callable[..., None] | None) -> list[float]:
    """Losses of some captured training steps."""
    Tensor.manual_seed(1)
    net = Net()
    if place is not None:
        place(get_parameters(net), devices)
    optimizer = nn.optim.AdamW(get_parameters(net), lr=0.01)

    @jit
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = net(x).sparse_categorical_crossentropy(y)
        loss.backward()
        optimizer.step()
        return loss

    random, found = np.random.default_rng(0), []
    with Tensor.train():
        for _ in range(8):
            x = Tensor(random.standard_normal((96, 64)).astype(np.float32))
            y = Tensor(random.integers(0, 10, 96).astype(np.int32))
            if place is not None:
                x, y = x.shard(devices, 0), y.shard(devices, 0)
            found.append(float(step(x.realize(), y.realize()).item()))
    return found


def check_training(devices: tuple[str, ...], way: str) -> list[str]:
    """What training over cards gets wrong; empty if nothing is."""
    return compare_training(devices, way, losses((devices[0],), None))


def compare_training(devices: tuple[str, ...], way: str, wanted: list[float]) -> list[str]:
    """What training over cards gets wrong against the losses of one; empty if nothing is."""
    faults = []
    for name, place in (
        ("data parallel", distributed.replicate),
        ("fully sharded", distributed.fully_shard),
    ):
        got = losses(devices, place)
        if not np.allclose(got, wanted, rtol=1e-4):
            faults.append(f"{way}, {name}: {got} instead of {wanted}")
    return faults


def seconds_of(devices: tuple[str, ...], size_bytes: int, repeat: int) -> float:
    """The time of a captured sum of float32 values of so many bytes on each card."""
    parts = [Tensor.rand(1, size_bytes // 4, device=each).realize() for each in devices]
    x = distributed.assemble(parts)

    @jit
    def step(x: Tensor) -> Tensor:
        return x.sum(0)

    batch = max(1, min(20, (1 << 28) // size_bytes))
    found = []
    for number in range(repeat + 3):
        for name in devices:
            Device[name].synchronize()
        started = time.perf_counter()
        for _ in range(batch):
            step(x)
        for name in devices:
            Device[name].synchronize()
        if number >= 3:
            found.append((time.perf_counter() - started) / batch)
    return statistics.median(found)


def peer_seconds(count: int, size_bytes: int, repeat: int) -> float | None:
    """The same by PyTorch's NCCL in this process; None without it."""
    try:
        import torch
        import torch.cuda.nccl as collectives
    except ImportError:
        return None
    if torch.cuda.device_count() < count:
        return None
    rows = [torch.rand(size_bytes // 4, device=f"cuda:{number}") for number in range(count)]
    batch = max(1, min(20, (1 << 28) // size_bytes))
    found = []
    for number in range(repeat + 3):
        for card in range(count):
            torch.cuda.synchronize(card)
        started = time.perf_counter()
        for _ in range(batch):
            collectives.all_reduce(rows)
        for card in range(count):
            torch.cuda.synchronize(card)
        if number >= 3:
            found.append((time.perf_counter() - started) / batch)
    return statistics.median(found)


def table(devices: tuple[str, ...], sizes: list[int], repeat: int, ways: list[str]) -> list[str]:
    """Rows of times and bandwidths."""
    count = len(devices)
    peer_name = "NCCL (PyTorch)"
    lines = [f"| bytes | {' | '.join([*ways, peer_name])} |", "|" + " --- |" * (len(ways) + 2)]
    for size in sizes:
        cells = []
        for way in ways:
            with override(allreduce=way):
                cells.append(seconds_of(devices, size, repeat))
        peer = peer_seconds(count, size, repeat) if devices[0].startswith("CUDA") else None
        moved = 2 * (count - 1) / count * size
        texts = [
            "" if each is None else f"{each * 1e6:.1f} us, {moved / each / 1e9:.1f} GB/s"
            for each in (*cells, peer)
        ]
        lines.append(f"| {size} | {' | '.join(texts)} |")
        print(lines[-1], flush=True)
    return lines


def main() -> int:
    """Check, time, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cards", type=int, default=2)
    parser.add_argument("--kind", default="CUDA")
    parser.add_argument("--sizes", default="65536,1048576,16777216,268435456,1073741824")
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--processes", type=int, default=0)
    given = parser.parse_args()
    if given.processes:
        # That module has what it needs of this one.
        from benchmarks.gpu.processes import start

        return start(given.processes, given.kind, given.sizes, given.repeat, given.out)
    devices = tuple([f"{given.kind}:{number}" for number in range(given.cards)])
    faults: list[str] = []
    ways = []
    for way in WAYS:
        with override(allreduce=way):
            choice = distributed.choose_allreduce(
                1 << 20, len(devices), "links" if given.kind == "CUDA" else "host"
            )
            print(f"{way}: {choice.explain()}", flush=True)
            try:
                found = check_sums(devices, way) + check_training(devices, way)
            except TileworkError as error:
                found = [f"{way}: {error}"]
            faults += found
            ways.append(way)
            print(f"{way}: {'; '.join(found) or 'right'}", flush=True)
    lines = [f"{date.today()}, {given.cards} x {Device[devices[0]].spec.name}", ""]
    lines += table(devices, [int(size) for size in given.sizes.split(",")], given.repeat, ways)
    if faults:
        lines += ["", "WRONG:", *faults]
    if given.out:
        given.out.write_text("\n".join(lines) + "\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
