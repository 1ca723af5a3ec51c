"""Memory of its own for one kernel, and timed runs of it under plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tilework.base.errors import TileworkError
from tilework.engine.bench_data import contents, index_limits
from tilework.engine.compile import compile_with_plan
from tilework.ir.node import toposort
from tilework.ir.ops.memory import PARAM
from tilework.runtime.driver import Launch

if TYPE_CHECKING:
    from tilework.codegen.plan.kinds import AnyPlan
    from tilework.dtypes import DType
    from tilework.engine.device import OpenDevice
    from tilework.engine.steps import KernelCall
    from tilework.ir.node import Node
    from tilework.runtime.buffer import Buffer
    from tilework.runtime.driver import Program

#: Runs of one plan take about so long, and are at least so many.
_SECONDS_PER_PLAN: Final = 0.02
_LEAST_RUNS: Final = 3
_MOST_RUNS: Final = 200
#: Runs of each plan where two are compared, in turns.
_TURNS: Final = 5


class KernelBench:
    """Memory for one kernel, and runs of it.

    Args:
        call: A launch of the kernel, which says how large its operands are.
        sink: The kernel.
        device: Where it runs.
    """

    def __init__(self, call: KernelCall, sink: Node, device: OpenDevice) -> None:
        self._call = call
        self._sink = sink
        self._device = device
        dtypes = {n.attrs.slot: n.attrs.dtype for n in toposort(sink) if n.op is PARAM}
        self._dtypes = [dtypes.get(slot) for slot in range(len(call.operands))]
        self._buffers: list[Buffer] = []
        self._contents: list[bytes] = []
        limits = index_limits(sink)
        for slot, (operand, dtype) in enumerate(zip(call.operands, self._dtypes, strict=True)):
            self._buffers.append(device.allocate(max(operand.size_bytes, 1), zero=True))
            self._contents.append(contents(dtype, operand.size_bytes, limits.get(slot)))
        self._written: list[bytes] = []

    def seconds(self, plan: AnyPlan) -> float:
        """The least time of several runs under a plan, after one that fills caches.

        Raises: what compiling and running raise.
        """
        program, launch = self._loaded(plan)
        try:
            first = self._first(launch)
            runs = int(_SECONDS_PER_PLAN / max(first, 1e-7))
            times = self._device.driver.time([launch] * min(max(runs, _LEAST_RUNS), _MOST_RUNS))
            return min(times)
        finally:
            program.close()

    def compared(self, plan: AnyPlan, other: AnyPlan) -> tuple[float, float]:
        """The least times of both plans, run in turns, so that both see the same disturbances.

        Raises: what compiling and running raise.
        """
        program, launch = self._loaded(plan)
        try:
            second, rival = self._loaded(other)
            try:
                first = self._first(launch)
                runs = min(max(int(_SECONDS_PER_PLAN / max(first, 1e-7)), _LEAST_RUNS), _MOST_RUNS)
                own: list[float] = []
                others: list[float] = []
                for _ in range(_TURNS):
                    own += self._device.driver.time([launch] * runs)[1:]
                    others += self._device.driver.time([rival] * runs)[1:]
                return min(own), min(others)
            finally:
                second.close()
        finally:
            program.close()

    def rounds(self, plans: Sequence[AnyPlan], count: int) -> list[float | None]:
        """The least time of each plan over `count` rounds through all of them.

        A disturbance that lasts meets all plans of a round, and no plan in all rounds.  None for a
        plan that does not compile.
        """
        loaded: list[tuple[Program, Launch] | None] = []
        least: list[float | None] = [None] * len(plans)
        try:
            for plan in plans:
                try:
                    loaded.append(self._loaded(plan))
                except TileworkError:
                    loaded.append(None)
            for _ in range(count):
                for place, entry in enumerate(loaded):
                    if entry is None:
                        continue
                    first = self._first(entry[1])
                    runs = int(_SECONDS_PER_PLAN / count / max(first, 1e-7))
                    runs = min(max(runs, _LEAST_RUNS), _MOST_RUNS)
                    seconds = min(self._device.driver.time([entry[1]] * runs))
                    known = least[place]
                    least[place] = seconds if known is None else min(known, seconds)
        finally:
            for entry in loaded:
                if entry is not None:
                    entry[0].close()
        return least

    def results(self) -> list[tuple[bytes, DType | None]]:
        """What the first run under the last plan has written, and the dtypes."""
        slots = self._call.code.writes
        return [(data, self._dtypes[slot]) for data, slot in zip(self._written, slots, strict=True)]

    def close(self) -> None:
        """Give the memory back."""
        for buffer in self._buffers:
            buffer.close()

    def _loaded(self, plan: AnyPlan) -> tuple[Program, Launch]:
        code = compile_with_plan(self._device, self._sink, plan)
        program = self._device.driver.load([code.as_code()])
        launch = Launch(
            program.kernels[0],
            tuple(self._buffers),
            (),
            grid=(code.tasks.evaluate({}),),
            is_serial=self._call.is_serial,
        )
        return program, launch

    def _first(self, launch: Launch) -> float:
        """The time of a run on fresh contents, whose results are kept."""
        for buffer, data in zip(self._buffers, self._contents, strict=True):
            if data:
                self._device.copy_in(buffer, memoryview(data))
        (seconds,) = self._device.driver.time([launch])
        self._written = [bytes(self._bytes(slot)) for slot in self._call.code.writes]
        return seconds

    def _bytes(self, slot: int) -> bytearray:
        data = bytearray(self._buffers[slot].size_bytes)
        self._device.copy_out(self._buffers[slot], memoryview(data))
        return data
