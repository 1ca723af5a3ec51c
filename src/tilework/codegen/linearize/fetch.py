"""LINEAR -> LINEAR: memory that a loop is about to write whole is fetched before its turn.

A store to a line that no cache holds waits for the line.  The machine fetches ahead of a loop that
goes through memory in order, but begins anew in each page and each row.  Where a kernel goes over
a row several times, the line that the last loop will write is asked for by the loop before it,
which computes and leaves memory alone; where one loop is all there is, and the array larger than
any cache, by the loop itself some lines ahead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilework.base.records import dataclass
from tilework.codegen.analysis import depends_on, stride
from tilework.codegen.linearize.large import bytes_of
from tilework.ir.build import const_index
from tilework.ir.node import toposort
from tilework.ir.ops.control import END, ENDIF, IF
from tilework.ir.ops.index import RANGE, Unit
from tilework.ir.ops.memory import FETCH, INDEX, PARAM, STORE, FetchAttrs
from tilework.ir.ops.program import LINEAR
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

#: Arrays of so many times the second cache are written past what the machine holds anyway.
_LARGE: Final = 16
#: How far ahead a loop asks for what it writes itself.
_AHEAD_BYTES: Final = 2048
#: The most lines that an iteration asks for.
_MOST: Final = 16


@dataclass(frozen=True, slots=True)
class _Loop:
    """An innermost loop: where it begins and ends, and the loop or condition around it."""

    begin: int
    end: int
    around: Node | None


def fetch_results(linear: Node, target: TargetSpec) -> Node:
    """The statements, and before the stores of large arrays FETCHes of what they will write."""
    if not target.l2_bytes or not target.line_bytes:
        return linear
    return _Fetching(linear.src, target).run()


class _Fetching:
    """One pass over the statements of a kernel."""

    def __init__(self, statements: tuple[Node, ...], target: TargetSpec) -> None:
        self.statements = statements
        self.target, self.line_bytes = target, target.line_bytes
        self.places = {node: place for place, node in enumerate(statements)}
        #: What stands in several loops, once in each: it is not moved out of one for all.
        self.repeated = {node for place, node in enumerate(statements) if self.places[node] > place}
        #: What stands before a statement, by its place; what was moved does not stand any more.
        self.before: dict[int, list[Node]] = {}
        self.moved: set[Node] = set()

    def run(self) -> Node:
        loops = self._innermost()
        for position, loop in enumerate(loops):
            stores = self._stores(loop)
            if not stores:
                continue
            earlier = [other for other in reversed(loops[:position]) if other.around is loop.around]
            if loop.around is None or not earlier or not self._earlier(stores, loop, earlier[0]):
                self._itself(stores)
        if not self.before:
            return LINEAR(*self.statements)
        written: list[Node] = []
        for place, node in enumerate(self.statements):
            written += self.before.get(place, ())
            if node not in self.moved:
                written.append(node)
        return LINEAR(*written)

    # ---- loops and what they store

    def _innermost(self) -> list[_Loop]:
        """Loops without loops or conditions in them, in order."""
        found: list[_Loop] = []
        around: list[int] = []
        is_innermost = False
        for place, node in enumerate(self.statements):
            if node.op is RANGE or node.op is IF:
                around.append(place)
                is_innermost = node.op is RANGE and node.attrs.unit is Unit.LOOP
            elif node.op is END or node.op is ENDIF:
                begin = around.pop()
                if is_innermost:
                    outer = self.statements[around[-1]] if around else None
                    found.append(_Loop(begin, place, outer))
                is_innermost = False
        return found

    def _stores(self, loop: _Loop) -> list[Node]:
        """Stores of whole vectors to large arrays that a loop writes from one end to the other."""
        range_ = self.statements[loop.begin]
        found: dict[Node, list[Node]] = {}
        for node in self.statements[loop.begin : loop.end]:
            if node.op is not STORE or len(node.src) > 2 or not node.src[1].type.shape:
                continue
            if node.attrs is None or not node.attrs.past_lines:
                found.setdefault(node.src[0].src[0], []).append(node)
        kept: list[Node] = []
        for array, stores in found.items():
            if array.op is not PARAM or bytes_of(array) < self.target.l2_bytes:
                continue
            written = sum(store.src[1].type.lanes for store in stores)
            if all(stride(store.src[0].src[1], range_) == written for store in stores):
                kept += _a_line_each(stores, self.line_bytes)
        return kept

    # ---- what asks for it

    def _itself(self, stores: list[Node]) -> None:
        """Each store asks for a line ahead, where the array is larger than any cache."""
        for store in stores:
            address = store.src[0]
            if bytes_of(address.src[0]) >= _LARGE * self.target.l2_bytes:
                fetch = FETCH(address, attrs=FetchAttrs(_AHEAD_BYTES))
                self.before.setdefault(self.places[store], []).append(fetch)

    def _earlier(self, stores: list[Node], loop: _Loop, other: _Loop) -> bool:
        """Let another loop ask for the lines of the stores; False where it can't."""
        range_, asking = self.statements[loop.begin], self.statements[other.begin]
        extent, turns = (simplify.value_of(each.src[0]) for each in (range_, asking))
        if not extent or not turns or extent % turns or len(stores) * extent // turns > _MOST:
            return False
        copies = extent // turns
        # Where a line takes several iterations, one of them asks for it.
        written = stride(stores[0].src[0].src[1], range_) or 1
        every = max(self.line_bytes // (written * int(stores[0].src[1].type.dtype.itemsize)), 1)
        inside: dict[Node, None] = {}
        outside: dict[Node, None] = {}
        for copy in range(0, copies, every):
            value = asking
            if copies > 1:
                value = simplify.add(simplify.scale(asking, copies), const_index(copy))
            for store in stores:
                address = _renamed(store.src[0], range_, value)
                if not self._place(address, asking, other, inside, outside):
                    return False
                inside[FETCH(address, attrs=FetchAttrs())] = None
        self.moved.update(node for node in outside if node in self.places)
        self.before.setdefault(other.begin, []).extend(outside)
        self.before.setdefault(other.end, []).extend(inside)
        return True

    def _place(
        self,
        address: Node,
        asking: Node,
        other: _Loop,
        inside: dict[Node, None],
        outside: dict[Node, None],
    ) -> bool:
        """Add what an address is made of, as far as it does not stand before the fetch."""
        for node in toposort(address):
            if not node.src or node in inside or node in outside or node in self.moved:
                continue
            place = self.places.get(node)
            if place is not None and place < other.end:
                continue
            is_plain = node.op.elementwise or node.op is INDEX
            if not is_plain or node in self.repeated:
                return False
            if any(source in self.moved for source in node.src):
                return False
            if depends_on(node, asking):
                inside[node] = None
            elif place is None or self._is_within(place, other.around):
                outside[node] = None
            else:
                return False
        return True

    def _is_within(self, place: int, around: Node | None) -> bool:
        """Does a statement stand in a loop?"""
        if around is None:
            return True
        depth = 0
        for node in self.statements[self.places[around] : place]:
            depth += (node.op is RANGE or node.op is IF) - (node.op is END or node.op is ENDIF)
            if not depth:
                return False
        return True


def _a_line_each(stores: list[Node], line_bytes: int) -> list[Node]:
    """Stores of which none writes to the line of one before it, as far as offsets tell."""
    kept: list[Node] = []
    seen: set[tuple[Node, int]] = set()
    for store in stores:
        offset = store.src[0].src[1]
        constant, total = simplify.terms(offset)
        base = simplify.from_terms(0, total)
        line = constant * int(store.src[1].type.dtype.itemsize) // line_bytes
        if (base, line) not in seen:
            seen.add((base, line))
            kept.append(store)
    return kept


def _renamed(root: Node, old: Node, new: Node) -> Node:
    """A value with another one in place of a range."""
    done = {old: new}
    for node in toposort(root):
        if node not in done:
            src = tuple([done[source] for source in node.src])
            done[node] = node if src == node.src else node.op(*src, attrs=node.attrs)
    return done[root]
