"""Accuracy and special values of the float64 constructions, against multi-precision."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

from tilework.codegen.decompose.transcendental import FLOAT64
from tilework.testing.accuracy.numpy_builder import evaluate

INF, NAN = math.inf, math.nan
ORACLES: dict[str, Callable[..., Any]] = {
    "exp2": lambda v: mpmath.mpf(2) ** v,
    "log2": lambda v: mpmath.log(v, 2),
    "pow": lambda v, w: mpmath.power(v, w),
    "reciprocal": lambda v: 1 / v,
}
BOUNDS = {
    name: 0.5 if name in ("reciprocal", "sqrt") else 1.0
    for name in FLOAT64
    if name not in ("atan2", "fmod", "mulacc")
}
RANGES: dict[str, tuple[float, float]] = {
    "acos": (-1, 1),
    "acosh": (1, 40),
    "asin": (-1, 1),
    "atanh": (-1, 1),
    "erf": (-6, 6),
    "exp": (-700, 700),
    "exp2": (-1022, 1023),
    "expm1": (-30, 700),
    "log": (0, 4),
    "log1p": (-0.999, 4),
    "log2": (0, 4),
    "sinh": (-700, 700),
    "cosh": (-700, 700),
    "sqrt": (0, 4),
    "tanh": (-20, 20),
}


def error(found: float, exact: Any) -> float:
    _, exponent = mpmath.frexp(exact)
    return float(abs(mpmath.mpf(found) - exact) * mpmath.mpf(2) ** (53 - int(exponent)))


def exact(name: str, *operands: float) -> Any:
    oracle = ORACLES.get(name) or getattr(mpmath, name)
    with mpmath.workdps(60 + max(0, *(math.frexp(v)[1] // 3 for v in operands))):
        return +oracle(*(mpmath.mpf(v) for v in operands))


@pytest.mark.parametrize("name", sorted(BOUNDS))
def test_TRN_13_a_float64_function_stays_within_its_bound(name: str) -> None:
    rng = np.random.default_rng(11)
    low, high = RANGES.get(name, (-100.0, 100.0))
    x = np.concatenate((rng.uniform(low, high, 300), rng.uniform(0.1, 0.9, 100)))
    if name == "acosh":
        x = 1 + np.abs(x)
    arrays = [x]
    if name == "pow":
        x = np.abs(x)
        arrays = [x, rng.uniform(-900, 900, x.size) / np.log2(x)]
    found = evaluate(FLOAT64[name], *arrays)
    with mpmath.workdps(60):
        errors = [
            error(value, exact(name, *(float(v) for v in operands)))
            for value, *operands in zip(found, *arrays, strict=True)
        ]
    assert max(errors) <= BOUNDS[name]


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_TRN_05_huge_float64_angles_are_reduced_exactly(name: str) -> None:
    rng = np.random.default_rng(12)
    x = np.ldexp(rng.uniform(0.5, 1, 150), rng.integers(-3, 1025, 150))
    # The float64 nearest to a multiple of pi/2, and multiples of pi/2 as far as they are exact.
    hard = [
        6381956970095103 * 2.0**797,
        5.31937264832654141671e255,
        *(np.arange(1, 40) * np.pi / 2),
    ]
    x = np.concatenate((x, hard))
    found = evaluate(FLOAT64[name], x)
    with mpmath.workdps(420):
        errors = [error(f, exact(name, float(v))) for f, v in zip(found, x, strict=True)]
    assert max(errors) <= BOUNDS[name]
    if name != "cos":
        assert np.array_equal(evaluate(FLOAT64[name], -x), -found)


@pytest.mark.parametrize(
    ("name", "operands", "wanted"),
    [
        ("exp2", (1024.0,), INF),
        ("exp2", (-1074.0,), 5e-324),
        ("exp2", (-1075.0,), 0.0),
        ("exp", (710.0,), INF),
        ("exp", (-746.0,), 0.0),
        ("log2", (5e-324,), -1074.0),
        ("log2", (-5e-324,), NAN),
        ("log", (0.0,), -INF),
        ("sin", (-0.0,), -0.0),
        ("sin", (INF,), NAN),
        ("cos", (0.0,), 1.0),
        ("tanh", (-0.0,), -0.0),
        ("tanh", (INF,), 1.0),
        ("erf", (-INF,), -1.0),
        ("erf", (-0.0,), -0.0),
        ("atan", (1e300,), math.pi / 2),
        ("acosh", (INF,), INF),
        ("asinh", (-INF,), -INF),
        ("cosh", (710.4,), float(mpmath.cosh(710.4))),
        ("expm1", (-0.0,), -0.0),
        ("log1p", (-1.0,), -INF),
        ("pow", (1.0, NAN), 1.0),
        ("pow", (NAN, 0.0), 1.0),
        ("pow", (-1.0, INF), 1.0),
        ("pow", (-8.0, 1 / 3), NAN),
        ("pow", (-0.0, -3.0), -INF),
        ("pow", (-0.0, 3.0), -0.0),
        ("pow", (-2.0, 2.0**53 + 2), INF),
        ("pow", (-1.0, 2.0**53 - 1), -1.0),
        ("pow", (0.5, INF), 0.0),
        ("pow", (-INF, 3.0), -INF),
        ("pow", (INF, -0.5), 0.0),
    ],
)
def test_a_special_input_gives_its_special_value(
    name: str, operands: tuple[float, ...], wanted: float
) -> None:
    (found,) = evaluate(FLOAT64[name], *(np.array([v]) for v in operands))
    if math.isnan(wanted):
        assert math.isnan(found)
    else:
        assert found == pytest.approx(wanted, rel=1e-6)
        assert math.copysign(1, found) == math.copysign(1, wanted)


@pytest.mark.parametrize("name", sorted(BOUNDS))
def test_every_function_keeps_a_nan(name: str) -> None:
    operands = [np.array([NAN])] * (2 if name == "pow" else 1)
    assert np.isnan(evaluate(FLOAT64[name], *operands)).all()
