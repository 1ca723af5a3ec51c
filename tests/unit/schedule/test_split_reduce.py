"""Long reductions to few results are done in two steps; the values are those of one."""

from __future__ import annotations

import numpy as np
import pytest

from tilework.dtypes import float32, int32
from tilework.ir.interpret import Value, evaluate
from tilework.ir.node import Node, toposort
from tilework.ir.ops import math
from tilework.ir.ops.index import VARIABLE, VariableAttrs
from tilework.ir.ops.memory import PARAM, SINK, ParamAttrs
from tilework.ir.ops.tensor import EXPAND, REDUCE, RESHAPE, Fold, ReduceAttrs, ShapeAttrs
from tilework.ir.types import Shape
from tilework.schedule.passes import split_reduce
from tilework.schedule.passes.split_reduce import split_reductions


@pytest.fixture
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_reduce, "PARTS", 4)
    monkeypatch.setattr(split_reduce, "MANY_ELEMENTS", 9)
    monkeypatch.setattr(split_reduce, "DEEP_PRODUCTS", 3)


def param(shape: Shape) -> Node:
    return PARAM(attrs=ParamAttrs(0, shape, int32))


def reduce(x: Node, *axes: int, fold: Fold = Fold.ADD) -> Node:
    return REDUCE(x, attrs=ReduceAttrs(fold, axes))


def shared(results: int, depth: int) -> Node:
    """A factor that all results have in common."""
    return EXPAND(param((1, depth)), attrs=ShapeAttrs((results, depth)))


def is_split(node: Node) -> bool:
    return split_reductions(SINK(node)).src[0] is not node


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((1000,), False),
        ((split_reduce.MANY_ELEMENTS,), True),
        ((split_reduce.MANY_ELEMENTS, split_reduce.FEW_RESULTS - 1), True),
        ((split_reduce.MANY_ELEMENTS, split_reduce.FEW_RESULTS), False),
        ((split_reduce.MANY_ELEMENTS, 0), False),
    ],
)
def test_long_reductions_to_few_results_are_split(shape: Shape, *, expected: bool) -> None:
    assert is_split(reduce(param(shape), 0)) == expected


@pytest.mark.parametrize(
    ("results", "depth", "expected"),
    [
        (100, 2 * split_reduce.DEEP_PRODUCTS, True),
        (100, 2 * split_reduce.DEEP_PRODUCTS - 1, False),
        (split_reduce.FEW_DEEP_RESULTS + 1, 2 * split_reduce.DEEP_PRODUCTS, False),
    ],
)
def test_deep_contractions_are_split(results: int, depth: int, *, expected: bool) -> None:
    x = param((results, depth))
    assert is_split(reduce(math.MUL(x, shared(results, depth)), 1)) == expected


@pytest.mark.parametrize(
    ("depth", "parts"), [(split_reduce.DEEP_PRODUCTS, 0), (10_000, 4), (12_289, 4)]
)
def test_products_of_floats_whose_panels_leave_the_cache_are_cut(depth: int, parts: int) -> None:
    x, y = (PARAM(attrs=ParamAttrs(i, (100, depth), float32)) for i in range(2))
    shape = ShapeAttrs((100, 100, depth))
    a = EXPAND(RESHAPE(x, attrs=ShapeAttrs((100, 1, depth))), attrs=shape)
    b = EXPAND(RESHAPE(y, attrs=ShapeAttrs((1, 100, depth))), attrs=shape)
    split = split_reductions(SINK(reduce(math.MUL(a, b), 2)))
    shapes = [node.shape for node in toposort(split) if node.op is REDUCE]
    assert ((100, 100, parts) in shapes) == bool(parts)


@pytest.mark.parametrize("rows", [128, 129])
def test_long_products_are_cut_where_results_are_few(rows: int) -> None:
    depth = 10_000
    x, y = (
        PARAM(attrs=ParamAttrs(i, (size, depth), float32)) for i, size in enumerate((rows, 128))
    )
    shape = ShapeAttrs((rows, 128, depth))
    a = EXPAND(RESHAPE(x, attrs=ShapeAttrs((rows, 1, depth))), attrs=shape)
    b = EXPAND(RESHAPE(y, attrs=ShapeAttrs((1, 128, depth))), attrs=shape)
    split = split_reductions(SINK(reduce(math.MUL(a, b), 2)))
    found = [node for node in toposort(split) if node.op is REDUCE]
    assert (len(found) > 1) == (rows * 128 <= split_reduce.FEW_LONG_RESULTS)


def test_squares_of_long_rows_are_no_contraction() -> None:
    x = param((100, 2 * split_reduce.DEEP_PRODUCTS))
    assert not is_split(reduce(math.MUL(x, x), 1))


def test_a_size_that_is_not_known_is_left_alone() -> None:
    n = VARIABLE(attrs=VariableAttrs("n", 1, 1 << 20))
    assert not is_split(reduce(param((n,)), 0))


@pytest.mark.parametrize("shape", [(64, 64, 64), (100, 10000), (20, 5, 4000)])
def test_the_positions_of_a_short_outer_axis_are_parts(shape: tuple[int, ...]) -> None:
    split = split_reductions(SINK(reduce(param(shape), *range(len(shape)))))
    assert [x.shape for x in toposort(split) if x.op is REDUCE] == [shape[:1], ()]


def test_axes_that_are_all_too_short_are_left_alone() -> None:
    assert not is_split(reduce(param((8, 8, 8, 8, 8, 8)), *range(6)))


def test_a_size_with_a_divisor_nearby_needs_no_kernel_for_a_rest() -> None:
    size = 65 * 4097
    node = REDUCE(PARAM(attrs=ParamAttrs(0, (size,), float32)), attrs=ReduceAttrs(Fold.ADD, (0,)))
    split = split_reductions(SINK(node))
    assert [x.shape for x in toposort(split) if x.op is REDUCE] == [(65,), ()]


@pytest.mark.usefixtures("_small_parts")
@pytest.mark.parametrize("fold", list(Fold))
@pytest.mark.parametrize(
    ("shape", "axes"),
    [((40,), (0,)), ((41,), (0,)), ((2, 17), (1,)), ((18, 3), (0,)), ((3, 11, 2), (0, 1))],
)
@pytest.mark.parametrize("is_product", [False, True])
def test_two_steps_give_the_values_of_one(
    shape: tuple[int, ...], axes: tuple[int, ...], fold: Fold, *, is_product: bool
) -> None:
    x = param(shape)
    node = reduce(math.MUL(x, x) if is_product else x, *axes, fold=fold)
    split = split_reductions(SINK(node)).src[0]
    assert split is not node
    elements = [int(v) for v in np.random.default_rng(0).integers(-9, 10, int(np.prod(shape)))]
    bound = {x: Value(shape, int32, elements)}
    assert evaluate(split, bound).elements == evaluate(node, bound).elements


@pytest.mark.parametrize("size", [1 << 22, 10**8, (1 << 28) + 12345])
@pytest.mark.parametrize("is_product", [False, True])
def test_parts_of_one_result_are_short_so_that_roundings_do_not_add_up(
    size: int, *, is_product: bool
) -> None:
    x = param((size,))
    node = reduce(math.MUL(x, x) if is_product else x, 0)
    lengths = [
        one.src[0].shape[-1]
        for one in toposort(split_reductions(SINK(node)))
        if one.op is REDUCE and len(one.src[0].shape) == 2
    ]
    assert lengths
    longest = 2 * split_reduce.LONGEST_PART
    assert all(isinstance(length, int) and length <= longest for length in lengths)
