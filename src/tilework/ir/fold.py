"""Folds: the ops that reductions combine with, and their identities."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.dtypes import Kind, encode
from tilework.ir.ops import math
from tilework.ir.ops.tensor import Fold

if TYPE_CHECKING:
    from tilework.dtypes import DType
    from tilework.ir.node import Node, OpDef

#: The elementwise op of each fold.
OP_OF_FOLD: dict[Fold, OpDef] = {
    Fold.ADD: math.ADD,
    Fold.MUL: math.MUL,
    Fold.MAX: math.MAXIMUM,
    Fold.MIN: math.MINIMUM,
}


def identity_bits(fold: Fold, dtype: DType) -> int:
    """The bits of the value that changes nothing when folded: 0, 1, or the least or greatest.

    For floats MAX starts from minus infinity (the least finite number where there is none).
    """
    if fold is Fold.ADD:
        return 0
    if fold is Fold.MUL:
        return encode(1, dtype)
    low = fold is Fold.MAX
    if dtype.kind is Kind.FLOAT:
        if dtype.finite_only:
            largest = (1 << (dtype.bits - 1)) - 2
            return largest | (1 << (dtype.bits - 1)) if low else largest
        return encode(float("-inf") if low else float("inf"), dtype)
    return encode(dtype.minimum if low else dtype.maximum, dtype)


def fold_op(fold: Fold, dtype: DType) -> OpDef:
    """The op that folds two values of `dtype` (bool: ADD and MAX are OR, MUL and MIN are AND)."""
    if dtype.is_bool:
        return math.OR if fold in (Fold.ADD, Fold.MAX) else math.AND
    return OP_OF_FOLD[fold]


def combine(fold: Fold, x: Node, y: Node) -> Node:
    """x folded with y."""
    return fold_op(fold, x.dtype)(x, y)
