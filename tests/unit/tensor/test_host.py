"""Data in and out of tensors: no value changes in silence."""

from __future__ import annotations

import array
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch.utils.dlpack

from tilework import Tensor, dtypes
from tilework.base.errors import DTypeError, ShapeError


@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        (1, dtypes.int32), (1.5, dtypes.float32), (True, dtypes.bool_), (2**31, dtypes.int64),
        (-(2**40), dtypes.int64), (2**63, dtypes.uint64), ([1, 2], dtypes.int32),
        ([1, 2.0], dtypes.float32), ([True, False], dtypes.bool_), ([True, 2], dtypes.int32),
        ([2**31, -1], dtypes.int64), ([], dtypes.float32), (range(3), dtypes.int32),
        (b"ab", dtypes.uint8), (array.array("h", [1, -2]), dtypes.int16),
        (np.float16(2), dtypes.float16), (np.arange(3), dtypes.int64),
        (np.array([1, 2], ">i4"), dtypes.int32), (torch.ones(2), dtypes.float32),
        (np.ones(2, ml_dtypes.bfloat16), dtypes.bfloat16),
    ],
)  # fmt: skip
def test_the_dtype_is_that_of_the_data(data: Any, dtype: Any) -> None:
    assert Tensor(data).dtype is dtype


@pytest.mark.parametrize("value", [2**31 - 1, 2**31, -(2**31) - 1, 2**62, -(2**63), 2**64 - 1])
def test_large_integers_keep_their_value(value: int) -> None:
    assert Tensor([value]).tolist() == [value]


def test_an_integer_of_more_than_64_bits_is_refused() -> None:
    with pytest.raises(DTypeError, match="fit no dtype"):
        Tensor([2**64, 1])


def test_an_integer_outside_of_the_given_dtype_is_refused() -> None:
    with pytest.raises(DTypeError, match="does not fit"):
        Tensor([1, 300], dtype=dtypes.uint8)


def test_integers_of_an_array_outside_of_the_given_dtype_are_refused() -> None:
    with pytest.raises(DTypeError, match="do not fit"):
        Tensor(np.array([1, 300]), dtype=dtypes.int8)


def test_big_endian_arrays_keep_their_values() -> None:
    assert Tensor(np.array([1, 258], ">i4")).tolist() == [1, 258]


def test_arrays_with_strides_keep_their_order() -> None:
    base = np.arange(12).reshape(3, 4)
    assert Tensor(base.T[::-1]).tolist() == base.T[::-1].tolist()


def test_special_floats_come_back() -> None:
    values = np.array([math.nan, math.inf, -math.inf, -0.0, 1e-45, 3e38], np.float32)
    got = Tensor(values).numpy()
    assert got.tobytes() == values.tobytes()


def test_a_change_of_the_array_does_not_reach_the_tensor() -> None:
    values = np.ones(3, np.float32)
    t = Tensor(values)
    values[0] = 5
    assert t.tolist() == [1, 1, 1]


def test_a_change_of_the_result_does_not_reach_the_tensor() -> None:
    t = Tensor([1.0, 2.0])
    got = t.numpy()
    got[0] = 5
    assert t.tolist() == [1, 2]


@pytest.mark.parametrize("name", ["bfloat16", "fp8e4m3", "fp8e5m2", "float16"])
def test_small_floats_are_rounded_once(name: str) -> None:
    dtype = dtypes.by_name(name)
    other = {"bfloat16": ml_dtypes.bfloat16, "fp8e4m3": ml_dtypes.float8_e4m3fn,
             "fp8e5m2": ml_dtypes.float8_e5m2, "float16": np.float16}[name]  # fmt: skip
    values = [0.1, 1.0625, -3.3, 200.0, 1e-3]
    want = np.array(values).astype(other).astype(np.float32).tolist()
    assert Tensor(values, dtype=dtype).float().tolist() == want


def test_lists_of_different_lengths_are_refused() -> None:
    with pytest.raises(ShapeError, match="different lengths"):
        Tensor([[1, 2], [3]])


def test_text_is_refused() -> None:
    with pytest.raises(DTypeError, match="an element is not a number"):
        Tensor(["a"])


def test_complex_arrays_are_refused() -> None:
    with pytest.raises(DTypeError, match="complex numbers are kept as pairs of real ones"):
        Tensor(np.ones(2, np.complex64))


def test_a_list_of_tensors_is_stacked() -> None:
    assert Tensor([Tensor([1, 2]), Tensor([3, 4])]).tolist() == [[1, 2], [3, 4]]


def test_item_needs_one_element() -> None:
    with pytest.raises(ShapeError, match="there is not exactly one element"):
        Tensor([1, 2]).item()


def test_truth_needs_one_element() -> None:
    with pytest.raises(ShapeError, match="neither true nor false"):
        bool(Tensor([1, 2]))


def test_a_scalar_has_a_truth() -> None:
    assert [bool(Tensor([0.5])), bool(Tensor(0))] == [True, False]


def test_a_view_of_an_array_that_runs_backwards_is_read() -> None:
    assert Tensor(np.arange(3)[::-1]).tolist() == [2, 1, 0]


def test_numpy_reads_a_tensor() -> None:
    assert np.asarray(Tensor([1.0, 2.0])).tolist() == [1, 2]


def test_pytorch_reads_a_tensor_through_dlpack() -> None:
    assert torch.utils.dlpack.from_dlpack(Tensor([1.0, 2.0])).tolist() == [1, 2]


def test_numpy_leaves_operators_to_the_tensor() -> None:
    assert (np.array([1.0, 2.0], np.float32) * Tensor([3.0, 4.0])).tolist() == [3, 8]


def test_the_text_form_computes_nothing() -> None:
    t = Tensor([1.0]) + 1
    assert repr(t) == "<Tensor (1,) float32 on CPU, lazy>"
    assert not t.is_realized


def test_iteration_gives_the_rows() -> None:
    assert [row.tolist() for row in Tensor([[1, 2], [3, 4]])] == [[1, 2], [3, 4]]


def test_data_is_a_memoryview_of_the_shape() -> None:
    view = Tensor([[1, 2], [3, 4]]).data()
    assert view.shape == (2, 2)
    assert bytes(view) == Tensor([1, 2, 3, 4]).data().tobytes()
