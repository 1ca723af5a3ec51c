"""Builds constructions as IR nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.codegen.decompose.builder import Value
from tilework.codegen.decompose.multiply_add import emulated_fma
from tilework.dtypes import bool_, by_name
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
    from tilework.dtypes import DType
    from tilework.ir.node import Node, OpDef
    from tilework.ir.types import Shape

_UNARY: dict[UnaryName, OpDef] = {"abs": math.ABS, "neg": math.NEG, "sqrt": math.SQRT}
_BINARY: dict[BinaryName, OpDef] = {
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
_COMPARE: dict[CompareName, OpDef] = {
    "less": math.LT,
    "equal": math.EQ,
    "not_equal": math.NE,
}


def _dtype(name: Dtype) -> DType:
    return bool_ if name == "bool" else by_name(name)


class NodeBuilder:
    """A raw value is a node; all have one shape.

    Args:
        shape: of every value: () for a scalar, (lanes,) for a vector.
        has_fma: whether the target rounds a multiply-add once; else it is emulated.
        has_scale: whether it multiplies by powers of 2 in one operation.
        has_branches: whether what few lanes need is computed for them alone.
    """

    checks_domains = False

    def __init__(
        self, shape: Shape, *, has_fma: bool, has_scale: bool = False, has_branches: bool = False
    ) -> None:
        self.shape = shape
        self.has_fma = has_fma
        self.has_scale = has_scale
        self.has_branches = has_branches

    def const(self, value: Number, dtype: Dtype) -> Node:
        """Return the constant `value`."""
        return const(value, _dtype(dtype), self.shape)

    def unary(self, name: UnaryName, x: Node, dtype: Dtype) -> Node:
        """Apply one operation of one operand."""
        return _UNARY[name](x)

    def binary(self, name: BinaryName, x: Node, y: Node, dtype: Dtype) -> Node:
        """Apply one operation of two operands."""
        return _BINARY[name](x, y)

    def compare(self, name: CompareName, x: Node, y: Node, dtype: Dtype) -> Node:
        """Return a bool of the comparison."""
        return _COMPARE[name](x, y)

    def fma(self, x: Node, y: Node, z: Node, dtype: Dtype) -> Node:
        """Return `x * y + z`, rounded once."""
        if self.has_fma:
            return math.MULACC(x, y, z)
        values = (Value(self, raw, dtype) for raw in (x, y, z))
        return emulated_fma(*values).raw

    def scale(self, x: Node, n: Node, dtype: Dtype) -> Node:
        """Return `x * 2**n`, rounded once."""
        return math.SCALE_POWER(x, n)

    def where(self, condition: Node, x: Node, y: Node, dtype: Dtype) -> Node:
        """Select by `condition`."""
        return math.WHERE(condition, x, y)

    def where_rare(self, condition: Node, rare: Node, common: Node, dtype: Dtype) -> Node:
        """Select by a condition that seldom holds."""
        return math.WHERE_RARE(condition, rare, common)

    def cast(self, x: Node, source: Dtype, target: Dtype) -> Node:
        """Convert by value."""
        return cast(x, _dtype(target))

    def bitcast(self, x: Node, source: Dtype, target: Dtype) -> Node:
        """Reinterpret the bits."""
        return bitcast(x, _dtype(target))

    def check_domain(self, x: Node, low: float, high: float, helper: str) -> None:
        """Not called: see `checks_domains`."""
