"""Contractions by matrix instructions: plans, statements, and what they compute."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from tilework.base.errors import InternalError, PlanError
from tilework.codegen.analysis import Kernel, analyse
from tilework.codegen.gpu.plan import GpuPlan
from tilework.codegen.matrix.choose import choose_ring_plan, ring_of
from tilework.codegen.matrix.lower import lower_ring
from tilework.codegen.passes.normalise import normalise_ranges
from tilework.codegen.pipeline import lower_kernel
from tilework.dtypes import DType, bfloat16, float32
from tilework.ir.build import cast, const_index
from tilework.ir.interpret.blocks import run_blocks
from tilework.ir.node import Node, toposort
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs, Unit
from tilework.ir.ops.matrix import COPY_FENCE, SIGNAL_ARRIVE, SIGNAL_WAIT, STORE_BOX
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.tensor import REDUCE, Fold, ReduceAttrs
from tilework.ir.stage import Stage
from tilework.ir.verify import verify
from tilework.target.known.cuda import cuda_spec

HOPPER = cuda_spec(90)


def product(
    m: int,
    n: int,
    k: int,
    *,
    kind: str = "nn",
    result: DType = bfloat16,
    bias: bool = False,
    divided: bool = False,
) -> Node:
    """The kernel of a matrix product, at the KERNEL stage; `t` marks a transposed operand."""
    row, column, inner = (
        RANGE(const_index(size), attrs=RangeAttrs(number)) for number, size in enumerate((m, n, k))
    )

    def place(first: Node, second: Node, width: int) -> Node:
        return math.ADD(math.MUL(first, const_index(width)), second)

    def load(slot: int, size: int, offset: Node) -> Node:
        buffer = PARAM(attrs=ParamAttrs(slot, (size,), bfloat16))
        return cast(LOAD(INDEX(buffer, offset)), float32)

    a = load(1, m * k, place(row, inner, k) if kind[0] == "n" else place(inner, row, m))
    b = load(2, k * n, place(inner, column, n) if kind[1] == "n" else place(column, inner, k))
    total = REDUCE(math.MUL(a, b), inner, attrs=ReduceAttrs(Fold.ADD, ()))
    if bias:
        total = math.ADD(total, load(3, n, column))
    if divided:
        divisor = load(3, m * n, place(row, column, n))
        total = math.ADD(math.FDIV(total, divisor), divisor)
    value = total if result is float32 else cast(total, result)
    target = INDEX(PARAM(attrs=ParamAttrs(0, (m * n,), result)), place(row, column, n))
    return SINK(STORE(target, value))


def planned(sink: Node) -> tuple[Kernel, GpuPlan]:
    kernel = analyse(normalise_ranges(sink))
    plan = choose_ring_plan(kernel, HOPPER)
    assert plan is not None
    return kernel, plan


def tiles_of(linear: Node) -> int:
    return max(
        int(node.src[0].attrs.bits)
        for node in linear.src
        if node.op is RANGE and node.attrs.unit is Unit.THREAD
    )


def run(
    linear: Node, m: int, n: int, k: int, *, kind: str, result: DType, bias: bool, blocks: int
) -> tuple[np.ndarray, np.ndarray]:
    """What the statements compute by `blocks` blocks, and what they should."""
    draw = np.random.default_rng(7)
    shapes = [(m, k) if kind[0] == "n" else (k, m), (k, n) if kind[1] == "n" else (n, k), (n,)]
    inputs = [draw.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in shapes]
    a, b, c = (array.astype(np.float64) for array in inputs)
    exact = (a if kind[0] == "n" else a.T) @ (b if kind[1] == "n" else b.T) + (c if bias else 0)
    wanted = np.float32 if result is float32 else ml_dtypes.bfloat16
    found = np.full((m, n), np.nan, dtype=wanted)
    buffers = [array.view(np.uint8).data.cast("B") for array in (found, *inputs)]
    run_blocks(linear, buffers, blocks=blocks, tasks=-(-tiles_of(linear) // blocks))
    return found.astype(np.float64), exact


@pytest.mark.parametrize(
    ("m", "n", "k", "kind", "result", "bias"),
    [
        (8, 64, 8, "nn", bfloat16, False),
        (40, 72, 24, "nt", float32, True),
        (72, 64, 72, "tn", bfloat16, False),
        (16, 24, 136, "tt", bfloat16, True),
    ],
)
def test_a_ring_computes_what_the_kernel_says(
    m: int, n: int, k: int, kind: str, result: DType, *, bias: bool
) -> None:
    kernel, plan = planned(product(m, n, k, kind=kind, result=result, bias=bias))
    linear = lower_ring(kernel, plan, HOPPER)
    verify(linear, Stage.LINEAR, after="ring")
    found, exact = run(linear, m, n, k, kind=kind, result=result, bias=bias, blocks=1)
    scale = np.abs(exact).max()
    bound = 1e-6 if result is float32 else 2**-8
    assert np.abs(found - exact).max() <= bound * scale


def test_quotients_of_neighbours_are_found_together_and_as_exact() -> None:
    m, n, k = 40, 72, 8
    kernel, plan = planned(product(m, n, k, divided=True))
    linear = lower_ring(kernel, plan, HOPPER)
    quotients = [node for node in toposort(linear) if node.op is math.FDIV]
    assert [node.type.lanes for node in quotients] == [8]
    draw = np.random.default_rng(3)
    shapes = ((m, k), (k, n), (m, n))
    inputs = [draw.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in shapes]
    inputs[2][3, 5] = 0.0
    found = np.full((m, n), np.nan, dtype=ml_dtypes.bfloat16)
    buffers = [x.view(np.uint8).data.cast("B") for x in (found, *inputs)]
    run_blocks(linear, buffers, blocks=1, tasks=tiles_of(linear))
    a, b, c = (array.astype(np.float64) for array in inputs)
    with np.errstate(divide="ignore"):
        exact = a @ b / c + c
    assert np.isinf(found[3, 5].astype(np.float64))
    wanted = exact.astype(ml_dtypes.bfloat16).astype(np.float64)
    close = np.isclose(found.astype(np.float64), wanted, rtol=2**-7, atol=1e-5)
    assert close.all()


def test_what_a_part_needs_is_loaded_before_it_waits_for_its_place() -> None:
    kernel, plan = planned(product(64, 64, 64, bias=True))
    names = [node.op.name for node in lower_ring(kernel, plan, HOPPER).src]
    last_load = len(names) - 1 - names[::-1].index("load")
    assert last_load < names.index("store_box_wait")


def test_what_only_rows_move_is_computed_once_for_each_row() -> None:
    row, column, inner = (
        RANGE(const_index(size), attrs=RangeAttrs(number))
        for number, size in enumerate((70, 64, 8))
    )

    def load(slot: int, size: int, place: Node) -> Node:
        return cast(LOAD(INDEX(PARAM(attrs=ParamAttrs(slot, (size,), bfloat16)), place)), float32)

    a = load(1, 70 * 8, math.ADD(math.MUL(row, const_index(8)), inner))
    b = load(2, 8 * 64, math.ADD(math.MUL(inner, const_index(64)), column))
    total = REDUCE(math.MUL(a, b), inner, attrs=ReduceAttrs(Fold.ADD, ()))
    value = math.MUL(total, math.SQRT(load(3, 70, row)))
    place = math.ADD(math.MUL(row, const_index(64)), column)
    target = INDEX(PARAM(attrs=ParamAttrs(0, (70 * 64,), float32)), place)
    kernel, plan = planned(SINK(STORE(target, value)))
    linear = lower_ring(kernel, plan, HOPPER)
    # One for each half of the rows, before the loop over columns.
    roots = [at for at, node in enumerate(linear.src) if node.op is math.SQRT]
    columns = [at for at, node in enumerate(linear.src) if node.op is RANGE]
    assert len(roots) == 2
    assert max(roots) < columns[-1]
    draw = np.random.default_rng(4)
    inputs = [draw.random(shape).astype(ml_dtypes.bfloat16) for shape in ((70, 8), (8, 64), (70,))]
    found = np.full((70, 64), np.nan, dtype=np.float32)
    buffers = [x.view(np.uint8).data.cast("B") for x in (found, *inputs)]
    run_blocks(linear, buffers, blocks=1, tasks=tiles_of(linear))
    exact = (inputs[0].astype(np.float64) @ inputs[1].astype(np.float64)) * np.sqrt(
        inputs[2].astype(np.float64)
    )[:, None]
    assert np.abs(found - exact).max() <= 1e-6 * np.abs(exact).max()


def test_a_slot_that_is_used_too_early_is_a_race() -> None:
    kernel, plan = planned(product(64, 64, 64, result=float32))
    linear = lower_ring(kernel, plan, HOPPER)
    wait = [node for node in linear.src if node.op is SIGNAL_WAIT][-1]
    # The phase before the first one has ended at once: nobody waits for the copies.
    early = SIGNAL_WAIT(wait.src[0], const_index(1))
    done: dict[Node, Node] = {}
    for node in toposort(linear):
        src = tuple(done[source] for source in node.src)
        done[node] = early if node is wait else node if src == node.src else make(node, src)
    with pytest.raises(InternalError, match="without a barrier"):
        run(done[linear], 64, 64, 64, kind="nn", result=float32, bias=False, blocks=1)


def make(node: Node, src: tuple[Node, ...]) -> Node:
    return node.op(*src, attrs=node.attrs)


def test_every_slot_is_handed_back() -> None:
    kernel, plan = planned(product(128, 256, 128))
    linear = lower_ring(kernel, plan, HOPPER)
    assert sum(node.op is SIGNAL_ARRIVE for node in linear.src) == 2


def test_large_products_take_tiles_of_128_by_256() -> None:
    _, plan = planned(product(4096, 4096, 4096))
    assert plan.matrix == "wgmma_m64n256k16_bfloat16"
    assert plan.threads == 3 * 128
    assert {staged.depth for staged in plan.staged} == {4}


def test_few_rows_are_the_columns_of_a_narrow_tile() -> None:
    _, plan = planned(product(16, 11008, 4096, kind="nt"))
    assert plan.matrix == "wgmma_m64n16k16_bfloat16"
    assert plan.swapped
    assert plan.threads == 3 * 128


def test_no_narrow_tile_has_part_of_a_row_of_neighbours() -> None:
    # Of the second operand neighbours along n stand side by side, 64 in a row of a slot.
    _, plan = planned(product(64, 11008, 4096, kind="nn"))
    assert plan.matrix == "wgmma_m64n128k16_bfloat16"


def test_a_narrow_tile_lets_all_multiprocessors_read() -> None:
    # 126 tiles of 88 columns for 132 multiprocessors, where 128 columns would be read by 86.
    _, plan = planned(product(64, 11008, 4096, kind="nt"))
    assert plan.matrix == "wgmma_m64n88k16_bfloat16"


@pytest.mark.parametrize("result", [bfloat16, float32])
def test_results_of_16_and_32_bits_leave_in_boxes(result: DType) -> None:
    kernel, plan = planned(product(128, 256, 64, result=result))
    assert any(node.op is STORE_BOX for node in lower_ring(kernel, plan, HOPPER).src)


@pytest.mark.parametrize(("m", "n", "k", "kind"), [(40, 9, 61, "nn"), (33, 24, 70, "tt")])
def test_threads_fill_the_slots_of_rows_that_start_anywhere(
    m: int, n: int, k: int, kind: str
) -> None:
    kernel, plan = planned(product(m, n, k, kind=kind, result=float32))
    linear = lower_ring(kernel, plan, HOPPER)
    verify(linear, Stage.LINEAR, after="ring")
    assert any(node.op is COPY_FENCE for node in linear.src)
    found, exact = run(linear, m, n, k, kind=kind, result=float32, bias=False, blocks=1)
    assert np.abs(found - exact).max() <= 1e-6 * np.abs(exact).max()


def test_every_element_of_a_slot_of_forty_columns_is_filled() -> None:
    narrow = [i for i in HOPPER.matrix_instructions if i.name == "wgmma_m64n40k16_bfloat16"]
    target = replace(HOPPER, matrix_instructions=tuple(narrow))
    m, n, k = 64, 40, 61
    kernel = analyse(normalise_ranges(product(m, n, k, kind="nt", result=float32)))
    plan = choose_ring_plan(kernel, target)
    assert plan is not None
    linear = lower_ring(kernel, plan, target)
    found, exact = run(linear, m, n, k, kind="nt", result=float32, bias=False, blocks=1)
    assert np.abs(found - exact).max() <= 1e-6 * np.abs(exact).max()


def test_what_threads_fill_is_fenced_before_they_say_so() -> None:
    kernel, plan = planned(product(64, 64, 61))
    names = [node.op.name for node in lower_ring(kernel, plan, HOPPER).src]
    assert names.index("copy_fence") < names.index("signal_arrive")


def test_tiles_of_padding_are_not_filled() -> None:
    kernel = analyse(normalise_ranges(product(3, 3, 3)))
    assert choose_ring_plan(kernel, HOPPER) is None


def test_a_plan_with_an_unknown_instruction_is_refused() -> None:
    kernel, plan = planned(product(64, 64, 64))
    with pytest.raises(PlanError, match="no such ring"):
        lower_ring(kernel, replace(plan, matrix="mma_m1n1k1"), HOPPER)


def test_targets_without_such_instructions_have_no_ring() -> None:
    kernel = analyse(normalise_ranges(product(64, 64, 64)))
    assert choose_ring_plan(kernel, cuda_spec(80)) is None


def test_the_pipeline_lowers_a_product_by_a_ring() -> None:
    lowered = lower_kernel(product(256, 256, 256), HOPPER)
    assert "wgmma" in lowered.plan
    assert lowered.threads % 128 == 0
    assert lowered.scratch_bytes <= HOPPER.limits.shared_memory_bytes


def test_slots_fit_into_shared_memory_beside_what_leaves() -> None:
    small = replace(HOPPER, limits=replace(HOPPER.limits, shared_memory_bytes=100 << 10))
    kernel = analyse(normalise_ranges(product(1024, 1024, 1024)))
    plan = choose_ring_plan(kernel, small)
    assert plan is not None
    ring = ring_of(kernel, plan, small)
    assert ring is not None
    assert ring.slots * ring.slot_bytes < 100 << 10
    names = {node.op.name for node in toposort(lower_ring(kernel, plan, small))}
    assert "matrix" in names
