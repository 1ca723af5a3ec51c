"""Maxima and minima of vectors where the target has those of numbers, which leave out NaN."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.dtypes import float32, float64
from tilework.ir.ops import math

if TYPE_CHECKING:
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

#: What is replaced, and by what.
OPS = {math.MAXIMUM: math.MAXIMUM_NUMBER, math.MINIMUM: math.MINIMUM_NUMBER}
_WIDTHS = (128, 256, 512)


def by_numbers(node: Node, target: TargetSpec) -> Node:
    """MAXIMUM or MINIMUM by one instruction, and another where an operand is NaN.

    The sum of x and y is NaN if one of them is.  Else the target would spell the order of zeros
    and NaN out, in twice as many instructions.
    """
    name = OPS[node.op]
    bits = node.type.lanes * node.dtype.bits if node.shape else 0
    is_native = name.name in target.native_ops and bits in _WIDTHS
    if not is_native or node.dtype not in (float32, float64):
        return node
    x, y = node.src
    is_nan = math.OR(math.NE(x, x), math.NE(y, y))
    return math.WHERE(is_nan, math.ADD(x, y), name(x, y))
