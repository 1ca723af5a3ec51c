import sys

import pytest

from tilework.base.errors import VerifyError
from tilework.dtypes import bool_, float32, index, int32
from tilework.ir.build import const, const_bits, const_index
from tilework.ir.node import Node, make
from tilework.ir.ops import control, math, memory, program, tensor
from tilework.ir.ops import index as index_ops
from tilework.ir.ops.index import Unit
from tilework.ir.ops.tensor import Fold
from tilework.ir.stage import Stage
from tilework.ir.types import Memory
from tilework.ir.verify import find_faults, verify


def range_(size: int, number: int, unit: Unit = Unit.LOOP) -> Node:
    return index_ops.RANGE(const_index(size), attrs=index_ops.RangeAttrs(number, unit))


X = memory.PARAM(attrs=memory.ParamAttrs(0, (6,), float32))
Y = memory.PARAM(attrs=memory.ParamAttrs(1, (6,), float32))
A = range_(6, 0)
K = range_(6, 1)
ONE = const(1.0, float32)
LOADED = memory.LOAD(memory.INDEX(X, A))
STORED = memory.STORE(memory.INDEX(Y, A), LOADED)
KERNEL = memory.SINK(STORED)
ARRAY = memory.BUFFER(attrs=memory.BufferAttrs(1, (2, 3), float32, "CPU"))


def rules(root: Node, stage: Stage) -> list[str]:
    return [fault.rule for fault in find_faults(root, stage)]


def test_legal_graphs_have_no_faults() -> None:
    verify(KERNEL, Stage.KERNEL)
    verify(math.ADD(ARRAY, const(1.0, float32, (2, 3))), Stage.TENSOR)
    call = program.CALL(KERNEL, X, Y)
    verify(program.LINEAR(call), Stage.SCHEDULE)


def test_the_error_names_node_rule_pass_and_neighbours() -> None:
    moved = tensor.FLIP(LOADED, attrs=tensor.AxesAttrs(()))
    root = memory.SINK(memory.STORE(memory.INDEX(Y, A), moved))
    with pytest.raises(VerifyError) as caught:
        verify(root, Stage.KERNEL, after="some-pass")
    text = str(caught.value)
    assert text.startswith("verify: the graph is not legal in stage kernel after some-pass")
    assert "op-in-stage: flip is not legal in this stage" in text
    assert "source 0: <load" in text
    assert "used by: <store" in text
    assert caught.value.node is not None


def test_all_faults_are_collected() -> None:
    flipped = tensor.FLIP(LOADED, attrs=tensor.AxesAttrs(()))
    lanes = index_ops.LANES(attrs=index_ops.LanesAttrs(4))
    one = memory.STORE(memory.INDEX(Y, A), flipped)
    other = memory.STORE(memory.INDEX(Y, lanes), ONE)
    assert rules(memory.SINK(one, other), Stage.KERNEL).count("op-in-stage") == 2


def bad_operands() -> Node:
    return make(math.NEG, (ONE, ONE), None)


def with_attributes() -> Node:
    return make(math.NEG, (ONE,), math.CastAttrs(float32))


@pytest.mark.parametrize(
    ("rule", "root", "stage"),
    [
        ("operands", bad_operands(), Stage.TENSOR),
        ("attributes", with_attributes(), Stage.TENSOR),
        ("const-rule", const_bits(256, bool_), Stage.TENSOR),
        ("flip-rule", tensor.FLIP(ARRAY, attrs=tensor.AxesAttrs((1, 0))), Stage.TENSOR),
        ("sort-rule", tensor.SORT(ARRAY, attrs=tensor.SortAttrs(2, False)), Stage.TENSOR),
        ("scan-rule", tensor.SCAN(ARRAY, attrs=tensor.ScanAttrs(Fold.ADD, 2)), Stage.TENSOR),
        ("iota-rule", tensor.IOTA(attrs=tensor.IotaAttrs((2,), 1, int32)), Stage.TENSOR),
        (
            "reduce-rule",
            tensor.REDUCE(ARRAY, attrs=tensor.ReduceAttrs(Fold.ADD, (1, 0))),
            Stage.TENSOR,
        ),
        (
            "variable-rule",
            index_ops.VARIABLE(attrs=index_ops.VariableAttrs("n", 3, 2)),
            Stage.TENSOR,
        ),
        ("bind-rule", index_ops.BIND(const_index(1), const_index(1)), Stage.TENSOR),
        ("schedule-root", ARRAY, Stage.SCHEDULE),
        ("kernel-root", STORED, Stage.KERNEL),
        ("kernel-effects", memory.SINK(LOADED), Stage.KERNEL),
        ("linear-root", KERNEL, Stage.LINEAR),
    ],
)
def test_a_broken_rule_is_named(rule: str, root: Node, stage: Stage) -> None:
    assert rule in rules(root, stage)


def store_of(value: Node, target: Node = A) -> Node:
    return memory.STORE(memory.INDEX(Y, target), value)


def test_a_kernel_binds_only_ranges_each_once() -> None:
    attrs = tensor.ReduceAttrs(Fold.ADD)
    not_a_range = tensor.REDUCE(LOADED, const_index(3), attrs=attrs)
    twice = tensor.REDUCE(LOADED, K, K, attrs=attrs)
    with_axes = tensor.REDUCE(const(1.0, float32, (2,)), attrs=tensor.ReduceAttrs(Fold.ADD, (0,)))
    for value in (not_a_range, twice, with_axes):
        assert "reduce-rule" in rules(memory.SINK(store_of(value)), Stage.KERNEL)


def test_a_bound_range_is_not_used_outside() -> None:
    total = tensor.REDUCE(LOADED, A, attrs=tensor.ReduceAttrs(Fold.ADD))
    assert rules(memory.SINK(store_of(total)), Stage.KERNEL) == ["bound-ranges"]
    assert rules(memory.SINK(store_of(total, const_index(0))), Stage.KERNEL) == []


def test_numbers_of_ranges_are_unique() -> None:
    other = range_(5, 0)
    root = memory.SINK(store_of(memory.LOAD(memory.INDEX(X, other))))
    assert rules(root, Stage.KERNEL) == ["unique-names"]


def test_units_come_with_a_plan_and_lanes_go_with_lowering() -> None:
    lane = range_(4, 3, Unit.LANE)
    root = memory.SINK(store_of(ONE, lane))
    assert "range-rule" in rules(root, Stage.KERNEL)
    assert "range-rule" not in rules(root, Stage.TILED)
    assert "range-rule" in rules(root, Stage.LOWERED)


def test_loads_and_stores_need_addresses() -> None:
    load = memory.LOAD(ONE)
    assert "load-rule" in rules(memory.SINK(store_of(load)), Stage.KERNEL)
    store = memory.STORE(ONE, ONE)
    assert "store-rule" in rules(memory.SINK(store), Stage.KERNEL)


def test_a_fault_needs_a_condition() -> None:
    fault = program.FAULT_IF(ONE, attrs=program.FaultAttrs(1))
    assert "fault_if-rule" in rules(memory.SINK(fault), Stage.KERNEL)


def test_end_closes_stores_before_linear_and_loops_in_it() -> None:
    scratch = control.ALLOCATE(attrs=control.AllocateAttrs(float32, 6, Memory.TILE, 0))
    fill = control.END(memory.STORE(memory.INDEX(scratch, K), ONE), K)
    value = memory.LOAD(memory.INDEX(memory.AFTER(scratch, fill), A))
    assert rules(memory.SINK(store_of(value)), Stage.LOWERED) == []
    wrong = control.END(LOADED, K)
    after = memory.AFTER(scratch, wrong)
    root = memory.SINK(store_of(memory.LOAD(memory.INDEX(after, A))))
    assert "end-rule" in rules(root, Stage.LOWERED)


ADDRESS = memory.INDEX(Y, A)
FROM = memory.INDEX(X, A)


def test_statements_in_order_are_legal() -> None:
    verify(program.LINEAR(A, FROM, LOADED, ADDRESS, STORED, control.END(A)), Stage.LINEAR)


def accumulated() -> list[Node]:
    start = control.ACCUMULATOR(ONE, attrs=control.AccumulateAttrs(0, Fold.ADD))
    total = math.ADD(start, LOADED)
    update = control.ACCUMULATE(start, total)
    result = memory.AFTER(start, update)
    place = memory.INDEX(Y, const_index(0))
    return [start, A, FROM, LOADED, total, update, control.END(A), result, place,
            memory.STORE(place, result)]  # fmt: skip


def test_an_accumulator_is_read_after_its_loop() -> None:
    verify(program.LINEAR(*accumulated()), Stage.LINEAR)


@pytest.mark.parametrize(
    ("rule", "statements"),
    [
        ("order", [A, LOADED, ADDRESS, STORED, control.END(A)]),
        ("order", [A, FROM, LOADED, control.END(A), ADDRESS, STORED]),
        ("nesting", [A, FROM, LOADED, ADDRESS, STORED]),
        ("nesting", [A, K, control.END(A), control.END(K)]),
        ("nesting", [control.END(A)]),
    ],
)
def test_statements_out_of_order_are_named(rule: str, statements: list[Node]) -> None:
    assert rule in rules(program.LINEAR(*statements), Stage.LINEAR)


def test_a_value_of_a_closed_loop_is_not_used_after_it() -> None:
    place = memory.INDEX(Y, const_index(0))
    late = memory.STORE(place, LOADED)
    linear = program.LINEAR(A, FROM, LOADED, control.END(A), place, late)
    assert rules(linear, Stage.LINEAR) == ["order"]


def test_an_accumulator_gets_values_of_its_own_type() -> None:
    start = control.ACCUMULATOR(ONE, attrs=control.AccumulateAttrs(0, Fold.ADD))
    update = control.ACCUMULATE(start, const(1, index))
    assert "accumulate-rule" in rules(program.LINEAR(start, update), Stage.LINEAR)


def test_lanes_of_vectors_exist() -> None:
    x = control.BROADCAST(ONE, attrs=index_ops.LanesAttrs(2))
    picked = control.SHUFFLE(x, x, attrs=control.ShuffleAttrs((0, 4)))
    lane = control.EXTRACT(picked, attrs=control.LaneAttrs(2))
    found = rules(memory.SINK(store_of(lane)), Stage.LOWERED)
    assert found == ["shuffle-rule", "extract-rule"]


def test_bodies_of_calls_are_verified_apart() -> None:
    call = program.CALL(KERNEL, X, Y)
    assert rules(program.LINEAR(call), Stage.SCHEDULE) == []
    assert rules(program.LINEAR(KERNEL), Stage.SCHEDULE) != []


def test_verifying_grows_linearly() -> None:
    def calls(length: int) -> int:
        node = ARRAY
        for _ in range(length):
            node = math.NEG(math.ABS(node))
        count = 0

        def profile(*_: object) -> None:
            nonlocal count
            count += 1

        before = sys.getprofile()
        sys.setprofile(profile)
        try:
            verify(node, Stage.TENSOR)
        finally:
            sys.setprofile(before)
        return count

    small, large = calls(1_000), calls(10_000)
    assert 9 * small < large < 11 * small
