"""Bounds of integer values that follow from how they are made."""

from __future__ import annotations

from tilework.dtypes import float32, int32, int64, uint8
from tilework.ir.build import cast, const
from tilework.ir.node import Node
from tilework.ir.ops import math, tensor
from tilework.ir.ops.memory import PARAM, ParamAttrs
from tilework.schedule.passes.value_bounds import value_bounds

X = PARAM(attrs=ParamAttrs(0, (3, 7), float32))
POSITIONS = tensor.SORT(X, attrs=tensor.SortAttrs(1, False))


def iota(size: int) -> Node:
    return tensor.IOTA(attrs=tensor.IotaAttrs((size,), 0, int64))


def test_positions_of_a_sort_lie_within_its_axis() -> None:
    assert value_bounds(POSITIONS) == (0, 6)


def test_moved_and_cast_positions_keep_their_bounds() -> None:
    moved = tensor.PERMUTE(POSITIONS, attrs=tensor.AxesAttrs((1, 0)))
    assert value_bounds(cast(moved, int32)) == (0, 6)


def test_padding_adds_a_zero() -> None:
    ones = const(5, int64, (3,))
    assert value_bounds(ones) == (5, 5)
    assert value_bounds(tensor.PAD(ones, attrs=tensor.PadAttrs(((1, 0),)))) == (0, 5)


def test_a_select_has_the_bounds_of_both_sides() -> None:
    condition = math.LT(iota(9), const(4, int64, (9,)))
    assert value_bounds(math.WHERE(condition, iota(9), const(-2, int64, (9,)))) == (-2, 8)


def test_extremes_have_the_extremes_of_the_bounds() -> None:
    other = const(3, int64, (9,))
    assert value_bounds(math.MINIMUM(iota(9), other)) == (0, 3)
    assert value_bounds(math.MAXIMUM(iota(9), other)) == (3, 8)


def test_what_is_loaded_may_be_anything() -> None:
    loaded = PARAM(attrs=ParamAttrs(0, (4,), uint8))
    assert value_bounds(loaded) == (0, 255)


def test_a_cast_that_may_wrap_gives_the_bounds_of_its_dtype() -> None:
    wide = const(300, int64, (2,))
    assert value_bounds(cast(wide, uint8)) == (0, 255)


def test_a_long_chain_is_not_walked_to_its_end() -> None:
    node = iota(5)
    for _ in range(1000):
        node = tensor.FLIP(node, attrs=tensor.AxesAttrs((0,)))
        node = tensor.DETACH(node)
    assert value_bounds(node) == (int64.minimum, int64.maximum)
