"""SORT as a kernel: along the last axis, over rows that lie one after the other in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilework.dtypes import index
from tilework.ir.node import make, toposort
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, PARAM, SINK, ParamAttrs
from tilework.ir.ops.sort import SORT_ROWS, SortRowsAttrs
from tilework.ir.ops.tensor import PERMUTE, SORT, AxesAttrs
from tilework.ir.symbolic import dims, simplify

if TYPE_CHECKING:
    from tilework.ir.node import Node


def sort_last_axis(function: Node) -> Node:
    """TENSOR -> TENSOR in which every SORT runs along the last axis, between two PERMUTEs."""
    order = toposort(function)
    if not any(node.op is SORT for node in order):
        return function
    done: dict[Node, Node] = {}
    for node in order:
        src = tuple([done[source] for source in node.src])
        new = node if src == node.src else make(node.op, src, node.attrs)
        done[node] = _moved(new) if node.op is SORT else new
    return done[function]


def _moved(node: Node) -> Node:
    axis, last = node.attrs.axis, len(node.shape) - 1
    if axis == last:
        return node
    # Exchanging two axes undoes itself.
    axes = list(range(last + 1))
    axes[axis], axes[last] = last, axis
    exchange = AxesAttrs(tuple(axes))
    rows = PERMUTE(node.src[0], attrs=exchange)
    sorted_rows = SORT(rows, attrs=replace(node.attrs, axis=last))
    return PERMUTE(sorted_rows, attrs=exchange)


def sort_rows(node: Node) -> Node:
    """The kernel of a SORT along the last axis: PARAM 0 gets the positions, PARAM 1 is sorted."""
    shape, read = node.shape, node.src[0]
    size = dims.as_node(read.shape[-1])
    row = RANGE(dims.as_node(dims.product(shape[:-1])), attrs=RangeAttrs(0))
    target = PARAM(attrs=ParamAttrs(0, (dims.product(shape),), index))
    source = PARAM(attrs=ParamAttrs(1, (dims.product(read.shape),), read.dtype))
    attrs = SortRowsAttrs(node.attrs.descending, node.attrs.first, node.attrs.count)
    written = INDEX(target, simplify.mul(row, dims.as_node(shape[-1])))
    return SINK(SORT_ROWS(written, INDEX(source, simplify.mul(row, size)), size, attrs=attrs))
