"""Every class of kernels has other plans, which compute the same, and a prediction for each."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tilework import Tensor
from tilework.base import settings
from tilework.base.errors import PlanError
from tilework.codegen.alternatives import Alternatives, alternatives
from tilework.codegen.plan.kinds import CascadePlan, SortPlan
from tilework.codegen.plan.plan import Plan
from tilework.engine import link, tune
from tilework.engine.bench_data import agree, longest_sum
from tilework.engine.device import Device
from tilework.engine.kernel_bench import KernelBench
from tilework.engine.steps import KernelCall
from tilework.schedule import cache

X = np.random.default_rng(0).standard_normal((96, 130), dtype=np.float32)
HEADS = np.random.default_rng(1).standard_normal((2, 64, 32), dtype=np.float32)
IMAGE = np.random.default_rng(2).standard_normal((1, 8, 20, 20), dtype=np.float32)

PROGRAMS: dict[str, Callable[[], Tensor]] = {
    "contraction": lambda: Tensor(X) @ Tensor(X).transpose(),
    "window": lambda: Tensor(IMAGE).max_pool2d((3, 3), 1, padding=1),
    "cascade": lambda: Tensor(X).softmax(),
    "reduction": lambda: Tensor(X).sum(1),
    "scan": lambda: Tensor(X).cumsum(1),
    "sort": lambda: Tensor(X).argsort(),
    "transpose": lambda: Tensor(X).transpose().contiguous(),
    "elementwise": lambda: (Tensor(X) * 0.5).sigmoid(),
}
#: Plans of each class that are run; all others are only looked at.
MOST_RUN = 6


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path) -> Iterator[None]:
    with settings.override(cache_dir=tmp_path, deterministic=False):
        yield


def call_of(program: Callable[[], Tensor], kind: str) -> tuple[KernelCall, Alternatives]:
    cache.clear()
    link.CACHE.clear()
    for call in tune.collect(lambda: program().realize()):
        assert call.kernel is not None
        found = alternatives(call.kernel, Device["CPU"].spec)
        if found is not None and found.kind == kind:
            return call, found
    raise AssertionError(f"no {kind} among the kernels")


@pytest.mark.parametrize("kind", PROGRAMS)
def test_plans_of_every_class_compute_the_same(kind: str) -> None:
    call, found = call_of(PROGRAMS[kind], kind)
    plans = found.near(found.default)
    bench = KernelBench(call, found.sink, Device["CPU"])
    bench.seconds(found.default)
    wanted = bench.results()
    tried = 0
    for plan in plans[:: max(len(plans) // MOST_RUN, 1)]:
        if found.predicted(plan) is None:
            continue
        bench.seconds(plan)
        for (got, dtype), (expected, _) in zip(bench.results(), wanted, strict=True):
            assert agree(got, expected, dtype, longest_sum(found.sink)), plan
        tried += 1
    bench.close()
    assert tried >= 2


@pytest.mark.parametrize("kind", PROGRAMS)
def test_other_plans_are_told_apart_and_predicted(kind: str) -> None:
    _, found = call_of(PROGRAMS[kind], kind)
    plans = found.near(found.default)
    assert found.default not in plans
    assert len(plans) == len(set(plans)) >= 3
    assert (found.predicted(found.default) or 0.0) > 0.0


def test_attention_is_cut_otherwise() -> None:
    def program() -> Tensor:
        q = Tensor(HEADS)
        return q.scaled_dot_product_attention(q, q)

    call, found = call_of(program, "cascade")
    assert isinstance(found.default, CascadePlan)
    changed = [plan for plan in found.near(found.default) if isinstance(plan, CascadePlan)]
    assert {plan.rows for plan in changed} != {found.default.rows}
    assert {plan.block for plan in changed} != {found.default.block}
    assert any(plan.phases for plan in changed)
    bench = KernelBench(call, found.sink, Device["CPU"])
    bench.seconds(found.default)
    ((wanted, dtype),) = bench.results()
    rows = next(plan for plan in changed if plan.rows != found.default.rows)
    block = next(plan for plan in changed if plan.block != found.default.block)
    phase = next(plan for plan in changed if plan.phases)
    for plan in (rows, block, phase):
        bench.seconds(plan)
        ((got, _),) = bench.results()
        assert agree(got, wanted, dtype, longest_sum(found.sink)), plan
    bench.close()


@pytest.mark.parametrize("plan", [CascadePlan(0, 0, 1), CascadePlan(1, 3, 1), CascadePlan(1, 0, 0)])
def test_a_cascade_that_does_not_fit_is_refused(plan: CascadePlan) -> None:
    call, found = call_of(PROGRAMS["cascade"], "cascade")
    bench = KernelBench(call, found.sink, Device["CPU"])
    with pytest.raises(PlanError):
        bench.seconds(plan)
    bench.close()


@pytest.mark.parametrize(
    ("kind", "plan"),
    [
        ("sort", SortPlan(7)),
        ("sort", CascadePlan(1, 0, 1)),
        ("cascade", SortPlan(8)),
        ("elementwise", CascadePlan(1, 0, 1)),
        ("sort", Plan((), (), 0)),
    ],
)
def test_a_plan_of_another_kind_is_refused(kind: str, plan: CascadePlan | SortPlan | Plan) -> None:
    call, found = call_of(PROGRAMS[kind], kind)
    bench = KernelBench(call, found.sink, Device["CPU"])
    with pytest.raises(PlanError):
        bench.seconds(plan)
    bench.close()


def test_more_work_is_predicted_to_take_longer() -> None:
    small = call_of(lambda: Tensor(X) @ Tensor(X).transpose(), "contraction")[1]
    wide = np.ones((192, 260), dtype=np.float32)
    large = call_of(lambda: Tensor(wide) @ Tensor(wide).transpose(), "contraction")[1]
    first, second = (each.predicted(each.default) or 0.0 for each in (small, large))
    assert second > 3 * first
