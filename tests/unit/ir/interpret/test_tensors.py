import math as pymath
from typing import Any

import numpy as np
import pytest

from tilework.base.errors import AliasError, ShapeError, UnsupportedError
from tilework.dtypes import (
    DType,
    bool_,
    float16,
    float32,
    float64,
    index,
    int8,
    int32,
    int64,
    uint8,
)
from tilework.ir.build import bitcast, cast, const, const_index
from tilework.ir.interpret import Value, evaluate
from tilework.ir.node import Node
from tilework.ir.ops import index as index_ops
from tilework.ir.ops import math, memory, tensor
from tilework.ir.ops.tensor import Fold
from tilework.ir.types import Shape


def array(number: int, shape: Shape, dtype: DType = float32) -> Node:
    return memory.BUFFER(attrs=memory.BufferAttrs(number, shape, dtype, "CPU"))


X = array(1, (2, 3))
XS = np.array([[1.0, -2.0, 3.5], [0.0, 5.0, -6.0]], np.float32)
BOUND = {X: Value.from_list(XS.tolist(), float32)}


def value(node: Node) -> np.ndarray:
    return np.array(evaluate(node, BOUND).to_list())


def reduce_(x: Node, fold: Fold, *axes: int) -> Node:
    return tensor.REDUCE(x, attrs=tensor.ReduceAttrs(fold, axes))


@pytest.mark.parametrize(
    ("fold", "function"),
    [(Fold.ADD, np.sum), (Fold.MUL, np.prod), (Fold.MAX, np.max), (Fold.MIN, np.min)],
)
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
def test_reductions_fold_along_their_axes(fold: Fold, function: Any, axes: tuple[int, ...]) -> None:
    np.testing.assert_array_equal(value(reduce_(X, fold, *axes)), function(XS, axis=axes))


def test_a_reduction_over_nothing_gives_the_identity() -> None:
    empty = array(2, (2, 0))
    bound = {empty: Value((2, 0), float32, [])}
    assert evaluate(reduce_(empty, Fold.ADD, 1), bound).to_list() == [0.0, 0.0]
    assert evaluate(reduce_(empty, Fold.MAX, 1), bound).to_list() == [-pymath.inf] * 2
    assert evaluate(reduce_(empty, Fold.MUL, 1), bound).to_list() == [1.0, 1.0]


def test_the_maximum_of_a_nan_is_nan() -> None:
    x = array(3, (3,))
    bound = {x: Value.from_list([1.0, pymath.nan, 2.0], float32)}
    assert pymath.isnan(evaluate(reduce_(x, Fold.MAX, 0), bound).item())


def test_a_sum_of_products_rounds_each_step_once() -> None:
    x = array(4, (2,), float16)
    bound = {x: Value.from_list([1.0009765625, 1.0], float16)}
    square = reduce_(math.MUL(x, x), Fold.ADD, 0)
    fused = np.float64(1.0009765625) ** 2
    first = float(np.float16(fused))
    assert evaluate(square, bound).item() == float(np.float16(first + 1.0))


def test_reshape_permute_flip_and_expand_move_elements() -> None:
    shape = tensor.RESHAPE(X, attrs=tensor.ShapeAttrs((3, 2)))
    np.testing.assert_array_equal(value(shape), XS.reshape(3, 2))
    turned = tensor.PERMUTE(X, attrs=tensor.AxesAttrs((1, 0)))
    np.testing.assert_array_equal(value(turned), XS.T)
    mirrored = tensor.FLIP(X, attrs=tensor.AxesAttrs((1,)))
    np.testing.assert_array_equal(value(mirrored), XS[:, ::-1])
    row = tensor.SHRINK(X, attrs=tensor.ShrinkAttrs(((1, 2, 1), (0, 3, 1))))
    grown = tensor.EXPAND(row, attrs=tensor.ShapeAttrs((4, 3)))
    np.testing.assert_array_equal(value(grown), np.repeat(XS[1:2], 4, axis=0))


def test_pad_and_shrink_with_steps() -> None:
    padded = tensor.PAD(X, attrs=tensor.PadAttrs(((1, 0), (0, 2))))
    np.testing.assert_array_equal(value(padded), np.pad(XS, ((1, 0), (0, 2))))
    stepped = tensor.SHRINK(padded, attrs=tensor.ShrinkAttrs(((0, 3, 2), (1, 5, 3))))
    np.testing.assert_array_equal(value(stepped), np.pad(XS, ((1, 0), (0, 2)))[0:3:2, 1:5:3])


def test_window_and_its_adjoint() -> None:
    attrs = tensor.WindowAttrs(axis=1, count=2, size=2, stride=1, dilation=1)
    windows = tensor.WINDOW(X, attrs=attrs)
    expected = np.lib.stride_tricks.sliding_window_view(XS, 2, axis=1)
    np.testing.assert_array_equal(value(windows), expected)
    back = tensor.UNWINDOW(windows, attrs=tensor.WindowAttrs(1, 3, 2, 1, 1))
    total = reduce_(back, Fold.ADD, 2)
    np.testing.assert_array_equal(value(total), XS * [1, 2, 1])


def test_a_strided_dilated_window() -> None:
    x = array(5, (9,))
    bound = {x: Value.from_list(list(range(9)), float32)}
    attrs = tensor.WindowAttrs(axis=0, count=3, size=3, stride=2, dilation=2)
    found = evaluate(tensor.WINDOW(x, attrs=attrs), bound).to_list()
    assert found == [[0, 2, 4], [2, 4, 6], [4, 6, 8]]


def test_scans_run_both_ways_and_may_exclude_themselves() -> None:
    def scan(**more: bool) -> np.ndarray:
        return value(tensor.SCAN(X, attrs=tensor.ScanAttrs(Fold.ADD, 1, **more)))

    np.testing.assert_array_equal(scan(), XS.cumsum(1))
    np.testing.assert_array_equal(scan(reverse=True), XS[:, ::-1].cumsum(1)[:, ::-1])
    np.testing.assert_array_equal(scan(exclusive=True), XS.cumsum(1) - XS)


def test_sort_is_stable_and_puts_nan_last() -> None:
    x = array(6, (6,))
    bound = {x: Value.from_list([2.0, pymath.nan, 1.0, 2.0, -0.0, 0.0], float32)}
    up = tensor.SORT(x, attrs=tensor.SortAttrs(0, False))
    down = tensor.SORT(x, attrs=tensor.SortAttrs(0, True))
    assert evaluate(up, bound).to_list() == [4, 5, 2, 0, 3, 1]
    assert evaluate(down, bound).to_list() == [1, 0, 3, 2, 4, 5]


def test_gather_reads_zero_outside_and_reports_it() -> None:
    places = array(7, (2, 2), int64)
    bound = {**BOUND, places: Value.from_list([[0, 2], [3, -1]], int64)}
    node = tensor.GATHER(X, places, attrs=tensor.GatherAttrs(1))
    faults: list[str] = []
    found = evaluate(node, bound, faults).to_list()
    assert found == [[[1.0, 3.5], [0, 0]], [[0.0, -6.0], [0, 0]]]
    assert len(faults) == 1


def test_gather_by_two_indices() -> None:
    rows, columns = array(8, (3,), int64), array(9, (3,), int64)
    bound = {
        **BOUND,
        rows: Value.from_list([0, 1, 1], int64),
        columns: Value.from_list([2, 0, 1], int64),
    }
    node = tensor.GATHER(X, rows, columns, attrs=tensor.GatherAttrs(0))
    assert evaluate(node, bound).to_list() == [3.5, 0.0, 5.0]


def test_scatter_replaces_in_order_or_folds() -> None:
    places, updates = array(10, (3,), int64), array(11, (3,))
    base = array(12, (4,))
    bound = {
        base: Value.from_list([1, 1, 1, 1], float32),
        places: Value.from_list([1, 1, 3], int64),
        updates: Value.from_list([5, 7, 9], float32),
    }
    replaced = tensor.SCATTER(base, updates, places, attrs=tensor.GatherAttrs(0))
    added = tensor.SCATTER(base, updates, places, attrs=tensor.GatherAttrs(0, Fold.ADD))
    assert evaluate(replaced, bound).to_list() == [1, 7, 1, 9]
    assert evaluate(added, bound).to_list() == [1, 13, 1, 10]


def test_iota_counts_along_its_axis() -> None:
    node = tensor.IOTA(attrs=tensor.IotaAttrs((2, 3), 1, float32))
    assert evaluate(node, {}).to_list() == [[0, 1, 2], [0, 1, 2]]


def test_a_write_through_a_view_changes_a_version_of_its_base() -> None:
    view = tensor.FLIP(
        tensor.SHRINK(X, attrs=tensor.ShrinkAttrs(((0, 2, 1), (1, 3, 1)))),
        attrs=tensor.AxesAttrs((1,)),
    )
    fresh = const(9.0, float32, (2, 2))
    after = memory.AFTER(X, memory.STORE(view, math.ADD(fresh, view)))
    expected = XS.copy()
    expected[:, 1:][:, ::-1] += 9
    np.testing.assert_array_equal(value(after), expected)
    np.testing.assert_array_equal(value(X), XS)


def test_a_write_through_padding_is_refused() -> None:
    view = tensor.PAD(X, attrs=tensor.PadAttrs(((1, 0), (0, 0))))
    after = memory.AFTER(X, memory.STORE(view, const(1.0, float32, (3, 3))))
    with pytest.raises(AliasError):
        value(after)


def test_symbolic_sizes_take_the_value_of_their_variable() -> None:
    n = index_ops.VARIABLE(attrs=index_ops.VariableAttrs("n", 1, 8))
    node = tensor.IOTA(attrs=tensor.IotaAttrs((n,), 0, int32))
    total = reduce_(node, Fold.ADD, 0)
    assert evaluate(total, {n: 5}).item() == 10
    bound = index_ops.BIND(n, const_index(4))
    assert evaluate(bound, {n: 1}).item() == 4


def test_casts_saturate_and_wrap() -> None:
    x = array(13, (5,), float64)
    bound = {x: Value.from_list([300.7, -300.7, pymath.nan, pymath.inf, -1.5], float64)}
    assert evaluate(cast(x, int8), bound).to_list() == [127, -128, 0, 127, -1]
    assert evaluate(cast(x, uint8), bound).to_list() == [255, 0, 0, 255, 0]
    assert evaluate(cast(x, bool_), bound).to_list() == [True] * 5
    wrapped = cast(const(-1, int32, (1,)), uint8)
    assert evaluate(wrapped, {}).to_list() == [255]


def test_bitcast_scales_the_last_axis() -> None:
    assert value(bitcast(X, uint8)).shape == (2, 12)
    raw = value(bitcast(X, int32))
    np.testing.assert_array_equal(raw, XS.view(np.int32))
    wide = bitcast(const(1.0, float32, (2, 2)), float64)
    assert np.array(evaluate(wide, {}).to_list()).shape == (2, 1)


def test_a_bitcast_to_another_width_needs_a_last_axis_whose_size_is_a_number() -> None:
    size = index_ops.VARIABLE(attrs=index_ops.VariableAttrs("n", 1, 6))
    assert bitcast(array(0, (size, 4)), uint8).type.shape == (size, 16)
    with pytest.raises(ShapeError, match="the size of the last axis is a variable"):
        bitcast(array(0, (4, size)), uint8)


def test_where_selects_element_by_element() -> None:
    node = math.WHERE(math.LT(X, const(0.0, float32, (2, 3))), const(0.0, float32, (2, 3)), X)
    np.testing.assert_array_equal(value(node), np.where(XS < 0, 0, XS))


def test_a_leaf_without_a_value_is_named() -> None:
    with pytest.raises(UnsupportedError, match="buffer: has no value"):
        evaluate(array(99, (1,)), {})


def test_values_refuse_ragged_lists() -> None:
    with pytest.raises(ShapeError, match="ragged"):
        Value.from_list([[1, 2], [3]], float32)


def test_values_nest_as_their_shape_says() -> None:
    assert Value.from_list([[1, 2], [3, 4]], int8).to_list() == [[1, 2], [3, 4]]
    assert Value.scalar(300, int8).item() == 44
    assert Value((2, 0, 3), int8, []).to_list() == [[], []]
    assert Value.scalar(5, index).to_list() == 5


def test_a_long_chain_needs_no_recursion() -> None:
    node = X
    for _ in range(10_000):
        node = math.NEG(math.ABS(node))
    np.testing.assert_array_equal(value(node), -np.abs(XS))
