"""Horizontal fusion: small independent elementwise kernels become one call.

An optimizer's step has a few small kernels for each of hundreds of parameters; started one by one
they would cost more in launches than in work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.ir.symbolic import dims
from tilework.schedule.passes.order import levels, topological

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.schedule.passes.kernel_graph import Kernel
    from tilework.schedule.passes.order import Edges
    from tilework.schedule.schedule import Limits


class Group:
    """Kernels that are one call; `share_loops` if they run in the same loops."""

    __slots__ = ("parts", "share_loops")

    def __init__(self, parts: list[Kernel], share_loops: bool) -> None:
        self.parts = parts
        self.share_loops = share_loops


def group_kernels(kernels: Sequence[Kernel], after: Edges, limits: Limits) -> list[Group]:
    """Join small kernels that do not depend on each other, and put the groups in order.

    Kernels with equally many kernels after them (in the longest chain) are independent of each
    other, and joining them makes no circle.
    """
    level = levels(kernels, after)
    open_groups: dict[tuple[int, str], list[Kernel]] = {}
    owner: dict[Kernel, list[Kernel]] = {}
    for kernel in topological(kernels, after):
        parts = [kernel]
        if _is_small(kernel, limits):
            key = (level[kernel], kernel.device)
            current = open_groups.get(key)
            if current is not None and _fits(current, kernel, limits):
                current.append(kernel)
                parts = current
            else:
                open_groups[key] = parts
        owner[kernel] = parts
    return _ordered(kernels, after, owner)


def _is_small(kernel: Kernel, limits: Limits) -> bool:
    if kernel.fixed or kernel.reduces or kernel.named or not kernel.stores:
        return False
    return dims.greatest(dims.product(kernel.space)) <= limits.small_elements


def _fits(parts: list[Kernel], kernel: Kernel, limits: Limits) -> bool:
    buffers = set(kernel.seen_buffers)
    size = kernel.size
    for part in parts:
        buffers |= part.seen_buffers
        size += part.size
    return len(buffers) <= limits.buffers and size <= limits.nodes


def _ordered(
    kernels: Sequence[Kernel], after: Edges, owner: dict[Kernel, list[Kernel]]
) -> list[Group]:
    first = {kernel: owner[kernel][0] for kernel in kernels}
    heads = [kernel for kernel in kernels if first[kernel] is kernel]
    joined: Edges = {head: {} for head in heads}
    for kernel, later in after.items():
        for other in later:
            joined[first[kernel]][first[other]] = None
    groups = []
    for head in topological(heads, joined):
        parts = owner[head]
        share = len(parts) > 1 and all(part.space == head.space for part in parts)
        groups.append(Group(parts, share))
    return groups
