"""Writes at places that are loaded, shared out by their places.

Rows that add to rows chosen by an index (the gradient of an embedding) must run in order, since two
of them may choose the same one.  Two that choose different ones need no order: each of many classes
of places has threads of its own, which go through all rows and do those whose place falls into
their class.  Each place gets what it gets in the same order as before, so no bit changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.codegen.analysis import Kernel, loaded_extents
from tilework.codegen.plan.extents import least_size, product, size
from tilework.ir.build import const_index
from tilework.ir.node import toposort
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, LOAD, SINK, STORE
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

#: Rows from which on classes are worth that each looks at all of them.
_LEAST_ROWS = 256
#: Threads of a multiprocessor that the classes should give work to; and the most classes.
_THREADS, _MOST_CLASSES = 2048, 256


def by_classes(kernel: Kernel, target: TargetSpec) -> Node | None:
    """The kernel with its places in classes; None where its rows need no order, or are few."""
    if len(kernel.stores) != 1 or not kernel.meeting or kernel.reduces or kernel.overwritten:
        return None
    (store,) = kernel.stores
    if len(store.src) < 3 or any(least_size(r) != size(r) for r in kernel.outputs):
        return None
    offset, condition = store.src[0].src[1], store.src[2]
    extents = loaded_extents(offset, store)
    if len(extents) != 1:
        return None
    ((place, extent),) = extents.items()
    others = [r for r in kernel.outputs if r not in kernel.meeting]
    wanted = _THREADS * max(target.unit("grid").count, 1) // max(product(others), 1)
    count = 1
    while 2 * count <= min(wanted, extent, _MOST_CLASSES):
        count *= 2
    if count < 2 or product(kernel.meeting) < _LEAST_ROWS or not _is_apart(offset, place):
        return None
    last = max(int(range_.attrs.number) for range_ in kernel.free.ranges)
    class_ = RANGE(const_index(count), attrs=RangeAttrs(last + 1))
    own = simplify.equal(simplify.mod(place, const_index(count)), class_)
    gate = simplify.both(condition, own)
    # What only the value needs is loaded where there is something to write.
    needed = {node for node in toposort(INDEX(store.src[0].src[0], offset)) if node.op is LOAD}
    needed |= {node for node in toposort(condition) if node.op is LOAD}
    loads: dict[Node, Node] = {}
    for node in toposort(store.src[1]):
        if node.op is LOAD and node not in needed:
            before = node.src[1] if len(node.src) > 1 else None
            loads[node] = LOAD(node.src[0], own if before is None else simplify.both(before, own))
    (value,) = simplify.substitute([store.src[1]], loads)
    rest = [effect for effect in kernel.sink.src if effect is not store]
    return SINK(STORE(store.src[0], value, gate), *rest)


def _is_apart(offset: Node, place: Node) -> bool:
    """Do two values of the loaded place always give two places in memory?"""
    _, total = simplify.terms(offset)
    reach = sum(
        factor * (size(term) - 1)
        for term, factor in total.items()
        if term is not place and term.op is RANGE and factor > 0
    )
    plain = all(term is place or (term.op is RANGE and f > 0) for term, f in total.items())
    return plain and reach < total[place]
