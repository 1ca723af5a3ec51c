"""Results that leave in boxes and operands of what follows a product that come so."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from tilework.codegen.analysis import Kernel, analyse
from tilework.codegen.matrix import epilogue
from tilework.codegen.matrix.choose import Ring, choose_ring_plan, ring_of
from tilework.codegen.matrix.crew import crews_for
from tilework.codegen.matrix.exchange import Tile, stagings
from tilework.codegen.matrix.lower import lower_ring
from tilework.codegen.matrix.writer import Writer
from tilework.codegen.passes.normalise import normalise_ranges
from tilework.dtypes import ALL, DType, bfloat16, float32
from tilework.ir.build import cast, const, const_index
from tilework.ir.interpret.blocks import run_blocks
from tilework.ir.node import Node, toposort
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs, Unit
from tilework.ir.ops.matrix import COPY_BOX, STORE_BOX, STORE_BOX_WAIT
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.tensor import REDUCE, Fold, ReduceAttrs
from tilework.ir.stage import Stage
from tilework.ir.verify import verify
from tilework.runtime.bus.cuda import BOX_DTYPES
from tilework.target.known.cuda import cuda_spec
from tilework.target.spec import TargetSpec

HOPPER = cuda_spec(90)
NUMPY = {bfloat16: ml_dtypes.bfloat16, float32: np.float32}


def only(columns: int) -> TargetSpec:
    """A card whose tiles have so many columns."""
    found = [i for i in HOPPER.matrix_instructions if i.name == f"wgmma_m64n{columns}k16_bfloat16"]
    return replace(HOPPER, matrix_instructions=tuple(found))


def kernel_of(m: int, n: int, k: int, results: tuple[DType, ...], operand: DType) -> Kernel:
    """Results (a x b + c) * bias, and the rounded sums halved for each further one."""
    row, column, inner = (
        RANGE(const_index(size), attrs=RangeAttrs(number)) for number, size in enumerate((m, n, k))
    )

    def load(slot: int, size: int, offset: Node, dtype: DType = bfloat16) -> Node:
        buffer = PARAM(attrs=ParamAttrs(slot, (size,), dtype))
        found = LOAD(INDEX(buffer, offset))
        return found if dtype is float32 else cast(found, float32)

    def place(first: Node, second: Node, width: int) -> Node:
        return math.ADD(math.MUL(first, const_index(width)), second)

    first = len(results)
    a = load(first, m * k, place(row, inner, k))
    b = load(first + 1, n * k, place(column, inner, k))
    total = REDUCE(math.MUL(a, b), inner, attrs=ReduceAttrs(Fold.ADD, ()))
    added = math.ADD(total, load(first + 2, m * n, place(row, column, n), operand))
    value = math.MUL(added, load(first + 3, n, column, float32))
    stores = []
    for number, dtype in enumerate(results):
        target = INDEX(PARAM(attrs=ParamAttrs(number, (m * n,), dtype)), place(row, column, n))
        stores.append(STORE(target, value if dtype is float32 else cast(value, dtype)))
        value = math.MUL(value, const(0.5, float32))
    return analyse(normalise_ranges(SINK(*stores)))


def ring_for(kernel: Kernel, target: TargetSpec) -> tuple[Ring, Node]:
    plan = choose_ring_plan(kernel, target)
    assert plan is not None
    ring = ring_of(kernel, plan, target)
    assert ring is not None
    linear = lower_ring(kernel, plan, target)
    verify(linear, Stage.LINEAR, after="ring")
    return ring, linear


def tasks_of(linear: Node) -> int:
    return max(
        int(node.src[0].attrs.bits)
        for node in linear.src
        if node.op is RANGE and node.attrs.unit is Unit.THREAD
    )


@pytest.mark.parametrize(
    ("m", "n", "columns", "results", "operand"),
    [
        (72, 64, 64, (bfloat16, bfloat16), bfloat16),
        (40, 128, 64, (bfloat16, float32), bfloat16),
        (136, 96, 32, (float32,), float32),
        (40, 192, 192, (float32,), bfloat16),
        (72, 64, 64, (float32, float32), float32),
    ],
)
def test_results_and_operands_in_boxes_are_what_the_kernel_says(
    m: int, n: int, columns: int, results: tuple[DType, ...], operand: DType
) -> None:
    k = 16
    kernel = kernel_of(m, n, k, results, operand)
    ring, linear = ring_for(kernel, only(columns))
    assert ring.exchange is not None
    assert len(ring.exchange.operands) == 1
    draw = np.random.default_rng(5)
    shapes = ((m, k), (n, k), (m, n), (n,))
    kinds = (bfloat16, bfloat16, operand, float32)
    inputs = [
        draw.standard_normal(shape).astype(NUMPY[kind])
        for shape, kind in zip(shapes, kinds, strict=True)
    ]
    found = [np.full((m, n), np.nan, dtype=NUMPY[dtype]) for dtype in results]
    buffers = [x.view(np.uint8).data.cast("B") for x in (*found, *inputs)]
    run_blocks(linear, buffers, blocks=1, tasks=tasks_of(linear))
    a, b, c, bias = (x.astype(np.float64) for x in inputs)
    exact = (a @ b.T + c) * bias
    for dtype, values in zip(results, found, strict=True):
        bound = 1e-6 if dtype is float32 else 2**-8
        assert np.abs(values.astype(np.float64) - exact).max() <= bound * np.abs(exact).max()
        exact = exact / 2


def computed(kernel: Kernel, target: TargetSpec, n: int, m: int = 40, k: int = 16) -> np.ndarray:
    """What a kernel of two results makes of the same numbers each time."""
    _, linear = ring_for(kernel, target)
    draw = np.random.default_rng(8)
    shapes = ((m, k), (n, k), (m, n), (n,))
    kinds = (bfloat16, bfloat16, bfloat16, float32)
    inputs = [
        draw.standard_normal(s).astype(NUMPY[kind]) for s, kind in zip(shapes, kinds, strict=True)
    ]
    found = [np.full((m, n), np.nan, dtype=NUMPY[kind]) for kind in (bfloat16, float32)]
    buffers = [x.view(np.uint8).data.cast("B") for x in (*found, *inputs)]
    run_blocks(linear, buffers, blocks=1, tasks=tasks_of(linear))
    return np.stack([x.astype(np.float32) for x in found])


def test_sums_take_the_places_of_earlier_ones_where_the_code_would_be_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = kernel_of(40, 192, 16, (bfloat16, float32), bfloat16)
    parts = [Unit.UNROLL, Unit.LOOP]
    found = []
    for most, unit in zip((1 << 20, 0), parts, strict=True):
        monkeypatch.setattr(epilogue, "_MOST_NODES", most)
        found.append(computed(kernel, only(192), 192))
        _, linear = ring_for(kernel, only(192))
        loops = [node for node in linear.src if node.op is RANGE and node.src[0].attrs.bits == 3]
        assert [node.attrs.unit for node in loops] == [unit]
    assert np.array_equal(found[0], found[1])


def test_parts_of_many_tiles_keep_count_of_their_phases() -> None:
    # Three tiles of three parts: the second one begins in the second slot.
    m, n, k = 24, 288, 16
    kernel = kernel_of(m, n, k, (float32,), float32)
    ring, linear = ring_for(kernel, only(96))
    assert ring.exchange is not None
    assert (ring.tiles, ring.exchange.parts) == (3, 3)
    draw = np.random.default_rng(6)
    shapes = ((m, k), (n, k), (m, n), (n,))
    kinds = (bfloat16, bfloat16, float32, float32)
    inputs = [
        draw.standard_normal(shape).astype(NUMPY[kind])
        for shape, kind in zip(shapes, kinds, strict=True)
    ]
    found = np.full((m, n), np.nan, dtype=np.float32)
    buffers = [x.view(np.uint8).data.cast("B") for x in (found, *inputs)]
    run_blocks(linear, buffers, blocks=1, tasks=tasks_of(linear))
    a, b, c, bias = (x.astype(np.float64) for x in inputs)
    exact = (a @ b.T + c) * bias
    assert np.abs(found - exact).max() <= 1e-6 * np.abs(exact).max()


def test_tiles_of_one_of_several_ranges_of_rows_move_in_boxes() -> None:
    # Heads of an attention's result, before the product that mixes them.
    sizes = (2, 40, 64, 2, 64)
    batch, row, column, head, inner = (
        RANGE(const_index(size), attrs=RangeAttrs(number)) for number, size in enumerate(sizes)
    )

    def place(*steps: tuple[Node, int]) -> Node:
        total: Node = const_index(0)
        for range_, step in steps:
            total = math.ADD(total, math.MUL(range_, const_index(step)))
        return total

    a_place = place((batch, 40 * 2 * 64), (head, 40 * 64), (row, 64), (inner, 1))
    a = LOAD(INDEX(PARAM(attrs=ParamAttrs(1, (2 * 40 * 128,), bfloat16)), a_place))
    b_place = place((column, 128), (head, 64), (inner, 1))
    b = LOAD(INDEX(PARAM(attrs=ParamAttrs(2, (64 * 128,), bfloat16)), b_place))
    product = math.MUL(cast(a, float32), cast(b, float32))
    total = REDUCE(product, head, inner, attrs=ReduceAttrs(Fold.ADD, ()))
    at = place((batch, 40 * 64), (row, 64), (column, 1))
    rest = LOAD(INDEX(PARAM(attrs=ParamAttrs(3, (80 * 64,), float32)), at))
    target = PARAM(attrs=ParamAttrs(0, (80 * 64,), float32))
    stored = SINK(STORE(INDEX(target, at), math.ADD(total, rest)))
    ring, linear = ring_for(analyse(normalise_ranges(stored)), only(64))
    assert len(ring.a.own) == 2
    assert ring.exchange is not None
    draw = np.random.default_rng(9)
    shapes = ((2, 2, 40, 64), (64, 2, 64), (2, 40, 64))
    kinds = (bfloat16, bfloat16, float32)
    inputs = [
        draw.standard_normal(shape).astype(NUMPY[kind])
        for shape, kind in zip(shapes, kinds, strict=True)
    ]
    found = np.full((2, 40, 64), np.nan, dtype=np.float32)
    buffers = [x.view(np.uint8).data.cast("B") for x in (found, *inputs)]
    run_blocks(linear, buffers, blocks=1, tasks=tasks_of(linear))
    heads, weights, added = (x.astype(np.float64) for x in inputs)
    exact = np.einsum("bhid,nhd->bin", heads, weights) + added
    assert np.abs(found - exact).max() <= 1e-6 * np.abs(exact).max()


def test_operands_are_asked_for_before_the_products() -> None:
    kernel = kernel_of(4096, 4096, 512, (bfloat16, float32), bfloat16)
    ring, linear = ring_for(kernel, HOPPER)
    assert ring.exchange is not None
    names = [node.op.name for node in linear.src]
    copies = [at for at, node in enumerate(linear.src) if node.op is COPY_BOX]
    slots = {node.src[0].src[0] for node in linear.src if node.op is COPY_BOX}
    assert len(slots) == 3  # both factors, and what is added
    assert sum(at < names.index("matrix") for at in copies) == len(copies) - 1
    leaving = [node.src[0].src[0] for node in linear.src if node.op is STORE_BOX]
    assert len(leaving) == 3  # one box of 16 bits, two of 32
    waits = [node.attrs.count for node in linear.src if node.op is STORE_BOX_WAIT]
    assert waits == [0, 0]


def test_what_a_kernel_writes_does_not_come_ahead() -> None:
    row, column, inner = (
        RANGE(const_index(size), attrs=RangeAttrs(number))
        for number, size in enumerate((128, 128, 64))
    )
    place = math.ADD(math.MUL(row, const_index(128)), column)

    def load(slot: int, offset: Node, count: int) -> Node:
        return cast(LOAD(INDEX(PARAM(attrs=ParamAttrs(slot, (count,), bfloat16)), offset)), float32)

    a = load(1, math.ADD(math.MUL(row, const_index(64)), inner), 128 * 64)
    b = load(2, math.ADD(math.MUL(column, const_index(64)), inner), 128 * 64)
    total = REDUCE(math.MUL(a, b), inner, attrs=ReduceAttrs(Fold.ADD, ()))
    target = PARAM(attrs=ParamAttrs(0, (128 * 128,), float32))
    read = LOAD(INDEX(target, place))
    kernel = analyse(normalise_ranges(SINK(STORE(INDEX(target, place), math.ADD(total, read)))))
    plan = choose_ring_plan(kernel, HOPPER)
    ring = None if plan is None else ring_of(kernel, plan, HOPPER)
    assert ring is None or ring.exchange is None or not ring.exchange.operands


@pytest.mark.parametrize("dtype", [dtype for dtype in ALL if dtype.itemsize in (2, 4)])
def test_a_card_knows_boxes_of_each_dtype_that_moves_so(dtype: DType) -> None:
    kernel = kernel_of(4096, 4096, 512, (dtype,), bfloat16)
    ring, _ = ring_for(kernel, HOPPER)
    assert ring.exchange is not None
    assert [each.array.dtype for each in ring.exchange.results] == [dtype]
    assert dtype.name in BOX_DTYPES


def test_what_moves_in_boxes_leaves_three_slots_for_factors() -> None:
    kernel = kernel_of(4096, 4096, 4096, (bfloat16, float32), bfloat16)
    ring, _ = ring_for(kernel, HOPPER)
    assert ring.exchange is not None
    taken = ring.slots * ring.slot_bytes + ring.groups * ring.exchange.group_bytes
    assert ring.slots >= 3
    assert taken <= HOPPER.limits.shared_memory_bytes


def test_both_of_a_pair_are_read_at_once() -> None:
    kernel = kernel_of(4096, 4096, 4096, (bfloat16,), bfloat16)
    _, linear = ring_for(kernel, HOPPER)
    lanes = {node.type.lanes for node in toposort(linear) if node.op is LOAD}
    assert lanes == {2}


def tile_of(columns: int) -> Tile:
    """A tile whose sums are stored as they are, in 16 bits."""
    row, column = (
        RANGE(const_index(size), attrs=RangeAttrs(n)) for n, size in enumerate((128, columns))
    )
    at = math.ADD(math.MUL(row, const_index(columns)), column)
    target = PARAM(attrs=ParamAttrs(0, (128 * columns,), bfloat16))
    total = LOAD(INDEX(PARAM(attrs=ParamAttrs(1, (128 * columns,), float32)), at))
    store = STORE(INDEX(target, at), cast(total, bfloat16))
    return Tile((store,), ((row, 128),), ((column, columns),), (), 64, lambda at, half: {total: at})


def test_results_that_leave_after_an_odd_number_of_parts_wait_for_all() -> None:
    (crew,) = crews_for(HOPPER, bfloat16)
    even = stagings(Writer(HOPPER), [tile_of(128), tile_of(256)], crew)
    assert [each and each.leaving for each in even] == [1, 1]
    # After one part the next result begins in the slot that is still leaving.
    odd = stagings(Writer(HOPPER), [tile_of(64), tile_of(128)], crew)
    assert [each and each.leaving for each in odd] == [0, 0]
    memory = {node for each in odd if each is not None for node in each.memory.values()}
    assert len(memory) == 1
