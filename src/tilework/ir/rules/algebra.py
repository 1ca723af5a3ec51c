"""Rules of arithmetic that hold for every float, NaN, infinity and signed zero included.

What is not here is as deliberate: x * 0 (NaN, infinity, -0.0), x + 0.0 (-0.0 becomes +0.0),
x - x (NaN, infinity), x / x, and any change of the order of additions.
"""

from __future__ import annotations

import math as pymath
from typing import TYPE_CHECKING

from tilework.dtypes import round_to
from tilework.ir.build import const_like
from tilework.ir.ops.math import (
    ABS,
    ADD,
    AND,
    CEIL,
    CONST,
    EQ,
    FDIV,
    FLOOR,
    MAXIMUM,
    MINIMUM,
    MUL,
    MULACC,
    NE,
    NEG,
    OR,
    RECIPROCAL,
    ROUND,
    SUB,
    TRUNC,
    XOR,
)
from tilework.ir.pattern import Pat, RuleSet, Var
from tilework.ir.rules.literals import is_literal, number_of

if TYPE_CHECKING:
    from tilework.ir.node import Node

ALGEBRA = RuleSet("algebra")

_COMMUTATIVE = (ADD, MUL, MAXIMUM, MINIMUM, AND, OR, XOR, EQ, NE)
_WHOLE = (FLOOR, CEIL, TRUNC, ROUND)


@ALGEBRA.rule(_COMMUTATIVE, Var("c", CONST), Var("x"))
def constant_on_the_right(node: Node, c: Node, x: Node) -> Node | None:
    """c + x  ->  x + c, for every commutative op.

    Needs: x is no literal itself.
    Gain:  other rules look for literals on the right only.
    """
    return None if x.op is CONST else node.op(x, c)


@ALGEBRA.rule(MUL, Var("x"), Var("c", CONST))
def mul_by_one(x: Node, c: Node) -> Node | None:
    """x * 1  ->  x

    Keeps: NaN, infinity and the sign of zero.
    """
    return x if not x.dtype.is_bool and is_literal(c, 1) else None


@ALGEBRA.rule(ADD, Var("x"), Var("c", CONST))
def add_negative_zero(x: Node, c: Node) -> Node | None:
    """x + -0.0  ->  x

    Needs: a float literal of negative sign; +0.0 would turn -0.0 into +0.0.
    """
    return x if x.dtype.is_float and is_literal(c, -0.0) else None


@ALGEBRA.rule(SUB, Var("x"), Var("c", CONST))
def sub_zero(x: Node, c: Node) -> Node | None:
    """x - 0.0  ->  x

    Needs: a float literal of positive sign; -0.0 would turn -0.0 into +0.0.
    """
    return x if x.dtype.is_float and is_literal(c, 0.0) else None


@ALGEBRA.rule(FDIV, Var("x"), Var("c", CONST))
def div_by_power_of_two(x: Node, c: Node) -> Node | None:
    """x / 2**k  ->  x * 2**-k

    Needs: the reciprocal is exact and normal, so both round the same number.  k == 0 gives x.
    """
    divisor = number_of(c)
    if not pymath.isfinite(divisor) or abs(pymath.frexp(divisor)[0]) != 0.5:
        return None
    if divisor == 1.0:
        return x
    inverse = 1.0 / divisor
    least = 2.0 ** (2 - (1 << (x.dtype.exponent_bits - 1)))
    is_exact = pymath.isfinite(inverse) and round_to(inverse, x.dtype) == inverse
    if not is_exact or abs(inverse) < least:
        return None
    return MUL(x, const_like(inverse, x))


@ALGEBRA.rule(FDIV, Var("c", CONST), Var("x"))
def one_over(c: Node, x: Node) -> Node | None:
    """1 / x  ->  reciprocal(x)

    Keeps: both are correctly rounded.
    """
    return RECIPROCAL(x) if is_literal(c, 1.0) and x.op is not CONST else None


@ALGEBRA.rule(NEG, Pat(NEG, Var("x")))
def neg_neg(x: Node) -> Node | None:
    """-(-x)  ->  x

    Keeps: for integers the least value, which is its own negative.
    """
    return x


@ALGEBRA.rule(ABS, Pat((ABS, NEG), Var("x")))
def abs_of_sign(node: Node, x: Node) -> Node | None:
    """|-x| and ||x||  ->  |x|

    Needs: a signed type; the negative of an unsigned number has another magnitude.
    """
    return ABS(x) if node.dtype.is_float or node.dtype.is_signed else None


@ALGEBRA.rule(ADD, Var("x"), Pat(NEG, Var("y")))
def add_negative(x: Node, y: Node) -> Node | None:
    """x + -y  ->  x - y

    Keeps: subtraction is defined as the addition of the negative.
    """
    return None if x.dtype.is_bool else SUB(x, y)


@ALGEBRA.rule(ADD, Pat(NEG, Var("y")), Var("x"))
def negative_add(x: Node, y: Node) -> Node | None:
    """-y + x  ->  x - y"""
    return None if x.dtype.is_bool or x.op is NEG else SUB(x, y)


@ALGEBRA.rule(SUB, Var("x"), Pat(NEG, Var("y")))
def sub_negative(x: Node, y: Node) -> Node | None:
    """x - -y  ->  x + y"""
    return None if x.dtype.is_bool else ADD(x, y)


@ALGEBRA.rule((MAXIMUM, MINIMUM), Var("x"), Var("x"))
def extreme_of_itself(x: Node) -> Node | None:
    """max(x, x) and min(x, x)  ->  x

    Keeps: NaN, which both would return.
    """
    return x


@ALGEBRA.rule(MAXIMUM, Pat(MAXIMUM, Var("x"), Var("c", CONST)), Var("d", CONST))
def maximum_twice(x: Node, c: Node, d: Node) -> Node | None:
    """max(max(x, c), d)  ->  max(x, max(c, d))

    Keeps: NaN and the order of zeros; the maximum is associative with them.
    """
    return MAXIMUM(x, MAXIMUM(c, d))


@ALGEBRA.rule(MINIMUM, Pat(MINIMUM, Var("x"), Var("c", CONST)), Var("d", CONST))
def minimum_twice(x: Node, c: Node, d: Node) -> Node | None:
    """min(min(x, c), d)  ->  min(x, min(c, d))

    Keeps: NaN and the order of zeros; the minimum is associative with them.
    """
    return MINIMUM(x, MINIMUM(c, d))


@ALGEBRA.rule(_WHOLE, Pat(_WHOLE, Var("x"), name="inner"))
def whole_of_whole(inner: Node, x: Node) -> Node | None:
    """floor(ceil(x)), and any other pair of roundings to whole numbers  ->  the inner one

    Keeps: a whole number, infinity, NaN and -0.0 round to themselves.
    """
    return inner


@ALGEBRA.rule(MULACC, Var("x"), Var("c", CONST), Var("z"))
def mulacc_by_one(x: Node, c: Node, z: Node) -> Node | None:
    """x * 1 + z  ->  x + z

    Keeps: one rounding of the same number.
    """
    return ADD(x, z) if not x.dtype.is_bool and is_literal(c, 1) else None


@ALGEBRA.rule(MULACC, Var("x"), Var("y"), Var("c", CONST))
def mulacc_of_nothing(x: Node, y: Node, c: Node) -> Node | None:
    """x * y + -0.0  ->  x * y

    Needs: a float literal of negative sign, or an integer 0.
    """
    nothing = -0.0 if x.dtype.is_float else 0
    return MUL(x, y) if not x.dtype.is_bool and is_literal(c, nothing) else None
