"""Rows that are longer than a block of threads holds: three kernels for each digit of their keys.

A radix sort from the least significant digit on.  Blocks count the values of a digit in tiles of
the row; sums of the counts say where the elements of each tile and value go; then each block sorts
its tile by the digit in shared memory, so that what goes side by side is written side by side.
Where only elements are wanted these are moved as they are, and keys are made of them in each pass.
Else words are moved: keys of 32 or 64 bits, with the positions behind them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.records import replace
from tilework.codegen.gpu.copies import with_slots
from tilework.codegen.gpu.sort_block import (
    MOST_ITEMS,
    SUM,
    Block,
    Tile,
    at_row,
    rows_of,
    tile_of_row,
    wanted_of,
)
from tilework.codegen.passes.decompose import decompose
from tilework.codegen.plan.extents import ceil_div
from tilework.codegen.plan.prepack import Pack, Prepacked
from tilework.codegen.sort.keys import UNSIGNED, key_bits, sorting_key
from tilework.codegen.sort.lower import RANK_LIMIT
from tilework.codegen.sort.statements import Statements
from tilework.dtypes import index, int32, uint32
from tilework.ir.build import bitcast, cast, const_bits, const_index
from tilework.ir.node import toposort
from tilework.ir.ops import math
from tilework.ir.ops.control import FOLD_THREADS, SCAN_THREADS, FoldAttrs
from tilework.ir.ops.index import RANGE, RangeAttrs, Unit
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.sort import (
    COUNT_UP,
    SORT_COUNT,
    SORT_MOVE,
    SORT_OFFSETS,
    SortPassAttrs,
)
from tilework.ir.ops.tensor import Fold
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from tilework.dtypes import DType
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

#: Threads of a block that moves a tile.
_THREADS = 512
#: Blocks of a multiprocessor that should find shared memory.
_RESIDENT = 2
#: The longest rows: places are integers of 32 bits.
_LONGEST = (1 << 31) - (1 << 16)


def sort_in_passes(sink: Node, target: TargetSpec, tile: Tile | None = None) -> Prepacked | None:
    """The kernels that sort long rows; None for rows that one kernel sorts.

    Args:
        sink: A kernel of SORT_ROWS.
        target: A machine with blocks of threads.
        tile: What a block takes at a time; None for what suits the machine.
    """
    (effect,) = sink.src
    size, rows = simplify.value_of(effect.src[2]), simplify.value_of(rows_of(sink))
    if size is None or rows is None or not RANK_LIMIT < size <= _LONGEST:
        return None
    if tile is None:
        if tile_of_row(sink, target) is not None:
            return None
        tile = _tile(effect.src[1].type.dtype, target)
    return _Passes(effect, size, rows, tile).kernels()


def _tile(dtype: DType, target: TargetSpec) -> Tile:
    tile = Tile(min(_THREADS, target.limits.max_workgroup_threads), MOST_ITEMS)
    limit = target.limits.shared_memory_bytes // _RESIDENT
    while tile.items > 1 and tile.shared_bytes(max(dtype.itemsize, 4)) > limit:
        tile = replace(tile, items=tile.items // 2)
    return tile


class _Passes:
    """The kernels of one sort, which name buffers by slots of the last one."""

    def __init__(self, effect: Node, size: int, rows: int, tile: Tile) -> None:
        self.effect, self.size, self.rows, self.tile = effect, size, rows, tile
        self.how = effect.attrs
        target, source = (address.src[0] for address in effect.src[:2])
        self.target, self.source = target, source
        self.table: Node | None = None
        self.next_slot = max(target.attrs.slot, source.attrs.slot) + 1
        self.dtype: DType = source.type.dtype
        self.digits = key_bits(self.dtype) // tile.digit
        self.tiles = ceil_div(size, tile.size)
        self.packs: list[Pack] = []
        self._length = const_index(size)
        self.row = RANGE(const_index(rows), attrs=RangeAttrs(0))
        self.moves_elements = self.how.values
        self.line = (self.tiles + 1) * tile.values

    def kernels(self) -> Prepacked:
        """The last pass, after all that come before."""
        # Elements may also lie where the result will: the last pass reads from elsewhere, as the
        # number of passes is even where there are several.
        spare = self.target if self.how.values and self.how.count < 0 else None
        others: list[Node] = []
        source = self.source
        for number in range(self.digits - 1):
            attrs, table = self._attrs(number), self._count(number, source)
            if number == 1 and spare is not None:
                others.append(spare)
            is_new = number < 2 and len(others) <= number
            if is_new:
                others.append(self._memory(*self._words()))
            target = others[number % 2]
            operands = (self._at(table, self.line), self._at(source, self.size), self._length)
            move = SORT_MOVE(self._at(target, self.size), *operands, attrs=attrs)
            self._add(move, target if is_new else None)
            source = target
        number = self.digits - 1
        table = self._count(number, source)
        operands = (self._at(table, self.line), self._at(source, self.size), self._length)
        length = self.how.count if self.how.count >= 0 else self.size
        end = self._at(self.target, length)
        last = SORT_MOVE(end, *operands, attrs=self._attrs(number))
        return Prepacked(SINK(last), tuple(self.packs))

    def _count(self, number: int, source: Node) -> Node:
        """Add the kernels that find out where a pass puts its elements; gives their table."""
        is_new = self.table is None
        table = self._memory(self.rows * self.line, int32) if self.table is None else self.table
        self.table, attrs = table, self._attrs(number)
        line, read = self._at(table, self.line), self._at(source, self.size)
        self._add(SORT_COUNT(line, read, self._length, attrs=attrs), table if is_new else None)
        self._add(SORT_OFFSETS(line, self._length, attrs=attrs), None)
        return table

    def _attrs(self, number: int) -> SortPassAttrs:
        is_last = number == self.digits - 1
        reads = "elements" if self.moves_elements or number == 0 else "words"
        writes = "elements" if self.moves_elements else "positions" if is_last else "words"
        first, count = (self.how.first, self.how.count) if is_last else (0, -1)
        return SortPassAttrs(
            self.how.descending, self.tile.digit, number, self.tile.threads, self.tile.items,
            reads, writes, self.rows * self.size, first, count,
        )  # fmt: skip

    def _words(self) -> tuple[int, DType]:
        """How much memory a pass writes."""
        total = self.rows * self.size
        if self.moves_elements:
            return total, self.dtype
        return 2 * total, word_kind(self.dtype)

    def _memory(self, count: int, dtype: DType) -> Node:
        """Memory of the kernel that is added next."""
        return PARAM(attrs=ParamAttrs(self.next_slot, (count,), dtype))

    def _at(self, buffer: Node, length: int) -> Node:
        return INDEX(buffer, simplify.scale(self.row, length))

    def _add(self, effect: Node, own: Node | None) -> None:
        """Add a kernel; `own` is the memory that it is the first to write."""
        sink = SINK(effect)
        slot, size_bytes, before = -1, 0, 0
        if own is not None:
            slot, before = own.attrs.slot, 1
            size_bytes = own.attrs.shape[0] * own.type.dtype.itemsize
            self.next_slot += 1
        used = sorted({node.attrs.slot for node in toposort(sink) if node.op is PARAM} - {slot})
        slots = {slot: 0} | {other: place + before for place, other in enumerate(used)}
        self.packs.append(Pack(with_slots(sink, slots), tuple(used), slot, size_bytes, False, 0.0))


def word_kind(dtype: DType) -> DType:
    """The dtype of the keys that are moved with their positions."""
    return UNSIGNED[max(key_bits(dtype), 32)]


# ---- the kernels


def lower_sort_pass(sink: Node, target: TargetSpec) -> tuple[Node, int, int]:
    """The LINEAR of a kernel of one pass, its shared memory, and the threads of its blocks."""
    (effect,) = sink.src
    attrs: SortPassAttrs = effect.attrs
    tile = Tile(attrs.threads, attrs.items, attrs.digit)
    tiles = ceil_div(simplify.value_of(effect.src[-1]) or 1, tile.size)
    out = Statements()
    is_sum = effect.op is SORT_OFFSETS
    each = tile.values if is_sum else tiles
    threads = tile.threads
    with out.loop(simplify.scale(rows_of(sink), each), Unit.THREAD) as task:
        row = simplify.idiv(task, const_index(each))
        part = simplify.mod(task, const_index(each))
        found = at_row(sink, row, target)
        part = decompose(part, target)
        with out.loop(threads, Unit.LOCAL) as thread:
            if is_sum:
                _sum_line(out, found, thread, part, tiles, tile)
            elif effect.op is SORT_COUNT:
                _Count(out, found, Block(out, thread, tile), part, tiles).write()
            else:
                _Move(out, found, Block(out, thread, tile), part, tiles).write()
    return out.linear(), out.scratch_bytes, threads


def _sum_line(
    out: Statements, effect: Node, thread: Node, value: Node, tiles: int, tile: Tile
) -> None:
    """Sums before each tile, for one value of the digit; their total stands in the last line."""
    table, start = effect.src[0].src[0], out.emit(effect.src[0].src[1])
    line = out.emit(simplify.add(start, simplify.scale(value, tiles)))
    before = out.variable(const_bits(0, int32))
    with out.loop(ceil_div(tiles, tile.threads)) as number:
        at = out.emit(simplify.add(simplify.scale(number, tile.threads), thread))
        inside = out.emit(simplify.less(at, const_index(tiles)))
        place = out.emit(simplify.add(line, at))
        count = out.emit(LOAD(INDEX(table, place), inside))
        own = math.ADD(SCAN_THREADS(count, thread, attrs=SUM), before)
        out.emit(STORE(INDEX(table, place), own, inside))
        total = out.emit(FOLD_THREADS(count, thread, attrs=FoldAttrs(Fold.ADD)))
        out.assign(before, math.ADD(before, total))
    end = simplify.add(start, simplify.plus(value, tiles * tile.values))
    out.emit(STORE(INDEX(table, end), before, simplify.equal(thread, const_index(0))))


class _Pass:
    """What the blocks that count and those that move share: the elements of a tile."""

    def __init__(self, out: Statements, effect: Node, block: Block, part: Node, tiles: int) -> None:
        self.out, self.block, self.tiles = out, block, tiles
        self.attrs: SortPassAttrs = effect.attrs
        *_, table, read, size = effect.src
        self.part = out.emit(part)
        self.table, self.table_start = table.src[0], out.emit(table.src[1])
        self.source, self.source_start = read.src[0], out.emit(read.src[1])
        self.first = out.emit(simplify.scale(self.part, block.tile.size))
        self.size = size
        self.dtype: DType = read.type.dtype
        self.is_word = self.attrs.reads == "words"
        self.left = out.emit(simplify.sub(size, self.first))

    def key(self, element: Node) -> Node:
        """The key of what is read: words are keys."""
        if self.is_word:
            return element
        return sorting_key(element, descending=self.attrs.descending)

    def digit(self, key: Node) -> Node:
        """The digit of this pass."""
        return self.block.digit_of(key, const_bits(self.attrs.number * self.attrs.digit, key.dtype))

    def read(self, places: list[Node]) -> tuple[list[Node], list[Node], list[Node]]:
        """The elements of a thread, whether they are there, and their digits."""
        last = const_bits(self.block.tile.values - 1, uint32)
        inside = [self.out.emit(simplify.less(place, self.left)) for place in places]
        base = self.out.emit(simplify.add(self.source_start, self.first))
        elements = [
            self.block.load(self.source, simplify.add(base, place), gate)
            for place, gate in zip(places, inside, strict=True)
        ]
        # What is not there stands behind the row, and gets the greatest digit: it stays there.
        digits = [
            self.out.emit(math.WHERE(gate, self.digit(self.key(element)), last))
            for element, gate in zip(elements, inside, strict=True)
        ]
        return elements, inside, digits


class _Count(_Pass):
    """Count the values of a digit in one tile."""

    def write(self) -> None:
        out, block = self.out, self.block
        _, _, digits = self.read(block.shared_out())
        block.store(block.starts, block.thread, const_bits(0, int32), block.has_value)
        block.barrier()
        for digit in digits:
            out.emit(COUNT_UP(INDEX(block.starts, cast(digit, index))))
        block.barrier()
        total = block.load(block.starts, block.thread, block.has_value)
        line = simplify.add(simplify.scale(block.thread, self.tiles), self.part)
        block.store(self.table, simplify.add(self.table_start, line), total, block.has_value)


class _Move(_Pass):
    """Move the elements of one tile to where their values of a digit begin."""

    def __init__(self, out: Statements, effect: Node, block: Block, part: Node, tiles: int) -> None:
        super().__init__(out, effect, block, part, tiles)
        written = effect.src[0]
        self.target, self.target_start = written.src[0], out.emit(written.src[1])
        self.has_positions = self.attrs.writes != "elements"
        #: What is moved through shared memory: elements, or keys.
        self.kind = word_kind(self.dtype) if self.has_positions else self.dtype
        self.moved = out.allocate(self.kind, block.tile.size)
        if self.has_positions:
            self.positions = out.allocate(uint32, block.tile.size)
        #: Where the values of a digit begin in the row, less where they begin in the tile.
        self.bases = out.allocate(int32, block.tile.values)

    def write(self) -> None:
        out, block = self.out, self.block
        places = block.own()
        elements, inside, digits = self.read(places)
        positions = self._positions(places, inside) if self.has_positions else []
        ranks = block.rank(digits)
        self._start()
        block.barrier()
        for number, place in enumerate(block.places(digits, ranks)):
            out.store(self.moved, place, self._word(elements[number]))
            if self.has_positions:
                out.store(self.positions, place, positions[number])
        block.barrier()
        for at in block.shared_out():
            self._put(at)

    def _positions(self, places: list[Node], inside: list[Node]) -> list[Node]:
        """The positions of a thread's elements."""
        out = self.out
        if not self.is_word:
            own = [out.emit(simplify.add(self.first, place)) for place in places]
            return [out.emit(cast(bitcast(place, UNSIGNED[64]), uint32)) for place in own]
        base = out.emit(
            simplify.plus(simplify.add(self.source_start, self.first), self.attrs.words)
        )
        return [
            out.emit(cast(self.block.load(self.source, simplify.add(base, place), gate), uint32))
            for place, gate in zip(places, inside, strict=True)
        ]

    def _word(self, element: Node) -> Node:
        return cast(self.key(element), self.kind) if self.has_positions else element

    def _start(self) -> None:
        """Find where the values of the digit begin, in the tile and in the row."""
        out, block = self.out, self.block
        total = block.total()
        start = block.sum_before(total)
        end = simplify.plus(block.thread, self.tiles * block.tile.values)
        in_row = block.load(self.table, simplify.add(self.table_start, end), block.has_value)
        below = block.sum_before(in_row)
        line = simplify.add(simplify.scale(block.thread, self.tiles), self.part)
        before = block.load(self.table, simplify.add(self.table_start, line), block.has_value)
        base = out.emit(math.SUB(math.ADD(below, before), start))
        block.store(block.starts, block.thread, start, block.has_value)
        block.store(self.bases, block.thread, base, block.has_value)

    def _put(self, at: Node) -> None:
        """Write what stands at a place of the sorted tile."""
        out, attrs = self.out, self.attrs
        found = out.load(self.moved, at)
        is_key = self.has_positions
        key = found if is_key else sorting_key(found, descending=attrs.descending)
        base = out.load(self.bases, cast(self.digit(key), index))
        rank = out.emit(math.ADD(cast(base, index), at))
        wanted = out.emit(simplify.less(at, self.left))
        if attrs.count >= 0:
            rank = out.emit(math.ADD(rank, const_index(-attrs.first)))
            wanted = out.emit(wanted_of(wanted, rank, attrs.count))
        place = out.emit(math.ADD(self.target_start, rank))
        if not self.has_positions:
            self.block.store(self.target, place, found, wanted)
            return
        position = out.load(self.positions, at)
        if attrs.writes == "positions":
            self.block.store(self.target, place, cast(position, index), wanted)
            return
        self.block.store(self.target, place, found, wanted)
        behind = math.ADD(place, const_index(attrs.words))
        self.block.store(self.target, behind, cast(position, self.kind), wanted)
