"""What becomes of the sums of a tile: the rest of the kernel, element by element, and its stores.

Each thread holds four sums for every eight columns: two neighbours in a row, and two eight rows
further down.  The kernel's stores are evaluated for each of them.  Results of 16 bits leave as
boxes through TILE memory where the copy engine can take them; others are stored in pairs or alone.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from tilework.base.records import dataclass
from tilework.codegen.analysis import stride, substitute_ranges
from tilework.codegen.gpu.flat import Flat
from tilework.codegen.gpu.plan import GROUP_THREADS
from tilework.codegen.matrix.arrays import ROW_BYTES, Array, array_of
from tilework.codegen.matrix.together import divide_together
from tilework.codegen.passes.decompose import decompose
from tilework.codegen.plan.extents import size
from tilework.ir.build import const_bits, const_index
from tilework.ir.node import toposort, toposort_above
from tilework.ir.ops import math
from tilework.ir.ops.control import BROADCAST, STACK
from tilework.ir.ops.index import LanesAttrs, Unit
from tilework.ir.ops.matrix import (
    BOXED,
    COPY_FENCE,
    GROUP_BARRIER,
    PICK,
    PUT,
    STORE_BOX,
    STORE_BOX_WAIT,
    STORE_FRAGMENT,
    CountAttrs,
)
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, STORE
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tilework.codegen.matrix.writer import Writer
    from tilework.ir.node import Node
    from tilework.ir.ops.matrix import BoxedAttrs

#: Columns of a part that leaves at once: 128 bytes of results of 16 bits.
PART_COLUMNS = ROW_BYTES // 2
#: Elements of a part that one thread has.
_LANES = PART_COLUMNS // 2


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


@dataclass(frozen=True, slots=True)
class Tile:
    """The results of one tile.

    Attributes:
        stores: The STOREs that take them.
        row_parts, column_parts: The ranges along its rows and columns, the fastest first, and how
            many values of each it holds (of all of them together, where they count as one: then
            that stands at the fastest).
        others: The other ranges of the stores.
        group_rows: Rows of one warp group.
        known: For the position of a sum and the lower (0) or upper (1) half of the rows, the nodes
            of the stores whose values are known then.
        warp_columns: Columns of one warp; 0 where every warp has all.
    """

    stores: tuple[Node, ...]
    row_parts: tuple[tuple[Node, int], ...]
    column_parts: tuple[tuple[Node, int], ...]
    others: tuple[Node, ...]
    group_rows: int
    known: Callable[[Node, int], dict[Node, Node]]
    warp_columns: int = 0

    @property
    def columns(self) -> int:
        """Columns of a tile, or of a warp where each has its own."""
        return self.warp_columns or prod(part for _, part in self.column_parts)


def outgoing_array(tile: Tile) -> Array | None:
    """The result as an array whose boxes a copy engine can store; None if it cannot."""
    if len(tile.stores) != 1 or tile.columns % PART_COLUMNS:
        return None
    if len(tile.row_parts) > 1 or len(tile.column_parts) > 1:
        return None
    (store,) = tile.stores
    (row, _), (column, _) = tile.row_parts[0], tile.column_parts[0]
    array = array_of(store.src[0], [*tile.others, row, column])
    if array is None or len(store.src) > 2 or array.dtype.itemsize != 2 or not array.is_plain:
        return None
    return array if array.ranges[0] is column and row in array.ranges else None


def write_results(out: Writer, tile: Tile, place: Place, outgoing: Node | None) -> None:
    """Store what the kernel makes of the sums of one tile; `outgoing` is memory for boxes."""
    results = _Results(out, tile, place)
    array = outgoing_array(tile)
    if array is None or outgoing is None:
        results.one_by_one()
    else:
        results.as_boxes(array, outgoing)


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
        """May two neighbours in a row be stored at once?  Then both are inside, or neither."""
        offset = store.src[0].src[1]
        start, total = simplify.terms(offset)
        steps = [start, *(factor for term, factor in total.items() if term is not self.column)]
        part = self.tile.column_parts[0][1]
        steps += [part, size(self.column)]
        is_even = all(step % 2 == 0 for step in steps)
        return stride(offset, self.column) == 1 and is_even and len(store.src) == 2

    def as_boxes(self, array: Array, outgoing: Node) -> None:
        """Parts of 64 rows and 64 columns through TILE memory, one filled while one leaves."""
        out, place, rows = self.out, self.place, self.tile.group_rows
        (store,) = self.tile.stores
        number = simplify.add(place.group, const_index(1))
        threads = CountAttrs(GROUP_THREADS)
        part_elements = rows * PART_COLUMNS
        parts = self.tile.columns // PART_COLUMNS
        loads = self._loads_ahead(store)
        # Two slots in turn: the last part of a tile with an odd number used the first one's.
        leaving = CountAttrs(1 if parts % 2 == 0 else 0)
        with out.loop(parts, Unit.UNROLL) as part:
            turn = simplify.mod(part, const_index(2))
            slot = simplify.add(simplify.scale(place.group, 2), turn)
            start = out.emit(simplify.scale(slot, part_elements))
            self._load_ahead(loads, part)
            with out.when(place.leads):
                out.emit(STORE_BOX_WAIT(part, attrs=leaving))
            out.emit(GROUP_BARRIER(number, part, attrs=threads))
            with out.loop(PART_COLUMNS // 16, Unit.UNROLL) as quarter:
                self._fragment(store, part, quarter, outgoing, start)
            fence = out.emit(COPY_FENCE(part))
            stored = out.emit(GROUP_BARRIER(number, fence, attrs=threads))
            with out.when(place.leads):
                boxed = BOXED(array.param, attrs=self._boxed(array))
                coordinates = self._coordinates(array, part)
                out.emit(STORE_BOX(boxed, INDEX(outgoing, start), *coordinates, stored))

    def _fragment(
        self, store: Node, part: Node, quarter: Node, outgoing: Node, start: Node
    ) -> None:
        """Sixteen columns of a part into TILE memory."""
        out = self.out
        at = simplify.add(simplify.scale(part, PART_COLUMNS // 16), quarter)
        first = simplify.scale(at, 2)
        eighths = (first, simplify.add(first, const_index(1)))
        places = [(eighth, element) for eighth in eighths for element in range(4)]
        values = [one.src[1] for one in self._stores(store, places)]
        row = simplify.add(simplify.scale(self.warp, 16), simplify.mod(self.lane, const_index(16)))
        chunk = simplify.add(simplify.scale(quarter, 2), simplify.idiv(self.lane, const_index(16)))
        place = math.XOR(chunk, simplify.mod(row, const_index(8)))
        offset = simplify.add(simplify.scale(row, PART_COLUMNS), math.MUL(place, const_index(8)))
        out.emit(STORE_FRAGMENT(INDEX(outgoing, simplify.add(start, offset)), *values))

    def _loads_ahead(self, store: Node) -> list[Node]:
        """What a part loads before it waits for its place: as much as registers have room for."""
        found: list[Node] = []
        room = _LANES
        inside = {*self.tile.known(const_index(0), 0), *self.row_memo[0]}
        stack = [store.src[1]]
        while stack:
            node = stack.pop()
            if node in inside:
                continue
            inside.add(node)
            if node.op is not LOAD:
                stack.extend(reversed(node.src))
                continue
            own = set(toposort(node)) & {*self.rows, *self.columns}
            need = _LANES if own & set(self.rows) else _LANES // 2
            if own and node.src[0].src[0].op is PARAM and not node.type.shape and need <= room:
                found.append(node)
                room -= need
        return found

    def _load_ahead(self, loads: list[Node], part: Node) -> None:
        """Load for all elements of a part, so that all loads are on their way together."""
        out = self.out
        self.held = {}
        for load in loads:
            zero = BROADCAST(const_bits(0, load.type.dtype), attrs=LanesAttrs(_LANES))
            held = out.variable(zero)
            depends = set(self.rows) & set(toposort(load))
            elements = range(4) if depends else range(2)
            with out.loop(PART_COLUMNS // 8, Unit.UNROLL) as eighth:
                at = simplify.add(simplify.scale(part, PART_COLUMNS // 8), eighth)
                for element in elements:
                    values, gate = self._where(at, element)
                    value = gated(substitute_ranges(load, values, {}, {}), gate)
                    position = simplify.add(simplify.scale(eighth, 4), const_index(element))
                    out.emit(PUT(held, position, value))
            self.held[load] = (held, part, len(elements))

    def _picked(self, eighth: Node, element: int) -> dict[Node, Node]:
        """The loads that are there already, for one of the four sums in eight columns."""
        found = {}
        for load, (held, part, elements) in self.held.items():
            inside = simplify.sub(eighth, simplify.scale(part, PART_COLUMNS // 8))
            position = simplify.add(simplify.scale(inside, 4), const_index(element % elements))
            found[load] = PICK(held, position)
        return found

    def _boxed(self, array: Array) -> BoxedAttrs:
        extents = {self.column: PART_COLUMNS, self.row: self.tile.group_rows}
        return array.boxed(extents, ROW_BYTES)

    def _coordinates(self, array: Array, part: Node) -> list[Node]:
        starts = self.place.values
        below = simplify.scale(self.place.group, self.tile.group_rows)
        row = simplify.add(starts[self.row], below)
        column = simplify.add(starts[self.column], simplify.scale(part, PART_COLUMNS))
        return array.places(starts | {self.row: row, self.column: column})

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
        position = simplify.add(simplify.scale(eighth, 4), const_index(element))
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
