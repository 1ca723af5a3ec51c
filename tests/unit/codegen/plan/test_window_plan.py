"""Which folds over windows get a copied input."""

import pytest

from tilework.codegen.analysis import Kernel, analyse
from tilework.codegen.pipeline import lower_kernel
from tilework.codegen.plan.check import check
from tilework.codegen.plan.window_plan import choose_window_plan
from tilework.dtypes import float32
from tilework.ir.build import const_index
from tilework.ir.node import Node
from tilework.ir.ops.index import RANGE, RangeAttrs, Unit
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.tensor import REDUCE, Fold, ReduceAttrs
from tilework.ir.symbolic import simplify
from tilework.target.known.cpu import x86_level_spec

TARGET = x86_level_spec("x86-64-v3", cores=2)


def loop(number: int, size: int) -> Node:
    return RANGE(const_index(size), attrs=RangeAttrs(number))


def pooling(step: int, padding: int, out: int = 24, taps: int = 3) -> Kernel:
    """The greatest of `taps` elements, along one axis of 8 channels."""
    c, x, tap = loop(0, 8), loop(1, out), loop(2, taps)
    size = step * (out - 1) + taps - 2 * padding
    place = simplify.add(simplify.scale(x, step), simplify.add(tap, const_index(-padding)))
    inside = simplify.both(
        simplify.less(const_index(-1), place), simplify.less(place, const_index(size))
    )
    gate = [] if inside is simplify.TRUE else [inside]
    buffer = PARAM(attrs=ParamAttrs(1, (8 * size,), float32))
    read = LOAD(INDEX(buffer, simplify.add(simplify.scale(c, size), place)), *gate)
    target = PARAM(attrs=ParamAttrs(0, (8 * out,), float32))
    total = REDUCE(read, tap, attrs=ReduceAttrs(Fold.MAX))
    return analyse(SINK(STORE(INDEX(target, simplify.add(simplify.scale(c, out), x)), total)))


def test_padded_windows_are_copied_once() -> None:
    kernel = pooling(1, 1)
    plan = choose_window_plan(kernel, TARGET)
    assert plan is not None
    check(plan, kernel, TARGET)
    assert [staged.windows for staged in plan.staged] == [True]


def test_strided_windows_are_copied_once() -> None:
    assert choose_window_plan(pooling(2, 0), TARGET) is not None


def test_plain_windows_are_read_as_they_are() -> None:
    assert choose_window_plan(pooling(1, 0), TARGET) is None


def test_too_few_outputs_for_a_vector_have_no_window_plan() -> None:
    assert choose_window_plan(pooling(1, 1, out=3), TARGET) is None


def test_folds_without_overlap_have_no_window_plan() -> None:
    assert choose_window_plan(pooling(3, 1), TARGET) is None


def deep_pooling(channels: int = 24, padding: int = 1, wide: int = 12) -> Kernel:
    """The greatest of 3 x 3 elements of 12 x `wide` places whose channels lie side by side."""
    y, x, c, first, second = loop(0, 12), loop(1, wide), loop(2, channels), loop(3, 3), loop(4, 3)
    high, size = 14 - 2 * padding, wide + 2 - 2 * padding
    row = simplify.add(y, simplify.add(first, const_index(-padding)))
    column = simplify.add(x, simplify.add(second, const_index(-padding)))
    inside = simplify.all_of(
        condition
        for place, count in ((row, high), (column, size))
        for condition in (
            simplify.less(const_index(-1), place),
            simplify.less(place, const_index(count)),
        )
    )
    gate = [] if inside is simplify.TRUE else [inside]
    pixel = simplify.add(simplify.scale(row, size), column)
    buffer = PARAM(attrs=ParamAttrs(1, (high * size * channels,), float32))
    read = LOAD(INDEX(buffer, simplify.add(simplify.scale(pixel, channels), c)), *gate)
    target = PARAM(attrs=ParamAttrs(0, (12 * wide * channels,), float32))
    total = REDUCE(read, first, second, attrs=ReduceAttrs(Fold.MAX))
    place = simplify.add(simplify.scale(simplify.add(simplify.scale(y, wide), x), channels), c)
    return analyse(SINK(STORE(INDEX(target, place), total)))


def test_channels_that_lie_side_by_side_get_the_lanes() -> None:
    kernel = deep_pooling()
    plan = choose_window_plan(kernel, TARGET)
    assert plan is not None
    check(plan, kernel, TARGET)
    assert [part.unit for part in plan.split_of(2).tile] == [Unit.LANE]


def test_channels_without_padding_are_read_where_they_lie() -> None:
    plan = choose_window_plan(deep_pooling(padding=0), TARGET)
    assert plan is not None
    assert plan.staged == ()


def test_a_copy_of_windows_takes_the_memory_of_one_tile_of_channels() -> None:
    lowered = lower_kernel(deep_pooling().sink, TARGET)
    assert 0 < lowered.scratch_bytes <= 14 * 14 * 8 * 4


def test_too_few_channels_for_a_vector_have_no_window_plan() -> None:
    assert choose_window_plan(deep_pooling(channels=3), TARGET) is None


def test_rows_are_shared_in_whole_parts_of_the_cores() -> None:
    plan = choose_window_plan(deep_pooling(), TARGET)
    assert plan is not None
    assert plan.nest[0] == (0, 0)
    assert plan.split_of(0).outer[1].size == 6


@pytest.mark.parametrize("wide", [7, 11, 13, 17, 19, 26])
def test_several_rows_side_by_side_whatever_the_width_divides_by(wide: int) -> None:
    plan = choose_window_plan(deep_pooling(wide=wide), TARGET)
    assert plan is not None
    (rows,) = plan.split_of(1).tile
    assert 5 <= rows.size <= 8
