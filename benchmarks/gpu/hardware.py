"""What only a card can prove: memory is counted right, it comes back, nothing is overwritten.

    python -m benchmarks.gpu.hardware [--only hang] [--seconds 8]

Each proof is a process of its own with a time limit, since some of them break the card's context on
purpose: `memory` compares counters with those of NVIDIA's driver, `astray` writes to an address
that is nobody's, `hang` keeps a queue busy beyond a deadline, `copies` the queue of copies behind
it, `never` with a kernel that would go on for minutes, `reuse` overwrites results, freed memory and
arguments as fast as it can while it checks all numbers.  Prints one line each; ends with 1 unless
all hold.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from random import Random

import numpy as np
from benchmarks.gpu import planted

from tilework import Tensor, jit
from tilework.base.errors import DeviceError, DeviceLostError, DeviceTimeoutError, TileworkError
from tilework.base.ledger import LEDGER
from tilework.engine.device import Device
from tilework.runtime.buffer import Buffer
from tilework.runtime.drivers.cuda import CudaDriver

_PAGE_BYTES = 2 << 20
_KEPT_PAGES = 8
#: Calls that are refused before a card that failed is closed, and as many after.
_REFUSED_OPEN = 2
_CYCLES = 2
#: How long a kernel of `hang` runs, and how long somebody waits for it.
_SPIN_SECONDS, _PATIENCE_SECONDS = 2.0, 0.3
_NEVER_SECONDS = 20.0


def _driver() -> CudaDriver:
    found = Device["CUDA"].driver
    assert isinstance(found, CudaDriver)
    return found


def check(holds: object, what: str) -> None:
    """End the proof unless `holds`."""
    if not holds:
        raise SystemExit(f"WRONG: {what}")


def memory(seconds: float) -> str:
    """BKE-14: what the counters say beside what NVIDIA's driver says."""
    device, random = Device["CUDA"], Random(1)
    driver = _driver()
    device.allocate(64).close()

    def taken() -> int:
        free, total = driver.memory_of_card()
        return total - free

    def counted() -> int:
        found = driver.memory_used()
        return found["used"] + found["kept"]

    first, own = taken(), counted()
    live: list[Buffer] = []
    worst, steps = 0.0, 0
    ends = time.perf_counter() + seconds
    while time.perf_counter() < ends:
        steps += 1
        if live and random.random() < 0.48:
            live.pop(random.randrange(len(live))).close()
        else:
            live.append(device.allocate(int(2 ** random.uniform(4, 28))))
        if random.random() < 0.02:
            driver.allocator.trim()
        blocks = max(len(live) + driver.allocator.kept_count(), 1)
        apart = abs((taken() - first) - (counted() - own))
        worst = max(worst, apart / blocks)
        check(apart <= _PAGE_BYTES * blocks, f"{apart} bytes apart with {blocks} blocks")
    for buffer in live:
        buffer.close()
    driver.allocator.trim()
    # NVIDIA's driver keeps some pages that it cuts small blocks from.
    check(taken() - first <= _KEPT_PAGES * _PAGE_BYTES, f"{taken() - first} bytes are missing")
    return (
        f"{steps} steps, at most {worst:.0f} bytes apart for each block;"
        f" {taken() - first} bytes stay with NVIDIA's driver at the end"
    )


def _use() -> Callable[[float], list[float]]:
    """A captured function, as a graph, and what it must give."""
    step = jit(lambda x: (x * 2).contiguous().realize() + 1)

    def call(number: float) -> list[float]:
        x = Tensor(np.array([number, number + 1], np.float32), device="CUDA").realize()
        for _ in range(3):
            found: list[float] = step(x).tolist()
        check(found == [2 * number + 1, 2 * number + 3], f"{found} for {number}")
        return found

    return call


def _come_back(use: Callable[[float], list[float]], number: float) -> float:
    """Close the card, open it again and use it; returns the seconds of that."""
    started = time.perf_counter()
    Device["CUDA"].close()
    use(number)
    return time.perf_counter() - started


def astray(seconds: float) -> str:
    """BKE-12: after a write to nobody's address all that follows says that the process must end."""
    _use()(0.0)
    device = Device["CUDA"]
    buffer = device.allocate(8 * planted.THREADS)
    program = planted.load(device, "astray")
    planted.start(device, program, buffer, [1])
    refused = 0
    for call in (device.synchronize, lambda: device.allocate(64), lambda: None, lambda: None):
        try:
            call()
            Device["CUDA"].allocate(64)
        except TileworkError as error:
            check("start the process again" in str(error), f"no advice: {error}")
            check(refused or "astray" in str(error), f"the kernel is not named: {error}")
            refused += 1
        if refused == _REFUSED_OPEN:
            device.close()
    check(refused == _REFUSED_OPEN * 2, "a card took work after a kernel had failed")
    return "the error names the kernel; the card, open, closed and opened anew, says what helps"


def _hang(seconds: float, *, is_copying: bool = False, runs: float = _SPIN_SECONDS) -> str:
    use, late, times = _use(), [], []
    use(0.0)
    for cycle in range(_CYCLES if runs <= _SPIN_SECONDS else 1):
        device = Device["CUDA"]
        driver = _driver()
        buffer = device.allocate(8 * planted.THREADS)
        program = planted.load(device, "spin")
        if is_copying:
            driver.peers.queue(is_copying=True)
        planted.start(device, program, buffer, [int(runs * 1e9)])
        if is_copying:
            mark = driver.peers.mark(is_copying=False)
            driver.peers.after(mark, is_copying=True)
        device.wait_seconds = _PATIENCE_SECONDS
        started = time.perf_counter()
        try:
            device.synchronize()
        except DeviceTimeoutError as error:
            notes = " ".join(error.__notes__)
            check("spin" in notes, f"the error does not name the kernel: {notes}")
        else:
            check(False, "nobody noticed")
        late.append(time.perf_counter() - started)
        try:
            device.allocate(64)
        except DeviceLostError:
            pass
        else:
            check(False, "a lost card took work")
        times.append(_come_back(use, float(cycle)))
        if is_copying:
            check(_driver().peers.queue(is_copying=True), "no queue of copies")
    return f"noticed after {max(late):.2f} s, back in {max(times):.2f} s at most"


def hang(seconds: float) -> str:
    """BKE-12: a kernel that takes longer than somebody waits."""
    return _hang(seconds)


def copies(seconds: float) -> str:
    """BKE-12: a queue of copies that waits for such a kernel."""
    return _hang(seconds, is_copying=True)


def never(seconds: float) -> str:
    """BKE-12: a kernel that goes on: the card comes back, or says in time that it does not."""
    started = time.perf_counter()
    try:
        return _hang(seconds, runs=_NEVER_SECONDS)
    except DeviceError as error:
        waited = time.perf_counter() - started
        return f"after {waited:.1f} s: {str(error).splitlines()[0]}"


def reuse(seconds: float) -> str:
    """GEN-07: rings of results, freed blocks and arguments are overwritten after their last use."""
    random, checked = Random(2), 0
    ring = jit(lambda x, y: ((x * 3).contiguous().realize() - y, (x + y).contiguous()), outputs=3)
    size, parts = 1 << 16, (1, 1000, 1 << 13, 60001)
    inputs = [
        Tensor(np.full(size, number, np.int32), device="CUDA").realize() for number in range(8)
    ]
    ends = time.perf_counter() + seconds
    while time.perf_counter() < ends:
        readers, wanted = [], []
        for _ in range(200):
            a, b = random.randrange(8), random.randrange(8)
            first, second = ring(inputs[a], inputs[b])
            # Reads both slots, and waits behind what fills others.
            readers.append((first * 1000 + second).realize())
            wanted.append((3 * a - b) * 1000 + a + b)
            freed = (inputs[a][: random.choice(parts)] + b).contiguous().realize()
            again = (freed * 2).realize()
            del freed  # its block goes to whoever asks next
            other = (inputs[b] * 5).realize()
            readers += [again.max(), other.min()]
            wanted += [2 * (a + b), 5 * b]
            if random.random() < 0.1:
                readers.append(Tensor(np.full(7, a, np.int32), device="CUDA").max())
                wanted.append(a)
        Tensor.realize(*readers)
        for reader, want in zip(readers, wanted, strict=True):
            found = reader.numpy()
            check(bool((found == want).all()), f"{found} instead of {want}")
        checked += len(readers)
    return f"{checked} results, all right"


PROOFS: dict[str, Callable[[float], str]] = {
    "memory": memory,
    "astray": astray,
    "hang": hang,
    "copies": copies,
    "never": never,
    "reuse": reuse,
}


def main() -> int:
    """Run each proof in a process of its own, or one of them here."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=sorted(PROOFS))
    parser.add_argument("--seconds", type=float, default=5.0, help="of those that have no end")
    parser.add_argument("--limit", type=float, default=90.0, help="of one process")
    given = parser.parse_args()
    if given.only:
        print(f"{given.only}: {PROOFS[given.only](given.seconds)}", flush=True)
        Device.close_all()
        left = LEDGER.snapshot()
        check(not left or given.only in ("never", "astray"), f"not given back: {left}")
        return 0
    failed = 0
    for name in PROOFS:
        command = [sys.executable, "-m", "benchmarks.gpu.hardware", "--only", name]
        command += ["--seconds", str(given.seconds)]
        try:
            failed |= subprocess.run(command, timeout=given.limit, check=False).returncode
        except subprocess.TimeoutExpired:
            print(f"{name}: its time was up", flush=True)
            failed = 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
