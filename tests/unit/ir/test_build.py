"""Literals: equal numbers of any Python type are one node, and signs of zeros are kept."""

import math

import pytest

from tilework.dtypes import DType, bfloat16, bool_, decode, float32, float64, int8, int64, uint8
from tilework.ir import build
from tilework.ir.build import const


@pytest.mark.parametrize("dtype", [bfloat16, float32, float64])
def test_zeros_keep_their_signs_in_every_order_of_asking(dtype: DType) -> None:
    for value in (0.0, -0.0, 0, -0.0, False, 0.0):
        found = decode(const(value, dtype).attrs.bits, dtype)
        assert math.copysign(1, found) == math.copysign(1, value)


@pytest.mark.parametrize("dtype", [bool_, int8, uint8, int64, float32])
def test_the_type_of_a_number_makes_no_difference(dtype: DType) -> None:
    assert const(True, dtype) is const(1, dtype) is const(1.0, dtype)
    assert const(1, dtype) is not const(1, dtype, (2,))


def test_integers_beyond_what_a_double_holds_are_not_mixed_up() -> None:
    big = 2**53 + 1
    assert const(float(big), int64).attrs.bits == 2**53
    assert const(big, int64).attrs.bits == big


def test_nan_and_infinities_are_encoded() -> None:
    assert math.isnan(decode(const(math.nan, float32).attrs.bits, float32))
    for value in (math.inf, -math.inf):
        assert decode(const(value, float32).attrs.bits, float32) == value


def test_a_number_that_is_asked_for_again_is_not_encoded_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    const(3.25, float32)
    monkeypatch.setattr(build, "encode", lambda value, dtype: pytest.fail("encoded again"))
    assert decode(const(3.25, float32).attrs.bits, float32) == 3.25
