"""What rules ask about literals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.dtypes import decode, encode
from tilework.ir.build import const_bits, const_like

if TYPE_CHECKING:
    from tilework.ir.node import Node


def is_literal(c: Node, value: float) -> bool:
    """Has the CONST `c` exactly the bits of `value` (so -0.0 is not 0.0)?"""
    return bool(c.attrs.bits == encode(value, c.attrs.dtype))


def integer_of(c: Node) -> int:
    """The value of an integer or bool CONST."""
    return int(decode(c.attrs.bits, c.attrs.dtype))


def number_of(c: Node) -> float:
    """The value of a float CONST."""
    return float(decode(c.attrs.bits, c.attrs.dtype))


def all_ones(c: Node) -> bool:
    """Is every bit of the CONST `c` set?"""
    return bool(c.attrs.bits == (1 << c.attrs.dtype.bits) - 1)


def zero_like(node: Node) -> Node:
    """0, +0.0 or False in the type of `node`."""
    return const_bits(0, node.dtype, node.shape)


def literal_like(value: int, node: Node) -> Node:
    """The integer `value`, modulo 2**width, in the type of `node`."""
    return const_like(value, node)
