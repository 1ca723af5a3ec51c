"""Rows that are written at loaded places are shared by threads where rows can't meet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilework import Tensor
from tilework.base.errors import PlanError
from tilework.codegen.analysis import analyse
from tilework.codegen.plan.check import check
from tilework.codegen.plan.choose import choose_plan
from tilework.codegen.plan.plan import Plan
from tilework.dtypes import float32, int64, uint8
from tilework.dtypes import index as index_dtype
from tilework.ir.build import cast, const_bits, const_index
from tilework.ir.node import Node
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.symbolic import simplify
from tilework.testing.kernels import target

ROWS, COLUMNS, WIDTH = 512, 64, 256
HOST = target("host")


def scattered(limit: int) -> Node:
    """out[row, places[row, column]] = x[row, column] where a place is below a limit."""
    row, column = (
        RANGE(const_index(n), attrs=RangeAttrs(i)) for i, n in enumerate((ROWS, COLUMNS))
    )
    out = PARAM(attrs=ParamAttrs(0, (ROWS * WIDTH + limit,), float32))
    x, places = (
        PARAM(attrs=ParamAttrs(slot, (ROWS * COLUMNS,), dtype))
        for slot, dtype in ((1, float32), (2, int64))
    )
    at = simplify.add(simplify.scale(row, COLUMNS), column)
    place = cast(LOAD(INDEX(places, at)), index_dtype)
    offset = simplify.add(simplify.scale(row, WIDTH), place)
    above = math.LT(const_index(-1), place)
    inside = math.AND(above, math.LT(place, const_index(limit)))
    return SINK(STORE(INDEX(out, offset), LOAD(INDEX(x, at)), inside))


def test_rows_that_cannot_meet_are_tasks() -> None:
    kernel = analyse(scattered(WIDTH))
    plan = choose_plan(kernel, HOST)
    assert plan.tasks == 1
    check(plan, kernel, HOST)


@pytest.mark.parametrize("limit", [5, WIDTH - 1])
def test_what_a_place_is_computed_by_and_its_dtype_are_bounds_too(limit: int) -> None:
    row, column = (
        RANGE(const_index(n), attrs=RangeAttrs(i)) for i, n in enumerate((ROWS, COLUMNS))
    )
    out = PARAM(attrs=ParamAttrs(0, (ROWS * WIDTH + 1,), float32))
    at = simplify.add(simplify.scale(row, COLUMNS), column)
    wide = LOAD(INDEX(PARAM(attrs=ParamAttrs(1, (ROWS * COLUMNS,), int64)), at))
    narrow = LOAD(INDEX(PARAM(attrs=ParamAttrs(1, (ROWS * COLUMNS,), uint8)), at))
    limited = math.MINIMUM(
        math.MAXIMUM(cast(wide, index_dtype), const_index(0)), const_index(limit)
    )
    value = const_bits(0, float32)
    for place in (limited, cast(narrow, index_dtype)):
        offset = simplify.add(simplify.scale(row, WIDTH), place)
        assert choose_plan(analyse(SINK(STORE(INDEX(out, offset), value))), HOST).tasks == 1
    beyond = math.MINIMUM(math.MAXIMUM(cast(wide, index_dtype), const_index(0)), const_index(WIDTH))
    offset = simplify.add(simplify.scale(row, WIDTH), beyond)
    assert choose_plan(analyse(SINK(STORE(INDEX(out, offset), value))), HOST).tasks == 0


def test_rows_that_may_meet_run_in_order() -> None:
    kernel = analyse(scattered(WIDTH + 1))
    assert choose_plan(kernel, HOST).tasks == 0
    shared = Plan((), ((0, 0), (1, 0)), 1, (), overlap=False)
    with pytest.raises(PlanError, match="order"):
        check(shared, kernel, HOST)


def test_columns_of_a_row_run_in_order() -> None:
    shared = Plan((), ((0, 0), (1, 0)), 2, (), overlap=False)
    with pytest.raises(PlanError, match="order"):
        check(shared, analyse(scattered(WIDTH)), HOST)


def down_columns(rows: int, columns: int) -> Node:
    """out[places[row, column], column] = x[row, column] where a place is inside."""
    row, column = (
        RANGE(const_index(n), attrs=RangeAttrs(i)) for i, n in enumerate((rows, columns))
    )
    out = PARAM(attrs=ParamAttrs(0, (WIDTH * columns,), float32))
    x, places = (
        PARAM(attrs=ParamAttrs(slot, (rows * columns,), dtype))
        for slot, dtype in ((1, float32), (2, int64))
    )
    at = simplify.add(simplify.scale(row, columns), column)
    place = cast(LOAD(INDEX(places, at)), index_dtype)
    offset = simplify.add(simplify.scale(place, columns), column)
    inside = math.AND(math.LT(const_index(-1), place), math.LT(place, const_index(WIDTH)))
    return SINK(STORE(INDEX(out, offset), LOAD(INDEX(x, at)), inside))


@pytest.mark.parametrize("columns", [1000, 257, 64])
def test_columns_that_cannot_meet_are_shared_where_rows_may(columns: int) -> None:
    kernel = analyse(down_columns(ROWS, columns))
    plan = choose_plan(kernel, HOST)
    check(plan, kernel, HOST)
    assert plan.nest[0] == (1, 0)
    assert plan.tasks == 1
    line = HOST.line_bytes // float32.itemsize
    assert plan.split_of(1).outer[1].size >= 2 * line


def test_few_columns_are_not_shared() -> None:
    assert choose_plan(analyse(down_columns(ROWS, 16)), HOST).tasks == 0


def test_columns_are_not_shared_where_all_is_short() -> None:
    assert choose_plan(analyse(down_columns(8, 512)), HOST).tasks == 0


@pytest.mark.parametrize("columns", [1, 3, 40, 300, 1001])
@pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16, np.int8, np.int64])
def test_sums_down_columns_are_added_in_the_order_of_the_rows(columns: int, kind: Any) -> None:
    rng = np.random.default_rng(columns)
    places = rng.integers(0, 7, (200, columns))
    x = (rng.standard_normal((200, columns)) * 50).astype(kind)
    expected = np.zeros((7, columns), kind)
    for row in range(200):
        expected[places[row], np.arange(columns)] += x[row]
    found = Tensor(np.zeros((7, columns), kind)).scatter_add(0, Tensor(places), Tensor(x)).numpy()
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("columns", [33, 640])
def test_the_last_of_a_column_that_names_a_place_stays(columns: int) -> None:
    rng = np.random.default_rng(columns)
    places = rng.integers(0, 9, (100, columns))
    x = rng.standard_normal((100, columns)).astype(np.float32)
    expected = np.zeros((9, columns), np.float32)
    for row in range(100):
        expected[places[row], np.arange(columns)] = x[row]
    found = Tensor.zeros(9, columns).scatter(0, Tensor(places), Tensor(x)).numpy()
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("width", [1, 40, 257])
def test_rows_added_at_places_are_added_in_order(width: int) -> None:
    rng = np.random.default_rng(width)
    places = rng.integers(0, 5, 3000)
    x = rng.standard_normal((3000, width)).astype(np.float32)
    expected = np.zeros((5, width), np.float32)
    np.add.at(expected, places, x)
    found = Tensor.zeros(5, width).index_add(0, Tensor(places), Tensor(x)).numpy()
    assert found.tobytes() == expected.tobytes()


def test_the_last_of_a_row_that_names_a_place_stays() -> None:
    rng = np.random.default_rng(7)
    places = rng.integers(0, 9, (600, 100))
    x = rng.standard_normal((600, 100)).astype(np.float32)
    expected = np.zeros((600, 9), np.float32)
    for column in range(100):
        expected[np.arange(600), places[:, column]] = x[:, column]
    found = Tensor.zeros(600, 9).scatter(1, Tensor(places), Tensor(x)).numpy()
    assert found.tobytes() == expected.tobytes()
