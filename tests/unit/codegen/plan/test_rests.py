"""Folds over sizes that are no multiple of a tile: whole vectors, part of one, single elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilework import Tensor

SIZES = [17, 65, 66, 67, 79, 80, 83, 96, 100, 111, 112, 127, 1000]


def rows(size: int, kind: Any = np.float32) -> Any:
    rng = np.random.default_rng(size)
    return rng.integers(-40, 40, (5, size)).astype(kind)


@pytest.mark.parametrize("size", SIZES)
def test_all_folds_take_every_element_once(size: int) -> None:
    x = rows(size)
    found = Tensor(x).realize()
    results = [found.sum(1), found.max(1), found.min(1), found.argmax(1), (found * found).mean(1)]
    Tensor.realize(*results)
    wanted = [x.sum(1), x.max(1), x.min(1), x.argmax(1), (x * x).mean(1)]
    for got, expected in zip(results, wanted, strict=True):
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("kind", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.float64])
def test_every_dtype_has_rests(kind: Any) -> None:
    x = np.abs(rows(99, kind))
    found = Tensor(x).realize()
    np.testing.assert_array_equal(found.sum(1).numpy(), x.sum(1))
    np.testing.assert_array_equal(found.max(1).numpy(), x.max(1))


@pytest.mark.parametrize("place", [0, 64, 79, 80, 95, 96, 98])
def test_a_nan_at_any_place_is_found(place: int) -> None:
    x = rows(99)
    x[2, place] = np.nan
    found = Tensor(x).realize()
    for got in (found.sum(1), found.max(1), found.min(1)):
        assert np.isnan(got.numpy()).tolist() == [False, False, True, False, False]


@pytest.mark.parametrize("size", [67, 83, 99])
def test_what_is_beyond_the_last_element_does_not_count(size: int) -> None:
    x = np.full((4, size), -3, np.float32)
    found = Tensor(x).realize()
    assert found.max(1).tolist() == [-3] * 4
    assert (0 - found).min(1).tolist() == [3] * 4
    assert (found / -3).prod(1).tolist() == [1] * 4
    assert (1 / found).sum(1).numpy() == pytest.approx([-size / 3] * 4, rel=1e-6)


@pytest.mark.parametrize("size", [67, 100, 1000])
def test_softmax_of_rows_with_rests(size: int) -> None:
    x = rows(size) / 8
    raised = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    got = Tensor(x).realize().softmax(1).numpy()
    np.testing.assert_allclose(got, raised / raised.sum(1, keepdims=True), rtol=2e-6)
