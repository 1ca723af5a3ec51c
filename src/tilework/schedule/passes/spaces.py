"""The index space of a kernel: loops that make its reshapes free of divisions."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from tilework.ir.ops import tensor
from tilework.schedule.passes.prepare import IDENTITY

if TYPE_CHECKING:
    from tilework.ir.node import Node
    from tilework.ir.types import Shape

_LOOKED_AT = 48


def choose_space(node: Node) -> Shape:
    """Sizes of the loops over the elements of `node`, row-major.

    The axes of the node's shape are split so that the reshapes below it split and merge whole
    loops: a boundary between loops is put wherever one of the shapes has one, if they agree.
    """
    shape = node.type.shape
    if node.op is tensor.SCAN or len(shape) == 0:
        return shape
    total = _numbers(shape)
    if total is None or total == 0:
        return shape
    boundaries = _boundaries(shape)
    stack = [node]
    seen = {node}
    while stack and len(seen) < _LOOKED_AT:
        top = stack.pop()
        if top.op is tensor.RESHAPE:
            other = _boundaries(top.src[0].type.shape)
            if not _is_chain(boundaries | other):
                continue
            boundaries |= other
        elif not (top.op.elementwise or top.op in IDENTITY):
            continue
        for source in top.src:
            if source not in seen:
                seen.add(source)
                stack.append(source)
    ordered = sorted(boundaries, reverse=True)
    if ordered == sorted(_boundaries(shape), reverse=True):
        return shape
    return tuple([a // b for a, b in zip(ordered, [*ordered[1:], 1], strict=True)])


def _numbers(shape: Shape) -> int | None:
    total = 1
    for size in shape:
        if not isinstance(size, int):
            return None
        total *= size
    return total


def _boundaries(shape: Shape) -> set[int]:
    """The number of elements from each axis on to the end, without 1."""
    found = set()
    count = 1
    for size in reversed(shape):
        if not isinstance(size, int):
            return set()
        count *= size
        found.add(count)
    return found - {1}


def _is_chain(boundaries: set[int]) -> bool:
    ordered = sorted(boundaries)
    return all(b % a == 0 for a, b in pairwise(ordered))
