"""The sweeps: a thin slice of every function always, all 2**32 inputs in the slow suite."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tilework.codegen.decompose.transcendental import FLOAT32, FLOAT64
from tilework.testing.accuracy.cost import KINDS, measure
from tilework.testing.accuracy.sweep import BINARY, SKIPPED, function_names, sweep, sweep_zone

UNARY = sorted(set(FLOAT32) - {*BINARY, *SKIPPED})
AT_MOST_ONE = frozenset(
    {"acos", "cos", "exp", "exp2", "log", "log2", "reciprocal", "sin"} | {"sqrt", "tan"}
)
NEVER_FALLS = frozenset({"exp2"})
WIDE = sorted(set(FLOAT64) - set(SKIPPED))
DOCS = Path(__file__).parents[4] / "docs"
#: Chunks are kept beside other temporary files, so that an interrupted sweep goes on.
KEPT = Path(tempfile.gettempdir(), "tilework-sweeps")


def reports() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DOCS / "accuracy.json").read_text())
    return found


def bound(name: str) -> float:
    if name in AT_MOST_ONE:
        return 1.0
    return 2.5 if name in ("acosh", "atanh") else 2.0


@pytest.mark.needs("program:gcc")
@pytest.mark.parametrize("name", ["exp2", "log2", "sin"])
def test_a_thin_sweep_stays_within_the_bound(name: str, tmp_path: Path) -> None:
    report = sweep(name, "float32", tmp_path, step=65_537)
    assert report.found["worst"] <= 1.0
    assert report.found["count"] >= 65_536
    assert report.operations <= {"exp2": 21, "log2": 32, "sin": 35}[name]


@pytest.mark.slow
@pytest.mark.needs("program:gcc")
@pytest.mark.parametrize("name", UNARY)
def test_TRN_03_TRN_07_TRN_08_TRN_18_all_float32_inputs_stay_within_the_bound(name: str) -> None:
    report = sweep(name, "float32", KEPT)
    assert report.found["worst"] <= bound(name)
    assert report.found["signs"] == 0
    assert report.found["count"] == 2**32
    if name in NEVER_FALLS:
        assert report.found["descents"] == 0


@pytest.mark.slow
@pytest.mark.needs("program:gcc")
def test_TRN_10_pow_stays_within_one_ulp_on_many_pairs(tmp_path: Path) -> None:
    report = sweep("pow", "float32", tmp_path, count=10**9)
    assert report.found["worst"] <= 1.0
    assert report.found["signs"] == 0


@pytest.mark.needs("program:gcc")
def test_TRN_10_pow_stays_within_one_ulp_on_a_million_pairs(tmp_path: Path) -> None:
    found = sweep("pow", "float32", tmp_path, count=10**6, seed=77).found
    assert found["worst"] <= 1.0
    assert found["signs"] == 0


@pytest.mark.needs("program:gcc")
def test_TRN_11_pow_of_float16_is_rounded_once_with_every_hundredth_base(tmp_path: Path) -> None:
    found = sweep("pow", "float16", tmp_path, step=101).found
    assert found["worst"] <= 0.51
    assert found["signs"] == 0
    assert found["count"] >= 649 * 2**16


@pytest.mark.slow
@pytest.mark.needs("program:gcc")
def test_TRN_10_TRN_11_all_pairs_of_float16_are_rounded_once() -> None:
    found = sweep("pow", "float16", KEPT).found
    assert found["worst"] <= 0.51
    assert found["signs"] == 0
    assert found["count"] == 2**32


@pytest.mark.needs("program:gcc")
@pytest.mark.parametrize("name", WIDE)
def test_TRN_13_some_float64_samples_stay_within_one_ulp(name: str, tmp_path: Path) -> None:
    found = sweep(name, "float64", tmp_path, count=50_000, seed=1234).found
    assert found["worst"] <= 1.0
    assert found["signs"] == 0
    assert found["doubt"] <= 0.01


@pytest.mark.slow
@pytest.mark.needs("program:gcc")
@pytest.mark.parametrize("name", WIDE)
def test_TRN_13_float64_samples_stay_within_one_ulp(name: str) -> None:
    found = sweep(name, "float64", KEPT, count=10**8).found
    assert found["worst"] <= 1.0
    assert found["signs"] == 0
    assert found["doubt"] <= 0.01


@pytest.mark.parametrize("name", WIDE)
def test_TRN_09_TRN_13_the_report_has_ten_to_the_nine_samples_within_one_ulp(name: str) -> None:
    found = reports()[f"{name} float64"]["found"]
    assert found["count"] >= 10**9
    assert found["worst"] <= (0.5 if name in ("reciprocal", "sqrt") else 1.0)


def test_TRN_10_TRN_11_the_report_has_all_pairs_of_float16_and_ten_to_the_ten_of_float32() -> None:
    every, samples = reports()["pow float16"]["found"], reports()["pow float32"]["found"]
    assert every["count"] == 2**32
    assert every["worst"] <= 0.51
    assert samples["count"] >= 10**10
    assert samples["worst"] <= 1.0


# --- angles from 30 to 39800 ---------------------------------------------------------------------

SINES = ("sin", "sin_limited", "cos", "cos_limited")


@pytest.mark.needs("program:gcc")
@pytest.mark.parametrize("name", SINES)
def test_TRN_04_a_part_of_the_zone_stays_within_the_bound(name: str, tmp_path: Path) -> None:
    report = sweep_zone(name, tmp_path, chunks=2)
    assert report.found["worst"] <= 1.0
    assert report.found["signs"] == 0


@pytest.mark.slow
@pytest.mark.needs("program:gcc")
@pytest.mark.parametrize("name", SINES)
def test_TRN_04_all_of_the_zone_stays_within_the_bound(name: str) -> None:
    report = sweep_zone(name, KEPT)
    assert report.found["worst"] <= (1.0 if name.endswith("limited") else 0.51)
    assert report.found["count"] >= 2 * 86_734_848


def test_TRN_04_the_zone_has_a_report_of_its_own() -> None:
    for name in SINES:
        found = reports()[f"{name} from 30 to 39800 float32"]["found"]
        assert found["count"] >= 2 * 86_734_848
        assert found["worst"] <= 1.0


@pytest.mark.needs("program:gcc")
def test_TRN_09_quotients_next_to_the_middle_of_two_floats_are_rounded_correctly(
    tmp_path: Path,
) -> None:
    found = sweep("div", "float64", tmp_path, count=2 * 10**6).found
    assert (found["worst"], found["misrounded"], found["signs"]) == (0.5, 0, 0)


def test_TRN_09_the_report_has_ten_to_the_nine_quotients_rounded_correctly() -> None:
    found = reports()["div float64"]["found"]
    assert found["count"] >= 10**9
    assert (found["worst"], found["misrounded"], found["signs"]) == (0.5, 0, 0)


# --- cost ----------------------------------------------------------------------------------------


def test_TRN_20_the_cost_of_each_function_stands_beside_its_accuracy() -> None:
    costs = json.loads((DOCS / "accuracy-costs.json").read_text())["functions"]
    page = (DOCS / "accuracy.md").read_text()
    for dtype in ("float32", "float64"):
        for name in function_names(dtype):
            if name in SKIPPED or name.endswith("_limited"):
                continue
            cost = costs[f"{name} {dtype}"]
            assert cost["longest"] >= cost["slowest"] >= cost["ordinary"] > 0
            row = f"| {name} {dtype} | "
            assert row in page


def test_TRN_20_a_cost_is_measured_for_every_kind_of_inputs() -> None:
    found = measure("exp2", "float32")
    assert all(found[kind] > 0 for kind in KINDS)
    assert found["slowest"] == max(found[kind] for kind in KINDS)
