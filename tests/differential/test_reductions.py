"""Reductions of many elements stay within their bounds, whatever the elements are."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tilework import Tensor
from tilework.testing.accuracy.reductions import BOUND, DATA, DTYPES, MANY, measure

DOCS = Path(__file__).resolve().parents[2] / "docs"
KINDS = [(dtype, kind) for dtype in DTYPES for kind in DATA]


@pytest.mark.parametrize(("dtype", "kind"), KINDS)
def test_reductions_of_a_million_elements_stay_within_the_bound(dtype: str, kind: str) -> None:
    assert max(measure(kind, dtype, 10**6).values()) <= BOUND


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "kind"), KINDS)
def test_reductions_of_very_many_elements_stay_within_the_bound(dtype: str, kind: str) -> None:
    assert max(measure(kind, dtype, MANY).values()) <= BOUND


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_deviation_whose_square_is_tiny_is_rounded_once(dtype: str) -> None:
    """The variance of 1e-7 is a subnormal number of float16; its root is an ordinary one."""
    values = np.random.default_rng(2).normal(0, 3e-4, 5000).astype(np.float32)
    x = Tensor(values).cast(dtype)
    exact = x.float().numpy().astype(np.float64).std(ddof=1)
    allowed = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    assert abs(x.std().float().item() - exact) <= 1.01 * allowed * exact


def test_the_published_errors_stay_within_the_bound() -> None:
    rows = json.loads((DOCS / "accuracy-reductions.json").read_text())
    assert rows
    assert all(max(row["errors"].values()) <= BOUND for row in rows.values())
    assert all(row["count"] == MANY for row in rows.values())
