"""Plans as JSON."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tilework.base.errors import PlanError
from tilework.codegen.plan.kinds import AnyPlan, CascadePlan, SortPlan
from tilework.codegen.plan.plan import Part, Plan, Split, Staged
from tilework.codegen.plan.serialise import FORMAT, plan_from_json, plan_to_json
from tilework.ir.ops.index import Unit
from tilework.ir.types import Memory

PLAN = Plan(
    (
        Split(0, (Part(Unit.LOOP), Part(Unit.LOOP, 4)), (Part(Unit.UNROLL, 6),)),
        Split(2, (Part(Unit.LOOP),), (Part(Unit.UNROLL, 2), Part(Unit.LANE, 8))),
    ),
    ((0, 0), (2, 0), (0, 1)),
    1,
    (Staged(1, Memory.TILE, 2, 8, depth=3),),
    overlap=False,
    swapped=True,
    matrix="wgmma_64x256x16",
    ahead=4096,
)


def test_a_plan_comes_back_from_json_text() -> None:
    assert plan_from_json(json.loads(json.dumps(plan_to_json(PLAN)))) == PLAN


def test_another_format_is_refused() -> None:
    with pytest.raises(PlanError, match="another format"):
        plan_from_json({**plan_to_json(PLAN), "format": 99})


@pytest.mark.parametrize(
    "plan",
    [
        CascadePlan(64, 32, 1),
        CascadePlan(1, 0, 8, ((0, PLAN), (3, PLAN))),
        SortPlan(11),
        replace(PLAN, rolled=True, ahead=4096),
    ],
)
def test_every_kind_of_plan_survives_json(plan: AnyPlan) -> None:
    assert plan_from_json(json.loads(json.dumps(plan_to_json(plan)))) == plan


@pytest.mark.parametrize(
    "data",
    [
        {**plan_to_json(SortPlan(8)), "digit": "8"},
        {**plan_to_json(CascadePlan(1, 0, 1)), "rows": None},
        {**plan_to_json(CascadePlan(1, 0, 1)), "phases": [[0]]},
        {**plan_to_json(CascadePlan(1, 0, 1)), "phases": [[0, {"format": FORMAT}]]},
    ],
)
def test_malformed_plans_of_other_kinds_are_refused(data: Any) -> None:
    with pytest.raises(PlanError, match="the data is no plan"):
        plan_from_json(data)


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"format": FORMAT},
        {**plan_to_json(PLAN), "tasks": "1"},
        {**plan_to_json(PLAN), "overlap": 1},
        {**plan_to_json(PLAN), "matrix": None},
        {**plan_to_json(PLAN), "nest": [[0]]},
        {**plan_to_json(PLAN), "splits": [{"number": 0, "outer": [["sideways", 1]], "tile": []}]},
        {**plan_to_json(PLAN), "splits": [{"number": 0, "outer": [[3, 1]], "tile": []}]},
    ],
)
def test_malformed_data_is_refused(data: Any) -> None:
    with pytest.raises(PlanError, match="the data is no plan"):
        plan_from_json(data)
