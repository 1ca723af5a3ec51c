"""What a tile's threads and memory exchange in boxes, part by part, besides the products.

A part has the rows of one warp group, and so many columns that they are 128 bytes of the narrowest
dtype: one box of each buffer of that dtype, two of one that is twice as wide.  Results are gathered
in TILE memory and leave from there.  What is loaded once for each result comes into TILE memory the
same way: two parts are on their way while products run, and each that is read makes room for the
one after the next.

    leader of a group                            all threads of the group
    before the products: ask for two parts       ...
                                                 wait until the part is there
    wait until earlier results have left         (barrier)
                                                 read operands, compute, write results
                                                 (fence, barrier)
    store the results' boxes, ask for one more
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from tilework.base.records import dataclass
from tilework.codegen.linearize.large import bytes_of
from tilework.codegen.matrix.arrays import ROW_BYTES, Array, array_of
from tilework.codegen.matrix.filling import CHUNK_BYTES
from tilework.dtypes import DType, uint64
from tilework.ir.build import const_index
from tilework.ir.node import toposort_above
from tilework.ir.ops import math
from tilework.ir.ops.matrix import (
    BOXED,
    COPY_BOX,
    SIGNAL_EXPECT,
    SIGNAL_INIT,
    SIGNAL_WAIT,
    STORE_BOX,
    CountAttrs,
)
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, StoreAttrs
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tilework.codegen.matrix.crew import Crew
    from tilework.codegen.matrix.writer import Writer
    from tilework.ir.node import Node
    from tilework.ir.ops.matrix import BoxedAttrs

#: Bytes of an element that boxes may hold: rows of 128 bytes of them are whole pieces of threads.
_ITEMSIZES = (2, 4)
#: Boxes of one part that results may have, and operands.
_MOST_RESULTS, _MOST_OPERANDS = 4, 2
#: Parts of operands that are on their way, or are read.
_OPERAND_SLOTS = 2
#: Results of so many times the cache that all share go past it.
_LONG = 4


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
        shift: Moves a thread's sums so many places down, over the first ones; None where they stay.
    """

    stores: tuple[Node, ...]
    row_parts: tuple[tuple[Node, int], ...]
    column_parts: tuple[tuple[Node, int], ...]
    others: tuple[Node, ...]
    group_rows: int
    known: Callable[[Node, int], dict[Node, Node]]
    warp_columns: int = 0
    shift: Callable[[int], None] | None = None

    @property
    def columns(self) -> int:
        """Columns of a tile, or of a warp where each has its own."""
        return self.warp_columns or prod(part for _, part in self.column_parts)


@dataclass(frozen=True, slots=True)
class Moved:
    """A STORE or a LOAD whose elements move in boxes, and the array that it moves through."""

    node: Node
    array: Array

    @property
    def width(self) -> int:
        """Columns of one box."""
        return ROW_BYTES // self.array.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Exchange:
    """What moves in boxes for each part of a tile.

    Attributes:
        results, operands: The stores, and the loads that come in boxes.
        row, column: The ranges that boxes move along; of others a tile has one value each.
        columns: Columns of a part.
        parts: Parts of a tile.
        group_rows: Rows of a part.
    """

    results: tuple[Moved, ...]
    operands: tuple[Moved, ...]
    row: Node
    column: Node
    columns: int
    parts: int
    group_rows: int

    def boxes(self, moved: Sequence[Moved]) -> int:
        """Boxes of one part."""
        return sum(self.columns // each.width for each in moved)

    @property
    def result_slots(self) -> int:
        """Parts of results that there is room for: one is filled while another one leaves."""
        return 2 if self.boxes(self.results) == 1 else 1

    @property
    def group_bytes(self) -> int:
        """TILE memory of one warp group."""
        slots = self.result_slots * self.boxes(self.results)
        slots += _OPERAND_SLOTS * self.boxes(self.operands)
        return slots * self.group_rows * ROW_BYTES

    def without_operands(self, tile: Tile) -> Exchange | None:
        """The same where threads load what they need."""
        return _exchange(tile, self.results, ())


def exchange_of(tile: Tile) -> Exchange | None:
    """What boxes may move for a tile's results; None where a result cannot leave in boxes."""
    slower = (*tile.row_parts[1:], *tile.column_parts[1:])
    if any(part > 1 for _, part in slower):
        return None
    results = []
    for store in tile.stores:
        array = _array(tile, store.src[0])
        if array is None or len(store.src) > 2:
            return None
        results.append(Moved(store, array))
    operands = tuple(_operands(tile))
    return _exchange(tile, results, operands) or _exchange(tile, results, ())


def _exchange(tile: Tile, results: Sequence[Moved], operands: Sequence[Moved]) -> Exchange | None:
    columns = max(each.width for each in (*results, *operands))
    if tile.columns % columns:
        return None
    found = Exchange(
        tuple(results),
        tuple(operands),
        tile.row_parts[0][0],
        tile.column_parts[0][0],
        columns,
        tile.columns // columns,
        tile.group_rows,
    )
    if found.boxes(results) > _MOST_RESULTS or found.boxes(operands) > _MOST_OPERANDS:
        return None
    return found


def _array(tile: Tile, address: Node) -> Array | None:
    """The array that an address moves through, if boxes of rows and columns of a tile lie in it."""
    row, column = tile.row_parts[0][0], tile.column_parts[0][0]
    own = [range_ for range_, _ in (*tile.row_parts, *tile.column_parts)]
    array = array_of(address, [*tile.others, *own])
    if array is None or array.dtype.itemsize not in _ITEMSIZES or not array.is_plain:
        return None
    return array if array.ranges[0] is column and row in array.ranges else None


def _operands(tile: Tile) -> list[Moved]:
    """Loads of one element for each result, from buffers that the kernel does not write."""
    written = {store.src[0].src[0] for store in tile.stores}
    known = tile.known(const_index(0), 0)
    found = []
    for node in toposort_above([store.src[1] for store in tile.stores], known):
        is_load = node.op is LOAD and len(node.src) == 1 and not node.type.shape
        if not is_load or node in known or node.src[0].src[0].op is not PARAM:
            continue
        array = None if node.src[0].src[0] in written else _array(tile, node.src[0])
        if array is not None:
            found.append(Moved(node, array))
    return found


class Staging:
    """TILE memory of an exchange, and the statements that move boxes from and to it.

    Args:
        out: Where statements go.
        exchange: What moves.
        groups: Warp groups of a block.
        memory: What another exchange's only result is gathered in, to be shared with it.
        in_turn: Do the slots of results go on in turn from one tile to the next?
    """

    def __init__(
        self,
        out: Writer,
        exchange: Exchange,
        groups: int,
        memory: Node | None = None,
        *,
        in_turn: bool = True,
    ) -> None:
        self.out = out
        self.exchange = exchange
        self.groups = groups
        self.in_turn = in_turn
        self.memory: dict[Node, Node] = {}
        for each in exchange.results:
            if memory is None:
                self._allocate(each, exchange.result_slots)
            else:
                self.memory[each.node] = memory
        for each in exchange.operands:
            self._allocate(each, _OPERAND_SLOTS)
        self.full: Node | None = None
        if exchange.operands:
            self.full = out.allocate(uint64, groups * _OPERAND_SLOTS)
        #: Parts of earlier tiles, as far as slots and phases need to know.
        self.earlier: Node = const_index(0)

    def _allocate(self, moved: Moved, slots: int) -> None:
        count = self.groups * slots * self._elements(moved)
        self.memory[moved.node] = self.out.allocate(moved.array.dtype, count, 1024)

    def _elements(self, moved: Moved) -> int:
        return self.exchange.columns * self.exchange.group_rows

    def begin_signals(self) -> None:
        """By one thread of the block, before any other goes on."""
        if self.full is not None:
            for number in range(self.groups * _OPERAND_SLOTS):
                place = INDEX(self.full, const_index(number))
                self.out.emit(SIGNAL_INIT(place, attrs=CountAttrs(1)))

    def begin_group(self) -> None:
        """By the threads of a group, before their first tile."""
        if self.full is not None and self.exchange.parts % (2 * _OPERAND_SLOTS):
            self.earlier = self.out.variable(const_index(0))

    # ---- operands

    def ask_first(self, group: Node, leads: Node, values: Mapping[Node, Node]) -> None:
        """Ask for the first parts of a tile, whose products have not begun."""
        for part in range(min(_OPERAND_SLOTS, self.exchange.parts)):
            self.ask(group, leads, values, const_index(part))

    def ask_further(
        self, group: Node, leads: Node, values: Mapping[Node, Node], part: Node
    ) -> None:
        """Ask for the part that comes where one has been read."""
        following = simplify.add(part, const_index(_OPERAND_SLOTS))
        more = simplify.less(following, const_index(self.exchange.parts))
        self.ask(group, simplify.both(leads, more), values, following)

    def ask(self, group: Node, condition: Node, values: Mapping[Node, Node], part: Node) -> None:
        """Let a copy engine bring the boxes of all operands for a part."""
        if self.full is None:
            return
        out, exchange = self.out, self.exchange
        total = sum(self._elements(each) * each.array.dtype.itemsize for each in exchange.operands)
        with out.when(condition):
            slot, _ = self._turn(group, part)
            full = out.emit(INDEX(self.full, slot))
            out.emit(SIGNAL_EXPECT(full, attrs=CountAttrs(total)))
            for each in exchange.operands:
                boxed = BOXED(each.array.param, attrs=self._boxed(each))
                for box in range(exchange.columns // each.width):
                    target = INDEX(self.memory[each.node], self._start(each, slot, box))
                    at = self._coordinates(each, group, values, part, box)
                    out.emit(COPY_BOX(target, boxed, full, *at))

    def wait(self, group: Node, part: Node) -> Node | None:
        """Wait until a part is there; gives its slot."""
        if self.full is None:
            return None
        slot, parity = self._turn(group, part)
        slot = self.out.emit(slot)
        self.out.emit(SIGNAL_WAIT(INDEX(self.full, slot), self.out.emit(parity)))
        return slot

    def end_tile(self) -> None:
        """Count the parts of a tile."""
        if self.earlier.op is not math.CONST:
            more = self.exchange.parts % (2 * _OPERAND_SLOTS)
            total = simplify.add(self.earlier, const_index(more))
            self.out.assign(self.earlier, simplify.mod(total, const_index(2 * _OPERAND_SLOTS)))

    def _turn(self, group: Node, part: Node) -> tuple[Node, Node]:
        """The slot of a part among all groups', and the parity of its phase."""
        count = simplify.add(self.earlier, part)
        own = simplify.mod(count, const_index(_OPERAND_SLOTS))
        phase = simplify.idiv(count, const_index(_OPERAND_SLOTS))
        slot = simplify.add(simplify.scale(group, _OPERAND_SLOTS), own)
        return slot, simplify.mod(phase, const_index(2))

    # ---- results

    def result_slot(self, group: Node, part: Node) -> Node:
        """The slot that a part of the results is gathered in."""
        slots = self.exchange.result_slots
        turn = simplify.mod(part, const_index(slots))
        return self.out.emit(simplify.add(simplify.scale(group, slots), turn))

    @property
    def leaving(self) -> int:
        """STORE_BOXes that need not have left before the next part is gathered.

        Of two slots in turn, the last part of a tile with an odd number used the first one's.
        """
        is_even = self.exchange.parts % 2 == 0
        return int(self.exchange.result_slots == 2 and is_even and self.in_turn)

    def store(
        self, group: Node, values: Mapping[Node, Node], part: Node, slot: Node, after: Node
    ) -> None:
        """Let the boxes of all results of a part leave."""
        for each in self.exchange.results:
            boxed = BOXED(each.array.param, attrs=self._boxed(each))
            for box in range(self.exchange.columns // each.width):
                source = INDEX(self.memory[each.node], self._start(each, slot, box))
                at = self._coordinates(each, group, values, part, box)
                self.out.emit(STORE_BOX(boxed, source, *at, after, attrs=self._policy(each)))

    def _policy(self, moved: Moved) -> StoreAttrs:
        """Results that nobody finds in the cache which all share need not drive others out."""
        is_long = bytes_of(moved.array.param) >= _LONG * self.out.target.l2_bytes
        return StoreAttrs(past_lines=ROW_BYTES if is_long else 0)

    # ---- places

    def place(self, moved: Moved, slot: Node, row: Node, column: Node) -> Node:
        """The address of an element of a part, by its row in the group and its column.

        Chunks of 16 bytes change places with the row, by eights, as copy engines have it.
        """
        dtype = moved.array.dtype
        box = simplify.idiv(column, const_index(moved.width))
        inside = simplify.mod(column, const_index(moved.width))
        chunk = const_index(CHUNK_BYTES // dtype.itemsize)
        turned = simplify.mod(row, const_index(8))
        permuted = math.XOR(simplify.idiv(inside, chunk), turned)
        offset = simplify.add(math.MUL(permuted, chunk), simplify.mod(inside, chunk))
        box_elements = moved.width * self.exchange.group_rows
        offset = simplify.add(offset, simplify.scale(box, box_elements))
        offset = simplify.add(offset, simplify.scale(row, moved.width))
        start = simplify.scale(slot, self._elements(moved))
        return INDEX(self.memory[moved.node], simplify.add(start, offset))

    def _start(self, moved: Moved, slot: Node, box: int) -> Node:
        start = simplify.scale(slot, self._elements(moved))
        return simplify.add(start, const_index(box * moved.width * self.exchange.group_rows))

    def _boxed(self, moved: Moved) -> BoxedAttrs:
        extents = {self.exchange.column: moved.width, self.exchange.row: self.exchange.group_rows}
        return moved.array.boxed(extents, ROW_BYTES)

    def _coordinates(
        self, moved: Moved, group: Node, values: Mapping[Node, Node], part: Node, box: int
    ) -> list[Node]:
        row_range, column_range = self.exchange.row, self.exchange.column
        below = simplify.scale(group, self.exchange.group_rows)
        row = simplify.add(values[row_range], below)
        column = simplify.add(values[column_range], simplify.scale(part, self.exchange.columns))
        column = simplify.add(column, const_index(box * moved.width))
        return moved.array.places(dict(values) | {row_range: row, column_range: column})


def stagings(out: Writer, tiles: Sequence[Tile], crew: Crew) -> tuple[Staging | None, ...]:
    """Room for results that leave one after the other, in the same memory; None for others.

    Args:
        out: Where statements go.
        tiles: What results are of.
        crew: Whose room it is; there may be none.
    """
    each, kinds = crew.outgoing_bytes // crew.groups, list[DType]()
    found: list[Exchange | None] = []
    for tile in tiles:
        exchange = exchange_of(tile)
        exchange = None if exchange is None else exchange.without_operands(tile)
        if exchange is not None and exchange.group_bytes <= each:
            kinds += [exchange.results[0].array.dtype]
            if kinds[-1] is kinds[0] and len(exchange.results) == 1:
                found.append(exchange)
                continue
        found.append(None)
    memory: Node | None = None
    # Slots are taken in turn: results with odd numbers of parts end where others begin.
    in_turn = all(exchange is None or exchange.parts % 2 == 0 for exchange in found)
    made: list[Staging | None] = []
    for exchange in found:
        staging = None
        if exchange is not None:
            staging = Staging(out, exchange, crew.groups, memory, in_turn=in_turn)
            memory = staging.memory[exchange.results[0].node]
        made.append(staging)
    return tuple(made)
