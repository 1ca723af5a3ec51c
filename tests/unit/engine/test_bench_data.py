"""What kernels are measured on, and when results of two plans agree."""

import numpy as np
import pytest

from tilework import Tensor, dtypes
from tilework.dtypes import DType, bfloat16, bool_, float16, float32, float64, int8, int32, uint8
from tilework.engine import link, tune
from tilework.engine.bench_data import agree, index_limits, longest_sum, pattern
from tilework.ir.node import Node
from tilework.schedule import cache

LONG = 1 << 12


def kernel_of(result: Tensor) -> Node:
    """The last kernel that computes a result."""
    cache.clear()
    link.CACHE.clear()
    kernels = [call.kernel for call in tune.collect(lambda: result.realize()) if call.kernel]
    return kernels[-1]


def held(values: object, dtype: DType) -> Tensor:
    return Tensor(np.asarray(values), dtype=dtype).realize()


def test_indices_of_a_gather_are_those_of_the_table() -> None:
    rows = held(np.zeros((37, 5)), float32)
    sink = kernel_of(rows[held([1, 2, 3], int32)])
    assert list(index_limits(sink).values()) == [37]


def test_indices_of_a_scatter_are_those_of_the_axis() -> None:
    rows = held(np.zeros((4, 41)), float32)
    at = held(np.zeros((4, 3)), dtypes.int64)
    sink = kernel_of(rows.scatter(1, at, held(np.ones((4, 3)), float32)))
    assert list(index_limits(sink).values()) == [41]


def test_each_axis_of_an_indexed_array_has_its_own_limit() -> None:
    table = held(np.zeros((11, 13)), float32)
    sink = kernel_of(table[held([1, 2], int32), held([3, 4], int32)])
    assert sorted(index_limits(sink).values()) == [11, 13]


def test_integers_that_are_computed_with_are_no_indices() -> None:
    x = held([1, 2, 3], int32)
    assert index_limits(kernel_of(x * 3 + (x < 2))) == {}


def test_memory_for_indices_is_filled_with_different_ones_in_range() -> None:
    data = np.frombuffer(pattern(int32, 4000, 37), dtype=np.int32)
    assert set(data.tolist()) == set(range(37))


@pytest.mark.parametrize("dtype", [int8, uint8])
def test_indices_are_numbers_of_their_dtype(dtype: DType) -> None:
    data = np.frombuffer(pattern(dtype, 4000, 1 << 20), dtype=dtype.name)
    assert data.min() >= 0
    assert data.max() == dtype.maximum


def test_integers_that_are_no_indices_are_neither_equal_nor_zero() -> None:
    data = np.frombuffer(pattern(int32, 4000, None), dtype=np.int32)
    assert len(set(data.tolist())) > 50
    assert 0 not in data


@pytest.mark.parametrize("dtype", [bool_, int8, float16, bfloat16, float32, float64, dtypes.uint4])
@pytest.mark.parametrize("size_bytes", [0, 1, 8, 12344])
def test_a_pattern_fits_its_memory_and_has_whole_elements(dtype: DType, size_bytes: int) -> None:
    size = len(pattern(dtype, size_bytes, None))
    assert min(size_bytes, 4000) <= size <= size_bytes
    assert size in (size_bytes, size // dtype.itemsize * dtype.itemsize)


def test_truth_values_are_0_and_1() -> None:
    assert set(pattern(bool_, 1000, None)) == {0, 1}


def test_the_longest_sum_counts_all_ranges_of_a_reduction() -> None:
    assert longest_sum(kernel_of(held(np.ones((6, 7)), float32).sum())) == 42
    assert longest_sum(kernel_of(held(np.ones((6, 7)), float32) + 1)) == 0


def floats(*values: float, dtype: str = "float32") -> bytes:
    return np.array(values, dtype=dtype).tobytes()


@pytest.mark.parametrize(
    ("got", "wanted", "dtype", "expected"),
    [
        (floats(1, 2), floats(1, 2), float32, True),
        (floats(1, 2.00001), floats(1, 2), float32, True),
        (floats(1, 2.0002), floats(1, 2), float32, False),
        (floats(np.nan, 2), floats(1, 2), float32, False),
        (floats(np.nan, 2), floats(np.nan, 2.00001), float32, True),
        (floats(np.inf, 2), floats(np.inf, 2.00001), float32, True),
        (floats(np.inf, 2), floats(-np.inf, 2), float32, False),
        (floats(1, np.inf), floats(1, 2), float32, False),
        (floats(1, 2 + 1e-13, dtype="float64"), floats(1, 2, dtype="float64"), float64, True),
        (floats(1, 2 + 1e-10, dtype="float64"), floats(1, 2, dtype="float64"), float64, False),
        (floats(1, 1.001, dtype="float16"), floats(1, 1, dtype="float16"), float16, True),
        (floats(1, 1.002, dtype="float16"), floats(1, 1, dtype="float16"), float16, False),
        (b"\x80\x3f\x81\x3f", b"\x80\x3f\x80\x3f", bfloat16, True),
        (b"\x80\x3f\x82\x3f", b"\x80\x3f\x80\x3f", bfloat16, False),
        (b"\1\0\0\0", b"\2\0\0\0", int32, False),
        (b"\1\0\0\0", b"\1\0\0\0", int32, True),
    ],
)
def test_results_may_differ_by_the_order_of_additions_alone(
    got: bytes, wanted: bytes, dtype: DType, expected: bool
) -> None:
    assert agree(got, wanted, dtype, LONG) is expected


def test_what_adds_nothing_has_to_agree_bit_for_bit() -> None:
    assert not agree(floats(1.0, 2.0000002), floats(1.0, 2.0), float32, 0)
