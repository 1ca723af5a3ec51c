"""Dtypes of operations: Python numbers are weak, and no integer ever wraps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilework import Tensor, dtypes
from tilework.base.errors import DTypeError, ShapeError


@pytest.mark.parametrize(
    ("dtype", "number", "want"),
    [
        (dtypes.float16, 1.5, dtypes.float16), (dtypes.float16, 2, dtypes.float16),
        (dtypes.int8, 1, dtypes.int8), (dtypes.int8, 200, dtypes.int64),
        (dtypes.uint8, -1, dtypes.int64), (dtypes.int32, 2**40, dtypes.int64),
        (dtypes.int32, 0.5, dtypes.float32), (dtypes.bool_, 1, dtypes.int32),
        (dtypes.bool_, 0.5, dtypes.float32), (dtypes.int64, True, dtypes.int64),
        (dtypes.float64, 1.5, dtypes.float64),
    ],
)  # fmt: skip
def test_a_python_number_takes_the_dtype_of_the_tensor_if_it_fits(
    dtype: Any, number: Any, want: Any
) -> None:
    assert (Tensor([1], dtype=dtype) + number).dtype is want


def test_an_integer_that_does_not_fit_keeps_its_value() -> None:
    assert (Tensor([5], dtype=dtypes.int32) + 2**40).tolist() == [2**40 + 5]


def test_a_negative_number_with_an_unsigned_tensor_keeps_its_sign() -> None:
    assert (Tensor([1], dtype=dtypes.uint8) + (-3)).tolist() == [-2]


def test_a_number_that_no_dtype_holds_is_refused() -> None:
    with pytest.raises(DTypeError, match="the integer does not fit"):
        Tensor([1], dtype=dtypes.uint64) + (-1)


def test_a_comparison_with_a_number_out_of_range_is_exact() -> None:
    assert (Tensor([200], dtype=dtypes.uint8) < 300).tolist() == [True]


@pytest.mark.parametrize(
    ("name", "want"),
    [("int8", dtypes.int64), ("int32", dtypes.int64), ("uint8", dtypes.uint64),
     ("bool", dtypes.int64), ("float16", dtypes.float16)],
)  # fmt: skip
def test_sums_widen_integers(name: str, want: Any) -> None:
    assert Tensor([1, 1], dtype=name).sum().dtype is want


def test_a_sum_of_large_integers_is_exact() -> None:
    assert Tensor([2**31 - 1] * 3).sum().item() == 3 * (2**31 - 1)


def test_a_mean_of_large_integers_does_not_wrap() -> None:
    assert Tensor([2**31 - 1, 2**31 - 1]).mean().item() == 2.0**31


def test_the_product_of_small_integers_does_not_wrap() -> None:
    a = Tensor(np.full((2, 2), 100, np.int8))
    assert (a @ a).tolist() == [[20000, 20000], [20000, 20000]]


def test_a_product_can_be_asked_for_in_a_dtype() -> None:
    a = Tensor(np.full((2, 2), 100, np.int8))
    assert a.matmul(a, dtype=dtypes.int32).dtype is dtypes.int32


def test_integer_division_gives_floats() -> None:
    assert (Tensor([7]) / Tensor([2])).tolist() == [3.5]


def test_integers_divided_by_zero_give_zero() -> None:
    assert (Tensor([7, -7]) // Tensor([0, 0])).tolist() == [0, 0]


def test_a_negative_power_of_an_integer_is_refused() -> None:
    with pytest.raises(DTypeError, match="negative power"):
        Tensor([2]) ** -1


def test_bool_has_no_subtraction() -> None:
    with pytest.raises(DTypeError, match="bool has no subtraction"):
        Tensor([True]) - Tensor([False])


def test_shapes_that_do_not_fit_are_named() -> None:
    with pytest.raises(ShapeError) as error:
        Tensor.ones(2, 3) + Tensor.ones(2, 4)
    assert str(error.value).splitlines() == [
        "add: the shapes don't fit",
        "  got: (2, 3) and (2, 4)",
        "  expected: sizes that are equal or 1, matched from the last axis",
        "  try: reshape one operand, for example with unsqueeze",
    ]


def test_a_traceback_ends_at_the_line_of_the_user() -> None:
    with pytest.raises(ShapeError) as error:
        Tensor.ones(2, 3) + Tensor.ones(2, 4)
    frames = [Path(entry.path).name for entry in error.traceback]
    assert frames[0] == "test_promotion.py"
    assert len(frames) <= 2


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_small_floats_add_up_in_float32(name: str) -> None:
    ones = Tensor.ones(5000, dtype=name)
    assert ones.sum().float().item() in (5000.0, 4992.0)  # 4992 is 5000 in bfloat16


def test_layernorm_of_large_half_values_does_not_overflow() -> None:
    x = Tensor(np.array([[300, -300] * 8], np.float16))
    np.testing.assert_allclose(x.layernorm().float().numpy()[0, :2], [1, -1], rtol=1e-2)


def test_a_cast_to_half_rounds_even_if_it_is_cast_back() -> None:
    x = Tensor(np.array([1e5, 1e-8, 0.1], np.float32))
    assert x.half().float().tolist() == [np.inf, 0.0, 0.0999755859375]
