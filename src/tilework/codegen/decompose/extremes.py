"""Maxima and minima of vectors where the target has those of numbers, which leave out NaN."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.dtypes import float32, float64
from tilework.ir.build import const
from tilework.ir.ops import math
from tilework.ir.ops.control import EXTRACT, FOLD_LANES, SHUFFLE, FoldAttrs, LaneAttrs, ShuffleAttrs
from tilework.ir.ops.tensor import Fold

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tilework.ir.node import Node, OpDef
    from tilework.target.spec import TargetSpec

#: What is replaced, and by what.
OPS = {math.MAXIMUM: math.MAXIMUM_NUMBER, math.MINIMUM: math.MINIMUM_NUMBER}
_WIDTHS = (128, 256, 512)
_FOLDS = {Fold.MAX: math.MAXIMUM_NUMBER, Fold.MIN: math.MINIMUM_NUMBER}


def by_numbers(node: Node, target: TargetSpec) -> Node:
    """MAXIMUM or MINIMUM by one instruction, and another where an operand is NaN.

    The sum of x and y is NaN if one of them is.  Else the target would spell the order of zeros
    and NaN out, in twice as many instructions.
    """
    name = OPS[node.op]
    if not _has(name, node, target):
        return node
    x, y = node.src
    is_nan = math.OR(math.NE(x, x), math.NE(y, y))
    return math.WHERE(is_nan, math.ADD(x, y), _of_widths(name, x, y))


def fold_by_numbers(node: Node, target: TargetSpec) -> Node:
    """FOLD_LANES of maxima or minima by halves, with one instruction each; NaN if a lane is NaN.

    The halves of 128 bits are folded in vectors of that width, of which further lanes are ignored.
    """
    name, x = _FOLDS.get(node.attrs.fold), node.src[0]
    lanes, dtype = x.type.lanes, x.dtype
    if name is None or not _has(name, x, target):
        return node
    found = x
    while lanes > 1:
        half = lanes // 2
        kept = max(half, _WIDTHS[0] // dtype.bits)
        low = found if kept == lanes else _lanes(found, range(kept))
        high = _lanes(found, [half + i % half for i in range(kept)])
        found = name(low, high)
        lanes = half
    is_nan = FOLD_LANES(math.NE(x, x), attrs=FoldAttrs(Fold.MAX))
    extreme = EXTRACT(found, attrs=LaneAttrs(0))
    return math.WHERE(is_nan, const(float("nan"), dtype), extreme)


def _has(name: OpDef, node: Node, target: TargetSpec) -> bool:
    """Has the target the instruction for vectors like a node, or for their halves?"""
    if name.name not in target.native_ops or node.dtype not in (float32, float64):
        return False
    bits = node.type.lanes * node.dtype.bits if node.shape else 0
    return bits in _WIDTHS or bits == 2 * _WIDTHS[-1]


def _of_widths(name: OpDef, x: Node, y: Node) -> Node:
    """An op on vectors, half by half where they are wider than its instruction."""
    lanes = x.type.lanes
    if lanes * x.dtype.bits <= _WIDTHS[-1]:
        return name(x, y)
    half = lanes // 2
    parts = [name(_lanes(x, own), _lanes(y, own)) for own in (range(half), range(half, lanes))]
    return SHUFFLE(*parts, attrs=ShuffleAttrs(tuple(range(lanes))))


def _lanes(vector: Node, lanes: Iterable[int]) -> Node:
    return SHUFFLE(vector, vector, attrs=ShuffleAttrs(tuple(lanes)))
