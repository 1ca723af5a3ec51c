"""Exponentials that one instruction scales give the same bits as those that two products scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tilework.codegen.pipeline import lower_kernel
from tilework.dtypes import float32, float64
from tilework.ir.build import const_index
from tilework.ir.interpret import run_linear
from tilework.ir.node import Node
from tilework.ir.ops import math, memory
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.testing.kernels import Case, can_run, compile_to, execute, target

if TYPE_CHECKING:
    from tilework.dtypes import DType
    from tilework.ir.node import OpDef

DTYPES = {float32: np.float32, float64: np.float64}


def kernel(op: OpDef, dtype: DType, count: int) -> Node:
    at = RANGE(const_index(count), attrs=RangeAttrs(0))
    out, x = (memory.PARAM(attrs=memory.ParamAttrs(n, (count,), dtype)) for n in range(2))
    return memory.SINK(memory.STORE(memory.INDEX(out, at), op(memory.LOAD(memory.INDEX(x, at)))))


def arguments(dtype: DType, count: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    edge = 800.0 if dtype is float64 else 110.0
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e30, -1e30, edge, -edge]
    values = np.concatenate([special, rng.uniform(-edge, edge, count - len(special))])
    return values.astype(DTYPES[dtype])


def run(op: OpDef, dtype: DType, x: np.ndarray, level: str, kind: str = "llvm") -> bytes:
    sink = kernel(op, dtype, x.size)
    lowered = lower_kernel(sink, target(level))
    case = Case(sink, [bytes(x.nbytes), x.tobytes()])
    return execute(lowered, compile_to(kind, level, lowered), case).buffers[0]


@pytest.mark.parametrize("op", [math.EXP, math.EXP2], ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", [float32, float64], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("kind", ["llvm", "clang"])
def test_one_scaling_gives_the_bits_of_two(op: OpDef, dtype: DType, kind: str) -> None:
    level = "x86-64-v4"
    assert "scale_power" in target(level).native_ops
    assert "scale_power" not in target("x86-64-v3").native_ops
    x = arguments(dtype, 1 << 12)
    if not can_run(level):
        compile_to(kind, level, lower_kernel(kernel(op, dtype, x.size), target(level)))
        return
    assert run(op, dtype, x, level, kind) == run(op, dtype, x, "x86-64-v3")


@pytest.mark.parametrize("dtype", [float32, float64], ids=lambda dtype: dtype.name)
def test_the_interpreter_scales_as_the_instruction_does(dtype: DType) -> None:
    x = arguments(dtype, 64)
    lowered = lower_kernel(kernel(math.EXP, dtype, x.size), target("x86-64-v4"))
    assert any(node.op is math.SCALE_POWER for node in lowered.linear.src)
    buffers = [bytearray(x.nbytes), bytearray(x.tobytes())]
    run_linear(lowered.linear, buffers, {})
    assert bytes(buffers[0]) == run(math.EXP, dtype, x, "x86-64-v3")
