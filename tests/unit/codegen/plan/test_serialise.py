"""Plans as JSON."""

import json
from typing import Any

import pytest

from tilework.base.errors import PlanError
from tilework.codegen.plan.plan import Part, Plan, Split, Staged
from tilework.codegen.plan.serialise import plan_from_json, plan_to_json
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
    "data",
    [
        None,
        [],
        {},
        {"format": 3},
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
