"""Sums and copies over cards of several processes: checks, and times beside torch's NCCL.

`python -m benchmarks.gpu.collectives --processes 2` starts as many of this, each with a card, as a
launcher would; rank 0 prints.  All ranks draw the same inputs, of which each uploads its own share.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.gpu import collectives

from tilework import Tensor, distributed, jit
from tilework.base.errors import TileworkError
from tilework.base.settings import override
from tilework.engine.device import Device

WAYS = ("auto", "naive", "all2all", "ring")


def start(processes: int, kind: str, sizes: str, repeat: int, out: Path | None) -> int:
    """Start the ranks, and wait for all of them; the worst of their results."""
    with socket.socket() as free, socket.socket() as other:
        free.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        port, peer_port = free.getsockname()[1], other.getsockname()[1]
    seed = int.from_bytes(os.urandom(4), "little")
    command = [
        sys.executable, "-m", "benchmarks.gpu.processes", "--kind", kind, "--sizes", sizes,
        "--repeat", str(repeat), "--seed", str(seed), "--peer-port", str(peer_port),
        *(["--out", str(out)] if out else []),
    ]  # fmt: skip
    ranks = []
    for rank in range(processes):
        given = {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(processes),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "NCCL_NVLS_ENABLE": "0",
        }  # fmt: skip
        ranks.append(subprocess.Popen(command, env={**os.environ, **given}))
    return max(abs(each.wait()) for each in ranks)


def check_copies(group: distributed.Processes, seed: int) -> list[str]:
    """What is wrong with parts that other ranks get; empty if nothing is."""
    faults = []
    for dtype in ("float32", "bfloat16", "int32", "uint8"):
        for size in (1, 7, (1 << 18) + 13):
            rows = collectives.exact_inputs(group.size, size, "int32", seed) % 100
            x = Tensor(rows).cast(dtype).shard(group.devices, 0).realize()
            turn = jit(lambda x: x.flip(0).shard_like(x).contiguous())
            for _ in range(3):
                found = x.shard(group.devices, None)
                if (found.numpy().astype("float64") != rows).any():
                    faults.append(f"gathered {dtype} x {size}: wrong")
                if (turn(x).numpy().astype("float64") != rows[::-1]).any():
                    faults.append(f"turned {dtype} x {size}: wrong")
    return faults


def check_training(group: distributed.Processes, way: str) -> list[str]:
    """What training over all ranks gets wrong against one card; empty if nothing is."""
    alone = "CPU" if group.device.startswith("WORLD+CPU") else f"CUDA:{group.world.local_rank}"
    with override(dev=alone):
        wanted = collectives.losses((), None)
    return collectives.compare_training(group.devices, way, wanted)


def timed(group: distributed.Processes, batch: int, repeat: int, run: Callable[[], Any]) -> float:
    """The median time of `run`, over batches that all ranks begin together."""
    own = Device[group.device]
    found = []
    for number in range(repeat + 3):
        own.synchronize()
        group.barrier()
        started = time.perf_counter()
        for _ in range(batch):
            run()
        own.synchronize()
        if number >= 3:
            found.append((time.perf_counter() - started) / batch)
    return statistics.median(found)


def sum_seconds(group: distributed.Processes, size_bytes: int, repeat: int) -> float:
    """The time of a captured sum of float32 values of so many bytes on each card."""
    parts = [Tensor.rand(1, size_bytes // 4, device=each).realize() for each in group.devices]
    x = distributed.assemble(parts)
    step = jit(lambda x: x.sum(0))
    return timed(group, _batch(size_bytes), repeat, lambda: step(x))


def copy_seconds(group: distributed.Processes, size_bytes: int, repeat: int) -> float:
    """The time of a captured copy of so many bytes from the first card to the second."""
    x = Tensor.rand(size_bytes // 4, device=group.devices[0]).realize()
    step = jit(lambda x: x.to(group.devices[1]).contiguous())
    return timed(group, _batch(size_bytes), repeat, lambda: step(x))


def _batch(size_bytes: int) -> int:
    return max(1, min(20, (1 << 28) // size_bytes))


class Peer:
    """PyTorch's NCCL in the same processes."""

    def __init__(self, group: distributed.Processes, port: int) -> None:
        import torch
        import torch.distributed as ranks

        self._torch, self._ranks, self._group = torch, ranks, group
        torch.cuda.set_device(group.world.local_rank)
        ranks.init_process_group(
            "nccl", init_method=f"tcp://127.0.0.1:{port}", rank=group.rank, world_size=group.size
        )

    def seconds(self, size_bytes: int, repeat: int) -> float:
        """The time of a sum in place."""
        row = self._torch.rand(size_bytes // 4, device="cuda")
        found = []
        batch = _batch(size_bytes)
        for number in range(repeat + 3):
            self._torch.cuda.synchronize()
            self._group.barrier()
            started = time.perf_counter()
            for _ in range(batch):
                self._ranks.all_reduce(row)
            self._torch.cuda.synchronize()
            if number >= 3:
                found.append((time.perf_counter() - started) / batch)
        return statistics.median(found)

    def close(self) -> None:
        """Leave."""
        self._ranks.destroy_process_group()


def find_peer(group: distributed.Processes, port: int) -> Peer | None:
    """PyTorch, where it is installed and sees as many cards; the same answer on all ranks."""
    try:
        import torch
    except ImportError:
        return None
    is_there = group.device.startswith("WORLD+CUDA") and torch.cuda.device_count() >= group.size
    return Peer(group, port) if is_there else None


def table(
    group: distributed.Processes, sizes: list[int], repeat: int, peer: Peer | None
) -> list[str]:
    """Rows of times and bandwidths: of sums by each way, and of copies."""
    names = [*WAYS, "NCCL (PyTorch)", "a copy"]
    lines = [f"| bytes | {' | '.join(names)} |", "|" + " --- |" * (len(names) + 1)]
    for size in sizes:
        cells: list[tuple[float, float] | None] = []
        moved = 2 * (group.size - 1) / group.size * size
        for way in WAYS:
            with override(allreduce=way):
                cells.append((sum_seconds(group, size, repeat), moved))
        cells.append(None if peer is None else (peer.seconds(size, repeat), moved))
        cells.append((copy_seconds(group, size, repeat), size))
        texts = [
            "" if cell is None else f"{cell[0] * 1e6:.1f} us, {cell[1] / cell[0] / 1e9:.1f} GB/s"
            for cell in cells
        ]
        lines.append(f"| {size} | {' | '.join(texts)} |")
        if group.rank == 0:
            print(lines[-1], flush=True)
    return lines


def check(group: distributed.Processes, seed: int) -> list[str]:
    """All that is wrong with numbers; rank 0 tells of each way."""
    topology = "processes" if group.device.startswith("WORLD+CUDA") else "host"
    faults = []
    for way in WAYS:
        with override(allreduce=way):
            choice = distributed.choose_allreduce(1 << 20, group.size, topology)
            found = collectives.check_sums(group.devices, way, seed)
            if way in ("auto", "naive"):
                found += check_training(group, way)
        faults += found
        if group.rank == 0:
            print(f"{way}: {choice.explain()}: {'; '.join(found) or 'right'}", flush=True)
    before = group.sent_bytes
    found = check_copies(group, seed)
    if group.rank == 0:
        sent = group.sent_bytes - before
        print(f"copies: {'; '.join(found) or 'right'}; {sent} B through the host", flush=True)
    return faults + found


def main() -> int:
    """Check and time as one rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", default="CUDA")
    parser.add_argument("--sizes", default="65536")
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--peer-port", type=int, default=0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    try:
        with distributed.init(given.kind, wait_seconds=120) as group:
            faults = check(group, given.seed)
            peer = find_peer(group, given.peer_port)
            sizes = [int(size) for size in given.sizes.split(",")]
            name = Device[group.device].spec.name
            lines = [f"{date.today()}, {group.size} processes, each with one {name}", ""]
            lines += table(group, sizes, given.repeat, peer)
            if peer is not None:
                peer.close()
            lines += ["", "WRONG:", *faults] if faults else []
            if given.out and group.rank == 0:
                given.out.write_text("\n".join(lines) + "\n")
    except TileworkError as error:
        print(f"a rank has failed: {error}", flush=True)
        return 2
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
