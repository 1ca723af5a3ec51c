"""Scatters that write one element of each row: a choice, by position, between old and new.

The gradient of picking one element of each row (of the logarithm of a probability, say) is zero
but for that element.  Stored, zeros are written, an element of each row is changed, and all of it
is read again.  As a choice it is computed where it is needed: the element at a position is the new
one where the row's index is that position.  The sum of such a row of zeros is that element.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.ir.build import const, const_bits
from tilework.ir.node import make, toposort
from tilework.ir.ops import math, memory, tensor
from tilework.ir.ops.tensor import Fold
from tilework.ir.symbolic import dims
from tilework.schedule.passes.movement import MOVEMENT
from tilework.schedule.schedule import kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tilework.ir.node import Node
    from tilework.schedule.schedule import Limits

#: What needs a part of its first operand, maybe.
_PICKING = frozenset((tensor.SHRINK, tensor.GATHER, tensor.WINDOW, tensor.UNWINDOW))
#: What a sum of zeros and of one other number goes through before it is added up.
_SIGNS = frozenset((math.NEG, tensor.DETACH))


def chosen_axis(node: Node) -> int | None:
    """The axis along which a SCATTER into a constant writes one element of each row.

    Args:
        node: a TENSOR node.

    Returns:
        None for what is no such SCATTER.
    """
    if node.op is not tensor.SCATTER or not _is_constant(node.src[0]):
        return None
    updates, indices = node.src[1], node.src[2:]
    first = node.attrs.axis
    if len(indices) != len(indices[0].type.shape):
        return None
    indexed = [p for p, each in enumerate(indices) if not _is_own_position(each, p)]
    if len(indexed) != 1:
        return None
    axis: int = first + indexed[0]
    for other, size in enumerate(node.type.shape):
        if updates.type.shape[other] != (1 if other == axis else size):
            return None
    return axis


def _is_own_position(node: Node, axis: int) -> bool:
    if node.op is not tensor.IOTA or node.attrs.axis != axis:
        return False
    last = dims.greatest(node.type.shape[axis]) - 1
    return bool(node.attrs.dtype.maximum >= last)  # a narrower one starts again at its least


def _is_constant(node: Node) -> bool:
    while node.op in MOVEMENT and node.op is not tensor.PAD:
        node = node.src[0]
    return node.op is math.CONST


def sum_choices(function: Node, limits: Limits) -> Node:
    """TENSOR -> TENSOR, with sums of rows that are zero but for one element as that element.

    All of the SCATTER must be needed otherwise too: it is what reports indices outside of its axis.

    Ensures: equal values, bit for bit; zeros added to a number give that number, and to -0 give 0.
    """
    order = toposort(function)
    params = [node for node in order if node.op is memory.PARAM]
    if any(kind_of(node.attrs.device) not in limits.scatters_chosen_on for node in params):
        return function
    sums = {node: scatter for node in order if (scatter := _summed(node)) is not None}
    if not sums:
        return function
    needed_otherwise = _needed_whole(function, sums)
    done: dict[Node, Node] = {}
    for node in order:
        src = tuple([done[source] for source in node.src])
        if sums.get(node) in needed_otherwise:
            done[node] = _element(node, sums[node], done)
        else:
            done[node] = node if src == node.src else make(node.op, src, node.attrs)
    return done[function]


def _needed_whole(function: Node, sums: Mapping[Node, Node]) -> set[Node]:
    """The values of which a function needs all elements, elsewhere than in `sums`."""
    found, stack = {function}, [function]
    while stack:
        node = stack.pop()
        if node in sums:
            continue
        sources = node.src[1:] if node.op in _PICKING else node.src
        fresh = [source for source in dict.fromkeys(sources) if source not in found]
        found.update(fresh)
        stack += fresh
    return found


def _summed(node: Node) -> Node | None:
    """The SCATTER of one element into each row of zeros that a node sums; None for other nodes."""
    if node.op is not tensor.REDUCE or node.attrs.fold is not Fold.ADD:
        return None
    scatter = node.src[0]
    while scatter.op in _SIGNS:
        scatter = scatter.src[0]
    axis = chosen_axis(scatter)
    if axis is None or node.attrs.axes != (axis,) or not _is_zero(scatter.src[0]):
        return None
    is_known = isinstance(scatter.type.shape[axis], int)
    return scatter if is_known and scatter.attrs.fold in (Fold.ADD, None) else None


def _element(node: Node, scatter: Node, done: dict[Node, Node]) -> Node:
    """The one element that a sum of rows of `scatter` adds to zeros."""
    signs = []
    source = node.src[0]
    while source is not scatter:
        signs.append(source)
        source = source.src[0]
    (axis,) = node.attrs.axes
    size = scatter.type.shape[axis]
    updates = done[scatter.src[1]]
    position = done[scatter.src[2 + axis - scatter.attrs.axis]]
    shape = updates.type.shape
    zero = const_bits(0, updates.type.dtype, shape)
    value = math.ADD(zero, updates) if scatter.attrs.fold is Fold.ADD else updates
    for sign in reversed(signs):
        value = make(sign.op, (value,), sign.attrs)
    value = math.ADD(zero, value)
    first, last = (const(at, position.type.dtype, shape) for at in (0, size - 1))
    is_inside = math.AND(math.LE(first, position), math.LE(position, last))
    found = math.WHERE(is_inside, value, zero)
    return tensor.RESHAPE(found, attrs=tensor.ShapeAttrs(node.type.shape))


def _is_zero(node: Node) -> bool:
    """Is this a constant of zeros, none of them negative?"""
    while node.op in MOVEMENT:
        node = node.src[0]
    return node.op is math.CONST and node.attrs.bits == 0
