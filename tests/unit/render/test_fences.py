"""Transposed squares of registers: LLVM does not look through more than two of their shuffles."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tilework.codegen.pipeline import lower_kernel
from tilework.dtypes import DType, float16, float32, float64, int8, int32
from tilework.ir.build import const_index
from tilework.ir.node import Node
from tilework.ir.ops import math, memory
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.render.llvm_ir import LlvmRenderer
from tilework.target.known.cpu import aarch64_spec
from tilework.target.spec import TargetSpec
from tilework.testing.kernels import Case, run_on_machine, target
from tilework.toolchain import llvm

SIDE = 64


def transposed(dtype: DType, side: int = SIDE) -> Node:
    """The kernel of `out[i, j] = x[j, i]`."""
    i, j = (RANGE(const_index(side), attrs=RangeAttrs(number)) for number in range(2))
    out, x = (memory.PARAM(attrs=memory.ParamAttrs(slot, (side**2,), dtype)) for slot in range(2))
    row, column = math.MUL(i, const_index(side)), math.MUL(j, const_index(side))
    value = memory.LOAD(memory.INDEX(x, math.ADD(column, i)))
    return memory.SINK(memory.STORE(memory.INDEX(out, math.ADD(row, j)), value))


def text_for(dtype: DType, machine: TargetSpec) -> str:
    return LlvmRenderer().render(lower_kernel(transposed(dtype), machine))


def without_fences(text: str) -> str:
    """The same module, each fence a bitcast to its own type."""
    fence = re.compile(r"call (<\d+ x float>) @llvm\.arithmetic\.fence\.\w+\((<.*> %\w+)\)")
    return fence.sub(r"bitcast \2 to \1", text)


def instructions(text: str, machine: TargetSpec) -> int:
    lines = llvm.LlvmToolchain(machine).assembly(text).splitlines()
    return sum(line.startswith("\t") and not line.startswith("\t.") for line in lines)


@pytest.mark.parametrize("level", ["x86-64", "x86-64-v3", "host"])
@pytest.mark.parametrize("dtype", [float32, float64, float16, int32, int8], ids=str)
def test_squares_with_fences_are_transposed(dtype: DType, level: str) -> None:
    x = np.random.default_rng(3).integers(0, 256, SIDE**2 * dtype.itemsize, np.uint8)
    case = Case(transposed(dtype), [bytes(x.size), x.tobytes()])
    found = run_on_machine(case, "llvm", level).buffers[0]
    # Of bytes, not of numbers: a NaN keeps its payload.
    whole = x.view(f"V{dtype.itemsize}").reshape(SIDE, SIDE)
    assert found == whole.T.tobytes()


@pytest.mark.parametrize("dtype", [float32, int32], ids=str)
def test_a_fence_adds_no_instruction_and_takes_no_loop_as_computing(dtype: DType) -> None:
    machine = target("x86-64-v4")
    text = text_for(dtype, machine)
    plain = without_fences(text)
    assert "arithmetic.fence" in text
    assert "call <16 x float> @llvm.arithmetic.fence" not in plain
    assert llvm.only_moves(text)
    # Registers may be chosen otherwise, for a move more or less.
    assert abs(instructions(text, machine) - instructions(plain, machine)) <= 4


def test_other_machines_have_fences_too() -> None:
    assert len(llvm.LlvmToolchain(aarch64_spec()).compile(text_for(float32, aarch64_spec()))) > 0
