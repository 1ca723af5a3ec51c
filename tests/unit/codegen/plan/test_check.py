"""Each way in which a plan can be illegal is refused by name."""

from dataclasses import replace
from typing import Any

import pytest

from tilework.base.errors import PlanError, UnsupportedError
from tilework.codegen.analysis import Kernel, analyse
from tilework.codegen.plan.apply import apply_plan
from tilework.codegen.plan.check import check
from tilework.codegen.plan.choose import choose_plan
from tilework.codegen.plan.plan import Part, Plan, Split, Staged
from tilework.dtypes import float32, index, int32
from tilework.ir.build import cast, const_index
from tilework.ir.node import Node
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, VARIABLE, RangeAttrs, Unit, VariableAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.tensor import REDUCE, SCAN, Fold, ReduceAttrs, ScanAttrs
from tilework.ir.symbolic import simplify
from tilework.ir.types import Memory
from tilework.target.known.cpu import x86_level_spec
from tilework.target.spec import CopyEngine, MatrixInstruction

TARGET = x86_level_spec("x86-64-v3", cores=2)
LOOP = Part(Unit.LOOP)


def loop(number: int, size: int | Node) -> Node:
    node = const_index(size) if isinstance(size, int) else size
    return RANGE(node, attrs=RangeAttrs(number))


def at(slot: int, count: int, offset: Node) -> Node:
    return INDEX(PARAM(attrs=ParamAttrs(slot, (count,), float32)), offset)


def flat(i: Node, width: int, j: Node) -> Node:
    return simplify.add(simplify.scale(i, width), j)


def product(m: int = 12, n: int = 32, k: int = 20) -> Kernel:
    """A matrix product: ranges 0 and 1 are rows and columns, 2 is summed over."""
    i, j, p = loop(0, m), loop(1, n), loop(2, k)
    pair = math.MUL(LOAD(at(1, m * k, flat(i, k, p))), LOAD(at(2, k * n, flat(p, n, j))))
    total = REDUCE(pair, p, attrs=ReduceAttrs(Fold.ADD))
    return analyse(SINK(STORE(at(0, m * n, flat(i, n, j)), total)))


def copy(size: int | Node, *, in_place: bool = False) -> Kernel:
    i = loop(0, size)
    value = LOAD(at(0 if in_place else 1, 100, i))
    return analyse(SINK(STORE(at(0, 100, i), math.ADD(value, value))))


def scan() -> Kernel:
    """A running sum along range 1, for each row of range 0."""
    i, j = loop(0, 8), loop(1, 9)
    offset = flat(i, 9, j)
    running = SCAN(LOAD(at(1, 72, offset)), j, attrs=ScanAttrs(Fold.ADD, 0))
    return analyse(SINK(STORE(at(0, 72, offset), running)))


def scatter() -> Kernel:
    """A store at a loaded place: range 0 runs in order."""
    i = loop(0, 16)
    places = PARAM(attrs=ParamAttrs(2, (16,), int32))
    place = cast(LOAD(INDEX(places, i)), index)
    return analyse(SINK(STORE(at(0, 100, place), LOAD(at(1, 16, i)))))


def plain(kernel: Kernel, *splits: Split, tasks: int = 0, **fields: Any) -> Plan:
    numbers = [int(r.attrs.number) for r in kernel.outputs]
    by_number = {split.number: split for split in splits}
    nest = [
        (n, part)
        for n in numbers
        for part in range(len(by_number[n].outer) if n in by_number else 1)
    ]
    return replace(Plan(splits, tuple(nest), tasks), **fields)


def tile(number: int, *parts: Part, outer: tuple[Part, ...] = (LOOP,)) -> Split:
    return Split(number, outer, parts)


def lanes(size: int) -> Part:
    return Part(Unit.LANE, size)


def unroll(size: int) -> Part:
    return Part(Unit.UNROLL, size)


def refuse(kernel: Kernel, plan: Plan, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        check(plan, kernel, TARGET)


@pytest.mark.parametrize("kernel", [product(), copy(100), scan(), scatter()])
def test_the_default_plan_is_legal(kernel: Kernel) -> None:
    check(choose_plan(kernel, TARGET), kernel, TARGET)


def test_a_split_of_no_range_is_refused() -> None:
    refuse(copy(100), plain(copy(100), tile(7)), "range that does not exist")


def test_two_splits_of_one_range_are_refused() -> None:
    refuse(copy(100), plain(copy(100), tile(0), tile(0)), "split twice")


@pytest.mark.parametrize(
    "outer", [(), (Part(Unit.LOOP, 4),), (LOOP, LOOP), (LOOP, Part(Unit.LOOP, 2)) * 2]
)
def test_outer_parts_are_the_rest_and_one_block(outer: tuple[Part, ...]) -> None:
    kernel = copy(100)
    plan = Plan((Split(0, outer),), ((0, 0),), 0)
    refuse(kernel, plan, "outer parts")


def test_an_outer_part_names_no_other_unit() -> None:
    plan = plain(copy(100), Split(0, (Part(Unit.THREAD),)))
    refuse(copy(100), plan, "outer part is no loop")


def test_a_tile_holds_no_loops() -> None:
    refuse(copy(100), plain(copy(100), tile(0, Part(Unit.LOOP, 4))), "unrolled copies and lanes")


def test_lanes_move_fastest() -> None:
    refuse(copy(100), plain(copy(100), tile(0, lanes(4), unroll(2))), "lanes must move fastest")


def test_an_empty_part_is_refused() -> None:
    refuse(copy(100), plain(copy(100), tile(0, unroll(0))), "is empty")


@pytest.mark.parametrize("size", [3, 64])
def test_lanes_fit_a_vector(size: int) -> None:
    refuse(copy(100), plain(copy(100), tile(0, lanes(size))), "so many lanes")


def test_a_blocked_reduction_is_refused() -> None:
    split = tile(2, outer=(LOOP, Part(Unit.LOOP, 2)))
    refuse(product(), plain(product(), split), "reduction's range is blocked")


def test_a_tile_longer_than_the_reduction_is_refused() -> None:
    refuse(product(k=3), plain(product(k=3), tile(2, unroll(4))), "longer than the reduction")


def test_a_tile_longer_than_the_range_is_refused() -> None:
    refuse(copy(5), plain(copy(5), tile(0, lanes(8))), "longer than its range")


def test_a_tile_longer_than_a_symbolic_range_may_be_is_refused() -> None:
    kernel = copy(VARIABLE(attrs=VariableAttrs("n", 2, 100)))
    refuse(kernel, plain(kernel, tile(0, lanes(4))), "longer than its range")


def test_a_gated_tile_may_be_longer_than_the_range() -> None:
    check(plain(copy(5), tile(0, lanes(8)), overlap=False), copy(5), TARGET)


def test_tiles_do_not_overlap_in_place() -> None:
    kernel = copy(30, in_place=True)
    refuse(kernel, plain(kernel, tile(0, lanes(4))), "written once")


@pytest.mark.parametrize("nest", [(), ((0, 0), (0, 0)), ((0, 0), (1, 0))])
def test_the_nest_holds_every_part_once(nest: tuple[tuple[int, int], ...]) -> None:
    refuse(copy(100), Plan((), nest, 0), "every outer part")


def test_a_block_stands_inside_of_its_outer_part() -> None:
    split = tile(0, outer=(LOOP, Part(Unit.LOOP, 2)))
    refuse(copy(100), Plan((split,), ((0, 1), (0, 0)), 0), "inner part stands outside")


@pytest.mark.parametrize("tasks", [-1, 2])
def test_tasks_are_loops_of_the_nest(tasks: int) -> None:
    refuse(copy(100), plain(copy(100), tasks=tasks), "more tasks than loops")


def test_a_serial_range_is_no_task() -> None:
    refuse(scatter(), plain(scatter(), tasks=1), "run in order is split in tasks")


def test_a_serial_range_has_no_lanes() -> None:
    refuse(scatter(), plain(scatter(), tile(0, lanes(4))), "run in order has a tile")


def test_tasks_over_blocks_need_full_blocks() -> None:
    split = tile(0, outer=(LOOP, Part(Unit.LOOP, 3)))
    refuse(copy(100), plain(copy(100), split, tasks=2), "not all full")


def test_a_scan_is_not_blocked() -> None:
    split = tile(1, outer=(LOOP, Part(Unit.LOOP, 3)))
    refuse(scan(), plain(scan(), split), "scan's range is blocked")


def test_the_loop_of_a_scan_is_the_innermost() -> None:
    refuse(scan(), Plan((), ((1, 0), (0, 0)), 0), "scan's loop stands outside")


def test_lanes_along_two_ranges_are_refused() -> None:
    plan = plain(product(), tile(0, lanes(4)), tile(1, lanes(4)))
    refuse(product(), plan, "lanes along two ranges")


def test_lanes_of_a_reduction_and_of_its_result_are_refused() -> None:
    plan = plain(product(), tile(1, lanes(4)), tile(2, lanes(4)))
    refuse(product(), plan, "lanes along two ranges")


def test_accumulators_fit_the_registers() -> None:
    plan = plain(product(), tile(0, unroll(6)), tile(1, unroll(4)))
    refuse(product(), plan, "more accumulators than registers")


def test_unrolling_has_a_limit() -> None:
    plan = plain(copy(5000), tile(0, unroll(2000)))
    refuse(copy(5000), plan, "too many copies")


def staged(*copies: Staged, kernel: Kernel | None = None, **fields: Any) -> Plan:
    return plain(kernel or product(), staged=copies, **fields)


def test_a_kernel_without_contraction_stages_nothing() -> None:
    refuse(copy(100), staged(Staged(0, Memory.TILE, 0), kernel=copy(100)), "no contraction")


def test_only_two_factors_can_be_staged() -> None:
    refuse(product(), staged(Staged(2, Memory.TILE, 1)), "no such factor")


def test_a_factor_is_staged_once() -> None:
    copies = Staged(0, Memory.TILE, 1), Staged(0, Memory.TILE, 2)
    refuse(product(), staged(*copies), "staged twice")


def test_a_copy_lives_in_tile_memory() -> None:
    refuse(product(), staged(Staged(0, Memory.GLOBAL, 1)), "memory that this target has not")


@pytest.mark.parametrize("level", [0, 3])
def test_a_copy_loop_stands_between_tasks_and_tile(level: int) -> None:
    refuse(product(), staged(Staged(0, Memory.TILE, level), tasks=1), "copy loop stands outside")


def test_a_copy_moves_at_least_one_element() -> None:
    refuse(product(), staged(Staged(0, Memory.TILE, 1, 0)), "another number of lanes")


@pytest.mark.parametrize("depth", [0, 2])
def test_a_ring_of_copies_needs_a_copy_engine(depth: int) -> None:
    refuse(product(), staged(Staged(0, Memory.TILE, 1, depth=depth)), "ring of copies")


def test_a_matrix_instruction_is_one_of_the_target() -> None:
    refuse(product(), plain(product(), matrix="wgmma"), "no such matrix instruction")


def test_a_matrix_instruction_has_the_factors_of_the_contraction() -> None:
    mma = MatrixInstruction(
        name="mma", unit="warp", m=16, n=8, k=8,
        a_dtype="float32", b_dtype="float32", accumulator_dtype="float32",
    )  # fmt: skip
    target = replace(TARGET, matrix_instructions=(mma,))
    with pytest.raises(PlanError, match="other factors than the contraction"):
        check(plain(product(), matrix="mma"), product(), target)


def test_a_word_that_is_not_lowered_is_refused_and_not_left_out() -> None:
    engine = CopyEngine(
        name="bulk", source_memory="RAM", target_memory="L2", granularity_bytes=16,
        alignment_bytes=16,
    )  # fmt: skip
    target = replace(TARGET, copy_engines=(engine,))
    ring = plain(product(), tile(0, unroll(4)), staged=(Staged(0, Memory.TILE, 1, depth=2),))
    check(ring, product(), target)
    with pytest.raises(UnsupportedError, match="not lowered here"):
        apply_plan(product(), ring)


def test_staged_copies_fit_the_memory_of_a_worker() -> None:
    kernel = product(1 << 12, 64, 1 << 18)
    refuse(kernel, staged(Staged(0, Memory.TILE, 0), kernel=kernel), "worker's memory")


def test_staged_tiles_fit_or_reach_back() -> None:
    plan = plain(product(), tile(0, unroll(5)), staged=(Staged(0, Memory.TILE, 1),), overlap=False)
    refuse(product(), plan, "reach back or fit")


def test_memory_is_not_fetched_before_its_beginning() -> None:
    kernel = product()
    plan = choose_plan(kernel, TARGET)
    refuse(kernel, replace(plan, ahead=-64), "fetched before")
