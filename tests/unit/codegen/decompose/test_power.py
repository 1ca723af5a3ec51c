"""pow of float32: accuracy, and every special pair of Annex F."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilework.codegen.decompose.power import pow as construction
from tilework.testing.accuracy.measure import ulp_errors
from tilework.testing.accuracy.numpy_builder import evaluate

SPECIAL = (
    *(0.0, 2.0**-149, 2.0**-126, 0.25, 0.5, 1 - 2.0**-24, 1.0, 1 + 2.0**-23, 1.5, 2.0, 2.5, 3.0),
    *(4.0, 10.0, 38.0, 2.0**22 + 0.5, 2.0**23 - 0.5, 2.0**23, 2.0**23 + 1, 2.0**24 - 1, 2.0**24),
    *(2.0**31, 2.0**32, 2.0**127, 3.4028234663852886e38, math.inf, math.nan),
)
BOTH_SIGNS = tuple(itertools.chain(SPECIAL, (-value for value in SPECIAL)))


def exact(x: NDArray[Any], y: NDArray[Any]) -> NDArray[np.float64]:
    with np.errstate(all="ignore"):
        return np.power(x.astype(np.float64), y.astype(np.float64))


def test_TRN_10_pow_follows_annex_f_for_all_special_pairs() -> None:
    pairs = np.array(list(itertools.product(BOTH_SIGNS, repeat=2)), dtype=np.float32)
    x, y = pairs[:, 0], pairs[:, 1]
    found = evaluate(construction, x, y)
    # The C library of the host follows Annex F; it is asked pair by pair.
    wanted = np.array([_power(float(a), float(b)) for a, b in pairs])
    assert ulp_errors(found, wanted).max() <= 1.0
    known = ~np.isnan(wanted)
    assert np.array_equal(np.signbit(found)[known], np.signbit(wanted)[known])


def _power(x: float, y: float) -> float:
    if x == 1 or y == 0:
        return 1.0
    if x == 0 and y < 0:
        odd = y > -math.inf and y == math.floor(y) and y % 2 == 1
        return math.copysign(math.inf, x) if odd else math.inf
    if x < 0 and math.isfinite(x) and math.isfinite(y) and y != math.floor(y):
        return math.nan
    try:
        return math.pow(x, y)
    except OverflowError:
        return -math.inf if x < 0 and y % 2 == 1 else math.inf


def test_TRN_10_pow_is_within_one_ulp_on_samples() -> None:
    rng = np.random.default_rng(3)
    x = np.exp2(rng.uniform(-140, 128, 100_000)).astype(np.float32)
    y = (rng.uniform(-160, 130, x.size) / np.log2(x.astype(np.float64))).astype(np.float32)
    assert ulp_errors(evaluate(construction, x, y), exact(x, y)).max() <= 0.51


def test_TRN_10_pow_keeps_large_odd_and_even_exponents_apart() -> None:
    base = np.array([-1.0, -1.0, -1.0, -1.0, -0.0, -0.0], dtype=np.float32)
    exponent = np.array([2**24 - 1, 2**24, 2**31, math.inf, 3, -3], dtype=np.float32)
    wanted = np.array([-1, 1, 1, 1, -0.0, -math.inf], dtype=np.float32)
    found = evaluate(construction, base, exponent)
    assert np.array_equal(found.view(np.int32), wanted.view(np.int32))


def test_TRN_11_pow_of_float16_is_rounded_once_on_a_grid_of_pairs() -> None:
    patterns = np.arange(0, 2**16, 97, dtype=np.uint16).view(np.float16).astype(np.float32)
    x, y = (side.ravel() for side in np.meshgrid(patterns, patterns))
    narrow = evaluate(construction, x, y)
    with np.errstate(all="ignore"):
        errors = ulp_errors(narrow.astype(np.float16), exact(x, y))
    assert errors.max() <= 0.51
