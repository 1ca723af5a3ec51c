"""Folds down the columns of large arrays: which kernels they are, and what they give."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tilework import Tensor
from tilework.codegen.analysis import analyse
from tilework.codegen.cascade.columns import find_columns
from tilework.codegen.passes.normalise import normalise_ranges
from tilework.codegen.pipeline import lower_kernel
from tilework.dtypes import DType, float16, float32, float64
from tilework.ir.interpret import run_linear
from tilework.ir.node import Node
from tilework.ir.ops import math, memory, tensor
from tilework.ir.ops.tensor import Fold
from tilework.schedule.pipeline import build_schedule
from tilework.target.spec import TargetSpec
from tilework.testing.kernels import Case, compile_to, execute, target


def with_second_cache(size_bytes: int, level: str = "host") -> TargetSpec:
    """A machine with another second cache."""
    known = target(level)
    memories = tuple(
        [replace(m, size_bytes=size_bytes) if m.name == "L2" else m for m in known.memories]
    )
    return replace(known, memories=memories)


def small_caches(level: str = "host") -> TargetSpec:
    """A machine whose second cache holds next to nothing, so that small arrays are large."""
    return with_second_cache(1 << 10, level)


def param(slot: int, *shape: int, dtype: DType = float32) -> Node:
    return memory.PARAM(attrs=memory.ParamAttrs(slot, shape, dtype, "CPU"))


def fold(x: Node, axis: int, kind: Fold = Fold.ADD) -> Node:
    return tensor.REDUCE(x, attrs=tensor.ReduceAttrs(kind, (axis,)))


def kernel_of(*outputs: Node) -> Node:
    calls = build_schedule(memory.SINK(*outputs)).linear.src
    assert len(calls) == 1
    return calls[0].src[0]


def tile_of(sink: Node, machine: TargetSpec) -> tuple[int, int] | None:
    found = find_columns(analyse(normalise_ranges(sink)), machine)
    return None if found is None else (found[1].rows, found[1].block)


def on_machine(sink: Node, outputs: list[np.ndarray], inputs: list[np.ndarray]) -> list[np.ndarray]:
    lowered = lower_kernel(sink, small_caches())
    assert lowered.plan.startswith("cascade in"), lowered.plan
    case = Case(sink, [array.tobytes() for array in (*outputs, *inputs)])
    code = compile_to("llvm", "host", lowered)
    whole = execute(lowered, code, case).buffers
    assert execute(lowered, code, case, split_tasks=True).buffers == whole
    return [
        np.frombuffer(buffer, array.dtype).reshape(array.shape)
        for buffer, array in zip(whole, outputs, strict=False)
    ]


def in_blocks(x: np.ndarray) -> np.ndarray:
    """The sum over axis 0 in the stated order: (((0 + block 0) + block 1) + ...), by eights."""
    total = np.zeros(x.shape[1:], x.dtype)
    for start in range(0, len(x), 8):
        block = np.zeros(x.shape[1:], x.dtype)
        for row in x[start : start + 8]:
            block = block + row
        total = total + block
    return total


@pytest.mark.parametrize("rows", [32, 33, 47, 64])
@pytest.mark.parametrize("columns", [512, 700, 1024, 2500])
def test_sums_down_columns_have_the_stated_order(rows: int, columns: int) -> None:
    x = np.random.default_rng(rows).standard_normal((rows, columns)).astype(np.float32)
    (got,) = on_machine(
        kernel_of(fold(param(0, rows, columns), 0)), [np.zeros(columns, np.float32)], [x]
    )
    np.testing.assert_array_equal(got, in_blocks(x))


@pytest.mark.parametrize(("kind", "reference"), [(Fold.MAX, np.max), (Fold.MUL, np.prod)])
@pytest.mark.parametrize("dtype", [float32, float64])
def test_other_folds_and_outer_axes(kind: Fold, reference: object, dtype: DType) -> None:
    numpy_dtype = np.float64 if dtype is float64 else np.float32
    x = np.random.default_rng(1).uniform(0.9, 1.1, (3, 40, 600)).astype(numpy_dtype)
    x[1, 7, 5], x[2, 0, 599], x[0, 39, 0] = np.nan, np.inf, -0.0
    sink = kernel_of(fold(param(0, 3, 40, 600, dtype=dtype), 1, kind))
    (got,) = on_machine(sink, [np.zeros((3, 600), numpy_dtype)], [x])
    assert callable(reference)
    np.testing.assert_allclose(got, reference(x, axis=1), rtol=1e-5)


def test_several_folds_of_one_array_share_a_pass() -> None:
    x = np.random.default_rng(2).standard_normal((40, 1024)).astype(np.float32)
    array = param(0, 40, 1024)
    ranged = math.SUB(fold(array, 0, Fold.MAX), fold(math.MUL(array, array), 0))
    (got,) = on_machine(kernel_of(ranged), [np.zeros(1024, np.float32)], [x])
    # Products and sums may be one instruction.
    np.testing.assert_allclose(got, x.max(0) - in_blocks(x * x), rtol=1e-6)


def test_small_floats_are_added_up_wide() -> None:
    x = np.random.default_rng(3).uniform(0, 1, (200, 512)).astype(np.float16)
    wide = math.CAST(param(0, 200, 512, dtype=float16), attrs=math.CastAttrs(float32))
    (got,) = on_machine(kernel_of(fold(wide, 0)), [np.zeros(512, np.float32)], [x])
    np.testing.assert_allclose(got, x.astype(np.float64).sum(0), rtol=1e-6)


def test_a_row_times_a_matrix_goes_down_its_columns() -> None:
    rng = np.random.default_rng(4)
    row, matrix = (rng.standard_normal(shape).astype(np.float32) for shape in ((96,), (96, 768)))
    spread = tensor.EXPAND(
        tensor.RESHAPE(param(0, 96), attrs=tensor.ShapeAttrs((96, 1))),
        attrs=tensor.ShapeAttrs((96, 768)),
    )
    sink = kernel_of(fold(math.MUL(spread, param(1, 96, 768)), 0))
    (got,) = on_machine(sink, [np.zeros(768, np.float32)], [row, matrix])
    np.testing.assert_allclose(got, row.astype(np.float64) @ matrix, rtol=1e-4, atol=1e-5)


def test_the_interpreter_runs_the_same_statements() -> None:
    x = np.random.default_rng(5).standard_normal((33, 520)).astype(np.float32)
    lowered = lower_kernel(kernel_of(fold(param(0, 33, 520), 0)), small_caches("x86-64-v3"))
    buffers = [bytearray(4 * 520), bytearray(x.tobytes())]
    run_linear(lowered.linear, buffers, {})
    np.testing.assert_array_equal(np.frombuffer(buffers[0], np.float32), in_blocks(x))


def test_rows_and_short_columns_are_left_to_plain_loops() -> None:
    machine = small_caches()
    assert tile_of(kernel_of(fold(param(0, 64, 2048), 0)), machine) is not None
    assert tile_of(kernel_of(fold(param(0, 64, 2048), 1)), machine) is None
    assert tile_of(kernel_of(fold(param(0, 16, 2048), 0)), machine) is None
    assert tile_of(kernel_of(fold(param(0, 2048, 256), 0)), machine) is None
    turned = tensor.PERMUTE(param(0, 2048, 64), attrs=tensor.AxesAttrs((1, 0)))
    assert tile_of(kernel_of(fold(turned, 0)), machine) is None


@pytest.mark.parametrize("kind", [Fold.ADD, Fold.MAX])
def test_products_of_matrices_are_left_to_their_tiles(kind: Fold) -> None:
    """The second factor is read again for each row of the first."""
    rows, depth, columns = 64, 512, 1024
    left = tensor.RESHAPE(param(0, rows, depth), attrs=tensor.ShapeAttrs((rows, depth, 1)))
    right = tensor.RESHAPE(param(1, depth, columns), attrs=tensor.ShapeAttrs((1, depth, columns)))
    shape = tensor.ShapeAttrs((rows, depth, columns))
    both = math.MUL(tensor.EXPAND(left, attrs=shape), tensor.EXPAND(right, attrs=shape))
    assert tile_of(kernel_of(fold(both, 1, kind)), small_caches()) is None


def test_arrays_that_a_cache_holds_are_left_to_plain_loops() -> None:
    machine = with_second_cache(1 << 20)
    assert tile_of(kernel_of(fold(param(0, 1024, 2040), 0)), machine) is None
    assert tile_of(kernel_of(fold(param(0, 1024, 2048), 0)), machine) is not None


def test_the_block_that_orders_a_sum_depends_on_no_machine() -> None:
    sink = kernel_of(fold(param(0, 4096, 8192), 0))
    machines = [
        with_second_cache(size_bytes, level)
        for level in ("x86-64-v2", "x86-64-v3")
        for size_bytes in (1 << 18, 1 << 21)
    ]
    found = [tile_of(sink, machine) for machine in machines]
    assert {tile[1] for tile in found if tile is not None} == {8}
    assert None not in found


def test_sums_of_a_large_tensor_down_its_columns_are_right() -> None:
    x = np.random.default_rng(6).standard_normal((2100, 2048)).astype(np.float32)
    x[5, 7] = np.nan
    got = Tensor(x).sum(0).numpy()
    wanted = x.astype(np.float64).sum(0)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-4)
