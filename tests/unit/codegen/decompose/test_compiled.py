"""The machine code of a kernel gives the bits of the written order, on the default device."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tilework import Tensor
from tilework.codegen.decompose.transcendental import FLOAT32, FLOAT64
from tilework.testing.accuracy.numpy_builder import evaluate

NAMES = (
    *("acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "erf", "exp", "exp2"),
    *("log", "log2", "sin", "sinh", "sqrt", "tan", "tanh"),
)


def inputs(dtype: str) -> np.ndarray:
    rng = np.random.default_rng(31)
    width = np.dtype(dtype).itemsize
    random = rng.integers(0, 2 ** (8 * width), 700, dtype=np.uint64)
    special = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-40, 5e-324, 0.5, 88.0]
    with np.errstate(all="ignore"):
        parts = (
            random.astype(f"u{width}").view(dtype),
            rng.normal(0, 3, 600).astype(dtype),
            np.array(special, dtype=np.float64).astype(dtype),
        )
    return np.concatenate(parts)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", NAMES)
def test_TRN_02_compiled_code_keeps_the_order_of_every_operation(name: str, dtype: str) -> None:
    x = inputs(dtype)
    table = FLOAT64 if dtype == "float64" else FLOAT32
    with np.errstate(invalid="ignore"):
        wanted = np.sqrt(x) if name == "sqrt" else evaluate(table[name], x)
    found = getattr(Tensor(x), name)().numpy()
    known = ~np.isnan(wanted)
    assert np.array_equal(np.isnan(found), ~known)
    unsigned = f"u{x.dtype.itemsize}"
    assert np.array_equal(found[known].view(unsigned), wanted[known].view(unsigned))
