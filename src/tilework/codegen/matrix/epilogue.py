"""What becomes of the sums of a tile: the rest of the kernel, element by element, and its stores.

Each thread holds four sums for every eight columns: two neighbours in a row, and two eight rows
further down.  The kernel's stores are evaluated for each of them.  Results of 16 bits leave as
boxes through TILE memory where the copy engine can take them; others are stored in pairs or alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilework.codegen.analysis import stride, substitute_ranges
from tilework.codegen.gpu.plan import GROUP_THREADS
from tilework.codegen.matrix.operands import ROW_BYTES, Array, array_of
from tilework.codegen.matrix.together import divide_together
from tilework.codegen.passes.decompose import decompose
from tilework.codegen.plan.extents import size
from tilework.ir.build import const_bits, const_index
from tilework.ir.node import toposort
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
    BoxedAttrs,
    CountAttrs,
)
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, STORE
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilework.codegen.matrix.writer import Writer
    from tilework.ir.node import Node

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
        row, column: The first row and column of its tile.
        values: The values of the ranges that are not tiled.
        after: The statement that finished the sums.
    """

    group: Node
    member: Node
    leads: Node
    row: Node
    column: Node
    values: dict[Node, Node]
    after: Node


@dataclass(frozen=True, slots=True)
class Tile:
    """The results of one tile.

    Attributes:
        stores: The STOREs that take them.
        row, column: The ranges of which a tile holds `rows` and `columns` values.
        others: The other ranges of the stores.
        group_rows: Rows of one warp group.
        known: For the position of a sum and the lower (0) or upper (1) half of the rows, the nodes
            of the stores whose values are known then.
    """

    stores: tuple[Node, ...]
    row: Node
    column: Node
    others: tuple[Node, ...]
    group_rows: int
    rows: int
    columns: int
    known: Callable[[Node, int], dict[Node, Node]]


def outgoing_array(tile: Tile) -> Array | None:
    """The result as an array whose boxes a copy engine can store; None if it cannot."""
    if len(tile.stores) != 1 or tile.columns % PART_COLUMNS:
        return None
    (store,) = tile.stores
    array = array_of(store.src[0], [*tile.others, tile.row, tile.column])
    if array is None or len(store.src) > 2 or array.dtype.itemsize != 2:
        return None
    return array if array.ranges[0] is tile.column and tile.row in array.ranges else None


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
        self.row, self.column = tile.row, tile.column
        #: Loads that were made ahead: what holds them, for which part, and how many of four differ.
        self.held: dict[Node, tuple[Node, Node, int]] = {}
        lane = simplify.mod(place.member, const_index(32))
        warp = simplify.idiv(place.member, const_index(32))
        self.lane, self.warp = out.emit(lane), out.emit(warp)
        first = simplify.add(
            simplify.scale(self.warp, 16), simplify.idiv(self.lane, const_index(4))
        )
        below = simplify.add(place.row, simplify.scale(place.group, tile.group_rows))
        self.first_row = out.emit(simplify.add(below, first))
        pair = simplify.scale(simplify.mod(self.lane, const_index(4)), 2)
        self.first_column = out.emit(simplify.add(place.column, pair))

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
        is_even = all(step % 2 == 0 for step in steps) and size(self.column) % 2 == 0
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
        inside = set(self.tile.known(const_index(0), 0))
        stack = [store.src[1]]
        while stack:
            node = stack.pop()
            if node in inside:
                continue
            inside.add(node)
            if node.op is not LOAD:
                stack.extend(reversed(node.src))
                continue
            own = set(toposort(node)) & {self.row, self.column}
            need = _LANES if self.row in own else _LANES // 2
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
            elements = range(4) if self.row in toposort(load) else range(2)
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
        box = {self.column: PART_COLUMNS, self.row: self.tile.group_rows}
        sizes = tuple(size(range_) for range_ in array.ranges)
        boxes = tuple(box.get(range_, 1) for range_ in array.ranges)
        return BoxedAttrs(array.start, sizes, array.strides, boxes, ROW_BYTES)

    def _coordinates(self, array: Array, part: Node) -> list[Node]:
        place = self.place
        row = simplify.add(place.row, simplify.scale(place.group, self.tile.group_rows))
        column = simplify.add(place.column, simplify.scale(part, PART_COLUMNS))
        values = place.values | {self.row: row, self.column: column}
        return [values[range_] for range_ in array.ranges]

    def _stores(self, store: Node, places: list[tuple[Node, int]]) -> list[Node]:
        """The kernel's store for several sums, which share what can be shared."""
        found = [self._store(store, *place) for place in places]
        target = self.out.target
        values = divide_together([decompose(one.src[1], target) for one in found])
        return [
            STORE(one.src[0], value, *one.src[2:]) for one, value in zip(found, values, strict=True)
        ]

    def _store(self, store: Node, eighth: Node, element: int) -> Node:
        """The kernel's store for one of the four sums that a thread has in eight columns."""
        values, gate = self._where(eighth, element)
        position = simplify.add(simplify.scale(eighth, 4), const_index(element))
        memo = self.tile.known(position, element // 2) | self._picked(eighth, element)
        return gated(substitute_ranges(store, values, {}, memo), gate)

    def _where(self, eighth: Node, element: int) -> tuple[dict[Node, Node], Node]:
        """The values of all ranges for one of the four sums, and whether it is inside."""
        row = simplify.add(self.first_row, const_index(8 if element >= 2 else 0))
        column = simplify.add(self.first_column, simplify.scale(eighth, 8))
        column = simplify.add(column, const_index(element % 2))
        gates = []
        if size(self.row) % self.tile.rows:
            gates.append(simplify.less(row, const_index(size(self.row))))
        if size(self.column) % self.tile.columns:
            gates.append(simplify.less(column, const_index(size(self.column))))
        return self.place.values | {self.row: row, self.column: column}, simplify.all_of(gates)


def gated(root: Node, gate: Node) -> Node:
    """A store or value of which no load from a buffer and no store happens where `gate` fails."""
    if gate is simplify.TRUE:
        return root
    done: dict[Node, Node] = {}
    for node in toposort(root):
        src = tuple([done[source] for source in node.src])
        reads = node.op is LOAD and node.src[0].src[0].op is PARAM
        if reads or node.op is STORE:
            position = 1 if reads else 2
            old = src[position] if len(src) > position else simplify.TRUE
            src = (*src[:position], simplify.both(old, gate), *src[position + 1 :])
        done[node] = node if src == node.src else node.op(*src, attrs=node.attrs)
    return done[root]
