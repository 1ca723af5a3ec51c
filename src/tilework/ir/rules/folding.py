"""Literals computed at compile time, with the bits that they would have at run time.

Only ops that every target computes exactly as defined are folded: arithmetic that rounds once,
integers, comparisons, conversions.  Elementary functions are left to the target's own sequence,
whose last bit may differ; so are results that are NaN, whose bits targets choose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilework.ir.build import const_bits
from tilework.ir.interpret.scalars import (
    bitcast_scalars,
    bits_of_scalar,
    scalar_from_bits,
    scalar_function,
)
from tilework.ir.ops import math
from tilework.ir.pattern import RuleSet, Var

if TYPE_CHECKING:
    from tilework.ir.node import Node, OpDef

FOLDING = RuleSet("folding")

#: Ops that round once or not at all, by the number of their operands.
UNARY: tuple[OpDef, ...] = (
    math.NEG, math.ABS, math.SQRT, math.RECIPROCAL, math.FLOOR, math.CEIL, math.TRUNC, math.ROUND,
    math.CAST,
)  # fmt: skip
BINARY: tuple[OpDef, ...] = (
    math.ADD, math.SUB, math.MUL, math.MAXIMUM, math.MINIMUM, math.IDIV, math.MOD, math.AND,
    math.OR, math.XOR, math.SHL, math.SHR, math.LT, math.LE, math.EQ, math.NE, math.FDIV,
    math.FMOD, math.COPYSIGN,
)  # fmt: skip


def _literal(c: Node) -> Any:
    return scalar_from_bits(c.attrs.bits, c.attrs.dtype)


def _fold(node: Node, *operands: Node) -> Node | None:
    """The literal that `node` is, unless it is NaN."""
    found = scalar_function(node)(*[_literal(operand) for operand in operands])
    if found != found:
        return None
    return const_bits(bits_of_scalar(found, node.dtype), node.dtype, node.shape)


@FOLDING.rule(UNARY, Var("a", math.CONST))
def fold_unary(node: Node, a: Node) -> Node | None:
    """op(literal)  ->  literal"""
    return _fold(node, a)


@FOLDING.rule(BINARY, Var("a", math.CONST), Var("b", math.CONST))
def fold_binary(node: Node, a: Node, b: Node) -> Node | None:
    """op(literal, literal)  ->  literal"""
    return _fold(node, a, b)


@FOLDING.rule(math.MULACC, Var("a", math.CONST), Var("b", math.CONST), Var("c", math.CONST))
def fold_mulacc(node: Node, a: Node, b: Node, c: Node) -> Node | None:
    """mulacc(literal, literal, literal)  ->  literal"""
    return _fold(node, a, b, c)


@FOLDING.rule(math.BITCAST, Var("a", math.CONST))
def fold_bitcast(node: Node, a: Node) -> Node | None:
    """bitcast(literal)  ->  literal

    Needs: both dtypes have the same width.
    Keeps: the bits, those of NaN too.
    """
    if a.dtype.bits != node.dtype.bits:
        return None
    if a.dtype.is_bool or node.dtype.is_bool:
        (found,) = bitcast_scalars([_literal(a)], a.dtype, node.dtype)
        return const_bits(bits_of_scalar(found, node.dtype), node.dtype, node.shape)
    return const_bits(a.attrs.bits, node.dtype, node.shape)
