"""A TENSOR graph as a call: its structure with PARAMs, and the buffers that it is called on.

Structure alone keys the caches, so that the same program over other buffers is found again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.records import dataclass
from tilework.ir.node import make, toposort, toposort_above
from tilework.ir.ops.index import BIND
from tilework.ir.ops.memory import BUFFER, PARAM, SINK, ParamAttrs
from tilework.ir.ops.tensor import SHRINK
from tilework.schedule.parts import find_parts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tilework.ir.node import Node
    from tilework.schedule.parts import Layout


@dataclass(frozen=True, slots=True)
class Call:
    """`function` (a SINK of outputs over PARAMs) applied to `arguments` (BUFFERs by slot).

    A slot in `parts` takes a part of its BUFFER: from which byte on, and how many bytes.
    """

    function: Node
    arguments: tuple[Node, ...]
    parts: Mapping[int, tuple[int, int]]


def transform_to_call(outputs: Sequence[Node]) -> Call:
    """Separate the structure of `outputs` from the buffers that they read.

    Args:
        outputs: TENSOR nodes; a node may occur more than once.

    Returns:
        The SINK of the outputs, in which each BUFFER is a PARAM whose slot counts first uses, and
        each BIND its VARIABLE; and the BUFFER nodes by slot.  A contiguous part of a BUFFER that
        is only read is a PARAM of its own, so that its place is no matter of structure.
    """
    done: dict[Node, Node] = {}
    arguments: list[Node] = []
    places: dict[int, tuple[int, int]] = {}
    order: Sequence[Node] = list(toposort(*outputs))
    parts: dict[Node, tuple[Node, Layout]] = {}
    if any(node.op is SHRINK for node in order):
        parts = find_parts(order, outputs)
        if parts:
            order = toposort_above(outputs, parts)
    for node in order:
        if node in parts:
            base, layout = parts[node]
            dtype = node.type.dtype
            slot = len(arguments)
            places[slot] = (layout.offset * dtype.itemsize, layout.count * dtype.itemsize)
            arguments.append(base)
            param = ParamAttrs(slot, layout.shape, dtype, base.attrs.device)
            done[node] = make(PARAM, (), param)
        elif node.op is BUFFER:
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
    return Call(function, tuple(arguments), places)
