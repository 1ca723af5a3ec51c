"""The lanes of a vector folded into one value, by halves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.ir.fold import fold_op
from tilework.ir.ops import math
from tilework.render.llvm_types import scalar_suffix, scalar_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilework.dtypes import DType
    from tilework.ir.node import Node, OpDef

    Define = Callable[[str], str]
    Declare = Callable[..., str]


def folded(define: Define, declare: Declare, node: Node, name: str) -> str:
    """A FOLD_LANES: halves folded pairwise, lane i with lane i + n/2, then on with n/2 lanes.

    Args:
        define: Writes an instruction and names its result.
        declare: Declares a function and gives its name.
        node: The FOLD_LANES.
        name: The vector.
    """
    dtype = node.src[0].type.dtype
    lanes = node.src[0].type.lanes
    op = fold_op(node.attrs.fold, dtype)
    scalar = scalar_type(dtype)
    while lanes > 1:
        half = lanes // 2
        kind = f"<{lanes} x {scalar}>"
        low = _part(define, kind, name, range(half))
        high = _part(define, kind, name, range(half, lanes))
        name = _pair(define, declare, op, dtype, half, low, high)
        lanes = half
    return define(f"extractelement <1 x {scalar}> {name}, i64 0")


def _part(define: Define, kind: str, name: str, lanes: range) -> str:
    mask = ", ".join(f"i32 {lane}" for lane in lanes)
    return define(f"shufflevector {kind} {name}, {kind} poison, <{len(lanes)} x i32> <{mask}>")


def _pair(
    define: Define, declare: Declare, op: OpDef, dtype: DType, lanes: int, low: str, high: str
) -> str:
    scalar = scalar_type(dtype)
    kind = f"<{lanes} x {scalar}>"
    if op is math.ADD or op is math.MUL:
        word = {"add": ("add", "fadd"), "mul": ("mul", "fmul")}[op.name][int(dtype.is_float)]
        return define(f"{word} {kind} {low}, {high}")
    if op is math.AND or op is math.OR:
        return define(f"{op.name} {kind} {low}, {high}")
    if dtype.is_float:
        word, suffix = op.name, scalar_suffix(scalar)
    else:
        sign = "s" if dtype.is_signed else "u"
        word, suffix = sign + ("max" if op is math.MAXIMUM else "min"), scalar
    full = declare(kind, f"llvm.{word}.v{lanes}{suffix}", kind, kind)
    return define(f"call {kind} @{full}({kind} {low}, {kind} {high})")
