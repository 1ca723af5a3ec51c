"""Elementary functions as IR: the constructions of this folder over nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilework.base.errors import UnsupportedError
from tilework.codegen.decompose import power, transcendental
from tilework.codegen.decompose.builder import Value
from tilework.dtypes import by_name
from tilework.ir.build import bitcast, cast, const
from tilework.ir.ops import math

if TYPE_CHECKING:
    from tilework.codegen.decompose.builder import (
        BinaryName,
        CompareName,
        Dtype,
        Number,
        UnaryName,
    )
    from tilework.ir.node import Node, OpDef
    from tilework.target.spec import TargetSpec

_BINARY: dict[str, OpDef] = {
    "add": math.ADD,
    "sub": math.SUB,
    "mul": math.MUL,
    "div": math.FDIV,
    "and": math.AND,
    "or": math.OR,
    "xor": math.XOR,
    "shl": math.SHL,
    "shr": math.SHR,
}
_COMPARE: dict[str, OpDef] = {"less": math.LT, "equal": math.EQ, "not_equal": math.NE}
_UNARY: dict[str, OpDef] = {"abs": math.ABS, "neg": math.NEG, "sqrt": math.SQRT}

#: Ops that every target has, or that the renderer spells out itself.
_BASIC = frozenset(
    {
        math.ADD, math.SUB, math.MUL, math.FDIV, math.SQRT, math.RECIPROCAL, math.NEG, math.ABS,
        math.MULACC, math.MAXIMUM, math.MINIMUM, math.WHERE, math.CAST, math.CONST, math.FLOOR,
        math.CEIL, math.TRUNC, math.ROUND, math.COPYSIGN,
    }
)  # fmt: skip


class IrBuilder:
    """Builds IR nodes; constants take the shape of the value that the construction is for."""

    def __init__(self, shape: tuple[Any, ...]) -> None:
        self.shape = shape

    def const(self, value: Number, dtype: Dtype) -> Node:
        return const(value, by_name(dtype), self.shape)

    def unary(self, name: UnaryName, x: Node, dtype: Dtype) -> Node:
        return _UNARY[name](x)

    def binary(self, name: BinaryName, x: Node, y: Node, dtype: Dtype) -> Node:
        return _BINARY[name](x, y)

    def compare(self, name: CompareName, x: Node, y: Node, dtype: Dtype) -> Node:
        return _COMPARE[name](x, y)

    def fma(self, x: Node, y: Node, z: Node, dtype: Dtype) -> Node:
        return math.MULACC(x, y, z)

    def where(self, condition: Node, x: Node, y: Node, dtype: Dtype) -> Node:
        return math.WHERE(condition, x, y)

    def cast(self, x: Node, source: Dtype, target: Dtype) -> Node:
        return cast(x, by_name(target))

    def bitcast(self, x: Node, source: Dtype, target: Dtype) -> Node:
        return bitcast(x, by_name(target))


def decompose_elementary(node: Node, target: TargetSpec) -> Node:
    """An elementary function of float32 or float64 in basic operations; other ops as they are.

    Raises:
        UnsupportedError: there is no construction for this op and dtype.
    """
    if node.op in _BASIC or node.op.name in target.native_ops:
        return node
    name = node.dtype.name
    builder = IrBuilder(node.shape)
    operands = [Value(builder, source, name) for source in node.src]
    table = getattr(transcendental, name.upper(), {})
    construction = table.get(node.op.name)
    if construction is not None:
        result: Node = construction(*operands).raw
        return result
    if node.op is math.POW and name == "float32":
        powered: Node = power.pow(*operands).raw
        return powered
    raise UnsupportedError(
        f"{node.op.name}: no construction for {name}",
        got=f"{node.op.name} of {name}",
        expected=f"one of {sorted(table)}",
    )
