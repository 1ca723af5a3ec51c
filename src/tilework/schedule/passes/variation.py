"""Along which axes a value may differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.ir.ops import math, tensor
from tilework.schedule.passes.movement import axis_groups

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilework.ir.node import Node


def varying_axes(node: Node, fuel: int) -> frozenset[int]:
    """The axes along which `node` may differ; at most `fuel` nodes deep, then all of them."""
    shape = node.type.shape
    wide = frozenset(axis for axis, size in enumerate(shape) if size != 1)
    op = node.op
    if op is math.CONST:
        return frozenset()
    if op is tensor.IOTA:
        return wide & {node.attrs.axis}
    if fuel == 0 or not wide:
        return wide
    if op is tensor.EXPAND:
        source = node.src[0]
        inner = varying_axes(source, fuel - 1)
        return frozenset(axis for axis in inner if source.type.shape[axis] != 1)
    if op is tensor.PERMUTE:
        inner = varying_axes(node.src[0], fuel - 1)
        return frozenset(axis for axis, old in enumerate(node.attrs.axes) if old in inner)
    if op is tensor.RESHAPE:
        inner = varying_axes(node.src[0], fuel - 1)
        found: set[int] = set()
        for group, source_group in axis_groups(shape, node.src[0].type.shape):
            if any(axis in inner for axis in source_group):
                found.update(group)
        return frozenset(found)
    if op in (tensor.PAD, tensor.SHRINK, tensor.FLIP, tensor.DETACH, tensor.CONTIGUOUS):
        inner = varying_axes(node.src[0], fuel - 1)
        padded = node.attrs.pads if op is tensor.PAD else ()
        return inner | {axis for axis, pair in enumerate(padded) if pair != (0, 0)}
    if op.elementwise and node.src and fuel > 1:
        return wide & frozenset().union(
            *[varying_axes(source, fuel // len(node.src)) for source in node.src]
        )
    return wide


def loaded_axes(node: Node, fuel: int, in_memory: Callable[[Node], bool]) -> frozenset[int]:
    """The axes along which `node` surely reads memory at different places.

    Args:
        node: a TENSOR node.
        fuel: how many nodes deep to look; nothing is sure below that.
        in_memory: whether a node is read from memory.
    """
    wide = frozenset(axis for axis, size in enumerate(node.type.shape) if size != 1)
    op = node.op
    if in_memory(node):
        return wide
    if fuel == 0 or not node.src:
        return frozenset()
    if op in _SAME_AXES:
        return wide & loaded_axes(node.src[0], fuel - 1, in_memory)
    if op is tensor.PERMUTE:
        inner = loaded_axes(node.src[0], fuel - 1, in_memory)
        return frozenset(axis for axis, old in enumerate(node.attrs.axes) if old in inner)
    if op is tensor.RESHAPE:
        inner = loaded_axes(node.src[0], fuel - 1, in_memory)
        found: set[int] = set()
        for group, source_group in axis_groups(node.type.shape, node.src[0].type.shape):
            if all(axis in inner for axis in source_group):
                found.update(group)
        return frozenset(found)
    if op is math.WHERE:
        x, y = (loaded_axes(source, fuel // 2, in_memory) for source in node.src[1:])
        return x & y
    if op.elementwise:
        parts = [loaded_axes(source, fuel // len(node.src), in_memory) for source in node.src]
        return frozenset().union(*parts)
    return frozenset()


_SAME_AXES = frozenset(
    (tensor.DETACH, tensor.CONTIGUOUS, tensor.FLIP, tensor.SHRINK, tensor.PAD, math.CAST)
)
