"""Facts about a kernel that launching needs: what it writes, and how much work it is."""

from __future__ import annotations

from math import prod

from tilework.base.errors import InternalError
from tilework.ir.node import Node, toposort
from tilework.ir.ops.index import RANGE
from tilework.ir.ops.math import CONST
from tilework.ir.ops.memory import AFTER, INDEX, PARAM, STORE
from tilework.ir.ops.sort import SORT_PASSES, SORT_ROWS
from tilework.ir.ops.tensor import REDUCE, SCAN
from tilework.ir.symbolic.bounds import bounds

_FREE = frozenset({CONST, RANGE, PARAM, INDEX})


def written_slots(kernel: Node) -> tuple[int, ...]:
    """Return the slots of the PARAMs that `kernel` stores to, ascending."""
    found: set[int] = set()
    for node in toposort(kernel):
        if node.op is STORE or node.op is SORT_ROWS or node.op in SORT_PASSES:
            found.add(_slot_of(node.src[0]))
        elif node.op is SCAN and len(node.src) > 2:  # blocks tell each other by words
            found.add(_slot_of(node.src[2]))
    return tuple(sorted(found))


def scan_words(kernel: Node) -> frozenset[int]:
    """Return the slots by which blocks that share a scan tell each other; they are no results."""
    scans = [n for n in toposort(kernel) if n.op is SCAN and len(n.src) > 2]
    return frozenset([_slot_of(scan.src[2]) for scan in scans])


def _slot_of(target: Node) -> int:
    while target.op is INDEX or target.op is AFTER:
        target = target.src[0]
    if target.op is not PARAM:
        raise InternalError("kernel: a store to something that is no argument", got=repr(target))
    return int(target.attrs.slot)


def estimate_work(kernel: Node) -> int:
    """Return about how many scalar operations `kernel` does, with variables at their maximum."""
    inside: dict[Node, frozenset[Node]] = {}
    sizes: dict[Node, int] = {}
    trips: dict[frozenset[Node], int] = {}
    total = 0
    for node in toposort(kernel):
        if node.op is RANGE:
            sizes[node] = max(bounds(node.src[0])[1], 0)
            inside[node] = frozenset((node,))
            continue
        ranges: frozenset[Node] = frozenset().union(*[inside[source] for source in node.src])
        if node.op not in _FREE:
            if ranges not in trips:
                trips[ranges] = prod(sizes[range_] for range_ in ranges)
            total += trips[ranges]
        if node.op is SORT_ROWS:
            total += 20 * prod(sizes.values()) * max(bounds(node.src[2])[1], 0)
        elif node.op in SORT_PASSES:
            total += 5 * prod(sizes.values()) * max(bounds(node.src[-1])[1], 0)
        inside[node] = ranges.difference(node.src[1:]) if node.op in (REDUCE, SCAN) else ranges
    return total
