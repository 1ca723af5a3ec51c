"""Tuning: measure the neighbours of each kernel's plan, and keep the best.

    calls = collect(run_the_program)                  # the kernels that it links, each once
    rows = Tuner(seconds=60).run(calls)               # fastest first: the costly kernels
    correlation([row.estimate ...], [row.default_seconds ...])

A kernel is run on memory of its own, filled with small numbers, so tuning needs no data.  A plan
must give the same results as the cost model's choice (floats but for rounding) and be faster by
more than what measurements vary.  What was measured is kept in the database of plans after each
kernel, so that a run that was stopped goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tilework.base import trace
from tilework.base.errors import PlanError, TileworkError
from tilework.codegen.analysis import analyse
from tilework.codegen.cascade.lower import is_cascade
from tilework.codegen.naming import kernel_name
from tilework.codegen.pipeline import loosen
from tilework.codegen.plan.choose import choose_plan, estimate_work
from tilework.codegen.plan.database import Record, database, plan_digest
from tilework.codegen.plan.dot_products import ready_for_plans
from tilework.codegen.plan.neighbours import neighbours
from tilework.codegen.plan.tile_contraction import cheapest
from tilework.codegen.sort.lower import is_sort
from tilework.dtypes import encode
from tilework.engine.compile import compile_with_plan
from tilework.engine.device import Device, OpenDevice
from tilework.engine.link import KernelCall
from tilework.ir.node import in_use, toposort
from tilework.ir.ops.memory import PARAM
from tilework.ir.rewrite import rewrite
from tilework.ir.rules import SIMPLIFY
from tilework.runtime.driver import Launch

if TYPE_CHECKING:
    from tilework.codegen.analysis import Kernel
    from tilework.codegen.plan.plan import Plan
    from tilework.dtypes import DType
    from tilework.ir.node import Node
    from tilework.runtime.buffer import Buffer

#: A plan must be faster by this much, measured twice.
_GAIN: Final = 0.97
#: Runs of one plan take about so long, and are at least so many.
_SECONDS_PER_PLAN: Final = 0.02
_LEAST_RUNS: Final = 3
_MOST_RUNS: Final = 200
#: Kernels that are over sooner are not worth it.
_LEAST_SECONDS: Final = 2e-6
#: The largest difference of floats, by the largest value, that another order may make.
_TOLERANCE: Final = 1e-3
#: About how many floats of a result are compared.
_MOST_COMPARED: Final = 1 << 16
_VALUES: Final = tuple(((7 * i) % 31 - 15) / 16 for i in range(64))


@dataclass(slots=True)
class Row:
    """What tuning one kernel has found.

    Attributes:
        name: The kernel's name.
        kind: Its class: "contraction" or "loops".
        estimate: What the cost model expects, in numbers that only compare within a class.
        default_seconds: What its choice takes.
        seconds: What the best plan takes.
        tried: Plans measured so far, this one included.
        is_done: Whether all neighbours of the best plan were measured.
    """

    name: str
    kind: str
    estimate: float
    default_seconds: float
    seconds: float
    tried: int
    is_done: bool


def collect(run: Callable[[], object]) -> list[KernelCall]:
    """Call `run` and return the kernels that it linked and that can be tuned, each once."""
    found: dict[tuple[str, Node], KernelCall] = {}

    def note(event: trace.Event) -> None:
        if isinstance(event, trace.Linked):
            for step in event.steps:
                if isinstance(step, KernelCall) and step.kernel is not None and _is_tunable(step):
                    found.setdefault((step.device, step.kernel), step)

    with trace.subscribe(note):
        run()
    return list(found.values())


def _is_tunable(call: KernelCall) -> bool:
    has_plans = hasattr(Device[call.device].compiler, "plan_key")
    return has_plans and not call.code.variables and call.code.tasks.constant is not None


class Tuner:
    """Measures plans until the time is over.

    Args:
        seconds: How long all kernels together may take; a measurement that runs is finished.
        now: The clock, in seconds.
    """

    def __init__(self, seconds: float, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._deadline = now() + seconds

    def run(
        self, calls: Iterable[KernelCall], progress: Callable[[Row], object] | None = None
    ) -> list[Row]:
        """Tune, the slowest kernels first, each for its share of the time that is left.

        Args:
            calls: From `collect`.
            progress: Called after each kernel.
        """
        jobs: list[_Job] = []
        for call in calls:
            job = _job(call)
            if job is not None:
                jobs.append(job)
        jobs.sort(key=lambda job: -job.record.default_seconds)
        rows: list[Row] = []
        for number, job in enumerate(jobs):
            left = sum(other.record.default_seconds for other in jobs[number:])
            share = job.record.default_seconds / left if left else 1.0
            job.search(self._now, self._now() + share * max(self._deadline - self._now(), 0.0))
            rows.append(job.row())
            job.close()
            if progress is not None:
                progress(rows[-1])
        return rows


def _job(call: KernelCall) -> _Job | None:
    """What tunes the kernel of a call; None where there is nothing to be chosen."""
    sink = call.kernel
    device = Device[call.device]
    if sink is None or is_sort(sink):
        return None
    with in_use():
        loose = loosen(rewrite(sink, SIMPLIFY), device.spec)
        kernel = analyse(ready_for_plans(loose, device.spec))
        if is_cascade(kernel, device.spec):
            return None
    job = _Job(call, sink, kernel, device)
    if job.record.default_seconds < _LEAST_SECONDS:
        job.close()
        return None
    return job


class _Job:
    """The search for one kernel: from the best plan to a better neighbour, again and again."""

    def __init__(self, call: KernelCall, sink: Node, kernel: Kernel, device: OpenDevice) -> None:
        self.call = call
        self.sink = sink
        self.kernel = kernel
        self.device = device
        self.default = choose_plan(kernel, device.spec)
        self.bench = _Bench(call, sink, device)
        known = database().find(sink, device.spec)
        seconds = self.bench.seconds(self.default)
        self.expected = self.bench.results()
        self.record = known or Record(None, seconds, seconds, {plan_digest(self.default)})
        self.record.default_seconds = seconds
        if self.record.plan is None:
            self.record.seconds = seconds

    def search(self, now: Callable[[], float], until: float) -> None:
        """Measure neighbours until the time is over or none is left, and keep what was found."""
        record = self.record
        while not record.is_done and now() < until:
            here = record.plan or self.default
            ahead = [
                plan
                for plan in neighbours(here, self.kernel, self.device.spec)
                if plan_digest(plan) not in record.tried
            ]
            record.is_done = not ahead
            for plan in ahead:
                if now() >= until:
                    break
                record.tried.add(plan_digest(plan))
                if self._try(plan):
                    break  # look around from there
        database().put(self.sink, self.device.spec, record)

    def _try(self, plan: Plan) -> bool:
        """Measure a plan, and take it if it is right and faster."""
        record = self.record
        try:
            seconds = self.bench.seconds(plan)
        except (PlanError, TileworkError):
            return False
        if seconds >= record.seconds * _GAIN or not self._is_right():
            return False
        again = self.bench.seconds(record.plan or self.default)
        seconds = max(seconds, self.bench.seconds(plan))
        record.seconds = min(record.seconds, again) if record.plan is None else again
        if seconds >= again * _GAIN:
            return False
        record.plan, record.seconds = plan, seconds
        return True

    def _is_right(self) -> bool:
        return all(
            _is_close(got, wanted, dtype)
            for got, (wanted, dtype) in zip(
                [data for data, _ in self.bench.results()], self.expected, strict=True
            )
        )

    def row(self) -> Row:
        """What was found."""
        record = self.record
        found = cheapest(self.kernel, self.device.spec)
        kind, estimate = ("loops", estimate_work(self.kernel)) if found is None else (
            "contraction", found[0],
        )  # fmt: skip
        return Row(
            kernel_name(self.sink, self.kernel),
            kind,
            estimate,
            record.default_seconds,
            min(record.seconds, record.default_seconds),
            len(record.tried),
            record.is_done,
        )

    def close(self) -> None:
        """Give the memory back."""
        self.bench.close()


class _Bench:
    """Memory for one kernel, and runs of it under plans."""

    def __init__(self, call: KernelCall, sink: Node, device: OpenDevice) -> None:
        self._call = call
        self._sink = sink
        self._device = device
        dtypes = {n.attrs.slot: n.attrs.dtype for n in toposort(sink) if n.op is PARAM}
        self._dtypes = [dtypes.get(slot) for slot in range(len(call.operands))]
        self._buffers: list[Buffer] = []
        self._contents: list[bytes] = []
        for operand, dtype in zip(call.operands, self._dtypes, strict=True):
            self._buffers.append(device.allocate(max(operand.size_bytes, 1), zero=True))
            self._contents.append(_contents(dtype, operand.size_bytes))
        self._fill()

    def _fill(self) -> None:
        for buffer, data in zip(self._buffers, self._contents, strict=True):
            if data:
                self._device.copy_in(buffer, memoryview(data))

    def seconds(self, plan: Plan) -> float:
        """The least time of several runs under a plan, after one that fills caches.

        Raises: what compiling and running raise.
        """
        code = compile_with_plan(self._device, self._sink, plan)
        program = self._device.driver.load([code.as_code()])
        try:
            tasks = code.tasks.evaluate({})
            launch = Launch(
                program.kernels[0],
                tuple(self._buffers),
                (),
                grid=(tasks,),
                is_serial=self._call.is_serial,
            )
            self._fill()  # what a kernel updates in place starts from the same
            (first,) = self._device.driver.time([launch])
            self._written = [bytes(self._bytes(slot)) for slot in self._call.code.writes]
            runs = int(_SECONDS_PER_PLAN / max(first, 1e-7))
            times = self._device.driver.time([launch] * min(max(runs, _LEAST_RUNS), _MOST_RUNS))
            return min(times)
        finally:
            program.close()

    def results(self) -> list[tuple[bytes, DType | None]]:
        """What the first run under the last plan has written, and the dtypes."""
        slots = self._call.code.writes
        return [(data, self._dtypes[slot]) for data, slot in zip(self._written, slots, strict=True)]

    def _bytes(self, slot: int) -> bytearray:
        data = bytearray(self._buffers[slot].size_bytes)
        self._device.copy_out(self._buffers[slot], memoryview(data))
        return data

    def close(self) -> None:
        """Give the memory back."""
        for buffer in self._buffers:
            buffer.close()


def _contents(dtype: DType | None, size_bytes: int) -> bytes:
    """Small numbers for floats; zeros for all else, which are indices that are in range."""
    if dtype is None or not dtype.is_float:
        return bytes(size_bytes)
    row = b"".join(encode(value, dtype).to_bytes(dtype.itemsize, "little") for value in _VALUES)
    return (row * (size_bytes // len(row) + 1))[:size_bytes]


def _is_close(got: bytes, wanted: bytes, dtype: DType | None) -> bool:
    """Whether results agree: exactly, or floats but for the order of additions."""
    if got == wanted:
        return True
    if dtype is None or dtype.name not in ("float32", "float64"):
        return False
    one, other = (_sample(data, dtype) for data in (got, wanted))
    largest = max(map(abs, other), default=0.0)
    pairs = zip(one, other, strict=True)
    return all(a == b or abs(a - b) <= _TOLERANCE * largest for a, b in pairs)


def _sample(data: bytes, dtype: DType) -> Sequence[float]:
    """Floats of a result, from all over it."""
    view = memoryview(data)
    values = view.cast("f") if dtype.name == "float32" else view.cast("d")
    step = max(len(values) // _MOST_COMPARED, 1) | 1  # odd, so that all columns come by
    return values[::step].tolist()


def correlation(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Spearman's rank correlation; None for fewer than three pairs, or where all are equal."""
    if len(x) < 3:
        return None
    first, second = _ranks(x), _ranks(y)
    mean = (len(x) + 1) / 2
    together = sum((a - mean) * (b - mean) for a, b in zip(first, second, strict=True))
    spread = [sum((rank - mean) ** 2 for rank in ranks) for ranks in (first, second)]
    product = spread[0] * spread[1]
    return None if product == 0 else float(together / product**0.5)


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1; equal values share the mean of theirs."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and values[order[end]] == values[order[start]]:
            end += 1
        for place in order[start:end]:
            ranks[place] = (start + 1 + end) / 2
        start = end
    return ranks
