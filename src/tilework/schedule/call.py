"""A TENSOR graph as a call: its structure with PARAMs, and the buffers that it is called on.

Structure alone keys the caches, so that the same program over other buffers is found again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilework.ir.node import make, toposort
from tilework.ir.ops.index import BIND
from tilework.ir.ops.memory import BUFFER, PARAM, SINK, ParamAttrs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.ir.node import Node


@dataclass(frozen=True, slots=True)
class Call:
    """`function` (a SINK of outputs over PARAMs) applied to `arguments` (BUFFERs by slot)."""

    function: Node
    arguments: tuple[Node, ...]


def transform_to_call(outputs: Sequence[Node]) -> Call:
    """Separate the structure of `outputs` from the buffers that they read.

    Args:
        outputs: TENSOR nodes; a node may occur more than once.

    Returns:
        The SINK of the outputs, in which each BUFFER is a PARAM whose slot counts first uses, and
        each BIND its VARIABLE; and the BUFFER nodes by slot.
    """
    done: dict[Node, Node] = {}
    arguments: list[Node] = []
    for node in toposort(*outputs):
        if node.op is BUFFER:
            attrs = node.attrs
            slot = len(arguments)
            arguments.append(node)
            done[node] = make(PARAM, (), ParamAttrs(slot, attrs.shape, attrs.dtype, attrs.device))
        elif node.op is BIND:
            done[node] = done[node.src[0]]
        else:
            src = tuple([done[source] for source in node.src])
            done[node] = node if src == node.src else make(node.op, src, node.attrs)
    function = make(SINK, tuple([done[node] for node in outputs]), None)
    return Call(function, tuple(arguments))
