"""Rolls along several axes, the first rank of a row, and distances of many vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tilework import Tensor, dtypes
from tilework.ir.node import toposort
from tilework.ir.ops import tensor

X = np.arange(2 * 3 * 4 * 5.0).reshape(2, 3, 4, 5)


@pytest.mark.parametrize(
    ("shifts", "axes"),
    [
        ((3, 5), (2, 3)),
        ((1, -2, 100, -1), (0, 1, 2, 3)),
        ((1, 2), (1, 1)),
        ((1, -1), (-1, 3)),
        ((0, 2), (0, 2)),
        ((3, 5), (1, 3)),
    ],
)
def test_a_roll_along_several_axes_is_that_of_torch(
    shifts: tuple[int, ...], axes: tuple[int, ...]
) -> None:
    wanted = torch.roll(torch.from_numpy(X), shifts, axes).numpy()
    np.testing.assert_array_equal(Tensor(X).roll(shifts, axes).numpy(), wanted)


ROWS: dict[str, Any] = {
    "float32": [
        [1, np.nan, 3, np.nan],
        [np.inf, 2, np.nan, np.inf],
        [-np.inf] * 4,
        [np.nan] * 4,
        [0.0, -0.0, 0.0, -0.0],
        [-0.0, 0.0, -1, -2],
    ],
    "int8": [[5, 5, 1, 1], [-128, 127, 127, -128], [0, 0, 0, 0]],
    "uint64": [[2**64 - 1, 0, 2**63, 2**64 - 1], [0, 0, 1, 1]],
    "bool": [[False, True, True, False], [True] * 4, [False] * 4],
}


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dtype", ROWS)
def test_the_first_rank_is_that_of_a_sort(dtype: str, largest: bool) -> None:
    rows = np.array(ROWS[dtype], dtype)
    for axis, x in ((1, rows), (0, rows.T.copy())):
        order = Tensor(x).argsort(axis, descending=largest).numpy().take([0], axis)
        values, positions = Tensor(x).topk(1, axis, largest=largest)
        assert positions.dtype is dtypes.index
        np.testing.assert_array_equal(positions.numpy(), order)
        assert values.numpy().tobytes() == np.take_along_axis(x, order, axis).tobytes()


def test_the_greatest_element_of_a_row_needs_no_sort() -> None:
    ops = {node.op for node in toposort(Tensor.ones(4, 9).topk(1)[1].node)}
    assert tensor.SORT not in ops
    assert tensor.SORT in {node.op for node in toposort(Tensor.ones(4, 9).topk(2)[1].node)}


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, float("inf")])
def test_distances_are_those_of_torch(p: float) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((2, 6, 5)), rng.standard_normal((2, 4, 5))
    mode = "donot_use_mm_for_euclid_dist"
    wanted = torch.cdist(torch.from_numpy(a), torch.from_numpy(b), p, compute_mode=mode).numpy()
    np.testing.assert_allclose(Tensor(a).cdist(Tensor(b), p).numpy(), wanted, rtol=1e-12)


def test_distances_of_nothing() -> None:
    assert Tensor.zeros(0, 5).cdist(Tensor.zeros(3, 5)).shape == (0, 3)
    assert Tensor.zeros(2, 0).cdist(Tensor.zeros(3, 0)).tolist() == [[0.0] * 3] * 2
