"""Movement ops as index arithmetic: the index of the source from the index of the result."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.ir.build import const_index
from tilework.ir.ops import tensor
from tilework.ir.symbolic import dims, simplify
from tilework.ir.symbolic.dims import as_node
from tilework.ir.symbolic.simplify import TRUE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tilework.ir.node import Node, OpDef
    from tilework.ir.types import Dim, Shape

Index = tuple["Node", ...]
ZERO = const_index(0)


def flatten(index: Sequence[Node], shape: Sequence[Dim]) -> Node:
    """The row-major position of `index` in an array of `shape`."""
    total = ZERO
    stride: Dim = 1
    for position, size in zip(reversed(index), reversed(shape), strict=True):
        if position is not ZERO:
            if isinstance(stride, int):
                total = simplify.add(total, simplify.scale(position, stride))
            else:
                total = simplify.add(total, simplify.mul(position, stride))
        stride = dims.mul(stride, size)
    return total


def unflatten(flat: Node, shape: Sequence[Dim]) -> list[Node]:
    """The index in an array of `shape` of the row-major position `flat`."""
    index = [ZERO] * len(shape)
    wide = [axis for axis, size in enumerate(shape) if size != 1]
    for axis in reversed(wide):
        if axis == wide[0]:
            index[axis] = flat
            break
        size = as_node(shape[axis])
        index[axis] = simplify.mod(flat, size)
        flat = simplify.idiv(flat, size)
    return index


def reshape_index(index: Index, shape: Shape, source: Shape) -> Index:
    """The index in an array of shape `source` of the element at `index` of its reshape."""
    if shape == source:
        return index
    if 0 in shape or 0 in source:
        return (ZERO,) * len(source)
    axes = [axis for axis, size in enumerate(shape) if size != 1]
    source_axes = [axis for axis, size in enumerate(source) if size != 1]
    result = [ZERO] * len(source)
    while axes and source_axes and shape[axes[-1]] == source[source_axes[-1]]:
        result[source_axes.pop()] = index[axes.pop()]
    for group, source_group in _groups(axes, source_axes, shape, source):
        sizes = [source[axis] for axis in source_group]
        flat = flatten([index[axis] for axis in group], [shape[axis] for axis in group])
        for axis, position in zip(source_group, unflatten(flat, sizes), strict=True):
            result[axis] = position
    return tuple(result)


def axis_groups(shape: Shape, source: Shape) -> list[tuple[list[int], list[int]]]:
    """Which axes of `shape` hold the elements of which axes of `source` (sizes 1 left out)."""
    axes = [axis for axis, size in enumerate(shape) if size != 1]
    source_axes = [axis for axis, size in enumerate(source) if size != 1]
    groups = []
    while axes and source_axes and shape[axes[-1]] == source[source_axes[-1]]:
        groups.append(([axes.pop()], [source_axes.pop()]))
    return groups + _groups(axes, source_axes, shape, source)


def _groups(
    axes: list[int], source_axes: list[int], shape: Shape, source: Shape
) -> list[tuple[list[int], list[int]]]:
    """Cut two lists of axes with equal products into the smallest groups with equal products."""
    groups = []
    i = j = 0
    while i < len(axes) and j < len(source_axes):
        left, right = i + 1, j + 1
        size, other = shape[axes[i]], source[source_axes[j]]
        while size != other:
            if not isinstance(size, int) or not isinstance(other, int):
                # Which side is smaller is unknown: everything that is left is one group.
                left, right = len(axes), len(source_axes)
                break
            if size < other and left < len(axes):
                size = dims.mul(size, shape[axes[left]])
                left += 1
            elif right < len(source_axes):
                other = dims.mul(other, source[source_axes[right]])
                right += 1
            else:
                left, right = len(axes), len(source_axes)
                break
        groups.append((axes[i:left], source_axes[j:right]))
        i, j = left, right
    if (i < len(axes) or j < len(source_axes)) and (axes or source_axes):
        # One side ran out: symbolic sizes whose product is 1 or equal to the last group's.
        return [(axes, source_axes)]
    return groups


def _reshape(node: Node, index: Index) -> tuple[Index, Node]:
    return reshape_index(index, node.shape, node.src[0].shape), TRUE


def _permute(node: Node, index: Index) -> tuple[Index, Node]:
    moved = [ZERO] * len(index)
    for axis, source_axis in enumerate(node.attrs.axes):
        moved[source_axis] = index[axis]
    return tuple(moved), TRUE


def _expand(node: Node, index: Index) -> tuple[Index, Node]:
    source = node.src[0].shape
    moved = [ZERO if size == 1 else at for at, size in zip(index, source, strict=True)]
    return tuple(moved), TRUE


def _pad(node: Node, index: Index) -> tuple[Index, Node]:
    condition = TRUE
    moved = list(index)
    for axis, (low, high) in enumerate(node.attrs.pads):
        if low == 0 and high == 0:
            continue
        at = simplify.sub(index[axis], as_node(low))
        moved[axis] = at
        size = as_node(node.src[0].shape[axis])
        condition = simplify.both(condition, simplify.at_least(at, ZERO))
        condition = simplify.both(condition, simplify.less(at, size))
    return tuple(moved), condition


def _shrink(node: Node, index: Index) -> tuple[Index, Node]:
    moved = [
        at if start == 0 and step == 1 else simplify.add(simplify.scale(at, step), as_node(start))
        for at, (start, _, step) in zip(index, node.attrs.bounds, strict=True)
    ]
    return tuple(moved), TRUE


def _flip(node: Node, index: Index) -> tuple[Index, Node]:
    moved = list(index)
    for axis in node.attrs.axes:
        last = simplify.sub(as_node(node.shape[axis]), const_index(1))
        moved[axis] = simplify.sub(last, index[axis])
    return tuple(moved), TRUE


def _window(node: Node, index: Index) -> tuple[Index, Node]:
    attrs = node.attrs
    axis = attrs.axis
    at = simplify.add(
        simplify.scale(index[axis], attrs.stride), simplify.scale(index[axis + 1], attrs.dilation)
    )
    return (*index[:axis], at, *index[axis + 2 :]), TRUE


def _unwindow(node: Node, index: Index) -> tuple[Index, Node]:
    attrs = node.attrs
    axis = attrs.axis
    stride = const_index(attrs.stride)
    tap = index[axis + 1]
    start = simplify.sub(index[axis], simplify.scale(tap, attrs.dilation))
    position = simplify.idiv(start, stride)
    condition = simplify.all_of(
        (
            simplify.at_least(start, ZERO),
            simplify.less(position, as_node(node.src[0].shape[axis])),
            simplify.equal(simplify.mod(start, stride), ZERO),
        )
    )
    return (*index[:axis], position, tap, *index[axis + 2 :]), condition


_RULES: dict[OpDef, Callable[[Node, Index], tuple[Index, Node]]] = {
    tensor.RESHAPE: _reshape,
    tensor.PERMUTE: _permute,
    tensor.EXPAND: _expand,
    tensor.PAD: _pad,
    tensor.SHRINK: _shrink,
    tensor.FLIP: _flip,
    tensor.WINDOW: _window,
    tensor.UNWINDOW: _unwindow,
}
MOVEMENT = frozenset(_RULES)


def source_index(node: Node, index: Index) -> tuple[Index, Node]:
    """Where `node` at `index` comes from: the index of its source, and where there is one.

    Where the second value, a condition, is false, the element is 0.
    """
    return _RULES[node.op](node, index)
