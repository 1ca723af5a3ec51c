"""SORT as a kernel: along the last axis, over rows that lie one after the other in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.records import replace
from tilework.ir.node import make, toposort
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, PARAM, SINK, ParamAttrs
from tilework.ir.ops.sort import SORT_ROWS, SortRowsAttrs
from tilework.ir.ops.tensor import DETACH, GATHER, IOTA, PERMUTE, SORT, AxesAttrs
from tilework.ir.symbolic import dims, simplify

if TYPE_CHECKING:
    from tilework.ir.node import Node


def sort_last_axis(function: Node) -> Node:
    """TENSOR -> TENSOR in which every SORT runs along the last axis, between two PERMUTEs.

    Where positions are wanted for the elements there alone, the SORT gives these.
    """
    order = toposort(function)
    if not any(node.op is SORT for node in order):
        return function
    values = _values(order)
    done: dict[Node, Node] = {}
    for node in order:
        src = tuple([done[source] for source in node.src])
        if node in values:
            positions = values[node]
            attrs = replace(positions.attrs, values=True)
            done[node] = _moved(SORT(done[positions.src[0]], attrs=attrs))
            continue
        new = node if src == node.src else make(node.op, src, node.attrs)
        done[node] = _moved(new) if node.op is SORT else new
    return done[function]


def _values(order: list[Node]) -> dict[Node, Node]:
    """The GATHERs that take what a SORT has sorted, with that SORT, if it has no other users."""
    users: dict[Node, list[Node]] = {node: [] for node in order if node.op is SORT}
    for node in order:
        for source in node.src:
            if source in users:
                users[source].append(node)
    return {
        user: positions
        for positions, found in users.items()
        if found and all(_takes_sorted(user, positions) for user in found)
        for user in found
    }


def _takes_sorted(node: Node, positions: Node) -> bool:
    """Whether `node` is x[..., SORT(x), ...] with the own position along all other axes."""
    if node.op is not GATHER or _given(node.src[0]) is not _given(positions.src[0]):
        return False
    axis, indices = positions.attrs.axis, node.src[1:]
    return (
        node.attrs.axis == 0
        and len(indices) == len(positions.shape)
        and indices[axis] is positions
        and all(_is_own(index, at) for at, index in enumerate(indices) if at != axis)
    )


def _is_own(index: Node, axis: int) -> bool:
    return index.op is IOTA and index.attrs.axis == axis


def _given(node: Node) -> Node:
    while node.op is DETACH:
        node = node.src[0]
    return node


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
    """The kernel of a SORT along the last axis: PARAM 0 gets what is sorted in PARAM 1."""
    shape, read = node.shape, node.src[0]
    size = dims.as_node(read.shape[-1])
    row = RANGE(dims.as_node(dims.product(shape[:-1])), attrs=RangeAttrs(0))
    target = PARAM(attrs=ParamAttrs(0, (dims.product(shape),), node.dtype))
    source = PARAM(attrs=ParamAttrs(1, (dims.product(read.shape),), read.dtype))
    how = node.attrs
    attrs = SortRowsAttrs(how.descending, how.first, how.count, how.values)
    written = INDEX(target, simplify.mul(row, dims.as_node(shape[-1])))
    return SINK(SORT_ROWS(written, INDEX(source, simplify.mul(row, size)), size, attrs=attrs))
