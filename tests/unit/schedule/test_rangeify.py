"""Movement ops become index arithmetic; loads are gated where an index may lie outside."""

from __future__ import annotations

import random

import pytest
from tests.property.schedule.schedule_graphs import check, random_value, run_schedule, to_bytes
from tests.property.schedule.symbolic_graphs import N, check_symbolic
from tests.unit.schedule.schedule_builders import (
    assign,
    expand,
    flip,
    gather,
    iota,
    pad,
    param,
    permute,
    reduce,
    reshape,
    schedule,
    shrink,
    sizes_of,
)

from tilework.base.errors import AliasError
from tilework.dtypes import float32, int16, int32, int64, uint8
from tilework.ir.build import cast, const, const_index
from tilework.ir.interpret import Value
from tilework.ir.node import Node, toposort
from tilework.ir.ops import math, memory, tensor
from tilework.ir.ops.program import FAULT_IF
from tilework.ir.ops.tensor import Fold
from tilework.ir.symbolic import dims
from tilework.ir.types import Dim
from tilework.schedule.passes.movement import flatten, reshape_index, unflatten
from tilework.schedule.schedule import Schedule, index_fault


def ints(slot: int, *shape: Dim) -> Node:
    return param(slot, shape, int32)


def bind(*params: Node) -> dict[Node, Value]:
    rng = random.Random(3)
    return {node: random_value(rng, sizes_of(node), node.type.dtype) for node in params}


def ops_of(made: Schedule) -> set[str]:
    return {node.op.name for call in made.linear.src for node in toposort(call.src[0])}


# --- index arithmetic ----------------------------------------------------------------------------


def ranges(*sizes: int) -> tuple[Node, ...]:
    from tilework.schedule.passes.kernel_graph import ranges_of

    return ranges_of(sizes)


def test_flattening_an_index_is_row_major() -> None:
    i, j = ranges(3, 4)
    assert flatten((i, j), (3, 4)) is flatten((i, j), (3, 4))
    assert unflatten(flatten((i, j), (3, 4)), (3, 4)) == [i, j]


@pytest.mark.parametrize(
    ("shape", "source"),
    [((2, 3, 4), (6, 4)), ((6, 4), (2, 3, 4)), ((24,), (2, 3, 4)), ((2, 1, 12), (2, 3, 4, 1))],
)
def test_a_reshape_that_merges_or_splits_axes_needs_few_divisions(
    shape: tuple[int, ...], source: tuple[int, ...]
) -> None:
    x = ints(0, *source)
    made = check([reshape(flip(x, 0), *shape)], bind(x))
    assert not {"idiv", "mod"} & ops_of(made)


def test_a_reshape_across_axes_is_right() -> None:
    x = ints(0, 4, 6)
    check([permute(reshape(permute(x, 1, 0), 3, 8), 1, 0)], bind(x))


def test_reshape_of_symbolic_axes_keeps_equal_ones() -> None:
    index = ranges(2, 3)
    assert reshape_index((index[0], index[1]), (N, 3), (N, 1, 3)) == (
        index[0],
        const_index(0),
        index[1],
    )


# --- gates ---------------------------------------------------------------------------------------


def test_a_padded_load_is_gated_and_needs_no_select() -> None:
    x = ints(0, 3, 4)
    made = check([pad(x, (1, 1), (0, 2))], bind(x))
    assert "where" not in ops_of(made)


def test_a_padded_value_is_selected() -> None:
    x = ints(0, 3, 4)
    made = check([pad(math.ADD(x, const(1, int32, (3, 4))), (1, 1), (0, 2))], bind(x))
    assert "where" in ops_of(made)


def test_a_pad_that_is_cut_off_again_leaves_no_gate() -> None:
    x = ints(0, 3)
    made = check([shrink(pad(x, (2, 2)), (2, 5))], bind(x))
    loads = [n for n in toposort(made.linear.src[0].src[0]) if n.op is memory.LOAD]
    assert [len(load.src) for load in loads] == [1]


def test_padding_of_nothing_is_zero() -> None:
    x = ints(0, 0, 2)
    check([pad(x, (2, 1), (0, 0))], bind(x))


def test_a_reduction_over_nothing_is_the_identity() -> None:
    x = ints(0, 3, 0)
    check([reduce(x, 1), reduce(x, 1, fold=Fold.MAX), reduce(x, 1, fold=Fold.MUL)], bind(x))


# --- gathers and faults --------------------------------------------------------------------------


def run(outputs: list[Node], bindings: dict[Node, Value]) -> tuple[list[bytes], list[int]]:
    made = schedule(*outputs)
    inputs = [to_bytes(bindings[node]) for node in sorted(bindings, key=lambda n: n.attrs.slot)]
    slots, faults = run_schedule(made, inputs)
    return [slots[slot] for slot in made.outputs], faults


@pytest.mark.parametrize("bad", [-1, 4, 1 << 40])
def test_an_index_outside_reads_zero_and_sets_the_fault(bad: int) -> None:
    x, where = ints(0, 4), param(1, (3,), int64)
    bindings = {
        x: Value((4,), int32, [5, 6, 7, 8]),
        where: Value((3,), int64, [1, bad, 3]),
    }
    (raw,), faults = run([gather(x, where)], bindings)
    assert raw == to_bytes(Value((3,), int32, [6, 0, 8]))
    assert faults == [index_fault(4)]


def test_an_index_outside_is_noticed_inside_a_reduction_as_well() -> None:
    x, where = ints(0, 4), param(1, (3,), int64)
    bindings = {x: Value((4,), int32, [5, 6, 7, 8]), where: Value((3,), int64, [1, 9, 3])}
    (raw,), faults = run([reduce(gather(x, where), 0)], bindings)
    assert raw == to_bytes(Value((), int32, [14]))
    assert faults == [index_fault(4)]


def test_a_scatter_outside_writes_nothing_and_sets_the_fault() -> None:
    x, where = ints(0, 2), param(1, (2,), int64)
    updates = const(9, int32, (2,))
    bindings = {x: Value((2,), int32, [1, 2]), where: Value((2,), int64, [0, 2])}
    attrs = tensor.GatherAttrs(0)
    (raw,), faults = run([tensor.SCATTER(x, updates, where, attrs=attrs)], bindings)
    assert raw == to_bytes(Value((2,), int32, [9, 2]))
    assert faults == [index_fault(2)]


def test_counted_indices_need_no_check() -> None:
    x = ints(0, 5)
    made = check([gather(x, iota((5,), 0))], bind(x))
    assert FAULT_IF.name not in ops_of(made)
    assert "where" not in ops_of(made)


def test_a_gather_by_gathered_indices() -> None:
    x, y = ints(0, 4, 3), ints(1, 6)
    first = math.MOD(y, const(6, int32, (6,)))
    second = math.MOD(gather(y, first), const(4, int32, (6,)))
    check([gather(x, second), reduce(gather(x, second), 0)], bind(x, y))


# --- dtypes, variables, scans --------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [uint8, int16, int64])
def test_a_bitcast_to_another_width_reads_the_same_bytes(dtype: object) -> None:
    x = ints(0, 3, 4)
    y = math.ADD(x, const(1, int32, (3, 4)))
    check([math.BITCAST(y, attrs=math.CastAttrs(dtype)), reduce(y, 1)], bind(x))  # type: ignore[arg-type]


def test_comparisons_of_counters_become_conditions_on_loops() -> None:
    shape = (4, 4)
    mask = math.LT(iota(shape, 0, int32), iota(shape, 1, int32))
    x = ints(0, 4, 4)
    made = check([math.WHERE(mask, x, const(0, int32, shape))], bind(x))
    assert "cast" not in ops_of(made)


def test_a_float_counter_is_converted() -> None:
    check([iota((3,), 0, float32)], {})


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
def test_scans_run_along_their_axis(reverse: bool, exclusive: bool) -> None:
    x = ints(0, 3, 5)
    attrs = tensor.ScanAttrs(Fold.ADD, 1, exclusive, reverse)
    y = tensor.SCAN(math.ADD(x, x), attrs=attrs)
    check([y, math.NEG(y)], bind(x))


def test_window_and_its_adjoint() -> None:
    x = ints(0, 9)
    attrs = tensor.WindowAttrs(0, 4, 3, 2, 1)
    windows = tensor.WINDOW(x, attrs=attrs)
    back = tensor.WindowAttrs(0, 9, 3, 2, 1)
    apart = tensor.UNWINDOW(math.MUL(windows, windows), attrs=back)
    check([reduce(windows, 1), reduce(apart, 1)], bind(x))


def test_a_masked_write_changes_only_where_its_gate_holds() -> None:
    a = ints(0, 4)
    gate = math.LT(a, const(0, int32, (4,)))
    written = memory.AFTER(a, memory.STORE(a, const(7, int32, (4,)), gate))
    made = schedule(written)
    values = Value((4,), int32, [-1, 2, -3, 4])
    slots, _ = run_schedule(made, [to_bytes(values)])
    assert slots[0] == to_bytes(Value((4,), int32, [7, 2, 7, 4]))


def test_a_write_to_what_is_no_view_is_refused() -> None:
    a, b = ints(0, 4), ints(1, 4)
    with pytest.raises(AliasError, match="no view of the stored value"):
        schedule(memory.AFTER(a, memory.STORE(math.NEG(b), b)))


@pytest.mark.parametrize("n", [1, 3, 6])
def test_SCH_05_symbolic_sizes_give_the_same_values(n: int) -> None:
    x = ints(0, N, 4)
    y = reshape(flip(reshape(x, dims.mul(N, 4)), 0), 4, N)
    padded = tensor.PAD(x, attrs=tensor.PadAttrs(((1, N), (0, 1))))
    most = expand(reduce(x, 1, fold=Fold.MAX, keep=True), (N, 4))
    running = tensor.SCAN(x, attrs=tensor.ScanAttrs(Fold.ADD, 0, False, True))
    outputs = [y, math.ADD(y, y), padded, math.SUB(x, most), running, reduce(x, 0, 1)]
    check_symbolic([*outputs, gather(x, iota((N,), 0))], [x], n)


@pytest.mark.parametrize("n", [1, 3, 6])
def test_SCH_05_writes_to_symbolic_parts(n: int) -> None:
    x = ints(0, N, 4)
    half = tensor.SHRINK(x, attrs=tensor.ShrinkAttrs(((0, N, 1), (1, 3, 1))))
    other = tensor.SHRINK(x, attrs=tensor.ShrinkAttrs(((0, N, 1), (0, 2, 1))))
    check_symbolic([assign(x, math.NEG(other), view=half)], [x], n)


@pytest.mark.parametrize("n", [1, 3, 6])
def test_a_variable_is_a_value_as_well(n: int) -> None:
    check_symbolic([cast(math.ADD(N, const_index(2)), int32)], [], n)
