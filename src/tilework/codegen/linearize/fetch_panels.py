"""LINEAR -> LINEAR: panels of a factor are fetched evenly, while rows pass over the ones before.

A product passes over a panel of its second factor once for each tile of rows.  The first pass waits
for memory, if the panel was not in the second cache, and the others leave memory alone.  So each
pass asks for its share of the panel that comes next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilework.base.records import dataclass
from tilework.codegen.analysis import depends_on
from tilework.ir.build import const_index
from tilework.ir.node import toposort
from tilework.ir.ops.control import ACCUMULATE, ACCUMULATOR, END, ENDIF, IF
from tilework.ir.ops.index import RANGE, Unit
from tilework.ir.ops.memory import FAR_BYTES, FETCH, INDEX, LOAD, PARAM, FetchAttrs, LoadAttrs
from tilework.ir.ops.program import LINEAR
from tilework.ir.symbolic import simplify
from tilework.ir.symbolic.bounds import bounds

if TYPE_CHECKING:
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

#: From the second cache to the first: so far ahead of their use are the loads of a panel.
NEAR_AHEAD_BYTES: Final = 1024
#: The most lines that an iteration asks for.
_MOST: Final = 4


@dataclass(frozen=True, slots=True)
class _Pass:
    """Loops that pass over a panel.

    Attributes:
        loads: The loads of one step, at the end of the innermost loop.
        start: The offset of the panel.
        elements: How many there are in a panel.
        rows: The loops that pass over it, outermost first.
        steps: The loops over the sum, outermost first.
    """

    loads: list[Node]
    start: Node
    elements: int
    rows: list[Node]
    steps: list[Node]


def fetch_panels(linear: Node, target: TargetSpec) -> Node:
    """The statements, with FETCHes of panels in place of loads that fetch far ahead."""
    statements = linear.src
    if not target.l2_bytes or not target.line_bytes or not any(map(_is_far, statements)):
        return linear
    around: list[Node] = []
    for place, node in enumerate(statements):
        if node.op is RANGE or node.op is IF:
            around.append(node)
        elif node.op is END or node.op is ENDIF:
            found = _pass_over(statements, place, around)
            if found is not None and 2 * _bytes(found) <= target.l2_bytes:
                return _with_fetches(linear, found, target.line_bytes)
            around.pop()
    return linear


def _is_far(node: Node) -> bool:
    return node.op is LOAD and node.attrs is not None and bool(node.attrs.ahead >= FAR_BYTES)


def _bytes(found: _Pass) -> int:
    return found.elements * int(found.loads[0].dtype.itemsize)


def _pass_over(statements: tuple[Node, ...], end: int, around: list[Node]) -> _Pass | None:
    """What the loop that ends at a place passes over, if that is a panel before another one."""
    begin = statements.index(around[-1])
    loads = [node for node in statements[begin:end] if _is_far(node)]
    updates = [node for node in statements[begin:end] if node.op is ACCUMULATE]
    if not loads or not updates or any(node.op is not RANGE for node in around):
        return None
    if any(load.src[0].op is not INDEX or load.src[0].src[0].op is not PARAM for load in loads):
        return None
    accumulator = updates[0].src[0]
    outside = statements.index(accumulator) if accumulator.op is ACCUMULATOR else 0
    steps = [loop for loop in around if statements.index(loop) > outside]
    outer = [loop for loop in around if statements.index(loop) <= outside]
    constants, terms = zip(*(simplify.terms(load.src[0].src[1]) for load in loads), strict=True)
    total = terms[0]
    if any(other != total for other in terms) or not steps:
        return None
    elements = sum(load.type.lanes if load.type.shape else 1 for load in loads)
    for loop in reversed(steps):
        # Elements lie in the order in which they are used.
        extent = simplify.value_of(loop.src[0])
        if extent is None or total.get(loop) != elements:
            return None
        elements *= extent
    rows: list[Node] = []
    while outer and not _depends(total, outer[-1]):
        rows.insert(0, outer.pop())
    if not rows or not outer or total.get(outer[-1]) != elements:
        return None
    if any(loop.attrs.unit is not Unit.LOOP for loop in (*rows, *steps)):
        return None
    start = {term: factor for term, factor in total.items() if term not in steps}
    return _Pass(loads, simplify.from_terms(min(constants), start), elements, rows, steps)


def _depends(total: dict[Node, int], loop: Node) -> bool:
    return any(depends_on(term, loop) for term in total)


def _with_fetches(linear: Node, found: _Pass, line_bytes: int) -> Node:
    """The statements with the share of each pass asked for in one of its loops."""
    passes = 1
    row = const_index(0)
    for loop in found.rows:
        extent = max(bounds(loop.src[0])[1], 1)
        row = simplify.add(simplify.scale(row, extent), loop)
        passes *= extent
    if passes < 2:
        return linear
    # In the outermost loop whose iterations need not ask for more than a line each.
    item = int(found.loads[0].dtype.itemsize)
    share = -(-found.elements // passes)
    step, count, asking = const_index(0), 1, found.steps[0]
    for loop in found.steps:
        asking = loop
        extent = simplify.value_of(loop.src[0]) or 1
        step = simplify.add(simplify.scale(step, extent), loop)
        count *= extent
        if -(-share // count) * item <= line_bytes:
            break
    each = -(-share // count)
    lines = -(-each * item // line_bytes)
    if lines > _MOST:
        return linear
    position = simplify.add(simplify.scale(row, each * count), simplify.scale(step, each))
    first = simplify.add(found.start, position)
    fetches = []
    for line in range(lines):
        offset = simplify.plus(first, line * line_bytes // item)
        address = INDEX(found.loads[0].src[0].src[0], offset)
        fetches.append(FETCH(address, attrs=FetchAttrs(found.elements * item, to_write=False)))
    return _inserted(linear, found, asking, fetches)


def _inserted(linear: Node, found: _Pass, loop: Node, fetches: list[Node]) -> Node:
    """The statements with others at the beginning of a loop; as they were where that can't be."""
    statements = linear.src
    begin = statements.index(loop)
    visible, known = _visible(statements, begin), set(statements)
    added: dict[Node, None] = {}
    for node in toposort(*fetches):
        if not node.src or node.op is RANGE or node in visible:
            continue
        if node in known:
            return linear  # it would stand in two blocks
        added[node] = None
    near = {
        load: LOAD(*load.src, attrs=LoadAttrs(load.attrs.lanes, NEAR_AHEAD_BYTES))
        for load in found.loads
    }
    became: dict[Node, Node] = {}
    written: list[Node] = []
    for place, node in enumerate(statements):
        new = near.get(node, node)
        src = tuple([became.get(source, source) for source in new.src])
        if src != new.src:
            new = new.op(*src, attrs=new.attrs)
        if new is not node:
            became[node] = new
        written.append(new)
        if place == begin:
            written += added
    return LINEAR(*written)


def _visible(statements: tuple[Node, ...], end: int) -> set[Node]:
    """What stands before a place, in blocks that are open there, and what opens them."""
    blocks: list[list[Node]] = [[]]
    for node in statements[: end + 1]:
        blocks[-1].append(node)
        if node.op is RANGE or node.op is IF:
            blocks.append([])
        elif node.op is END or node.op is ENDIF:
            blocks.pop()
    return {node for block in blocks for node in block}
