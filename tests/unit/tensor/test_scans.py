"""Running sums, products and extremes end to end on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilework import Tensor
from tilework.ir.ops.tensor import SCAN, Fold, ScanAttrs

SHAPES = [((5,), 0), ((3, 4), 0), ((3, 4), 1), ((2, 3, 4), 1), ((7, 33), 0), ((33, 7), 1)]
SHAPES += [((9, 1), 0), ((1, 9), 0), ((64, 200), 0), ((200, 64), 1), ((3, 300, 5), 1)]
KINDS = ["int8", "uint8", "int32", "int64", "uint64", "float32", "float64"]
ACCUMULATE = {Fold.ADD: np.add, Fold.MUL: np.multiply, Fold.MAX: np.maximum, Fold.MIN: np.minimum}
IDENTITY = {Fold.ADD: 0.0, Fold.MUL: 1.0, Fold.MAX: -np.inf, Fold.MIN: np.inf}


def small_numbers(kind: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(0 if kind[0] == "u" else -3, 4, shape).astype(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_cumsum_is_that_of_numpy(kind: str) -> None:
    for shape, axis in SHAPES:
        x = small_numbers(kind, shape, 1)
        found = Tensor(x).cumsum(axis).numpy()
        np.testing.assert_array_equal(found, np.cumsum(x, axis, dtype=found.dtype))


@pytest.mark.parametrize("kind", ["int32", "float32"])
def test_cumprod_is_that_of_numpy(kind: str) -> None:
    x = small_numbers(kind, (4, 12), 2)
    for axis in (0, 1):
        found = Tensor(x).cumprod(axis).numpy()
        np.testing.assert_array_equal(found, np.cumprod(x, axis, dtype=found.dtype))


@pytest.mark.parametrize("kind", KINDS)
def test_cummax_and_cummin_are_those_of_numpy(kind: str) -> None:
    for shape, axis in SHAPES:
        x = small_numbers(kind, shape, 3)
        found = Tensor(x).cummax(axis)[0].numpy(), Tensor(x).cummin(axis)[0].numpy()
        np.testing.assert_array_equal(found[0], np.maximum.accumulate(x, axis))
        np.testing.assert_array_equal(found[1], np.minimum.accumulate(x, axis))


@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_positions_of_running_extremes_are_those_of_torch(name: str) -> None:
    import torch

    x = small_numbers("float32", (3, 50), 4)
    for axis in (0, 1):
        values, positions = getattr(Tensor(x), name)(axis)
        wanted = getattr(torch, name)(torch.from_numpy(x), axis)
        np.testing.assert_array_equal(values.numpy(), wanted.values.numpy())
        np.testing.assert_array_equal(positions.numpy(), wanted.indices.numpy())


def test_a_nan_spoils_what_follows_it_and_nothing_before() -> None:
    x = np.array([1, 2, np.nan, 3], np.float32)
    nothing = [False, False, True, True]
    for found in (Tensor(x).cumsum(0), Tensor(x).cumprod(0), Tensor(x).cummax(0)[0]):
        assert np.isnan(found.numpy()).tolist() == nothing


@pytest.mark.parametrize("size", [32_768, 40_000, 100_001])
def test_a_long_row_is_summed_by_blocks(size: int) -> None:
    x = np.random.default_rng(5).integers(-100, 100, (2, size)).astype(np.int64)
    np.testing.assert_array_equal(Tensor(x).cumsum(1).numpy(), np.cumsum(x, 1))
    np.testing.assert_array_equal(Tensor(x).cummax(1)[0].numpy(), np.maximum.accumulate(x, 1))


def test_long_running_sums_are_as_exact_as_additions_in_order() -> None:
    x = np.random.default_rng(6).standard_normal(1 << 18).astype(np.float32)
    exact = np.cumsum(x.astype(np.float64))
    error = np.abs(Tensor(x).cumsum(0).numpy() - exact).max()
    assert error <= np.abs(np.cumsum(x) - exact).max()


@pytest.mark.parametrize("fold", list(Fold))
@pytest.mark.parametrize("size", [1, 6, 33_000])
@pytest.mark.parametrize("reverse", [False, True])
def test_exclusive_and_reverse_scans(fold: Fold, size: int, reverse: bool) -> None:
    x = np.random.default_rng(7).choice([1.0, -1.0], (2, size)).astype(np.float32)
    attrs = ScanAttrs(fold, 1, exclusive=True, reverse=reverse)
    found = Tensor(x)._apply(SCAN, attrs=attrs).numpy()
    ordered = x[:, ::-1] if reverse else x
    first = np.full((2, 1), IDENTITY[fold], np.float32)
    wanted = ACCUMULATE[fold].accumulate(np.concatenate([first, ordered[:, :-1]], 1), 1)
    np.testing.assert_array_equal(found, wanted[:, ::-1] if reverse else wanted)


@settings(max_examples=30)
@given(data=st.data())
def test_random_scans_are_those_of_numpy(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 3))
    shape = tuple(data.draw(st.integers(1, 12)) for _ in range(rank))
    axis = data.draw(st.integers(0, rank - 1))
    fold = data.draw(st.sampled_from(list(Fold)))
    kind = data.draw(st.sampled_from(["int32", "float64", "uint8"]))
    x = small_numbers(kind, shape, data.draw(st.integers(0, 1 << 20)))
    found = Tensor(x)._apply(SCAN, attrs=ScanAttrs(fold, axis)).numpy()
    wanted = ACCUMULATE[fold].accumulate(x, axis, dtype=x.dtype)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("shape", [(3, 5), (2, 7), (3, 1, 5), (3, 8), (3,)])
@pytest.mark.parametrize("dtype", [np.int32, np.uint8])
def test_a_running_sum_of_what_turns_out_to_be_the_same_everywhere(
    shape: tuple[int, ...], dtype: Any
) -> None:
    """The loops around the scan don't occur in its value, and are around it all the same."""
    total = Tensor(np.ones(shape, dtype)).realize().cumsum(0)
    want = np.cumsum(np.ones(shape, np.int64), 0)
    np.testing.assert_array_equal((total - total + 1).cumsum(0).numpy(), want)
    np.testing.assert_array_equal((total - total).cummin(0)[0].numpy(), want * 0)
