import math
import random
import struct
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilework import dtypes
from tilework.dtypes import DType, decode, encode, nan_bits, round_to

OF_NUMPY: dict[DType, Any] = {
    dtypes.float16: np.float16,
    dtypes.bfloat16: ml_dtypes.bfloat16,
    dtypes.fp8e4m3: ml_dtypes.float8_e4m3fn,
    dtypes.fp8e5m2: ml_dtypes.float8_e5m2,
}
SMALL = [pytest.param(dtype, id=dtype.name) for dtype in OF_NUMPY]


def bits_of(values: np.ndarray) -> np.ndarray:
    return values.view(np.uint8 if values.dtype.itemsize == 1 else np.uint16)


@pytest.mark.parametrize("dtype", SMALL)
def test_decoding_every_small_float_agrees_with_numpy(dtype: DType) -> None:
    count = 1 << dtype.bits
    raw = np.arange(count, dtype=np.uint8 if dtype.bits == 8 else np.uint16)
    with np.errstate(invalid="ignore"):
        expected = raw.view(OF_NUMPY[dtype]).astype(np.float64)
    found = np.array([decode(bits, dtype) for bits in range(count)])
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found)[found == 0], np.signbit(expected)[found == 0])


@pytest.mark.parametrize("dtype", SMALL)
def test_encoding_what_was_decoded_gives_the_bits_back(dtype: DType) -> None:
    for bits in range(1 << dtype.bits):
        value = decode(bits, dtype)
        if value == value:
            assert encode(value, dtype) == bits
        else:
            assert decode(encode(value, dtype), dtype) != decode(encode(value, dtype), dtype)


@pytest.mark.parametrize("dtype", SMALL)
def test_encoding_rounds_as_numpy_does(dtype: DType) -> None:
    """Every value, every midpoint between neighbours, and the numbers beside the midpoints."""
    values = np.array([decode(bits, dtype) for bits in range(1 << (dtype.bits - 1))])
    finite = np.sort(values[np.isfinite(values)])
    middle = (finite[:-1] + finite[1:]) / 2
    points = np.concatenate(
        [finite, middle, np.nextafter(middle, 0), np.nextafter(middle, np.inf), [1e-300, 1e300]]
    )
    points = np.concatenate([points, -points])
    if dtype is dtypes.float16:
        with np.errstate(over="ignore"):
            expected = bits_of(points.astype(np.float16))
        found = np.array([encode(float(x), dtype) for x in points])
        np.testing.assert_array_equal(found, expected)
        return
    # ml_dtypes rounds binary64 through binary32, so only what binary32 holds can be compared.
    with np.errstate(over="ignore"):
        points = points[points.astype(np.float32).astype(np.float64) == points]
        expected = bits_of(points.astype(np.float32).astype(OF_NUMPY[dtype]))
    found = np.array([encode(float(x), dtype) for x in points])
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", SMALL)
def test_a_value_beside_a_tie_is_rounded_once(dtype: DType) -> None:
    least = decode(encode(1.0, dtype) + 1, dtype) - 1.0
    tie = 1.0 + least / 2
    assert round_to(tie, dtype) == 1.0
    assert round_to(math.nextafter(tie, 2.0), dtype) == 1.0 + least
    assert round_to(math.nextafter(tie, 1.0), dtype) == 1.0


def test_float32_agrees_with_the_machine_on_samples() -> None:
    source = random.Random(7)
    for _ in range(20_000):
        value = struct.unpack("<d", source.getrandbits(64).to_bytes(8, "little"))[0]
        if source.random() < 0.7 and math.isfinite(value):
            value = math.ldexp(math.frexp(value)[0], source.randint(-160, 130))
        with np.errstate(all="ignore"):
            expected = np.float32(value)
        found = encode(value, dtypes.float32)
        if value == value:
            assert found == int(expected.view(np.uint32))
        else:
            assert found & 0x7FFFFFFF > 0x7F800000


@pytest.mark.parametrize("dtype", [pytest.param(d, id=d.name) for d in dtypes.FLOATS])
def test_specials_are_kept(dtype: DType) -> None:
    assert math.copysign(1.0, decode(encode(-0.0, dtype), dtype)) == -1.0
    assert math.isnan(decode(encode(math.nan, dtype), dtype))
    assert math.isnan(decode(nan_bits(dtype), dtype))
    largest = decode(encode(math.inf, dtype), dtype)
    assert math.isnan(largest) if dtype.finite_only else largest == math.inf


def test_overflow_goes_to_infinity_or_nan() -> None:
    assert round_to(65520.0, dtypes.float16) == math.inf
    assert round_to(65519.999, dtypes.float16) == 65504.0
    assert math.isnan(round_to(465.0, dtypes.fp8e4m3))
    assert round_to(464.0, dtypes.fp8e4m3) == 448.0
    assert round_to(-1e9, dtypes.fp8e5m2) == -math.inf


@pytest.mark.parametrize("dtype", [pytest.param(d, id=d.name) for d in dtypes.INTEGERS])
def test_integers_are_taken_modulo_their_width(dtype: DType) -> None:
    for value in (0, 1, -1, dtype.maximum, dtype.minimum, dtype.maximum + 1, dtype.minimum - 1):
        held = decode(encode(value, dtype), dtype)
        assert (held - value) % (1 << dtype.bits) == 0
        assert dtype.minimum <= held <= dtype.maximum


def test_bool_holds_whether_a_number_is_zero() -> None:
    assert encode(2.5, dtypes.bool_) == 1
    assert encode(0.0, dtypes.bool_) == 0
    assert decode(1, dtypes.bool_) is True
