"""Sums along rows take several rows side by side."""

import numpy as np
import pytest

from tilework import Tensor
from tilework.codegen.analysis import Kernel, analyse
from tilework.codegen.plan.choose import choose_plan
from tilework.codegen.plan.plan import Part
from tilework.dtypes import float32
from tilework.ir.build import const_index
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs, Unit
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.tensor import REDUCE, Fold, ReduceAttrs
from tilework.ir.symbolic import simplify
from tilework.target.known.cpu import x86_level_spec

TARGET = x86_level_spec("x86-64-v4", cores=2)


def row_sums(rows: int, columns: int, *, in_place: bool = False) -> Kernel:
    """out[i] = sum over j of x[i, j] * y[j]; `in_place` adds to what is there."""
    i, j = (RANGE(const_index(n), attrs=RangeAttrs(at)) for at, n in enumerate((rows, columns)))
    x = PARAM(attrs=ParamAttrs(1, (rows * columns,), float32))
    y = PARAM(attrs=ParamAttrs(2, (columns,), float32))
    out = INDEX(PARAM(attrs=ParamAttrs(0, (rows,), float32)), i)
    place = simplify.add(simplify.scale(i, columns), j)
    terms = math.MUL(LOAD(INDEX(x, place)), LOAD(INDEX(y, j)))
    total = REDUCE(terms, j, attrs=ReduceAttrs(Fold.ADD))
    return analyse(SINK(STORE(out, math.ADD(LOAD(out), total) if in_place else total)))


def test_four_rows_are_summed_side_by_side() -> None:
    plan = choose_plan(row_sums(100, 256), TARGET)
    assert plan.split_of(0).tile == (Part(Unit.UNROLL, 4),)
    assert plan.split_of(1).tile == (Part(Unit.UNROLL, 2), Part(Unit.LANE, 16))


def test_few_rows_are_summed_one_by_one_with_more_accumulators() -> None:
    plan = choose_plan(row_sums(3, 256), TARGET)
    assert plan.split_of(0).tile == ()
    assert plan.split_of(1).tile == (Part(Unit.UNROLL, 4), Part(Unit.LANE, 16))


def test_rows_that_are_updated_in_place_are_summed_one_by_one() -> None:
    plan = choose_plan(row_sums(100, 256, in_place=True), TARGET)
    assert plan.split_of(0).tile == ()


@pytest.mark.parametrize("rows", [1, 3, 4, 5, 7, 64, 65])
@pytest.mark.parametrize("columns", [1, 15, 33, 200])
def test_sums_of_every_size_are_right(rows: int, columns: int) -> None:
    x = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns) % 17
    y = np.arange(columns, dtype=np.float32) % 5
    np.testing.assert_array_equal(Tensor(x).sum(1).numpy(), x.sum(1))
    np.testing.assert_array_equal((Tensor(x) @ Tensor(y)).numpy(), x @ y)
    np.testing.assert_array_equal(Tensor(x).max(1).numpy(), x.max(1))
