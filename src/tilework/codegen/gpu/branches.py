"""Conditions of all that a loop does, tested once: LINEAR -> LINEAR with branches around it.

A loop that runs in order and stores now and then (rows that add to chosen rows) has its condition
at every access.  What all its stores ask for becomes a branch: around the loop, where the loop does
not change it; else inside, behind what the condition needs, as long as that loads nothing there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.ir.node import toposort
from tilework.ir.ops.control import ACCUMULATE, ACCUMULATOR, END, ENDIF, IF
from tilework.ir.ops.index import RANGE, Unit
from tilework.ir.ops.memory import LOAD, STORE
from tilework.ir.ops.program import LINEAR
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.ir.node import Node

_VARIABLES = frozenset({ACCUMULATE, ACCUMULATOR})


def branch_loops(linear: Node) -> Node:
    """Branches around what whole iterations, or whole loops, are only sometimes asked to do."""
    statements, _ = _branched(linear.src)
    return linear if statements == list(linear.src) else LINEAR(*statements)


def _branched(statements: Sequence[Node]) -> tuple[list[Node], list[Node]]:
    """The statements with branches in their loops, and what all of their effects ask for."""
    found: list[Node] = []
    asked: list[list[Node]] = []
    place = 0
    while place < len(statements):
        node = statements[place]
        if node.op is RANGE and node.attrs.unit is Unit.LOOP:
            end = next(
                at for at in range(place, len(statements))
                if statements[at].op is END and statements[at].src[0] is node
            )  # fmt: skip
            loop, conditions = _loop(node, statements[place + 1 : end], statements[end])
            found += loop
            asked.append(conditions)
            place = end + 1
            continue
        if not node.op.pure or node.op in _VARIABLES:
            is_gated = node.op is STORE and len(node.src) > 2
            asked.append(simplify.conjuncts(node.src[2]) if is_gated else [])
        found.append(node)
        place += 1
    common = [each for each in asked[0] if all(each in more for more in asked)] if asked else []
    return found, common


def _loop(counter: Node, body: Sequence[Node], end: Node) -> tuple[list[Node], list[Node]]:
    inside, common = _branched(body)
    own = {counter, *body}
    outside = [each for each in common if own.isdisjoint(toposort(each))]
    tested: dict[Node, None] = {}
    for each in common:
        needed = [node for node in toposort(each) if node in own]
        if each not in outside and all(node.op is not LOAD for node in needed):
            tested[each] = None
    if tested and not any(node.op is RANGE for node in inside):
        needs = {node for each in tested for node in toposort(each)}
        first = [node for node in inside if node in needs]
        rest = [node for node in inside if node not in needs]
        inside = [*first, *_branch(list(tested), rest)]
    loop = [counter, *inside, end]
    return (_branch(outside, loop) if outside else loop), common


def _branch(conditions: Sequence[Node], statements: Sequence[Node]) -> list[Node]:
    test = conditions[0]
    made: list[Node] = []
    for each in conditions[1:]:
        test = simplify.both(test, each)
        made.append(test)
    opened = IF(test)
    return [*made, opened, *statements, ENDIF(opened)]
