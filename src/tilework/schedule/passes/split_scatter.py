"""Cut a long scatter into few places in parts: each folds into places of its own, then all meet.

Elements that may meet in one place are folded one after the other, by one core.  Parts have places
of their own, so cores share them.  Only folds of integers are cut: their results do not depend on
the order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.dtypes import index
from tilework.ir.build import const_bits
from tilework.ir.fold import combine, identity_bits
from tilework.ir.node import make, toposort
from tilework.ir.ops.memory import PARAM
from tilework.ir.ops.tensor import (
    IOTA,
    REDUCE,
    RESHAPE,
    SCATTER,
    GatherAttrs,
    IotaAttrs,
    ReduceAttrs,
    ShapeAttrs,
)
from tilework.ir.symbolic import dims
from tilework.schedule.passes.slices import between
from tilework.schedule.schedule import kind_of

if TYPE_CHECKING:
    from tilework.ir.node import Node

#: Into how many parts a scatter is cut.
PARTS = 8
#: Elements that make two more kernels worth their launches.
MANY_ELEMENTS = 1 << 16
#: There must be so many times as many elements as places of all parts.
ELEMENTS_FOR_PLACE = 4


def split_scatters(function: Node, split_on: tuple[str, ...]) -> Node:
    """TENSOR -> TENSOR, with long scatters of integers into few places done by parts.

    Args:
        function: The SINK of outputs.
        split_on: Kinds of devices on which that is done.

    Ensures: equal values.
    """
    order = toposort(function)
    if not any(node.op is SCATTER for node in order):
        return function
    if not {kind_of(node.attrs.device) for node in order if node.op is PARAM} <= set(split_on):
        return function
    done: dict[Node, Node] = {}
    for node in order:
        src = tuple([done[source] for source in node.src])
        new = node if src == node.src else make(node.op, src, node.attrs)
        done[node] = _split(new) if node.op is SCATTER else new
    return done[function]


def _split(node: Node) -> Node:
    x, updates, indices = node.src[0], node.src[1], node.src[2:]
    fold = node.attrs.fold
    places, elements = dims.product(x.shape), dims.product(updates.shape)
    if fold is None or not (x.dtype.is_integer or x.dtype.is_bool):
        return node
    if not isinstance(places, int) or not isinstance(elements, int):
        return node
    # Axes that are not indexed share an index: elements that differ there don't meet.
    if len(indices) != len(x.shape) or indices[0].shape != updates.shape or not updates.shape:
        return node
    if elements < max(MANY_ELEMENTS, ELEMENTS_FOR_PLACE * PARTS * places):
        return node
    size = updates.shape[0]
    if size < PARTS:
        return node
    whole = size // PARTS * PARTS
    shape = (PARTS, whole // PARTS, *updates.shape[1:])

    def in_parts(each: Node) -> Node:
        return RESHAPE(between(each, 0, 0, whole), attrs=ShapeAttrs(shape))

    begun = const_bits(identity_bits(fold, x.dtype), x.dtype, (PARTS, *x.shape))
    part = IOTA(attrs=IotaAttrs(shape, 0, index))
    partial = SCATTER(
        begun, in_parts(updates), part, *map(in_parts, indices), attrs=GatherAttrs(0, fold)
    )
    total = REDUCE(partial, attrs=ReduceAttrs(fold, (0,)))
    if whole != size:
        rest = [between(each, 0, whole, size) for each in (updates, *indices)]
        x = SCATTER(x, *rest, attrs=GatherAttrs(0, fold))
    return combine(fold, x, total)
