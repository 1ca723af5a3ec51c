"""Accuracy and special values of the float32 constructions, on arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
import scipy.special
from numpy.typing import NDArray

from tilework.codegen.decompose import trigonometric
from tilework.codegen.decompose.transcendental import FLOAT32, FLOAT64, MORE_FLOAT32
from tilework.testing.accuracy.measure import ulp_errors
from tilework.testing.accuracy.numpy_builder import evaluate

Floats = NDArray[Any]
INF, NAN = math.inf, math.nan
ORACLES: dict[str, Callable[[Floats], Floats]] = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "cos": np.cos,
    "cosh": np.cosh,
    "erf": scipy.special.erf,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "log2": np.log2,
    "reciprocal": np.reciprocal,
    "sigmoid": scipy.special.expit,
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
}
# Largest error over all 2**32 inputs, as docs/accuracy.md reports it, rounded up.
BOUNDS = {
    "acos": 1.0,
    "acosh": 2.5,
    "asin": 1.5,
    "asinh": 2.0,
    "atan": 1.5,
    "atanh": 2.5,
    "cos": 0.51,
    "cosh": 1.5,
    "erf": 1.5,
    "exp": 1.0,
    "exp2": 1.0,
    "expm1": 1.5,
    "log": 1.0,
    "log10": 1.0,
    "log1p": 1.5,
    "log2": 1.0,
    "reciprocal": 0.5,
    "sigmoid": 2.5,
    "sin": 0.51,
    "sinh": 2.0,
    "sqrt": 0.5,
    "tan": 0.51,
    "tanh": 2.0,
}
CONSTRUCTIONS = FLOAT32 | MORE_FLOAT32


def exact(name: str, x: Floats) -> Floats:
    with np.errstate(all="ignore"):
        return ORACLES[name](x.astype(np.float64))


def sample() -> Floats:
    """Every 64 Ki-th float of both signs, neighbourhoods of 1, pi and zero, and the specials."""
    spread = np.arange(0, 2**32, 65_521, dtype=np.uint64).astype(np.uint32).view(np.float32)
    centres = np.array(
        [0, 0.5, 0.55, 0.90625, 1, math.sqrt(0.5), math.pi / 2, math.pi, 88.7], dtype=np.float32
    )
    near = centres.view(np.int32)[:, None] + np.arange(-300, 300, dtype=np.int32)
    moderate = np.linspace(-110, 130, 40_001, dtype=np.float32)
    edges = np.array([INF, NAN, 2**-126, 2**-149, 3.4028235e38], dtype=np.float32)
    parts = (spread, near.ravel().view(np.float32), moderate, edges)
    both = np.concatenate(parts)
    return np.concatenate((both, -both))


def run(name: str, *values: float) -> list[float]:
    arrays = [np.float32(value).reshape(1) for value in values]
    return [float(v) for v in evaluate(CONSTRUCTIONS[name], *arrays)]


def same(found: float, wanted: float) -> bool:
    if math.isnan(wanted):
        return math.isnan(found)
    return found == wanted and math.copysign(1, found) == math.copysign(1, wanted)


@pytest.mark.parametrize("name", sorted(ORACLES))
def test_TRN_18_a_float32_function_stays_within_its_bound(name: str) -> None:
    x = sample()
    errors = ulp_errors(evaluate(CONSTRUCTIONS[name], x), exact(name, x))
    worst = int(np.argmax(errors))
    assert errors[worst] <= BOUNDS[name], f"{name}({float(x[worst]).hex()})"


@pytest.mark.parametrize("name", sorted(ORACLES))
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_TRN_11_a_narrow_float_is_rounded_once_for_every_input(name: str, dtype: str) -> None:
    patterns = np.arange(2**16, dtype=np.uint16)
    if dtype == "float16":
        x = patterns.view(np.float16).astype(np.float32)
        with np.errstate(all="ignore"):
            narrow = evaluate(CONSTRUCTIONS[name], x).astype(np.float16)
        errors = ulp_errors(narrow, exact(name, x))
    else:
        x = (patterns.astype(np.uint32) << 16).view(np.float32)
        result = evaluate(CONSTRUCTIONS[name], x)
        errors = ulp_errors(result, exact(name, x)) * 2.0**-16 + 0.5
    assert errors.max() <= 0.51


@pytest.mark.parametrize(
    ("name", "x", "wanted"),
    [
        ("exp2", 128.0, INF),
        ("exp2", 128 - 2**-17, 2.0 ** (128 - 2**-17)),
        ("exp2", -149.0, 2.0**-149),
        ("exp2", -150.0, 0.0),
        ("exp2", np.nextafter(np.float32(-150), np.float32(0)), 2.0**-149),
        ("exp2", -0.0, 1.0),
        ("exp2", INF, INF),
        ("exp2", -INF, 0.0),
        ("exp", -INF, 0.0),
        ("exp", INF, INF),
        ("expm1", -0.0, -0.0),
        ("expm1", -INF, -1.0),
        ("expm1", 1e-9, float(np.float32(1e-9))),
        ("log1p", 1e-9, float(np.float32(1e-9))),
        ("log1p", -1.0, -INF),
        ("log1p", -1.5, NAN),
        ("log1p", -0.0, -0.0),
        ("log1p", INF, INF),
        ("log2", 0.0, -INF),
        ("log2", -0.0, -INF),
        ("log2", -(2.0**-149), NAN),
        ("log2", -INF, NAN),
        ("log2", INF, INF),
        ("log2", 1.0, 0.0),
        ("log", 0.0, -INF),
        ("log", -1.0, NAN),
        ("sin", -0.0, -0.0),
        ("sin", INF, NAN),
        ("cos", -INF, NAN),
        ("cos", 0.0, 1.0),
        ("tan", -0.0, -0.0),
        ("tanh", INF, 1.0),
        ("tanh", -INF, -1.0),
        ("tanh", -0.0, -0.0),
        ("erf", INF, 1.0),
        ("erf", -0.0, -0.0),
        ("atan", INF, float(np.float32(math.pi / 2))),
        ("atan", 1e20, float(np.float32(math.pi / 2))),
        ("atan", -0.0, -0.0),
        ("acosh", 1.0, 0.0),
        ("acosh", INF, INF),
        ("acosh", 0.5, NAN),
        ("asinh", -INF, -INF),
        ("asinh", -0.0, -0.0),
        ("atanh", 1.0, INF),
        ("atanh", -1.0, -INF),
        ("atanh", 1.5, NAN),
        ("asin", 1.5, NAN),
        ("acos", -1.5, NAN),
        ("acos", 1.0, 0.0),
        ("sigmoid", -INF, 0.0),
        ("sigmoid", INF, 1.0),
        ("cosh", -INF, INF),
        ("sinh", -INF, -INF),
        ("reciprocal", -0.0, -INF),
        ("sqrt", -0.0, -0.0),
        ("sqrt", -1.0, NAN),
        ("sqrt", INF, INF),
    ],
)
def test_a_special_input_gives_its_special_value(name: str, x: float, wanted: float) -> None:
    (found,) = run(name, x)
    assert same(found, float(np.float32(wanted)))


@pytest.mark.parametrize("name", sorted(ORACLES))
def test_every_function_keeps_a_nan(name: str) -> None:
    assert math.isnan(run(name, NAN)[0])


def test_TRN_07_exp2_is_exact_for_integers_and_never_falls() -> None:
    whole = np.arange(-149, 128, dtype=np.float32)
    assert np.array_equal(evaluate(CONSTRUCTIONS["exp2"], whole), np.exp2(whole.astype(float)))
    patterns = np.array([-1.0, -0.5, 0.499, 0.5, 1.0], dtype=np.float32).view(np.int32)
    near = patterns[:, None] + np.arange(-20_000, 20_000, dtype=np.int32)
    for line in np.sort(near.view(np.float32), axis=1):
        assert (np.diff(evaluate(CONSTRUCTIONS["exp2"], line)) >= 0).all()


def test_TRN_08_log2_is_exact_for_powers_of_two() -> None:
    exponents = np.arange(-149, 128)
    powers = np.ldexp(np.float64(1), exponents).astype(np.float32)
    assert np.array_equal(evaluate(CONSTRUCTIONS["log2"], powers), exponents)


def test_TRN_03_sin_is_odd_and_right_for_the_largest_angles() -> None:
    bits = np.arange(0x4B000000, 0x7F800000, 130_003, dtype=np.int32)
    x = bits.view(np.float32)
    found = evaluate(CONSTRUCTIONS["sin"], x)
    assert np.array_equal(evaluate(CONSTRUCTIONS["sin"], -x), -found)
    with mpmath.workdps(80):
        wanted = np.array([float(mpmath.sin(mpmath.mpf(float(v)))) for v in x])
    assert ulp_errors(found, wanted).max() <= 0.51


def test_TRN_06_no_angle_gets_the_reduction_of_small_ones_without_a_proof() -> None:
    """Kernels have the reduction of all angles; that of small ones is wrong beyond its limit."""
    assert FLOAT32["sin"] is trigonometric.sin
    assert FLOAT32["cos"] is trigonometric.cos
    limited = {trigonometric.sin_limited, trigonometric.cos_limited}
    assert not limited & {*FLOAT32.values(), *FLOAT64.values()}
    angles = np.array([3e7, 1e12, 3e38], dtype=np.float32)
    for whole, small, exact in (("sin", "sin_limited", np.sin), ("cos", "cos_limited", np.cos)):
        wanted = exact(angles.astype(np.float64))
        assert ulp_errors(evaluate(CONSTRUCTIONS[whole], angles), wanted).max() <= 1.0
        with np.errstate(all="ignore"):
            assert ulp_errors(evaluate(CONSTRUCTIONS[small], angles), wanted).min() > 1.0


def test_TRN_04_both_reductions_agree_around_the_limit_and_between_30_and_39800() -> None:
    between = np.linspace(30, 39_800, 200_001, dtype=np.float32)
    limit = np.array(trigonometric.FLOAT32_LIMIT, dtype=np.float32).view(np.int32)
    around = (limit + np.arange(-4096, 1, dtype=np.int32)).view(np.float32)
    for x in (between, around):
        for limited, whole in (("sin_limited", "sin"), ("cos_limited", "cos")):
            wanted = exact(whole, x)
            assert ulp_errors(evaluate(CONSTRUCTIONS[limited], x), wanted).max() <= 1.0
            assert ulp_errors(evaluate(CONSTRUCTIONS[whole], x), wanted).max() <= 0.51


def test_TRN_21_two_oracles_agree_before_a_bound_is_accepted() -> None:
    rng = np.random.default_rng(7)
    for name in ORACLES:
        x = rng.uniform(0.01, 0.99, 40)
        if name == "acosh":
            x = x + 1
        special: dict[str, Callable[[Any], Any]] = {
            "exp2": lambda v: mpmath.mpf(2) ** v,
            "log2": lambda v: mpmath.log(v, 2),
            "log1p": lambda v: mpmath.log(1 + v),
            "reciprocal": lambda v: 1 / v,
            "sigmoid": lambda v: 1 / (1 + mpmath.exp(-v)),
        }
        with mpmath.workdps(60):
            wanted = [
                float((special.get(name) or getattr(mpmath, name))(mpmath.mpf(float(v)))) for v in x
            ]
        assert np.allclose(exact(name, x), wanted, rtol=1e-14, atol=0)
