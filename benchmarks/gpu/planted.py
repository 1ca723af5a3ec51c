"""Kernels that do wrong on purpose, to see that checkers and recovery notice.

    python -m benchmarks.gpu.planted outside

`outside` writes behind its buffer, `race` reads shared memory that another warp writes, with no
barrier between, `divergent` has a barrier that half of a warp leaves out; `astray` writes to an
address that is nobody's, and `spin` keeps the card busy for as many nanoseconds as it is told.
`handed_by_all`, `handed_by_one` and `handed_bare` hand shared memory back by mbarriers: each reader
signals, or one after a barrier of all (both right), or one with no barrier before it.
They go the way of every kernel: NVIDIA's compiler, `load` and `submit`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from tilework.base.clock import WaitLimit
from tilework.base.errors import TileworkError
from tilework.engine.device import Device, OpenDevice
from tilework.runtime.buffer import Buffer
from tilework.runtime.driver import KernelCode, Launch, Program
from tilework.target.cuda_code import SOURCE_HEAD
from tilework.toolchain.nvrtc import NvrtcToolchain

THREADS = 64
#: One warp writes cells eight times, the other one reads them and hands them back.
_HANDED = """
    __shared__ long long cells[64];
    __shared__ unsigned long long full, empty;
    const unsigned f = (unsigned)__cvta_generic_to_shared(&full);
    const unsigned e = (unsigned)__cvta_generic_to_shared(&empty);
    auto make = [](unsigned signal, unsigned count) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(signal), "r"(count));
    };
    auto wait = [](unsigned signal, unsigned parity) {
      asm volatile("{ .reg .pred q;\\nagain_%=:\\n"
                   "mbarrier.try_wait.parity.shared::cta.b64 q, [%0], %1;\\n"
                   "@!q bra again_%=;\\n}" ::"r"(signal), "r"(parity) : "memory");
    };
    auto arrive = [](unsigned signal) {
      asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(signal) : "memory");
    };
    if (threadIdx.x == 0) { make(f, 32); make(e, COUNT); }
    __syncthreads();
    long long sum = 0;
    for (int i = 0; i < 8; i++) {
      if (threadIdx.x < 32) {
        wait(e, (i & 1) ^ 1); cells[threadIdx.x] = number + i; arrive(f);
      } else {
        wait(f, i & 1); sum += cells[63 - threadIdx.x];
        DONE
      }
    }
    out[threadIdx.x] = sum;"""
_BARRIER = 'asm volatile("bar.sync 1, 32;" ::: "memory");'
_ONE = "if (threadIdx.x == 32) arrive(e);"


def _handed(count: int, done: str) -> str:
    return _HANDED.replace("COUNT", str(count)).replace("DONE", done)


_BODIES = {
    "handed_by_all": _handed(32, "arrive(e);"),
    "handed_by_one": _handed(1, _BARRIER + _ONE),
    "handed_bare": _handed(1, _ONE),
    "right": "out[threadIdx.x] = number;",
    "outside": "out[threadIdx.x + (1 << 20)] = number;",
    "race": """
    __shared__ long long cells[64];
    cells[threadIdx.x] = number + threadIdx.x;
    out[threadIdx.x] = cells[63 - threadIdx.x];""",
    "divergent": """
    if (threadIdx.x % 2) { __syncthreads(); }
    out[threadIdx.x] = number;""",
    "astray": "*(volatile long long*)0x10 = number; out[threadIdx.x] = number;",
    "spin": """
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - start < number);
    out[threadIdx.x] = number;""",
}


def load(device: OpenDevice, name: str) -> Program:
    """Compile a kernel of one buffer of 64 numbers and one variable, and load it."""
    head: dict[str, Any] = {
        "name": name, "threads": THREADS, "shared": 0, "scratch": 0, "buffers": 1, "variables": 1,
        "has_any": False, "is_persistent": False, "boxes": [], "widths": "8", "waits": False,
    }  # fmt: skip
    source = f"""{SOURCE_HEAD}{json.dumps(head)}
extern "C" __global__ void {name}(long long* out, long long number, long long* fault, char* more) {{
    {_BODIES[name]}
}}
"""
    data = NvrtcToolchain(device.spec).compile(source)
    code = KernelCode(name=name, data=data, num_buffers=1, num_variables=1, writes=(0,))
    return device.driver.load([code])


def start(device: OpenDevice, program: Program, buffer: Buffer, numbers: Sequence[int]) -> int:
    """Queue one launch for each number; returns the last ticket."""
    kernel = program.kernels[0]
    device.last_ticket = device.driver.submit(
        [Launch(kernel, (buffer,), (number,), grid=(1,)) for number in numbers]
    )
    return device.last_ticket


def main() -> int:
    """Run one of them; what tilework says of it is printed."""
    device = Device["CUDA"]
    buffer = device.allocate(8 * THREADS)
    try:
        program = load(device, sys.argv[1])
        device.driver.wait(start(device, program, buffer, [7]), WaitLimit.of(60.0))
    except TileworkError as error:
        print(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
