"""Shipped plans are used where they were measured, and nowhere else."""

import json
from pathlib import Path

import numpy as np
import pytest

from tilework import Tensor
from tilework.base import settings
from tilework.base.errors import PlanError
from tilework.codegen.alternatives import alternatives
from tilework.codegen.plan import shipped
from tilework.codegen.plan.database import Record, database, record_key, tuned_plan
from tilework.codegen.plan.serialise import FORMAT
from tilework.codegen.plan.shipped import Shipped, machine_class, plans_from_json, plans_to_json
from tilework.codegen.tuned import lower_as_tuned
from tilework.dtypes import bfloat16
from tilework.engine import link, tune
from tilework.engine.compile import clear_memory
from tilework.engine.device import Device
from tilework.ir.digest import digest
from tilework.ir.node import Node
from tilework.schedule import cache
from tilework.schedule.call import transform_to_call
from tilework.schedule.pipeline import create_schedule
from tilework.target.known.cpu import Caches, x86_level_spec
from tilework.target.known.cuda import cuda_spec

X = np.arange(40 * 56, dtype=np.float32).reshape(40, 56) % 7


def product() -> np.ndarray:
    cache.clear()
    link.CACHE.clear()
    return (Tensor(X) @ Tensor(X).transpose()).numpy()


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    """A kernel for which a plan is shipped, in a folder of its own."""
    with settings.override(cache_dir=None):
        (found,) = [
            call.kernel
            for call in tune.collect(product)
            if call.kernel is not None and "contraction" in call.code.name
        ]
        target = Device["CPU"].spec
        plans = alternatives(found, target)
        assert plans is not None
        plan = next(p for p in plans.near(plans.default) if plans.predicted(p) is not None)
        rows = {digest(found).hex(): Shipped(plans.name, plan, 1.25)}
        document = plans_to_json(rows, target, 1.08)
    (tmp_path / f"{machine_class(target)}.json").write_text(json.dumps(document))
    monkeypatch.setattr(shipped, "FOLDER", tmp_path)
    clear_memory()
    return found


def test_a_shipped_plan_is_taken_and_gives_the_same(kernel: Node) -> None:
    with settings.override(cache_dir=None):
        assert tuned_plan(kernel, Device["CPU"].spec) is not None
        np.testing.assert_array_equal(product(), X @ X.T)


def test_other_machines_settings_and_kernels_take_the_default(kernel: Node) -> None:
    target = Device["CPU"].spec
    smaller = x86_level_spec("x86-64-v4", cores=target.cores, caches=Caches(l2_bytes=1 << 20))
    assert tuned_plan(kernel, smaller) is None
    level = "x86-64-v4" if target.cpu_name == "x86-64-v3" else "x86-64-v3"
    assert tuned_plan(kernel, x86_level_spec(level, cores=target.cores)) is None
    assert tuned_plan(kernel.src[0], target) is None
    with settings.override(fp_mode="fast"):
        assert tuned_plan(kernel, target) is None
    with settings.override(deterministic=True):
        assert tuned_plan(kernel, target) is None


def test_what_the_user_has_measured_goes_first(kernel: Node, tmp_path: Path) -> None:
    target = Device["CPU"].spec
    with settings.override(cache_dir=tmp_path / "cache"):
        assert record_key(kernel, target) == ""
        database().put(kernel, target, Record(None, 1.0, 1.0))
        assert tuned_plan(kernel, target) is None
        assert record_key(kernel, target) != ""


def test_classes_of_machines_differ_by_what_plans_depend_on() -> None:
    base = x86_level_spec("x86-64-v4", cores=2)
    others = [
        x86_level_spec("x86-64-v4", cores=4),
        x86_level_spec("x86-64-v3", cores=2),
        x86_level_spec("x86-64-v4", cores=2, caches=Caches(l1_bytes=48 << 10)),
        x86_level_spec("x86-64-v4", cores=2, caches=Caches(l2_bytes=2 << 20)),
    ]
    assert len({machine_class(target) for target in [base, *others]}) == 5


@pytest.mark.parametrize("document", [None, {}, {"format": 99}, {"format": FORMAT}])
def test_malformed_files_are_refused(document: object) -> None:
    with pytest.raises(PlanError):
        plans_from_json(document, "machine", "settings")


def test_a_file_of_another_version_is_as_none(tmp_path: Path) -> None:
    (tmp_path / "machine.json").write_text('{"format": 1}')
    assert shipped._load(tmp_path, "machine", "settings") == {}


def test_every_shipped_file_is_whole_and_states_its_margin() -> None:
    for path in shipped.FOLDER.glob("*.json"):
        document = json.loads(path.read_text())
        plans = plans_from_json(document, path.stem, document["settings"])
        assert len(plans) == len(document["plans"]) > 0
        assert document["margin"] > 1.0
        assert all(row.gain >= document["margin"] for row in plans.values())


def test_the_plans_of_an_h200_are_those_of_its_kernels() -> None:
    target = cuda_spec(90)
    path = shipped.FOLDER / f"{machine_class(target)}.json"
    plans = json.loads(path.read_text(encoding="utf-8"))["plans"]
    x, w = (Tensor.empty(*shape, dtype=bfloat16) for shape in ((16, 768), (2304, 768)))
    function = transform_to_call([(x @ w.transpose()).node]).function
    kernel = create_schedule(function).linear.src[-1].src[0]
    assert digest(kernel).hex() in plans
    plan = tuned_plan(kernel, target)
    found = alternatives(kernel, target)
    assert plan is not None
    assert found is not None
    assert plan != found.default
    with settings.override(prove_accesses=True):
        assert lower_as_tuned(kernel, target).plan == repr(plan)
