"""Rounded quotients by a literal without a division, bit for bit, for targets that have an FMA.

With r = 1 / c rounded, and q within one last place of x / c, the rest e = x - q c is exact and
q + e r, rounded once, is x / c rounded (Markstein).  That needs a rest that does not underflow.  A
smaller quotient is not even a half, so that rounded to an integer it is a zero of its sign, as what
is computed here is for a positive literal.  A quotient that overflows is cut to the greatest number
first, and the rest makes it infinite again; NaN stays NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilework.base.late import late_module
from tilework.dtypes import float32, round_to
from tilework.ir.build import cast, const_like
from tilework.ir.cost import op_cost
from tilework.ir.ops.math import ADD, CAST, CONST, FDIV, LT, MUL, MULACC, NEG, ROUND, WHERE
from tilework.ir.pattern import Pat, RuleSet, Var
from tilework.ir.rules.literals import number_of

if TYPE_CHECKING:
    import fractions

    from tilework.dtypes import DType
    from tilework.ir.node import Node
else:
    fractions = late_module("fractions")

#: What a division costs beside the instructions that replace it: it keeps its unit busy.
_DIVISION: Final = 40
#: Literals of which neither reciprocals nor small quotients come near the ends of the range.
_LEAST, _MOST = 2.0**-60, 2.0**60
#: A rounded quotient up from here saturates 16 bits, whatever 17 bits are added to it.
_SATURATED, _MOST_ADDED = 2.0**20, 2.0**16
_GREATEST: Final = (2.0 - 2.0**-23) * 2.0**127
#: A reciprocal so near gives a first quotient within one last place.
_NEAR: Final = 2.0**-25


def _cost(node: Node) -> int:
    return _DIVISION if node.op is FDIV else op_cost(node)


#: Quotients that become small integers; these rules come first.
SATURATED_QUOTIENTS = RuleSet("saturated-quotients", _cost)
QUOTIENTS = RuleSet("quotients", _cost)


@SATURATED_QUOTIENTS.rule(CAST, Pat(ROUND, Pat(FDIV, Var("x"), Var("c", CONST))))
def integer_quotient(node: Node, x: Node, c: Node) -> Node | None:
    """cast(round(x / c))  ->  cast(round(q + (x - q * c) * r)), where q is cut(x) * r

    Needs: what `rounded_quotient` does, and an integer of at most 16 bits.
    Keeps: every bit of the result: what is cut off of x would saturate.
    """
    if not _is_small(node.dtype):
        return None
    quotient = _saturating(x, c)
    return None if quotient is None else cast(ROUND(quotient), node.dtype)


@SATURATED_QUOTIENTS.rule(
    CAST, Pat(ADD, Pat(ROUND, Pat(FDIV, Var("x"), Var("c", CONST))), Var("z"), either_order=True)
)
def integer_quotient_and_more(node: Node, x: Node, c: Node, z: Node) -> Node | None:
    """cast(round(x / c) + z)  ->  cast(round(q + (x - q * c) * r) + z), where q is cut(x) * r

    Needs: what `integer_quotient` does, and an integer of at most 16 bits for z.
    """
    is_known = z.op is CONST and abs(number_of(z)) <= _MOST_ADDED
    if not is_known and not (z.op is CAST and _is_small(z.src[0].dtype)):
        return None
    quotient = _saturating(x, c) if _is_small(node.dtype) else None
    return None if quotient is None else cast(ADD(ROUND(quotient), z), node.dtype)


@QUOTIENTS.rule(ROUND, Pat(FDIV, Var("x"), Var("c", CONST)))
def rounded_quotient(x: Node, c: Node) -> Node | None:
    """round(x / c)  ->  round(q + (x - q * c) * r), where q is x * r and r about 1 / c

    Needs: float32, an FMA, and a positive literal far from the ends of the range.
    Keeps: every bit of the result.
    """
    if not _is_possible(x, c):
        return None
    reciprocal, steps = _reciprocal(x, c)
    most, least = const_like(_GREATEST, x), const_like(-_GREATEST, x)
    quotient = MUL(x, reciprocal)
    for _ in range(steps):
        quotient = WHERE(LT(quotient, most), quotient, most)
        quotient = WHERE(LT(least, quotient), quotient, least)
        quotient = _nearer(quotient, x, c, reciprocal)
    return ROUND(quotient)


def _saturating(x: Node, c: Node) -> Node | None:
    """x / c, or a number of its sign that is as good as too great; NaN for NaN."""
    if not _is_possible(x, c):
        return None
    reciprocal, steps = _reciprocal(x, c)
    limit = number_of(c) * _SATURATED
    most, least = const_like(limit, x), const_like(-limit, x)
    x = WHERE(LT(most, x), most, x)
    x = WHERE(LT(x, least), least, x)
    quotient = MUL(x, reciprocal)
    for _ in range(steps):
        quotient = _nearer(quotient, x, c, reciprocal)
    return quotient


def _nearer(quotient: Node, x: Node, c: Node, reciprocal: Node) -> Node:
    return MULACC(NEG(MULACC(quotient, c, NEG(x))), reciprocal, quotient)


def _is_possible(x: Node, c: Node) -> bool:
    return x.dtype is float32 and _LEAST <= number_of(c) <= _MOST


def _is_small(dtype: DType) -> bool:
    return dtype.is_integer and dtype.bits <= 16


def _reciprocal(x: Node, c: Node) -> tuple[Node, int]:
    """1 / c rounded, and how often a quotient made with it must be improved."""
    inverse = float(round_to(1.0 / number_of(c), float32))
    error = abs(fractions.Fraction(inverse) * fractions.Fraction(number_of(c)) - 1)
    return const_like(inverse, x), 1 if error <= _NEAR else 2
