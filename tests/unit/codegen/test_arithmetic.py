"""Arithmetic and conversions of compiled kernels, exhaustively for the narrow types."""

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from tilework import dtypes
from tilework.dtypes import DType
from tilework.ir.build import cast, const_index
from tilework.ir.node import Node, OpDef
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.testing.kernels import Case, can_run, run_on_machine

NUMPY: dict[DType, np.dtype] = {
    dtypes.bool_: np.dtype(np.bool_),
    dtypes.fp8e4m3: np.dtype(ml_dtypes.float8_e4m3fn),
    dtypes.fp8e5m2: np.dtype(ml_dtypes.float8_e5m2),
    dtypes.bfloat16: np.dtype(ml_dtypes.bfloat16),
}
KINDS = ["llvm", pytest.param("clang", marks=pytest.mark.needs("program:cc"))]
LEVELS = [level for level in ("x86-64", "x86-64-v3", "host") if can_run(level)]
NARROW = [dtypes.float16, dtypes.bfloat16, dtypes.fp8e4m3, dtypes.fp8e5m2]


def numpy_dtype(dtype: DType) -> np.dtype:
    return NUMPY.get(dtype) or np.dtype(dtype.name)


def run(
    kind: str, level: str, function: Callable[..., Node], result: DType, *inputs: np.ndarray
) -> np.ndarray:
    """`function` of the elements of the inputs, by a compiled kernel."""
    names = {value: key for key, value in NUMPY.items()}
    count = inputs[0].size
    i = RANGE(const_index(count), attrs=RangeAttrs(0))
    loads = []
    for slot, x in enumerate(inputs, 1):
        dtype = names.get(x.dtype) or dtypes.by_name(x.dtype.name)
        loads.append(LOAD(INDEX(PARAM(attrs=ParamAttrs(slot, (count,), dtype)), i)))
    target = INDEX(PARAM(attrs=ParamAttrs(0, (count,), result)), i)
    sink = SINK(STORE(target, function(*loads)))
    blank = bytes(count * result.itemsize)
    outcome = run_on_machine(Case(sink, [blank, *(x.tobytes() for x in inputs)]), kind, level)
    return np.frombuffer(outcome.buffers[0], numpy_dtype(result))


def pairs(dtype: DType) -> tuple[np.ndarray, np.ndarray]:
    everything = np.arange(256, dtype=np.uint8).view(numpy_dtype(dtype))
    x, y = np.meshgrid(everything, everything, indexing="ij")
    return np.ascontiguousarray(x.ravel()), np.ascontiguousarray(y.ravel())


def floor_divide(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.where(y == 0, 0, x // np.where(y == 0, 1, y))


def floor_modulo(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.where(y == 0, 0, x % np.where(y == 0, 1, y))


def shift_left(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.where((y >= 0) & (y < 8), x << np.clip(y, 0, 7), 0)


def shift_right(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.where((y >= 0) & (y < 8), x >> np.clip(y, 0, 7), np.where(x < 0, -1, 0))


OPS: dict[OpDef, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    math.IDIV: floor_divide,
    math.MOD: floor_modulo,
    math.SHL: shift_left,
    math.SHR: shift_right,
    math.ADD: np.add,
    math.SUB: np.subtract,
    math.MUL: np.multiply,
    math.MAXIMUM: np.maximum,
    math.MINIMUM: np.minimum,
    math.AND: np.bitwise_and,
    math.OR: np.bitwise_or,
    math.XOR: np.bitwise_xor,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.uint8], ids=repr)
@pytest.mark.parametrize("op", OPS, ids=repr)
def test_CST_10_every_pair_of_bytes_gives_the_defined_result(
    op: OpDef, dtype: DType, kind: str
) -> None:
    x, y = pairs(dtype)
    found = run(kind, "host", op, dtype, x, y)
    wanted = OPS[op](x.astype(np.int64), y.astype(np.int64)).astype(numpy_dtype(dtype))
    np.testing.assert_array_equal(found, wanted)


def numbers_around_ties(dtype: DType) -> np.ndarray:
    """Every float of 16 leading bits with the rest at, below and above the middle."""
    leading = np.arange(65536, dtype=np.uint32) << 16
    rest = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0x0FFF, 0x1000, 0x1001, 0xFFFF], np.uint32)
    return (leading[:, None] | rest).ravel().view(np.float32)


def assert_equal_floats(found: np.ndarray, wanted: np.ndarray) -> None:
    """Equal bits, NaNs as NaNs."""
    nan = np.isnan(wanted.astype(np.float64))
    np.testing.assert_array_equal(np.isnan(found.astype(np.float64)), nan)
    raw = f"u{found.dtype.itemsize}"
    np.testing.assert_array_equal(found.view(raw)[~nan], wanted.view(raw)[~nan])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", NARROW, ids=repr)
@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:invalid:RuntimeWarning")
def test_float32_is_rounded_once_to_a_narrow_float(dtype: DType, level: str, kind: str) -> None:
    x = numbers_around_ties(dtype)
    found = run(kind, level, lambda v: cast(v, dtype), dtype, x)
    assert_equal_floats(found, x.astype(numpy_dtype(dtype)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", NARROW, ids=repr)
def test_every_narrow_float_widens_exactly(dtype: DType, level: str, kind: str) -> None:
    x = np.arange(1 << dtype.bits, dtype=f"u{dtype.itemsize}").view(numpy_dtype(dtype))
    found = run(kind, level, lambda v: cast(v, dtypes.float32), dtypes.float32, x)
    with np.errstate(invalid="ignore"):
        assert_equal_floats(found, x.astype(np.float32))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", NARROW, ids=repr)
def test_float64_is_rounded_once_to_a_narrow_float(dtype: DType, kind: str) -> None:
    every = np.arange(1 << dtype.bits, dtype=f"u{dtype.itemsize}").view(numpy_dtype(dtype))
    with np.errstate(invalid="ignore"):
        exact = every.astype(np.float64)
    exact = np.unique(exact[np.isfinite(exact)])
    middles = (exact[1:] + exact[:-1]) / 2
    x = np.concatenate([middles, np.nextafter(middles, np.inf), np.nextafter(middles, -np.inf)])
    found = run(kind, "host", lambda v: cast(v, dtype), dtype, x).astype(np.float64)
    low, high = exact[:-1], exact[1:]
    count = len(middles)
    np.testing.assert_array_equal(found[count : 2 * count], high)
    np.testing.assert_array_equal(found[2 * count :], low)
    tie = found[:count]
    assert np.all((tie == low) | (tie == high))
    raw = f"u{dtype.itemsize}"
    assert not np.any(tie.astype(numpy_dtype(dtype)).view(raw) & 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("source", [dtypes.float32, dtypes.float64], ids=repr)
@pytest.mark.parametrize("target", dtypes.INTEGERS, ids=repr)
def test_floats_out_of_range_saturate(target: DType, source: DType, kind: str) -> None:
    edges = [float(target.minimum), float(target.maximum), 2.0**63, 2.0**64, -(2.0**63)]
    kind_of = numpy_dtype(source).type
    ends = (kind_of(-np.inf), kind_of(np.inf))
    near = [np.nextafter(kind_of(edge), end) for edge in edges for end in ends]
    values = [*edges, *near, 0.5, -0.5, -0.0, 1.99, -1.99, np.nan, np.inf, -np.inf, 1e30, -1e30]
    x = np.array(values, numpy_dtype(source))
    found = run(kind, "host", lambda v: cast(v, target), target, x)
    wanted = [
        0 if v != v else max(target.minimum, min(target.maximum, int(np.clip(v, -1e30, 1e30))))
        for v in x.astype(np.float64).tolist()
    ]
    assert found.tolist() == wanted


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("source", [dtypes.int64, dtypes.uint64, dtypes.int32], ids=repr)
@pytest.mark.parametrize("target", [dtypes.bfloat16, dtypes.float32, dtypes.float64], ids=repr)
def test_integers_are_rounded_once(target: DType, source: DType, kind: str) -> None:
    powers = [1 << k for k in range(source.bits - 1)]
    values = [p + q + d for p in powers for q in (p >> 8, p >> 24, p >> 53) for d in (-1, 0, 1)]
    values += [source.minimum, source.maximum]
    x = np.array([v for v in values if v <= source.maximum], numpy_dtype(source))
    found = run(kind, "host", lambda v: cast(v, target), target, x)
    assert found.astype(np.float64).tolist() == [rounded(int(v), target) for v in x.tolist()]


def rounded(value: int, dtype: DType) -> float:
    """An integer rounded to nearest even in a float with its mantissa."""
    size, sign = abs(value), -1 if value < 0 else 1
    drop = max(size.bit_length() - dtype.mantissa_bits - 1, 0)
    kept, rest = size >> drop, size & ((1 << drop) - 1)
    half = (1 << drop) >> 1
    kept += bool(drop) and (rest > half or (rest == half and kept & 1))
    return float(sign * (kept << drop))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=repr)
def test_a_multiply_add_is_rounded_once_on_every_level(dtype: DType, level: str, kind: str) -> None:
    kind_of = numpy_dtype(dtype)
    one = np.nextafter(np.array(1, kind_of), 2)
    x = np.array([one, one, 3, -0.0, np.inf, np.nan, 1e-30], kind_of)
    y = np.array([one, -one, 1 / 3, 5, 0, 1, 1e-5], kind_of)
    z = np.array([-1, 1, -1, 0, 1, 1, 1], kind_of)
    found = run(kind, level, math.MULACC, dtype, x, y, z)
    wanted = [fused(*xyz, dtype) for xyz in zip(x.tolist(), y.tolist(), z.tolist(), strict=True)]
    np.testing.assert_array_equal(found, np.array(wanted, kind_of))


def fused(x: float, y: float, z: float, dtype: DType) -> float:
    from tilework.ir.interpret.floats import fused_multiply_add

    return fused_multiply_add(dtype)(x, y, z)


ROUNDINGS = {math.FLOOR: np.floor, math.CEIL: np.ceil, math.TRUNC: np.trunc, math.ROUND: np.rint}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("op", ROUNDINGS, ids=repr)
def test_rounding_to_integers_keeps_signs_and_specials(op: OpDef, level: str, kind: str) -> None:
    steps = np.arange(-9, 9.25, 0.25)
    large = 2.0 ** np.arange(20, 27)[:, None] + np.array([-1.5, -0.5, 0, 0.5, 1])
    x = np.concatenate([steps, large.ravel(), -large.ravel(), [-0.0, np.inf, -np.inf, np.nan]])
    x = x.astype(np.float32)
    assert_equal_floats(run(kind, level, op, dtypes.float32, x), ROUNDINGS[op](x))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=repr)
def test_maximum_keeps_nan_and_orders_zeros(dtype: DType, kind: str) -> None:
    values = np.array([0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf], numpy_dtype(dtype))
    x, y = (np.ascontiguousarray(part.ravel()) for part in np.meshgrid(values, values))
    found = run(kind, "host", math.MAXIMUM, dtype, x, y)
    wanted = np.where(np.isnan(x) | np.isnan(y), np.nan, np.maximum(x, y))
    zeros = (x == 0) & (y == 0)
    wanted[zeros] = np.where(np.signbit(x) & np.signbit(y), -0.0, 0.0)[zeros]
    assert_equal_floats(found, wanted.astype(numpy_dtype(dtype)))


FUNCTIONS = [
    math.EXP, math.EXP2, math.EXPM1, math.LOG, math.LOG2, math.LOG1P, math.SIN, math.COS, math.TAN,
    math.ASIN, math.ACOS, math.ATAN, math.SINH, math.COSH, math.TANH, math.ASINH, math.ACOSH,
    math.ATANH, math.ERF, math.SQRT, math.RECIPROCAL,
]  # fmt: skip
SAMPLE = np.concatenate(
    [
        np.linspace(-20, 20, 801),
        np.random.default_rng(5).standard_normal(400) * 1e3,
        2.0 ** np.arange(-140, 128, 7),
        [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 3e38, -3e38],
    ]
)


@pytest.mark.needs("program:cc")
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.float16], ids=repr)
@pytest.mark.parametrize("op", FUNCTIONS, ids=repr)
def test_CST_20_functions_have_the_same_bits_through_c_and_llvm(op: OpDef, dtype: DType) -> None:
    with np.errstate(over="ignore"):
        x = SAMPLE.astype(numpy_dtype(dtype))
    first = run("llvm", "host", op, dtype, x)
    assert_equal_floats(run("clang", "host", op, dtype, x), first)


@pytest.mark.parametrize("op", FUNCTIONS, ids=repr)
def test_functions_have_the_same_bits_on_every_level(op: OpDef) -> None:
    with np.errstate(over="ignore"):
        x = SAMPLE.astype(np.float32)
    first = run("llvm", "host", op, dtypes.float32, x)
    assert_equal_floats(run("llvm", "x86-64", op, dtypes.float32, x), first)
