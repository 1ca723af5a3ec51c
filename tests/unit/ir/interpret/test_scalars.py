"""The meaning of the elementwise ops, as ir/ops/math.py states it."""

import ctypes
import math as pymath
import random
import struct
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from tilework.base.errors import DTypeError, InternalError
from tilework.dtypes import (
    FLOATS,
    INTEGERS,
    DType,
    bool_,
    float16,
    float32,
    float64,
    fp8e4m3,
    int8,
    int32,
    int64,
    uint8,
)
from tilework.ir.interpret import floats
from tilework.ir.interpret.exact import exact_fma
from tilework.ir.interpret.scalars import cast_function, op_function
from tilework.ir.node import OpDef
from tilework.ir.ops import math

NAN, INF = pymath.nan, pymath.inf
SPECIALS = [0.0, -0.0, 1.0, -1.0, 0.5, 3.0, -7.0, INF, -INF, NAN, 1e30, -1e-30]


def same(x: float, y: float) -> bool:
    return (x != x and y != y) or (x == y and pymath.copysign(1, x) == pymath.copysign(1, y))


def all_pairs_of_int8() -> list[tuple[int, int]]:
    return [(x, y) for x in range(-128, 128) for y in range(-128, 128)]


def test_division_of_all_pairs_of_int8_rounds_down() -> None:
    divide, modulo = op_function(math.IDIV, int8), op_function(math.MOD, int8)
    for x, y in all_pairs_of_int8():
        quotient = pymath.floor(Fraction(x, y)) if y else 0
        wrapped = (quotient + 128) % 256 - 128
        assert divide(x, y) == wrapped
        assert modulo(x, y) == (x - quotient * y if y else 0)


def test_truncating_division_rounds_towards_zero() -> None:
    divide, modulo = op_function(math.CDIV, int8), op_function(math.CMOD, int8)
    for x, y in all_pairs_of_int8():
        if y and (x, y) != (-128, -1):
            assert divide(x, y) == int(Fraction(x, y))
            assert modulo(x, y) == int(pymath.fmod(x, y))


def test_a_truncating_division_by_zero_breaks_its_precondition() -> None:
    with pytest.raises(InternalError, match="cdiv: division by zero"):
        op_function(math.CDIV, int8)(1, 0)


@pytest.mark.parametrize("dtype", [pytest.param(d, id=d.name) for d in INTEGERS])
def test_integers_wrap_modulo_their_width(dtype: DType) -> None:
    source = random.Random(3)
    for _ in range(300):
        x, y = (source.randint(dtype.minimum, dtype.maximum) for _ in range(2))
        for op, exact in ((math.ADD, x + y), (math.SUB, x - y), (math.MUL, x * y)):
            found = op_function(op, dtype)(x, y)
            assert (found - exact) % (1 << dtype.bits) == 0
            assert dtype.minimum <= found <= dtype.maximum
        assert op_function(math.MULACC, dtype)(x, y, 1) == op_function(math.ADD, dtype)(
            op_function(math.MUL, dtype)(x, y), 1
        )


def test_the_least_integer_is_its_own_negative_and_magnitude() -> None:
    assert op_function(math.NEG, int8)(-128) == -128
    assert op_function(math.ABS, int8)(-128) == -128
    assert op_function(math.NEG, uint8)(1) == 255


def test_shifts_by_the_width_or_more_leave_the_sign_alone() -> None:
    left, right = op_function(math.SHL, int8), op_function(math.SHR, int8)
    assert left(1, 7) == -128
    assert left(1, 8) == 0
    assert left(1, -1) == 0
    assert right(-128, 7) == -1
    assert right(-5, 100) == -1
    assert right(100, 8) == 0


@pytest.mark.parametrize("x", SPECIALS)
@pytest.mark.parametrize("y", SPECIALS)
def test_float32_arithmetic_is_that_of_the_machine(x: float, y: float) -> None:
    a, b = np.float32(x), np.float32(y)
    with np.errstate(all="ignore"):
        expected = {
            math.ADD: a + b,
            math.SUB: a - b,
            math.MUL: a * b,
            math.FDIV: a / b,
            math.FMOD: np.fmod(a, b),
            math.ATAN2: np.arctan2(a, b),
        }
    for op, result in expected.items():
        found = op_function(op, float32)(float(a), float(b))
        if op is math.ATAN2:
            assert found == pytest.approx(float(result), rel=1e-6, nan_ok=True)
        else:
            assert same(found, float(result)), op


@pytest.mark.parametrize("x", SPECIALS)
@pytest.mark.parametrize("y", SPECIALS)
def test_extremes_keep_nan_and_order_zeros(x: float, y: float) -> None:
    greater, lesser = op_function(math.MAXIMUM, float64), op_function(math.MINIMUM, float64)
    if x != x or y != y:
        assert greater(x, y) != greater(x, y)
        assert lesser(x, y) != lesser(x, y)
        return

    def key(v: float) -> tuple[float, float]:
        return v, pymath.copysign(1, v)

    assert same(greater(x, y), max(x, y, key=key))
    assert same(lesser(x, y), min(x, y, key=key))


@pytest.mark.parametrize("x", [*SPECIALS, 2.0, -2.0, 1.5])
@pytest.mark.parametrize("y", [*SPECIALS, 2.0, -3.0, 4.0])
def test_pow_follows_annex_f(x: float, y: float) -> None:
    libm = ctypes.CDLL(None)
    libm.pow.restype = ctypes.c_double
    libm.pow.argtypes = [ctypes.c_double, ctypes.c_double]
    assert same(op_function(math.POW, float64)(x, y), libm.pow(x, y))


ROUNDINGS = {math.FLOOR: np.floor, math.CEIL: np.ceil, math.TRUNC: np.trunc, math.ROUND: np.rint}


@pytest.mark.parametrize("op", ROUNDINGS)
def test_roundings_keep_signs_and_specials(op: OpDef) -> None:
    for x in [*SPECIALS, 0.4, -0.4, 1.5, 2.5, -2.5, -3.5]:
        found = op_function(op, float64)(x)
        assert same(found, float(ROUNDINGS[op](x))), x


def test_functions_have_their_poles_and_domains() -> None:
    def at(op: OpDef, x: float) -> float:
        return op_function(op, float32)(x)

    assert at(math.LOG, 0.0) == at(math.LOG2, -0.0) == at(math.LOG1P, -1.0) == -INF
    assert pymath.isnan(at(math.LOG, -1.0))
    assert same(at(math.SQRT, -0.0), -0.0)
    assert pymath.isnan(at(math.SQRT, -1e-40))
    assert at(math.ATANH, 1.0) == INF
    assert at(math.ATANH, -1.0) == -INF
    assert pymath.isnan(at(math.SIN, INF))
    assert at(math.EXP, 1000.0) == at(math.EXP2, 128.0) == at(math.COSH, -1e4) == INF
    assert at(math.SINH, -1e4) == -INF
    assert same(at(math.RECIPROCAL, -0.0), -INF)
    assert at(math.EXP2, -149.0) == 2.0**-149
    assert all(pymath.isnan(at(getattr(math, n.upper()), NAN)) for n in floats.UNARY)


ORACLES = {
    "exp": mpmath.exp, "exp2": lambda x: mpmath.power(2, x), "expm1": mpmath.expm1,
    "log": mpmath.log, "log2": lambda x: mpmath.log(x, 2), "log1p": mpmath.log1p,
    "sin": mpmath.sin, "cos": mpmath.cos, "tan": mpmath.tan, "asin": mpmath.asin,
    "acos": mpmath.acos, "atan": mpmath.atan, "sinh": mpmath.sinh, "cosh": mpmath.cosh,
    "tanh": mpmath.tanh, "asinh": mpmath.asinh, "acosh": mpmath.acosh, "atanh": mpmath.atanh,
    "erf": mpmath.erf,
}  # fmt: skip


@pytest.mark.parametrize("name", ORACLES)
def test_functions_are_within_one_ulp_of_float32(name: str) -> None:
    source = random.Random(5)
    low, high = {"acosh": (1.0, 50.0), "log": (1e-6, 50.0), "log2": (1e-6, 50.0)}.get(
        name, (-0.99, 0.99) if name in ("asin", "acos", "atanh", "log1p") else (-20.0, 20.0)
    )
    with mpmath.workprec(120):
        for _ in range(60):
            x = floats.rounder(float32)(source.uniform(low, high))
            exact = ORACLES[name](mpmath.mpf(x))
            found = op_function(getattr(math, name.upper()), float32)(x)
            ulp = float(np.spacing(np.float32(abs(float(exact)))))
            assert abs(mpmath.mpf(found) - exact) <= ulp, x


def random_float(source: random.Random, dtype: DType) -> float:
    return floats.from_bits(source.getrandbits(dtype.bits), dtype)


def rounded_fraction(total: Fraction, dtype: DType) -> float:
    """A fraction rounded once, by looking at the values around a first guess."""
    guess = floats.to_bits(float(total), dtype)
    near = [floats.from_bits(bits, dtype) for bits in (guess - 1, guess, guess + 1)]
    return min(near, key=lambda v: (abs(Fraction(v) - total), floats.to_bits(v, dtype) & 1))


def test_fused_multiply_add_rounds_once_in_float16() -> None:
    source, fma = random.Random(1), floats.fused_multiply_add(float16)
    for _ in range(4_000):
        x, y, z = (source.uniform(0.1, 4) for _ in range(3))
        x, y, z = (floats.rounder(float16)(v) for v in (x, y, z))
        total = Fraction(x) * Fraction(y) + Fraction(z)
        assert fma(x, y, z) == rounded_fraction(total, float16)


def test_fused_multiply_add_agrees_with_the_machine() -> None:
    libm = ctypes.CDLL(None)
    libm.fmaf.restype, libm.fmaf.argtypes = ctypes.c_float, [ctypes.c_float] * 3
    libm.fma.restype, libm.fma.argtypes = ctypes.c_double, [ctypes.c_double] * 3
    source, fma32 = random.Random(2), floats.fused_multiply_add(float32)
    for _ in range(4_000):
        x, y, z = (random_float(source, float32) for _ in range(3))
        near = -x * y * (1 + source.random() * 2**-22)
        for third in (z, floats.rounder(float32)(near)):
            assert same(fma32(x, y, third), libm.fmaf(x, y, third))
        a, b, c = (random_float(source, float64) for _ in range(3))
        for third in (c, -a * b):
            assert same(exact_fma(a, b, third), libm.fma(a, b, third))


def test_float32_sums_of_integers_beyond_53_bits_are_rounded_once() -> None:
    convert = cast_function(int64, float32)
    source = random.Random(4)
    for _ in range(3_000):
        value = source.getrandbits(64) - 2**63 >> source.randrange(50)
        assert convert(value) == float(np.float32(np.int64(value)))
    tie = (1 << 62) + (1 << 38)
    assert convert(tie) == float(1 << 62)
    assert convert(tie + 1) > float(1 << 62)


@pytest.mark.parametrize("dtype", [pytest.param(d, id=d.name) for d in FLOATS])
def test_bits_survive_the_way_through_a_scalar(dtype: DType) -> None:
    source = random.Random(6)
    for _ in range(2_000):
        bits = source.getrandbits(dtype.bits)
        assert floats.to_bits(floats.from_bits(bits, dtype), dtype) == bits


def test_casts_to_integers_truncate_and_saturate() -> None:
    to = cast_function(float64, int32)
    assert [to(x) for x in (1.9, -1.9, 1e20, -1e20, NAN, INF, -INF)] == [
        1, -1, 2**31 - 1, -(2**31), 0, 2**31 - 1, -(2**31),
    ]  # fmt: skip
    assert cast_function(float32, int64)(9.3e18) == 2**63 - 1


def test_casts_to_small_floats_round_once() -> None:
    assert cast_function(float64, fp8e4m3)(1.0625 + 1e-12) == 1.125
    assert cast_function(float64, float16)(1 + 2**-11 + 2**-50) == 1 + 2**-10
    assert cast_function(float64, bool_)(NAN) is True
    assert cast_function(bool_, float32)(True) == 1.0


def test_bools_add_as_or_and_multiply_as_and() -> None:
    for x in (False, True):
        for y in (False, True):
            assert op_function(math.ADD, bool_)(x, y) is (x or y)
            assert op_function(math.MUL, bool_)(x, y) is (x and y)
            assert op_function(math.XOR, bool_)(x, y) is (x != y)


def test_an_op_without_meaning_for_a_dtype_is_refused() -> None:
    with pytest.raises(DTypeError, match="sqrt: has no meaning for int8"):
        op_function(math.SQRT, int8)


def test_a_float32_nan_keeps_its_payload() -> None:
    bits = 0x7FC0BEEF
    assert floats.to_bits(floats.from_bits(bits, float32), float32) == bits
    assert struct.pack("<I", bits) != struct.pack("<I", 0x7FC00000)
