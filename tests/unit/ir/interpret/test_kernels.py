import array
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilework.base.errors import BoundsError, InternalError, UnsupportedError
from tilework.dtypes import DType, bfloat16, bool_, float16, float32, index, int32, uint8
from tilework.ir.build import cast, const, const_index
from tilework.ir.interpret import compile_kernel, run_kernel, run_linear
from tilework.ir.node import Node
from tilework.ir.ops import control, math, memory, program, tensor
from tilework.ir.ops import index as index_ops
from tilework.ir.ops.index import Unit
from tilework.ir.ops.tensor import Fold
from tilework.ir.symbolic import simplify
from tilework.ir.types import Memory


def range_(size: Node | int, number: int, unit: Unit = Unit.LOOP) -> Node:
    size = const_index(size) if isinstance(size, int) else size
    return index_ops.RANGE(size, attrs=index_ops.RangeAttrs(number, unit))


def param(slot: int, size: Node | int, dtype: DType = float32) -> Node:
    return memory.PARAM(attrs=memory.ParamAttrs(slot, (size,), dtype))


def load(buffer: Node, offset: Node, *more: Node, lanes: int = 1) -> Node:
    attrs = memory.LoadAttrs(lanes)
    return memory.LOAD(memory.INDEX(buffer, offset), *more, attrs=attrs)


def store(buffer: Node, offset: Node, value: Node, *more: Node) -> Node:
    return memory.STORE(memory.INDEX(buffer, offset), value, *more)


def at(base: Node, scale: int, *plus: Node) -> Node:
    total = simplify.scale(base, scale)
    for node in plus:
        total = simplify.add(total, node)
    return total


def reduce_(x: Node, fold: Fold, *ranges: Node) -> Node:
    return tensor.REDUCE(x, *ranges, attrs=tensor.ReduceAttrs(fold))


def raw(*arrays: Any) -> list[memoryview]:
    """Arrays as the memory of parameters."""
    return [memoryview(a).cast("B") if a.size else memoryview(b"") for a in arrays]


def run(sink: Node, *arrays: Any, **variables: int) -> list[int]:
    return run_kernel(sink, raw(*arrays), variables)


def floats(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_a_matmul() -> None:
    i, j, k = range_(3, 0), range_(4, 1), range_(5, 2)
    a, b, out = floats(3, 5), floats(5, 4, seed=1), np.zeros((3, 4), np.float32)
    product = math.MUL(load(param(0, 15), at(i, 5, k)), load(param(1, 20), at(k, 4, j)))
    sink = memory.SINK(store(param(2, 12), at(i, 4, j), reduce_(product, Fold.ADD, k)))
    assert run(sink, a, b, out) == []
    np.testing.assert_allclose(out, a @ b, rtol=1e-5)


def test_a_softmax_of_two_reductions_over_one_axis() -> None:
    i, j = range_(3, 0), range_(4, 1)
    p, q = range_(4, 2), range_(4, 3)
    x, out = floats(3, 4), np.zeros((3, 4), np.float32)
    source = param(0, 12)
    top = reduce_(load(source, at(i, 4, p)), Fold.MAX, p)

    def part(k: Node) -> Node:
        return math.EXP(math.SUB(load(source, at(i, 4, k)), top))

    total = reduce_(part(q), Fold.ADD, q)
    sink = memory.SINK(store(param(1, 12), at(i, 4, j), math.FDIV(part(j), total)))
    run(sink, x, out)
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(out, e / e.sum(1, keepdims=True), rtol=1e-5)


def test_a_value_is_computed_once_per_iteration_that_matters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A chain that uses each value twice would take 2**40 steps without sharing."""
    i = range_(2, 0)
    node = load(param(0, 2), i)
    for _ in range(40):
        node = math.ADD(node, node)
    x, out = np.ones(2, np.float32), np.zeros(2, np.float32)
    run(memory.SINK(store(param(1, 2), i, node)), x, out)
    assert out.tolist() == [2.0**40, 2.0**40]
    program_ = compile_kernel(memory.SINK(store(param(1, 2), i, node)))
    assert program_.count < 60


def test_a_deep_kernel_needs_no_recursion() -> None:
    i = range_(2, 0)
    node = load(param(0, 2), i)
    for _ in range(20_000):
        node = math.NEG(node)
    x, out = floats(2), np.zeros(2, np.float32)
    run(memory.SINK(store(param(1, 2), i, node)), x, out)
    np.testing.assert_array_equal(out, x)


def test_an_address_outside_is_reported_with_its_node() -> None:
    i = range_(4, 0)
    sink = memory.SINK(store(param(1, 4), i, load(param(0, 3), i)))
    with pytest.raises(BoundsError, match="load: the address lies outside of parameter 0") as error:
        run(sink, floats(3), floats(4))
    assert "element 3" in str(error.value)
    below = memory.SINK(store(param(0, 4), at(i, 1, const_index(-1)), const(1.0, float32)))
    with pytest.raises(BoundsError, match="store: the address"):
        run(below, floats(4))


def test_a_buffer_smaller_than_its_shape_is_refused() -> None:
    sink = memory.SINK(store(param(0, 4), range_(4, 0), const(1.0, float32)))
    with pytest.raises(BoundsError, match="parameter 0 is smaller than its shape"):
        run(sink, floats(3))


def test_gates_that_are_off_leave_memory_alone() -> None:
    i = range_(6, 0)
    inside = simplify.less(i, const_index(3))
    value = load(param(0, 3), i, inside)
    even = math.EQ(math.MOD(i, const_index(2)), const_index(0))
    sink = memory.SINK(store(param(1, 6), i, value, even))
    x, out = floats(3), np.full(6, 9, np.float32)
    run(sink, x, out)
    np.testing.assert_array_equal(out, [x[0], 9, x[2], 9, 0, 9])


def test_faults_are_reported_once() -> None:
    i = range_(5, 0)
    value = load(param(0, 5, int32), i)
    bad = math.LT(value, const(0, int32))
    faults = [program.FAULT_IF(bad, attrs=program.FaultAttrs(code)) for code in (7, 8)]
    assert run(memory.SINK(*faults), np.array([1, -1, -1, 0, 3], np.int32)) == [7, 8]
    assert run(memory.SINK(*faults), np.array([1, 1, 1, 0, 3], np.int32)) == []


def test_variables_size_loops_and_buffers() -> None:
    n = index_ops.VARIABLE(attrs=index_ops.VariableAttrs("n", 1, 8))
    i = range_(n, 0)
    sink = memory.SINK(store(param(0, n), i, cast(simplify.mul(i, n), float32)))
    out = np.full(8, -1, np.float32)
    run(sink, out, n=3)
    assert out.tolist() == [0, 3, 6, -1, -1, -1, -1, -1]
    with pytest.raises(BoundsError, match="n lies outside of its bounds"):
        run(sink, out, n=9)
    with pytest.raises(BoundsError, match="n has no value"):
        run(sink, out)


def test_a_scan_carries_one_state_for_each_other_range() -> None:
    i, j = range_(4, 0), range_(3, 1)
    x = floats(4, 3)
    for exclusive in (False, True):
        attrs = tensor.ScanAttrs(Fold.ADD, 0, exclusive)
        running = tensor.SCAN(load(param(0, 12), at(i, 3, j)), i, attrs=attrs)
        out = np.zeros((4, 3), np.float32)
        run(memory.SINK(store(param(1, 12), at(i, 3, j), running)), x, out)
        expected = x.cumsum(0, dtype=np.float32) - (x if exclusive else 0)
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)


def test_in_place_updates_read_the_old_value_in_each_iteration() -> None:
    i = range_(4, 0)
    held = param(0, 4)
    old = load(held, i)
    first = store(held, i, math.ADD(old, const(1.0, float32)))
    second = store(param(1, 4), i, math.MUL(old, const(2.0, float32)))
    x, y = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    run(memory.SINK(first, second), x, y)
    assert x.tolist() == [1, 2, 3, 4]
    assert y.tolist() == [0, 2, 4, 6]


def test_a_scatter_writes_in_ascending_order() -> None:
    i = range_(4, 0)
    place = cast(load(param(0, 4, int32), i), index)
    sink = memory.SINK(store(param(1, 3), place, cast(i, float32)))
    out = np.full(3, -1, np.float32)
    run(sink, np.array([2, 0, 2, 2], np.int32), out)
    assert out.tolist() == [1, -1, 3]


def test_a_stage_is_filled_before_it_is_read() -> None:
    i, j = range_(4, 0), range_(4, 1)
    square = math.MUL(load(param(0, 4), j), load(param(0, 4), j))
    stage = control.STAGE(square, j, attrs=control.StageAttrs(Memory.TILE, 1))
    mirrored = load(stage, at(i, -1, const_index(3)))
    x, out = floats(4), np.zeros(4, np.float32)
    run(memory.SINK(store(param(1, 4), i, mirrored)), x, out)
    np.testing.assert_array_equal(out, (x * x)[::-1])


def test_an_allocation_filled_by_closed_stores() -> None:
    i, j = range_(2, 0), range_(4, 1)
    scratch = control.ALLOCATE(attrs=control.AllocateAttrs(float32, 4, Memory.TILE, 64))
    fill = control.END(store(scratch, j, load(param(0, 8), at(i, 4, j))), j)
    ready = memory.AFTER(scratch, fill)
    k = range_(4, 2)
    total = reduce_(load(ready, k), Fold.ADD, k)
    x, out = floats(2, 4), np.zeros(2, np.float32)
    run(memory.SINK(store(param(1, 2), i, total)), x, out)
    np.testing.assert_allclose(out, x.sum(1), rtol=1e-5)


def test_a_range_used_outside_of_its_reduction_becomes_a_loop_of_its_own() -> None:
    i = range_(3, 0)
    total = reduce_(cast(i, float32), Fold.ADD, i)
    out = np.zeros(3, np.float32)
    run(memory.SINK(store(param(0, 3), i, total)), out)
    assert out.tolist() == [3, 3, 3]


@pytest.mark.parametrize("dtype", [float16, bfloat16, uint8, bool_])
def test_small_elements_are_loaded_and_stored_by_their_bits(dtype: DType) -> None:
    count = 256
    i = range_(count, 0)
    bits: Any = np.arange(count, dtype=np.uint8 if dtype.itemsize == 1 else np.uint16) * 255
    if dtype is bool_:
        bits = bits & 1
    out = np.zeros_like(bits)
    run(memory.SINK(store(param(1, count, dtype), i, load(param(0, count, dtype), i))), bits, out)
    np.testing.assert_array_equal(out, bits)


def test_empty_buffers_and_loops_do_nothing() -> None:
    i = range_(0, 0)
    sink = memory.SINK(store(param(0, 0), i, const(1.0, float32)))
    assert run_kernel(sink, [bytearray()]) == []


# --- vectors and statements ----------------------------------------------------------------------

RUNS = [
    pytest.param(lambda stores: (run_kernel, memory.SINK(*stores)), id="lowered"),
    pytest.param(lambda stores: (run_linear, program.LINEAR(*stores)), id="linear"),
]


@pytest.mark.parametrize("stage", RUNS)
def test_vectors_load_compute_and_store(stage: Callable[[list[Node]], Any]) -> None:
    zero = const_index(0)
    x = load(param(0, 8), const_index(2), lanes=4)
    lanes = index_ops.LANES(attrs=index_ops.LanesAttrs(4))
    three = control.BROADCAST(const(3.0, float32), attrs=index_ops.LanesAttrs(4))
    total = math.MULACC(x, three, cast(lanes, float32))
    last = control.EXTRACT(total, attrs=control.LaneAttrs(3))
    folded = control.FOLD_LANES(x, attrs=control.FoldAttrs(Fold.MAX))
    stacked = control.STACK(last, folded)
    function, root = stage([store(param(1, 4), zero, total), store(param(2, 2), zero, stacked)])
    source = array.array("f", range(8))
    first, second = array.array("f", [0] * 4), array.array("f", [0] * 2)
    function(root, [memoryview(source), memoryview(first), memoryview(second)])
    assert first.tolist() == [6, 10, 14, 18]
    assert second.tolist() == [18, 5]


def test_lanes_of_offsets_gather_and_gates_are_by_lane() -> None:
    lanes = index_ops.LANES(attrs=index_ops.LanesAttrs(4))
    two = const(2, index, (4,))
    gate = math.LT(lanes, const(3, index, (4,)))
    spread = memory.LOAD(memory.INDEX(param(0, 5), math.MUL(lanes, two)), gate)
    sink = memory.SINK(store(param(1, 4), const_index(0), spread, gate))
    x, out = np.arange(5, dtype=np.float32), np.full(4, 9, np.float32)
    run(sink, x, out)
    assert out.tolist() == [0, 2, 4, 9]


def test_lanes_are_picked_from_two_vectors() -> None:
    x, y = (load(param(slot, 2), const_index(0), lanes=2) for slot in (0, 1))
    picked = control.SHUFFLE(x, y, attrs=control.ShuffleAttrs((3, 0, 2, 0)))
    out = np.zeros(4, np.float32)
    sink = memory.SINK(store(param(2, 4), const_index(0), picked))
    run(sink, np.array([1, 2], np.float32), np.array([3, 4], np.float32), out)
    assert out.tolist() == [4, 1, 3, 1]


def test_lanes_fold_by_halves() -> None:
    x = load(param(0, 4), const_index(0), lanes=4)
    total = control.FOLD_LANES(x, attrs=control.FoldAttrs(Fold.ADD))
    sink = memory.SINK(store(param(1, 1), const_index(0), total))
    values = np.array([1e8, 1.0, -1e8, 1.0], np.float32)
    out = np.zeros(1, np.float32)
    run(sink, values, out)
    assert out[0] == (values[0] + values[2]) + (values[1] + values[3])


def accumulated(size: int) -> tuple[list[Node], Node]:
    """Statements that sum the elements of parameter 0, and the sum."""
    i = range_(size, 0)
    start = control.ACCUMULATOR(const(0.0, float32), attrs=control.AccumulateAttrs(0, Fold.ADD))
    value = load(param(0, size), i)
    total = math.ADD(start, value)
    update = control.ACCUMULATE(start, total)
    result = memory.AFTER(start, update)
    return [start, i, value, total, update, control.END(i), result], result


@pytest.mark.parametrize("size", [0, 1, 6])
def test_an_accumulator_is_a_variable_read_after_its_loop(size: int) -> None:
    statements, total = accumulated(size)
    linear = program.LINEAR(*statements, store(param(1, 1), const_index(0), total))
    x, out = floats(size), np.full(1, 5, np.float32)
    run_linear(linear, raw(x, out))
    np.testing.assert_allclose(out[0], x.sum(), rtol=1e-5)


@pytest.mark.parametrize("size", [0, 6])
def test_an_accumulator_carried_around_a_loop(size: int) -> None:
    i = range_(size, 0)
    attrs = control.AccumulateAttrs(0, Fold.ADD)
    carried = control.ACCUMULATOR(const(0.0, float32), i, attrs=attrs)
    update = control.ACCUMULATE(carried, math.ADD(carried, load(param(0, size), i)))
    out = store(param(1, 1), const_index(0), update)
    x, found = floats(size), np.full(1, 5, np.float32)
    linear = program.LINEAR(i, update, control.END(i), out)
    run_linear(linear, raw(x, found))
    np.testing.assert_allclose(found[0], x.sum(), rtol=1e-5)


def test_an_if_guards_its_statements() -> None:
    i = range_(4, 0)
    condition = math.LT(i, const_index(2))
    guard = control.IF(condition)
    body = store(param(0, 4), i, const(1.0, float32))
    linear = program.LINEAR(i, condition, guard, body, control.ENDIF(guard), control.END(i))
    out = np.zeros(4, np.float32)
    run_linear(linear, raw(out))
    assert out.tolist() == [1, 1, 0, 0]


def test_part_of_the_tasks_runs() -> None:
    i = range_(6, 0, Unit.THREAD)
    linear = program.LINEAR(i, store(param(0, 6), i, const(1.0, float32)), control.END(i))
    out = np.zeros(6, np.float32)
    run_linear(linear, raw(out), begin=2, end=4)
    assert out.tolist() == [0, 0, 1, 1, 0, 0]


def test_unwritten_scratch_reads_as_no_useful_value() -> None:
    scratch = control.ALLOCATE(attrs=control.AllocateAttrs(float32, 1, Memory.TILE, 0))
    linear = program.LINEAR(store(param(0, 1), const_index(0), load(scratch, const_index(0))))
    out = np.zeros(1, np.float32)
    run_linear(linear, raw(out))
    assert out[0] != 0


def test_statements_that_do_not_nest_are_refused() -> None:
    i, j = range_(2, 0), range_(2, 1)
    with pytest.raises(InternalError, match="ends what is not open"):
        run_linear(program.LINEAR(i, j, control.END(i), control.END(j)), [])
    with pytest.raises(InternalError, match="left open"):
        run_linear(program.LINEAR(i), [])
    outside = store(param(0, 2), i, const(1.0, float32))
    with pytest.raises(InternalError, match="used outside of its loop"):
        run_linear(program.LINEAR(outside), raw(floats(2)))


def test_an_op_without_a_meaning_in_kernels_is_named() -> None:
    call = program.CALL(param(0, 2))
    with pytest.raises(UnsupportedError, match="call: cannot be interpreted here"):
        run_kernel(memory.SINK(call), raw(floats(2)))


@pytest.mark.parametrize("held", [2, 6, 9])
def test_a_kernel_that_reads_fixed_elements_need_not_know_how_many_there_are(held: int) -> None:
    """The variable of a size is passed to kernels that compute with it alone."""
    size = index_ops.VARIABLE(attrs=index_ops.VariableAttrs("n", 1, 6))
    sink = memory.SINK(store(param(0, 1), const_index(0), load(param(1, size), const_index(1))))
    out, x = floats(1), floats(held, seed=1)
    assert run(sink, out, x) == []
    assert out[0] == x[1]
