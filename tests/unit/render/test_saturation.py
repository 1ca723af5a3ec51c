"""Casts of floats to integers: vectors saturate as scalars do, and stay vectors."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tilework.codegen.pipeline import lower_kernel
from tilework.dtypes import (
    DType,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from tilework.ir.build import cast, const_index
from tilework.ir.node import Node
from tilework.ir.ops import memory
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.render.llvm_ir import LlvmRenderer
from tilework.testing.kernels import Case, run_on_machine, target

EDGES = [0.0, -0.0, 0.9, -0.9, 127.0, 127.9, 128.0, -128.9, -129.0, 255.9, 256.0, -1.0, 32767.5]
FAR = [32768.0, -32768.9, -32769.0, 65535.9, 65536.0, 2.0**31, -(2.0**31), 1e30, -1e30]
WIDE = [2147483647.0, 2147483520.0, 2.0**32, 2.0**32 - 256, 2.0**63, 2.0**63 - 2.0**40, 2.0**64]
SPECIAL = [float("nan"), float("inf"), float("-inf")]
KINDS = [int8, uint8, int16, uint16, int32, uint32, int64, uint64]


def kernel(source: DType, result: DType, count: int) -> Node:
    at = RANGE(const_index(count), attrs=RangeAttrs(0))
    out = memory.PARAM(attrs=memory.ParamAttrs(0, (count,), result))
    x = memory.PARAM(attrs=memory.ParamAttrs(1, (count,), source))
    value = cast(memory.LOAD(memory.INDEX(x, at)), result)
    return memory.SINK(memory.STORE(memory.INDEX(out, at), value))


@pytest.mark.parametrize("result", KINDS, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("source", [float32, float64], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("level", ["x86-64", "x86-64-v3", "host"])
def test_vectors_of_floats_saturate_to_narrow_integers(
    source: DType, result: DType, level: str
) -> None:
    x = np.resize(np.array(EDGES + FAR + WIDE + SPECIAL), 203).astype(source.name)
    case = Case(kernel(source, result, x.size), [bytes(x.size * result.itemsize), x.tobytes()])
    found = np.frombuffer(run_on_machine(case, "llvm", level).buffers[0], result.name)
    limits = np.iinfo(result.name)
    wanted = [
        0 if value != value else min(max(_whole(value), limits.min), limits.max)
        for value in x.tolist()
    ]
    np.testing.assert_array_equal(found, np.array(wanted, result.name))


@pytest.mark.parametrize("result", KINDS, ids=lambda dtype: dtype.name)
def test_vectors_are_not_converted_lane_by_lane(result: DType) -> None:
    text = LlvmRenderer().render(lower_kernel(kernel(float32, result, 4096), target("host")))
    assert re.search(r"fpto[su]i <\d+ x float>", text)
    assert "sat" not in text


def _whole(value: float) -> int:
    return int(value) if np.isfinite(value) else (1 << 70 if value > 0 else -(1 << 70))
