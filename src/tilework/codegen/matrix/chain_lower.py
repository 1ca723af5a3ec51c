"""The statements of a chain: products, what is computed from them, and products of that.

One warp group feeds a block of threads: the arrays of a tile's rows once, then those that run along
the key, block by block, through a ring of slots.  The other groups compute, each 64 rows:

    first = rows x keys, second = rows' x keys'     MATRIX, all started at once
    as soon as one is there: what stays of it       in its registers
    sum += factor x values                          MATRIX_HELD, while the next block begins

or, where the kernel folds rows, maximum and sums as `stream` has them.  What belongs to positions
along the key (folds of rows, where the tile's rows are keys) is computed once for a block and read
from TILE memory; what belongs to rows stays in registers.

Numbers: sums are added up block by block, in the order of the positions, each block in the order of
the matrix unit.  Four things are this lowering's own.  Quotients by a value of a row are products
with its reciprocal: off by one rounding of float32 more, before they are rounded to 16 bits or
summed.  Sums of a product are rounded once, and a constant of at most 1 that multiplies one goes
into what is fixed for its row or position: off by a rounding of that.  Powers come from the
machine's own instruction, as in `stream`.  Blocks that a mask hides from all rows of a tile are
left out, whatever the values there hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.records import dataclass
from tilework.codegen.analysis import substitute_ranges
from tilework.codegen.gpu.plan import GROUP_THREADS
from tilework.codegen.matrix.arrays import ROW_BYTES
from tilework.codegen.matrix.chain import GROUP_ROWS, GROUPS, depth_of, place_of
from tilework.codegen.matrix.chain_group import ChainGroup
from tilework.codegen.matrix.chain_values import ChainValues
from tilework.codegen.matrix.epilogue import Tile, outgoing_array
from tilework.codegen.matrix.writer import Writer
from tilework.codegen.plan.extents import ceil_div, product, size
from tilework.dtypes import index, uint16, uint64
from tilework.ir.build import cast, const, const_bits, const_index
from tilework.ir.node import toposort
from tilework.ir.ops import math
from tilework.ir.ops.control import BARRIER
from tilework.ir.ops.index import Unit
from tilework.ir.ops.matrix import (
    BOXED,
    COPY_BOX,
    PICK,
    REGISTERS,
    SAME_IN_WARP,
    SIGNAL_ARRIVE,
    SIGNAL_EXPECT,
    SIGNAL_INIT,
    SIGNAL_WAIT,
    CountAttrs,
    RegistersAttrs,
)
from tilework.ir.ops.memory import INDEX, STORE
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from tilework.codegen.matrix.arrays import Array
    from tilework.codegen.matrix.chain import Chain
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

_FEEDER_REGISTERS, _GROUP_REGISTERS = 40, 232
_WARP = 32
_ZERO = const_index(0)


def lower_chain(chain: Chain, target: TargetSpec) -> Node:
    """The statements of a chain."""
    out = Writer(target)
    with out.loop((1 + GROUPS) * GROUP_THREADS, Unit.LOCAL) as thread:
        ChainEmission(chain, out).write(thread)
    return out.linear()


@dataclass(frozen=True, slots=True)
class Slots:
    """TILE memory for the blocks of one array: `lines` rows of `depth` elements in each slot."""

    array: Array
    memory: Node
    lines: int

    @property
    def elements(self) -> int:
        """Elements of one slot."""
        return self.lines * depth_of(self.array)

    @property
    def bytes(self) -> int:
        """Bytes of one slot."""
        return self.elements * self.array.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Blocks:
    """Which blocks of the key a tile needs, and between which ones nothing is masked."""

    first: Node
    whole_first: Node
    whole_end: Node
    end: Node


class ChainEmission:
    """The statements of a block of threads."""

    def __init__(self, chain: Chain, out: Writer) -> None:
        self.chain = chain
        self.out = out
        self.block = chain.block
        self.rows = GROUPS * GROUP_ROWS
        self.width = ROW_BYTES // chain.held[0].dtype.itemsize
        self.row_tiles = ceil_div(size(chain.row), self.rows)
        self.tiles = self.row_tiles * product(chain.others)
        self.values = ChainValues(chain)
        self.held = {place_of(a, chain.row): self._slots(a, 1, self.rows) for a in chain.held}
        self.moving = {
            place_of(a, chain.key): self._slots(a, chain.slots, self.block) for a in chain.moving
        }
        self.full, self.free = out.allocate(uint64, chain.slots), out.allocate(uint64, chain.slots)
        self.held_full, self.held_free = out.allocate(uint64, 1), out.allocate(uint64, 1)
        count = chain.slots * self.block
        self.staged = {
            node: out.allocate(node.type.dtype, count) for node in self.values.of_positions
        }
        self.outgoing: Node | None = None
        arrays = [outgoing_array(self.results(i, [])) for i in range(len(self._stores()))]
        found = [array for array in arrays if array is not None]
        if found:
            count = GROUPS * 2 * GROUP_ROWS * ROW_BYTES // found[0].dtype.itemsize
            self.outgoing = out.allocate(found[0].dtype, count, 1024)

    def _slots(self, array: Array, slots: int, lines: int) -> Slots:
        elements = slots * lines * depth_of(array)
        return Slots(array, self.out.allocate(array.dtype, elements, 1024), lines)

    def _stores(self) -> tuple[Node, ...]:
        return self.chain.cascade.stores if self.chain.sums else ()

    def write(self, thread: Node) -> None:
        """All that one thread of the block does."""
        out, chain = self.out, self.chain
        with out.when(simplify.equal(thread, _ZERO)):
            signals = [(self.held_full, 0, 1), (self.held_free, 0, GROUPS)]
            feeders = 1 + (_WARP if self.staged else 0)
            for slot in range(chain.slots):
                signals += [(self.full, slot, feeders), (self.free, slot, GROUPS)]
            for signal, slot, count in signals:
                at = INDEX(signal, const_index(slot))
                out.emit(SIGNAL_INIT(at, attrs=CountAttrs(count)))
        out.emit(BARRIER(thread))
        with out.when(simplify.less(thread, const_index(GROUP_THREADS))):
            out.emit(REGISTERS(thread, attrs=RegistersAttrs(_FEEDER_REGISTERS, False)))
            with out.when(simplify.equal(thread, _ZERO)):
                self._feed()
            if self.staged:
                is_second = simplify.less(thread, const_index(2 * _WARP))
                is_second = simplify.both(simplify.at_least(thread, const_index(_WARP)), is_second)
                with out.when(is_second):
                    self._stage(simplify.sub(thread, const_index(_WARP)))
        with out.when(simplify.at_least(thread, const_index(GROUP_THREADS))):
            out.emit(REGISTERS(thread, attrs=RegistersAttrs(_GROUP_REGISTERS, True)))
            group = SAME_IN_WARP(simplify.idiv(thread, const_index(GROUP_THREADS)))
            member = simplify.mod(thread, const_index(GROUP_THREADS))
            group = out.emit(simplify.sub(group, const_index(1)))
            ChainGroup(self, group, out.emit(member)).run()

    # ---- tiles and blocks

    def tile(self, task: Node) -> tuple[dict[Node, Node], Node]:
        """The values of the ranges that are not tiled, and a tile's first row.

        Where a mask lets later rows see more, the last ones come first.
        """
        count = product(self.chain.others)
        turn = simplify.idiv(task, const_index(count))
        rest = simplify.mod(task, const_index(count))
        values: dict[Node, Node] = {}
        for range_ in reversed(self.chain.others):
            values[range_] = simplify.mod(rest, const_index(size(range_)))
            rest = simplify.idiv(rest, const_index(size(range_)))
        if any(limit is not None and limit[0] > 0 for limit in self._limits()):
            turn = simplify.sub(const_index(self.row_tiles - 1), turn)
        return values, self.out.emit(simplify.scale(turn, self.rows))

    def _limits(self) -> list[tuple[int, int, int] | None]:
        mask = self.chain.mask
        return [] if mask is None else [self._limit(c) for c in simplify.conjuncts(mask.src[0])]

    def _limit(self, condition: Node) -> tuple[int, int, int] | None:
        """(1, step, bound) of: key < step * row + bound; (-1, step, bound) of: key >= that."""
        if condition.op not in (math.LT, math.LE):
            return None
        may_equal = condition.op is math.LE
        difference = simplify.sub(condition.src[0], condition.src[1])
        start, total = simplify.terms(difference)
        terms = dict(total)
        sign, step = terms.pop(self.chain.key, 0), terms.pop(self.chain.row, 0)
        if terms or sign not in (-1, 1) or -sign * step not in (0, 1):
            return None
        if sign > 0:
            return 1, -step, -start + may_equal
        return -1, step, start + 1 - may_equal

    def blocks(self, row: Node) -> Blocks:
        """The blocks for the tile that starts at a row."""
        length, block = size(self.chain.key), self.block
        count = ceil_div(length, block)
        first, end = _ZERO, const_index(count)
        whole_first, whole_end = _ZERO, const_index(length // block)
        for limit in self._limits():
            if limit is None:
                whole_end = _ZERO
                continue
            sign, step, bound = limit
            low = simplify.add(simplify.scale(row, step), const_index(bound))
            high = simplify.add(low, const_index(step * (self.rows - 1)))
            if sign > 0:
                end = simplify.minimum(end, self._up_to(high))
                whole_end = simplify.minimum(whole_end, self._down_to(low))
            else:
                first = simplify.maximum(first, self._down_to(low))
                whole_first = simplify.maximum(whole_first, self._up_to(high))
        if self.chain.running is not None:
            # One block at least, so that a row that nothing takes part in gets its NaN.
            first = simplify.minimum(first, const_index(count - 1))
            end = simplify.maximum(end, simplify.add(first, const_index(1)))
        emit = self.out.emit
        first = emit(first)
        return Blocks(first, emit(whole_first), emit(whole_end), emit(simplify.maximum(first, end)))

    def _up_to(self, limit: Node) -> Node:
        """The blocks that hold the positions below a limit."""
        positive = simplify.maximum(limit, _ZERO)
        rounded = simplify.add(positive, const_index(self.block - 1))
        return simplify.idiv(rounded, const_index(self.block))

    def _down_to(self, limit: Node) -> Node:
        """The block in which a position is."""
        return simplify.idiv(simplify.maximum(limit, _ZERO), const_index(self.block))

    def counter(self) -> Node:
        """A variable that counts blocks, as far as slots and phases need to know."""
        return self.out.variable(const(0, uint16))

    def count(self, counter: Node, more: Node) -> None:
        """Count more blocks."""
        total = simplify.add(cast(counter, index), more)
        period = const_index(2 * self.chain.slots)
        self.out.assign(counter, cast(simplify.mod(total, period), uint16))

    def place(self, turn: Node) -> tuple[Node, Node]:
        """The slot of a block, by how many were before it, and the parity of its phase."""
        slots = const_index(self.chain.slots)
        parity = self.out.emit(simplify.mod(simplify.idiv(turn, slots), const_index(2)))
        return self.out.emit(simplify.mod(turn, slots)), parity

    # ---- the feeder

    def _feed(self) -> None:
        out, chain = self.out, self.chain
        turn, counted = out.variable(const_index(1)), self.counter()
        with out.loop(self.tiles, Unit.THREAD) as task:
            others, row = self.tile(task)
            wait = out.emit(SIGNAL_WAIT(INDEX(self.held_free, _ZERO), turn))
            out.assign(turn, simplify.sub(const_index(1), turn))
            full = INDEX(self.held_full, _ZERO)
            self._fill(list(self.held.values()), _ZERO, full, wait, others | {chain.row: row})
            blocks = self.blocks(row)
            count = out.emit(simplify.sub(blocks.end, blocks.first))
            with out.loop(count) as block:
                key = simplify.scale(simplify.add(blocks.first, block), self.block)
                slot, parity = self.place(simplify.add(cast(counted, index), block))
                waits = out.emit(simplify.sub(const_index(1), parity))
                wait = out.emit(SIGNAL_WAIT(INDEX(self.free, slot), waits))
                full = out.emit(INDEX(self.full, slot))
                self._fill(list(self.moving.values()), slot, full, wait, others | {chain.key: key})
            self.count(counted, count)

    def _fill(
        self, arrays: list[Slots], slot: Node, full: Node, wait: Node, at: dict[Node, Node]
    ) -> None:
        """Fill a slot of each array: boxes of 64 columns and as many lines as the slot has."""
        total = sum(each.bytes for each in arrays)
        self.out.emit(SIGNAL_EXPECT(full, wait, attrs=CountAttrs(total)))
        for each in arrays:
            array = each.array
            lines = next(r for r in array.ranges if r in (self.chain.row, self.chain.key))
            attrs = array.boxed({array.ranges[0]: self.width, lines: each.lines}, ROW_BYTES)
            for part in range(depth_of(array) // self.width):
                place = simplify.add(
                    simplify.scale(slot, each.elements),
                    const_index(part * self.width * each.lines),
                )
                start = const_index(part * self.width)
                coordinates = [start, *(at[range_] for range_ in array.ranges[1:])]
                boxed = BOXED(array.param, attrs=attrs)
                self.out.emit(COPY_BOX(INDEX(each.memory, place), boxed, full, *coordinates))

    def _stage(self, lane: Node) -> None:
        """Compute what is fixed for the positions of all blocks, by the threads of one warp."""
        out, counted = self.out, self.counter()
        with out.loop(self.tiles, Unit.THREAD) as task:
            others, row = self.tile(task)
            blocks = self.blocks(row)
            count = out.emit(simplify.sub(blocks.end, blocks.first))
            with out.loop(count) as block:
                key = out.emit(simplify.scale(simplify.add(blocks.first, block), self.block))
                slot, parity = self.place(simplify.add(cast(counted, index), block))
                waits = out.emit(simplify.sub(const_index(1), parity))
                wait = out.emit(SIGNAL_WAIT(INDEX(self.free, slot), waits))
                for first in range(0, self.block, _WARP):
                    inside = simplify.add(lane, const_index(first))
                    self._stage_one(others, simplify.add(key, inside), slot, inside)
                out.emit(SIGNAL_ARRIVE(INDEX(self.full, slot), wait))
            self.count(counted, count)

    def _stage_one(
        self, others: dict[Node, Node], position: Node, slot: Node, inside: Node
    ) -> None:
        """What is fixed for one position; 0 for those after the end."""
        out, length = self.out, size(self.chain.key)
        position = out.emit(position)
        at = others | {self.chain.key: position}
        if length % self.block:
            at[self.chain.key] = simplify.minimum(position, const_index(length - 1))
        memo: dict[Node, Node] = {}
        for node, memory in self.staged.items():
            value = substitute_ranges(node, at, {}, memo)
            if length % self.block:
                nothing = const_bits(0, value.type.dtype)
                value = math.WHERE(simplify.less(position, const_index(length)), value, nothing)
            place = simplify.add(simplify.scale(slot, self.block), inside)
            out.emit(STORE(INDEX(memory, place), value))

    # ---- results

    def results(self, number: int, sums: list[Node]) -> Tile:
        """What becomes of the sums in one of the stores."""
        chain = self.chain
        store = self._stores()[number]
        inside = [i for i, each in enumerate(chain.sums) if each.node in toposort(store)]
        first = chain.sums[inside[0]]

        def known(position: Node, half: int) -> dict[Node, Node]:
            return {chain.sums[i].node: PICK(sums[i], position) for i in inside if sums}

        return Tile(
            (store,),
            ((chain.row, self.rows),),
            ((first.column, first.columns),),
            chain.others,
            GROUP_ROWS,
            known,
        )
