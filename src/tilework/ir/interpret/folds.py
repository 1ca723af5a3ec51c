"""Reductions, scans and sorts: folds of scalars in ascending order, from the identity on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilework.ir.fold import fold_op, identity_bits
from tilework.ir.interpret.scalars import op_function, scalar_from_bits
from tilework.ir.ops import math
from tilework.ir.ops.tensor import Fold

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tilework.dtypes import DType
    from tilework.ir.interpret.scalars import Scalar
    from tilework.ir.node import Node


def fold_function(fold: Fold, dtype: DType) -> Callable[[Any, Any], Scalar]:
    """What combines two scalars of `dtype`."""
    return op_function(fold_op(fold, dtype), dtype)


def identity(fold: Fold, dtype: DType) -> Scalar:
    """What a fold over nothing gives."""
    return scalar_from_bits(identity_bits(fold, dtype), dtype)


def is_fused(value: Node, fold: Fold) -> bool:
    """Does a fold of `value` accumulate a product by fused multiply-add?"""
    return fold is Fold.ADD and value.op is math.MUL and value.type.dtype.is_float


def fold_all(fold: Fold, dtype: DType, elements: Sequence[Any]) -> Scalar:
    """The fold of `elements`."""
    combine = fold_function(fold, dtype)
    total: Scalar = identity(fold, dtype)
    for element in elements:
        total = combine(total, element)
    return total


def fold_products(dtype: DType, left: Sequence[Any], right: Sequence[Any]) -> Scalar:
    """The sum of products, each added by a fused multiply-add."""
    multiply_add = op_function(math.MULACC, dtype)
    total: Scalar = 0.0
    for x, y in zip(left, right, strict=True):
        total = multiply_add(x, y, total)
    return total


def fold_halves(fold: Fold, dtype: DType, elements: Sequence[Any]) -> Scalar:
    """The fold of the lanes of a vector: its halves are combined until one lane is left."""
    combine = fold_function(fold, dtype)
    lanes = list(elements)
    while len(lanes) > 1:
        half = len(lanes) // 2
        rest = lanes[2 * half :]
        lanes = [combine(lanes[at], lanes[at + half]) for at in range(half)] + rest
    result: Scalar = lanes[0]
    return result


def doubled(elements: Sequence[Any], combine: Callable[[Any, Any], Any]) -> list[Any]:
    """The fold of the elements up to each one, by neighbours at doubling distances."""
    values, distance = list(elements), 1
    while distance < len(values):
        values = [
            value if place < distance else combine(values[place - distance], value)
            for place, value in enumerate(values)
        ]
        distance *= 2
    return values


def running(fold: Fold, dtype: DType, elements: Sequence[Any], *, exclusive: bool) -> list[Scalar]:
    """The fold of the elements up to each one; without itself if `exclusive`."""
    combine = fold_function(fold, dtype)
    total: Scalar = identity(fold, dtype)
    found: list[Scalar] = []
    for element in elements:
        if exclusive:
            found.append(total)
        total = combine(total, element)
        if not exclusive:
            found.append(total)
    return found


def sorting_positions(elements: Sequence[Any], *, descending: bool) -> list[int]:
    """The positions that sort `elements`, stable; NaN counts as greater than every number."""

    def key(at: int) -> tuple[bool, Any]:
        element = elements[at]
        return (True, 0) if element != element else (False, element)

    return sorted(range(len(elements)), key=key, reverse=descending)
