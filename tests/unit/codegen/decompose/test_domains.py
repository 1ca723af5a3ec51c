"""TRN-14: helpers state their domains, and a build that checks every lane finds none left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilework.base.errors import InternalError
from tilework.codegen.decompose import transcendental
from tilework.codegen.decompose.builder import Value, needs
from tilework.codegen.decompose.exponential import reduce_exp
from tilework.codegen.decompose.trigonometric import FLOAT32_LIMIT
from tilework.testing.accuracy.checked_builder import CheckedBuilder, evaluate_checked
from tilework.testing.accuracy.numpy_builder import evaluate
from tilework.testing.accuracy.sweep import BINARY, SKIPPED, function_names, sweep

FLOAT16 = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32)
BITS = np.arange(0, 2**32, 65551, dtype=np.uint64).astype(np.uint32)
FLOAT32 = np.concatenate([BITS.view(np.float32), FLOAT16])
RANDOM = np.random.default_rng(9)
FLOAT64 = np.concatenate(
    [
        RANDOM.integers(0, 2**64, 20_000, dtype=np.uint64).view(np.float64),
        RANDOM.standard_normal(10_000) * 300,
        np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 5e-324, -5e-324, 1.7e308]),
    ]
)
ONE_OPERAND = [
    (dtype, name)
    for dtype in ("float32", "float64")
    for name in function_names(dtype)
    if name not in BINARY and name not in SKIPPED
]


def construction_of(dtype: str, name: str) -> Any:
    if dtype == "float64":
        return transcendental.FLOAT64[name]
    return (transcendental.FLOAT32 | transcendental.MORE_FLOAT32)[name]


@pytest.mark.parametrize(("dtype", "name"), ONE_OPERAND)
def test_TRN_14_no_lane_leaves_a_domain_or_is_converted_out_of_range(dtype: str, name: str) -> None:
    inputs = FLOAT32 if dtype == "float32" else FLOAT64
    if name.endswith("_limited"):
        inputs = inputs[np.abs(inputs) <= FLOAT32_LIMIT]
    construction = construction_of(dtype, name)
    found, _ = evaluate_checked(construction, inputs)
    np.testing.assert_array_equal(found, evaluate(construction, inputs))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_TRN_14_powers_of_all_pairs_of_edges_stay_in_their_domains(dtype: str) -> None:
    with np.errstate(invalid="ignore"):  # NaN that signal
        edges = FLOAT16[::197].astype(dtype)
    x, y = (part.ravel() for part in np.meshgrid(edges, edges))
    _, checked = evaluate_checked(construction_of(dtype, "pow"), x, y)
    assert set(checked) & {"wide_exp2", "scale_by_power"}


@pytest.mark.parametrize("name", ["exp", "exp2", "expm1", "sinh"])
def test_TRN_14_the_domains_of_exponentials_are_looked_at(name: str) -> None:
    _, checked = evaluate_checked(construction_of("float32", name), FLOAT16)
    assert sum(checked.values()) >= len(FLOAT16)


@pytest.mark.parametrize("value", [600.0, -np.inf])
def test_TRN_14_a_helper_outside_of_its_domain_is_refused(value: float) -> None:
    x: Any = Value(CheckedBuilder(), np.array([1.0, value], np.float32), "float32")
    with pytest.raises(InternalError, match="reduce_exp: its domain is left"):
        reduce_exp(x, 0)


def test_TRN_14_nan_is_in_every_domain() -> None:
    builder = CheckedBuilder()
    needs(Value(builder, np.array([np.nan], np.float32), "float32"), -1.0, 1.0, "any")
    assert builder.checked == {"any": 1}


@pytest.mark.parametrize("value", [2.0**31, -(2.0**31) - 300, np.nan, np.inf])
def test_TRN_14_a_conversion_out_of_range_is_refused(value: float) -> None:
    x: Any = Value(CheckedBuilder(), np.array([value], np.float32), "float32")
    with pytest.raises(InternalError, match="out of range"):
        x.cast("int32")


def test_TRN_14_a_shift_by_the_whole_word_is_refused() -> None:
    x: Any = Value(CheckedBuilder(), np.array([1], np.int32), "int32")
    with pytest.raises(InternalError, match="as long as the word"):
        x << 32


@pytest.mark.slow
@pytest.mark.needs("program:gcc")
@pytest.mark.parametrize(("dtype", "name"), ONE_OPERAND)
def test_TRN_14_a_sanitizer_of_undefined_behaviour_finds_nothing(
    dtype: Any, name: str, tmp_path: Path
) -> None:
    report = sweep(name, dtype, tmp_path, step=2**10, count=10**6, sanitize=True)
    assert report.found["count"] >= 10**6


@pytest.mark.slow
@pytest.mark.needs("program:gcc")
def test_TRN_14_what_other_code_has_found_does_not_count_for_the_sanitizer(tmp_path: Path) -> None:
    for sanitize in (False, True):
        sweep("exp", "float32", tmp_path, step=2**16, sanitize=sanitize)
    kept = [path.relative_to(tmp_path).parent.name for path in tmp_path.rglob("*.json")]
    assert sorted(kept) == ["", "sanitized"]
