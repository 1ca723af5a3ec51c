"""Contractions in matrix registers: chosen, exact by the interpreter, and in the compiled text."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product as pairs
from typing import Any

import numpy as np
import pytest

from tilework import Tensor, dtypes, jit
from tilework.base.errors import PlanError
from tilework.codegen.analysis import analyse
from tilework.codegen.pipeline import lower_kernel
from tilework.codegen.plan.check import check
from tilework.codegen.plan.dot_products import ready_for_plans
from tilework.codegen.plan.plan import Plan
from tilework.codegen.plan.tilings import tilings
from tilework.codegen.predict import predict
from tilework.dtypes import DType, int8, int32, uint8
from tilework.ir.build import cast, const_index
from tilework.ir.interpret.linear import run_linear
from tilework.ir.node import Node, in_use
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs, Unit
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.tensor import REDUCE, Fold, ReduceAttrs
from tilework.ir.symbolic import simplify
from tilework.render.llvm_ir import LlvmRenderer
from tilework.target.known.cpu import aarch64_spec, x86_level_spec
from tilework.toolchain.llvm import LlvmToolchain

AMX = x86_level_spec("x86-64-v4", cores=2, extra=("avx512vnni", "amx-tile", "amx-int8"))
VNNI = x86_level_spec("x86-64-v4", cores=2, extra=("avx512vnni",))
ARM = aarch64_spec(("fp-armv8", "neon", "dotprod"), cores=2)
SIGNS = [(int8, int8), (uint8, int8), (int8, uint8), (uint8, uint8)]


def product(a: DType, b: DType, m: int, n: int, k: int, *, flipped: bool = False) -> Node:
    """The kernel of a product; with `flipped` the second matrix is stored with its rows along k."""
    i, j, p = (
        RANGE(const_index(size), attrs=RangeAttrs(number)) for number, size in enumerate((m, n, k))
    )
    x = PARAM(attrs=ParamAttrs(1, (m * k,), a))
    y = PARAM(attrs=ParamAttrs(2, (k * n,), b))
    left = LOAD(INDEX(x, simplify.add(simplify.scale(i, k), p)))
    place = (j, k, p) if flipped else (p, n, j)
    right = LOAD(INDEX(y, simplify.add(simplify.scale(place[0], place[1]), place[2])))
    terms = math.MUL(cast(left, int32), cast(right, int32))
    target = PARAM(attrs=ParamAttrs(0, (m * n,), int32))
    total = REDUCE(terms, p, attrs=ReduceAttrs(Fold.ADD))
    return SINK(STORE(INDEX(target, simplify.add(simplify.scale(i, n), j)), total))


def matrix_plans(kernel: Node) -> list[tuple[float, Plan]]:
    """The plans by matrix registers for a kernel, the best first."""
    with in_use():
        found = tilings(analyse(ready_for_plans(kernel, AMX)), AMX)
        return sorted((each for each in found if each[1].matrix), key=lambda each: each[0])


def numbers(dtype: DType, count: int, seed: int) -> np.ndarray[Any, Any]:
    kind = np.dtype(dtype.name)
    info = np.iinfo(kind)
    found = np.random.default_rng(seed).integers(info.min, info.max + 1, count).astype(kind)
    found[:: max(count // 7, 1)] = info.min
    return found


def interpreted(kernel: Node, plan: Plan | None, x: Any, y: Any, results: int) -> Any:
    """What the statements of a kernel compute, without any machine."""
    buffers = [bytearray(4 * results), bytearray(x.tobytes()), bytearray(y.tobytes())]
    assert run_linear(lower_kernel(kernel, AMX, plan).linear, buffers) == []
    return np.frombuffer(buffers[0], np.int32)


# --- the choice -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "name"),
    [(int8, int8, "tdpbssd"), (uint8, int8, "tdpbusd"), (int8, uint8, "tdpbsud"),
     (uint8, uint8, "tdpbuud")],
)  # fmt: skip
def test_bytes_of_either_sign_have_an_instruction(a: DType, b: DType, name: str) -> None:
    assert name in lower_kernel(product(a, b, 256, 256, 256), AMX).plan


def test_targets_without_matrix_registers_keep_their_vectors() -> None:
    kernel = product(int8, int8, 64, 64, 64)
    text = LlvmRenderer().render(lower_kernel(kernel, VNNI))
    assert "vpdpbusd" in text
    assert "tdpb" not in text
    assert "neon.sdot" in LlvmRenderer().render(lower_kernel(kernel, ARM))


def test_one_row_stays_with_vectors() -> None:
    assert "tdpb" not in lower_kernel(product(int8, int8, 1, 4096, 4096), AMX).plan


def test_words_that_lie_side_by_side_are_read_as_words() -> None:
    kernel = ready_for_plans(product(int8, int8, 64, 64, 64, flipped=True), AMX)
    assert {load.dtype for load in analyse(kernel).loads} == {int32}


def test_memory_that_is_read_in_both_ways_is_read_by_bytes() -> None:
    kernel = product(int8, int8, 64, 64, 64)
    shared = PARAM(attrs=ParamAttrs(1, (64 * 64,), int8))
    second = PARAM(attrs=ParamAttrs(2, (64 * 64,), int8))
    (square,) = simplify.substitute([kernel], {second: shared})
    loads = analyse(ready_for_plans(square, AMX)).loads
    assert {load.dtype for load in loads} == {int8}


# --- the numbers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("a", "b"), SIGNS)
@pytest.mark.parametrize("flipped", [False, True])
def test_statements_in_matrix_registers_are_exact(a: DType, b: DType, flipped: bool) -> None:
    m, n, k = 35, 40, 80
    kernel = product(a, b, m, n, k, flipped=flipped)
    x, y = numbers(a, m * k, 0), numbers(b, k * n, 1)
    right = y.reshape(n, k).T if flipped else y.reshape(k, n)
    wanted = x.reshape(m, k).astype(np.int32) @ right.astype(np.int32)
    _, plan = matrix_plans(kernel)[0]
    found = interpreted(kernel, plan, x, y, m * n)
    np.testing.assert_array_equal(found.reshape(m, n), wanted)


def test_every_shape_of_tile_and_order_of_loops_is_exact() -> None:
    m, n, k = 33, 70, 24
    kernel = product(uint8, int8, m, n, k)
    x, y = numbers(uint8, m * k, 2), numbers(int8, k * n, 3)
    wanted = x.reshape(m, k).astype(np.int32) @ y.reshape(k, n).astype(np.int32)
    plans = {(p.splits, p.nest, p.swapped, len(p.staged)): p for _, p in matrix_plans(kernel)}
    assert len({plan.splits for plan in plans.values()}) > 5
    with in_use():
        ready = analyse(ready_for_plans(kernel, AMX))
        for plan in plans.values():
            check(plan, ready, AMX)
    for plan in list(plans.values())[:: max(len(plans) // 8, 1)]:
        found = interpreted(kernel, plan, x, y, m * n)
        np.testing.assert_array_equal(found.reshape(m, n), wanted)


@pytest.mark.parametrize(("m", "n"), [(16, 16), (17, 16), (3, 100), (130, 9), (31, 33)])
def test_edges_reach_back_or_have_smaller_registers(m: int, n: int) -> None:
    kernel, k = product(int8, int8, m, n, 68), 68
    x, y = numbers(int8, m * k, 4), numbers(int8, k * n, 5)
    wanted = x.reshape(m, k).astype(np.int32) @ y.reshape(k, n).astype(np.int32)
    found = interpreted(kernel, None, x, y, m * n)
    np.testing.assert_array_equal(found.reshape(m, n), wanted)


# --- the text -------------------------------------------------------------------------------------


def test_compiled_text_configures_multiplies_and_releases() -> None:
    text = LlvmRenderer().render(lower_kernel(product(int8, int8, 256, 256, 256), AMX))
    assembly = LlvmToolchain(AMX).assembly(text)
    for instruction in ("ldtilecfg", "tilezero", "tileloadd", "tdpbssd", "tilestored"):
        assert instruction in assembly
    assert assembly.index("tilestored") < assembly.index("tilerelease")


def test_sums_and_factors_of_every_shape_have_registers_of_their_own() -> None:
    for _, plan in matrix_plans(product(int8, int8, 128, 128, 64)):
        text = LlvmRenderer().render(lower_kernel(product(int8, int8, 128, 128, 64), AMX, plan))
        assert "tdpbssd" in text


def test_plans_for_more_registers_than_there_are_are_refused() -> None:
    kernel = product(int8, int8, 256, 256, 256)
    _, plan = next(each for each in matrix_plans(kernel) if each[1].splits[0].tile_size == 32)
    first = plan.splits[0]
    wide = replace(first, tile=(replace(first.tile[0], size=4), *first.tile[1:]))
    many = replace(plan, splits=(wide, *plan.splits[1:]))
    with in_use(), pytest.raises(PlanError, match="more matrix registers"):
        check(many, analyse(ready_for_plans(kernel, AMX)), AMX)


def test_results_of_matrix_registers_go_through_memory() -> None:
    kernel = product(int8, int8, 256, 256, 256)
    _, plan = matrix_plans(kernel)[0]
    with in_use(), pytest.raises(PlanError, match="go through memory"):
        check(replace(plan, rolled=False), analyse(ready_for_plans(kernel, AMX)), AMX)


# --- on this machine, whatever it has -------------------------------------------------------------


@pytest.mark.parametrize(("a", "b"), SIGNS)
def test_whole_products_are_exact_with_what_follows_them(a: DType, b: DType) -> None:
    x, y = numbers(a, 100 * 256, 6).reshape(100, 256), numbers(b, 256 * 96, 7).reshape(256, 96)
    bias = np.arange(96, dtype=np.int32)
    weight, shift = Tensor(y).realize(), Tensor(bias).realize()
    step: Callable[[Tensor], Tensor] = jit(
        lambda x: (x.matmul(weight, dtype=dtypes.int32) + shift).relu().cast(dtypes.float32) * 0.5
    )
    wanted = x.astype(np.int32) @ y.astype(np.int32) + bias
    for _ in range(3):
        found = step(Tensor(x)).numpy()
        np.testing.assert_array_equal(found, np.maximum(wanted, 0).astype(np.float32) * 0.5)


@pytest.mark.parametrize(("channels", "padding"), list(pairs((16, 64), (0, 1))))
def test_convolutions_of_bytes_are_exact(channels: int, padding: int) -> None:
    x = numbers(int8, channels * 300, 8).reshape(1, channels, 15, 20)
    w = numbers(int8, 32 * channels * 9, 9).reshape(32, channels, 3, 3)
    found = Tensor(x).cast(int32).conv2d(Tensor(w).cast(int32), padding=padding).numpy()
    edges = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(x.astype(np.int64), edges), (3, 3), axis=(2, 3)
    )
    wanted = np.einsum("bchwij,ocij->bohw", windows, w.astype(np.int64))
    np.testing.assert_array_equal(found, wanted)


def cycles(plan: Plan, size: int = 256) -> float:
    kernel = ready_for_plans(product(uint8, int8, size, size, size), AMX)
    return predict(lower_kernel(kernel, AMX, plan), AMX)


def test_predictions_know_what_matrix_registers_take() -> None:
    kernel = product(uint8, int8, 256, 256, 256)
    with_matrices = matrix_plans(kernel)
    vectors = min(
        (
            each
            for each in tilings(analyse(ready_for_plans(kernel, AMX)), AMX)
            if not each[1].matrix
        ),
        key=lambda each: each[0],
    )
    assert cycles(with_matrices[0][1]) < cycles(vectors[1]) / 2
    # A step of a product takes at least the cycles of its instruction: 4 x 16 for 32 x 32 x 64.
    steps = 256**3 / (32 * 32 * 64) / AMX.cores
    assert cycles(with_matrices[0][1]) >= steps * 4 * 16
    one_by_one = [plan for _, plan in with_matrices if plan_tile(plan) == 1]
    assert cycles(with_matrices[0][1]) < cycles(one_by_one[0])


def plan_tile(plan: Plan) -> int:
    """How many registers of sums a tile has."""
    registers = 1
    for split in plan.splits:
        for part in split.tile:
            registers *= part.size if part.unit is Unit.UNROLL else 1
    return registers
