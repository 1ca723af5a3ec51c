"""Folds inside of folds, along ranges that do not divide into whole tiles."""

import numpy as np
import pytest

from tilework import Tensor


@pytest.mark.parametrize("columns", [16, 17, 18, 33, 65])
@pytest.mark.parametrize("rows", [2, 5, 33])
def test_a_fold_of_sums_less_their_maximum_reads_whole_sums(rows: int, columns: int) -> None:
    x = np.arange(rows * columns, dtype=np.int32).reshape(rows, columns) * 7919 % 101 - 50
    sums = Tensor(x).sum(0, dtype="int32")
    wanted = x.sum(0, dtype=np.int32)
    assert (sums - sums.max()).sum().item() == (wanted - wanted.max()).sum()


@pytest.mark.parametrize("columns", [17, 33])
def test_a_softmax_of_sums_adds_up_to_one(columns: int) -> None:
    x = np.arange(33 * columns, dtype=np.float32).reshape(33, columns) * 7919 % 101 / 50 - 1
    found = Tensor(x).sum(0).softmax(-1).numpy()
    weights = np.exp(x.sum(0) - x.sum(0).max())
    np.testing.assert_allclose(found, weights / weights.sum(), rtol=1e-4)


def test_a_fold_in_lanes_holds_no_fold_in_lanes_of_another_range() -> None:
    y = np.array([3, 1, 2, 5, 4, 0, 9, 7, 8, 6, 12, 11, 10], dtype=np.float32)
    places = Tensor(y).unsqueeze(0).expand(9, 13).argmax(0).cast("int32")
    assert (places - places.max()).sum().item() == 0


@pytest.mark.parametrize("shape", [(33, 33), (4, 8)])
def test_a_scan_along_a_range_that_its_value_divides_keeps_it_whole(shape: tuple[int, int]) -> None:
    x = np.arange(shape[0] * shape[1], dtype=np.int32).reshape(shape)
    found = Tensor(x).flip(1).reshape(-1).cumsum(0).numpy()
    np.testing.assert_array_equal(found, np.cumsum(x[:, ::-1].reshape(-1)))
