"""Rules that round otherwise than written: used only where `fp_mode` asks for them.

`CONTRACT` (contract and fast) joins a product and a sum into one rounding.  `REASSOCIATE` (fast)
also moves factors and literals through sums, and multiplies by reciprocals.  NaN operands, infinite
ones and signed zeros mean what they meant; an intermediate result that overflows or underflows may
come or go.  No rule is applied to what an elementary function is lowered to: those sequences are
made afterwards.
"""

from __future__ import annotations

import math as pymath
from typing import TYPE_CHECKING

from tilework.dtypes import float32, float64, round_to
from tilework.ir.build import const_like
from tilework.ir.cost import op_cost
from tilework.ir.free_ranges import free_ranges
from tilework.ir.node import make, toposort
from tilework.ir.ops.math import ADD, CONST, FDIV, MUL, MULACC, NEG, RECIPROCAL, SUB
from tilework.ir.ops.tensor import REDUCE, Fold
from tilework.ir.pattern import Pat, RuleSet, Var
from tilework.ir.rules.literals import number_of

if TYPE_CHECKING:
    from tilework.dtypes import DType
    from tilework.ir.node import Node


#: A reciprocal is made once for all that divide by the same value; this is the share of one.
_SHARE_OF_RECIPROCAL = 2


def _cost(node: Node) -> int:
    return _SHARE_OF_RECIPROCAL if node.op is RECIPROCAL else op_cost(node)


CONTRACT = RuleSet("contract")
REASSOCIATE = RuleSet("reassociate", _cost)


def _is_wide(node: Node) -> bool:
    """Whether targets compute with this float themselves; narrower ones go through float32."""
    return node.dtype is float32 or node.dtype is float64


# ---- contract ------------------------------------------------------------------------------------


@CONTRACT.rule(ADD, Pat(MUL, Var("x"), Var("y")), Var("z"), either_order=True)
def product_plus(x: Node, y: Node, z: Node) -> Node | None:
    """x * y + z  ->  mulacc(x, y, z)

    Needs: float32 or float64.
    Keeps: special values; what changes is that the product is not rounded.
    """
    return MULACC(x, y, z) if _is_wide(z) else None


@CONTRACT.rule(SUB, Pat(MUL, Var("x"), Var("y")), Var("z"))
def product_minus(x: Node, y: Node, z: Node) -> Node | None:
    """x * y - z  ->  mulacc(x, y, -z)

    Needs: float32 or float64.
    """
    return MULACC(x, y, NEG(z)) if _is_wide(z) else None


@CONTRACT.rule(SUB, Var("z"), Pat(MUL, Var("x"), Var("y")))
def minus_product(x: Node, y: Node, z: Node) -> Node | None:
    """z - x * y  ->  mulacc(-x, y, z)

    Needs: float32 or float64.
    """
    return MULACC(NEG(x), y, z) if _is_wide(z) else None


# ---- reassociate ---------------------------------------------------------------------------------


def _normal(value: float, dtype: DType) -> float | None:
    """`value` rounded to `dtype`, if that is a number with all its bits."""
    if not pymath.isfinite(value):
        return None
    rounded = float(round_to(value, dtype))
    least = 2.0 ** (2 - (1 << (dtype.exponent_bits - 1)))
    return rounded if pymath.isfinite(rounded) and abs(rounded) >= least else None


@REASSOCIATE.rule(ADD, Pat(ADD, Var("x"), Var("c", CONST)), Var("d", CONST))
def add_twice(x: Node, c: Node, d: Node) -> Node | None:
    """(x + c) + d  ->  x + (c + d)

    Needs: a float, literals of one sign, and a sum that is a normal number.
    Keeps: zeros, since the sum is none; with one sign nothing cancels that x was to lose.
    """
    first, second = number_of(c), number_of(d)
    if not x.dtype.is_float or (first < 0.0) != (second < 0.0):
        return None
    total = _normal(first + second, x.dtype)
    return None if total is None else ADD(x, const_like(total, x))


@REASSOCIATE.rule(MUL, Pat(MUL, Var("x"), Var("c", CONST)), Var("d", CONST))
def mul_twice(x: Node, c: Node, d: Node) -> Node | None:
    """(x * c) * d  ->  x * (c * d)

    Needs: a float, and a product that is a normal number, so that it neither overflows nor is 0.
    """
    if not x.dtype.is_float:
        return None
    product = _normal(number_of(c) * number_of(d), x.dtype)
    return None if product is None else MUL(x, const_like(product, x))


@REASSOCIATE.rule(FDIV, Var("x"), Var("c", CONST))
def div_by_literal(x: Node, c: Node) -> Node | None:
    """x / c  ->  x * (1 / c)

    Needs: a reciprocal that is a normal number, of a normal number.
    """
    divisor = _normal(number_of(c), x.dtype)
    inverse = None if divisor is None else _normal(1.0 / divisor, x.dtype)
    return None if inverse is None else MUL(x, const_like(inverse, x))


@REASSOCIATE.rule(FDIV, Var("x"), Var("y"))
def div_by_invariant(x: Node, y: Node) -> Node | None:
    """x / y  ->  x * reciprocal(y)

    Needs: y depends on fewer ranges than x, so that one reciprocal serves many quotients.
    Keeps: division by zero and by infinity; 1 / y of a subnormal y may overflow.
    """
    if x.op is CONST or y.op is CONST or not _is_wide(x):
        return None
    free = free_ranges(toposort(make(ADD, (x, y), None)))
    return MUL(x, RECIPROCAL(y)) if free[y] < free[x] else None


@REASSOCIATE.rule(ADD, Pat(MUL, Var("x"), Var("f")), Pat(MUL, Var("y"), Var("f")))
def common_factor(x: Node, y: Node, f: Node) -> Node | None:
    """x * f + y * f  ->  (x + y) * f

    Needs: a float factor that is a literal and a normal number: with others x + y = 0 could hide a
    NaN, and an overflow could come or go.
    """
    if not x.dtype.is_float or f.op is not CONST:
        return None
    return None if _normal(number_of(f), x.dtype) is None else MUL(ADD(x, y), f)


@REASSOCIATE.rule(REDUCE, Pat(MUL, Var("x"), Var("c", CONST)), ...)
def sum_of_scaled(node: Node, x: Node, c: Node) -> Node | None:
    """sum(x * c)  ->  sum(x) * c

    Needs: a float, and a literal factor that is a normal number.
    Gain:  one multiplication for all terms.
    """
    if node.attrs.fold is not Fold.ADD or not x.dtype.is_float:
        return None
    if _normal(number_of(c), x.dtype) is None:
        return None
    total = make(REDUCE, (x, *node.src[1:]), node.attrs)
    return MUL(total, const_like(number_of(c), total))
