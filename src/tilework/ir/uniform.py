"""Which values are the same in all threads of a block, and barriers that not all of them reach.

A value depends on the thread if it is one of the block's coordinates, or computed from such a
value; so do variables that are given one, or given any value where only some threads are.  What a
fold over all threads gives is the same in all of them, and so is what is read from one place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.ir.ops import control, matrix, scan, sort, warp_matrix
from tilework.ir.ops.index import RANGE, TASK_IN_ORDER, Unit
from tilework.ir.symbolic.bounds import bounds

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tilework.ir.node import Node

_THREADS = (Unit.WARP, Unit.LOCAL)
#: What all threads of a block do together.
_MEETINGS = frozenset(
    [
        control.BARRIER,
        control.FOLD_THREADS,
        control.SCAN_THREADS,
        scan.SCAN_BLOCKS,
        TASK_IN_ORDER,
    ]
)
#: What gives each thread another value, whatever its sources are.
_OWN = frozenset(
    [
        control.SCAN_THREADS,
        scan.SCAN_BLOCKS,
        matrix.MATRIX,
        matrix.MATRIX_HELD,
        matrix.SAME_IN_WARP,
        sort.RANK_IN_WARP,
        warp_matrix.LOAD_FRAGMENT,
        warp_matrix.MATRIX_WARP,
    ]
)


def divergent_barriers(statements: Sequence[Node]) -> Iterator[tuple[Node, str]]:
    """What threads of a block do together, but stands where not all of them come, and why.

    Args:
        statements: Those of a LINEAR, whose loops and IFs nest.
    """
    if not any(node.op in _MEETINGS for node in statements):
        return
    units = {
        node.attrs.unit
        for node in statements
        if node.op is RANGE and node.attrs.unit in _THREADS and bounds(node.src[0])[1] > 1
    }
    varying = _varying(statements, units)
    blocks: list[Node] = []
    for node in statements:
        if node.op is control.END or node.op is control.ENDIF:
            blocks.pop()
        elif node.op in _MEETINGS:
            reason = next((block for block in blocks if _splits(block, varying)), None)
            if reason is not None:
                yield node, f"{node.op.name} stands where only some threads are: in {reason!r}"
        if node.op is RANGE or node.op is control.IF:
            blocks.append(node)


def _splits(block: Node, varying: set[Node]) -> bool:
    """Do threads of a block go through a loop or IF different numbers of times?"""
    return block.src[0] in varying


def _varying(statements: Sequence[Node], units: set[Unit]) -> set[Node]:
    """The nodes whose values depend on the thread."""
    varying: set[Node] = set()
    while True:
        before = len(varying)
        blocks: list[Node] = []
        for node in statements:
            if node.op is control.END or node.op is control.ENDIF:
                blocks.pop()
            elif node.op is RANGE or node.op is control.IF:
                blocks.append(node)
            if node.op is control.ACCUMULATE or node.op is matrix.PUT:
                parts = node.src[1:]
                if any(n in varying for n in parts) or any(_splits(b, varying) for b in blocks):
                    varying.add(node.src[0])
            if _depends(node, varying, units):
                varying.add(node)
        if len(varying) == before:
            return varying


def _depends(node: Node, varying: set[Node], units: set[Unit]) -> bool:
    if node.op is RANGE and node.attrs.unit in _THREADS:
        return node.attrs.unit in units
    if node.op is control.FOLD_THREADS:
        # It gives one value to all threads along the units that it folds.
        return not units <= {source.attrs.unit for source in node.src[1:]}
    return node.op in _OWN or any(source in varying for source in node.src)
