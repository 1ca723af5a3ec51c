"""Reductions of many elements stay within their bounds, whatever the elements are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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


def test_the_published_errors_stay_within_the_bound() -> None:
    rows = json.loads((DOCS / "accuracy-reductions.json").read_text())
    assert rows
    assert all(max(row["errors"].values()) <= BOUND for row in rows.values())
    assert all(row["count"] == MANY for row in rows.values())
