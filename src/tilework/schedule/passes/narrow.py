"""Roundings of parts of a value become one rounding of the value, where nobody needs more of it.

Queries, keys and values are parts of one product, each of which is rounded to 16 bits where it is
used.  Rounded first, the product's kernel stores half of the bytes, and its readers find what they
want without a kernel that rounds.  Moving elements and rounding them commute, bit for bit.

Matrix units read a factor by rows or by columns.  Where they do, an array that is turned and
rounded is rounded and turned, so that a weight and its transpose are roundings of one array.  What
is computed stays: it may be stored in the order in which it is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.ir.node import make, toposort
from tilework.ir.ops import math, memory, tensor
from tilework.schedule.passes.cost import rounds
from tilework.schedule.schedule import kind_of

if TYPE_CHECKING:
    from tilework.ir.node import Node
    from tilework.ir.ops.math import CastAttrs

#: Movement of elements that are all there: none is made up.
_MOVED = frozenset((tensor.RESHAPE, tensor.PERMUTE, tensor.EXPAND, tensor.SHRINK, tensor.FLIP))
#: Movement that leaves as many elements as there are, or makes more of them.
_TURNED = _MOVED - {tensor.SHRINK}
_ARRAYS = frozenset((memory.PARAM, memory.AFTER))
#: What stays as it is: in memory already, or part of the movement.
_LEFT = _MOVED | {memory.PARAM, memory.AFTER, tensor.COPY, tensor.IOTA, math.CONST}


def round_before_turning(function: Node, kinds: tuple[str, ...]) -> Node:
    """TENSOR -> TENSOR, with roundings of arrays that are turned or repeated before that.

    Args:
        function: what is to be computed.
        kinds: kinds of devices for which it is done.

    Ensures: equal values, bit for bit.
    """
    order = toposort(function)
    params = [node for node in order if node.op is memory.PARAM]
    if any(kind_of(node.attrs.device) not in kinds for node in params):
        return function
    done: dict[Node, Node] = {}
    for node in order:
        src = tuple([done[part] for part in node.src])
        new = node if src == node.src else make(node.op, src, node.attrs)
        done[node] = _rounded_first(new) if rounds(new) else new
    return done[function]


def _rounded_first(node: Node) -> Node:
    chain: list[Node] = []
    source = node.src[0]
    while source.op in _TURNED:
        chain.append(source)
        source = source.src[0]
    if source.op not in _ARRAYS:
        return node
    new = make(node.op, (source,), node.attrs)
    for moved in reversed(chain):
        new = make(moved.op, (new,), moved.attrs)
    return new


def round_sources(function: Node) -> Node:
    """TENSOR -> TENSOR, with roundings before the movement that leads to them.

    Ensures: equal values, bit for bit.
    """
    order = toposort(function)
    users: dict[Node, list[Node]] = {}
    for node in order:
        for source in dict.fromkeys(node.src):
            users.setdefault(source, []).append(node)
    #: The one dtype to which everything that reads a value, moved or not, rounds it.
    rounded: dict[Node, CastAttrs] = {}
    #: Values of which parts are read.
    parted: set[Node] = set()
    for node in reversed(order):
        found = {_asked(user, rounded) for user in users.get(node, ())}
        asked = found.pop() if len(found) == 1 else None
        if asked is not None:
            rounded[node] = asked
            if any(user.op is tensor.SHRINK or user in parted for user in users[node]):
                parted.add(node)
    # What is only turned stays: what is rounded may be what is stored, in the order it is read.
    roots = {node for node in parted if node.op not in _LEFT}
    return _rewritten(order, rounded, roots) if roots else function


def _asked(user: Node, rounded: dict[Node, CastAttrs]) -> CastAttrs | None:
    """To which dtype a user rounds what it reads; None where it needs all of it."""
    if user.op in _MOVED:
        return rounded.get(user)
    if not rounds(user):
        return None
    attrs: CastAttrs = user.attrs
    return attrs


def _rewritten(order: list[Node], rounded: dict[Node, CastAttrs], roots: set[Node]) -> Node:
    done: dict[Node, Node] = {}
    #: Values that have been rounded before they were moved.
    narrow: dict[Node, Node] = {}
    for node in order:
        source = narrow.get(node.src[0]) if node.src else None
        if source is not None and node.op is math.CAST:
            done[node] = source
            continue
        if source is not None:
            narrow[node] = make(node.op, (source,), node.attrs)
            continue
        src = tuple([done[part] for part in node.src])
        new = done[node] = node if src == node.src else make(node.op, src, node.attrs)
        if node in roots:
            narrow[node] = math.CAST(new, attrs=rounded[node])
    return done[order[-1]]
