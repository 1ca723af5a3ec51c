"""Elementary functions as IR: the constructions of this folder over nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.errors import UnsupportedError
from tilework.codegen.decompose import native
from tilework.ir.ops import math

if TYPE_CHECKING:
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

#: Ops that every target has, or that the renderer spells out itself.
PLAIN = frozenset(
    {
        math.ADD, math.SUB, math.MUL, math.FDIV, math.NEG, math.ABS, math.MAXIMUM, math.MINIMUM,
        math.WHERE, math.CAST, math.CONST, math.FLOOR, math.CEIL, math.TRUNC, math.ROUND,
        math.COPYSIGN, math.WHERE_RARE, math.MAXIMUM_NUMBER, math.MINIMUM_NUMBER,
    }
)  # fmt: skip
#: The same, but that targets without them have constructions.
_BASIC = frozenset({math.SQRT, math.RECIPROCAL, math.MULACC})


def decompose_elementary(node: Node, target: TargetSpec) -> Node:
    """An elementary function of float32 or float64 in basic operations; other ops as they are.

    Raises:
        UnsupportedError: there is no construction for this op and dtype.
    """
    if node.op in PLAIN or is_native(node.op.name, node.dtype.name, target):
        return node
    # Imported here, since many programs have no such function, and their process none for long.
    from tilework.codegen.decompose import transcendental

    lowered = transcendental.lower_node(node, target)
    names = {node.op.name, f"{node.op.name}_{node.dtype.name}"}
    if lowered is not node or node.op in _BASIC or names & target.native_ops:
        return lowered
    table = transcendental.table_of(node.dtype.name)
    raise UnsupportedError(
        f"{node.op.name}: no construction for {node.dtype.name}",
        got=f"{node.op.name} of {node.dtype.name}",
        expected=f"one of {sorted(table)}",
    )


def is_native(op: str, dtype: str, target: TargetSpec) -> bool:
    """Return whether the target itself computes `op` on `dtype`.

    A target names what it has as `op`, for all dtypes that it computes with, or `op_dtype`; strict
    arithmetic takes a function of the latter kind while it is as exact as is promised.
    """
    if f"{op}_{dtype}" in target.native_ops:
        return native.keeps(op, dtype, target)
    return op in target.native_ops and dtype in target.native_dtypes
