"""Products of float32 that may be shortened, of 8-bit floats and of 8-bit integers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tilework.base import settings
from tilework.codegen.analysis import analyse
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
from tilework.ir.build import cast, const_index
from tilework.ir.interpret.blocks import run_blocks
from tilework.ir.node import Node
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs
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


def run(sink: Node, a: np.ndarray, b: np.ndarray, result: type) -> np.ndarray:
    kernel = analyse(normalise_ranges(sink))
    plan = choose_ring_plan(kernel, HOPPER)
    assert plan is not None
    linear = lower_ring(kernel, plan, HOPPER)
    verify(linear, Stage.LINEAR, after="ring")
    found = np.zeros((ROWS, COLUMNS), dtype=result)
    run_blocks(linear, [memoryview(x.view(np.uint8)).cast("B") for x in (found, a, b)], blocks=1)
    return found


@pytest.mark.parametrize(
    ("operand", "numpy_type", "k"),
    [(fp8e4m3, ml_dtypes.float8_e4m3fn, 640), (fp8e5m2, ml_dtypes.float8_e5m2, 144)],
)
def test_sums_of_8_bit_floats_are_promoted_after_each_slot(
    operand: DType, numpy_type: type, k: int
) -> None:
    draw = np.random.default_rng(5)
    a = draw.uniform(0.5, 2.0, (ROWS, k)).astype(numpy_type)
    b = draw.uniform(0.5, 2.0, (COLUMNS, k)).astype(numpy_type)
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


def test_factors_that_were_rounded_on_the_way_have_no_ring() -> None:
    assert instruction(product(bfloat16, float32, 64)) is not None
    assert instruction(product(bfloat16, float32, 64, rounded=float16)) is None
    with settings.override(allow_tf32=True):
        assert instruction(product(float32, float32, 64, rounded=bfloat16)) is None


def test_sums_take_no_more_registers_where_they_are_held_twice() -> None:
    kernel = analyse(normalise_ranges(product(fp8e4m3, float32, 64)))
    plan = choose_ring_plan(kernel, HOPPER)
    assert plan is not None
    ring = ring_of(kernel, plan, HOPPER)
    assert ring is not None
    assert ring.is_promoted
    assert ring.registers == 2 * ring.columns // 2
