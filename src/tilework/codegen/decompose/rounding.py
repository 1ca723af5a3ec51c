"""Rounding to integers for targets without instructions for it: by adding what leaves no fraction.

A float with p stored bits of mantissa has no fraction from 2**p on; added to 2**p, a smaller one
is rounded to nearest even.  Signs are put back at the end, so that zeros keep theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.ir.build import const_like
from tilework.ir.ops import math

if TYPE_CHECKING:
    from tilework.ir.node import Node


def round_even(node: Node) -> Node:
    """ROUND: to the nearest integer, ties to even."""
    x = node.src[0]
    return math.COPYSIGN(_whole(x), x)


def truncate(node: Node) -> Node:
    """TRUNC: towards zero."""
    x = node.src[0]
    whole, size = _whole(x), math.ABS(x)
    lower = math.SUB(whole, const_like(1.0, x))
    return math.COPYSIGN(math.WHERE(math.LT(size, whole), lower, whole), x)


def floor(node: Node) -> Node:
    """FLOOR: towards minus infinity."""
    x = node.src[0]
    whole = math.COPYSIGN(_whole(x), x)
    lower = math.SUB(whole, const_like(1.0, x))
    return math.COPYSIGN(math.WHERE(math.LT(x, whole), lower, whole), x)


def ceiling(node: Node) -> Node:
    """CEIL: towards plus infinity."""
    x = node.src[0]
    whole = math.COPYSIGN(_whole(x), x)
    upper = math.ADD(whole, const_like(1.0, x))
    return math.COPYSIGN(math.WHERE(math.LT(whole, x), upper, whole), x)


def _whole(x: Node) -> Node:
    """The magnitude rounded to the nearest integer; NaN and infinity as they are."""
    size = math.ABS(x)
    big = const_like(2.0**x.dtype.mantissa_bits, x)
    rounded = math.SUB(math.ADD(size, big), big)
    return math.WHERE(math.LT(size, big), rounded, size)
