"""The C renderer: its text, its refusals, and that gates keep memory untouched."""

import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from tilework import dtypes
from tilework.base.errors import RenderError, VerifyError
from tilework.codegen.pipeline import lower_kernel
from tilework.dtypes import DType, float32
from tilework.ir.build import const, const_bits, const_index
from tilework.ir.lowered import LoweredKernel
from tilework.ir.node import Node
from tilework.ir.ops import math
from tilework.ir.ops.control import END, ENDIF, IF
from tilework.ir.ops.index import RANGE, RangeAttrs, Unit
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.program import LINEAR
from tilework.ir.symbolic import simplify
from tilework.render.c_family.clang import ClangRenderer
from tilework.render.c_family.dialect import literal
from tilework.target.known.cpu import x86_level_spec
from tilework.testing.kernels import Case, can_run, run_on_machine

TARGET = x86_level_spec("x86-64-v3", cores=2)
KINDS = ["llvm", pytest.param("clang", marks=pytest.mark.needs("program:cc"))]
LEVELS = [level for level in ("x86-64", "x86-64-v3", "host") if can_run(level)]


def address(slot: int, count: int, offset: Node, dtype: DType = float32) -> Node:
    return INDEX(PARAM(attrs=ParamAttrs(slot, (count,), dtype)), offset)


def padded_copy(size: int, dtype: DType = float32) -> Node:
    """out[i] = x[i - 3] where there is one, else 0: the first and last loads lie outside."""
    i = RANGE(const_index(size + 6), attrs=RangeAttrs(0))
    low, high = const_index(3), const_index(size + 3)
    gate = simplify.both(simplify.at_least(i, low), simplify.less(i, high))
    x = LOAD(address(1, size, simplify.sub(i, low), dtype), gate)
    return SINK(STORE(address(0, size + 6, i, dtype), x))


def gated_store(size: int, dtype: DType = float32) -> Node:
    """x[i - 3] = y[i] where there is such an element of x."""
    i = RANGE(const_index(size + 6), attrs=RangeAttrs(0))
    low, high = const_index(3), const_index(size + 3)
    gate = simplify.both(simplify.at_least(i, low), simplify.less(i, high))
    y = LOAD(address(1, size + 6, i, dtype))
    return SINK(STORE(address(0, size, simplify.sub(i, low), dtype), y, gate))


def lowered(*statements: Node) -> LoweredKernel:
    kernel = lower_kernel(padded_copy(8), TARGET)
    return replace(kernel, linear=LINEAR(*statements))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("at_start", [False, True])
@pytest.mark.parametrize("size", [1, 5, 16, 33])
@pytest.mark.parametrize("dtype", [dtypes.bool_, dtypes.uint8, dtypes.float16, float32], ids=repr)
def test_CST_03_a_gated_load_does_not_touch_memory(
    dtype: DType, size: int, at_start: bool, level: str, kind: str
) -> None:
    data = b"\1" * (size * dtype.itemsize)
    blank = bytes((size + 6) * dtype.itemsize)
    outcome = run_on_machine(
        Case(padded_copy(size, dtype), [blank, data]), kind, level, at_start=at_start
    )
    edge = bytes(3 * dtype.itemsize)
    assert outcome.buffers[0] == edge + data + edge


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("at_start", [False, True])
@pytest.mark.parametrize("size", [1, 5, 16, 33])
def test_CST_03_a_gated_store_does_not_touch_memory(
    size: int, at_start: bool, level: str, kind: str
) -> None:
    data = bytes(range((size + 6) * 4 % 251)) * 9
    data = data[: (size + 6) * 4]
    case = Case(gated_store(size), [bytes(size * 4), data])
    outcome = run_on_machine(case, kind, level, at_start=at_start)
    assert outcome.buffers[0] == data[12 : 12 + size * 4]


@pytest.mark.parametrize("offset", [-1, 8])
def test_CST_03_the_guard_pages_catch_an_access_outside(offset: int) -> None:
    code = f"""
from tilework.ir.build import const, const_index
from tilework.ir.ops.memory import INDEX, PARAM, SINK, STORE, ParamAttrs
from tilework.dtypes import float32
from tilework.testing.kernels import Case, run_on_machine
at = INDEX(PARAM(attrs=ParamAttrs(0, (8,), float32)), const_index({offset}))
sink = SINK(STORE(at, const(1, float32)))
run_on_machine(Case(sink, [bytes(32)]), "llvm", at_start={offset < 0})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == -11, done.stderr.decode()


@pytest.mark.parametrize("make", [padded_copy, gated_store])
def test_every_gate_stands_in_the_text(make: object) -> None:
    kernel = lower_kernel(make(33), TARGET)  # type: ignore[operator]
    text = ClangRenderer().render(kernel)
    body = text[text.index(f"void {kernel.name}") :]
    gates = [
        node
        for node in kernel.linear.src
        if (node.op is LOAD and len(node.src) > 1) or (node.op is STORE and len(node.src) > 2)
    ]
    assert gates
    assert len(re.findall(r"masked_load_|masked_store_| \? | if \(|^\s+if \(", body)) >= len(gates)


def test_CST_02_a_node_without_text_is_refused() -> None:
    x = const(2, float32)
    with pytest.raises(RenderError, match="ClangRenderer cannot render pow") as info:
        ClangRenderer().render(lowered(math.POW(x, x)))
    assert info.value.got == f"pow({x.type}, {x.type}) of type {x.type}"


def test_CST_02_an_undecomposed_function_is_refused() -> None:
    with pytest.raises(RenderError, match="cannot render exp"):
        ClangRenderer().render(lowered(math.EXP(const(1, float32))))


def test_a_loop_over_lanes_is_refused() -> None:
    loop = RANGE(const_index(4), attrs=RangeAttrs(0, Unit.LANE))
    with pytest.raises(VerifyError, match="not legal in stage linear"):
        ClangRenderer().render(lowered(loop, END(loop)))


@pytest.mark.parametrize("name", ['k"', "k\n", "*/", "k;", "1k", ""])
def test_CST_17_a_name_that_is_no_identifier_is_refused(name: str) -> None:
    with pytest.raises(RenderError, match="no identifier"):
        ClangRenderer().render(replace(lowered(), name=name))


def test_a_conditional_block_becomes_an_if() -> None:
    block = IF(const(True, dtypes.bool_))
    text = ClangRenderer().render(lowered(block, ENDIF(block)))
    assert re.search(r"if \(1\) \{\s*\}", text)


@pytest.mark.parametrize(
    ("bits", "dtype", "text"),
    [
        (0x8000_0000_0000_0000, dtypes.int64, "((i64)(-9223372036854775807ll - 1))"),
        (0x80, dtypes.int8, "((i8)(-127ll - 1))"),
        (0xFFFF_FFFF_FFFF_FFFF, dtypes.uint64, "((u64)18446744073709551615ull)"),
        (0x8000_0000, float32, "(-0x0.0p+0f)"),
        (0x3DCC_CCCD, float32, "(0x1.99999a0000000p-4f)"),
        (0x7F80_0000, float32, "__builtin_inff()"),
        (0xFFC0_0001, float32, "bitcast_u32_f32(0xffc00001ull)"),
        (1, dtypes.float64, "(0x0.0000000000001p-1022)"),
        (0x7E00, dtypes.float16, "((u16)32256ull)"),
    ],
)
def test_literals_keep_every_bit(bits: int, dtype: DType, text: str) -> None:
    assert literal(bits, dtype) == text


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [float32, dtypes.float64], ids=repr)
@pytest.mark.parametrize(
    "value", ["nan", "-nan", "inf", "-inf", "-0.0", "1e-45", "5e-324", "0.1", "3.4028235e38"]
)
def test_a_float_literal_reaches_memory(value: str, dtype: DType, kind: str) -> None:
    wanted = np.array(float(value.lstrip("-")), dtype.name)
    wanted = np.negative(wanted) if value.startswith("-") else wanted
    bits = int(wanted.view(f"u{dtype.itemsize}"))
    sink = SINK(STORE(address(0, 1, const_index(0), dtype), const_bits(bits, dtype)))
    outcome = run_on_machine(Case(sink, [bytes(dtype.itemsize)]), kind)
    assert outcome.buffers[0] == wanted.tobytes()


def test_the_text_does_not_depend_on_the_hash_seed() -> None:
    code = """
from tilework.codegen.pipeline import lower_kernel
from tilework.dtypes import float32
from tilework.ir.build import const_index
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.tensor import REDUCE, Fold, ReduceAttrs
from tilework.ir.symbolic import simplify
from tilework.render.c_family.clang import ClangRenderer
from tilework.render.llvm_ir import LlvmRenderer
from tilework.target.known.cpu import x86_level_spec
def at(slot, i, j):
    offset = simplify.add(simplify.scale(i, 40), j)
    return INDEX(PARAM(attrs=ParamAttrs(slot, (1600,), float32)), offset)
i, j, k = (RANGE(const_index(40), attrs=RangeAttrs(n)) for n in range(3))
pair = math.MUL(LOAD(at(1, i, k)), LOAD(at(2, k, j)))
total = REDUCE(pair, k, attrs=ReduceAttrs(Fold.ADD))
sink = SINK(STORE(at(0, i, j), math.EXP(math.ADD(total, LOAD(at(3, i, j))))))
kernel = lower_kernel(sink, x86_level_spec("x86-64-v3", cores=2))
print(ClangRenderer().render(kernel), LlvmRenderer().render(kernel))
"""
    texts = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            check=True,
            env={"PYTHONHASHSEED": str(seed)},
        ).stdout
        for seed in range(3)
    }
    assert len(texts) == 1
