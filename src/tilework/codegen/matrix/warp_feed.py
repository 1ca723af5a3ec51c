"""Slots that the threads of a block fill for its warps, which load fragments and multiply them.

    what the tile holds, and the first blocks: start their copies, each block a group of copies
    for each block:
        wait for the block's copies; barrier
        start copies for a later block, to the slot that the block before has left
        products, and what is between them
        store what was loaded for the later block (Turing, and what belongs to positions)

A block of threads has one tile, so nothing is counted from tile to tile.  The barrier of a block
stands between the last use of a slot and its next filling, and between its filling and its first
use.  Products are done where they stand: there is nothing to wait for.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

from tilework.codegen.matrix.feed import Feed, Slots
from tilework.codegen.matrix.fragments import lane_of_fragment, place_in_slot
from tilework.codegen.plan.extents import size
from tilework.ir.build import const_index
from tilework.ir.ops.control import BARRIER, STACK
from tilework.ir.ops.index import Unit
from tilework.ir.ops.matrix import SAME_IN_WARP, CountAttrs
from tilework.ir.ops.memory import INDEX, LOAD, STORE, LoadAttrs
from tilework.ir.ops.warp_matrix import (
    COPY_CHUNK,
    COPY_COMMIT,
    COPY_WAIT,
    FRAGMENT_BYTES,
    FRAGMENT_ROWS,
    LOAD_FRAGMENT,
    MATRIX_WARP,
    WARP_THREADS,
    FragmentAttrs,
    WarpMatrixAttrs,
)
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from tilework.codegen.matrix.crew import Crew
    from tilework.codegen.matrix.feed import Supply, Work
    from tilework.codegen.matrix.writer import Writer
    from tilework.ir.node import Node

#: Bytes of one copy, which start at multiples of that.
_PIECE_BYTES = 16
#: What a thread may hold of a later block beside products and sums.
_MOST_HELD_BYTES = 96
#: Loads behind a block that are on their way together.
_LATE_MOVES = 4
_ZERO = const_index(0)


class WarpFeed(Feed):
    """A block of warps that do all themselves."""

    def __init__(self, out: Writer, work: Work, crew: Crew, supplies: Sequence[Supply]) -> None:
        super().__init__(out, work, crew, supplies)
        self.stage()
        self.threads = crew.groups * crew.group_threads
        engines = out.target.copy_engines
        #: Do copies run beside the threads?  Else they are loads that are stored later.
        self.is_copied = any(engine.target_memory == "shared" for engine in engines)
        self.slot_count = supplies[-1].count
        self.pending: list[tuple[Node, Node, Node]] = []
        self.barriers = 0
        held = sum(each.bytes for own in self.slots[1:] for each in own) // self.threads
        #: Is there no room in registers for what is loaded, so that it is so behind a block?
        self.is_late = not self.is_copied and held > _MOST_HELD_BYTES
        self.later: Node | None = None

    def write(self, start: Callable[[Feed], Callable[[Node], None]]) -> None:
        """All that one thread of a block does."""
        out = self.out
        with (
            out.loop(self.work.tiles, Unit.THREAD) as task,
            out.loop(self.threads, Unit.LOCAL) as own,
        ):
            self.thread = out.emit(own)
            warp = simplify.idiv(self.thread, const_index(WARP_THREADS))
            self.group = out.emit(SAME_IN_WARP(warp) if self.crew.groups > 1 else _ZERO)
            self.member = out.emit(simplify.mod(self.thread, const_index(WARP_THREADS)))
            self.leads = out.emit(simplify.equal(self.member, _ZERO))
            start(self)(task)

    # ---- one tile

    def begin_tile(self, others: dict[Node, Node], row: Node, span: tuple[Node, Node]) -> Node:
        """Fill what the tile holds, and the first slots."""
        self.others, (self.first, self.count) = others, span
        for number, supply in enumerate(self.supplies):
            if supply.is_held:
                self._bring(number, _ZERO, row, simplify.TRUE)
            for block in range(supply.ahead):
                self._bring_block(number, const_index(block))
        self._store_pending()
        self._close(_ZERO)
        for turn in range(self.slot_count - 1):
            for number, supply in enumerate(self.supplies):
                if not supply.is_held:
                    self._bring_block(number, const_index(turn + supply.ahead))
            self._store_pending()
            self._close(const_index(turn + 1))
        if any(supply.ahead for supply in self.supplies):
            self._meet(_ZERO, self.slot_count - 1)
        return _ZERO

    def end_tile(self, count: Node, after: Node) -> None:
        """A block of threads has one tile."""

    def begin_block(self, turn: Node, *, is_last: bool = False) -> None:
        """Wait for a block, then start with the one that takes the place of the block before."""
        if is_last:
            self._meet(turn, 0)
            return
        self._meet(turn, self.slot_count - 2)
        self.later = self.out.emit(simplify.add(turn, const_index(self.slot_count - 1)))
        if not self.is_late:
            self._bring_later()
        self._close(turn)

    def _bring_later(self) -> None:
        later, self.later = self.later, None
        if later is None:
            return
        for number, supply in enumerate(self.supplies):
            if not supply.is_held:
                at = self.out.emit(simplify.add(later, const_index(supply.ahead)))
                self._bring_block(number, at)

    def end_block(self) -> None:
        """Store what was loaded for a later block."""
        self._bring_later()
        self._store_pending()

    def ready(self, number: int, turn: Node, *after: Node) -> tuple[Node, Node]:
        """The barrier of the block says so already."""
        return self.out.emit(self.slot(number, turn)), _ZERO

    def release(
        self, number: int, turn: Node, after: Node, condition: Node, *, is_before: bool = False
    ) -> None:
        """The barrier of the next block says so."""

    def end_positions(self, turn: Node) -> None:
        """The barrier of the next block says so."""

    # ---- copies

    def _close(self, after: Node) -> None:
        if self.is_copied:
            self.out.emit(COPY_COMMIT(after))

    def _meet(self, after: Node, left: int) -> None:
        """All but the last groups of all threads' copies are there."""
        if self.is_copied:
            self.out.emit(COPY_WAIT(after, attrs=CountAttrs(left)))
        # Each is a statement of its own: a key of one block has two after the same literal.
        self.barriers += 1
        self.out.emit(BARRIER(after, const_index(self.barriers)))

    def _bring_block(self, number: int, at: Node) -> None:
        """Start to fill the slot of a block, if the tile has so many."""
        is_wanted = self.out.emit(simplify.less(at, self.count))
        key = self.out.emit(simplify.scale(simplify.add(self.first, at), self.work.block))
        slot = self.out.emit(self.slot(number, at))
        self._bring(number, slot, key, is_wanted)
        if number == len(self.supplies) - 1:
            self._stage(key, slot, is_wanted)

    def _bring(self, number: int, slot: Node, start: Node, is_wanted: Node) -> None:
        out, along = self.out, self.supplies[number].along
        for slots in self.slots[number]:
            lanes = _PIECE_BYTES // slots.array.dtype.itemsize
            moves = self._moves(slots, along, slot, start)
            if self.is_copied:
                with self._when(is_wanted):
                    for target, source, inside, is_mine in moves:
                        count = simplify.where(inside, const_index(lanes), _ZERO)
                        copy = COPY_CHUNK(target, source, count, attrs=CountAttrs(lanes))
                        with self._when(is_mine):
                            out.emit(copy)
                continue
            for target, source, inside, is_mine in moves:
                gate = simplify.all_of((inside, is_mine, is_wanted))
                gates = () if gate is simplify.TRUE else (gate,)
                value = out.emit(LOAD(source, *gates, attrs=LoadAttrs(lanes)))
                self.pending.append((target, value, simplify.both(is_mine, is_wanted)))
                if self.is_late and len(self.pending) == _LATE_MOVES:
                    self._store_pending()

    def _when(self, condition: Node) -> AbstractContextManager[None]:
        return nullcontext() if condition is simplify.TRUE else self.out.when(condition)

    def _moves(
        self, slots: Slots, along: Node, slot: Node, start: Node
    ) -> list[tuple[Node, Node, Node, Node]]:
        """(place in a slot, address of the source, is it inside, does this thread move it)."""
        array, depth = slots.array, slots.depth
        lanes = _PIECE_BYTES // array.dtype.itemsize
        pieces = slots.lines * depth // lanes
        first_axis = array.ranges[0]
        moves = []
        for first in range(0, pieces, self.threads):
            number = simplify.add(self.thread, const_index(first))
            is_mine = simplify.TRUE
            if first + self.threads > pieces:
                is_mine = simplify.less(number, const_index(pieces))
            line = simplify.idiv(number, const_index(depth // lanes))
            column = simplify.scale(simplify.mod(number, const_index(depth // lanes)), lanes)
            values = self.others | {along: simplify.add(start, line), first_axis: column}
            gates = []
            if size(along) % slots.lines:
                gates.append(simplify.less(values[along], const_index(size(along))))
            if size(first_axis) < depth:
                gates.append(simplify.less(column, const_index(size(first_axis))))
            offset = const_index(array.start)
            for axis, place in zip(array.axes, array.places(values), strict=True):
                offset = simplify.add(offset, simplify.scale(place, axis.stride))
            place = place_in_slot(line, column, slots.lines, array.dtype)
            target = INDEX(slots.memory, simplify.add(simplify.scale(slot, slots.elements), place))
            source = INDEX(array.param, offset)
            moves.append((target, source, simplify.all_of(gates), is_mine))
        return moves

    def _stage(self, key: Node, slot: Node, is_wanted: Node) -> None:
        """Compute what belongs to a block's positions, to be stored with what is loaded."""
        out, block = self.out, self.work.block
        for first in range(0, block if self.staged else 0, self.threads):
            inside = simplify.add(self.thread, const_index(first))
            is_mine = simplify.TRUE
            if first + self.threads > block:
                is_mine = simplify.less(inside, const_index(block))
            position = out.emit(simplify.add(key, inside))
            for memory, value in self.staged_at(self.others, position, may_exceed=True):
                place = simplify.add(simplify.scale(slot, block), inside)
                gate = simplify.both(is_mine, is_wanted)
                self.pending.append((INDEX(memory, place), out.emit(value), gate))

    def _store_pending(self) -> None:
        for target, value, gate in self.pending:
            gates = () if gate is simplify.TRUE else (gate,)
            self.out.emit(STORE(target, value, *gates))
        self.pending.clear()

    # ---- products

    def begin(self, *after: Node) -> Node:
        """Products are done where they stand."""
        return _ZERO

    def commit(self, begin: Node) -> Node:
        """Products are done where they stand."""
        return _ZERO

    def wait(self, *sums: Node, count: int) -> Node:
        """Products are done where they stand."""
        return _ZERO

    def multiply(
        self, total: Node, factors: tuple[Slots, Slots], slot: Node, depth: int, begin: Node
    ) -> None:
        """The product of a warp's rows of a held array and a block's lines."""
        rows, keys = factors
        mine = simplify.scale(self.group, FRAGMENT_ROWS)
        for start in range(0, depth, self._step(rows)):
            at = const_index(start)
            a = self._fragment(rows, _ZERO, (mine, at), is_first_operand=True, along_k=True)
            others = [
                self._fragment(
                    keys, slot, (const_index(line), at), is_first_operand=False, along_k=True
                )
                for line in range(0, keys.lines, FRAGMENT_ROWS)
            ]
            self._add(total, a, others, is_first=not start)

    def mix(
        self, total: Node, values: Slots, slot: Node, pairs: Sequence[Node], begin: Node
    ) -> None:
        """Add the product of a factor in registers and the lines of a block."""
        columns = self.crew.columns(values.array.axes[0].size)
        step = self._step(values)
        for number, start in enumerate(range(0, values.lines, step)):
            held = self.out.emit(STACK(*pairs[4 * number : 4 * number + 4]))
            others = [
                self._fragment(
                    values,
                    slot,
                    (const_index(column), const_index(start)),
                    is_first_operand=False,
                    along_k=False,
                )
                for column in range(0, columns, FRAGMENT_ROWS)
            ]
            self._add(total, held, others)

    def _step(self, slots: Slots) -> int:
        """Positions along k of one fragment."""
        return FRAGMENT_BYTES // slots.array.dtype.itemsize

    def _fragment(
        self,
        slots: Slots,
        slot: Node,
        first: tuple[Node, Node],
        *,
        is_first_operand: bool,
        along_k: bool,
    ) -> Node:
        own, k = lane_of_fragment(
            self.member,
            *first,
            self._step(slots),
            is_first_operand=is_first_operand,
            along_k=along_k,
        )
        line, column = (own, k) if along_k else (k, own)
        place = place_in_slot(line, column, slots.lines, slots.array.dtype)
        address = INDEX(slots.memory, simplify.add(simplify.scale(slot, slots.elements), place))
        return self.out.emit(LOAD_FRAGMENT(address, attrs=FragmentAttrs(not along_k)))

    def _add(self, total: Node, a: Node, others: list[Node], *, is_first: bool = False) -> None:
        """Add the product of a fragment and others; `others` lie side by side."""
        unit = self.crew.instruction
        attrs = WarpMatrixAttrs(
            1, len(others), unit.m, unit.n, unit.k, unit.a_dtype, is_first=is_first
        )
        self.out.assign(total, MATRIX_WARP(total, a, *others, attrs=attrs))
