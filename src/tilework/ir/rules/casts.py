"""Rules of conversions: only what changes no value."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from tilework.dtypes import DType, Kind
from tilework.ir.build import bitcast, cast
from tilework.ir.ops.math import BITCAST, CAST, CONST, MAXIMUM, MINIMUM, NE
from tilework.ir.pattern import Pat, RuleSet, Var
from tilework.ir.rules.literals import number_of

if TYPE_CHECKING:
    from tilework.ir.node import Node

CASTS = RuleSet("casts")


@cache
def holds_every_value(wide: DType, narrow: DType) -> bool:
    """Can `wide` hold every value of `narrow` (of floats NaN, infinity and -0.0 too)?"""
    if wide is narrow or narrow.is_bool:
        return True
    if wide.is_bool or (narrow.is_float and not wide.is_float):
        return False
    if narrow.is_float:
        # Subnormals of the narrow format need exponents below its own range.
        low = _least_exponent(narrow)
        return (
            wide.mantissa_bits >= narrow.mantissa_bits
            and _least_exponent(wide) <= low
            and wide.exponent_bits >= narrow.exponent_bits
            and not (wide.finite_only and not narrow.finite_only)
        )
    if wide.is_float:
        precision = narrow.bits - (1 if narrow.is_signed else 0)
        return wide.mantissa_bits + 1 >= precision and (1 << (wide.exponent_bits - 1)) > narrow.bits
    return wide.minimum <= narrow.minimum and wide.maximum >= narrow.maximum


def _least_exponent(dtype: DType) -> int:
    return 2 - (1 << (dtype.exponent_bits - 1)) - dtype.mantissa_bits


@CASTS.rule(CAST, Var("x"))
def cast_to_itself(node: Node, x: Node) -> Node | None:
    """cast(x) to the dtype of x  ->  x"""
    return x if x.dtype is node.dtype else None


@CASTS.rule(CAST, Pat(CAST, Var("x"), name="inner"))
def cast_twice(node: Node, inner: Node, x: Node) -> Node | None:
    """cast(cast(x))  ->  cast(x)

    Needs: the inner cast loses nothing, and the direct one follows the same rules: an integer
        that went through a float saturates where a direct cast wraps.
    """
    first, middle, last = x.dtype, inner.dtype, node.dtype
    if not holds_every_value(middle, first):
        return None
    is_direct_wrapped = not first.is_float and last.is_integer
    if middle.is_float and is_direct_wrapped and not holds_every_value(last, first):
        return None
    return cast(x, last)


@CASTS.rule(CAST, Pat(MINIMUM, Var("x"), Var("c", CONST), either_order=True))
def cast_of_minimum(node: Node, x: Node, c: Node) -> Node | None:
    """cast(minimum(x, c))  ->  cast(x)

    Needs: a float that becomes an integer, of which c is no less than the greatest: the cast
        saturates there itself.
    """
    if not x.dtype.is_float or not node.dtype.is_integer:
        return None
    return cast(x, node.dtype) if number_of(c) >= node.dtype.maximum else None


@CASTS.rule(CAST, Pat(MAXIMUM, Var("x"), Var("c", CONST), either_order=True))
def cast_of_maximum(node: Node, x: Node, c: Node) -> Node | None:
    """cast(maximum(x, c))  ->  cast(x)

    Needs: a float that becomes an integer, of which c is no greater than the least.
    """
    if not x.dtype.is_float or not node.dtype.is_integer:
        return None
    return cast(x, node.dtype) if number_of(c) <= node.dtype.minimum else None


@CASTS.rule(BITCAST, Var("x"))
def bitcast_to_itself(node: Node, x: Node) -> Node | None:
    """bitcast(x) to the dtype of x  ->  x"""
    return x if x.dtype is node.dtype else None


@CASTS.rule(BITCAST, Pat(BITCAST, Var("x"), name="inner"))
def bitcast_twice(node: Node, inner: Node, x: Node) -> Node | None:
    """bitcast(bitcast(x))  ->  bitcast(x)

    Needs: all three have the same width.
    """
    same = x.dtype.bits == inner.dtype.bits == node.dtype.bits
    return bitcast(x, node.dtype) if same else None


@CASTS.rule(NE, Pat(CAST, Var("x")), Var("c", CONST))
def bool_back_again(x: Node, c: Node) -> Node | None:
    """cast(x) != 0  ->  x

    Needs: x is bool; -0.0 counts as 0.
    """
    if x.dtype.kind is not Kind.BOOL:
        return None
    sign = 1 << (c.dtype.bits - 1) if c.dtype.is_float else 0
    return x if c.attrs.bits in (0, sign) else None
