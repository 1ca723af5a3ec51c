"""Slots that a copy engine fills for warp groups, which multiply as they read them.

The first warp group of a block feeds the others: one of its threads asks for the arrays of a tile's
rows once, then for those that run along the key, block by block, and a signal of each slot tells
when they are there; another one says that its slot may be filled again.  A second warp computes
what belongs to positions.  Registers of the feeding group go to the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tilework.codegen.gpu.plan import GROUP_THREADS
from tilework.codegen.matrix.arrays import ROW_BYTES
from tilework.codegen.matrix.feed import Feed, Slots
from tilework.dtypes import index, uint16, uint64
from tilework.ir.build import cast, const, const_index
from tilework.ir.ops.control import BARRIER
from tilework.ir.ops.index import Unit
from tilework.ir.ops.matrix import (
    BOXED,
    COPY_BOX,
    GROUP_BARRIER,
    MATRIX,
    MATRIX_BEGIN,
    MATRIX_COMMIT,
    MATRIX_HELD,
    MATRIX_WAIT,
    REGISTERS,
    SAME_IN_WARP,
    SIGNAL_ARRIVE,
    SIGNAL_EXPECT,
    SIGNAL_INIT,
    SIGNAL_WAIT,
    STORE_BOX_WAIT,
    CountAttrs,
    HeldAttrs,
    MatrixAttrs,
    RegistersAttrs,
)
from tilework.ir.ops.memory import INDEX, STORE
from tilework.ir.symbolic import conditions, simplify

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tilework.codegen.matrix.crew import Crew
    from tilework.codegen.matrix.feed import Supply, Work
    from tilework.codegen.matrix.writer import Writer
    from tilework.ir.node import Node

_FEEDER_REGISTERS, _GROUP_REGISTERS = 40, 232
_WARP = 32
_STEP = 16  # positions along k of one product
_ZERO = const_index(0)


class GroupFeed(Feed):
    """A block of warp groups, one of which feeds the others."""

    #: Whether each thread of a group hands slots back, and not one for all behind a barrier:
    #: NVIDIA's racecheck follows no order through both (docs/cuda.md), so it is shown such code.
    all_release: ClassVar[bool] = False

    def __init__(self, out: Writer, work: Work, crew: Crew, supplies: Sequence[Supply]) -> None:
        super().__init__(out, work, crew, supplies)
        signals = [(out.allocate(uint64, s.count), out.allocate(uint64, s.count)) for s in supplies]
        self.full = [full for full, _ in signals]
        self.free = [free for _, free in signals]
        self.stage()

    def write(self, start: Callable[[Feed], Callable[[Node], None]]) -> None:
        """All that one thread of a block does."""
        with self.out.loop((1 + self.crew.groups) * GROUP_THREADS, Unit.LOCAL) as thread:
            self._write(thread, start)

    def _write(self, thread: Node, start: Callable[[Feed], Callable[[Node], None]]) -> None:
        out = self.out
        with out.when(simplify.equal(thread, _ZERO)):
            for number, supply in enumerate(self.supplies):
                feeders = 1 + (_WARP if self.staged and not supply.is_held else 0)
                for slot in range(supply.count):
                    at = const_index(slot)
                    full, free = INDEX(self.full[number], at), INDEX(self.free[number], at)
                    out.emit(SIGNAL_INIT(full, attrs=CountAttrs(feeders)))
                    out.emit(SIGNAL_INIT(free, attrs=CountAttrs(self._releases())))
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
            self.group = out.emit(simplify.sub(group, const_index(1)))
            self.member = out.emit(member)
            self._compute(start)

    def _compute(self, start: Callable[[Feed], Callable[[Node], None]]) -> None:
        out = self.out
        self.leads = out.emit(simplify.equal(self.member, _ZERO))
        self.counted = self._counter()
        each = start(self)
        self.held_turn = out.variable(_ZERO)
        with out.loop(self.work.tiles, Unit.THREAD) as task:
            each(task)
        if any(self.outgoing):
            with out.when(self.leads):
                out.emit(STORE_BOX_WAIT(self.leads, attrs=CountAttrs(0)))

    # ---- the feeding group

    def _feed(self) -> None:
        out, work = self.out, self.work
        turn = out.variable(const_index(1))
        counted = self._counter()
        with out.loop(work.tiles, Unit.THREAD) as task:
            others, row = work.tile(task)
            first, count = work.span(row)
            for number, supply in enumerate(self.supplies):
                if supply.is_held:
                    self._fill(number, _ZERO, turn, others | {supply.along: row})
            out.assign(turn, simplify.sub(const_index(1), turn))
            with out.loop(count) as block:
                key = out.emit(simplify.scale(simplify.add(first, block), work.block))
                at = simplify.add(cast(counted, index), block)
                for number, supply in enumerate(self.supplies):
                    if not supply.is_held:
                        slot, waits = self._place(number, at)
                        self._fill(number, slot, waits, others | {supply.along: key})
            self._count(counted, count)

    def _place(self, number: int, at: Node) -> tuple[Node, Node]:
        """The slot of a block to be filled, and the parity of the phase that it waits for."""
        slot, parity = self._of_turn(number, at)
        return slot, self.out.emit(simplify.sub(const_index(1), parity))

    def _of_turn(self, number: int, at: Node) -> tuple[Node, Node]:
        """The slot of a block, by how many were before it, and the parity of its phase."""
        phase = simplify.idiv(at, const_index(self.supplies[number].count))
        parity = self.out.emit(simplify.mod(phase, const_index(2)))
        return self.out.emit(self.slot(number, at)), parity

    def _fill(self, number: int, slot: Node, parity: Node, at: dict[Node, Node]) -> None:
        """Fill a slot of each array: boxes of 64 columns and as many lines as the slot has."""
        out, supply, own = self.out, self.supplies[number], self.slots[number]
        wait = out.emit(SIGNAL_WAIT(INDEX(self.free[number], slot), parity))
        full = out.emit(INDEX(self.full[number], slot))
        total = sum(each.bytes for each in own)
        out.emit(SIGNAL_EXPECT(full, wait, attrs=CountAttrs(total)))
        for each in own:
            array, width = each.array, each.width
            attrs = array.boxed({array.ranges[0]: width, supply.along: each.lines}, ROW_BYTES)
            for part in range(each.depth // width):
                place = simplify.add(
                    simplify.scale(slot, each.elements), const_index(part * width * each.lines)
                )
                start = const_index(part * width)
                coordinates = [start, *(at[range_] for range_ in array.ranges[1:])]
                boxed = BOXED(array.param, attrs=attrs)
                out.emit(COPY_BOX(INDEX(each.memory, place), boxed, full, *coordinates))

    def _stage(self, lane: Node) -> None:
        """Compute what is fixed for the positions of all blocks, by the threads of one warp."""
        out, work, last = self.out, self.work, len(self.supplies) - 1
        counted = self._counter()
        with out.loop(work.tiles, Unit.THREAD) as task:
            others, row = work.tile(task)
            from_block, count = work.span(row)
            with out.loop(count) as block:
                key = out.emit(simplify.scale(simplify.add(from_block, block), work.block))
                slot, waits = self._place(last, simplify.add(cast(counted, index), block))
                wait = out.emit(SIGNAL_WAIT(INDEX(self.free[last], slot), waits))
                for first in range(0, work.block, _WARP):
                    inside = simplify.add(lane, const_index(first))
                    self._stage_one(others, simplify.add(key, inside), slot, inside)
                out.emit(SIGNAL_ARRIVE(INDEX(self.full[last], slot), wait))
            self._count(counted, count)

    def _stage_one(
        self, others: dict[Node, Node], position: Node, slot: Node, inside: Node
    ) -> None:
        """What is fixed for one position; 0 for those after the end."""
        out, block = self.out, self.work.block
        position = out.emit(position)
        for memory, value in self.staged_at(others, position, may_exceed=False):
            place = simplify.add(simplify.scale(slot, block), inside)
            out.emit(STORE(INDEX(memory, place), value))

    # ---- how many blocks were before, as far as slots and phases need to know

    def _counter(self) -> Node:
        return self.out.variable(const(0, uint16))

    def _count(self, counter: Node, more: Node) -> None:
        """Count more blocks."""
        total = simplify.add(cast(counter, index), more)
        period = const_index(2 * self.supplies[-1].count)
        self.out.assign(counter, cast(simplify.mod(total, period), uint16))

    def _at(self, turn: Node) -> Node:
        return simplify.add(cast(self.counted, index), turn)

    # ---- one tile, as a group sees it

    def begin_tile(self, others: dict[Node, Node], row: Node, span: tuple[Node, Node]) -> Node:
        """Wait for what the tile holds."""
        out = self.out
        held: Node = _ZERO
        for number, supply in enumerate(self.supplies):
            if supply.is_held:
                held = out.emit(SIGNAL_WAIT(INDEX(self.full[number], _ZERO), self.held_turn))
        out.assign(self.held_turn, simplify.sub(const_index(1), self.held_turn))
        return held

    def end_tile(self, count: Node, after: Node) -> None:
        """Hand back what the tile held."""
        self._count(self.counted, count)
        with self.out.when(self._releasing(conditions.TRUE)):
            for number, supply in enumerate(self.supplies):
                if supply.is_held:
                    self.out.emit(SIGNAL_ARRIVE(INDEX(self.free[number], _ZERO), after))

    def begin_block(self, turn: Node, *, is_last: bool = False) -> None:
        """Others fill slots."""

    def end_block(self) -> None:
        """Others fill slots."""

    def ready(self, number: int, turn: Node, *after: Node) -> tuple[Node, Node]:
        """Wait until a copy engine has brought a block."""
        slot, parity = self._of_turn(number, self._at(turn))
        full = INDEX(self.full[number], slot)
        return slot, self.out.emit(SIGNAL_WAIT(full, parity, *after))

    def release(
        self, number: int, turn: Node, after: Node, condition: Node, *, is_before: bool = False
    ) -> None:
        """One thread of the group says so, or all."""
        at = self._at(turn)
        if is_before:  # numbers repeat after two rounds of slots
            at = simplify.add(at, const_index(2 * self.supplies[number].count - 1))
        with self.out.when(self._releasing(condition)):
            # Computed outside, beside products, it made the compiler do one after the other.
            slot = self.out.emit(self.slot(number, at))
            self.out.emit(SIGNAL_ARRIVE(INDEX(self.free[number], slot), after))

    def _releases(self) -> int:
        """How many threads hand each slot back."""
        return self.crew.groups * (GROUP_THREADS if self.all_release else 1)

    def _releasing(self, condition: Node) -> Node:
        """Whether a thread hands slots back where this holds."""
        return condition if self.all_release else simplify.both(self.leads, condition)

    def end_positions(self, turn: Node) -> None:
        """A barrier of the group's threads."""
        if self.staged:
            number = simplify.add(self.group, const_index(1))
            self.out.emit(GROUP_BARRIER(number, turn, attrs=CountAttrs(GROUP_THREADS)))

    # ---- products

    def begin(self, *after: Node) -> Node:
        """Registers and memory that were written before may be read."""
        return self.out.emit(MATRIX_BEGIN(*after))

    def commit(self, begin: Node) -> Node:
        """Close the group of products."""
        return self.out.emit(MATRIX_COMMIT(begin))

    def wait(self, *sums: Node, count: int) -> Node:
        """Wait for all but the last groups."""
        return self.out.emit(MATRIX_WAIT(*sums, attrs=CountAttrs(count)))

    def multiply(
        self, total: Node, factors: tuple[Slots, Slots], slot: Node, depth: int, begin: Node
    ) -> None:
        """Start a product of a group's rows of a held array and a block's lines."""
        rows, keys = factors
        width, group_rows = rows.width, self.crew.group_rows
        mine = simplify.scale(self.group, group_rows * width)
        first = simplify.scale(slot, keys.elements)
        for position in range(0, depth, _STEP):
            part, inside = divmod(position, width)
            a = simplify.add(mine, const_index(part * width * rows.lines + inside))
            b = simplify.add(first, const_index(part * width * keys.lines + inside))
            attrs = MatrixAttrs(
                group_rows, keys.lines, _STEP, True, 0, True, 0, is_first=not position
            )
            operands = INDEX(rows.memory, a), INDEX(keys.memory, b)
            self.out.assign(total, MATRIX(total, *operands, begin, attrs=attrs))

    def mix(
        self, total: Node, values: Slots, slot: Node, pairs: Sequence[Node], begin: Node
    ) -> None:
        """Start to add the product of a factor in registers and the lines of a block."""
        chunk = values.width * values.lines * values.array.dtype.itemsize
        attrs = HeldAttrs(self.crew.group_rows, values.depth, _STEP, False, chunk)
        first = simplify.scale(slot, values.elements)
        for sixteen in range(values.lines // _STEP):
            held = pairs[4 * sixteen : 4 * sixteen + 4]
            start = simplify.add(first, const_index(_STEP * sixteen * values.width))
            address = INDEX(values.memory, start)
            self.out.assign(total, MATRIX_HELD(total, address, *held, begin, attrs=attrs))
