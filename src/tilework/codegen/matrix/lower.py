"""The statements of a contraction by a ring: KERNEL -> LINEAR.

A block has one warp group that feeds the ring (one of its threads asks for copies; all of them
fill slots of operands that cannot be copied, and say so after a fence) and one or two that compute,
each with its own rows of a tile.  Both go through the same tiles in the same order; a block takes
every `blocks`-th tile, so that the ring is filled for the next tile while the last is stored.

    feeder                                       each computing group
    for tile, for step:                          for tile:
        wait until the slot is free                  accumulators = 0
        expect the slot's bytes                      for step:
        copy the boxes of a and b                        wait until the slot is full
                                                         products of the slot's parts along k
                                                         hand back the slot before this one
                                                     what becomes of the sums (`epilogue`)

Sums of 8-bit floats are kept by the matrix unit with about 14 bits: a group then waits for the
products of each slot and adds them to sums in float32.

Postconditions: every slot that is waited for is handed back exactly once by each group; all copies
have been used, and all stores have read their source, before the block ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.errors import InternalError, PlanError
from tilework.base.records import dataclass
from tilework.codegen.analysis import substitute_ranges
from tilework.codegen.gpu.plan import GROUP_THREADS
from tilework.codegen.matrix.choose import Ring, ring_of
from tilework.codegen.matrix.epilogue import Place, write_results
from tilework.codegen.matrix.exchange import Staging
from tilework.codegen.matrix.filling import fill, swizzled
from tilework.codegen.matrix.operands import Operand
from tilework.codegen.matrix.writer import Writer
from tilework.codegen.plan.extents import ceil_div, size
from tilework.dtypes import by_name, uint64
from tilework.ir.build import cast, const_bits, const_index
from tilework.ir.ops import math
from tilework.ir.ops.control import BARRIER, BROADCAST
from tilework.ir.ops.index import LanesAttrs, Unit
from tilework.ir.ops.matrix import (
    BOXED,
    COPY_BOX,
    COPY_FENCE,
    MATRIX,
    MATRIX_BEGIN,
    MATRIX_COMMIT,
    MATRIX_WAIT,
    PICK,
    PUT,
    REGISTERS,
    SIGNAL_ARRIVE,
    SIGNAL_EXPECT,
    SIGNAL_INIT,
    SIGNAL_WAIT,
    STORE_BOX_WAIT,
    CountAttrs,
    MatrixAttrs,
    RegistersAttrs,
)
from tilework.ir.ops.memory import INDEX, STORE
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.codegen.analysis import Kernel
    from tilework.codegen.matrix.exchange import Tile
    from tilework.codegen.plan.plan import Plan
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

#: Registers that a feeding thread keeps, and those of a computing one, by the number of groups:
#: where one thread asks for copies, and where all of them fill slots.
_REGISTERS, _FILLING_REGISTERS = {1: (40, 240), 2: (40, 232)}, {1: (152, 240), 2: (104, 200)}
#: Elements that a filling thread loads before it stores any: of whole tiles, and where the places
#: of others are kept within their ranges, which takes registers too.
_WHOLE_BATCH, _PARTIAL_BATCH = 32, 16
#: Tile rows that are gone through together: their operands stay in the cache.  Where a tile takes
#: few slots its results are most of what moves, and rows of them should be written at once.
_RASTER_ROWS, _ROWS_BY_STEP = 16, 4


@dataclass(frozen=True, slots=True)
class _Memory:
    """What a block has in TILE memory."""

    a: Node
    b: Node
    full: Node
    free: Node


def lower_ring(kernel: Kernel, plan: Plan, target: TargetSpec) -> Node:
    """The LINEAR of a contraction under a ring plan.

    Raises: PlanError if the plan is no ring for this kernel and target.
    """
    ring = ring_of(kernel, plan, target)
    if ring is None:
        raise PlanError("plan: this kernel has no such ring", got=repr(plan))
    out = Writer(target)
    emission = _Emission(kernel, ring, out)
    threads = (1 + ring.groups) * GROUP_THREADS
    with out.loop(threads, Unit.LOCAL) as thread:
        emission.write(thread)
    return out.linear()


class _Emission:
    def __init__(self, kernel: Kernel, ring: Ring, out: Writer) -> None:
        self.kernel = kernel
        self.ring = ring
        self.out = out
        self.others = ring.others
        self.serial = [r for r in ring.contraction.k if r is not ring.a.inner and size(r) > 1]
        self.inner_steps = ceil_div(size(ring.a.inner), ring.a.depth)
        operands = (ring.a, ring.b)
        self.filled = [operand for operand in operands if operand.array is None]
        #: Arrivals at a full slot: one that announces copies, and those of threads that fill it.
        self.arrivals = int(len(self.filled) < len(operands))
        self.arrivals += GROUP_THREADS if self.filled else 0

    def write(self, thread: Node) -> None:
        """All that one thread of the block does."""
        out, ring = self.out, self.ring
        dtype = ring.a.dtype
        memory = _Memory(
            out.allocate(dtype, ring.slots * ring.a.slot_elements, 1024),
            out.allocate(dtype, ring.slots * ring.b.slot_elements, 1024),
            out.allocate(uint64, ring.slots),
            out.allocate(uint64, ring.slots),
        )
        staging = None
        if ring.exchange is not None:
            staging = Staging(out, ring.exchange, ring.groups)
        with out.when(simplify.equal(thread, const_index(0))):
            for slot in range(ring.slots):
                at = const_index(slot)
                out.emit(SIGNAL_INIT(INDEX(memory.full, at), attrs=CountAttrs(self.arrivals)))
                out.emit(SIGNAL_INIT(INDEX(memory.free, at), attrs=CountAttrs(ring.groups)))
            if staging is not None:
                staging.begin_signals()
        out.emit(BARRIER(thread))
        registers = _FILLING_REGISTERS if self.filled else _REGISTERS
        feeder_registers, group_registers = registers[ring.groups]
        feeder = simplify.less(thread, const_index(GROUP_THREADS))
        with out.when(feeder):
            out.emit(REGISTERS(thread, attrs=RegistersAttrs(feeder_registers, False)))
            leads = simplify.equal(thread, const_index(0))
            if self.filled:
                self._feed(memory, out.emit(thread), leads)
            else:
                with out.when(leads):
                    self._feed(memory, thread, simplify.TRUE)
        with out.when(simplify.at_least(thread, const_index(GROUP_THREADS))):
            out.emit(REGISTERS(thread, attrs=RegistersAttrs(group_registers, True)))
            group = simplify.sub(simplify.idiv(thread, const_index(GROUP_THREADS)), const_index(1))
            self._compute(memory, staging, group, simplify.mod(thread, const_index(GROUP_THREADS)))

    # ---- tiles and steps

    def _tile(self, task: Node) -> dict[Node, Node]:
        """The values of all output ranges at the first row and column of a tile, emitted.

        Within one matrix, bands of rows are gone through column by column.
        """
        a, b = self.ring.a, self.ring.b
        per_matrix = const_index(a.tiles * b.tiles)
        values = self._digits(simplify.idiv(task, per_matrix), self.others)
        inside = simplify.mod(task, per_matrix)
        height = _band(a.tiles, self.ring.steps)
        band = const_index(height * b.tiles)
        within = simplify.mod(inside, band)
        row = simplify.add(
            simplify.scale(simplify.idiv(inside, band), height),
            simplify.mod(within, const_index(height)),
        )
        values |= self._starts(a, row)
        return values | self._starts(b, simplify.idiv(within, const_index(height)))

    def _digits(self, rest: Node, ranges: Sequence[Node]) -> dict[Node, Node]:
        """A number as values of ranges, of which the last moves fastest."""
        values: dict[Node, Node] = {}
        for range_ in reversed(ranges):
            values[range_] = simplify.mod(rest, const_index(size(range_)))
            rest = simplify.idiv(rest, const_index(size(range_)))
        return values

    def _starts(self, operand: Operand, rest: Node) -> dict[Node, Node]:
        """Where part number `rest` of an operand starts, range by range."""
        values: dict[Node, Node] = {}
        for range_, part in zip(operand.own, operand.parts, strict=True):
            count = const_index(ceil_div(size(range_), part))
            start = simplify.scale(simplify.mod(rest, count), part)
            values[range_] = self.out.emit(start)
            rest = simplify.idiv(rest, count)
        return values

    def _step(self, step: Node) -> dict[Node, Node]:
        """The values of k's ranges at the start of one slot."""
        inner = simplify.mod(step, const_index(self.inner_steps))
        values = self._digits(simplify.idiv(step, const_index(self.inner_steps)), self.serial)
        return values | {self.ring.a.inner: simplify.scale(inner, self.ring.a.depth)}

    # ---- the feeder

    def _feed(self, memory: _Memory, thread: Node, leads: Node) -> None:
        """Fill slots, by one thread if all are copied, else by the whole group."""
        out, ring = self.out, self.ring
        slot, parity = out.variable(const_index(0)), out.variable(const_index(1))
        with out.loop(ring.tiles, Unit.THREAD) as task:
            tile = self._tile(task)
            with out.loop(ring.steps) as step:
                values = tile | self._step(step)
                pairs = ((ring.a, memory.a), (ring.b, memory.b))
                wait = out.emit(SIGNAL_WAIT(INDEX(memory.free, slot), parity))
                full = out.emit(INDEX(memory.full, slot))
                copied = [pair for pair in pairs if pair[0].array is not None]
                if copied and self.filled:
                    with out.when(leads):
                        self._copy_all(copied, slot, full, values, wait)
                elif copied:
                    self._copy_all(copied, slot, full, values, wait)
                for operand, place in pairs:
                    if operand.array is None:
                        self._fill(operand, place, slot, values, thread)
                if self.filled:
                    fence = out.emit(COPY_FENCE(step))
                    out.emit(SIGNAL_ARRIVE(full, fence))
                self._advance(slot, parity)

    def _copy_all(
        self,
        pairs: Sequence[tuple[Operand, Node]],
        slot: Node,
        full: Node,
        values: dict[Node, Node],
        wait: Node,
    ) -> None:
        count = sum(operand.slot_elements * operand.dtype.itemsize for operand, _ in pairs)
        self.out.emit(SIGNAL_EXPECT(full, wait, attrs=CountAttrs(count)))
        for operand, place in pairs:
            self._copy(operand, place, slot, full, values)

    def _fill(
        self, operand: Operand, memory: Node, slot: Node, values: dict[Node, Node], thread: Node
    ) -> None:
        """Each thread computes every 128th element of a slot, and stores it where a copy would."""
        out, width = self.out, operand.width
        count = operand.slot_elements // GROUP_THREADS
        is_whole = not (size(operand.own[0]) % operand.rows or size(operand.inner) % operand.depth)
        most = _WHOLE_BATCH if is_whole else _PARTIAL_BATCH
        batch = max(part for part in range(1, most + 1) if count % part == 0)
        start = out.emit(simplify.scale(slot, operand.slot_elements))
        rows = GROUP_THREADS // width if width <= GROUP_THREADS else 1
        column = out.emit(simplify.mod(thread, const_index(width)))
        first = out.emit(simplify.idiv(thread, const_index(width)))

        def line_of(number: Node) -> Node:
            return simplify.add(first, simplify.scale(number, rows))

        def value_at(number: Node) -> Node:
            return self._element(operand, line_of(number), column, values)[0]

        def store(number: Node, value: Node) -> None:
            line = line_of(number)
            offset = simplify.scale(line, width)
            offset = simplify.add(offset, swizzled(line, column, operand.dtype))
            place = INDEX(memory, simplify.add(start, offset))
            _, gate = self._element(operand, line, column, values)
            zero = const_bits(0, operand.dtype)
            out.emit(STORE(place, simplify.where(gate, value, zero)))

        fill(out, operand.dtype, (count, batch), value_at, store)

    def _element(
        self, operand: Operand, line: Node, column: Node, values: dict[Node, Node]
    ) -> tuple[Node, Node]:
        """The factor at one place of a slot, and whether that is inside of its ranges.

        Outside it is that of the last place inside: a load under a condition would have to be
        waited for before the next one.
        """
        if operand.along_k:
            inner, own = column, line
        else:
            depth = const_index(operand.depth)
            inner = simplify.mod(line, depth)
            chunk = simplify.scale(simplify.idiv(line, depth), operand.width)
            own = simplify.add(chunk, column)
        gates, at = [], dict(values)
        for range_, inside, tile in (
            (operand.own[0], own, operand.rows),
            (operand.inner, inner, operand.depth),
        ):
            place = simplify.add(values[range_], inside)
            if size(range_) % tile:
                last = const_index(size(range_) - 1)
                is_inside = simplify.less(place, const_index(size(range_)))
                gates.append(is_inside)
                place = simplify.where(is_inside, place, last)
            at[range_] = place
        return substitute_ranges(operand.value, at, {}, {}), simplify.all_of(gates)

    def _copy(
        self, operand: Operand, memory: Node, slot: Node, full: Node, values: dict[Node, Node]
    ) -> None:
        array = operand.array
        if array is None:
            raise InternalError("ring: an operand without an array is not copied")
        boxed = BOXED(array.param, attrs=operand.boxed(array))
        for chunk in range(operand.chunks):
            offset = simplify.add(
                simplify.scale(slot, operand.slot_elements),
                const_index(chunk * operand.chunk_elements),
            )
            coordinates = array.places(values)
            coordinates[0] = simplify.add(coordinates[0], const_index(chunk * operand.width))
            self.out.emit(COPY_BOX(INDEX(memory, offset), boxed, full, *coordinates))

    def _advance(self, slot: Node, parity: Node) -> None:
        """Go on to the next slot; after the last, to the next phase."""
        out = self.out
        following = out.emit(simplify.add(slot, const_index(1)))
        wraps = out.emit(simplify.equal(following, const_index(self.ring.slots)))
        turned = out.emit(simplify.where(wraps, simplify.sub(const_index(1), parity), parity))
        out.assign(slot, simplify.where(wraps, const_index(0), following))
        out.assign(parity, turned)

    # ---- the computing groups

    def _compute(self, memory: _Memory, staging: Staging | None, group: Node, member: Node) -> None:
        out, ring = self.out, self.ring
        group, member = out.emit(group), out.emit(member)
        leads = out.emit(simplify.equal(member, const_index(0)))
        slot, parity = out.variable(const_index(0)), out.variable(const_index(0))
        last = out.variable(const_index(0))
        if staging is not None:
            staging.begin_group()
        with out.loop(ring.tiles, Unit.THREAD) as task:
            values = self._tile(task)
            if staging is not None:
                staging.ask_first(group, leads, values)
            sums = self._zeros()
            partial = self._zeros() if ring.is_promoted else sums
            with out.loop(ring.steps) as step:
                wait = out.emit(SIGNAL_WAIT(INDEX(memory.full, slot), parity))
                # Sums that go on stay unnamed: products of the step before may still add to them.
                own = [partial] if ring.is_promoted else []
                begin = out.emit(MATRIX_BEGIN(wait, *own))
                self._products(memory, partial, slot, group, begin)
                closed = out.emit(MATRIX_COMMIT(begin))
                if ring.is_promoted:
                    done = out.emit(MATRIX_WAIT(closed, partial, attrs=CountAttrs(0)))
                    with out.when(leads):
                        out.emit(SIGNAL_ARRIVE(INDEX(memory.free, slot), done))
                    out.assign(sums, math.ADD(sums, partial))
                else:
                    done = out.emit(MATRIX_WAIT(closed, attrs=CountAttrs(1)))
                    earlier = simplify.less(const_index(0), step)
                    with out.when(simplify.both(leads, earlier)):
                        out.emit(SIGNAL_ARRIVE(INDEX(memory.free, last), done))
                    out.assign(last, slot)
                self._advance(slot, parity)
            finished = out.emit(MATRIX_WAIT(sums, attrs=CountAttrs(0)))
            if not ring.is_promoted:
                with out.when(leads):
                    out.emit(SIGNAL_ARRIVE(INDEX(memory.free, last), finished))
            place = Place(group, member, leads, values, finished)
            write_results(out, self._results(sums), place, staging)
        if staging is not None:
            with out.when(leads):
                out.emit(STORE_BOX_WAIT(leads, attrs=CountAttrs(0)))

    def _zeros(self) -> Node:
        """Accumulators of one thread."""
        ring = self.ring
        dtype = by_name(ring.instruction.accumulator_dtype)
        lanes = ring.instruction.m * ring.columns // GROUP_THREADS
        return self.out.variable(BROADCAST(const_bits(0, dtype), attrs=LanesAttrs(lanes)))

    def _results(self, sums: Node) -> Tile:
        out, reduce = self.out, self.ring.contraction.reduce

        def known(position: Node, half: int) -> dict[Node, Node]:
            return {reduce: cast(PICK(sums, position), reduce.type.dtype)}

        def shift(count: int) -> None:
            with out.loop(sums.type.lanes - count, Unit.UNROLL) as at:
                out.emit(PUT(sums, at, PICK(sums, simplify.add(at, const_index(count)))))

        return self.ring.results(self.kernel, known, shift)

    def _products(self, memory: _Memory, sums: Node, slot: Node, group: Node, begin: Node) -> None:
        out, ring = self.out, self.ring
        a, b, instruction = ring.a, ring.b, ring.instruction
        rows = simplify.scale(group, a.row_offset(instruction.m))
        start_a = simplify.add(simplify.scale(slot, a.slot_elements), rows)
        start_b = simplify.scale(slot, b.slot_elements)
        for position in range(0, a.depth, instruction.k):
            at_a = simplify.add(start_a, const_index(a.depth_offset(position)))
            at_b = simplify.add(start_b, const_index(b.depth_offset(position)))
            attrs = MatrixAttrs(
                instruction.m,
                ring.columns,
                instruction.k,
                a.along_k,
                a.chunk_bytes,
                b.along_k,
                b.chunk_bytes,
                ring.is_promoted and position == 0,
            )
            product = MATRIX(sums, INDEX(memory.a, at_a), INDEX(memory.b, at_b), begin, attrs=attrs)
            out.assign(sums, product)


def _band(row_tiles: int, steps: int) -> int:
    """Rows of tiles in one band: a divisor of all, so that every band is whole."""
    most = min(_RASTER_ROWS, _ROWS_BY_STEP * steps)
    if row_tiles <= most:
        return row_tiles
    divisors = [d for d in range(1, most + 1) if row_tiles % d == 0]
    return divisors[-1]


__all__ = ["lower_ring"]
