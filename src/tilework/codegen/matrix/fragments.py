"""Where the elements of a slot are, and which of them a lane gives the address of.

A slot holds lines of some columns in boxes of 128 bytes: box after box, in each of them line after
line, chunks of 16 bytes permuted within a line (`filling.swizzled`).  A factor whose elements lie
side by side along k has a line for each of its rows; one that does not, a line for each k.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.codegen.matrix.arrays import ROW_BYTES
from tilework.codegen.matrix.filling import SWIZZLED_ROWS, swizzled
from tilework.ir.build import const_index
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from tilework.dtypes import DType
    from tilework.ir.node import Node

_ROWS = 8  # of one of the four matrices of a fragment


def place_in_slot(line: Node, column: Node, lines: int, dtype: DType) -> Node:
    """The element at a line and a column, from the start of a slot on."""
    width = ROW_BYTES // dtype.itemsize
    box = simplify.scale(simplify.idiv(column, const_index(width)), lines)
    inside = simplify.mod(column, const_index(width))
    start = simplify.scale(simplify.add(box, line), width)
    return simplify.add(start, swizzled(line, inside, dtype))


def lane_of_fragment(
    lane: Node, first: Node, start: Node, depth: int, *, is_first_operand: bool, along_k: bool
) -> tuple[Node, Node]:
    """The row and the position of k from which a lane has sixteen bytes loaded.

    The first operand's words go through rows first, the second one's through k.

    Args:
        lane: The thread's number in its warp.
        first: The fragment's first row.
        start: Its first position of k.
        depth: Elements of 32 bytes.
        is_first_operand: Is it the first of the product's two?
        along_k: Do neighbours along k lie side by side?
    """
    matrix = simplify.idiv(lane, const_index(_ROWS))
    fast = simplify.mod(matrix, const_index(2))
    slow = simplify.idiv(matrix, const_index(2))
    low, half = (fast, slow) if is_first_operand else (slow, fast)
    inside = simplify.mod(lane, const_index(SWIZZLED_ROWS))
    own = simplify.add(first, simplify.scale(low, _ROWS))
    k = simplify.add(start, simplify.scale(half, depth // 2))
    if along_k:
        return simplify.add(own, inside), k
    return own, simplify.add(k, inside)
