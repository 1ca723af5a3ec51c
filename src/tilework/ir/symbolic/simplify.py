"""Index arithmetic, simplified while it is built.

Sums have a normal form (`sums`), quotients and conditions follow from it (`quotients`,
`conditions`); here are the names that the rest of the compiler builds with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.dtypes import bool_, index
from tilework.ir.node import make
from tilework.ir.ops import math
from tilework.ir.symbolic.bounds import bounds
from tilework.ir.symbolic.conditions import (
    FALSE,
    TRUE,
    all_of,
    at_least,
    both,
    choice,
    conjuncts,
    equal,
    implies,
    less,
    where,
)
from tilework.ir.symbolic.quotients import idiv, mod
from tilework.ir.symbolic.sums import (
    Terms,
    add,
    from_terms,
    mul,
    plus,
    proven_less,
    scale,
    sub,
    terms,
    value_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tilework.ir.node import Node

__all__ = [
    "FALSE", "TRUE", "Terms", "add", "all_of", "at_least", "both", "choice", "conjuncts", "equal",
    "from_terms", "idiv", "implies", "less", "maximum", "minimum", "mod", "mul", "plus",
    "proven_less", "rebuild", "scale", "sub", "substitute", "terms", "value_of", "where",
]  # fmt: skip


def minimum(a: Node, b: Node) -> Node:
    """The lesser of two indices."""
    if a is b or proven_less(a, b):
        return a
    if proven_less(b, a):
        return b
    (low_a, high_a), (low_b, high_b) = bounds(a), bounds(b)
    if high_a <= low_b:
        return a
    if high_b <= low_a:
        return b
    return make(math.MINIMUM, (a, b), None)


def maximum(a: Node, b: Node) -> Node:
    """The greater of two indices."""
    if a is b:
        return a
    (low_a, high_a), (low_b, high_b) = bounds(a), bounds(b)
    if high_a <= low_b:
        return b
    if high_b <= low_a:
        return a
    return make(math.MAXIMUM, (a, b), None)


_BUILDERS = {
    math.ADD: add,
    math.SUB: sub,
    math.MUL: mul,
    math.IDIV: idiv,
    math.MOD: mod,
    math.MINIMUM: minimum,
    math.MAXIMUM: maximum,
}


def rebuild(node: Node, src: tuple[Node, ...]) -> Node:
    """`node` with other sources, simplified if it is index arithmetic."""
    op = node.op
    if src and src[0].type.shape == ():
        kind = src[0].type.dtype
        if kind is index:
            builder = _BUILDERS.get(op)
            if builder is not None:
                return builder(src[0], src[1])
            if op is math.LT:
                return less(src[0], src[1])
            if op is math.LE:
                return at_least(src[1], src[0])
            if op is math.EQ:
                return equal(src[0], src[1])
        elif kind is bool_:
            if op is math.AND:
                return both(src[0], src[1])
            if op is math.WHERE:
                return where(src[0], src[1], src[2])
    return make(op, src, node.attrs)


def substitute(
    roots: Iterable[Node], mapping: Mapping[Node, Node], memo: dict[Node, Node] | None = None
) -> list[Node]:
    """`roots` with the nodes of `mapping` replaced, index arithmetic simplified again.

    `memo` may be passed to share work between calls with the same mapping.
    """
    done: dict[Node, Node] = {} if memo is None else memo
    done.update(mapping)
    results = []
    result_of = done.__getitem__
    for root in roots:
        stack: list[Node | None] = [root]
        pop = stack.pop
        while stack:
            node = pop()
            if node is None:  # the sources of the next one are done
                above = pop()
                if above is not None:
                    src = tuple(map(result_of, above.src))
                    done[above] = above if src == above.src else rebuild(above, src)
            elif node not in done:
                if node.src:
                    stack.append(node)
                    stack.append(None)
                    stack.extend(node.src)
                else:
                    done[node] = node
        results.append(done[root])
    return results
