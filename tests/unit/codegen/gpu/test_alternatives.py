"""Kernels for cards have other plans: legal ones, kept as plain data, that compute the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from tests.emulated_cards import emulated_cards

from tilework import Tensor
from tilework.base import settings
from tilework.base.errors import PlanError
from tilework.base.records import replace
from tilework.codegen.alternatives import Alternatives, alternatives
from tilework.codegen.gpu.contract import tile_size
from tilework.codegen.gpu.plan import GpuPlan
from tilework.codegen.pipeline import lower_kernel
from tilework.codegen.plan.database import Record, database, plan_digest
from tilework.codegen.plan.plan import Part
from tilework.codegen.plan.serialise import plan_from_json, plan_to_json
from tilework.dtypes import DType, bfloat16, float32
from tilework.engine import kernel_bench, tune
from tilework.engine.bench_data import agree, longest_sum
from tilework.engine.device import Device
from tilework.engine.kernel_bench import KernelBench
from tilework.ir.node import Node
from tilework.ir.ops.index import Unit
from tilework.schedule.call import transform_to_call
from tilework.schedule.pipeline import create_schedule
from tilework.target.known.cuda import cuda_spec

ROWS = np.linspace(-1.0, 1.0, 8 * 96, dtype=np.float32).reshape(8, 96)
PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "elementwise": lambda x: x * 2.0 + 1.0,
    "reduction": lambda x: x.sum(axis=1),
}


def square(size: int = 512, dtype: DType = bfloat16) -> Node:
    """The kernel of a product: of 16-bit numbers one that matrix units take."""
    a, b = (Tensor.empty(size, size, dtype=dtype) for _ in range(2))
    call = transform_to_call([(a @ b).node])
    return create_schedule(call.function).linear.src[-1].src[0]


def plans_of(capability: int) -> Alternatives:
    found = alternatives(square(), cuda_spec(capability))
    assert found is not None
    return found


@pytest.fixture
def _card(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A card in software, on which one run of a plan says enough."""
    monkeypatch.setattr(kernel_bench, "_MOST_RUNS", 1)
    monkeypatch.setattr(kernel_bench, "_MOST_COPIES", 1)
    with emulated_cards(monkeypatch):
        yield


@pytest.mark.parametrize("capability", [80, 90])
def test_products_on_matrix_units_are_proposed_in_the_order_of_their_costs(capability: int) -> None:
    plans = plans_of(capability)
    near = plans.near(plans.default)
    assert len(near) == len(set(near)) > 10
    assert plans.default not in near
    costs = [plans.predicted(plan) or 0.0 for plan in near]
    assert costs == sorted(costs)
    assert 0.0 < (plans.predicted(plans.default) or 0.0) <= costs[0]
    for plan in near[:: len(near) // 3]:
        assert plan_from_json(plan_to_json(plan)) == plan
        assert lower_kernel(plans.sink, plans.target, plan).plan == repr(plan)


def test_no_neighbour_of_a_product_by_plain_arithmetic_leaves_its_factors() -> None:
    """Fewer rows than threads can turn at once made threads store beside the tile."""
    sink, target = square(2048, float32), cuda_spec(90)
    plans = alternatives(sink, target)
    assert plans is not None
    near = [plan for plan in plans.near(plans.default) if isinstance(plan, GpuPlan)]
    assert isinstance(plans.default, GpuPlan)
    few = [plan for plan in near if tile_size(plan.rows) < tile_size(plans.default.rows)]
    assert few
    assert len(near) > len(few)
    with settings.override(prove_accesses=True):
        for plan in [*few, near[-1]]:
            assert lower_kernel(sink, target, plan).plan == repr(plan)
    rows = (Part(Unit.LOCAL, 4), Part(Unit.UNROLL, 1), Part(Unit.LOCAL, 4), Part(Unit.UNROLL, 2))
    for plan in (replace(plans.default, rows=rows), replace(plans.default, depth=2)):
        with pytest.raises(PlanError, match="turn a tile on its way evenly"):
            lower_kernel(sink, target, plan)


@pytest.mark.usefixtures("_card")
@pytest.mark.parametrize("kind", PROGRAMS)
def test_plans_for_blocks_compute_the_same(kind: str) -> None:
    x = Tensor(ROWS, device="CUDA").realize()
    (call,) = tune.collect(lambda: PROGRAMS[kind](x).realize())
    assert call.kernel is not None
    plans = alternatives(call.kernel, Device["CUDA"].spec)
    assert plans is not None
    assert plans.kind == kind
    bench = KernelBench(call, plans.sink, Device["CUDA"])
    bench.seconds(plans.default)
    expected = bench.results()
    near = plans.near(plans.default)[:3]
    bench.prepare(near)
    for plan in near:
        assert plan_from_json(plan_to_json(plan)) == plan
        bench.seconds(plan)
        for (got, dtype), (wanted, _) in zip(bench.results(), expected, strict=True):
            assert agree(got, wanted, dtype, longest_sum(plans.sink)), plan
    bench.close()
    assert len(near) == 3


@pytest.mark.usefixtures("_card")
def test_a_tuned_plan_is_what_the_compiler_of_a_card_takes(tmp_path: object) -> None:
    with settings.override(cache_dir=tmp_path):
        compiler, target = Device["CUDA"].compiler, Device["CUDA"].spec
        sink = square()
        plans = alternatives(sink, target)
        assert plans is not None
        other = plans.near(plans.default)[0]
        before = compiler.lower(sink).text
        database().put(sink, target, Record(other, 1.0, 2.0, {plan_digest(other)}))
        assert compiler.lower(sink).text != before
        assert compiler.plan_key(sink)  # type: ignore[attr-defined]  # compilers with plans
