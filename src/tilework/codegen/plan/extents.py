"""Sizes of ranges and widths of vectors, as plans reckon with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.dtypes import index
from tilework.ir.ops import math
from tilework.ir.ops.memory import LOAD, STORE
from tilework.ir.symbolic.bounds import bounds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tilework.codegen.analysis import Kernel
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec


def size(range_: Node) -> int:
    """The greatest extent of a range."""
    return max(bounds(range_.src[0])[1], 1)


def least_size(range_: Node) -> int:
    """The least extent of a range."""
    return bounds(range_.src[0])[0]


def number(range_: Node) -> int:
    """The number of a range, by which plans name it."""
    return int(range_.attrs.number)


def lanes_for(kernel: Kernel, target: TargetSpec) -> int:
    """Elements in a vector, by the widest dtype that the kernel keeps computing with."""
    widest = _narrow_bits(kernel)
    for node in kernel.order:
        dtype = node.type.dtype
        if dtype.bits > widest and node.op.elementwise and dtype.is_float:
            widest = dtype.bits
    return max(target.vector_bits // widest, 1)


def _conditions(kernel: Kernel) -> set[Node]:
    """What compares positions for the gates of loads and stores alone."""
    stack = [load.src[1] for load in kernel.loads if len(load.src) > 1]
    stack += [store.src[2] for store in kernel.stores if len(store.src) > 2]
    found: set[Node] = set()
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack += node.src if node.op is math.AND else ()
    for node in reversed(kernel.order):  # what uses a node comes before it
        if node.op is not LOAD and node.op is not STORE and node not in found:
            found.difference_update(node.src)
    return found


def _narrow_bits(kernel: Kernel) -> int:
    """8 or 16 where a kernel knows nothing wider and no positions, else 32."""
    widest = 8
    conditions = _conditions(kernel)
    for node in kernel.order:
        if node in conditions:
            continue
        if node.op is STORE:
            dtype = node.src[1].type.dtype
        elif node.op is LOAD:
            dtype = node.type.dtype
        elif node.op.elementwise and node.type.dtype is not index:  # else it is an offset
            dtype = node.type.dtype
            if any(source.type.dtype is index for source in node.src):
                return 32
        else:
            continue
        if dtype.bits > 16 or dtype.is_float:
            return 32
        widest = max(widest, dtype.bits)
    return widest


def fitting_lanes(lanes: int, extent: int) -> int:
    """The most lanes, a power of two, that a range of `extent` can fill."""
    while lanes > max(extent, 1):
        lanes //= 2
    return max(lanes, 1)


def product(ranges: Iterable[Node]) -> int:
    """The number of points of ranges."""
    total = 1
    for range_ in ranges:
        total *= size(range_)
    return total


def ceil_div(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)
