"""Scatters whose places are computed: several sources may meet at one."""

from __future__ import annotations

import numpy as np
import pytest

from tilework import Tensor


@pytest.mark.parametrize(
    ("rows", "columns", "step"), [(25, 16, 4), (8, 16, 16), (9, 7, 3), (5, 4, 1)]
)
@pytest.mark.parametrize("is_product", [True, False])
def test_sums_of_what_meets_at_a_computed_place_are_whole(
    rows: int, columns: int, step: int, *, is_product: bool
) -> None:
    draw = np.random.default_rng(0)
    a = draw.standard_normal((1, rows, 16)).astype(np.float32)
    b = draw.standard_normal((16, columns)).astype(np.float32)
    values = a @ b if is_product else a[..., :1] + b[:1]
    source = Tensor(a) @ Tensor(b) if is_product else Tensor(a)[..., :1] + Tensor(b)[:1]
    line = Tensor.arange(rows).reshape(rows, 1) * step
    places = (line + Tensor.arange(columns)).reshape(1, -1)
    size = (rows - 1) * step + columns
    found = Tensor.zeros(1, size).scatter_add(1, places, source.reshape(1, -1)).numpy()
    wanted = np.zeros((1, size), np.float32)
    np.add.at(wanted[0], places.numpy()[0], values.reshape(-1))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_the_last_of_those_that_meet_at_a_computed_place_stays() -> None:
    places = (Tensor.arange(12).reshape(4, 3) % 5).reshape(1, -1)
    found = Tensor.zeros(1, 5).scatter(1, places, Tensor.arange(12).float().reshape(1, -1)).numpy()
    assert found.tolist() == [[10.0, 11.0, 7.0, 8.0, 9.0]]
