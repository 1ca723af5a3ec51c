"""Rows that are written at loaded places are shared by threads where rows can't meet."""

from __future__ import annotations

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


def test_the_last_of_a_row_that_names_a_place_stays() -> None:
    rng = np.random.default_rng(7)
    places = rng.integers(0, 9, (600, 100))
    x = rng.standard_normal((600, 100)).astype(np.float32)
    expected = np.zeros((600, 9), np.float32)
    for column in range(100):
        expected[np.arange(600), places[:, column]] = x[:, column]
    found = Tensor.zeros(600, 9).scatter(1, Tensor(places), Tensor(x)).numpy()
    assert found.tobytes() == expected.tobytes()
