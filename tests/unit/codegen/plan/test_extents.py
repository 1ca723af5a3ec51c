"""How many elements a vector has, by what a kernel computes with."""

from __future__ import annotations

import pytest

from tilework.codegen.analysis import analyse
from tilework.codegen.plan.extents import lanes_for
from tilework.dtypes import DType, float16, float32, float64, int8, int16, int32, int64, uint8
from tilework.ir.build import cast, const_index
from tilework.ir.node import Node
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.testing.kernels import target

SIZE = 1000
PLACE = RANGE(const_index(SIZE), attrs=RangeAttrs(0))


def read(slot: int, dtype: DType) -> Node:
    return LOAD(INDEX(PARAM(attrs=ParamAttrs(slot, (SIZE,), dtype)), PLACE))


def lanes(value: Node) -> int:
    out = INDEX(PARAM(attrs=ParamAttrs(0, (SIZE,), value.type.dtype)), PLACE)
    return lanes_for(analyse(SINK(STORE(out, value))), target("x86-64-v4"))


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [(int8, 64), (uint8, 64), (int16, 32), (int32, 16), (float32, 16), (float64, 8)],
)
def test_vectors_are_full_of_the_widest_elements(dtype: DType, expected: int) -> None:
    assert lanes(math.ADD(read(1, dtype), read(2, dtype))) == expected


def test_what_computes_with_something_wider_has_fewer_elements() -> None:
    assert lanes(math.ADD(cast(read(1, int8), int32), read(2, int32))) == 16
    assert lanes(cast(read(1, int8), float32)) == 16


def test_small_floats_are_computed_with_as_wider_ones() -> None:
    assert lanes(math.ADD(read(1, float16), read(2, float16))) == 16


def test_positions_are_wide() -> None:
    is_early = math.LT(PLACE, const_index(7))
    assert lanes(math.WHERE(is_early, read(1, int8), read(2, int8))) == 16
    assert lanes(math.ADD(read(1, int64), PLACE)) == 16
    assert lanes(math.ADD(read(1, int64), read(2, int64))) == 16
    assert lanes(PLACE) == 16


def test_positions_that_only_limit_what_is_read_are_not() -> None:
    early = math.AND(math.LT(PLACE, const_index(7)), math.LT(const_index(2), PLACE))
    place = read(1, int8).src[0]
    assert lanes(LOAD(place, early)) == 64
    assert lanes(math.WHERE(early, LOAD(place, early), read(2, int8))) == 16
