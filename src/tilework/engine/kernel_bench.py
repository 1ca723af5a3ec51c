"""Memory of its own for one kernel, and timed runs of it under plans.

On a device with memory of its own, runs take turns among several copies of the operands, so that
none finds them in the cache that all share: in a program others have filled it meanwhile.  Memory
is filled by the device itself, from a few thousand numbers: the way from the host to a card takes
longer than most kernels, and the host needs no memory of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Final

from tilework.base.errors import OutOfMemoryError, TileworkError
from tilework.codegen.gpu.plan import has_blocks
from tilework.codegen.plan.extents import ceil_div
from tilework.engine.bench_data import index_limits, pattern
from tilework.engine.compile import compile_with_plan, compile_with_plans
from tilework.ir.node import toposort
from tilework.ir.ops.memory import PARAM
from tilework.runtime.driver import Copy, Launch

if TYPE_CHECKING:
    from tilework.codegen.plan.kinds import AnyPlan
    from tilework.dtypes import DType
    from tilework.engine.compile import CompiledKernel
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
#: How many copies of the operands there may be; tiny operands stay in the cache, as in programs.
_MOST_COPIES: Final = 8


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
        limits = index_limits(sink)
        #: What each operand is filled with, and how large it is.
        self._contents = [
            (pattern(dtype, operand.size_bytes, limits.get(slot)), operand.size_bytes)
            for slot, (operand, dtype) in enumerate(zip(call.operands, self._dtypes, strict=True))
        ]
        #: Copies of the operands; results are read from the first.
        self._copies: list[list[Buffer]] = []
        for number in range(self._count_of_copies()):
            try:
                self._copies.append(self._allocated())
            except OutOfMemoryError:
                if not number:
                    raise
                break  # fewer have to do
        for buffers in self._copies:
            for buffer, (numbers, _) in zip(buffers, self._contents, strict=True):
                self._fill(buffer, numbers)
        self._written: list[bytes] = []
        #: Code that was made ahead, by plan; None for plans that are not legal.
        self._ready: dict[AnyPlan, CompiledKernel | None] = {}

    def seconds(self, plan: AnyPlan, below: float = inf) -> float:
        """The least time of several runs under a plan, after one that fills caches.

        Args:
            plan: The plan.
            below: Results are read only if the plan takes less.

        Raises: what compiling and running raise.
        """
        self._refill(self._copies)
        program, launches = self._loaded(plan)
        try:
            runs = _runs(self._once(launches), _SECONDS_PER_PLAN)
            least = min(self._times(launches, runs))
            if least < below:
                self._keep_results(launches)
            return least
        finally:
            program.close()

    def compared(self, plan: AnyPlan, other: AnyPlan) -> tuple[float, float]:
        """The least times of both plans, run in turns, so that both see the same disturbances.

        Raises: what compiling and running raise.
        """
        self._refill(self._copies)
        program, launches = self._loaded(plan)
        try:
            second, rivals = self._loaded(other)
            try:
                runs = _runs(self._once(launches), _SECONDS_PER_PLAN)
                own: list[float] = []
                others: list[float] = []
                for _ in range(_TURNS):
                    own += self._times(launches, runs)[1:]
                    others += self._times(rivals, runs)[1:]
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
        loaded: list[tuple[Program, list[Launch]] | None] = []
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
                    self._refill(self._copies)
                    runs = _runs(self._once(entry[1]), _SECONDS_PER_PLAN / count)
                    seconds = min(self._times(entry[1], runs))
                    known = least[place]
                    least[place] = seconds if known is None else min(known, seconds)
        finally:
            for entry in loaded:
                if entry is not None:
                    entry[0].close()
        return least

    def results(self) -> list[tuple[bytes, DType | None]]:
        """What a run on fresh contents has written, under the last plan whose results were read."""
        slots = self._call.code.writes
        return [(data, self._dtypes[slot]) for data, slot in zip(self._written, slots, strict=True)]

    def prepare(self, plans: Sequence[AnyPlan]) -> None:
        """Compile what will be measured next, beside each other where the device's compiler can."""
        new = [plan for plan in plans if plan not in self._ready]
        found = compile_with_plans(self._device, self._sink, new)
        self._ready.update(zip(new, found, strict=True))

    def close(self) -> None:
        """Give the memory back."""
        for buffers in self._copies:
            for buffer in buffers:
                buffer.close()

    def _allocated(self) -> list[Buffer]:
        """Memory for all operands, or for none."""
        buffers: list[Buffer] = []
        try:
            for _, size in self._contents:
                buffers.append(self._device.allocate(max(size, 1), zero=True))
        except OutOfMemoryError:
            for buffer in buffers:
                buffer.close()
            raise
        return buffers

    def _count_of_copies(self) -> int:
        """So many that each has left the cache when its turn comes again."""
        target = self._device.spec
        if not has_blocks(target):
            return 1
        size = max(sum(size for _, size in self._contents), 1)
        return min(ceil_div(2 * target.l2_bytes, size) + 1, _MOST_COPIES)

    def _loaded(self, plan: AnyPlan) -> tuple[Program, list[Launch]]:
        """The program of a plan, and a launch of it for each copy of the operands."""
        code = self._ready.get(plan)
        if code is None:  # not made ahead, or with an error that is raised now
            code = compile_with_plan(self._device, self._sink, plan)
        program = self._device.driver.load([code.as_code()])
        return program, [
            Launch(
                program.kernels[0],
                tuple(buffers),
                (),
                grid=(code.tasks.evaluate({}),),
                is_serial=self._call.is_serial,
            )
            for buffers in self._copies
        ]

    def _times(self, launches: Sequence[Launch], runs: int) -> tuple[float, ...]:
        return self._device.driver.time([launches[n % len(launches)] for n in range(runs)])

    def _once(self, launches: Sequence[Launch]) -> float:
        (seconds,) = self._device.driver.time([launches[0]])
        return seconds

    def _keep_results(self, launches: Sequence[Launch]) -> None:
        """Keep what a run writes into fresh contents."""
        self._refill(self._copies[:1])
        self._once(launches)
        self._written = [bytes(self._bytes(slot)) for slot in self._call.code.writes]

    def _refill(self, copies: Sequence[Sequence[Buffer]]) -> None:
        """Undo what runs have written: kernels that read it would drift, to subnormals at last."""
        for buffers in copies:
            for slot in self._call.code.writes:
                self._fill(buffers[slot], self._contents[slot][0])

    def _fill(self, buffer: Buffer, numbers: bytes) -> None:
        """Fill memory with numbers again and again: twice as much with each copy."""
        if not numbers:
            return
        done, size = len(numbers), buffer.size_bytes
        self._device.copy_in(buffer.view(0, done), memoryview(numbers))
        copies: list[Copy] = []
        while done < size:
            more = min(done, size - done)
            copies.append(Copy(buffer.view(done, more), buffer.view(0, more)))
            done += more
        if copies:
            self._device.driver.time(copies)

    def _bytes(self, slot: int) -> bytearray:
        data = bytearray(self._copies[0][slot].size_bytes)
        self._device.copy_out(self._copies[0][slot], memoryview(data))
        return data


def _runs(first: float, seconds: float) -> int:
    """How many runs fit a time, given how long one takes."""
    return min(max(int(seconds / max(first, 1e-7)), _LEAST_RUNS), _MOST_RUNS)
