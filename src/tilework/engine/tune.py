"""Tuning: measure the neighbours of each kernel's plan, and keep the best.

    calls = collect(run_the_program)                  # the kernels that it links, and how often
    rows = Tuner(seconds=60).run(calls)               # the costly kernels first
    correlation([row.estimate ...], [row.default_seconds ...])

A kernel is run on memory of its own, filled with small numbers, so tuning needs no data.  A plan
must give the same results as the cost model's choice (floats but for rounding) and be faster by
more than what measurements vary; and its accesses must be proven to lie inside of their buffers,
if those of the cost model's choice are, since one that is wrong would end the process or the
device.  What was measured is kept in the database of plans after each
kernel, so that a run that was stopped, by its time or by the user, goes on where it was.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Final

from tilework.base import settings, trace
from tilework.base.errors import DeviceLostError, PlanError, TileworkError
from tilework.base.records import dataclass
from tilework.codegen.alternatives import alternatives
from tilework.codegen.pipeline import lower_kernel
from tilework.codegen.plan.database import Record, database, plan_digest
from tilework.codegen.plan.shipped import shipped_plan
from tilework.engine.bench_data import agree, longest_sum
from tilework.engine.device import Device
from tilework.engine.kernel_bench import KernelBench
from tilework.engine.link import CACHE
from tilework.engine.steps import KernelCall
from tilework.schedule import cache as schedule_cache

if TYPE_CHECKING:
    from tilework.codegen.alternatives import Alternatives
    from tilework.codegen.plan.kinds import AnyPlan
    from tilework.engine.device import OpenDevice
    from tilework.ir.node import Node

#: A plan must be faster by this much, measured twice.
GAIN: Final = 0.97
#: Kernels that are over sooner are not worth it.
LEAST_SECONDS: Final = 2e-6
#: The share of a kernel's time for ordering its plans before any is measured.
_PREDICTING: Final = 0.2


@dataclass(slots=True)
class Row:
    """What tuning one kernel has found.

    Attributes:
        name: The kernel's name.
        kind: Its class: contraction, window, cascade, reduction, scan, sort, transpose, gather or
            elementwise.
        estimate: What the cost model expects, in cycles.
        default_seconds: What its choice takes.
        seconds: What the best plan takes.
        tried: Plans measured so far, this one included.
        is_done: Whether all neighbours of the best plan were measured.
        launches: How often the program runs it.
    """

    name: str
    kind: str
    estimate: float
    default_seconds: float
    seconds: float
    tried: int
    is_done: bool
    launches: int = 1


def collect(run: Callable[[], object]) -> dict[KernelCall, int]:
    """Call `run` and return the kernels that it linked and that can be tuned.

    Returns:
        One launch of each kernel, and how often the sequence of steps that has most of it does.
    """
    found: dict[tuple[str, Node], KernelCall] = {}
    counts: dict[KernelCall, int] = {}

    def note(event: trace.Event) -> None:
        if not isinstance(event, trace.Linked):
            return
        here: dict[KernelCall, int] = {}
        for step in event.steps:
            if isinstance(step, KernelCall) and step.kernel is not None and _is_tunable(step):
                call = found.setdefault((step.device, step.kernel), step)
                here[call] = here.get(call, 0) + 1
        for call, count in here.items():
            counts[call] = max(counts.get(call, 0), count)

    forget_linked()
    with trace.subscribe(note):
        run()
    return counts


def forget_linked() -> None:
    """Link programs anew when they run next: with the plans that are known then."""
    schedule_cache.clear()
    CACHE.clear()


def _is_tunable(call: KernelCall) -> bool:
    has_plans = hasattr(Device[call.device].compiler, "plan_key")
    return has_plans and not call.code.variables and call.code.tasks.constant is not None


class Tuner:
    """Measures plans until the time is over, or the user has had enough.

    Args:
        seconds: How long all kernels together may take; a measurement that runs is finished.
        now: The clock, in seconds.
    """

    def __init__(self, seconds: float, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._deadline = now() + seconds
        #: Whether the user stopped the last run.
        self.is_stopped = False
        #: The kernels that do not run under their own plan, and why, of the last run.
        self.failed: list[tuple[str, TileworkError]] = []

    def run(
        self,
        calls: Mapping[KernelCall, int],
        progress: Callable[[str, Row | None], object] | None = None,
    ) -> list[Row]:
        """Tune, the costly kernels first, each for its share of the time that is left.

        One kernel has memory at a time.  One that does not run under its own plan stands in
        `failed`, and the others are tuned; a lost device ends the run with what there is.

        Args:
            calls: From `collect`.
            progress: Called with a kernel's name before and after each measurement; and with its
                row once it is through.
        """
        tell = progress or _ignore
        self.failed = []
        jobs: list[_Job] = []
        rows: list[Row] = []
        try:
            for call, launches in calls.items():
                if self._is_lost or (self._now() >= self._deadline and jobs):
                    break  # what was not looked at is the next run's
                jobs += self._jobs(call, launches, tell)
            jobs.sort(key=lambda job: -job.cost)
            for number, job in enumerate(jobs):
                left = sum(other.weight for other in jobs[number:])
                share = job.weight / left if left else 1.0
                until = self._now() + share * max(self._deadline - self._now(), 0.0)
                try:
                    if not self._is_lost:
                        job.search(self._now, until, tell)
                except TileworkError as error:
                    self.failed.append((job.plans.name, error))
                finally:
                    rows.append(job.row())
                tell(job.plans.name, rows[-1])
        except KeyboardInterrupt:
            self.is_stopped = True
            rows += [job.row() for job in jobs[len(rows) :]]
        return rows

    @property
    def _is_lost(self) -> bool:
        """Whether the device was lost, so that nothing else would run."""
        return bool(self.failed) and isinstance(self.failed[-1][1], DeviceLostError)

    def _jobs(
        self, call: KernelCall, launches: int, tell: Callable[[str, Row | None], object]
    ) -> list[_Job]:
        """What tunes the kernel of a call; nothing where there is nothing to be chosen."""
        plans = None
        if call.kernel is not None:
            plans = alternatives(call.kernel, Device[call.device].spec)
        if plans is None:
            return []
        tell(plans.name, None)
        try:
            job = _Job(call, plans, launches)
        except TileworkError as error:
            self.failed.append((plans.name, error))
            return []
        return [job] if job.record.default_seconds >= LEAST_SECONDS else []


def _ignore(name: str, row: Row | None) -> None:
    """No progress is shown."""


class _Job:
    """One kernel, what is known of its plans, and how much of the time it is worth."""

    def __init__(self, call: KernelCall, plans: Alternatives, launches: int) -> None:
        self.plans = plans
        self.launches = launches
        self.default = plans.default
        self._call = call
        self._device = Device[call.device]
        known = database().find(plans.sink, plans.target)
        #: Whether an earlier run has measured plans of it.
        self.was_known = known is not None
        with closing(self._bench()) as bench:
            seconds = bench.seconds(self.default, 0.0)
        self.record = known or Record(None, seconds, seconds, {plan_digest(self.default)})
        self.record.default_seconds = seconds
        if self.record.plan is None:
            self.record.seconds = seconds

    def _bench(self) -> KernelBench:
        return KernelBench(self._call, self.plans.sink, self._device)

    @property
    def cost(self) -> float:
        """The seconds of the program that this kernel takes."""
        return self.record.default_seconds * self.launches

    @property
    def weight(self) -> float:
        """What share of the time it gets: the root, so that no kernel leaves nothing to others."""
        return math.sqrt(self.cost)

    def search(
        self, now: Callable[[], float], until: float, tell: Callable[[str, Row | None], object]
    ) -> None:
        """Measure neighbours until the time is over or none is left, and keep what was found."""
        if self.record.is_done or now() >= until:
            return
        try:
            with closing(self._bench()) as bench:
                _Search(self, bench, self._device).run(now, until, tell)
        finally:
            database().put(self.plans.sink, self.plans.target, self.record)

    def row(self) -> Row:
        """What was found."""
        record = self.record
        return Row(
            self.plans.name,
            self.plans.kind,
            self.plans.predicted(self.default) or 0.0,
            record.default_seconds,
            min(record.seconds, record.default_seconds),
            len(record.tried),
            record.is_done,
            self.launches,
        )


class _Search:
    """One kernel on memory of its own, and the results that every plan must have."""

    def __init__(self, job: _Job, bench: KernelBench, device: OpenDevice) -> None:
        self._plans = job.plans
        self._record = job.record
        self._bench = bench
        #: So many plans are compiled beside each other before they are measured.
        self._together = _plans_together(device)
        self._summands = longest_sum(job.plans.sink)
        #: Where accesses are proven under the default plan, they are under each that is measured.
        self._proves = _is_proven(job.plans)
        bench.seconds(job.plans.default)
        self._expected = bench.results()
        self._shipped = None
        if not job.was_known:
            self._shipped = shipped_plan(job.plans.sink, job.plans.target)

    def run(
        self, now: Callable[[], float], until: float, tell: Callable[[str, Row | None], object]
    ) -> None:
        """Measure neighbours of the best plan, and of the one that is better, until none is."""
        with settings.override(prove_accesses=self._proves):
            self._run(now, until, tell)

    def _run(
        self, now: Callable[[], float], until: float, tell: Callable[[str, Row | None], object]
    ) -> None:
        record = self._record
        if self._shipped is not None:
            self._try(self._shipped)
            record.tried.add(plan_digest(self._shipped))
        while not record.is_done and now() < until:
            ahead = self._ahead(record.plan or self._plans.default, now, until)
            record.is_done = not ahead
            for place, plan in enumerate(ahead):
                if now() >= until:
                    break
                if place % self._together == 0 and self._together > 1:
                    self._bench.prepare(ahead[place : place + self._together])
                is_better = self._try(plan)
                record.tried.add(plan_digest(plan))
                tell(self._plans.name, None)
                if is_better:
                    break  # look around from there

    def _ahead(self, here: AnyPlan, now: Callable[[], float], until: float) -> list[AnyPlan]:
        """The plans to measure next, those first of which the cost model thinks best.

        Predicting takes about as long as measuring, so it stops when a part of the time is over;
        plans that it has not reached come after the better half of the others.
        """
        new = [
            plan for plan in self._plans.near(here) if plan_digest(plan) not in self._record.tried
        ]
        stop = now() + _PREDICTING * (until - now())
        known: list[tuple[float, int]] = []
        count = 0
        for count, plan in enumerate(new, 1):
            cycles = self._plans.predicted(plan)
            if cycles is not None:
                known.append((cycles, count - 1))
            if now() >= stop:
                break
        known.sort()
        half = -(-len(known) // 2)
        order = [*known[:half], *((0.0, at) for at in range(count, len(new))), *known[half:]]
        return [new[at] for _, at in order]

    def _try(self, plan: AnyPlan) -> bool:
        """Measure a plan, and take it if it is right and faster."""
        record = self._record
        try:
            seconds = self._bench.seconds(plan, record.seconds * GAIN)
            if seconds >= record.seconds * GAIN or not self._is_right():
                return False
            seconds, best = self._bench.compared(plan, record.plan or self._plans.default)
        except DeviceLostError:
            record.tried.add(plan_digest(plan))  # the next run goes on behind it
            raise
        except (PlanError, TileworkError):
            return False
        record.seconds = min(record.seconds, best) if record.plan is None else best
        if seconds >= best * GAIN:
            return False
        record.plan, record.seconds = plan, seconds
        return True

    def _is_right(self) -> bool:
        return all(
            agree(got, wanted, dtype, self._summands)
            for got, (wanted, dtype) in zip(
                [data for data, _ in self._bench.results()], self._expected, strict=True
            )
        )


def _is_proven(plans: Alternatives) -> bool:
    try:
        with settings.override(prove_accesses=True):
            lower_kernel(plans.sink, plans.target, plans.default)
    except TileworkError:
        return False  # it has indices from memory, say
    return True


def _plans_together(device: OpenDevice) -> int:
    """One, but where the compiler takes so long that worker processes are worth their start."""
    worker = device.compiler.worker()
    if worker is None or not worker.kernels_each:
        return 1
    return max(settings.current().worker_count(), 1)


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


def correlations(rows: Sequence[Row]) -> dict[str, float | None]:
    """How well the cost model orders the kernels of each class."""
    found: dict[str, float | None] = {}
    for kind in sorted({row.kind for row in rows}):
        own = [row for row in rows if row.kind == kind]
        found[kind] = correlation(
            [row.estimate for row in own], [row.default_seconds for row in own]
        )
    return found


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
