"""How long a call takes at worst: idle and under load, in a real-time scheduling class.

    python benchmarks/latency_under_load.py [--calls 100000] [--load none|cpu|memory] [--json]
                                            [--device CUDA]

The process asks for the class SCHED_FIFO and for locked memory, turns the collector off, and says
what it was given.  Each path is called in turn: a captured call whose kernels stay on this thread,
one whose kernels want workers, an upload and a download.  The loads are processes of the ordinary
class, two for each core, that compute or that sweep memory.  Percentiles are of single calls.  On a
device that the host runs ahead of, a captured call is timed alone and with the wait for its result.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np

from tilework import Tensor, jit
from tilework.engine.device import Device

PRIORITY = 50
WARM_CALLS = 300
LOADS = {
    "cpu": "while True: sum(i * i for i in range(10000))",
    "memory": (
        "import numpy as n\na = n.ones(1 << 23)\nb = n.ones(1 << 23)\n"
        "while True: n.copyto(a, b); n.copyto(b, a)"
    ),
}
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "max": 1.0}


def production_class() -> str:
    """Ask for a real-time class and locked memory; return what was given."""
    given = []
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
        given.append(f"SCHED_FIFO {PRIORITY}")
    except (OSError, AttributeError) as error:
        given.append(f"ordinary class ({error})")
    locked = ctypes.CDLL(None, use_errno=True).mlockall(3) == 0
    given.append("memory locked" if locked else "memory not locked")
    return ", ".join(given)


@contextlib.contextmanager
def load(kind: str) -> Iterator[None]:
    """Keep every core busy with others while the block runs."""
    count = 0 if kind == "none" else 2 * len(os.sched_getaffinity(0))
    plain = "import os; os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))\n"
    busy = [subprocess.Popen([sys.executable, "-c", plain + LOADS[kind]]) for _ in range(count)]
    try:
        if busy:
            time.sleep(1.0)
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def paths(name: str) -> dict[str, Callable[[], object]]:
    """What is timed on a device, by its name."""
    rng = np.random.default_rng(0)
    weights = [Tensor(rng.standard_normal((64, 64)).astype(np.float32)) for _ in range(3)]
    x = Tensor(rng.standard_normal((1, 64)).astype(np.float32)).realize()
    wide = Tensor(rng.standard_normal(1 << 18).astype(np.float32)).realize()

    def perceptron(value: Tensor) -> Tensor:
        for weight in weights:
            value = (value @ weight).relu()
        return value

    small = jit(perceptron)
    parallel = jit(lambda value: value * 2 + 1)
    device = Device[name]
    host = np.ones(1 << 14, np.float32)
    buffer = device.allocate(host.nbytes)

    def waited(result: object) -> object:
        device.synchronize()
        return result

    if not device.is_host_memory:
        return {
            "captured call, queued": lambda: small(x),
            "captured call, waited for": lambda: waited(small(x)),
            "captured call of one kernel": lambda: waited(parallel(wide)),
            "upload 64 KiB": lambda: device.copy_in(buffer, host.data),
            "download 64 KiB": lambda: device.copy_out(buffer, host.data),
        }
    return {
        "captured call, one thread": lambda: small(x),
        "captured call, workers": lambda: parallel(wide),
        "upload 64 KiB": lambda: device.copy_in(buffer, host.data),
        "download 64 KiB": lambda: device.copy_out(buffer, host.data),
    }


def measure(call: Callable[[], object], calls: int) -> dict[str, float]:
    """Microseconds of single calls, at quantiles."""
    for _ in range(WARM_CALLS):
        call()
    seconds = np.empty(calls)
    clock = time.perf_counter_ns
    for number in range(calls):
        start = clock()
        call()
        seconds[number] = clock() - start
    return {name: float(np.quantile(seconds, at)) * 1e-3 for name, at in QUANTILES.items()}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--load", choices=("none", *LOADS), default="none")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--device", default="CPU")
    arguments = parser.parse_args()
    Device.DEFAULT = arguments.device
    given = production_class()  # before the first call: threads of the pool get its class
    found = paths(arguments.device)
    for call in found.values():
        call()
    gc.collect()
    gc.freeze()
    gc.disable()
    with load(arguments.load):
        rows = {name: measure(call, arguments.calls) for name, call in found.items()}
    machine = f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, {platform.release()}"
    if arguments.json:
        print(json.dumps({"machine": machine, "class": given, "load": arguments.load, "us": rows}))
        return 0
    print(f"{machine}; {given}; load: {arguments.load}; {arguments.calls} calls, microseconds")
    for name, row in rows.items():
        print(f"{name:28}" + "".join(f"{key} {value:9.1f}  " for key, value in row.items()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
