"""Writes in place: versions, hazards, and the order of kernels."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.property.schedule.schedule_graphs import check, random_value, run_schedule, to_bytes
from tests.unit.schedule.schedule_builders import (
    assign,
    expand,
    flip,
    gather,
    iota,
    kernels,
    like,
    matmul,
    pad,
    param,
    permute,
    reduce,
    reshape,
    schedule,
    shrink,
    sizes_of,
)

from tilework.base.errors import ScheduleCycleError, UserError
from tilework.dtypes import float32, int16, int32, uint8
from tilework.ir.build import cast, const
from tilework.ir.interpret import Value, evaluate_all
from tilework.ir.node import Node
from tilework.ir.ops import math, memory, tensor
from tilework.ir.ops.tensor import Fold
from tilework.schedule.linear import assemble
from tilework.schedule.passes import order
from tilework.schedule.passes.group import Group
from tilework.schedule.passes.prepare import Layout
from tilework.schedule.passes.rangeify import Rangeify
from tilework.schedule.schedule import Limits, SlotKind

RNG = random.Random(7)


def ints(slot: int, *shape: int) -> Node:
    return param(slot, shape, int32)


def bind(*params: Node) -> dict[Node, Value]:
    return {node: random_value(RNG, sizes_of(node), node.type.dtype) for node in params}


def one(x: Node) -> Node:
    return const(1, int32, x.type.shape)


# --- outputs -------------------------------------------------------------------------------------


def test_an_output_that_is_an_input_is_its_slot() -> None:
    a = ints(0, 4)
    made = schedule(a)
    assert made.outputs == (0,)
    assert made.linear.src == ()


def test_an_output_that_is_a_view_of_an_input_is_a_copy() -> None:
    a = ints(0, 2, 3)
    made = check([permute(a, 1, 0), reshape(a, 6)], bind(a))
    assert made.outputs == (1, 2)


def test_an_output_that_occurs_twice_gets_two_slots() -> None:
    a = ints(0, 4)
    y = math.ADD(a, one(a))
    made = check([y, y], bind(a))
    assert made.outputs == (1, 2)
    assert len(made.linear.src) == 1


def test_a_constant_output_is_written() -> None:
    made = check([const(3, int32, (2, 2))], {})
    assert len(made.linear.src) == 1


def test_an_output_without_elements_needs_no_kernel() -> None:
    a = ints(0, 0, 3)
    made = schedule(math.ADD(a, one(a)))
    assert made.linear.src == ()
    assert made.slots[1].size_bytes == 0


def test_contiguous_of_an_input_is_a_copy_of_it() -> None:
    a = ints(0, 4)
    made = check([tensor.CONTIGUOUS(a), assign(a, one(a))], bind(a))
    assert made.outputs == (1, 0)


def test_an_input_that_is_overwritten_can_be_an_output_as_well() -> None:
    a = ints(0, 4)
    made = check([a, assign(a, math.ADD(a, a))], bind(a))
    assert made.outputs == (1, 0)


# --- versions ------------------------------------------------------------------------------------


def test_many_writes_in_place_are_one_kernel() -> None:
    a = ints(0, 4)
    state = a
    for _ in range(50):
        state = assign(state, math.ADD(state, one(a)))
    made = check([state], bind(a))
    assert len(made.linear.src) == 1
    assert made.arena_bytes == 0


def test_each_reader_sees_its_own_version() -> None:
    a = ints(0, 4)
    first = assign(a, one(a))
    second = assign(first, math.MUL(first, const(5, int32, (4,))))
    outputs = [math.NEG(a), math.NEG(first), math.NEG(second), second]
    check(outputs, bind(a))


def test_an_intermediate_version_as_output_is_copied() -> None:
    a = ints(0, 6)
    first = assign(a, const(9, int32, (2,)), view=shrink(a, (1, 3)))
    second = assign(first, const(8, int32, (2,)), view=shrink(first, (2, 4)))
    made = check([first, second], bind(a))
    assert made.outputs == (1, 0)


def test_a_value_that_is_written_to_keeps_its_old_readers() -> None:
    a = ints(0, 4)
    x = math.ADD(a, one(a))
    written = assign(x, const(0, int32, (2,)), view=shrink(x, (0, 2)))
    check([x, written, math.ADD(x, written)], bind(a))


def test_two_tensors_with_one_expression_are_written_apart() -> None:
    a = ints(0, 4)
    x = math.ADD(a, one(a))
    first = assign(x, const(1, int32, (1,)), view=shrink(x, (0, 1)))
    second = assign(x, const(2, int32, (1,)), view=shrink(x, (3, 4)))
    made = check([first, second], bind(a))
    assert len(set(made.outputs)) == 2


def test_SCH_09_two_writes_from_one_version_of_an_input_are_refused() -> None:
    a = ints(0, 4)
    with pytest.raises(ScheduleCycleError, match="two writes start from the same version") as info:
        schedule(assign(a, one(a)), assign(a, math.NEG(a)))
    assert info.value.path == ("version 0 of input 0", "version 1")


def test_SCH_09_writes_to_overlapping_parts_happen_in_order() -> None:
    a = ints(0, 6)
    state = a
    for number in range(4):
        part = shrink(state, (number, number + 3))
        state = assign(state, const(number, int32, (3,)), view=part)
    made = check([state], bind(a))
    assert len(made.linear.src) == 4


# --- hazards -------------------------------------------------------------------------------------


def test_SCH_11_a_reversed_assignment_sees_the_old_values() -> None:
    a = ints(0, 7)
    check([assign(a, flip(a, 0))], bind(a))


def test_SCH_11_a_transposed_assignment_sees_the_old_values() -> None:
    a = ints(0, 3, 3)
    check([assign(a, permute(a, 1, 0))], bind(a))


def test_SCH_11_a_gathered_assignment_sees_the_old_values() -> None:
    a = ints(0, 5)
    where = math.MOD(
        math.ADD(iota((5,), 0), const(2, iota((5,), 0).dtype, (5,))),
        const(5, iota((5,), 0).dtype, (5,)),
    )
    check([assign(a, gather(a, where))], bind(a))


def test_SCH_11_a_padded_shift_sees_the_old_values() -> None:
    a = ints(0, 5)
    check([assign(a, pad(shrink(a, (0, 4)), (1, 0)))], bind(a))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_SCH_11_every_overlap_of_two_slices_sees_the_old_values(size: int) -> None:
    spans = [(i, j) for i, j in itertools.combinations(range(size + 1), 2)]
    pairs = [(x, y) for x in spans for y in spans if x[1] - x[0] == y[1] - y[0]]
    for (target, source), mirrored in itertools.product(pairs, (False, True)):
        a = ints(0, size)
        value = shrink(a, source)
        if mirrored:
            value = flip(value, 0)
        check([assign(a, math.ADD(value, one(value)), view=shrink(a, target))], bind(a))


def test_an_update_at_the_same_element_needs_no_copy() -> None:
    a = ints(0, 4, 4)
    part = shrink(a, (1, 3), (0, 4))
    made = check([assign(a, math.ADD(part, one(part)), view=part)], bind(a))
    assert len(made.linear.src) == 1
    assert made.arena_bytes == 0


def test_SCH_10_a_swap_is_made_with_one_copy() -> None:
    a, b = ints(0, 4), ints(1, 4)
    made = check([assign(a, math.MUL(b, one(b))), assign(b, math.MUL(a, one(a)))], bind(a, b))
    assert made.outputs == (0, 1)
    assert len(made.linear.src) == 3


def test_a_rotation_of_three_tensors_is_made_with_copies() -> None:
    a, b, c = (ints(number, 4) for number in range(3))
    check([assign(a, math.NEG(b)), assign(b, math.NEG(c)), assign(c, math.NEG(a))], bind(a, b, c))


def test_old_and_new_contents_can_meet_in_one_value() -> None:
    a = ints(0, 4)
    new = assign(a, const(3, int32, (2,)), view=shrink(a, (1, 3)))
    check([new, math.ADD(flip(a, 0), new)], bind(a))


def test_a_bitcast_reads_what_an_assignment_made() -> None:
    a = ints(0, 4)
    new = assign(a, math.ADD(a, one(a)))
    narrow = math.BITCAST(new, attrs=math.CastAttrs(uint8))
    last = assign(new, flip(a, 0))
    check([narrow, last], bind(a))


def test_SCH_10_a_failing_schedule_changes_nothing() -> None:
    a = ints(0, 4)
    values = bind(a)
    with pytest.raises(ScheduleCycleError):
        schedule(assign(a, one(a)), assign(a, math.NEG(a)))
    check([assign(a, one(a))], values)


def test_SCH_23_the_same_program_can_be_tried_again() -> None:
    a = ints(0, 4)
    bad = [assign(a, one(a)), assign(a, math.NEG(a))]
    for _ in range(2):
        with pytest.raises(ScheduleCycleError):
            schedule(*bad)
    assert kernels(bad[0]) == 1


@pytest.mark.parametrize("as_read", [lambda x: x, lambda x: tensor.CONTIGUOUS(math.NEG(x))])
def test_SCH_05_a_scan_of_a_repeated_value_whose_storage_is_overwritten(
    as_read: Callable[[Node], Node],
) -> None:
    """The running value must see each repetition apart, though nobody else needs the old ones."""
    x = ints(0, 2, 1, 2)
    repeated = as_read(expand(x, (2, 3, 2)))
    running = tensor.SCAN(repeated, attrs=tensor.ScanAttrs(Fold.ADD, 0, False, False))
    check([running, assign(repeated, flip(running, 0))], bind(x))


# --- order ---------------------------------------------------------------------------------------


def history() -> tuple[list[Node], dict[Node, Value]]:
    a, b = ints(0, 6), ints(1, 6)
    outputs: list[Node] = []
    state = a
    for number in range(5):
        outputs.append(math.ADD(flip(state, 0), b))
        state = assign(state, math.ADD(state, b))
        part = shrink(state, (number, number + 2))
        state = assign(state, const(number, int32, (2,)), view=part)
    return [*outputs, state], bind(a, b)


def test_SCH_07_no_kernel_runs_before_the_writer_of_what_it_reads() -> None:
    outputs, values = history()
    check(outputs, values)


def test_SCH_08_no_version_is_overwritten_while_a_reader_waits() -> None:
    outputs, values = history()
    check(outputs, values, Limits(nodes=2))


def test_SCH_09_an_early_write_is_not_joined_with_a_reader_of_what_overwrites_it() -> None:
    a, x = ints(0, 3), ints(1, 3)
    shared = math.MUL(x, x)
    first = assign(a, math.ADD(shared, a), view=shrink(a, (0, 3)))
    second = assign(first, flip(a, 0))
    third = assign(second, gather(second, remainder(x)), view=shrink(second, (0, 3)))
    check([gather(third, remainder(shared)), second, third], bind(a, x))


def remainder(x: Node) -> Node:
    """Places in an axis of 3 elements."""
    return cast(math.MOD(x, const(3, int32, x.type.shape)), int16)


def run_without(
    outputs: list[Node], values: dict[Node, Value], dropped: int
) -> tuple[bool, bool, int]:
    """Schedule with one WAR edge left out and its writer first: moved? right? how many edges?"""
    layout = Layout(memory.SINK(*outputs))
    limits = Limits(small_elements=0)
    ordering = order.Ordering(layout, Rangeify(layout, limits).kernels)
    edges = [edge for edge in ordering._protects if edge not in ordering._needed]
    reader, writer = edges[dropped]
    del ordering.after[reader][writer]
    for number, kernel in enumerate(ordering.kernels):
        kernel.position = number + 1000
    early = [writer]
    for kernel in early:  # what the writer waits for comes early as well
        kernel.position -= 1000
        early += [k for k, later in ordering.after.items() if kernel in later and k not in early]
    sequence = order.topological(ordering.kernels, ordering.after)
    is_moved = sequence.index(writer) < sequence.index(reader)
    made = assemble(layout, [Group([kernel], False) for kernel in sequence])
    slots, _ = run_schedule(made, [to_bytes(values[node]) for node in values])
    right = all(
        slots[slot] == to_bytes(value)
        for slot, value in zip(made.outputs, evaluate_all(outputs, values), strict=True)
    )
    return is_moved, right, len(edges)


def test_SCH_08_each_edge_that_protects_a_version_is_needed() -> None:
    """Without an edge, an order that uses the freedom gives a wrong result."""
    a, b = (Value((6,), int32, list(range(start, start + 6))) for start in (1, 20))
    outputs, params = history()
    values = dict(zip(params, (a, b), strict=True))
    count = run_without(outputs, values, 0)[2]
    results = [run_without(outputs, values, number)[:2] for number in range(count)]
    assert count >= 5
    assert (True, True) not in results
    assert sum(moved for moved, _ in results) >= 3


def test_topological_order_prefers_the_order_of_the_graph() -> None:
    class Fake:
        def __init__(self, position: int) -> None:
            self.position = position

    made: list[Any] = [Fake(position) for position in (2, 1, 0)]
    first, second, third = made
    after: dict[Any, dict[Any, None]] = {first: {}, second: {}, third: {first: None}}
    assert order.topological(made, after) == [third, second, first]


# --- devices -------------------------------------------------------------------------------------


def test_SCH_18_a_kernel_over_two_devices_is_refused_with_both_names() -> None:
    x = param(0, (4,), float32, "CPU")
    y = param(1, (4,), float32, "CUDA:1")
    with pytest.raises(UserError, match="operands are on different devices") as info:
        schedule(math.ADD(x, y))
    assert "CPU and CUDA:1" in str(info.value)


def copy(x: Node, device: str) -> Node:
    return tensor.COPY(x, attrs=tensor.DeviceAttrs(device))


def test_SCH_18_a_contiguous_copy_is_a_copy_call() -> None:
    x = param(0, (4,), float32, "CPU")
    made = schedule(copy(x, "CUDA:1"))
    assert [call.src[0].op for call in made.linear.src] == [tensor.COPY]
    assert made.slots[1].device == "CUDA:1"


@pytest.mark.parametrize("change", ["offset", "flip", "cast", "op"])
def test_SCH_18_what_is_nearly_a_copy_is_computed_on_its_device_first(change: str) -> None:
    x = param(0, (4,), int32, "CPU")
    near = {
        "offset": shrink(x, (1, 4)),
        "flip": flip(x, 0),
        "cast": math.CAST(x, attrs=math.CastAttrs(float32)),
        "op": math.NEG(x),
    }[change]
    made = check([copy(near, "CUDA:1")], bind(x))
    assert [call.src[0].op for call in made.linear.src] == [memory.SINK, tensor.COPY]


def test_work_after_a_copy_runs_on_the_other_device() -> None:
    x = param(0, (4,), int32, "CPU")
    moved = copy(x, "CUDA:1")
    made = check([math.ADD(moved, one(moved))], bind(x))
    arena = [slot for slot in made.slots if slot.kind is SlotKind.ARENA]
    assert [slot.device for slot in arena] == ["CUDA:1"]


def test_what_another_device_waits_for_is_written_by_a_kernel_that_waits_for_none() -> None:
    x, there = param(0, (64, 8), int32, "CPU"), param(1, (64,), int32, "CUDA:1")
    sums = reduce(x, 1)
    outputs = [math.ADD(sums, copy(there, "CPU")), math.NEG(copy(sums, "CUDA:1"))]
    made = check(outputs, bind(x, there))
    assert [len(report.stores) for report in made.reports] == [1] * 5


def test_intermediates_alive_at_once_are_counted_on_each_device() -> None:
    first = matmul(param(0, (64, 8)), param(1, (8, 256)))
    second = matmul(first, param(2, (256, 16)))
    made = schedule(matmul(copy(second, "CUDA:1"), param(3, (16, 8), device="CUDA:1")))
    sizes = 64 * 256 * 4, 64 * 16 * 4, 64 * 16 * 4
    assert made.intermediates.live_bytes == made.intermediates.unshared_bytes == sum(sizes)


# --- scatter -------------------------------------------------------------------------------------


def test_a_scatter_keeps_the_array_that_it_starts_from() -> None:
    a = ints(0, 4)
    where = math.MOD(a, const(4, int32, (4,)))
    attrs = tensor.GatherAttrs(0, tensor.Fold.ADD)
    made = check([tensor.SCATTER(a, a, where, attrs=attrs), math.NEG(a)], bind(a))
    assert 0 not in made.outputs


def test_a_scatter_that_is_assigned_to_its_source_writes_in_place() -> None:
    a, where, updates = ints(0, 6), ints(1, 3), ints(2, 3)
    made = check(
        [
            assign(
                a,
                tensor.SCATTER(
                    a, updates, math.MOD(where, const(6, int32, (3,))), attrs=tensor.GatherAttrs(0)
                ),
            )
        ],
        bind(a, where, updates),
    )
    assert len(made.linear.src) == 1
    assert made.arena_bytes == 0


def test_a_scatter_in_place_sees_the_old_values_of_its_source() -> None:
    a = ints(0, 6)
    where = math.MOD(a, const(6, int32, (6,)))
    attrs = tensor.GatherAttrs(0, tensor.Fold.ADD)
    check([assign(a, tensor.SCATTER(a, flip(a, 0), where, attrs=attrs))], bind(a))


def test_equal_updates_of_one_place_add_up() -> None:
    base = const(2, int32, (3,))
    where = const(1, int32, (4,))
    updates = const(5, int32, (4,))
    attrs = tensor.GatherAttrs(0, tensor.Fold.ADD)
    check([tensor.SCATTER(base, updates, where, attrs=attrs)], {})


def test_a_broadcast_statistic_can_be_assigned_to_its_source() -> None:
    a = ints(0, 3, 4)
    total = expand(reduce(a, 1, keep=True), (3, 4))
    check([assign(a, math.SUB(a, total))], bind(a))
    column = expand(reduce(a, 0, keep=True), (3, 4))
    check([assign(a, math.SUB(a, column))], bind(a))


def test_like_makes_a_constant_of_the_same_type() -> None:
    x = param(0, (2,))
    assert like(1.0, x).type.shape == (2,)
