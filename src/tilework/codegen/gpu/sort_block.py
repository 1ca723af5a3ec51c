"""Rows that the threads of one block sort: the pieces that longer rows are sorted by as well.

Each thread has some elements of a tile, side by side with those of its warp's other threads, so
that warps hold parts of the tile one after the other.  RANK_IN_WARP says how many elements of a
digit's value stand before each in its warp; sums over the warps, then over the values, make places
of these.  Equal elements keep their order in every step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.records import dataclass
from tilework.codegen.analysis import substitute_ranges
from tilework.codegen.passes.decompose import decompose
from tilework.codegen.plan.extents import ceil_div
from tilework.codegen.sort.keys import UNSIGNED, key_bits, sorting_key
from tilework.codegen.sort.lower import RANK_LIMIT
from tilework.codegen.sort.statements import Statements
from tilework.dtypes import index, int32, uint32
from tilework.ir.build import bitcast, cast, const_bits, const_index
from tilework.ir.node import toposort
from tilework.ir.ops import math
from tilework.ir.ops.control import BARRIER, SCAN_THREADS
from tilework.ir.ops.index import RANGE, Unit
from tilework.ir.ops.memory import INDEX, LOAD, STORE
from tilework.ir.ops.sort import RANK_IN_WARP, RankAttrs
from tilework.ir.ops.tensor import Fold, ScanAttrs
from tilework.ir.symbolic import simplify
from tilework.ir.symbolic.bounds import bounds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.dtypes import DType
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

WARP = 32
#: Bits of a digit, and elements of one thread, beyond which registers do not hold them.
DIGIT, MOST_ITEMS = 8, 16
_POSITION_BYTES, _COUNTER_BYTES = 4, 4
SUM = ScanAttrs(Fold.ADD, 0, exclusive=True)


@dataclass(frozen=True, slots=True)
class Tile:
    """How a block shares a tile: its threads, the elements of each, the bits of a digit."""

    threads: int
    items: int
    digit: int = DIGIT

    @property
    def size(self) -> int:
        """Elements of a tile."""
        return self.threads * self.items

    @property
    def values(self) -> int:
        """Values of a digit; a thread counts one of them."""
        return 1 << self.digit

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return self.threads // WARP

    def shared_bytes(self, element_bytes: int) -> int:
        """Shared memory for a tile of elements with their positions."""
        counters = (self.warps + 2) * self.values * _COUNTER_BYTES
        return self.size * (element_bytes + _POSITION_BYTES) + counters


class Block:
    """The threads of one block, and the counters that they share."""

    def __init__(self, out: Statements, thread: Node, tile: Tile) -> None:
        self.out, self.thread, self.tile = out, thread, tile
        self.warp = out.emit(math.CDIV(thread, const_index(WARP)))
        self.lane = out.emit(math.CMOD(thread, const_index(WARP)))
        self.barriers = 0
        self.starts = out.allocate(int32, tile.values)
        self.counters = self.starts  # until ranks need more
        self.has_value = out.emit(simplify.less(thread, const_index(tile.values)))

    def barrier(self) -> None:
        """Wait for all threads."""
        self.barriers += 1
        self.out.emit(BARRIER(self.thread, const_index(self.barriers)))

    def own(self) -> list[Node]:
        """Where in the tile the elements of a thread stand, in order."""
        first = simplify.scale(self.warp, WARP * self.tile.items)
        return [
            self.out.emit(simplify.plus(simplify.add(first, self.lane), WARP * item))
            for item in range(self.tile.items)
        ]

    def shared_out(self) -> list[Node]:
        """Places of the tile for a thread, side by side with those of the next threads."""
        threads = self.tile.threads
        return [
            self.out.emit(simplify.plus(self.thread, threads * item))
            for item in range(self.tile.items)
        ]

    def digit_of(self, key: Node, shift: Node) -> Node:
        """A digit of a key, in 32 bits."""
        mask = const_bits(self.tile.values - 1, key.dtype)
        return self.out.emit(cast(math.AND(math.SHR(key, shift), mask), uint32))

    def rank(self, digits: Sequence[Node]) -> list[Node]:
        """Count the digits; gives each element's rank among its value's in the warp.

        Afterwards `counters` holds how many of a value the warps before each have.
        """
        out, tile = self.out, self.tile
        counters = tile.warps * tile.values
        self.counters = out.allocate(int32, counters)
        with out.loop(ceil_div(counters, tile.threads)) as number:
            at = out.emit(simplify.add(simplify.scale(number, tile.threads), self.thread))
            inside = simplify.less(at, const_index(counters))
            self.store(self.counters, at, const_bits(0, int32), inside)
        self.barrier()
        ranks = [
            out.emit(RANK_IN_WARP(self.counter(digit), digit, attrs=RankAttrs(tile.digit)))
            for digit in digits
        ]
        self.barrier()
        return ranks

    def counter(self, digit: Node) -> Node:
        """The address of this warp's counter of a value."""
        at = simplify.add(simplify.scale(self.warp, self.tile.values), cast(digit, index))
        return self.out.emit(INDEX(self.counters, at))

    def total(self) -> Node:
        """How many of this thread's value all warps have; 0 for threads without a value.

        Counters turn into how many of a value the warps before have.
        """
        out, tile = self.out, self.tile
        total = out.variable(const_bits(0, int32))
        with out.when(self.has_value), out.loop(tile.warps) as warp:
            at = out.emit(simplify.add(simplify.scale(warp, tile.values), self.thread))
            count = out.load(self.counters, at)
            out.store(self.counters, at, total)
            out.assign(total, math.ADD(total, count))
        return total

    def sum_before(self, value: Node) -> Node:
        """The sum of what the threads before have."""
        return self.out.emit(SCAN_THREADS(value, self.thread, attrs=SUM))

    def places(self, digits: Sequence[Node], ranks: Sequence[Node]) -> list[Node]:
        """Where in the sorted tile the elements go, once `starts` says where values begin."""
        out = self.out
        found = []
        for digit, rank in zip(digits, ranks, strict=True):
            start = out.load(self.starts, cast(digit, index))
            before = out.emit(LOAD(self.counter(digit)))
            found.append(out.emit(cast(math.ADD(math.ADD(start, before), rank), index)))
        return found

    def store(self, buffer: Node, at: Node, value: Node, gate: Node | None = None) -> None:
        """Write where a condition holds."""
        sources = (INDEX(buffer, at), value) if gate is None else (INDEX(buffer, at), value, gate)
        self.out.emit(STORE(*sources))

    def load(self, buffer: Node, at: Node, gate: Node) -> Node:
        """The element there; 0 where the condition does not hold."""
        return self.out.emit(LOAD(INDEX(buffer, at), gate))


def tile_for(dtype: DType, limit: int, target: TargetSpec) -> Tile | None:
    """The tile that holds a whole row; None where no block holds so long a one."""
    most = target.limits.max_workgroup_threads
    threads = 1 << DIGIT
    while threads < most and threads * MOST_ITEMS // 2 < limit:
        threads *= 2
    tile = Tile(threads, max(ceil_div(limit, threads), 1))
    fits = tile.shared_bytes(dtype.itemsize) <= target.limits.shared_memory_bytes
    return tile if threads <= most and tile.items <= MOST_ITEMS and fits else None


def tile_of_row(sink: Node, target: TargetSpec) -> Tile | None:
    """The tile of a kernel of SORT_ROWS; None for rows that are too short or too long for it."""
    (effect,) = sink.src
    limit = bounds(effect.src[2])[1]
    return None if limit <= RANK_LIMIT else tile_for(effect.src[1].type.dtype, limit, target)


def at_row(sink: Node, row: Node, target: TargetSpec) -> Node:
    """The effect of a kernel, for one of the rows that its ranges count."""
    values: dict[Node, Node] = {}
    ranges = sorted(
        (node for node in toposort(sink) if node.op is RANGE), key=lambda r: int(r.attrs.number)
    )
    rest = row
    for range_ in reversed(ranges):
        values[range_] = simplify.mod(rest, range_.src[0]) if range_ is not ranges[0] else rest
        rest = simplify.idiv(rest, range_.src[0])
    return decompose(substitute_ranges(sink, values, {}), target).src[0]


def rows_of(sink: Node) -> Node:
    """How many rows the ranges of a kernel count."""
    total = const_index(1)
    for node in toposort(sink):
        if node.op is RANGE:
            total = simplify.mul(total, node.src[0])
    return total


def lower_row_sort(sink: Node, target: TargetSpec, tile: Tile) -> tuple[Node, int]:
    """The LINEAR of a kernel of SORT_ROWS whose rows fit a tile, and its shared memory."""
    out = Statements()
    with out.loop(rows_of(sink), Unit.THREAD) as row, out.loop(tile.threads, Unit.LOCAL) as thread:
        _RowSort(out, at_row(sink, row, target), Block(out, thread, tile)).write()
    return out.linear(), out.scratch_bytes


class _RowSort:
    """One row in one block."""

    def __init__(self, out: Statements, effect: Node, block: Block) -> None:
        self.out, self.block, self.attrs = out, block, effect.attrs
        written, read, size = effect.src
        self.target, self.source = written.src[0], read.src[0]
        self.target_start, self.source_start = out.emit(written.src[1]), out.emit(read.src[1])
        self.size = out.emit(size)
        dtype = read.type.dtype
        self.bits, self.kind = key_bits(dtype), UNSIGNED[key_bits(dtype)]
        self.elements = out.allocate(dtype, block.tile.size)
        self.positions = out.allocate(uint32, block.tile.size)

    def write(self) -> None:
        out, block = self.out, self.block
        for at in block.shared_out():
            inside = out.emit(simplify.less(at, self.size))
            element = block.load(self.source, simplify.add(self.source_start, at), inside)
            out.store(self.elements, at, element)
            out.store(self.positions, at, cast(bitcast_index(at), uint32))
        with out.loop(self.bits // block.tile.digit) as number:
            shift = simplify.scale(number, block.tile.digit)
            block.barrier()
            self._pass(out.emit(cast(bitcast_index(shift), self.kind)))
        block.barrier()
        for rank in block.shared_out():
            self._put(rank)

    def _pass(self, shift: Node) -> None:
        out, block = self.out, self.block
        last = const_bits(block.tile.values - 1, uint32)
        elements, positions, digits = [], [], []
        for at in block.own():
            elements.append(out.load(self.elements, at))
            positions.append(out.load(self.positions, at))
            key = sorting_key(elements[-1], descending=self.attrs.descending)
            # What is not there stands behind the row, and stays there.
            inside = simplify.less(cast(positions[-1], index), self.size)
            digits.append(out.emit(math.WHERE(inside, block.digit_of(key, shift), last)))
        ranks = block.rank(digits)
        total = block.total()
        start = block.sum_before(total)
        block.store(block.starts, block.thread, start, block.has_value)
        block.barrier()
        for element, position, place in zip(
            elements, positions, block.places(digits, ranks), strict=True
        ):
            out.store(self.elements, place, element)
            out.store(self.positions, place, position)

    def _put(self, rank: Node) -> None:
        """Write what has a rank, if it is wanted."""
        out, attrs = self.out, self.attrs
        wanted, place = simplify.less(rank, self.size), rank
        if attrs.count >= 0:
            place = simplify.plus(rank, -attrs.first)
            wanted = wanted_of(wanted, place, attrs.count)
        buffer = self.elements if attrs.values else self.positions
        found = out.load(buffer, rank)
        value = found if attrs.values else cast(found, index)
        self.block.store(self.target, simplify.add(self.target_start, place), value, wanted)


def wanted_of(inside: Node, place: Node, count: int) -> Node:
    """Whether a place that is inside of the row is among those that are written."""
    wanted = simplify.both(inside, simplify.less(place, const_index(count)))
    return simplify.both(wanted, simplify.less(const_index(-1), place))


def bitcast_index(node: Node) -> Node:
    """An index, which is not negative, as an unsigned integer of 64 bits."""
    return bitcast(node, UNSIGNED[64])
