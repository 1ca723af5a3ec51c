"""The IR as text: printing then parsing gives the same node.

One line per node, sources first, then the roots:

    %0 = param {slot=0, shape=(16,), dtype=float32, device=""}
    %1 = const {bits=3, dtype=int64, shape=()}
    %2 = index %0 %1
    %3 = load %2
    return %3

Names count in the order of the operands, so equal graphs print alike in every process.
"""

from __future__ import annotations

from tilework.ir.text.parser import parse, parse_all
from tilework.ir.text.printer import format_node, format_nodes

__all__ = ["format_node", "format_nodes", "parse", "parse_all"]
