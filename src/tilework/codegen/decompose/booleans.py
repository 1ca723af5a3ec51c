"""Ops on bools by AND, OR and XOR: sums are OR, products AND, as in reductions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilework.ir.build import const_like
from tilework.ir.ops import math

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tilework.ir.node import Node, OpDef


def _conjunction(node: Node) -> Node:
    return _simplified(math.AND(*node.src))


def _disjunction(node: Node) -> Node:
    return _simplified(math.OR(*node.src))


def _simplified(node: Node) -> Node:
    """x AND y, x OR y with literals taken out."""
    x, y = node.src
    true, false = const_like(True, x), const_like(False, x)
    neutral, absorbing = (true, false) if node.op is math.AND else (false, true)
    if x is absorbing or y is absorbing:
        return absorbing
    if x is neutral or x is y:
        return y
    return x if y is neutral else node


def _difference(node: Node) -> Node:
    return math.XOR(*node.src)


def _itself(node: Node) -> Node:
    return node.src[0]


def _never(node: Node) -> Node:
    return const_like(False, node.src[0])


def _unless(node: Node) -> Node:
    """A shift: by one bit or more nothing is left."""
    x, y = node.src
    return math.AND(x, _negated(y))


def _negated(x: Node) -> Node:
    return math.XOR(x, const_like(True, x))


def _less(node: Node) -> Node:
    x, y = node.src
    return math.AND(_negated(x), y)


def _at_most(node: Node) -> Node:
    x, y = node.src
    return math.OR(_negated(x), y)


def _equal(node: Node) -> Node:
    return _negated(math.XOR(*node.src))


def _multiply_add(node: Node) -> Node:
    x, y, z = node.src
    return math.OR(math.AND(x, y), z)


#: Each op of bools in terms of AND, OR and XOR.
RULES: Final[Mapping[OpDef, Callable[[Node], Node]]] = {
    math.AND: _conjunction,
    math.OR: _disjunction,
    math.ADD: _disjunction,
    math.MUL: _conjunction,
    math.SUB: _difference,
    math.MAXIMUM: _disjunction,
    math.MINIMUM: _conjunction,
    math.NEG: _itself,
    math.ABS: _itself,
    math.IDIV: _conjunction,
    math.MOD: _never,
    math.SHL: _unless,
    math.SHR: _unless,
    math.MULACC: _multiply_add,
    math.LT: _less,
    math.LE: _at_most,
    math.EQ: _equal,
    math.NE: _difference,
}
