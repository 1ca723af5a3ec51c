"""Rules of integers modulo 2**width, and what proven bounds allow.

`INTEGER` keeps index arithmetic in its normal form (sums of products with literals).  `STRENGTH`
leaves it, so it runs only late, when addresses are final.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.dtypes import bool_
from tilework.ir.build import const
from tilework.ir.ops.math import (
    ABS,
    ADD,
    AND,
    CONST,
    EQ,
    IDIV,
    LE,
    LT,
    MAXIMUM,
    MINIMUM,
    MOD,
    MUL,
    NE,
    NEG,
    OR,
    SHL,
    SHR,
    SUB,
    XOR,
)
from tilework.ir.pattern import Pat, RuleSet, Var
from tilework.ir.rules.literals import all_ones, integer_of, literal_like, zero_like
from tilework.ir.symbolic.bounds import bounds

if TYPE_CHECKING:
    from tilework.ir.node import Node

INTEGER = RuleSet("integer")
STRENGTH = RuleSet("strength")


def _is_integer(x: Node) -> bool:
    is_integer: bool = x.dtype.is_integer
    return is_integer


@INTEGER.rule((ADD, SUB, OR, XOR, SHL, SHR), Var("x"), Var("c", CONST))
def change_nothing(x: Node, c: Node) -> Node | None:
    """x + 0, x - 0, x | 0, x ^ 0, x << 0, x >> 0  ->  x

    Needs: integers; for floats see `add_negative_zero`.
    """
    return x if _is_integer(x) and c.attrs.bits == 0 else None


@INTEGER.rule((MUL, AND), Var("x"), Var("c", CONST))
def times_zero(x: Node, c: Node) -> Node | None:
    """x * 0 and x & 0  ->  0

    Needs: integers; a float may be NaN, infinite or negative.
    """
    return c if _is_integer(x) and c.attrs.bits == 0 else None


@INTEGER.rule(AND, Var("x"), Var("c", CONST))
def and_all_ones(x: Node, c: Node) -> Node | None:
    """x & ~0  ->  x"""
    return x if _is_integer(x) and all_ones(c) else None


@INTEGER.rule(OR, Var("x"), Var("c", CONST))
def or_all_ones(x: Node, c: Node) -> Node | None:
    """x | ~0  ->  ~0"""
    return c if _is_integer(x) and all_ones(c) else None


@INTEGER.rule((SUB, XOR), Var("x"), Var("x"))
def cancel(x: Node) -> Node | None:
    """x - x and x ^ x  ->  0

    Needs: integers or bool; infinity minus infinity is NaN.
    """
    return None if x.dtype.is_float else zero_like(x)


@INTEGER.rule((AND, OR), Var("x"), Var("x"))
def same_bits(x: Node) -> Node | None:
    """x & x and x | x  ->  x"""
    return x


@INTEGER.rule(SUB, Var("x"), Var("c", CONST))
def sub_constant(x: Node, c: Node) -> Node | None:
    """x - c  ->  x + -c

    Needs: integers, c != 0.
    Keeps: the value modulo 2**width, for the least integer too.
    """
    if not _is_integer(x) or c.attrs.bits == 0 or x.op is CONST:
        return None
    return ADD(x, literal_like(-integer_of(c), c))


@INTEGER.rule(ADD, Pat(ADD, Var("x"), Var("c", CONST)), Var("d", CONST))
def add_twice(x: Node, c: Node, d: Node) -> Node | None:
    """(x + c) + d  ->  x + (c + d)

    Needs: integers; floats would round differently.
    """
    if not _is_integer(x):
        return None
    return ADD(x, literal_like(integer_of(c) + integer_of(d), c))


@INTEGER.rule(MUL, Pat(MUL, Var("x"), Var("c", CONST)), Var("d", CONST))
def mul_twice(x: Node, c: Node, d: Node) -> Node | None:
    """(x * c) * d  ->  x * (c * d)

    Needs: integers; floats would round differently.
    """
    if not _is_integer(x):
        return None
    return MUL(x, literal_like(integer_of(c) * integer_of(d), c))


@INTEGER.rule((AND, OR, XOR), Pat((AND, OR, XOR), Var("x"), Var("c", CONST), name="inner"),
              Var("d", CONST))  # fmt: skip
def bits_twice(node: Node, inner: Node, x: Node, c: Node, d: Node) -> Node | None:
    """(x & c) & d  ->  x & (c & d), and likewise for | and ^"""
    if inner.op is not node.op:
        return None
    a, b = c.attrs.bits, d.attrs.bits
    merged = a & b if node.op is AND else a | b if node.op is OR else a ^ b
    return node.op(x, literal_like(merged, c))


@INTEGER.rule(NEG, Pat(SUB, Var("x"), Var("y")))
def neg_of_difference(x: Node, y: Node) -> Node | None:
    """-(x - y)  ->  y - x

    Needs: integers; for floats x == y would give -0.0 and +0.0.
    """
    return SUB(y, x) if _is_integer(x) else None


@INTEGER.rule((SHL, SHR), Pat((SHL, SHR), Var("x"), Var("c", CONST), name="inner"),
              Var("d", CONST))  # fmt: skip
def shift_twice(node: Node, inner: Node, x: Node, c: Node, d: Node) -> Node | None:
    """(x << c) << d  ->  x << (c + d), and likewise for >>

    Needs: both shifts lie within the width, and so does their sum.
    """
    bits = x.dtype.bits
    first, second = integer_of(c), integer_of(d)
    if inner.op is not node.op or not _is_integer(x) or first < 0 or second < 0:
        return None
    if first + second >= bits:
        return None
    return node.op(x, literal_like(first + second, c))


# --- division ------------------------------------------------------------------------------------


@INTEGER.rule(IDIV, Var("x"), Var("c", CONST))
def idiv_by_unit(x: Node, c: Node) -> Node | None:
    """x // 1  ->  x, x // -1  ->  -x and x // 0  ->  0

    Keeps: the least integer divided by -1, which is itself.
    """
    divisor = integer_of(c)
    if not _is_integer(x) or divisor not in (-1, 0, 1):
        return None
    return c if divisor == 0 else x if divisor == 1 else NEG(x)


@INTEGER.rule(MOD, Var("x"), Var("c", CONST))
def mod_by_unit(x: Node, c: Node) -> Node | None:
    """x % 1, x % -1 and x % 0  ->  0"""
    if not _is_integer(x) or integer_of(c) not in (-1, 0, 1):
        return None
    return zero_like(x)


@INTEGER.rule(IDIV, Pat(IDIV, Var("x"), Var("c", CONST)), Var("d", CONST))
def idiv_twice(x: Node, c: Node, d: Node) -> Node | None:
    """(x // c) // d  ->  x // (c * d)

    Needs: c, d > 0 and a product that does not wrap.
    """
    first, second = integer_of(c), integer_of(d)
    if first <= 0 or second <= 0 or first * second > x.dtype.maximum or x.dtype.is_bool:
        return None
    return IDIV(x, literal_like(first * second, c))


@INTEGER.rule(MOD, Pat(MOD, Var("x"), Var("c", CONST)), Var("d", CONST))
def mod_of_multiple(x: Node, c: Node, d: Node) -> Node | None:
    """(x % (k * d)) % d  ->  x % d

    Needs: d > 0, k > 0.
    """
    outer, inner = integer_of(d), integer_of(c)
    if outer <= 0 or inner <= 0 or inner % outer or x.dtype.is_bool:
        return None
    return MOD(x, d)


@INTEGER.rule(IDIV, Var("x"), Var("c", CONST))
def idiv_within(x: Node, c: Node) -> Node | None:
    """x // c  ->  the one quotient that the bounds of x allow

    Needs: c > 0 and bounds of x between two multiples of c.
    """
    divisor = integer_of(c)
    if divisor <= 0 or not _is_integer(x):
        return None
    low, high = bounds(x)
    return literal_like(low // divisor, c) if low // divisor == high // divisor else None


@INTEGER.rule(MOD, Var("x"), Var("c", CONST))
def mod_within(x: Node, c: Node) -> Node | None:
    """x % c  ->  x

    Needs: 0 <= x < c by its bounds.
    """
    low, high = bounds(x) if _is_integer(x) else (-1, -1)
    return x if low >= 0 and high < integer_of(c) else None


# --- what bounds prove ---------------------------------------------------------------------------


@INTEGER.rule((LT, LE, EQ, NE), Var("x"), Var("y"))
def compare_by_bounds(node: Node, x: Node, y: Node) -> Node | None:
    """x < y  ->  true or false, and likewise for <=, == and !=

    Needs: bounds that decide it.
    """
    if x.dtype.is_float:
        return None
    low, high = bounds(node)
    return const(bool(low), bool_, node.shape) if low == high else None


@INTEGER.rule((LE, EQ), Var("x"), Var("x"))
def equals_itself(node: Node, x: Node) -> Node | None:
    """x <= x and x == x  ->  true

    Needs: no float, since NaN is not equal to itself.
    """
    return None if x.dtype.is_float else const(True, bool_, node.shape)


@INTEGER.rule((LT, NE), Var("x"), Var("x"))
def differs_from_itself(node: Node, x: Node) -> Node | None:
    """x < x and x != x  ->  false

    Needs: no float for !=, since NaN differs from itself.
    """
    if x.dtype.is_float and node.op is NE:
        return None
    return const(False, bool_, node.shape)


@INTEGER.rule((MAXIMUM, MINIMUM), Var("x"), Var("y"))
def extreme_by_bounds(node: Node, x: Node, y: Node) -> Node | None:
    """max(x, y)  ->  x or y, and likewise for min

    Needs: bounds that decide which.
    """
    if not _is_integer(x):
        return None
    (low_x, high_x), (low_y, high_y) = bounds(x), bounds(y)
    if high_x <= low_y:
        return y if node.op is MAXIMUM else x
    if high_y <= low_x:
        return x if node.op is MAXIMUM else y
    return None


@INTEGER.rule(AND, Var("x"), Var("c", CONST))
def and_mask_within(x: Node, c: Node) -> Node | None:
    """x & (2**k - 1)  ->  x

    Needs: 0 <= x < 2**k by its bounds.
    """
    mask = integer_of(c)
    if not _is_integer(x) or mask < 0 or mask & (mask + 1):
        return None
    low, high = bounds(x)
    return x if low >= 0 and high <= mask else None


@INTEGER.rule(ABS, Var("x"))
def abs_of_positive(x: Node) -> Node | None:
    """|x|  ->  x

    Needs: x >= 0 by its bounds.
    """
    return x if _is_integer(x) and bounds(x)[0] >= 0 else None


# --- late ----------------------------------------------------------------------------------------


def _exponent(c: Node) -> int | None:
    """k of a literal 2**k with k > 0 (for signed types below the sign bit)."""
    value = integer_of(c)
    return value.bit_length() - 1 if value > 1 and value & (value - 1) == 0 else None


@STRENGTH.rule(MUL, Var("x"), Var("c", CONST))
def mul_by_power_of_two(x: Node, c: Node) -> Node | None:
    """x * 2**k  ->  x << k

    Needs: an integer type, and k > 0.  (k == 0 is `mul_by_one`.)
    Keeps: the value modulo 2**width, so it is right for signed types too.
    Gain:  a shift never costs more than a multiply on any target we have.
    """
    k = _exponent(c) if _is_integer(x) else None
    return None if k is None else SHL(x, literal_like(k, c))


@STRENGTH.rule(IDIV, Var("x"), Var("c", CONST))
def idiv_by_power_of_two(x: Node, c: Node) -> Node | None:
    """x // 2**k  ->  x >> k

    Needs: an integer type, and k > 0.
    Keeps: rounding towards minus infinity, which is what an arithmetic shift does.
    """
    k = _exponent(c) if _is_integer(x) else None
    return None if k is None else SHR(x, literal_like(k, c))


@STRENGTH.rule(MOD, Var("x"), Var("c", CONST))
def mod_by_power_of_two(x: Node, c: Node) -> Node | None:
    """x % 2**k  ->  x & (2**k - 1)

    Needs: an integer type, and k > 0.
    Keeps: the sign of the divisor, for negative x too (two's complement).
    """
    k = _exponent(c) if _is_integer(x) else None
    return None if k is None else AND(x, literal_like((1 << k) - 1, c))
