"""Products of float32 that may be shortened, of 8-bit floats and of 8-bit integers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tilework.base import settings
from tilework.codegen.analysis import Kernel, analyse
from tilework.codegen.gpu.plan import GpuPlan
from tilework.codegen.matrix.choose import choose_ring_plan, ring_of
from tilework.codegen.matrix.lower import lower_ring
from tilework.codegen.passes.normalise import normalise_ranges
from tilework.dtypes import (
    DType,
    bfloat16,
    float16,
    float32,
    fp8e4m3,
    fp8e5m2,
    int8,
    int32,
    int64,
)
from tilework.ir.build import cast, const, const_index
from tilework.ir.interpret.blocks import run_blocks
from tilework.ir.node import Node
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs, Unit
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.tensor import REDUCE, Fold, ReduceAttrs
from tilework.ir.stage import Stage
from tilework.ir.verify import verify
from tilework.target.known.cuda import cuda_spec

HOPPER = cuda_spec(90)
ROWS, COLUMNS = 24, 16


def product(operand: DType, result: DType, k: int, *, rounded: DType | None = None) -> Node:
    """a[m, k] x b[n, k] with sums of `result`; factors are rounded to `rounded` first."""
    row, column, inner = (
        RANGE(const_index(size), attrs=RangeAttrs(number))
        for number, size in enumerate((ROWS, COLUMNS, k))
    )

    def place(first: Node, second: Node, width: int) -> Node:
        return math.ADD(math.MUL(first, const_index(width)), second)

    def factor(slot: int, lines: int, line: Node) -> Node:
        buffer = PARAM(attrs=ParamAttrs(slot, (lines * k,), operand))
        loaded = LOAD(INDEX(buffer, place(line, inner, k)))
        return cast(loaded if rounded is None else cast(loaded, rounded), result)

    products = math.MUL(factor(1, ROWS, row), factor(2, COLUMNS, column))
    total = REDUCE(products, inner, attrs=ReduceAttrs(Fold.ADD, ()))
    buffer = PARAM(attrs=ParamAttrs(0, (ROWS * COLUMNS,), result))
    return SINK(STORE(INDEX(buffer, place(row, column, COLUMNS)), total))


def instruction(sink: Node) -> str | None:
    plan = choose_ring_plan(analyse(normalise_ranges(sink)), HOPPER)
    return None if plan is None else plan.matrix


def lowered(sink: Node) -> tuple[Kernel, GpuPlan]:
    kernel = analyse(normalise_ranges(sink))
    plan = choose_ring_plan(kernel, HOPPER)
    assert plan is not None
    return kernel, plan


def tiles_of(linear: Node) -> int:
    loops = [node for node in linear.src if node.op is RANGE and node.attrs.unit is Unit.THREAD]
    return max(int(loop.src[0].attrs.bits) for loop in loops)


def run(sink: Node, a: np.ndarray, b: np.ndarray, result: type) -> np.ndarray:
    linear = lower_ring(*lowered(sink), HOPPER)
    verify(linear, Stage.LINEAR, after="ring")
    found: np.ndarray = np.zeros((ROWS, COLUMNS), dtype=result)
    buffers = [x.view(np.uint8).data.cast("B") for x in (found, a, b)]
    run_blocks(linear, buffers, blocks=1, tasks=tiles_of(linear))
    return found


@pytest.mark.parametrize(
    ("operand", "numpy_type", "k"),
    [(fp8e4m3, ml_dtypes.float8_e4m3fn, 640), (fp8e5m2, ml_dtypes.float8_e5m2, 144)],
)
def test_sums_of_8_bit_floats_are_promoted_after_each_slot(
    operand: DType, numpy_type: type, k: int
) -> None:
    draw = np.random.default_rng(5)
    a: np.ndarray = draw.uniform(0.5, 2.0, (ROWS, k)).astype(numpy_type)
    b: np.ndarray = draw.uniform(0.5, 2.0, (COLUMNS, k)).astype(numpy_type)
    found = run(product(operand, float32, k), a, b, np.float32)
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    # Without promotion, 20 steps that each cut the sum off to 14 bits lose twice as much.
    assert np.abs(found / exact - 1).max() <= 2**-12


def test_8_bit_integers_are_summed_exactly() -> None:
    k = 144
    draw = np.random.default_rng(6)
    a = draw.integers(-128, 128, (ROWS, k), dtype=np.int8)
    b = draw.integers(-128, 128, (COLUMNS, k), dtype=np.int8)
    exact = a.astype(np.int64) @ b.astype(np.int64).T
    assert (run(product(int8, int64, k), a, b, np.int64) == exact).all()


def test_sums_in_32_bits_wrap_and_longer_ones_have_no_ring() -> None:
    assert instruction(product(int8, int32, 1 << 20)) is not None
    assert instruction(product(int8, int64, 1 << 16)) is not None
    assert instruction(product(int8, int64, 1 << 17)) is None


def test_float32_is_shortened_only_where_settings_allow_it() -> None:
    sink = product(float32, float32, 40)
    assert instruction(sink) is None
    with settings.override(allow_tf32=True):
        assert instruction(sink) == "wgmma_m64n64k8_tf32"
        draw = np.random.default_rng(8)
        a = draw.standard_normal((ROWS, 40)).astype(np.float32)
        b = draw.standard_normal((COLUMNS, 40)).astype(np.float32)
        found = run(sink, a, b, np.float32)
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    error = np.abs(found - exact).max() / (np.abs(a) @ np.abs(b).T).max()
    assert 2**-20 < error <= 2**-10


def test_factors_that_were_rounded_on_the_way_are_rounded_as_slots_are_filled() -> None:
    sink = product(bfloat16, float32, 40, rounded=float16)
    assert "float16" in str(instruction(sink))
    draw = np.random.default_rng(4)
    # Many have no normal float16, so that they lose bits.
    a, b = (
        (draw.standard_normal((lines, 40)) * 2**-18).astype(ml_dtypes.bfloat16)
        for lines in (ROWS, COLUMNS)
    )
    found = run(sink, a, b, np.float32)
    first, second = (x.astype(np.float16).astype(np.float64) for x in (a, b))
    exact = first @ second.T
    assert np.abs(found - exact).max() <= 1e-6 * np.abs(exact).max()
    assert np.abs(a.astype(np.float64) @ b.astype(np.float64).T - exact).max() > 0


def test_sums_take_no_more_registers_where_they_are_held_twice() -> None:
    kernel = analyse(normalise_ranges(product(fp8e4m3, float32, 64)))
    plan = choose_ring_plan(kernel, HOPPER)
    assert plan is not None
    ring = ring_of(kernel, plan, HOPPER)
    assert ring is not None
    assert ring.is_promoted
    assert ring.registers == 2 * ring.columns // 2


def test_weights_of_8_bits_are_widened_as_slots_are_filled() -> None:
    k = 64
    row, column, inner = (
        RANGE(const_index(size), attrs=RangeAttrs(number))
        for number, size in enumerate((ROWS, COLUMNS, k))
    )

    def load(slot: int, dtype: DType, count: int, offset: Node) -> Node:
        return cast(LOAD(INDEX(PARAM(attrs=ParamAttrs(slot, (count,), dtype)), offset)), float32)

    a = load(1, bfloat16, ROWS * k, math.ADD(math.MUL(row, const_index(k)), inner))
    b = load(2, int8, COLUMNS * k, math.ADD(math.MUL(inner, const_index(COLUMNS)), column))
    total = REDUCE(math.MUL(a, b), inner, attrs=ReduceAttrs(Fold.ADD, ()))
    buffer = PARAM(attrs=ParamAttrs(0, (ROWS * COLUMNS,), float32))
    place = math.ADD(math.MUL(row, const_index(COLUMNS)), column)
    sink = SINK(STORE(INDEX(buffer, place), total))
    assert "bfloat16" in str(instruction(sink))
    draw = np.random.default_rng(9)
    left = draw.standard_normal((ROWS, k)).astype(ml_dtypes.bfloat16)
    right = draw.integers(-128, 128, (k, COLUMNS), dtype=np.int8)
    found = run(sink, left, right, np.float32)
    exact = left.astype(np.float64) @ right.astype(np.float64)
    assert np.abs(found - exact).max() <= 1e-6 * np.abs(exact).max()


def test_the_rim_of_a_picture_is_filled_with_zeros() -> None:
    """A convolution of windows of three: positions outside are left out by a condition."""
    width, channels, out = 24, 40, 16
    column, kernel, inner, tap = (
        RANGE(const_index(size), attrs=RangeAttrs(number))
        for number, size in enumerate((width, out, channels, 3))
    )
    at = math.ADD(column, tap)
    inside = math.AND(math.LT(const_index(0), at), math.LT(at, const_index(width + 1)))
    picture = PARAM(attrs=ParamAttrs(1, (channels * width,), float16))
    offset = math.ADD(math.MUL(inner, const_index(width)), math.ADD(at, const_index(-1)))
    pixel = LOAD(INDEX(picture, offset), inside)
    factor = math.WHERE(inside, cast(pixel, float32), const(0.0, float32))
    weights = PARAM(attrs=ParamAttrs(2, (out * channels * 3,), float16))
    line = math.ADD(math.MUL(kernel, const_index(channels)), inner)
    weight = LOAD(INDEX(weights, math.ADD(math.MUL(line, const_index(3)), tap)))
    products = math.MUL(factor, cast(weight, float32))
    total = REDUCE(products, inner, tap, attrs=ReduceAttrs(Fold.ADD, ()))
    target = PARAM(attrs=ParamAttrs(0, (width * out,), float32))
    place = math.ADD(math.MUL(column, const_index(out)), kernel)
    sink = SINK(STORE(INDEX(target, place), total))
    draw = np.random.default_rng(2)
    x = draw.standard_normal((channels, width)).astype(np.float16)
    w = draw.standard_normal((out, channels, 3)).astype(np.float16)
    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1)))
    windows = np.stack([padded[:, i : i + width] for i in range(3)], axis=-1)
    exact = np.einsum("cwt,oct->wo", windows, w.astype(np.float64))
    found = np.zeros((width, out), dtype=np.float32)
    linear = lower_ring(*lowered(sink), HOPPER)
    buffers = [array.view(np.uint8).data.cast("B") for array in (found, x, w)]
    run_blocks(linear, buffers, blocks=1, tasks=tiles_of(linear))
    assert np.abs(found - exact).max() <= 1e-6 * np.abs(exact).max()
