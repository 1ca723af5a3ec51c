"""The statements of a contraction by products of warps: KERNEL -> LINEAR.

    for the first slots but one: fill, close the copies as a group
    for step:
        wait for the copies of this step's slot; barrier
        fill the slot that the step before used, for a step further on (`ahead`)
        for each 32 bytes along k:
            load fragments of a and b; multiply them
        store what was held for the slot ahead
    what becomes of the sums (`epilogue`), sixteen rows of a warp after the other

A barrier stands between the last use of a slot and its next filling, and between its filling and
its first use: the one of each step is both.  Sums of 8-bit floats are kept by the matrix unit with
about 14 bits, so those of each slot go to sums in float32.

Postconditions: every copy has been waited for before its slot is used; all threads of a block reach
every barrier.
"""

from __future__ import annotations

from itertools import product as pairs_of
from typing import TYPE_CHECKING

from tilework.base.errors import PlanError
from tilework.codegen.analysis import substitute_ranges
from tilework.codegen.gpu.flat import Flat, raster
from tilework.codegen.matrix.arrays import ROW_BYTES, loaded_by
from tilework.codegen.matrix.epilogue import Place, write_results
from tilework.codegen.matrix.exchange import Tile
from tilework.codegen.matrix.filling import fill
from tilework.codegen.matrix.fragments import lane_of_fragment, place_in_slot
from tilework.codegen.matrix.warp_tiles import FRAGMENT_SUMS, Factor, Filling, WarpTiles
from tilework.codegen.matrix.warps import tiles_of
from tilework.codegen.matrix.writer import Writer
from tilework.codegen.plan.extents import product
from tilework.dtypes import by_name, int32, uint32
from tilework.ir.build import bitcast, cast, const_bits, const_index
from tilework.ir.ops import math
from tilework.ir.ops.control import BARRIER, BROADCAST, STACK
from tilework.ir.ops.index import LanesAttrs, Unit
from tilework.ir.ops.matrix import PICK, CountAttrs
from tilework.ir.ops.memory import INDEX, LOAD, STORE, LoadAttrs
from tilework.ir.ops.tensor import REDUCE
from tilework.ir.ops.warp_matrix import (
    COPY_CHUNK,
    COPY_COMMIT,
    COPY_WAIT,
    FRAGMENT_BYTES,
    FRAGMENT_ROWS,
    FRAGMENT_WORDS,
    LOAD_FRAGMENT,
    MATRIX_WARP,
    SUMS,
    WARP_THREADS,
    FragmentAttrs,
    WarpMatrixAttrs,
)
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from tilework.codegen.analysis import Kernel
    from tilework.codegen.plan.plan import Plan
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

#: Elements that a thread loads before it stores any, where it fills a slot by itself.
_BATCH = 16
_WORD_BYTES = 4
_ROWS = 8  # of one of the four matrices of a fragment


def lower_warps(kernel: Kernel, plan: Plan, target: TargetSpec) -> Node:
    """The LINEAR of a contraction under a plan for warps.

    Raises: PlanError if the kernel or the target has no such tiles.
    """
    tiles = tiles_of(kernel, plan, target)
    if tiles is None:
        raise PlanError("plan: this kernel has no such tiles of warps", got=repr(plan))
    out = Writer(target)
    _Emission(kernel, tiles, out).write()
    return out.linear()


class _Slots:
    """One factor in TILE memory: where its elements are, and how a tile's are filled."""

    def __init__(self, out: Writer, tiles: WarpTiles, factor: Factor, thread: Node) -> None:
        self.out, self.tiles, self.factor, self.thread = out, tiles, factor, thread
        self.memory = out.allocate(factor.dtype, tiles.slots * factor.slot_elements, ROW_BYTES * 8)
        self.own = Flat(factor.own)
        self.k = Flat(tiles.k)
        self.values: dict[Node, Node] = {}
        self.first = const_index(0)

    def start(self, values: dict[Node, Node], first: Node) -> None:
        """Begin a tile: values of the ranges of a batch, and its first row."""
        self.values, self.first = values, first

    def place(self, own: Node, k: Node) -> Node:
        """The element at a row and a position of k, from the start of a slot on."""
        factor = self.factor
        line, column = (own, k) if factor.along_k else (k, own)
        lines = factor.rows if factor.along_k else factor.width
        return place_in_slot(line, column, lines, factor.dtype)

    def at(self, slot: Node, place: Node) -> Node:
        """The address of a place in a slot."""
        return INDEX(
            self.memory, simplify.add(simplify.scale(slot, self.factor.slot_elements), place)
        )

    # ---- pieces: neighbours that are moved at once

    def _piece(self, number: Node) -> tuple[Node, Node]:
        """The row and the position of k at which a piece starts: neighbours go to neighbours."""
        factor = self.factor
        row_pieces = (factor.width if factor.along_k else factor.rows) // factor.lanes
        fast = simplify.scale(simplify.mod(number, const_index(row_pieces)), factor.lanes)
        slow = simplify.idiv(number, const_index(row_pieces))
        return (slow, fast) if factor.along_k else (fast, slow)

    def _at(self, own: Node, k: Node, step: Node) -> tuple[dict[Node, Node], Node]:
        """The values of all ranges at a place of a tile, and whether it is inside of them."""
        row = simplify.add(self.first, own)
        depth = simplify.add(simplify.scale(step, self.tiles.depth), k)
        gates = []
        if self.own.size % self.factor.rows:
            gates.append(simplify.less(row, const_index(self.own.size)))
        if self.k.size % self.tiles.depth:
            gates.append(simplify.less(depth, const_index(self.k.size)))
        values = self.values | self.own.values(row) | self.k.values(depth)
        return values, simplify.all_of(gates)

    def _moves(self, step: Node) -> list[tuple[Node, Node, Node, Node, Node]]:
        """(place in a slot, address of the source, inside, does this thread move it, how many)."""
        factor, threads = self.factor, self.tiles.threads
        found = loaded_by(factor.value)
        if found is None:
            raise PlanError("plan: this factor is no load", got=repr(factor.value))
        load, conditions = found
        moves = []
        for first in range(0, factor.pieces, threads):
            number = simplify.add(self.thread, const_index(first))
            is_mine = simplify.TRUE
            if first + threads > factor.pieces:
                is_mine = simplify.less(number, const_index(factor.pieces))
            own, k = self._piece(number)
            values, inside = self._at(own, k, step)
            for condition in conditions:
                inside = simplify.both(inside, substitute_ranges(condition, values, {}, {}))
            source = substitute_ranges(load.src[0], values, {}, {})
            left = self._left(own, k, step)
            moves.append((self.place(own, k), source, inside, is_mine, left))
        return moves

    def _left(self, own: Node, k: Node, step: Node) -> Node:
        """How many elements of a piece that starts inside are inside."""
        lanes = const_index(self.factor.lanes)
        flat = self.k if self.factor.along_k else self.own
        if flat.size % self.factor.lanes == 0:
            return lanes
        at = simplify.add(self.first, own)
        if flat is self.k:
            at = simplify.add(simplify.scale(step, self.tiles.depth), k)
        return simplify.minimum(simplify.sub(const_index(flat.size), at), lanes)

    def copy(self, slot: Node, step: Node) -> None:
        """Start this thread's copies to a slot."""
        out, lanes = self.out, self.factor.lanes
        for place, source, inside, is_mine, left in self._moves(step):
            count = simplify.where(inside, left, const_index(0))
            copy = COPY_CHUNK(self.at(slot, place), source, count, attrs=CountAttrs(lanes))
            if is_mine is simplify.TRUE:
                out.emit(copy)
            else:
                with out.when(is_mine):
                    out.emit(copy)

    def load(self, step: Node, is_wanted: Node) -> list[tuple[Node, Node, Node]]:
        """Load what this thread will store: (place in a slot, value, does this thread have it)."""
        found = []
        for place, source, inside, is_mine, _ in self._moves(step):
            gate = simplify.all_of((inside, is_mine, is_wanted))
            gates = () if gate is simplify.TRUE else (gate,)
            value = LOAD(source, *gates, attrs=LoadAttrs(self.factor.lanes))
            found.append((place, self.out.emit(value), is_mine))
        return found

    def store(self, slot: Node, held: list[tuple[Node, Node, Node]]) -> None:
        """Store what was loaded."""
        for place, value, is_mine in held:
            gates = () if is_mine is simplify.TRUE else (is_mine,)
            self.out.emit(STORE(self.at(slot, place), value, *gates))

    def compute(self, slot: Node, step: Node) -> None:
        """Compute this thread's elements of a slot, and store them."""
        factor, threads = self.factor, self.tiles.threads
        count = factor.pieces // threads
        batch = max(part for part in range(1, _BATCH + 1) if count % part == 0)

        def where(number: Node) -> tuple[Node, Node]:
            return self._piece(simplify.add(self.thread, simplify.scale(number, threads)))

        def value_at(number: Node) -> Node:
            own, k = where(number)
            values, _ = self._at(own, k, step)
            # Outside it is the last place inside: a load under a condition would have to be
            # waited for before the next one.
            for flat, at in ((self.own, factor.rows), (self.k, self.tiles.depth)):
                if flat.size % at:
                    values = self._kept_inside(values, flat, own, k, step)
            return substitute_ranges(factor.value, values, {}, {})

        def store(number: Node, value: Node) -> None:
            own, k = where(number)
            _, inside = self._at(own, k, step)
            zero = const_bits(0, factor.dtype)
            kept = simplify.where(inside, value, zero)
            self.out.emit(STORE(self.at(slot, self.place(own, k)), kept))

        fill(self.out, factor.dtype, (count, batch), value_at, store)

    def _kept_inside(
        self, values: dict[Node, Node], flat: Flat, own: Node, k: Node, step: Node
    ) -> dict[Node, Node]:
        at = simplify.add(self.first, own)
        if flat is self.k:
            at = simplify.add(simplify.scale(step, self.tiles.depth), k)
        is_inside = simplify.less(at, const_index(flat.size))
        return values | flat.values(simplify.where(is_inside, at, const_index(flat.size - 1)))


class _Emission:
    def __init__(self, kernel: Kernel, tiles: WarpTiles, out: Writer) -> None:
        self.kernel, self.tiles, self.out = kernel, tiles, out

    def write(self) -> None:
        """All that one thread of a block does."""
        out, tiles = self.out, self.tiles
        with out.loop(tiles.tiles, Unit.THREAD) as task, out.loop(tiles.threads, Unit.LOCAL) as own:
            thread = out.emit(own)
            self.thread = thread
            slots = [_Slots(out, tiles, factor, thread) for factor in (tiles.a, tiles.b)]
            self.slots = slots
            self._begin(task)
            warp = simplify.idiv(thread, const_index(WARP_THREADS))
            across = const_index(tiles.warps[1])
            self.lane = out.emit(simplify.mod(thread, const_index(WARP_THREADS)))
            rows, columns = tiles.warp_sides
            self.warp_starts = (
                out.emit(simplify.scale(simplify.idiv(warp, across), rows)),
                out.emit(simplify.scale(simplify.mod(warp, across), columns)),
            )
            sums = self._zeros(tiles.sums)
            self.factor_sums = [self._zeros(n) if n else None for n in tiles.factor_sums]
            self._steps(sums)
            self._write_results(sums)

    def _begin(self, task: Node) -> None:
        """Where the tile of a task begins."""
        out, tiles = self.out, self.tiles
        down, across = tiles.sides
        per_matrix = const_index(down * across)
        batch = Flat(tiles.contraction.batch).values(simplify.idiv(task, per_matrix))
        self.batch = {range_: out.emit(value) for range_, value in batch.items()}
        row, column = raster(simplify.mod(task, per_matrix), down, across)
        self.firsts = (
            out.emit(simplify.scale(row, tiles.a.rows)),
            out.emit(simplify.scale(column, tiles.b.rows)),
        )
        for slots, first in zip(self.slots, self.firsts, strict=True):
            slots.start(self.batch, first)

    def _zeros(self, count: int) -> Node:
        """Accumulators of one thread."""
        dtype = by_name(self.tiles.instruction.accumulator_dtype)
        zero = const_bits(0, dtype)
        return self.out.variable(BROADCAST(zero, attrs=LanesAttrs(count)))

    def _of(self, filling: Filling) -> list[_Slots]:
        return [slots for slots in self.slots if slots.factor.filling is filling]

    # ---- the pipeline

    def _steps(self, sums: Node) -> None:
        out, tiles = self.out, self.tiles
        is_copied = bool(self._of(Filling.COPIED))
        for number in range(tiles.slots - 1):
            at = const_index(number)
            if number < tiles.steps:
                self._fill(at, at)
                for slots in self._of(Filling.HELD):
                    slots.store(at, slots.load(at, simplify.TRUE))
            if is_copied:
                out.emit(COPY_COMMIT(at))
        partial = self._zeros(tiles.sums) if tiles.is_promoted else sums
        with out.loop(tiles.steps) as step:
            if is_copied:
                out.emit(COPY_WAIT(step, attrs=CountAttrs(tiles.slots - 2)))
            out.emit(BARRIER(step))
            ahead = out.emit(simplify.add(step, const_index(tiles.slots - 1)))
            is_wanted = out.emit(simplify.less(ahead, const_index(tiles.steps)))
            slot = out.emit(simplify.mod(step, const_index(tiles.slots)))
            target = out.emit(simplify.mod(ahead, const_index(tiles.slots)))
            if is_copied or self._of(Filling.COMPUTED):
                with out.when(is_wanted):
                    self._fill(target, ahead)
            if is_copied:
                out.emit(COPY_COMMIT(step))
            held = [(slots, slots.load(ahead, is_wanted)) for slots in self._of(Filling.HELD)]
            self._products(partial, slot)
            if tiles.is_promoted:
                out.assign(sums, math.ADD(sums, partial))
            if held:
                with out.when(is_wanted):
                    for slots, values in held:
                        slots.store(target, values)

    def _fill(self, slot: Node, step: Node) -> None:
        for slots in self._of(Filling.COPIED):
            slots.copy(slot, step)
        for slots in self._of(Filling.COMPUTED):
            slots.compute(slot, step)

    # ---- products

    def _products(self, sums: Node, slot: Node) -> None:
        tiles = self.tiles
        counts = [side // FRAGMENT_ROWS for side in tiles.warp_sides]
        for part in range(ROW_BYTES // FRAGMENT_BYTES):
            fragments = [
                self._fragment(side, slot, number * FRAGMENT_ROWS, part)
                for side in (0, 1)
                for number in range(counts[side])
            ]
            a, b = fragments[: counts[0]], fragments[counts[0] :]
            self._multiply(sums, a, b, is_first=tiles.is_promoted and part == 0)
            of_rows, of_columns = self.factor_sums
            if of_rows is not None:
                self._multiply(of_rows, a, [self._ones()])
            if of_columns is not None:
                self._multiply(of_columns, [self._ones()], b)

    def _multiply(
        self, sums: Node, a: list[Node], b: list[Node], *, is_first: bool = False
    ) -> None:
        """Add the products of fragments to sums."""
        instruction = self.tiles.instruction
        kinds = [factor.dtype.name for factor in (self.tiles.a, self.tiles.b)]
        attrs = WarpMatrixAttrs(
            len(a),
            len(b),
            instruction.m,
            instruction.n,
            instruction.k,
            kinds[0],
            is_first,
            kinds[1] if kinds[0] != kinds[1] else "",
        )
        self.out.assign(sums, MATRIX_WARP(sums, *a, *b, attrs=attrs))

    def _ones(self) -> Node:
        """A fragment of bytes that are all 1: its product with a factor are that one's sums."""
        word = const_bits(0x0101_0101, uint32)
        return self.out.emit(STACK(*[word] * FRAGMENT_WORDS))

    def _fragment(self, side: int, slot: Node, row: int, part: int) -> Node:
        """What a lane multiplies of 16 rows and 32 bytes along k."""
        slots = self.slots[side]
        factor = slots.factor
        itemsize = factor.dtype.itemsize
        first = simplify.add(self.warp_starts[side], const_index(row))
        depth = FRAGMENT_BYTES // itemsize
        if itemsize > _WORD_BYTES or not (factor.along_k or itemsize == 2):
            return self._loaded(slots, slot, first, const_index(part * depth), side)
        own, k = lane_of_fragment(
            self.lane,
            first,
            const_index(part * depth),
            depth,
            is_first_operand=side == 0,
            along_k=factor.along_k,
        )
        address = slots.at(slot, slots.place(own, k))
        is_turned = not factor.along_k
        return self.out.emit(LOAD_FRAGMENT(address, attrs=FragmentAttrs(is_turned)))

    def _loaded(self, slots: _Slots, slot: Node, first: Node, start: Node, side: int) -> Node:
        """The same by one load for each element: of 64 bits, or of 32 whose rows lie across k."""
        out, dtype = self.out, slots.factor.dtype
        row = simplify.add(first, simplify.idiv(self.lane, const_index(4)))
        column = simplify.add(start, simplify.mod(self.lane, const_index(4)))
        lows, halves = (0, _ROWS), (0, 4)
        if dtype.itemsize > _WORD_BYTES:
            wanted = [(low, 0) for low in lows]
        elif side == 0:
            wanted = [(low, half) for half, low in pairs_of(halves, lows)]
        else:
            wanted = list(pairs_of(lows, halves))
        found = []
        for low, half in wanted:
            own = simplify.add(row, const_index(low))
            k = simplify.add(column, const_index(half))
            value = LOAD(slots.at(slot, slots.place(own, k)))
            is_word = dtype.itemsize == _WORD_BYTES and dtype is not uint32
            found.append(bitcast(value, uint32) if is_word else value)
        return out.emit(STACK(*found))

    # ---- results

    def _write_results(self, sums: Node) -> None:
        out, tiles = self.out, self.tiles
        contraction = tiles.contraction
        rows, columns = tiles.warp_sides
        each = columns // 8 * SUMS
        zero, lane = const_index(0), self.lane
        core, of_rows, of_columns = self._parts()
        stores = self._stores(core, of_rows, of_columns)
        for number in range(rows // FRAGMENT_ROWS):

            def known(position: Node, half: int, first: int = number * each) -> dict[Node, Node]:
                at = simplify.add(position, const_index(first))
                found = {core: cast(PICK(sums, at), core.type.dtype)}
                by_rows, by_columns = self.factor_sums
                if by_rows is not None:
                    inside = first // each * FRAGMENT_SUMS + SUMS // 2 * half
                    found[of_rows] = PICK(by_rows, const_index(inside))
                if by_columns is not None:
                    found[of_columns] = PICK(by_columns, position)
                return found

            tile = Tile(
                stores,
                _as_one(contraction.m, tiles.a.rows),
                _as_one(contraction.n, tiles.b.rows),
                contraction.batch,
                FRAGMENT_ROWS,
                known,
                columns,
            )
            row = simplify.add(self.warp_starts[0], const_index(number * FRAGMENT_ROWS))
            starts = (row, self.warp_starts[1])
            leads = simplify.equal(lane, zero)
            place = Place(zero, lane, leads, self.batch, zero, starts, self.firsts)
            write_results(out, tile, place, None)

    def _parts(self) -> tuple[Node, Node, Node]:
        """The sum of products of what is multiplied, and those of each factor, as nodes."""
        reduce = self.tiles.contraction.reduce
        if self.factor_sums == [None, None]:
            return reduce, reduce, reduce
        a, b = (cast(factor.value, int32) for factor in (self.tiles.a, self.tiles.b))
        core, rows, columns = (
            REDUCE(value, *reduce.src[1:], attrs=reduce.attrs) for value in (math.MUL(a, b), a, b)
        )
        return core, rows, columns

    def _stores(self, core: Node, of_rows: Node, of_columns: Node) -> tuple[Node, ...]:
        """The kernel's stores, with what offsets add to the sums of products.

        sum (a + p) (b + q)  =  sum a b + p sum b + q sum a + count p q,  modulo 2**32
        """
        tiles, stores = self.tiles, tuple(self.kernel.stores)
        reduce = tiles.contraction.reduce
        if core is reduce:
            return stores
        p, q = (None if f.offset is None else f.offset.offset() for f in (tiles.a, tiles.b))
        total = core
        if p is not None:
            total = math.ADD(total, math.MUL(p, of_columns))
        if q is not None:
            total = math.ADD(total, math.MUL(q, of_rows))
        if p is not None and q is not None:
            count = const_bits(product(tiles.k) & 0xFFFF_FFFF, int32)
            total = math.ADD(total, math.MUL(count, math.MUL(p, q)))
        return tuple(simplify.substitute(stores, {reduce: cast(total, reduce.type.dtype)}))


def _as_one(ranges: tuple[Node, ...], side: int) -> tuple[tuple[Node, int], ...]:
    """Ranges that count as one, the fastest first, which stands for all."""
    fastest, *others = reversed(ranges)
    return ((fastest, side), *((range_, 1) for range_ in others))


__all__ = ["lower_warps"]
