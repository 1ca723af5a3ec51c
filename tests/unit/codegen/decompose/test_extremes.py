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
from tilework.ir.ops.index import RANGE, RangeAttrs
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


@pytest.mark.parametrize("place", [0, 17, 255, 1000])
def test_a_maximum_of_a_row_keeps_a_nan_wherever_it_is(place: int) -> None:
    x = np.linspace(-1, 1, 1001, dtype=np.float32)
    assert Tensor(x).max().item() == 1
    x[place] = np.nan
    assert np.isnan(Tensor(x).max().item())
    assert np.isnan(Tensor(x).min().item())
