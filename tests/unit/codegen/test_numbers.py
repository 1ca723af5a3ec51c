"""Numbers through machine code: roots, quotients, narrow floats, literals, conversions."""

import ctypes
import random
import re
from array import array
from collections.abc import Callable, Iterator
from fractions import Fraction
from math import isqrt
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilework import Tensor, dtypes
from tilework.codegen.pipeline import lower_kernel
from tilework.dtypes import float32, float64
from tilework.ir.build import const, const_index
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.symbolic import simplify
from tilework.render.c_family.clang import ClangRenderer
from tilework.render.c_family.dialect import literal as c_literal
from tilework.render.c_family.prelude import PRELUDE
from tilework.render.llvm_ir import LlvmRenderer
from tilework.render.llvm_types import literal as llvm_literal
from tilework.runtime.loader import load_object
from tilework.testing.kernels import target
from tilework.toolchain.clang import ClangToolchain
from tilework.toolchain.llvm import LlvmToolchain

HALVES = np.arange(65536, dtype=np.uint16).view(np.float16)
NARROW = {
    "bfloat16": ml_dtypes.bfloat16,
    "fp8e4m3": ml_dtypes.float8_e4m3fn,
    "fp8e5m2": ml_dtypes.float8_e5m2,
}
DEVICES = ["CPU", pytest.param("CPU:CLANG", marks=pytest.mark.needs("program:cc"))]


def assert_same_bits(found: Any, wanted: Any) -> None:
    """Equal bits; any NaN for a NaN."""
    assert found.dtype == wanted.dtype
    is_nan = np.isnan(wanted.astype(np.float64))
    np.testing.assert_array_equal(np.isnan(found.astype(np.float64)), is_nan)
    raw = f"u{wanted.dtype.itemsize}"
    np.testing.assert_array_equal(found.view(raw)[~is_nan], wanted.view(raw)[~is_nan])


# ---- roots and quotients: a float64 result rounded once more is right for these narrower floats


def test_TRN_09_roots_and_reciprocals_of_all_float16_are_rounded_correctly() -> None:
    x = Tensor(HALVES)
    with np.errstate(all="ignore"):
        wide = HALVES.astype(np.float64)
        assert_same_bits(x.sqrt().numpy(), np.sqrt(wide).astype(np.float16))
        assert_same_bits(x.reciprocal().numpy(), (1 / wide).astype(np.float16))


def check_half_quotients(divisors: Any) -> None:
    wide = HALVES.astype(np.float64)
    x = Tensor(HALVES).realize()
    for divisor in divisors:
        with np.errstate(all="ignore"):
            wanted = (wide / np.float64(divisor)).astype(np.float16)
        assert_same_bits((x / Tensor(np.array([divisor]))).numpy(), wanted)


def test_TRN_09_quotients_of_float16_are_rounded_correctly() -> None:
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 6e-8, 65504.0, 1.0]
    rng = np.random.default_rng(1)
    check_half_quotients([*np.array(special, np.float16), *rng.choice(HALVES, 24)])


@pytest.mark.slow
def test_TRN_09_all_pairs_of_float16_are_divided_correctly() -> None:
    check_half_quotients(HALVES)


def check_float32(bits: Any) -> None:
    x = bits.view(np.float32)
    tensor = Tensor(x).realize()
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        assert_same_bits(tensor.sqrt().numpy(), np.sqrt(wide).astype(np.float32))
        assert_same_bits(tensor.reciprocal().numpy(), (1 / wide).astype(np.float32))


def test_TRN_09_roots_and_reciprocals_of_float32_are_rounded_correctly() -> None:
    check_float32((np.arange(1 << 20, dtype=np.uint64) * 4093 % (1 << 32)).astype(np.uint32))
    check_float32(np.arange(0x7F7FFF00, 0x7F800100, dtype=np.uint32))
    check_float32(np.arange(0, 1 << 16, dtype=np.uint32))  # subnormals


@pytest.mark.slow
def test_TRN_09_all_float32_roots_and_reciprocals_are_rounded_correctly() -> None:
    for start in range(0, 1 << 32, 1 << 24):
        check_float32(np.arange(start, start + (1 << 24), dtype=np.uint64).astype(np.uint32))


def test_TRN_09_quotients_of_float32_are_rounded_correctly() -> None:
    rng = np.random.default_rng(2)
    x, y = (rng.integers(0, 1 << 32, 1 << 20, dtype=np.uint32).view(np.float32) for _ in range(2))
    with np.errstate(all="ignore"):
        wanted = (x.astype(np.float64) / y).astype(np.float32)
    assert_same_bits((Tensor(x) / Tensor(y)).numpy(), wanted)


def nearest(value: Fraction, below: float) -> float:
    """The float64 next to an exact number, ties to even; `below` is near it."""
    candidates = [below, float(np.nextafter(below, np.inf)), float(np.nextafter(below, -np.inf))]
    return min(
        candidates, key=lambda c: (abs(Fraction(c) - value), int(np.float64(c).view(np.int64)) & 1)
    )


def test_TRN_09_float64_is_rounded_correctly_on_samples() -> None:
    rng = random.Random(3)
    x = np.array([rng.uniform(0.5, 2) * 2.0 ** rng.randint(-300, 300) for _ in range(3000)])
    y = np.array([rng.uniform(0.5, 2) * 2.0 ** rng.randint(-300, 300) for _ in range(3000)])
    quotients = (Tensor(x) / Tensor(y)).numpy()
    reciprocals = Tensor(y).reciprocal().numpy()
    roots = Tensor(x).sqrt().numpy()
    for a, b, quotient, reciprocal, root in zip(x, y, quotients, reciprocals, roots, strict=True):
        exact = Fraction(a) / Fraction(b)
        assert quotient == nearest(exact, quotient)
        assert reciprocal == nearest(1 / Fraction(b), reciprocal)
        # sqrt(a) scaled to 400 bits: |root - sqrt(a)| is compared through integers.
        scaled = Fraction(a) * (1 << 1600)
        value = Fraction(isqrt(scaled.numerator // scaled.denominator), 1 << 800)
        assert root == nearest(value, root)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_TRN_09_special_values_of_roots_and_quotients(dtype: Any) -> None:
    x = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan], dtype)
    with np.errstate(all="ignore"):
        assert_same_bits(Tensor(x).sqrt().numpy(), np.sqrt(x))
        assert_same_bits(Tensor(x).reciprocal().numpy(), (1 / x).astype(dtype))
        pairs = x[:, None] / x
        assert_same_bits((Tensor(x)[:, None] / Tensor(x)).numpy(), pairs.astype(dtype))


# ---- narrow floats

FUNCTIONS = [
    "exp", "exp2", "log", "log2", "sin", "cos", "tan", "tanh", "sqrt", "reciprocal", "sigmoid",
    "erf", "abs", "neg", "floor", "ceil", "trunc", "round", "asin", "acos", "atan", "sinh", "cosh",
    "asinh", "acosh", "atanh", "relu",
]  # fmt: skip


def all_values(name: str) -> Any:
    kind = np.dtype(NARROW[name])
    raw = np.arange(1 << 8 * kind.itemsize, dtype=f"u{kind.itemsize}")
    return raw.view(kind)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("name", NARROW)
def test_TRN_12_a_narrow_float_is_rounded_once_from_float32(name: str, function: str) -> None:
    values = all_values(name)
    narrow = Tensor(values.astype(np.float32)).cast(name)
    found = getattr(narrow, function)().cast("float32").numpy()
    wide = getattr(Tensor(values.astype(np.float32)), function)().numpy()
    with np.errstate(all="ignore"):
        wanted = wide.astype(NARROW[name]).astype(np.float32)
    assert_same_bits(found, wanted)


def patterns(low: Iterator[int] | range | list[int]) -> Any:
    """float32 of every upper half, with some lower halves: those around ties among them."""
    high = np.arange(1 << 16, dtype=np.uint32)[:, None] << 16
    return (high | np.array(list(low), np.uint32)).reshape(-1)


def check_conversion(name: str, bits: Any) -> None:
    x = bits.view(np.float32)
    found = Tensor(x).cast(name).cast("float32").numpy()
    with np.errstate(all="ignore"):
        wanted = x.astype(NARROW[name]).astype(np.float32)
    assert_same_bits(found, wanted)


LOW = [0, 1, 0x0FFF, 0x1000, 0x7FFF, 0x8000, 0x8001, 0xFFFF]


@pytest.mark.parametrize("name", NARROW)
def test_CST_12_float32_is_rounded_to_nearest_even_and_nan_stays_nan(name: str) -> None:
    check_conversion(name, patterns(LOW))


@pytest.mark.slow
@pytest.mark.parametrize("name", NARROW)
def test_CST_12_all_float32_are_converted_correctly(name: str) -> None:
    for start in range(0, 1 << 32, 1 << 24):
        bits = np.arange(start, start + (1 << 24), dtype=np.uint64).astype(np.uint32)
        check_conversion(name, bits)


# ---- literals and conversions to integers


def c_value(text: str) -> float:
    found = re.fullmatch(r"\((-?0x[0-9a-f.]+p[+-]?\d+)f?\)", text)
    assert found, text
    return float.fromhex(found[1])


def test_CST_11_every_float16_and_bfloat16_value_is_an_exact_literal() -> None:
    wide = [HALVES.astype(np.float32), all_values("bfloat16").astype(np.float32)]
    for values in wide:
        for value in values[np.isfinite(values)]:
            bits = int(value.view(np.uint32))
            assert np.float32(c_value(c_literal(bits, float32))).view(np.uint32) == bits
            text = int(llvm_literal(bits, float32), 16)
            double = np.uint64(text).view(np.float64)
            assert np.float32(double).view(np.uint32) == bits
            assert np.float64(np.float32(double)) == double


def test_CST_11_random_float64_literals_are_exact() -> None:
    rng = random.Random(4)
    for _ in range(20_000):
        bits = rng.getrandbits(64)
        value = np.uint64(bits).view(np.float64)
        if np.isfinite(value):
            assert np.float64(c_value(c_literal(bits, float64))).view(np.uint64) == bits
            assert int(llvm_literal(bits, float64), 16) == bits


@pytest.mark.slow
@pytest.mark.parametrize("part", range(100))
def test_CST_11_a_hundred_million_float64_literals_are_exact(part: int) -> None:
    """A million of them in each part."""
    drawn = np.random.default_rng((11, part)).integers(0, 1 << 64, 1_000_000, np.uint64)
    values = drawn.view(np.float64)
    finite = drawn[np.isfinite(values)]
    read = array("d", [float.fromhex(c_literal(bits, float64)[1:-1]) for bits in finite.tolist()])
    assert np.array_equal(np.frombuffer(read, np.uint64), finite)
    for bits in drawn[np.isnan(values)].tolist():
        assert c_literal(bits, float64) == f"bitcast_u64_f64({bits:#x}ull)"
    assert [int(llvm_literal(bits, float64), 16) for bits in drawn.tolist()] == drawn.tolist()


@pytest.mark.needs("program:cc")
def test_CST_11_the_c_compiler_reads_the_literals_back() -> None:
    values = HALVES.astype(np.float32)
    values = values[np.isfinite(values)][::16]
    table = ",\n".join(c_literal(int(v.view(np.uint32)), float32) for v in values)
    integers = [
        (dtypes.int64, -(1 << 63)), (dtypes.int32, -(1 << 31)), (dtypes.int8, -128),
        (dtypes.int64, (1 << 63) - 1), (dtypes.uint64, (1 << 64) - 1), (dtypes.int16, -1),
    ]  # fmt: skip
    numbers = ", ".join(
        f"(long)({c_literal(dtypes.encode(value, dtype), dtype)})" for dtype, value in integers
    )
    source = f"""{PRELUDE}
static const float table[] = {{{table}}};
static const long numbers[] = {{{numbers}}};
float pick(long i) {{ return table[i]; }}
long whole(long i) {{ return numbers[i]; }}
float nan_of(long bits) {{ return {c_literal(0xFFC12345, float32)}; }}
"""
    code = load_object(ClangToolchain(target("host")).compile(source), ["pick", "whole", "nan_of"])
    with code:
        pick = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_int64)(code.address_of("pick"))
        found = np.array([pick(i) for i in range(len(values))], np.float32)
        assert found.tobytes() == values.tobytes()
        whole = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.address_of("whole"))
        wanted = [value if value < 1 << 63 else value - (1 << 64) for _, value in integers]
        assert [whole(i) for i in range(len(integers))] == wanted


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("value", [-0.0, np.inf, -np.inf, np.nan, 2.0**-149, 1e-45, 3.4028235e38])
def test_CST_11_special_literals_keep_their_bits(device: str, value: float) -> None:
    x = Tensor([True, False], device=device).realize()
    found = x.where(value, 1.0).cast("float32").numpy()
    assert_same_bits(found, np.array([value, 1.0], np.float32))


INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_CST_11_floats_out_of_range_become_the_nearest_integer(dtype: str, device: str) -> None:
    limits = np.iinfo(dtype)
    halves = HALVES.astype(np.float64)
    edges = [2.0**n * s for n in range(70) for s in (1, -1)] + [np.nan, np.inf, -np.inf, 1e300]
    with np.errstate(invalid="ignore"):  # NaN that signal
        brains = all_values("bfloat16").astype(np.float64)
    for kind, values in (("float16", halves), ("bfloat16", brains), ("float64", np.array(edges))):
        found = Tensor(values, device=device).cast(kind).cast(dtype).numpy()
        wanted = [
            0 if v != v else limits.max if v == np.inf else limits.min if v == -np.inf
            else min(max(int(v), limits.min), limits.max)
            for v in values
        ]  # fmt: skip
        assert found.tolist() == wanted


# ---- buffers that overlap


def blend() -> Any:
    """y[i] = x[i] * 3 + x[i + 1], which matters where y is a part of x."""
    i = RANGE(const_index(40), attrs=RangeAttrs(0))
    x = PARAM(attrs=ParamAttrs(1, (41,), float32))
    first, second = LOAD(INDEX(x, i)), LOAD(INDEX(x, simplify.add(i, const_index(1))))
    value = math.ADD(math.MUL(first, const(3, float32)), second)
    return SINK(STORE(INDEX(PARAM(attrs=ParamAttrs(0, (40,), float32)), i), value))


Compile = Callable[[str, int], bytes]
COMPILERS: dict[str, tuple[Any, Compile]] = {
    "llvm": (LlvmRenderer, lambda text, level: LlvmToolchain(target("host")).compile(text, level)),
    "clang": (
        ClangRenderer,
        lambda text, level: ClangToolchain(target("host"), speed_level=level).compile(text),
    ),
}


@pytest.mark.parametrize(
    "kind", ["llvm", pytest.param("clang", marks=pytest.mark.needs("program:cc"))]
)
def test_CST_08_overlapping_buffers_give_the_same_at_every_optimisation_level(kind: str) -> None:
    renderer, compile_text = COMPILERS[kind]
    kernel = lower_kernel(blend(), target("host"))
    text = renderer().render(kernel)
    start = np.arange(128, dtype=np.float32) % 13
    results: dict[int, list[bytes]] = {}
    for level in (0, 3):
        with load_object(compile_text(text, level), [kernel.name]) as code:
            function = ctypes.CFUNCTYPE(
                None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64,
                ctypes.c_void_p,
            )(code.address_of(kernel.name))  # fmt: skip
            fault = ctypes.c_int64(0)
            variables = (ctypes.c_int64 * 1)(ctypes.addressof(fault))
            for distance in range(-48, 49):
                memory = start.copy()
                base = memory.ctypes.data + 48 * 4
                # Bytes too: the overlap need not be by whole elements.
                for shift in (0, 1):
                    pointers = (ctypes.c_void_p * 2)(base + distance // 2 * 4 + shift, base)
                    function(ctypes.addressof(pointers), ctypes.addressof(variables), 0, 1, None)
                results.setdefault(level, []).append(memory.tobytes())
    assert results[0] == results[3]
    assert len(set(results[0])) > 20
