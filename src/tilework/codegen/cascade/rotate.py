"""Two loops of one length as one, and what of the next row may run in a loop of this one.

The last phase of a row waits for the divider and for memory, the first one of the next row for
neither; side by side they take little longer than one of them.  A phase that stores what the next
one folds hands it on in registers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.records import replace
from tilework.codegen.plan.extents import number, size
from tilework.ir.node import Node, toposort
from tilework.ir.ops.control import END
from tilework.ir.ops.index import RANGE, Unit
from tilework.ir.ops.memory import INDEX
from tilework.ir.ops.tensor import REDUCE
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from tilework.codegen.analysis import Kernel
    from tilework.codegen.cascade.phases import Phases
    from tilework.codegen.plan.plan import Plan, Split


def rotates(phases: Phases) -> bool:
    """May the first phase of a row run before the last one of the row before ends?

    Rows must come one at a time, and the first kept value must be a fold of memory alone that the
    stores do not read: its memory is written while they run.
    """
    first, *others = phases.memories
    if phases.tile.row is not None or first.op is not REDUCE or phases.cascade.along(first):
        return False
    if any(part in phases.memories for part in toposort(*first.src)):
        return False
    reached: set[Node] = set()
    stack = list(phases.cascade.stores)
    while stack:
        node = stack.pop()
        if node is first:
            return False
        if node not in reached and node not in others:
            reached.add(node)
            stack.extend(node.src)
    return True


def with_tile_of(plan: Plan, kernel: Kernel, other: Split | None) -> Plan:
    """The plan of a loop over vectors with as many of them in an iteration as `other` has."""
    lanes = [split for split in plan.splits if split.tile_size > 1]
    if other is None or len(lanes) != 1 or {at for at, _ in plan.nest} != {lanes[0].number}:
        return plan
    (split,) = lanes
    extents = {number(range_): size(range_) for range_ in kernel.outputs}
    fits = split.tile[-1:] == other.tile[-1:] and extents[split.number] % other.tile_size == 0
    if not fits or len(split.tile) != 1 or len(split.outer) > 2:
        return plan
    new = replace(split, outer=split.outer[:1], tile=other.tile)
    splits = tuple([new if known is split else known for known in plan.splits])
    return replace(plan, splits=splits, nest=((split.number, 0),))


def folds_what_is_stored(kernel: Kernel, following: Kernel, plan: Plan) -> bool:
    """Does a phase fold, position by position in one loop, what the one before it stores?"""
    if len(kernel.stores) != 1 or len(kernel.outputs) != 1 or kernel.reduces:
        return False
    if len(following.reduces) != 1 or following.outputs or plan.nest or len(plan.splits) != 1:
        return False
    (store,), (fold,) = kernel.stores, following.reduces
    (split,), address = plan.splits, store.src[0]
    if fold.src[1:] != tuple(kernel.outputs) or len(split.outer) != 1 or split.tile_size == 1:
        return False
    if size(fold.src[1]) % split.tile_size:
        return False
    # Ranges have names by their order, so that equal positions are one node.
    places = {node for node in following.order if node.op is INDEX}
    read = {place for place in places if place.src[0] is address.src[0]}
    return read == {address}


def fused(first: list[Node], second: list[Node]) -> list[Node]:
    """Two phases, the last loop of `first` and the first one of `second` as one if they agree.

    An iteration of `second` may depend on the same one of `first`, and else on nothing in it.
    """
    a, b = _last_loop(first), _first_loop(second)
    if a is None or b is None:
        return first + second
    (begin, end), (start, stop) = a, b
    loop, other = first[begin], second[start]
    extent = simplify.value_of(loop.src[0])
    if extent is None or extent != simplify.value_of(other.src[0]):
        return first + second
    if loop.attrs.unit is not Unit.LOOP:
        return first + second
    done: dict[Node, Node] = {other: loop}
    moved = [_renamed(node, done) for node in second]
    body = moved[start + 1 : stop]
    return [
        *first[:begin],
        *moved[:start],
        *first[begin:end],
        *body,
        *first[end:],
        *moved[stop + 1 :],
    ]


def _renamed(root: Node, done: dict[Node, Node]) -> Node:
    for node in toposort(root):
        if node not in done:
            src = tuple([done[source] for source in node.src])
            done[node] = node if src == node.src else node.op(*src, attrs=node.attrs)
    return done[root]


def _loops(statements: list[Node]) -> list[tuple[int, int]]:
    """Where outermost loops begin and end."""
    found = []
    depth = start = 0
    for position, node in enumerate(statements):
        if node.op is RANGE:
            start = position if not depth else start
            depth += 1
        elif node.op is END:
            depth -= 1
            if not depth:
                found.append((start, position))
    return found


def _last_loop(statements: list[Node]) -> tuple[int, int] | None:
    loops = _loops(statements)
    return loops[-1] if loops else None


def _first_loop(statements: list[Node]) -> tuple[int, int] | None:
    loops = _loops(statements)
    return loops[0] if loops else None
