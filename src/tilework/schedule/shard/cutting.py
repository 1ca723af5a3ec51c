"""Movement ops that are left out where they change nothing, and parts of parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilework.ir.node import make
from tilework.ir.ops import tensor
from tilework.schedule.shard import spec

if TYPE_CHECKING:
    from tilework.ir.node import Node, OpDef
    from tilework.ir.ops.multi import Box
    from tilework.ir.types import Shape


def moved(op: OpDef, part: Node, attrs: Any) -> Node:
    """A movement op, left out where it changes nothing."""
    if op is tensor.SHRINK and all(
        start == 0 and stop == size and step == 1
        for (start, stop, step), size in zip(attrs.bounds, part.type.shape, strict=True)
    ):
        return part
    if op is tensor.PAD and all(pads == (0, 0) for pads in attrs.pads):
        return part
    if op in (tensor.RESHAPE, tensor.EXPAND) and attrs.shape == part.type.shape:
        return part
    return make(op, (part,), attrs)


def cut(part: Node, have: Box, want: Box, shape: Shape) -> Node:
    """The part `want` of what `have` says that `part` is; the first lies within the second."""
    if have == want:
        return part
    bounds: list[Any] = []
    for inner, outer, size, length in zip(want, have, shape, part.type.shape, strict=True):
        if inner == outer:
            bounds.append((0, length, 1))
            continue
        start, stop = spec.bounds_of(inner, size)
        base = 0 if outer is None else outer[0]
        bounds.append((0, 0, 1) if start >= stop else (start - base, stop - base, 1))
    return moved(tensor.SHRINK, part, tensor.ShrinkAttrs(tuple(bounds)))
