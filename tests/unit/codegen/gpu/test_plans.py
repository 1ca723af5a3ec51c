"""Plans for blocks of threads: what is chosen, and that blocks in software compute it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tilework import Tensor
from tilework.base.errors import PlanError
from tilework.codegen.analysis import analyse
from tilework.codegen.gpu.check import check_gpu_plan
from tilework.codegen.gpu.choose import choose_gpu_plan, plain_gpu_plan
from tilework.codegen.gpu.contract import thread_places
from tilework.codegen.gpu.plan import GpuPlan
from tilework.codegen.passes.normalise import normalise_ranges
from tilework.codegen.pipeline import lower_kernel
from tilework.codegen.plan.plan import Part, Plan, Split
from tilework.dtypes import float32, index, int64
from tilework.ir.build import cast, const, const_index
from tilework.ir.interpret.blocks import run_blocks
from tilework.ir.node import Node, toposort
from tilework.ir.ops import math
from tilework.ir.ops.control import BARRIER, FOLD_THREADS, SCAN_THREADS
from tilework.ir.ops.index import RANGE, RangeAttrs, Unit
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.tensor import REDUCE, Fold, ReduceAttrs
from tilework.ir.symbolic.simplify import value_of
from tilework.ir.types import Memory
from tilework.schedule.call import transform_to_call
from tilework.schedule.pipeline import create_schedule
from tilework.target.known.cuda import Card, cuda_spec
from tilework.target.spec import TargetSpec

ADD = ReduceAttrs(Fold.ADD, ())
HOPPER = cuda_spec(90)
#: A card of one multiprocessor, which one tile keeps busy.
SMALL = cuda_spec(90, Card(
    multiprocessors=1, memory_bytes=1 << 30, l2_bytes=1 << 20, bandwidth_bytes_per_cycle=20
))  # fmt: skip


def kernel_of(function: Callable[..., Tensor], *arrays: np.ndarray) -> Node:
    """The one kernel of a function of tensors."""
    call = transform_to_call([function(*map(Tensor, arrays)).node])
    (found,) = create_schedule(call.function).linear.src
    return found.src[0]


def computed(sink: Node, shape: tuple[int, ...], *arrays: np.ndarray, plan: Plan | None = None,
             target: TargetSpec = HOPPER) -> np.ndarray:  # fmt: skip
    """What blocks of threads compute."""
    lowered = lower_kernel(sink, target, plan)
    slots = {node.attrs.slot: node for node in toposort(sink) if node.op is PARAM}
    result = np.full(shape, np.nan, np.float32)
    by_size = list(arrays)
    buffers = [memoryview(bytearray(result.nbytes))]
    for slot in sorted(slots)[1:]:
        count = int(np.prod([int(str(size)) for size in slots[slot].type.shape]))
        at = next(i for i, a in enumerate(by_size) if a.size == count)
        buffers.append(memoryview(bytearray(by_size.pop(at).tobytes())))
    run_blocks(lowered.linear, buffers, blocks=int(lowered.tasks.attrs.bits))
    return np.frombuffer(buffers[0], np.float32).reshape(shape)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def chosen(sink: Node) -> GpuPlan:
    return choose_gpu_plan(analyse(normalise_ranges(sink)), HOPPER)


def units(plan: GpuPlan) -> set[Unit]:
    return {part.unit for split in plan.splits for part in split.tile}


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


@pytest.mark.parametrize("count", [64, 100, 77, 1])
def test_elementwise_work_covers_every_element_once(count: int) -> None:
    x = numbers(count)
    got = computed(kernel_of(lambda a: a * 2.0 + 1.0, x), (count,), x)
    assert np.array_equal(got, x * np.float32(2) + np.float32(1))


def test_elementwise_work_moves_sixteen_bytes_at_once() -> None:
    plan = chosen(kernel_of(lambda a: a + 1.0, numbers(4096)))
    assert plan.block == 256
    assert plan.splits[0].tile == (Part(Unit.LANE, 4),)


@pytest.mark.parametrize(
    ("rows", "columns", "tile"),
    [
        (1, 16384, (Part(Unit.UNROLL, 2), Part(Unit.LOCAL, 128), Part(Unit.LANE, 4))),
        (16, 1056, (Part(Unit.UNROLL, 2), Part(Unit.LOCAL, 96), Part(Unit.LANE, 4))),
        (16, 1028, (Part(Unit.LANE, 4),)),
        (1, 8192, (Part(Unit.LANE, 4),)),
    ],
)
def test_threads_that_compute_long_on_few_bytes_have_several_vectors(
    rows: int, columns: int, tile: tuple[Part, ...]
) -> None:
    """Where neighbours fill a block and blocks are enough; what moves more than it computes not."""
    x = numbers(rows, columns)
    heavy, light = kernel_of(lambda a: a.sin(), x), kernel_of(lambda a: a + 1.0, x)
    plans = [choose_gpu_plan(analyse(normalise_ranges(kernel)), SMALL) for kernel in (heavy, light)]
    assert plans[0].splits[0].tile == tile
    assert plans[1].splits[0].tile == (Part(Unit.LANE, 4),)
    assert np.allclose(computed(heavy, x.shape, x, target=SMALL), np.sin(x), atol=1e-6)


@pytest.mark.parametrize("columns", [32, 64, 96, 77])
def test_a_row_is_folded_by_the_threads_of_a_block(columns: int) -> None:
    x = numbers(3, columns)
    got = computed(kernel_of(lambda a: a.softmax(-1), x), (3, columns), x)
    assert np.allclose(got, softmax(x), atol=1e-6)


def test_a_fold_whose_body_folds_gives_lanes_to_neither() -> None:
    """Each row's fold reads along memory, and so does the one inside it."""
    x, y = numbers(3, 64), numbers(64, 64)
    row, outer, inner = (RANGE(const_index(size), attrs=RangeAttrs(number))
                         for number, size in enumerate((3, 64, 64)))  # fmt: skip
    result, of_x, of_y = (PARAM(attrs=ParamAttrs(slot, (size,), float32))
                          for slot, size in enumerate((3, 3 * 64, 64 * 64)))  # fmt: skip

    def element(buffer: Node, line: Node, column: Node) -> Node:
        return LOAD(INDEX(buffer, math.ADD(math.MUL(line, const_index(64)), column)))

    total = REDUCE(element(of_y, outer, inner), inner, attrs=ADD)
    body = math.MUL(element(of_x, row, outer), math.EXP(total))
    sink = SINK(STORE(INDEX(result, row), REDUCE(body, outer, attrs=ADD)))
    check_gpu_plan(chosen(sink), analyse(normalise_ranges(sink)), HOPPER)
    got = computed(sink, (3,), x, y)
    assert np.allclose(got, x @ np.exp(y.sum(1)), rtol=1e-4)


def test_a_held_row_is_loaded_once() -> None:
    lowered = lower_kernel(kernel_of(lambda a: a.softmax(-1), numbers(4, 256)), HOPPER)
    loads = [node for node in lowered.linear.src if node.op is LOAD]
    assert sum(load.type.lanes or 1 for load in loads) * lowered.threads == 256
    assert sum(node.op is FOLD_THREADS for node in lowered.linear.src) == 2


def test_rows_longer_than_a_block_holds_are_read_in_a_loop() -> None:
    x = numbers(1, 70_000)
    sink = kernel_of(lambda a: a.max(-1), x)
    plan = chosen(sink)
    assert plan.threads <= 1024
    assert plan.splits[0].tile_size < 70_000


@pytest.mark.parametrize(("rows", "columns"), [(64, 40), (130, 33)])
def test_columns_are_folded_by_warps(rows: int, columns: int) -> None:
    x = numbers(rows, columns)
    sink = kernel_of(lambda a: a.sum(0), x)
    assert Unit.WARP in units(chosen(sink))
    assert np.allclose(computed(sink, (columns,), x), x.sum(0, dtype=np.float64), atol=1e-4)


def test_warps_fold_several_columns_of_one_thread_at_once() -> None:
    array = numbers(40, 128)
    sink = kernel_of(lambda x: x.sum(0), array)
    along, bound = (split.number for split in chosen(sink).splits)
    splits = (
        Split(along, (Part(Unit.LOOP),), (Part(Unit.LOCAL, 32), Part(Unit.LANE, 2))),
        Split(bound, (Part(Unit.LOOP),), (Part(Unit.UNROLL, 2), Part(Unit.WARP, 4))),
    )
    plan = replace(chosen(sink), splits=splits)
    lowered = lower_kernel(sink, HOPPER, plan)
    assert any(n.op is FOLD_THREADS and n.type.lanes == 2 for n in toposort(lowered.linear))
    found = computed(sink, (128,), array, plan=plan)
    assert np.allclose(found, array.astype(np.float64).sum(0), rtol=1e-5, atol=1e-5)


def test_folds_of_columns_have_two_blocks_for_each_multiprocessor_where_they_can() -> None:
    x = np.zeros((1024, 9 * 2048), np.float16)
    plan = chosen(kernel_of(lambda a: a.sum(0), x))
    (column,) = (split for split in plan.splits if any(p.unit is Unit.LOCAL for p in split.tile))
    # Four columns in a thread would be 144 blocks, two waves of which the second is almost empty.
    assert x.shape[1] // column.tile_size == 288


def test_few_rows_are_shared_by_more_threads_than_many() -> None:
    few, many = (
        chosen(kernel_of(lambda x: x - x.sum(-1, keepdim=True), np.zeros((rows, 1024), np.float32)))
        for rows in (1, 4096)
    )
    assert few.unit_size(Unit.LOCAL) > many.unit_size(Unit.LOCAL)


def test_a_transpose_moves_vectors_on_both_sides() -> None:
    x = numbers(64, 256)
    sink = kernel_of(lambda a: a.T.contiguous(), x)
    lowered = lower_kernel(sink, HOPPER)
    assert {node.type.lanes for node in lowered.linear.src if node.op is LOAD} == {4}
    assert np.array_equal(computed(sink, (256, 64), x), x.T)


@pytest.mark.parametrize(("m", "n", "k"), [(32, 32, 16), (40, 36, 24), (33, 17, 20)])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_contraction_is_tiled_in_shared_memory(m: int, n: int, k: int, transposed: bool) -> None:
    a, b = numbers(m, k), numbers(n, k) if transposed else numbers(k, n)
    sink = kernel_of(lambda x, y: x @ (y.T if transposed else y), a, b)
    plan = chosen(sink)
    assert plan.depth
    assert len(plan.staged) == 2
    want = a.astype(np.float64) @ (b.T if transposed else b)
    assert np.allclose(computed(sink, (m, n), a, b), want, atol=1e-4)


@pytest.mark.parametrize(("m", "n", "k"), [(128, 256, 24), (130, 132, 20), (129, 130, 13)])
@pytest.mark.parametrize("transposed", [False, True])
def test_large_tiles_are_turned_on_their_way_and_shared_by_warps_of_fours(
    m: int, n: int, k: int, transposed: bool
) -> None:
    a, b = numbers(m, k), numbers(n, k) if transposed else numbers(k, n)
    sink = kernel_of(lambda x, y: x @ (y.T if transposed else y), a, b)
    plan = choose_gpu_plan(analyse(normalise_ranges(sink)), SMALL)
    assert (plan.threads, plan.depth, plan.resident) == (256, 16, 2)
    want = a.astype(np.float64) @ (b.T if transposed else b)
    assert np.allclose(computed(sink, (m, n), a, b, target=SMALL), want, atol=1e-4)


def test_a_gathered_factor_leaves_registers_to_the_compiler() -> None:
    a, b = numbers(128, 16), numbers(16, 128)
    plain = kernel_of(lambda x, y: x @ y, a, b)
    activated = kernel_of(lambda x, y: x.relu() @ y, a, b)
    plans = [choose_gpu_plan(analyse(normalise_ranges(s)), SMALL) for s in (plain, activated)]
    assert [plan.resident for plan in plans] == [2, 0]


def test_threads_of_a_half_warp_read_the_same_as_their_neighbours_or_those_two_apart() -> None:
    a, b = numbers(128, 16), numbers(16, 128)
    kernel = analyse(normalise_ranges(kernel_of(lambda x, y: x @ y, a, b)))
    plan = choose_gpu_plan(kernel, SMALL)
    places = []
    for thread in range(256):
        shared = thread_places(plan, const_index(0), const_index(thread))
        places.append([value_of(digit) for digit in shared if digit is not None])
    rows, columns = ([(p[0], p[1]) for p in places], [(p[2], p[3]) for p in places])
    assert all(rows[t] == rows[t ^ 2] and columns[t] == columns[t ^ 1] for t in range(256))
    assert len({(*r, *c) for r, c in zip(rows, columns, strict=True)}) == 256


def test_tiles_of_a_contraction_wait_twice_for_each_step() -> None:
    a, b = numbers(64, 64), numbers(64, 64) + 1
    lowered = lower_kernel(kernel_of(lambda x, y: x @ y, a, b), HOPPER)
    assert sum(node.op is BARRIER for node in lowered.linear.src) == 2


def test_a_plain_plan_is_one_thread() -> None:
    x = numbers(5, 33)
    sink = kernel_of(lambda a: a.sum(1), x)
    plan = plain_gpu_plan(analyse(normalise_ranges(sink)))
    assert plan.threads == 1
    assert np.allclose(computed(sink, (5,), x, plan=plan), x.sum(1), atol=1e-5)


def test_a_plan_for_a_processor_is_refused() -> None:
    kernel = analyse(normalise_ranges(kernel_of(lambda a: a + 1.0, numbers(64))))
    with pytest.raises(PlanError, match="needs a plan for them"):
        check_gpu_plan(Plan((), ((0, 0),), 1), kernel, HOPPER)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"splits": (Split(9, (Part(Unit.LOOP),)),)}, "does not exist"),
        ({"splits": (Split(0, (Part(Unit.LOOP),), (Part(Unit.LANE, 3),)),)}, "power of two"),
        ({"splits": (Split(0, (Part(Unit.LOOP),), (Part(Unit.LANE, 8),)),)}, "past the end"),
        ({"splits": (Split(0, (Part(Unit.LOOP),), (Part(Unit.THREAD, 4),)),)}, "a tile is made"),
        ({"nest": ()}, "every output range once"),
        ({"tasks": 2}, "more tasks than loops"),
        ({"block": 2048}, "too many threads"),
        ({"depth": 16}, "no contraction"),
    ],
)
def test_what_breaks_a_rule_is_refused(change: dict[str, object], message: str) -> None:
    kernel = analyse(normalise_ranges(kernel_of(lambda a: a + 1.0, numbers(60))))
    good = GpuPlan((), ((0, 0),), 1, (), overlap=False, block=32)
    assert check_gpu_plan(good, kernel, HOPPER) is good
    with pytest.raises(PlanError, match=message):
        check_gpu_plan(replace(good, **change), kernel, HOPPER)  # type: ignore[arg-type]


@pytest.mark.parametrize("columns", [64, 256, 1024])
def test_a_scan_is_shared_by_the_threads_of_a_block(columns: int) -> None:
    x = numbers(2, columns)
    sink = kernel_of(lambda a: a.cumsum(-1), x)
    lowered = lower_kernel(sink, HOPPER)
    assert any(node.op is SCAN_THREADS for node in lowered.linear.src)
    want = np.cumsum(x.astype(np.float64), -1)
    assert np.allclose(computed(sink, (2, columns), x), want, atol=1e-4)


def test_a_scan_whose_length_no_block_has_is_a_loop() -> None:
    x = numbers(3, 77)
    sink = kernel_of(lambda a: a.cumsum(-1), x)
    assert not any(node.op is SCAN_THREADS for node in lower_kernel(sink, HOPPER).linear.src)
    assert np.allclose(computed(sink, (3, 77), x), np.cumsum(x, -1), atol=1e-4)


def test_tiles_are_loaded_before_the_loop_and_one_step_ahead_inside() -> None:
    a, b = numbers(64, 64), numbers(64, 64) + 1
    statements = lower_kernel(kernel_of(lambda x, y: x @ y, a, b), HOPPER).linear.src
    loops = [at for at, n in enumerate(statements) if n.op is RANGE and n.attrs.unit is Unit.LOOP]
    loads = [at for at, n in enumerate(statements) if n.op is LOAD and is_global(n)]
    stores = [at for at, n in enumerate(statements) if n.op is STORE and not is_global(n)]
    assert [at for at in loads if at < loops[0]]
    ahead = [at for at in loads if loops[0] < at < loops[1]]
    assert len(ahead) == len(loads) - len([at for at in loads if at < loops[0]])
    assert min(ahead) > max(stores)


def is_global(node: Node) -> bool:
    return node.src[0].type.memory is Memory.GLOBAL


def test_several_folds_of_columns_are_shared_by_warps() -> None:
    x, y = numbers(96, 64), numbers(96, 64)
    sink = kernel_of(lambda a, b: (a * b).sum(0) + a.max(0), x, y)
    plan = chosen(sink)
    assert plan.unit_size(Unit.WARP) >= 8
    want = (x * y).sum(0) + x.max(0)
    assert np.allclose(computed(sink, (64,), x, y), want, atol=1e-4)


def scattered(rows: int, columns: int, *, stride: int) -> Node:
    """target[row * stride + place[row]] -= 1, as far as the place is one of the columns."""
    row = RANGE(const_index(rows), attrs=RangeAttrs(0))
    size = rows * stride + columns
    target = PARAM(attrs=ParamAttrs(0, (size,), float32))
    places = PARAM(attrs=ParamAttrs(1, (rows,), int64))
    place = cast(LOAD(INDEX(places, row)), index)
    inside = math.AND(
        math.LT(math.MUL(place, const_index(-1)), const_index(1)),
        math.LT(place, const_index(columns)),
    )
    at = INDEX(target, math.ADD(math.MUL(row, const_index(stride)), place))
    value = math.SUB(LOAD(at, inside), const(1.0, float32))
    return SINK(STORE(at, value, inside))


def test_rows_whose_loaded_places_cannot_meet_are_done_side_by_side() -> None:
    kernel = analyse(scattered(64, 10, stride=10))
    assert kernel.serial == set(kernel.outputs)
    assert not kernel.meeting
    assert chosen(kernel.sink).tasks == 1


def test_rows_whose_loaded_places_may_meet_run_in_order() -> None:
    kernel = analyse(scattered(64, 11, stride=10))
    assert kernel.meeting == set(kernel.outputs)
    assert chosen(kernel.sink).tasks == 0
