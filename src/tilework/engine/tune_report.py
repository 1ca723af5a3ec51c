"""How good the cost model is: its predictions beside measurements of many plans of many kernels.

samples = sample(collect(run_the_program), seconds=60)
by_class(samples)["contraction"].within      # rank correlation among plans of one kernel
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import combinations
from statistics import median
from typing import TYPE_CHECKING, Final

from tilework.base.records import dataclass
from tilework.codegen.alternatives import alternatives
from tilework.engine.device import Device
from tilework.engine.kernel_bench import KernelBench
from tilework.engine.tune import LEAST_SECONDS, correlation

if TYPE_CHECKING:
    from tilework.codegen.alternatives import Alternatives
    from tilework.codegen.plan.kinds import AnyPlan
    from tilework.engine.steps import KernelCall

#: Plans of one kernel that are measured: those that the choice compared, and neighbours.
PLANS_PER_KERNEL: Final = 16
#: How often all plans of a kernel are measured, one after the other.
ROUNDS: Final = 3
#: Times that differ by less are taken for equal where plans are compared in pairs.
APART: Final = 1.1
#: Kernels with fewer plans say nothing of how these are ordered.
_LEAST_PLANS: Final = 5


@dataclass(frozen=True, slots=True)
class Sample:
    """One plan of one kernel.

    Attributes:
        kernel: The kernel's name.
        kind: Its class.
        predicted: What `codegen.predict` says, in cycles.
        chosen_by: What the choice of the plan itself estimated, in cycles; None where it compares
            no numbers.
        seconds: What was measured.
        is_default: Whether the plan is the one that is chosen.
    """

    kernel: str
    kind: str
    predicted: float
    chosen_by: float | None
    seconds: float
    is_default: bool


@dataclass(frozen=True, slots=True)
class ClassReport:
    """What the samples of one class of kernels say.

    Attributes:
        kernels: How many kernels.
        samples: How many plans.
        over_all: Rank correlation of prediction and time over all samples.
        within: The median over kernels of the rank correlation among their plans.
        chosen_by: The same for the estimates by which plans are chosen.
        ordered: Of all pairs of plans of one kernel whose times are apart, how many the prediction
            orders rightly.
        lost: The default's time over the best measured plan's, the median over kernels.
        worst: The same, the greatest.
    """

    kernels: int
    samples: int
    over_all: float | None
    within: float | None
    chosen_by: float | None
    ordered: float | None
    lost: float
    worst: float


def sample(
    calls: Iterable[KernelCall],
    seconds: float,
    progress: Callable[[str], object] | None = None,
    now: Callable[[], float] = time.perf_counter,
) -> list[Sample]:
    """Measure plans of each kernel until the time is over."""
    until = now() + seconds
    found: list[Sample] = []
    for call in calls:
        if now() >= until:
            break
        plans = None if call.kernel is None else alternatives(call.kernel, Device[call.device].spec)
        if plans is None:
            continue
        if progress is not None:
            progress(plans.name)
        bench = KernelBench(call, plans.sink, Device[call.device])
        try:
            found += _of_kernel(plans, bench)
        finally:
            bench.close()
    return found


def _of_kernel(plans: Alternatives, bench: KernelBench) -> Iterator[Sample]:
    if bench.seconds(plans.default) < LEAST_SECONDS:
        return
    estimates: dict[AnyPlan, float] = {}
    for cycles, tiling in plans.compared():
        estimates[tiling] = min(cycles, estimates.get(tiling, cycles))
    chosen = _chosen(plans, list(estimates), random.Random(plans.name))
    predicted = {plan: plans.predicted(plan) for plan in chosen}
    legal = [plan for plan in chosen if predicted[plan] is not None]
    for plan, seconds in zip(legal, bench.rounds(legal, ROUNDS), strict=True):
        cycles_of_plan = predicted[plan]
        if seconds is not None and cycles_of_plan is not None:
            yield Sample(
                plans.name,
                plans.kind,
                cycles_of_plan,
                estimates.get(plan),
                seconds,
                plan == plans.default,
            )


def _chosen(
    plans: Alternatives, compared: list[AnyPlan], generator: random.Random
) -> list[AnyPlan]:
    """The default, some of what was compared and some neighbours, the same in every run."""
    near = plans.near(plans.default)
    half = min(len(compared), PLANS_PER_KERNEL // 2)
    some = generator.sample(compared, half)
    rest = PLANS_PER_KERNEL - 1 - half
    some += generator.sample(near, min(rest, len(near)))
    return list(dict.fromkeys([plans.default, *some]))


def by_class(samples: Iterable[Sample]) -> dict[str, ClassReport]:
    """The report of each class."""
    groups: dict[str, list[Sample]] = {}
    for each in samples:
        groups.setdefault(each.kind, []).append(each)
    return {kind: _report(groups[kind]) for kind in sorted(groups)}


def _report(samples: list[Sample]) -> ClassReport:
    kernels: dict[str, list[Sample]] = {}
    for each in samples:
        kernels.setdefault(each.kernel, []).append(each)
    within, chosen, lost, pairs = [], [], [], []
    for own in kernels.values():
        rank = _rank([(s.predicted, s.seconds) for s in own])
        within += [] if rank is None else [rank]
        rank = _rank([(s.chosen_by, s.seconds) for s in own if s.chosen_by is not None])
        chosen += [] if rank is None else [rank]
        pairs += _pairs(own)
        defaults = [s.seconds for s in own if s.is_default]
        lost += [seconds / min(s.seconds for s in own) for seconds in defaults]
    return ClassReport(
        len(kernels),
        len(samples),
        correlation([s.predicted for s in samples], [s.seconds for s in samples]),
        median(within) if within else None,
        median(chosen) if chosen else None,
        sum(pairs) / len(pairs) if pairs else None,
        median(lost) if lost else 1.0,
        max(lost, default=1.0),
    )


def _pairs(samples: list[Sample]) -> list[bool]:
    """For each pair of plans that are apart, whether the prediction orders it rightly."""
    return [
        (one.predicted < other.predicted) == (one.seconds < other.seconds)
        for one, other in combinations(samples, 2)
        if max(one.seconds, other.seconds) > APART * min(one.seconds, other.seconds)
    ]


def _rank(pairs: list[tuple[float, float]]) -> float | None:
    if len(pairs) < _LEAST_PLANS:
        return None
    return correlation([first for first, _ in pairs], [second for _, second in pairs])
