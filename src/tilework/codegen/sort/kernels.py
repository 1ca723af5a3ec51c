"""Which kernels sort, and how much they do: asked of every kernel, so apart from how it is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.ir.node import toposort
from tilework.ir.ops.index import RANGE
from tilework.ir.ops.sort import SORT_PASSES, SORT_ROWS
from tilework.ir.symbolic.bounds import bounds

if TYPE_CHECKING:
    from tilework.ir.node import Node


def is_sort(sink: Node) -> bool:
    """Does this kernel sort rows?"""
    return any(effect.op is SORT_ROWS for effect in sink.src)


def is_sort_pass(sink: Node) -> bool:
    """Is this kernel a part of a sort of long rows by blocks of threads?"""
    return any(effect.op in SORT_PASSES for effect in sink.src)


def sort_work(sink: Node) -> float:
    """Element operations of a kernel that sorts rows."""
    (effect,) = sink.src
    total = max(bounds(effect.src[-1])[1], 1)
    for node in toposort(sink):
        if node.op is RANGE:
            total *= max(bounds(node.src[0])[1], 1)
    return 20.0 * total
