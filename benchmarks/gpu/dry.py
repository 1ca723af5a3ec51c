"""Programs on a card that compiles and computes nothing: what they launch, without a GPU.

    python -m benchmarks.gpu.dry gpt2 [--layers 2]

prints how long the first call takes with nothing in the caches, the kernels that NVIDIA's compiler
takes longest for, and those that take a card longest by what they move and compute at its rates.
`--plans` leaves NVIDIA's compiler out.  Memory is promised and not taken, so models may be large.
"""

from __future__ import annotations

import argparse
import ctypes
import mmap
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from benchmarks.gpu import programs

from tilework.backends import cuda
from tilework.backends.contract import Backend, KernelSource, Opened
from tilework.backends.cuda import CudaCompiler, open_with
from tilework.base.settings import override
from tilework.codegen.plan.kinds import AnyPlan
from tilework.engine.device import Device
from tilework.engine.kernels import estimate_work
from tilework.ir.node import Node
from tilework.runtime.driver import Launch, Probe
from tilework.runtime.drivers.cuda import CudaDriver
from tilework.runtime.registry import DeviceName
from tilework.testing.emulators.cuda import EmulatedCuda

#: What an H200 says of itself, by the numbers of CUDA's header; then its memory.
_H200: Final = {16: 132, 38: 60 << 20, 36: 3_201_000, 37: 6144, 13: 1_980_000}
_MEMORY_BYTES: Final = 140 << 30
#: Bytes, and operations with matrix units and without, of a second.
_BANDWIDTH, _MATRIX, _PLAIN = 4.2e12, 6e14, 1e13
#: Threads that keep a card busy: with matrix units a block of three warp groups a multiprocessor.
_BUSY, _MATRIX_BUSY = 132 * 1024, 132 * 384
#: Linux's MAP_NORESERVE, which this Python does not name.
_NO_RESERVE: Final = 0x4000
#: Longer copies are left out: nobody looks at the numbers.
_COPIED_BYTES: Final = 4096


class CompilingCard(EmulatedCuda):
    """A card whose kernels are loaded and never run."""

    def __init__(self, capability: int) -> None:
        super().__init__(memory_bytes=_MEMORY_BYTES)
        self._facts = _H200 | {75: capability // 10, 76: capability % 10}
        self._maps: dict[int, mmap.mmap] = {}

    def attribute(self, ordinal: int, number: int) -> int:
        """A fact about the card."""
        return self._facts[number]

    def memory_allocate(self, size_bytes: int) -> int:
        """Memory that the system gives where it is touched, which nobody does."""
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
        made = mmap.mmap(-1, max(size_bytes, 4096), flags=flags)
        address = ctypes.addressof(ctypes.c_char.from_buffer(made))
        self._maps[address] = made
        return address

    def memory_free(self, address: int) -> None:
        """Give it back."""
        self._maps.pop(address, None)

    def host_allocate(self, size_bytes: int) -> int:
        """The same."""
        return self.memory_allocate(size_bytes)

    def module_load(self, cubin: bytes) -> int:
        """Nothing is loaded."""
        return self._handle("module")

    def module_unload(self, module: int) -> None:
        """Nothing was."""
        self.held["module"] -= 1

    def function(self, module: int, name: str) -> int:
        """A number."""
        self._next += 1
        return self._next

    def launch(self, *arguments: int) -> None:
        """Nothing runs."""

    def fill(self, target: int, byte: int, size_bytes: int, stream: int) -> None:
        """Only what is short is written; the driver tries its queues so."""
        if size_bytes <= _COPIED_BYTES:
            ctypes.memset(target, byte, size_bytes)

    def graph_launch(self, *arguments: int) -> None:
        """Nothing runs."""

    def _copy(self, call: str, target: int, source: int, size_bytes: int, stream: int) -> None:
        if size_bytes <= _COPIED_BYTES:
            ctypes.memmove(target, source, size_bytes)


@dataclass
class _Row:
    """One kernel: how often it is launched, how, and what a launch moves and computes."""

    count: int
    threads: int
    has_matrix: bool
    moved_bytes: int
    work: int

    @property
    def seconds(self) -> float:
        """About how long all its launches take a card."""
        busy, most = (_MATRIX_BUSY, _MATRIX) if self.has_matrix else (_BUSY, _PLAIN)
        rate = most * min(1.0, self.threads / busy)
        return self.count * max(self.work / rate, self.moved_bytes / _BANDWIDTH)


class Dry:
    """A back end that writes down what it builds and launches."""

    def __init__(self, capability: int, *, builds: bool) -> None:
        self.launched: dict[str, _Row] = {}
        self.built: dict[str, float] = {}
        self._work: dict[str, int] = {}
        self._builds = builds
        self._card = CompilingCard(capability)

    def backend(self) -> Backend:
        """What stands in the table of back ends."""
        dry = self

        class Compiler(CudaCompiler):
            is_cacheable = dry._builds

            def lower(
                self, kernel: Node, plan: AnyPlan | None = None, *, is_plain: bool = False
            ) -> KernelSource:
                source = super().lower(kernel, plan, is_plain=is_plain)
                dry._work[source.name] = estimate_work(kernel)
                return source

            def build(self, source: KernelSource) -> bytes:
                started = time.perf_counter()
                text = source.text if dry._builds else source.text.partition("\n")[0] + "\n"
                code = super().build(replace(source, text=text))
                dry.built[source.name] = time.perf_counter() - started
                return code

        def probe() -> Probe:
            return Probe(device="CUDA", is_present=True, is_openable=True, driver="dry")

        def open_card(name: DeviceName) -> Opened:
            opened = open_with(name, self._card)
            assert isinstance(opened.driver, CudaDriver)
            self._watch(opened.driver)
            return Opened(opened.driver, Compiler(opened.driver.target))

        return replace(cuda.BACKEND, summary="dry", probe=probe, open=open_card)

    def _watch(self, driver: CudaDriver) -> None:
        launch_words = driver.programs.launch_words

        def watched(launch: Launch) -> Any:
            found = launch_words(launch)
            loaded, _, blocks, _ = found
            name = launch.kernel.name
            row = self.launched.get(name)
            if row is None:
                moved = sum(buffer.size_bytes for buffer in launch.buffers)
                threads = blocks * loaded.head.threads
                has_matrix = len(loaded.head.boxes) > 1
                work = self._work.get(name, 0)
                row = self.launched[name] = _Row(0, threads, has_matrix, moved, work)
            row.count += 1
            return found

        driver.programs.launch_words = watched  # type: ignore[method-assign]

    def tables(self, rows: int) -> str:
        """What was built and launched, the longest first."""
        lines = [f"{len(self.built)} kernels built here, {sum(self.built.values()):.1f} s in all"]
        slow = sorted(self.built.items(), key=lambda item: -item[1])
        lines += [f"{seconds:8.2f} s  {name}" for name, seconds in slow[:rows]]
        total = sum(row.count for row in self.launched.values())
        seconds = sum(row.seconds for row in self.launched.values())
        lines.append(
            f"{len(self.launched)} kernels launched {total} times, {1e3 * seconds:.1f} ms in all"
        )
        long = sorted(self.launched.items(), key=lambda item: -item[1].seconds)
        lines += [
            f"{1e3 * row.seconds:8.3f} ms {row.count:4} x {row.threads:9} threads"
            f" {'matrix' if row.has_matrix else 'plain '}"
            f" {row.moved_bytes / 1e6:9.1f} MB {row.work / 1e9:9.2f} G  {name}"
            for name, row in long[:rows]
        ]
        return "\n".join(lines)


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("program", choices=sorted(programs.PROGRAMS))
    parser.add_argument("--capability", type=int, default=90)
    parser.add_argument("--layers", type=int, help="of gpt2; 12 by default")
    parser.add_argument("--rows", type=int, default=30)
    parser.add_argument("--plans", action="store_true", help="leave NVIDIA's compiler out")
    arguments = parser.parse_args()
    dry = Dry(arguments.capability, builds=not arguments.plans)
    cuda.BACKEND = dry.backend()  # type: ignore[misc]
    Device.DEFAULT = "CUDA"
    if arguments.layers:
        programs._LAYERS = arguments.layers
    program: Callable[[int], None] = programs.PROGRAMS[arguments.program]
    with override(cache_dir=None):
        program(1)
    print(dry.tables(arguments.rows))


if __name__ == "__main__":
    main()
