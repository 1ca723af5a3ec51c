"""What becomes of the sums of a tile: the rest of the kernel, element by element, and its stores.

Each thread holds four sums for every eight columns: two neighbours in a row, and two eight rows
further down.  The kernel's stores are evaluated for each of them.  Results leave as boxes through
TILE memory where the copy engine can take all of them, and what is loaded for each of them comes so
(`exchange`); otherwise results are stored in pairs or alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.records import dataclass
from tilework.codegen.analysis import stride, substitute_ranges
from tilework.codegen.gpu.flat import Flat
from tilework.codegen.gpu.plan import GROUP_THREADS
from tilework.codegen.matrix.together import divide_together
from tilework.codegen.passes.decompose import decompose
from tilework.codegen.plan.extents import size
from tilework.ir.build import const_bits, const_index
from tilework.ir.node import toposort, toposort_above
from tilework.ir.ops.control import BROADCAST, EXTRACT, STACK, LaneAttrs
from tilework.ir.ops.index import LanesAttrs, Unit
from tilework.ir.ops.matrix import (
    COPY_FENCE,
    GROUP_BARRIER,
    PICK,
    PUT,
    STORE_BOX_WAIT,
    STORE_FRAGMENT,
    CountAttrs,
)
from tilework.ir.ops.memory import LOAD, PARAM, STORE, LoadAttrs
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.codegen.matrix.exchange import Exchange, Moved, Staging, Tile
    from tilework.codegen.matrix.writer import Writer
    from tilework.ir.node import Node

#: Elements that a thread loads ahead for one part.
_MOST_AHEAD = 32
#: Nodes of what is computed for all sums of a thread that may stand one after the other.
_MOST_NODES = 5000


@dataclass(frozen=True, slots=True)
class Place:
    """Where a computing thread is.

    Attributes:
        group, member: Its warp group, and its number there.
        leads: Whether it acts for its group.
        values: The values of all ranges of the results at the tile's first row and column.
        after: The statement that finished the sums.
        starts: The first of the sixteen rows, and the first column, of this thread's warp in the
            tile; None where warps have rows by their numbers, and all columns.
        firsts: Where ranges count as one, the tile's first row and column among all.
    """

    group: Node
    member: Node
    leads: Node
    values: dict[Node, Node]
    after: Node
    starts: tuple[Node, Node] | None = None
    firsts: tuple[Node, Node] | None = None


def write_results(out: Writer, tile: Tile, place: Place, staging: Staging | None) -> None:
    """Store what the kernel makes of the sums of one tile; `staging` is memory for boxes."""
    results = _Results(out, tile, place)
    if staging is None:
        results.one_by_one()
    else:
        results.as_boxes(staging)


class _Results:
    def __init__(self, out: Writer, tile: Tile, place: Place) -> None:
        self.out = out
        self.tile = tile
        self.place = place
        self.rows = [range_ for range_, _ in tile.row_parts]
        self.columns = [range_ for range_, _ in tile.column_parts]
        self.row, self.column = self.rows[0], self.columns[0]
        #: Loads that were made ahead: what holds them, for which part, and how many of four differ.
        self.held: dict[Node, tuple[Node, Node, int]] = {}
        self.part_columns = 0
        #: How many times eight columns of sums have gone, so that others stand in their places.
        self.moved: Node = const_index(0)
        #: What has come in boxes: for eight columns, one of a thread's four sums, and a load.
        self.come: dict[tuple[Node, int, Node], Node] = {}
        lane = simplify.mod(place.member, const_index(32))
        warp = simplify.idiv(place.member, const_index(32))
        self.lane, self.warp = out.emit(lane), out.emit(warp)
        own, self.first_column = place.starts or (
            simplify.add(
                simplify.scale(place.group, tile.group_rows), simplify.scale(self.warp, 16)
            ),
            const_index(0),
        )
        first = out.emit(simplify.add(own, simplify.idiv(self.lane, const_index(4))))
        #: The ranges along the rows, and what says that they are inside, for both halves of rows.
        self.row_values: list[tuple[dict[Node, Node], Node]] = []
        for half in (0, 1):
            at = simplify.add(first, const_index(8 * half))
            values, gate = self._inside(0, at)
            values = {range_: out.emit(value) for range_, value in values.items()}
            self.row_values.append((values, gate))
        pair = simplify.scale(simplify.mod(self.lane, const_index(4)), 2)
        self.pair = out.emit(pair)
        #: What the stores compute from rows alone, for both halves of rows.
        self.row_memo = self._of_rows()

    def _of_rows(self) -> list[dict[Node, Node]]:
        """Values that no column moves, computed once for each row that a thread has."""
        memo: list[dict[Node, Node]] = [{}, {}]
        known = self.tile.known(const_index(0), 0)
        moved = {*self.columns, *known}
        wanted: dict[Node, None] = {}
        for store in self.tile.stores:
            loaded: set[Node] = set()
            for node in toposort_above((store.src[1],), known):
                sources = set(node.src)
                if not sources.isdisjoint(moved):
                    moved.add(node)
                    fixed = [each for each in node.src if each in loaded and each not in moved]
                    wanted.update(dict.fromkeys(fixed))
                elif node.op is LOAD or not sources.isdisjoint(loaded):
                    loaded.add(node)
        for half, (values, gate) in enumerate(self.row_values):
            at = self.place.values | values
            for node in wanted:
                found = gated(substitute_ranges(node, at, {}, {}), gate)
                memo[half][node] = self.out.emit(found)
        return memo

    def _inside(self, side: int, at: Node) -> tuple[dict[Node, Node], Node]:
        """The values of the ranges of rows (0) or columns (1) at a place; are all inside?"""
        parts = (self.tile.row_parts, self.tile.column_parts)[side]
        if self.place.firsts is not None:
            return self._inside_as_one(parts, simplify.add(self.place.firsts[side], at))
        values: dict[Node, Node] = {}
        gates: list[Node] = []
        for number, (range_, part) in enumerate(parts):
            own = simplify.mod(at, const_index(part)) if number < len(parts) - 1 else at
            at = simplify.idiv(at, const_index(part)) if number < len(parts) - 1 else at
            values[range_] = simplify.add(self.place.values[range_], own)
            if size(range_) % part:
                gates.append(simplify.less(values[range_], const_index(size(range_))))
        return values, simplify.all_of(gates)

    def _inside_as_one(
        self, parts: Sequence[tuple[Node, int]], at: Node
    ) -> tuple[dict[Node, Node], Node]:
        flat = Flat([range_ for range_, _ in reversed(parts)])
        gate = simplify.TRUE
        if flat.size % parts[0][1]:
            gate = simplify.less(at, const_index(flat.size))
        return flat.values(at), gate

    def one_by_one(self) -> None:
        """Every element, or every two neighbours, by a store of their own."""
        out = self.out
        pairs = all(self._takes_pairs(store) for store in self.tile.stores)
        with out.loop(self.tile.columns // 8, Unit.UNROLL) as eighth:
            for store in self.tile.stores:
                four = self._stores(store, [(eighth, element) for element in range(4)])
                for both in (four[:2], four[2:]):
                    if not pairs:
                        for one in both:
                            out.emit(one)
                        continue
                    value = STACK(*(one.src[1] for one in both))
                    gate = both[0].src[2:3]
                    out.emit(STORE(both[0].src[0], value, *gate))

    def _takes_pairs(self, store: Node) -> bool:
        """May two neighbours in a row be stored at once?"""
        return len(store.src) == 2 and self._are_neighbours(store.src[0].src[1])

    def _are_neighbours(self, offset: Node) -> bool:
        """Do a thread's two columns lie side by side?  Then both are inside, or neither."""
        start, total = simplify.terms(offset)
        steps = [start, *(factor for term, factor in total.items() if term is not self.column)]
        part = self.tile.column_parts[0][1]
        steps += [part, size(self.column)]
        is_even = all(step % 2 == 0 for step in steps)
        return stride(offset, self.column) == 1 and is_even

    def as_boxes(self, staging: Staging) -> None:
        """Parts of a group's rows through TILE memory, one filled while one leaves or comes."""
        out, place, exchange = self.out, self.place, staging.exchange
        number = simplify.add(place.group, const_index(1))
        threads = CountAttrs(GROUP_THREADS)
        loads = self._loads_ahead(exchange)
        # What is long stands once, for the first sums, and others take their places: the code for
        # all of a thread's sums would be more than caches of instructions hold.
        moves = self.tile.shift if self._is_long() and exchange.parts > 1 else None
        with out.loop(exchange.parts, Unit.LOOP if moves else Unit.UNROLL) as part:
            self.moved = simplify.scale(part, exchange.columns // 8) if moves else const_index(0)
            slot = staging.result_slot(place.group, part)
            self._load_ahead(loads, part, exchange.columns)
            coming = staging.wait(place.group, part)
            with out.when(place.leads):
                out.emit(STORE_BOX_WAIT(part, attrs=CountAttrs(staging.leaving)))
            out.emit(GROUP_BARRIER(number, part, attrs=threads))
            with out.loop(exchange.columns // 16, Unit.UNROLL) as quarter:
                self._gather(staging, part, quarter, slot, coming)
            fence = out.emit(COPY_FENCE(part))
            stored = out.emit(GROUP_BARRIER(number, fence, attrs=threads))
            with out.when(place.leads):
                staging.store(place.group, place.values, part, slot, stored)
            staging.ask_further(place.group, place.leads, place.values, part)
            if moves is not None:
                moves(exchange.columns // 2)
        staging.end_tile()

    def _is_long(self) -> bool:
        """Are there many instructions for all sums of a thread?"""
        values = [store.src[1] for store in self.tile.stores]
        nodes = len(toposort_above(values, self.tile.known(const_index(0), 0)))
        return nodes * self.tile.columns // 2 > _MOST_NODES

    def _gather(
        self, staging: Staging, part: Node, quarter: Node, slot: Node, coming: Node | None
    ) -> None:
        """Sixteen columns of a part, of all results, into TILE memory."""
        exchange = staging.exchange
        at = simplify.add(simplify.scale(part, exchange.columns // 16), quarter)
        first = simplify.scale(at, 2)
        self.come = {}
        places = []
        for eighth in (0, 1):
            column = simplify.add(simplify.scale(quarter, 16), const_index(8 * eighth))
            whole = simplify.add(first, const_index(eighth))
            if coming is not None:
                self._come(staging, coming, whole, column)
            places += [(whole, element) for element in range(4)]
        for result in exchange.results:
            values = [one.src[1] for one in self._stores(result.node, places)]
            if result.array.dtype.itemsize == 2:
                self._fragment(staging, result, quarter, slot, values)
                continue
            for pair in range(4):  # two neighbours of the four sums of each eight columns
                row = self._row(pair % 2)
                column = simplify.add(simplify.scale(quarter, 16), const_index(8 * (pair // 2)))
                address = staging.place(result, slot, row, simplify.add(column, self.pair))
                self.out.emit(STORE(address, STACK(*values[2 * pair : 2 * pair + 2])))

    def _row(self, half: int) -> Node:
        """One of the two rows of a thread, among those of its group."""
        own = simplify.add(simplify.scale(self.warp, 16), simplify.idiv(self.lane, const_index(4)))
        return simplify.add(own, const_index(8 * half))

    def _come(self, staging: Staging, slot: Node, eighth: Node, column: Node) -> None:
        """The operands of a thread's four sums in eight columns, two neighbours at once."""
        for each in staging.exchange.operands:
            for half in (0, 1):
                place = simplify.add(column, self.pair)
                address = staging.place(each, slot, self._row(half), place)
                pair = self.out.emit(LOAD(address, attrs=LoadAttrs(2)))
                for right in (0, 1):
                    value = EXTRACT(pair, attrs=LaneAttrs(right))
                    self.come[eighth, 2 * half + right, each.node] = value

    def _fragment(
        self, staging: Staging, result: Moved, quarter: Node, slot: Node, values: list[Node]
    ) -> None:
        """Sixteen columns of 16 bits, by the threads of a warp together."""
        row = simplify.add(simplify.scale(self.warp, 16), simplify.mod(self.lane, const_index(16)))
        eighth = simplify.idiv(self.lane, const_index(16))
        column = simplify.add(simplify.scale(quarter, 16), simplify.scale(eighth, 8))
        self.out.emit(STORE_FRAGMENT(staging.place(result, slot, row, column), *values))

    def _loads_ahead(self, exchange: Exchange) -> list[Node]:
        """What a part loads before it waits for its place: as much as registers have room for."""
        found: list[Node] = []
        lanes = exchange.columns // 2
        room = _MOST_AHEAD
        come = {each.node for each in exchange.operands}
        inside = {*self.tile.known(const_index(0), 0), *self.row_memo[0], *come}
        stack = [store.src[1] for store in reversed(self.tile.stores)]
        while stack:
            node = stack.pop()
            if node in inside:
                continue
            inside.add(node)
            if node.op is not LOAD:
                stack.extend(reversed(node.src))
                continue
            own = set(toposort(node)) & {*self.rows, *self.columns}
            need = lanes if own & set(self.rows) else lanes // 2
            if own and node.src[0].src[0].op is PARAM and not node.type.shape and need <= room:
                found.append(node)
                room -= need
        return found

    def _load_ahead(self, loads: list[Node], part: Node, columns: int) -> None:
        """Load for all elements of a part, so that all loads are on their way together."""
        out = self.out
        self.held = {}
        self.part_columns = columns
        for load in loads:
            zero = BROADCAST(const_bits(0, load.type.dtype), attrs=LanesAttrs(columns // 2))
            held = out.variable(zero)
            depends = set(self.rows) & set(toposort(load))
            elements = 4 if depends else 2
            step = 2 if self._are_neighbours(load.src[0].src[1]) and len(load.src) == 1 else 1
            with out.loop(columns // 8, Unit.UNROLL) as eighth:
                at = simplify.add(simplify.scale(part, columns // 8), eighth)
                for element in range(0, elements, step):
                    values, gate = self._where(at, element)
                    value = gated(substitute_ranges(load, values, {}, {}), gate)
                    position = simplify.add(simplify.scale(eighth, 4), const_index(element))
                    if step == 1:
                        out.emit(PUT(held, position, value))
                        continue
                    both = out.emit(LOAD(*value.src, attrs=LoadAttrs(2)))
                    for right in (0, 1):
                        own = simplify.add(position, const_index(right))
                        out.emit(PUT(held, own, EXTRACT(both, attrs=LaneAttrs(right))))
            self.held[load] = (held, part, elements)

    def _picked(self, eighth: Node, element: int) -> dict[Node, Node]:
        """The loads that are there already, for one of the four sums in eight columns."""
        found = {
            load: value
            for (at, own, load), value in self.come.items()
            if at is eighth and own == element
        }
        for load, (held, part, elements) in self.held.items():
            inside = simplify.sub(eighth, simplify.scale(part, self.part_columns // 8))
            position = simplify.add(simplify.scale(inside, 4), const_index(element % elements))
            found[load] = PICK(held, position)
        return found

    def _stores(self, store: Node, places: list[tuple[Node, int]]) -> list[Node]:
        """The kernel's store for several sums, which share what can be shared."""
        found = [self._store(store, *place) for place in places]
        target = self.out.target
        kept = frozenset(node for memo in self.row_memo for node in memo.values())
        values = divide_together([decompose(one.src[1], target) for one in found], kept)
        return [
            STORE(one.src[0], value, *one.src[2:]) for one, value in zip(found, values, strict=True)
        ]

    def _store(self, store: Node, eighth: Node, element: int) -> Node:
        """The kernel's store for one of the four sums that a thread has in eight columns."""
        values, gate = self._where(eighth, element)
        own = simplify.sub(eighth, self.moved)
        position = simplify.add(simplify.scale(own, 4), const_index(element))
        half = element // 2
        memo = self.tile.known(position, half) | self._picked(eighth, element)
        memo |= self.row_memo[half]
        kept = frozenset(self.row_memo[half].values())
        return gated(substitute_ranges(store, values, {}, memo), gate, kept)

    def _where(self, eighth: Node, element: int) -> tuple[dict[Node, Node], Node]:
        """The values of all ranges for one of the four sums, and whether it is inside."""
        rows, inside = self.row_values[element // 2]
        parts = self.tile.column_parts
        eight = simplify.add(self.first_column, simplify.scale(eighth, 8))
        fastest = parts[0][1] if self.place.firsts is None else size(self.column)
        if len(parts) == 1 or fastest % 8:
            place = simplify.add(simplify.add(self.pair, eight), const_index(element % 2))
            columns, gate = self._inside(1, place)
        else:
            # All eight columns lie in one row of the first range: the others' values are numbers
            # as soon as loops are unrolled.
            columns, gate = self._inside(1, eight)
            near = simplify.add(self.pair, const_index(element % 2))
            columns[self.column] = simplify.add(columns[self.column], near)
            if self.place.firsts is None:
                gate = simplify.both(gate, self._is_within(columns[self.column]))
        return self.place.values | rows | columns, simplify.both(inside, gate)

    def _is_within(self, column: Node) -> Node:
        if size(self.column) % self.tile.column_parts[0][1] == 0:
            return simplify.TRUE
        return simplify.less(column, const_index(size(self.column)))


def gated(root: Node, gate: Node, kept: frozenset[Node] = frozenset()) -> Node:
    """A store or value of which no load from a buffer and no store happens where `gate` fails.

    What is `kept` stays as it is: it is there already.
    """
    if gate is simplify.TRUE:
        return root
    done: dict[Node, Node] = {}
    for node in toposort_above((root,), kept):
        if node in kept:
            done[node] = node
            continue
        src = tuple([done[source] for source in node.src])
        reads = node.op is LOAD and node.src[0].src[0].op is PARAM
        if reads or node.op is STORE:
            position = 1 if reads else 2
            old = src[position] if len(src) > position else simplify.TRUE
            src = (*src[:position], simplify.both(old, gate), *src[position + 1 :])
        done[node] = node if src == node.src else node.op(*src, attrs=node.attrs)
    return done[root]
