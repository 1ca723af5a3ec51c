from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from tilework import dtypes
from tilework.dtypes import DType, promote

NUMPY: dict[DType, Any] = {
    dtype: np.dtype(dtype.name)
    for dtype in dtypes.ALL
    if dtype not in (dtypes.bfloat16, dtypes.fp8e4m3, dtypes.fp8e5m2)
}
TORCH: dict[DType, Any] = {
    dtype: getattr(torch, dtype.name)
    for dtype in dtypes.ALL
    if dtype not in (dtypes.fp8e4m3, dtypes.fp8e5m2)
}
PAIRS = list(product(dtypes.ALL, repeat=2))
WIDE_UNSIGNED = (dtypes.uint16, dtypes.uint32, dtypes.uint64)


def test_promotion_agrees_with_torch() -> None:
    """All pairs that torch promotes; it refuses unsigned integers of more than 8 bits."""
    compared = 0
    for a, b in PAIRS:
        if a in TORCH and b in TORCH and a not in WIDE_UNSIGNED and b not in WIDE_UNSIGNED:
            assert TORCH[promote(a, b)] is torch.promote_types(TORCH[a], TORCH[b]), (a, b)
            compared += 1
    assert compared == 100


def test_promotion_of_integers_agrees_with_numpy() -> None:
    for a, b in PAIRS:
        if a.is_float or b.is_float:
            continue
        expected = np.promote_types(NUMPY[a], NUMPY[b])
        if expected == np.float64:  # int64 with uint64: no integer holds both
            assert promote(a, b) is dtypes.float32
        else:
            assert NUMPY[promote(a, b)] == expected, (a, b)


def test_promotion_of_small_floats_agrees_with_ml_dtypes() -> None:
    held = {dtypes.bfloat16: ml_dtypes.bfloat16, dtypes.float16: np.float16}
    for a, b in product([dtypes.bfloat16, dtypes.float16], [dtypes.float32, dtypes.float64]):
        expected = np.promote_types(held[a], NUMPY[b])
        assert np.dtype(promote(a, b).name) == expected


def test_promotion_is_symmetric() -> None:
    for a, b in PAIRS:
        assert promote(a, b) is promote(b, a)


def test_promotion_of_floats_is_associative() -> None:
    for a, b, c in product(dtypes.FLOATS, repeat=3):
        low = {dtypes.fp8e4m3, dtypes.fp8e5m2}
        if {a, b, c} & low and dtypes.bfloat16 in (a, b, c):
            continue  # e4m3 and e5m2 meet in float16, which does not lie below bfloat16
        assert promote(promote(a, b), c) is promote(a, promote(b, c)), (a, b, c)


def test_every_float_holds_what_it_is_promoted_from() -> None:
    for a, b in product(dtypes.FLOATS, repeat=2):
        both = promote(a, b)
        for dtype in (a, b):
            assert both.mantissa_bits >= dtype.mantissa_bits
            assert both.exponent_bits >= dtype.exponent_bits


@pytest.mark.parametrize("dtype", dtypes.ALL)
def test_sums_widen_as_torch_widens_them(dtype: DType) -> None:
    found = dtypes.sum_dtype(dtype)
    if dtype in TORCH and not dtype.is_unsigned:
        assert TORCH[found] is torch.sum(torch.zeros(2, dtype=TORCH[dtype])).dtype
    if dtype.is_unsigned:
        assert found is dtypes.uint64


def test_small_floats_accumulate_in_float32() -> None:
    for dtype in dtypes.FLOATS:
        expected = dtype if dtype.bits >= 32 else dtypes.float32
        assert dtypes.accumulation_dtype(dtype) is expected
    assert dtypes.accumulation_dtype(dtypes.int8) is dtypes.int8


def test_integers_become_the_default_float_where_a_float_is_needed() -> None:
    assert dtypes.float_of(dtypes.int64) is dtypes.float32
    assert dtypes.float_of(dtypes.float16) is dtypes.float16


def test_python_integers_take_the_least_of_three_dtypes() -> None:
    assert dtypes.smallest_int(5) is dtypes.int32
    assert dtypes.smallest_int(-(2**31)) is dtypes.int32
    assert dtypes.smallest_int(2**31) is dtypes.int64
    assert dtypes.smallest_int(2**63) is dtypes.uint64
    with pytest.raises(OverflowError):
        dtypes.smallest_int(2**64)


def test_the_table_agrees_with_numpy_on_sizes_and_limits() -> None:
    for dtype, held in NUMPY.items():
        assert dtype.itemsize == held.itemsize
        info: Any
        if dtype.is_integer:
            info = np.iinfo(held)
            assert (dtype.minimum, dtype.maximum) == (info.min, info.max)
        if dtype.is_float:
            info = ml_dtypes.finfo(held)  # type: ignore[no-untyped-call]
            assert (dtype.exponent_bits, dtype.mantissa_bits) == (info.nexp, info.nmant)


def test_a_dtype_is_found_by_its_name() -> None:
    for dtype in dtypes.ALL:
        assert dtypes.by_name(dtype.name) is dtype
    with pytest.raises(KeyError):
        dtypes.by_name("float31")
