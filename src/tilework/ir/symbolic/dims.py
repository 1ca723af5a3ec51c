"""Arithmetic on sizes: numbers stay numbers, nodes stay nodes in normal form."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.ir.build import const_index
from tilework.ir.symbolic import simplify
from tilework.ir.symbolic.bounds import bounds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tilework.ir.node import Node
    from tilework.ir.types import Dim


def as_node(size: Dim) -> Node:
    """A size as a node of index arithmetic."""
    return const_index(size) if isinstance(size, int) else size


def as_dim(node: Node) -> Dim:
    """A node as a size: a number if it is one."""
    number = simplify.value_of(node)
    return node if number is None else number


def add(a: Dim, b: Dim) -> Dim:
    """a + b."""
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    return as_dim(simplify.add(as_node(a), as_node(b)))


def sub(a: Dim, b: Dim) -> Dim:
    """a - b."""
    if isinstance(a, int) and isinstance(b, int):
        return a - b
    return as_dim(simplify.sub(as_node(a), as_node(b)))


def mul(a: Dim, b: Dim) -> Dim:
    """a * b."""
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    return as_dim(simplify.mul(as_node(a), as_node(b)))


def floordiv(a: Dim, b: Dim) -> Dim:
    """a // b."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    return as_dim(simplify.idiv(as_node(a), as_node(b)))


def product(shape: Iterable[Dim]) -> Dim:
    """The number of elements of a shape."""
    total: Dim = 1
    for size in shape:
        # The call to `mul` takes longer than the product of plain numbers.
        total = total * size if type(size) is int and type(total) is int else mul(total, size)
    return total


def greatest(size: Dim) -> int:
    """The greatest value that a size can have."""
    return size if isinstance(size, int) else bounds(size)[1]


def least(size: Dim) -> int:
    """The least value that a size can have."""
    return size if isinstance(size, int) else bounds(size)[0]
