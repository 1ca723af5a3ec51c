"""Factors of products that are rounded on the way are stored rounded, once for all that read them.

A copy engine takes arrays, so a factor that is computed is stored by a kernel before the product in
any case.  Asked for here, it is one kernel for all products that read it, or a second result of the
kernel that computes what is rounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.ir.ops import math
from tilework.schedule.passes.cost import is_contraction, narrows, product_of, rounds
from tilework.schedule.passes.movement import MOVEMENT
from tilework.schedule.passes.prepare import IDENTITY, numel
from tilework.schedule.schedule import kind_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from tilework.ir.node import Node
    from tilework.schedule.passes.prepare import Layout

#: How often each element is multiplied at least, and how many elements there are.
_LEAST_USES, _LEAST_ELEMENTS = 64, 1 << 16
#: Values that are looked at to find what an operand is computed from.
_LOOKED_AT = 128


def store_operands(layout: Layout, kinds: tuple[str, ...], held: Collection[Node]) -> None:
    """Have rounded factors of large products in memory.

    Args:
        layout: a function's buffers.
        kinds: kinds of devices whose copy engines fill slots for matrix units.
        held: values that never leave the kernels that need them; what is computed from them stays
            there too.
    """
    for node in layout.order:
        if kind_of(layout.device.get(node, "")) not in kinds or not is_contraction(node):
            continue
        product = product_of(node)
        for factor in product.src:
            operand = _rounded(factor)
            if (
                operand is not None
                and numel(operand) >= _LEAST_ELEMENTS
                and numel(product) >= _LEAST_USES * numel(operand)
                and not _is_held(operand, held)
            ):
                layout.force(operand, "a rounded operand of matrix units")


def _is_held(operand: Node, held: Collection[Node]) -> bool:
    """Is an operand computed, element by element, from something that stays in its kernels?"""
    stack, seen = [operand], {operand}
    while stack:
        node = stack.pop()
        if node in held or len(seen) > _LOOKED_AT:
            return True
        if node.op.elementwise or node.op in MOVEMENT or node.op in IDENTITY:
            fresh = [source for source in node.src if source not in seen]
            seen.update(fresh)
            stack += fresh
    return False


def _rounded(factor: Node) -> Node | None:
    """The rounding that a factor is a wider copy of; None if it is computed otherwise."""
    while factor.op in MOVEMENT or factor.op in IDENTITY or factor.op is math.CAST:
        if narrows(factor):
            return factor if rounds(factor) else None
        factor = factor.src[0]
    return None
