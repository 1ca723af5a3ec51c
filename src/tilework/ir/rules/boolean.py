"""Rules of conditions and selections.  The negation of a condition is `c ^ true`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.ir.build import const
from tilework.ir.ops.math import AND, CONST, EQ, LE, LT, NE, OR, WHERE, XOR
from tilework.ir.pattern import Pat, RuleSet, Var

if TYPE_CHECKING:
    from tilework.ir.node import Node

BOOLEAN = RuleSet("boolean")


def _is_true(c: Node) -> bool:
    return bool(c.attrs.bits == 1)


def negated(condition: Node) -> Node:
    """The condition that holds where `condition` does not."""
    return XOR(condition, const(True, condition.dtype, condition.shape))


@BOOLEAN.rule((AND, OR, XOR, EQ, NE), Var("x"), Var("c", CONST))
def neutral_literal(node: Node, x: Node, c: Node) -> Node | None:
    """x & true, x | false, x ^ false, x == true and x != false  ->  x

    Needs: bool.
    """
    if not x.dtype.is_bool:
        return None
    return x if _is_true(c) == (node.op in (AND, EQ)) else None


@BOOLEAN.rule((AND, OR), Var("x"), Var("c", CONST))
def deciding_literal(node: Node, x: Node, c: Node) -> Node | None:
    """x & false  ->  false, and x | true  ->  true"""
    if not x.dtype.is_bool:
        return None
    return c if _is_true(c) == (node.op is OR) else None


@BOOLEAN.rule((EQ, NE), Var("x"), Var("c", CONST))
def comparison_as_negation(node: Node, x: Node, c: Node) -> Node | None:
    """x == false and x != true  ->  x ^ true

    Needs: bool.
    Gain:  a negation has one form, which other rules look for.
    """
    if not x.dtype.is_bool or _is_true(c) != (node.op is NE) or x.op is CONST:
        return None
    return negated(x)


@BOOLEAN.rule(XOR, Pat(XOR, Var("x"), Var("c", CONST)), Var("c"))
def negation_twice(x: Node, c: Node) -> Node | None:
    """(x ^ c) ^ c  ->  x"""
    return x


@BOOLEAN.rule(XOR, Pat((EQ, NE), Var("x"), Var("y"), name="comparison"), Var("c", CONST))
def negated_equality(comparison: Node, x: Node, y: Node, c: Node) -> Node | None:
    """(x == y) ^ true  ->  x != y, and the other way round

    Keeps: NaN, which is unequal to everything.
    """
    if not _is_true(c):
        return None
    return NE(x, y) if comparison.op is EQ else EQ(x, y)


@BOOLEAN.rule(XOR, Pat((LT, LE), Var("x"), Var("y"), name="comparison"), Var("c", CONST))
def negated_order(comparison: Node, x: Node, y: Node, c: Node) -> Node | None:
    """(x < y) ^ true  ->  y <= x, and (x <= y) ^ true  ->  y < x

    Needs: no float, since both are false for NaN.
    """
    if x.dtype.is_float or not _is_true(c):
        return None
    return LE(y, x) if comparison.op is LT else LT(y, x)


@BOOLEAN.rule((AND, OR), Var("x"), Pat((AND, OR), Var("x"), Var("y"), name="inner",
              either_order=True), either_order=True)  # fmt: skip
def absorb(node: Node, inner: Node, x: Node) -> Node | None:
    """x & (x | y)  ->  x, x & (x & y)  ->  x & y, and likewise for |

    Keeps: every bit, so it holds for integers too.
    """
    return inner if inner.op is node.op else x


@BOOLEAN.rule(AND, Var("x"), Pat(XOR, Var("x"), Var("c", CONST)), either_order=True)
def contradiction(x: Node, c: Node) -> Node | None:
    """x & (x ^ true)  ->  false"""
    if not x.dtype.is_bool or not _is_true(c):
        return None
    return const(False, x.dtype, x.shape)


@BOOLEAN.rule(WHERE, Var("c", CONST), Var("x"), Var("y"))
def where_literal(c: Node, x: Node, y: Node) -> Node | None:
    """where(true, x, y)  ->  x, and where(false, x, y)  ->  y"""
    return x if _is_true(c) else y


@BOOLEAN.rule(WHERE, Var("c"), Var("x"), Var("x"))
def where_same(x: Node) -> Node | None:
    """where(c, x, x)  ->  x"""
    return x


@BOOLEAN.rule(WHERE, Pat(XOR, Var("c"), Var("t", CONST)), Var("x"), Var("y"))
def where_negated(c: Node, t: Node, x: Node, y: Node) -> Node | None:
    """where(c ^ true, x, y)  ->  where(c, y, x)"""
    return WHERE(c, y, x) if _is_true(t) else None


@BOOLEAN.rule(WHERE, Var("c"), Var("x", CONST), Var("y", CONST))
def where_of_literals(c: Node, x: Node, y: Node) -> Node | None:
    """where(c, true, false)  ->  c, and where(c, false, true)  ->  c ^ true"""
    if not x.dtype.is_bool or x is y:
        return None
    return c if _is_true(x) else negated(c)


@BOOLEAN.rule(WHERE, Var("c"), Pat(WHERE, Var("c"), Var("x"), Var("z")), Var("y"))
def where_inside_where(c: Node, x: Node, y: Node) -> Node | None:
    """where(c, where(c, x, z), y)  ->  where(c, x, y)"""
    return WHERE(c, x, y)


@BOOLEAN.rule(WHERE, Var("c"), Var("x"), Pat(WHERE, Var("c"), Var("z"), Var("y")))
def where_beside_where(c: Node, x: Node, y: Node) -> Node | None:
    """where(c, x, where(c, z, y))  ->  where(c, x, y)"""
    return WHERE(c, x, y)
