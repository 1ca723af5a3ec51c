"""Tensors of more than 2**31 elements: positions need 64 bits.  Each test takes some gigabytes."""

from __future__ import annotations

import numpy as np
import pytest

from tilework import Tensor, dtypes

COUNT = 2**31 + 64


@pytest.fixture(scope="module")
def large() -> Tensor:
    """Zeros, but for a few elements on both sides of 2**31."""
    x = Tensor.zeros(COUNT, dtype=dtypes.uint8).clone().realize()
    x[5] = 3
    x[2**31 - 1] = 7
    x[2**31 + 10] = 9
    return x.realize()


@pytest.mark.slow
def test_elements_behind_2_31_are_read_where_they_were_written(large: Tensor) -> None:
    assert large[2**31 - 1 : 2**31 + 12].tolist() == [7, *[0] * 10, 9, 0]
    assert large[-54].item() == 9
    assert large[Tensor([2**31 + 10, 5])].tolist() == [9, 3]


@pytest.mark.slow
def test_folds_see_all_elements(large: Tensor) -> None:
    assert large.sum().item() == 19
    assert large.max().item() == 9
    assert large.argmax().item() == 2**31 + 10
    assert (large > 0).sum().item() == 3


@pytest.mark.slow
def test_views_and_elementwise_functions_reach_the_end(large: Tensor) -> None:
    assert large[::-1][:60].tolist() == [*[0] * 53, 9, *[0] * 6]
    assert (large + 1)[-60:].tolist() == [*[1] * 6, 10, *[1] * 53]
    rows = large.reshape(2, COUNT // 2)
    np.testing.assert_array_equal(rows.sum(1).numpy(), [3, 16])


@pytest.mark.slow
def test_a_join_passes_2_31() -> None:
    x = Tensor.full((2**30 + 8,), 1, dtype=dtypes.uint8).clone().realize()
    joined = x.cat(x)
    assert joined.shape == (2**31 + 16,)
    assert joined.sum().item() == 2**31 + 16
