"""Parts of TENSOR values, for the passes that cut long axes in pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.ir.ops.tensor import SHRINK, ShrinkAttrs

if TYPE_CHECKING:
    from tilework.ir.node import Node


def between(x: Node, axis: int, start: int, stop: int) -> Node:
    """The elements start .. stop - 1 of one axis; `x` itself if those are all."""
    if start == 0 and stop == x.shape[axis]:
        return x
    bounds = tuple(
        (start, stop, 1) if position == axis else (0, size, 1)
        for position, size in enumerate(x.shape)
    )
    return SHRINK(x, attrs=ShrinkAttrs(bounds))
