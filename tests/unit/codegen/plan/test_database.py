"""Tuned plans are kept, found again, and refused where they do not belong."""

from pathlib import Path

import pytest

from tilework.base import settings
from tilework.base.errors import PlanError
from tilework.codegen.plan.database import (
    PlanDatabase,
    Record,
    database,
    plan_digest,
    record_from_bytes,
    record_to_bytes,
    tuned_plan,
)
from tilework.codegen.plan.plan import Part, Plan, Split
from tilework.dtypes import float32
from tilework.ir.build import const_index
from tilework.ir.node import Node
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs, Unit
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.target.known.cpu import x86_level_spec

TARGET = x86_level_spec("x86-64-v3")
PLAN = Plan((Split(0, (Part(Unit.LOOP),), (Part(Unit.LANE, 8),)),), ((0, 0),), 1)
RECORD = Record(PLAN, 1e-6, 2e-6, {"a", "b"}, is_done=True)


def doubled(count: int = 64) -> Node:
    i = RANGE(const_index(count), attrs=RangeAttrs(0))
    x, y = (INDEX(PARAM(attrs=ParamAttrs(slot, (count,), float32)), i) for slot in (1, 0))
    return SINK(STORE(y, math.ADD(LOAD(x), LOAD(x))))


def test_a_record_survives_the_disk(tmp_path: Path) -> None:
    PlanDatabase(tmp_path, 1 << 20).put(doubled(), TARGET, RECORD)
    assert PlanDatabase(tmp_path, 1 << 20).find(doubled(), TARGET) == RECORD


def test_nothing_is_known_of_other_kernels_targets_and_settings(tmp_path: Path) -> None:
    found = PlanDatabase(tmp_path, 1 << 20)
    found.put(doubled(), TARGET, RECORD)
    assert found.find(doubled(65), TARGET) is None
    assert found.find(doubled(), x86_level_spec("x86-64-v4")) is None
    with settings.override(fp_mode="fast"):
        assert found.find(doubled(), TARGET) is None


def test_a_folder_that_is_not_there_is_not_made_by_looking(tmp_path: Path) -> None:
    assert PlanDatabase(tmp_path / "plans", 1 << 20).find(doubled(), TARGET) is None
    assert not (tmp_path / "plans").exists()


def test_without_a_cache_nothing_is_kept_for_other_processes() -> None:
    with settings.override(cache_dir=None):
        assert tuned_plan(doubled(66), TARGET) is None


def test_deterministic_runs_use_no_tuned_plan(tmp_path: Path) -> None:
    with settings.override(cache_dir=tmp_path):
        database().put(doubled(), TARGET, RECORD)
        assert tuned_plan(doubled(), TARGET) == PLAN
    with settings.override(cache_dir=tmp_path, deterministic=True):
        assert tuned_plan(doubled(), TARGET) is None


@pytest.mark.parametrize("raw", [b"", b"[]", b"{}", b'{"plan": {"format": 0}}', b"\xff"])
def test_malformed_records_are_refused(raw: bytes) -> None:
    with pytest.raises(PlanError):
        record_from_bytes(raw)


def test_a_record_may_have_no_plan() -> None:
    record = Record(None, 1.0, 1.0)
    assert record_from_bytes(record_to_bytes(record)) == record


def test_plans_that_differ_have_other_digests() -> None:
    other = Plan(PLAN.splits, PLAN.nest, 0)
    assert plan_digest(PLAN) == plan_digest(PLAN) != plan_digest(other)
