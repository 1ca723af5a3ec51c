"""Fold what several steps of a kernel add to one place before that place is read and written.

    x[p(i)] = x[p(i)] + u[i, j]   ->   x[p(i)] = x[p(i)] + sum over j of u[i, j]

Each step of j would read what the step before it wrote.  Lanes and threads do not see that, nor
does a load that is taken out of the loop over j because its address is the same for all of j.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilework.ir.node import toposort
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, Unit
from tilework.ir.ops.memory import LOAD, STORE
from tilework.ir.ops.tensor import REDUCE, Fold, ReduceAttrs
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from tilework.ir.node import Node, OpDef

#: The fold of each op that folds (of bool: OR and AND).
_FOLDS: Final[dict[OpDef, Fold]] = {
    math.ADD: Fold.ADD, math.MUL: Fold.MUL, math.MAXIMUM: Fold.MAX, math.MINIMUM: Fold.MIN,
    math.OR: Fold.MAX, math.AND: Fold.MIN,
}  # fmt: skip


def fold_repeats(sink: Node) -> Node:
    """KERNEL -> KERNEL where no loop folds into one place again and again.

    Ensures: what a store folds into its own place depends on no output range that the place (with
    the store's condition) does not depend on.
    """
    stores = {node: _folded(node) for node in sink.src if node.op is STORE}
    if all(old is new for old, new in stores.items()):
        return sink
    return simplify.rebuild(sink, tuple([stores.get(node, node) for node in sink.src]))


def _folded(store: Node) -> Node:
    address, value, *gate = store.src
    if value.op not in _FOLDS or (value.op in (math.OR, math.AND) and not value.dtype.is_bool):
        return store
    old, new = value.src
    if not _reads(old, address):
        old, new = new, old
    if not _reads(old, address):
        return store
    own = set(toposort(address, *gate))
    bound = {loop for node in toposort(new) if node.op is REDUCE for loop in node.src[1:]}
    repeated = [
        node
        for node in toposort(new)
        if node.op is RANGE and node.attrs.unit is Unit.LOOP and node not in own | bound
    ]
    if not repeated:
        return store
    total = REDUCE(new, *repeated, attrs=ReduceAttrs(_FOLDS[value.op]))
    return simplify.rebuild(store, (address, value.op(old, total), *gate))


def _reads(node: Node, address: Node) -> bool:
    return node.op is LOAD and node.src[0] is address


__all__ = ["fold_repeats"]
