"""Checks at run time of accesses that are not proven to lie inside of their buffer.

    checked = with_checks(sink, mark)      # before anything else is done to the kernel

Such an access gets a gate that keeps it inside, and the kernel a FAULT_IF whose code names the
buffer and the kernel.  The gates are what the audit after planning proves the rest from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.errors import VerifyError
from tilework.codegen import audit
from tilework.ir.build import const, const_index
from tilework.ir.faults import AccessFault, in_loops_of_their_own
from tilework.ir.node import make, toposort
from tilework.ir.ops import math
from tilework.ir.ops.memory import INDEX, LOAD, STORE
from tilework.ir.ops.program import FAULT_IF, FaultAttrs
from tilework.ir.symbolic import dims, simplify
from tilework.ir.symbolic.simplify import FALSE, TRUE

if TYPE_CHECKING:
    from tilework.ir.node import Node


def with_checks(sink: Node, mark: str) -> Node:
    """Return a KERNEL whose accesses all are proven or gated and reported.

    Args:
        sink: the kernel.
        mark: the first digits of its digest, by which the engine finds its name.

    Raises:
        VerifyError: whether an access lies inside depends on what the kernel itself overwrites, so
            that a check beside it would read something else.
    """
    order = toposort(sink)
    wanted = {node for node in order if node.op in (LOAD, STORE) and audit.unproven_parts(node)}
    if not wanted:
        return sink
    done: dict[Node, Node] = {}
    faults: list[Node] = []
    for node in order:
        source = tuple([done[each] for each in node.src])
        if node not in wanted:
            done[node] = node if source == node.src else make(node.op, source, node.attrs)
            continue
        gates = 1 if node.op is LOAD else 2
        gate = source[gates] if len(source) > gates else TRUE
        inside = _inside(source[0])
        outside = simplify.both(gate, _negated(inside))
        if outside is not FALSE:
            code = AccessFault(source[0].src[0].attrs.slot, mark).code
            faults.append(make(FAULT_IF, (outside,), FaultAttrs(code)))
        done[node] = make(node.op, (*source[:gates], simplify.both(gate, inside)), node.attrs)
    effects = list(done[sink].src)
    faults = list(dict.fromkeys(faults))
    _refuse_overwritten(effects, faults)
    stores = [effect for effect in effects if effect.op is STORE]
    return make(sink.op, (*effects, *in_loops_of_their_own(stores, faults)), sink.attrs)


def _inside(address: Node) -> Node:
    """The condition that an INDEX lies inside of its buffer."""
    offset = address.src[1]
    size = dims.as_node(dims.product(address.src[0].attrs.shape))
    return simplify.both(simplify.at_least(offset, const_index(0)), simplify.less(offset, size))


def _negated(condition: Node) -> Node:
    if condition in (TRUE, FALSE):
        return FALSE if condition is TRUE else TRUE
    return math.XOR(condition, const(True, condition.dtype))


def _refuse_overwritten(effects: list[Node], faults: list[Node]) -> None:
    written = {node.src[0].src[0] for node in effects if node.op is STORE}
    for fault in faults:
        for node in toposort(fault):
            if node.op is LOAD and node.src[0].op is INDEX and node.src[0].src[0] in written:
                raise VerifyError(
                    "check: an index is read from memory that its kernel overwrites",
                    node=node,
                    try_="compute what is written in place in a step of its own: contiguous()",
                )
