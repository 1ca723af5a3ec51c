"""Which ranges a value depends on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilework.ir.ops import control, tensor
from tilework.ir.ops import index as index_ops

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tilework.ir.node import Node

Ranges = frozenset["Node"]


_BINDERS: Final = frozenset((tensor.REDUCE, control.STAGE, control.END))


def bound_ranges(node: Node) -> tuple[Node, ...]:
    """The ranges that end at `node`: nothing that uses it sees them."""
    return node.src[1:] if node.op in _BINDERS else ()


def free_ranges(nodes: Iterable[Node]) -> dict[Node, Ranges]:
    """For each of `nodes`, given sources first, the ranges that it depends on."""
    none: Ranges = frozenset()
    free: dict[Node, Ranges] = {}
    for node in nodes:
        found = none
        for source in node.src:
            more = free[source]
            # Most unions change nothing; sharing one set keeps this linear.
            if more and more is not found and not more <= found:
                found = found | more if found else more
        if node.op is index_ops.RANGE:
            found = found | {node}
        elif node.op in _BINDERS:
            found = found.difference(bound_ranges(node))
        free[node] = found
    return free
