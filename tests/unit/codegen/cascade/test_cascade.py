"""Cascades: what is kept of a row, phases, blocks, masks; against the interpreter and NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tilework.codegen.analysis import analyse
from tilework.codegen.cascade.find import Cascade, find_cascade
from tilework.codegen.cascade.live import find_mask
from tilework.codegen.cascade.tile import choose_tile
from tilework.codegen.passes.normalise import normalise_ranges
from tilework.codegen.pipeline import lower_kernel
from tilework.dtypes import float32
from tilework.dtypes import int32 as INT
from tilework.ir.build import const
from tilework.ir.interpret import run_kernel, run_linear
from tilework.ir.node import Node
from tilework.ir.ops import math, memory, tensor
from tilework.ir.ops.control import END
from tilework.ir.ops.index import RANGE
from tilework.ir.ops.tensor import Fold
from tilework.ir.rewrite import rewrite
from tilework.ir.rules import SIMPLIFY
from tilework.schedule.pipeline import build_schedule
from tilework.target.known.cpu import x86_level_spec
from tilework.testing.kernels import Case, compile_to, execute, target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.target.spec import TargetSpec

LOWEST = float("-inf")


def param(slot: int, *shape: int) -> Node:
    return memory.PARAM(attrs=memory.ParamAttrs(slot, shape, float32, "CPU"))


def spread(x: Node, *shape: int) -> Node:
    return tensor.EXPAND(x, attrs=tensor.ShapeAttrs(shape))


def folded(x: Node, fold: Fold = Fold.ADD) -> Node:
    """A fold along the last axis, kept as an axis of one element and repeated."""
    axis, shape = len(x.shape) - 1, x.shape
    small = tensor.REDUCE(x, attrs=tensor.ReduceAttrs(fold, (axis,)))
    kept = tensor.RESHAPE(small, attrs=tensor.ShapeAttrs((*shape[:-1], 1)))
    return spread(kept, *shape)


def softmax(x: Node) -> Node:
    raised = math.EXP(math.SUB(x, folded(x, Fold.MAX)))
    return math.FDIV(raised, folded(raised))


def product(a: Node, b: Node) -> Node:
    """a (h, m, k) times b (h, n, k)."""
    (h, m, k), n = a.shape, b.shape[1]
    left = tensor.RESHAPE(a, attrs=tensor.ShapeAttrs((h, m, 1, k)))
    right = tensor.RESHAPE(b, attrs=tensor.ShapeAttrs((h, 1, n, k)))
    both = math.MUL(spread(left, h, m, n, k), spread(right, h, m, n, k))
    return tensor.REDUCE(both, attrs=tensor.ReduceAttrs(Fold.ADD, (3,)))


def position(shape: tuple[int, ...], axis: int) -> Node:
    return tensor.IOTA(attrs=tensor.IotaAttrs(shape, axis, dtype=INT))


def attention(inputs: Sequence[Node], mask: str = "") -> Node:
    q, k, v = inputs
    scores = product(q, k)
    scores = math.MUL(scores, const(q.shape[-1] ** -0.5, scores.dtype, scores.shape))
    if mask:
        row, column = position(scores.shape, 1), position(scores.shape, 2)
        lowest = const(LOWEST, scores.dtype, scores.shape)
        seen = {
            "past": lambda: math.WHERE(math.LE(column, row), scores, lowest),
            "hidden": lambda: math.WHERE(math.LT(row, column), lowest, scores),
            "future": lambda: math.WHERE(math.LE(row, column), scores, lowest),
            "late": lambda: math.WHERE(
                math.LT(math.ADD(column, const(20, INT, scores.shape)), row), scores, lowest
            ),
        }
        scores = seen[mask]()
    turned = tensor.PERMUTE(v, attrs=tensor.AxesAttrs((0, 2, 1)))
    return product(softmax(scores), turned)


def seen_by(mask: str, rows: int, columns: int) -> np.ndarray:
    row, column = np.arange(rows)[:, None], np.arange(columns)[None]
    return {
        "": row >= 0 * column,
        "past": column <= row,
        "hidden": column <= row,
        "future": row <= column,
        "late": column + 20 < row,
    }[mask]


def exact(inputs: Sequence[np.ndarray], mask: str = "") -> np.ndarray:
    q, k, v = (array.astype(np.float64) for array in inputs)
    with np.errstate(all="ignore"):
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        scores = np.where(seen_by(mask, *scores.shape[-2:]), scores, LOWEST)
        raised = np.exp(scores - scores.max(-1, keepdims=True))
        result: np.ndarray = raised / raised.sum(-1, keepdims=True) @ v
        return result


def kernel_of(*outputs: Node) -> Node:
    """The one kernel that computes `outputs`."""
    calls = build_schedule(memory.SINK(*outputs)).linear.src
    assert len(calls) == 1
    return calls[0].src[0]


def cascade_of(sink: Node) -> Cascade | None:
    return find_cascade(analyse(normalise_ranges(rewrite(sink, SIMPLIFY))))


def arrays(*shapes: tuple[int, ...], seed: int = 0, scale: float = 1.0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal(shape) * scale).astype(np.float32) for shape in shapes]


def on_machine(
    sink: Node,
    shape: tuple[int, ...],
    inputs: list[np.ndarray],
    level: str = "host",
    kind: str = "llvm",
) -> np.ndarray:
    """What the kernel gives on this machine; every task is launched by itself."""
    output = np.zeros(shape, inputs[0].dtype)
    case = Case(sink, [output.tobytes(), *(array.tobytes() for array in inputs)])
    lowered = lower_kernel(sink, target(level))
    code = compile_to(kind, level, lowered)
    whole = execute(lowered, code, case).buffers[0]
    assert execute(lowered, code, case, split_tasks=True).buffers[0] == whole
    return np.frombuffer(whole, output.dtype).reshape(shape)


def same(got: np.ndarray, wanted: np.ndarray, within: float) -> None:
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    np.testing.assert_array_equal(np.isposinf(got), np.isposinf(wanted))
    np.testing.assert_array_equal(np.isneginf(got), np.isneginf(wanted))
    finite = np.isfinite(wanted)
    np.testing.assert_allclose(got[finite], wanted[finite], rtol=within, atol=within)


# ---- what is kept


def test_softmax_keeps_its_maximum_its_sum_and_what_exp_gives() -> None:
    found = cascade_of(kernel_of(softmax(param(0, 64, 256))))
    assert found is not None
    assert [node.op.name for node in found.kept] == ["reduce", "exp", "reduce"]
    assert found.key is None


def test_cheap_values_of_a_row_are_computed_again() -> None:
    x = param(0, 64, 256)
    centred = math.SUB(x, folded(x))
    assert cascade_of(kernel_of(math.MUL(centred, folded(math.MUL(centred, centred))))) is None


def test_attention_keeps_scores_and_weights_along_one_range() -> None:
    found = cascade_of(kernel_of(attention([param(n, 4, 64, 32) for n in range(3)])))
    assert found is not None
    assert found.key is not None
    assert len(found.lasts) == 1
    assert [node.op.name for node in found.kept] == ["reduce", "reduce", "exp", "reduce", "fdiv"]


def test_rows_of_attention_are_cut_into_vectors_and_keys_into_blocks() -> None:
    found = cascade_of(kernel_of(attention([param(n, 4, 256, 64) for n in range(3)])))
    assert found is not None
    tile = choose_tile(found, target("x86-64-v3"))
    assert tile.rows % 8 == 0
    assert 256 % tile.block == 0
    assert tile.count == 4 * 256 // tile.rows


@pytest.mark.parametrize("mask", ["past", "hidden", "future", "late"])
def test_a_mask_of_positions_is_found(mask: str) -> None:
    sink = kernel_of(attention([param(n, 2, 64, 32) for n in range(3)], mask))
    found = cascade_of(sink)
    assert found is not None
    assert find_mask(found) is not None


def test_without_a_mask_none_is_found() -> None:
    found = cascade_of(kernel_of(attention([param(n, 2, 64, 32) for n in range(3)])))
    assert found is not None
    assert find_mask(found) is None


# ---- values


@pytest.mark.parametrize("shape", [(40, 64), (33, 100), (64, 17), (3, 20, 48)])
def test_softmax_in_phases_is_right(shape: tuple[int, ...]) -> None:
    (x,) = arrays(shape, scale=4.0)
    got = on_machine(kernel_of(softmax(param(0, *shape))), shape, [x])
    raised = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    same(got, raised / raised.sum(-1, keepdims=True), 3e-6)


@pytest.mark.parametrize("mask", ["", "past", "future", "late"])
@pytest.mark.parametrize(
    ("rows", "keys", "depth", "width"),
    [
        (64, 64, 16, 16),
        (32, 257, 4, 8),
        (37, 37, 8, 8),
        (96, 200, 16, 24),
        (130, 67, 8, 40),
        (16, 16, 4, 3),
        (32, 257, 4, 4),
    ],
)
def test_attention_in_phases_is_right(
    mask: str, rows: int, keys: int, depth: int, width: int
) -> None:
    shapes = ((2, rows, depth), (2, keys, depth), (2, keys, width))
    sink = kernel_of(attention([param(n, *shape) for n, shape in enumerate(shapes)], mask))
    inputs = arrays(*shapes)
    got = on_machine(sink, (2, rows, width), inputs)
    same(got, exact(inputs, mask), 3e-6)


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3"])
def test_other_processors_get_the_same_phases(level: str) -> None:
    shapes = ((1, 70, 16), (1, 70, 16), (1, 70, 16))
    sink = kernel_of(attention([param(n, *shape) for n, shape in enumerate(shapes)], "past"))
    inputs = arrays(*shapes)
    same(on_machine(sink, (1, 70, 16), inputs, level), exact(inputs, "past"), 3e-6)


def test_every_stage_of_a_small_cascade_computes_the_same() -> None:
    shapes = ((1, 18, 4), (1, 18, 4), (1, 18, 5))
    sink = kernel_of(attention([param(n, *shape) for n, shape in enumerate(shapes)], "past"))
    inputs = arrays(*shapes)
    wanted = exact(inputs, "past")
    for lowered in (None, lower_kernel(sink, target("x86-64-v3"))):
        buffers = [bytearray(4 * wanted.size), *(bytearray(array.tobytes()) for array in inputs)]
        if lowered is None:
            run_kernel(sink, buffers, {})
        else:
            run_linear(lowered.linear, buffers, {})
        same(np.frombuffer(buffers[0], np.float32).reshape(wanted.shape), wanted, 3e-6)


def test_plain_loops_run_in_phases_too() -> None:
    shapes = ((1, 32, 8), (1, 48, 8), (1, 48, 8))
    sink = kernel_of(attention([param(n, *shape) for n, shape in enumerate(shapes)]))
    inputs = arrays(*shapes)
    lowered = lower_kernel(sink, target("host"), is_plain=True)
    case = Case(sink, [bytes(4 * 32 * 8), *(array.tobytes() for array in inputs)])
    got = execute(lowered, compile_to("llvm", "host", lowered), case).buffers[0]
    same(np.frombuffer(got, np.float32).reshape(1, 32, 8), exact(inputs), 3e-6)


@pytest.mark.parametrize("shape", [(1, 256, 16), (2, 100, 8), (1, 67, 8)])
def test_any_number_of_cores_gives_the_same_bits(shape: tuple[int, ...]) -> None:
    sink = kernel_of(attention([param(n, *shape) for n in range(3)], "past"))
    inputs = arrays(shape, shape, shape)
    results = set()
    tiles = set()
    for cores in (1, 4, 64):
        spec = x86_level_spec("x86-64-v3", cores=cores)
        lowered = lower_kernel(sink, spec)
        tiles.add(lowered.plan.split(":")[0])
        case = Case(sink, [bytes(inputs[0].nbytes), *(array.tobytes() for array in inputs)])
        results.add(execute(lowered, compile_to("llvm", "x86-64-v3", lowered), case).buffers[0])
    assert len(results) == 1
    assert len(tiles) > 1


def test_clang_renders_cascades() -> None:
    shapes = ((1, 40, 8), (1, 40, 8), (1, 40, 8))
    sink = kernel_of(attention([param(n, *shape) for n, shape in enumerate(shapes)], "past"))
    inputs = arrays(*shapes)
    same(on_machine(sink, (1, 40, 8), inputs, kind="clang"), exact(inputs, "past"), 3e-6)


# ---- running values


def with_small_caches() -> TargetSpec:
    """This machine, but for caches that a row of scores does not fit."""
    host = target("host")
    sizes = {"L2": 1 << 10, "L1": 1 << 12}
    memories = tuple(replace(m, size_bytes=sizes.get(m.name, m.size_bytes)) for m in host.memories)
    return replace(host, memories=memories)


def in_one_pass(sink: Node, shape: tuple[int, ...], inputs: list[np.ndarray]) -> np.ndarray:
    lowered = lower_kernel(sink, with_small_caches())
    assert "running values" in lowered.plan
    output = np.zeros(shape, inputs[0].dtype)
    case = Case(sink, [output.tobytes(), *(array.tobytes() for array in inputs)])
    got = execute(lowered, compile_to("llvm", "host", lowered), case).buffers[0]
    return np.frombuffer(got, output.dtype).reshape(shape)


@pytest.mark.parametrize("mask", ["", "past", "future", "late"])
@pytest.mark.parametrize(
    ("rows", "keys", "depth", "width"), [(64, 64, 16, 16), (96, 200, 16, 24), (130, 67, 8, 40)]
)
def test_attention_in_one_pass_is_right(
    mask: str, rows: int, keys: int, depth: int, width: int
) -> None:
    shapes = ((2, rows, depth), (2, keys, depth), (2, keys, width))
    sink = kernel_of(attention([param(n, *shape) for n, shape in enumerate(shapes)], mask))
    inputs = arrays(*shapes, scale=2.0)
    same(in_one_pass(sink, (2, rows, width), inputs), exact(inputs, mask), 1e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("operand", [0, 1, 2])
@pytest.mark.parametrize("at", [2, 60, 99])
@pytest.mark.parametrize("mask", ["", "past", "late"])
def test_special_values_come_out_of_one_pass_as_of_several(
    mask: str, value: float, operand: int, at: int
) -> None:
    shapes = ((1, 100, 8), (1, 100, 8), (1, 100, 8))
    sink = kernel_of(attention([param(n, *shape) for n, shape in enumerate(shapes)], mask))
    inputs = arrays(*shapes)
    inputs[operand][0, at, 3] = value
    same(in_one_pass(sink, (1, 100, 8), inputs), exact(inputs, mask), 1e-5)


def test_sums_of_large_values_do_not_overflow_in_one_pass() -> None:
    shapes = ((1, 32, 8), (1, 64, 8), (1, 64, 8))
    sink = kernel_of(attention([param(n, *shape) for n, shape in enumerate(shapes)]))
    q, k, v = arrays(*shapes)
    v[:] = 3e38
    assert np.isfinite(in_one_pass(sink, (1, 32, 8), [q, k, v])).all()


def test_a_maximum_that_rises_in_every_block_rescales_what_came_before() -> None:
    shapes = ((1, 32, 4), (1, 160, 4), (1, 160, 8))
    sink = kernel_of(attention([param(n, *shape) for n, shape in enumerate(shapes)]))
    q, k, v = arrays(*shapes)
    q[:] = 1.0
    k[:] = np.linspace(-40, 40, 160, dtype=np.float32)[:, None]
    same(in_one_pass(sink, (1, 32, 8), [q, k, v]), exact([q, k, v]), 1e-5)


# ---- special values


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("operand", [0, 1, 2])
@pytest.mark.parametrize("at", [2, 60, 99])
def test_special_values_come_out_as_if_nothing_was_left_out(
    value: float, operand: int, at: int
) -> None:
    shapes = ((1, 100, 8), (1, 100, 8), (1, 100, 8))
    sink = kernel_of(attention([param(n, *shape) for n, shape in enumerate(shapes)], "past"))
    inputs = arrays(*shapes)
    inputs[operand][0, at, 3] = value
    same(on_machine(sink, (1, 100, 8), inputs), exact(inputs, "past"), 3e-6)


def test_huge_scores_do_not_overflow() -> None:
    shapes = ((1, 64, 16),) * 3
    sink = kernel_of(attention([param(n, *shape) for n, shape in enumerate(shapes)]))
    q, k, v = arrays(*shapes)
    q *= 1e18
    k *= 1e18
    got = on_machine(sink, (1, 64, 16), [q, k, v])
    same(got, exact([q, k, v]), 3e-6)


def test_sums_of_large_values_do_not_overflow_where_their_mean_does_not() -> None:
    shapes = ((1, 32, 8), (1, 64, 8), (1, 64, 8))
    sink = kernel_of(attention([param(n, *shape) for n, shape in enumerate(shapes)]))
    q, k, v = arrays(*shapes)
    v[:] = 3e38
    assert np.isfinite(on_machine(sink, (1, 32, 8), [q, k, v])).all()


# ---- rows side by side


def test_the_first_phase_of_a_row_runs_beside_the_last_one_of_the_row_before() -> None:
    linear = lower_kernel(kernel_of(softmax(param(0, 4096, 256))), target("host")).linear
    depth = [0]
    for node in linear.src:
        depth.append(depth[-1] + (node.op is RANGE) - (node.op is END))
    # Tasks, rows, and in them the terms with their sum, and the quotients with the next maximum;
    # the maximum of a task's first row comes before.
    assert sum(node.op is RANGE for node in linear.src) == 5
    assert max(depth) == 3


def test_rows_of_a_task_that_is_not_full_are_all_right() -> None:
    rows = 4 * 16 * 16 + 5
    (x,) = arrays((rows, 64))
    raised = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    got = on_machine(kernel_of(softmax(param(0, rows, 64))), (rows, 64), [x])
    same(got, raised / raised.sum(-1, keepdims=True), 3e-6)
