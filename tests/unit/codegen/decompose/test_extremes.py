"""Extremes by an instruction that leaves out NaN: as by comparisons, NaN and zeros as well."""

from __future__ import annotations

import numpy as np
import pytest

from tilework import Tensor
from tilework.codegen.pipeline import lower_kernel
from tilework.dtypes import DType, float32, float64
from tilework.ir.build import const_index
from tilework.ir.interpret import run_linear
from tilework.ir.node import Node, OpDef
from tilework.ir.ops import math, memory
from tilework.ir.ops.control import FOLD_LANES
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.tensor import REDUCE, Fold, ReduceAttrs
from tilework.testing.kernels import Case, can_run, compile_to, execute, target

KINDS = {float32: np.float32, float64: np.float64}
SPECIAL = [0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1.0, -1.5, 1e-40, -1e-310]
PAIRS = [
    (math.MAXIMUM, math.MAXIMUM_NUMBER),
    (math.MINIMUM, math.MINIMUM_NUMBER),
]


def kernel(op: OpDef, dtype: DType, count: int) -> Node:
    at = RANGE(const_index(count), attrs=RangeAttrs(0))
    out, x, y = (memory.PARAM(attrs=memory.ParamAttrs(n, (count,), dtype)) for n in range(3))
    operands = [memory.LOAD(memory.INDEX(buffer, at)) for buffer in (x, y)]
    return memory.SINK(memory.STORE(memory.INDEX(out, at), op(*operands)))


def operands(dtype: DType) -> tuple[np.ndarray, np.ndarray]:
    values = np.array(SPECIAL).astype(KINDS[dtype])
    both = np.repeat(values, len(values)), np.tile(values, len(values))
    return np.resize(both[0], 128), np.resize(both[1], 128)


def wanted(op: OpDef, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    greater = op is math.MAXIMUM
    found: np.ndarray = np.maximum(x, y) if greater else np.minimum(x, y)
    negative = np.signbit(x) & np.signbit(y) if greater else np.signbit(x) | np.signbit(y)
    zeros = np.where(negative, x.dtype.type(-0.0), x.dtype.type(0.0))
    result: np.ndarray = np.where((x == 0) & (y == 0), zeros, found)
    return result


def check(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(found, expected)
    is_number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found[is_number]), np.signbit(expected[is_number]))


@pytest.mark.parametrize(("op", "instruction"), PAIRS, ids=["maximum", "minimum"])
@pytest.mark.parametrize("dtype", [float32, float64], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("kind", ["llvm", "clang", "linear"])
def test_extremes_of_vectors_keep_nan_and_order_zeros(
    op: OpDef, instruction: OpDef, dtype: DType, kind: str
) -> None:
    x, y = operands(dtype)
    for level in ("x86-64-v3", "x86-64-v4"):
        sink = kernel(op, dtype, x.size)
        lowered = lower_kernel(sink, target(level))
        uses = any(node.op is instruction for node in lowered.linear.src)
        assert uses == (level == "x86-64-v4")
        buffers = [bytes(x.nbytes), x.tobytes(), y.tobytes()]
        if kind == "linear":
            arrays = [bytearray(buffer) for buffer in buffers]
            run_linear(lowered.linear, arrays, {})
            found = bytes(arrays[0])
        else:
            code = compile_to(kind, level, lowered)
            if not can_run(level):
                continue
            found = execute(lowered, code, Case(sink, buffers)).buffers[0]
        check(np.frombuffer(found, x.dtype), wanted(op, x, y))


def fold_of_rows(fold: Fold, dtype: DType, rows: int, columns: int) -> Node:
    row, column = (
        RANGE(const_index(n), attrs=RangeAttrs(i)) for i, n in enumerate((rows, columns))
    )
    out = memory.PARAM(attrs=memory.ParamAttrs(0, (rows,), dtype))
    x = memory.PARAM(attrs=memory.ParamAttrs(1, (rows * columns,), dtype))
    place = math.ADD(math.MUL(row, const_index(columns)), column)
    folded = REDUCE(memory.LOAD(memory.INDEX(x, place)), column, attrs=ReduceAttrs(fold))
    return memory.SINK(memory.STORE(memory.INDEX(out, row), folded))


@pytest.mark.parametrize("fold", [Fold.MAX, Fold.MIN], ids=lambda fold: fold.name)
@pytest.mark.parametrize("dtype", [float32, float64], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("kind", ["llvm", "clang", "linear"])
def test_lanes_are_folded_by_the_instruction_too(fold: Fold, dtype: DType, kind: str) -> None:
    """One special value in each lane of zeros of the other sign, or of small numbers."""
    rows = [
        np.full(64, other) for other in (0.0, -0.0, -2.0, 2.0) for _ in SPECIAL for _ in range(64)
    ]
    x = np.array(rows, KINDS[dtype])
    for number, row in enumerate(x):
        row[number % 64] = SPECIAL[number // 64 % len(SPECIAL)]
    greater = fold is Fold.MAX
    expected = x[:, 0]
    for column in x.T[1:]:
        expected = wanted(math.MAXIMUM if greater else math.MINIMUM, expected, column)
    sink = fold_of_rows(fold, dtype, *x.shape)
    for level in ("x86-64-v3", "x86-64-v4"):
        lowered = lower_kernel(sink, target(level))
        folds = [node for node in lowered.linear.src if node.op is FOLD_LANES]
        assert all(node.dtype.is_bool for node in folds) == (level == "x86-64-v4")
        buffers = [bytes(len(x) * x.itemsize), x.tobytes()]
        if kind == "linear":
            arrays = [bytearray(buffer) for buffer in buffers]
            run_linear(lowered.linear, arrays, {})
            found = bytes(arrays[0])
        else:
            code = compile_to(kind, level, lowered)
            if not can_run(level):
                continue
            found = execute(lowered, code, Case(sink, buffers)).buffers[0]
        check(np.frombuffer(found, x.dtype), expected)


@pytest.mark.parametrize("place", [0, 17, 255, 1000])
def test_a_maximum_of_a_row_keeps_a_nan_wherever_it_is(place: int) -> None:
    x = np.linspace(-1, 1, 1001, dtype=np.float32)
    assert Tensor(x).max().item() == 1
    x[place] = np.nan
    assert np.isnan(Tensor(x).max().item())
    assert np.isnan(Tensor(x).min().item())
