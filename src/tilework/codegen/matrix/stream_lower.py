"""Cascades in one pass on matrix units: scores, their maximum, weights, and what they weigh.

A block of threads has a tile of rows.  One warp group feeds it: the tile's rows once, then for each
block of keys the factors of the scores and of the last product, through a ring of slots each.  The
other groups compute, each 64 rows:

    scores = rows x keys                                 MATRIX, sums in registers
    most' = max(most, max over the block's scores)       a row is held by four threads
    weights = 2**((scores - most') log2(e))
    total = total * f + sum of weights,  f = 2**((most - most') log2(e))
    result = result * f + weights x values               MATRIX_HELD: weights stay in registers

What is summed and how it is rescaled is told by `codegen.cascade.running`, which states the bound
of the error; the order is fixed, block by block.  Two things are this lowering's own.  Weights are
rounded to the values' dtype before their division by the total, where the kernel rounds them
after it: the same relative error.  And powers come from the machine's own instruction: its error
of 2 units is that of a weight beside the greatest one of its row, which is 1.  Scores are kept
without a constant that multiplies them, which goes into the exponent (`chain_values.exponent`).
Positions that a mask hides from all rows of a tile are left out, whatever the values there hold.

Elsewhere: RDNA and Apple GPUs do the same with smaller products, and pass weights through tile
memory; CPUs run cascades in phases (`codegen.cascade.lower`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.records import dataclass
from tilework.codegen.analysis import substitute_ranges
from tilework.codegen.gpu.plan import GROUP_THREADS
from tilework.codegen.matrix.arrays import ROW_BYTES
from tilework.codegen.matrix.chain_values import LOG2_E, exponent, factored
from tilework.codegen.matrix.epilogue import Place, Tile, outgoing_array, write_results
from tilework.codegen.matrix.stream import GROUP_ROWS, GROUPS
from tilework.codegen.matrix.writer import Writer
from tilework.codegen.plan.extents import ceil_div, product, size
from tilework.dtypes import float32, index, uint16, uint64
from tilework.ir.build import cast, const, const_index
from tilework.ir.node import toposort_above
from tilework.ir.ops import math
from tilework.ir.ops.control import BARRIER, BROADCAST, FoldAttrs
from tilework.ir.ops.index import LanesAttrs, Unit
from tilework.ir.ops.matrix import (
    BOXED,
    COPY_BOX,
    FOLD_QUAD,
    MATRIX,
    MATRIX_BEGIN,
    MATRIX_COMMIT,
    MATRIX_HELD,
    MATRIX_WAIT,
    PAIR,
    PICK,
    POWER_OF_TWO,
    PUT,
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
    PairAttrs,
    RegistersAttrs,
)
from tilework.ir.ops.memory import INDEX, LOAD
from tilework.ir.ops.tensor import Fold
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from tilework.codegen.matrix.arrays import Array
    from tilework.codegen.matrix.stream import Stream
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

_FEEDER_REGISTERS, _GROUP_REGISTERS = 40, 232


def lower_stream(stream: Stream, target: TargetSpec) -> Node:
    """The statements of a cascade in one pass."""
    out = Writer(target)
    with out.loop((1 + GROUPS) * GROUP_THREADS, Unit.LOCAL) as thread:
        _Emission(stream, out).write(thread)
    return out.linear()


@dataclass(frozen=True, slots=True)
class _Ring:
    """Slots for one array, and the signals that go with them."""

    array: Array
    memory: Node
    full: Node
    free: Node
    depth: int
    lines: int

    @property
    def slot_elements(self) -> int:
        return self.lines * self.depth

    @property
    def slot_bytes(self) -> int:
        return self.slot_elements * self.array.dtype.itemsize


class _Emission:
    def __init__(self, stream: Stream, out: Writer) -> None:
        self.stream = stream
        self.out = out
        self.width = ROW_BYTES // stream.rows.dtype.itemsize
        self.rows = GROUPS * GROUP_ROWS
        self.row_tiles = ceil_div(size(stream.row), self.rows)
        self.tiles = self.row_tiles * product(stream.others)
        above = toposort_above([stream.running.score], {stream.scores})
        self.loads = any(node.op is LOAD for node in above)

    def write(self, thread: Node) -> None:
        out, stream = self.out, self.stream
        rings = (
            self._ring(stream.rows, 1, stream.depth, self.rows),
            self._ring(stream.keys, stream.slots, stream.depth, stream.block),
            self._ring(stream.values, stream.slots, stream.columns, stream.block),
        )
        outgoing, array = None, outgoing_array(self.results(None, {}))
        if array is not None:
            count = GROUPS * 2 * GROUP_ROWS * ROW_BYTES // array.dtype.itemsize
            outgoing = out.allocate(array.dtype, count, 1024)
        with out.when(simplify.equal(thread, const_index(0))):
            for ring, slots in zip(rings, (1, stream.slots, stream.slots), strict=True):
                for slot in range(slots):
                    at = const_index(slot)
                    out.emit(SIGNAL_INIT(INDEX(ring.full, at), attrs=CountAttrs(1)))
                    out.emit(SIGNAL_INIT(INDEX(ring.free, at), attrs=CountAttrs(GROUPS)))
        out.emit(BARRIER(thread))
        with out.when(simplify.less(thread, const_index(GROUP_THREADS))):
            out.emit(REGISTERS(thread, attrs=RegistersAttrs(_FEEDER_REGISTERS, False)))
            with out.when(simplify.equal(thread, const_index(0))):
                self._feed(*rings)
        with out.when(simplify.at_least(thread, const_index(GROUP_THREADS))):
            out.emit(REGISTERS(thread, attrs=RegistersAttrs(_GROUP_REGISTERS, True)))
            group = SAME_IN_WARP(simplify.idiv(thread, const_index(GROUP_THREADS)))
            member = simplify.mod(thread, const_index(GROUP_THREADS))
            group = out.emit(simplify.sub(group, const_index(1)))
            _Group(self, rings, group, out.emit(member), outgoing).run()

    def _ring(self, array: Array, slots: int, depth: int, lines: int) -> _Ring:
        memory = self.out.allocate(array.dtype, slots * depth * lines, 1024)
        full, free = self.out.allocate(uint64, slots), self.out.allocate(uint64, slots)
        return _Ring(array, memory, full, free, depth, lines)

    def results(self, result: Node | None, rows: dict[int, dict[Node, Node]]) -> Tile:
        """What becomes of a tile's sums, with the values of folds for both halves of its rows."""
        stream = self.stream

        def known(position: Node, half: int) -> dict[Node, Node]:
            if result is None:
                return {}
            values = dict(rows[half])
            total: Node = PICK(result, position)
            for op, factor in stream.running.sums[stream.result][1]:
                total = op(total, _computed(factor, values))
            return values | {stream.result: total}

        return Tile(
            stream.cascade.stores,
            ((stream.row, self.rows),),
            ((stream.column, stream.columns),),
            stream.others,
            GROUP_ROWS,
            known,
        )

    # ---- tiles and blocks

    def tile(self, task: Node) -> tuple[dict[Node, Node], Node]:
        """The values of the ranges that are not tiled, and a tile's first row.

        The last rows come first: under a causal mask they have the most to do.
        """
        count = product(self.stream.others)
        turn = simplify.idiv(task, const_index(count))
        rest = simplify.mod(task, const_index(count))
        values: dict[Node, Node] = {}
        for range_ in reversed(self.stream.others):
            values[range_] = simplify.mod(rest, const_index(size(range_)))
            rest = simplify.idiv(rest, const_index(size(range_)))
        row = simplify.sub(const_index(self.row_tiles - 1), turn)
        return values, self.out.emit(simplify.scale(row, self.rows))

    def blocks(self, row: Node) -> tuple[Node, Node]:
        """How many blocks of keys need no mask in a tile, and how many the tile needs in all."""
        stream = self.stream
        length = size(stream.key)
        whole = const_index(length // stream.block)
        end = const_index(ceil_div(length, stream.block))
        for condition in self._conditions():
            limit = self._limit(condition)
            if limit is None:
                whole = const_index(0)
                continue
            step, bound = limit  # key < row * step + bound
            low = simplify.add(simplify.scale(row, step), const_index(bound))
            top = simplify.add(low, const_index(step * (self.rows - 1)))
            end = simplify.minimum(end, _blocks_up_to(top, stream.block))
            inside = simplify.maximum(low, const_index(0))
            whole = simplify.minimum(whole, simplify.idiv(inside, const_index(stream.block)))
        # One block at least, so that a row that nothing takes part in gets its NaN.
        end = self.out.emit(simplify.maximum(end, const_index(1)))
        return self.out.emit(simplify.minimum(whole, end)), end

    def _conditions(self) -> list[Node]:
        """The conditions under which scores count; elsewhere they are -inf."""
        found: list[Node] = []
        node = self.stream.running.score
        while _is_masked(node):
            found += simplify.conjuncts(node.src[0])
            node = node.src[1]
        return found

    def _limit(self, condition: Node) -> tuple[int, int] | None:
        """(step, bound) of a condition that says key < row * step + bound; None for others."""
        if condition.op not in (math.LT, math.LE):
            return None
        difference = simplify.sub(condition.src[0], condition.src[1])
        start, total = simplify.terms(difference)
        terms = dict(total)
        if terms.pop(self.stream.key, 0) != 1:
            return None
        step = -terms.pop(self.stream.row, 0)
        if terms or step not in (0, 1):
            return None
        return step, -start + (1 if condition.op is math.LE else 0)

    # ---- the feeder

    def _feed(self, rows: _Ring, keys: _Ring, values: _Ring) -> None:
        out = self.out
        turn = out.variable(const_index(1))
        counted = self.counter()
        with out.loop(self.tiles, Unit.THREAD) as task:
            others, row = self.tile(task)
            at = others | {self.stream.row: row}
            self._fill(rows, const_index(0), turn, at, self.stream.row)
            out.assign(turn, simplify.sub(const_index(1), turn))
            _, count = self.blocks(row)
            with out.loop(count) as block:
                key = simplify.scale(block, self.stream.block)
                at = others | {self.stream.key: key}
                slot, parity = self.place(simplify.add(cast(counted, index), block))
                waits = out.emit(simplify.sub(const_index(1), parity))
                self._fill(keys, slot, waits, at, self.stream.key)
                self._fill(values, slot, waits, at, self.stream.key)
            self.count(counted, count)

    def _fill(
        self, ring: _Ring, slot: Node, parity: Node, at: dict[Node, Node], lines: Node
    ) -> None:
        """Fill a slot: boxes of 64 columns and as many lines as the slot has."""
        out, array = self.out, ring.array
        wait = out.emit(SIGNAL_WAIT(INDEX(ring.free, slot), parity))
        full = out.emit(INDEX(ring.full, slot))
        out.emit(SIGNAL_EXPECT(full, wait, attrs=CountAttrs(ring.slot_bytes)))
        attrs = array.boxed({array.ranges[0]: self.width, lines: ring.lines}, ROW_BYTES)
        for part in range(ring.depth // self.width):
            start = const_index(part * self.width)
            place = simplify.add(
                simplify.scale(slot, ring.slot_elements),
                const_index(part * self.width * ring.lines),
            )
            coordinates = [
                start if position == 0 else at[range_]
                for position, range_ in enumerate(array.ranges)
            ]
            boxed = BOXED(array.param, attrs=attrs)
            out.emit(COPY_BOX(INDEX(ring.memory, place), boxed, full, *coordinates))

    def counter(self) -> Node:
        """A variable that counts blocks, as far as slots and phases need to know."""
        return self.out.variable(const(0, uint16))

    def count(self, counter: Node, more: Node) -> None:
        """Count more blocks; it never comes back to 0."""
        total = simplify.add(cast(counter, index), simplify.sub(more, const_index(1)))
        rest = simplify.mod(total, const_index(2 * self.stream.slots))
        self.out.assign(counter, cast(simplify.add(rest, const_index(1)), uint16))

    def place(self, turn: Node) -> tuple[Node, Node]:
        """The slot of a block, by how many were before it, and the parity of its phase."""
        slots = const_index(self.stream.slots)
        phase = simplify.idiv(turn, slots)
        parity = self.out.emit(simplify.mod(phase, const_index(2)))
        return self.out.emit(simplify.mod(turn, slots)), parity


def _blocks_up_to(limit: Node, block: int) -> Node:
    """The blocks that hold the keys below a limit."""
    positive = simplify.maximum(limit, const_index(0))
    return simplify.idiv(simplify.add(positive, const_index(block - 1)), const_index(block))


def _computed(root: Node, known: dict[Node, Node]) -> Node:
    """`root` from the values that are known."""
    done = dict(known)
    return substitute_ranges(root, {}, {}, done)


class _Group:
    """What one warp group does for all tiles."""

    def __init__(
        self,
        emission: _Emission,
        rings: tuple[_Ring, _Ring, _Ring],
        group: Node,
        member: Node,
        outgoing: Node | None,
    ) -> None:
        self.emission = emission
        self.out = emission.out
        self.stream = emission.stream
        self.rings = rings
        self.group = group
        self.member = member
        self.outgoing = outgoing
        out = self.out
        self.leads = out.emit(simplify.equal(member, const_index(0)))
        self.counted = emission.counter()
        lane = simplify.mod(member, const_index(32))
        warp = simplify.idiv(member, const_index(32))
        self.line = out.emit(
            simplify.add(simplify.scale(warp, 16), simplify.idiv(lane, const_index(4)))
        )
        self.pair = out.emit(simplify.scale(simplify.mod(lane, const_index(4)), 2))

    def run(self) -> None:
        out, stream, emission = self.out, self.stream, self.emission
        turn = out.variable(const_index(0))
        rows_ring = self.rings[0]
        with out.loop(emission.tiles, Unit.THREAD) as task:
            values, row = emission.tile(task)
            whole, count = emission.blocks(row)
            out.emit(SIGNAL_WAIT(INDEX(rows_ring.full, const_index(0)), turn))
            out.assign(turn, simplify.sub(const_index(1), turn))
            result = self._zeros(stream.columns)
            most = [out.variable(const(float("-inf"), float32)) for _ in (0, 1)]
            total = [out.variable(const(0.0, float32)) for _ in (0, 1)]
            below = simplify.add(row, simplify.scale(self.group, GROUP_ROWS))
            lines = [
                out.emit(simplify.add(simplify.add(below, self.line), const_index(8 * half)))
                for half in (0, 1)
            ]
            scores = self._zeros(self.stream.block)
            state = _State(values, lines, result, scores, most, total)
            self._start(state, const_index(0), task)
            first_scores = out.emit(MATRIX_WAIT(scores, task, attrs=CountAttrs(0)))
            self._finish_scores(const_index(0), first_scores)
            with out.loop(simplify.sub(count, const_index(1))) as block:
                self._block(state, block, whole)
            last = out.emit(simplify.sub(count, const_index(1)))
            done = self._last_block(state, last, whole)
            emission.count(self.counted, count)
            with out.when(self.leads):
                out.emit(SIGNAL_ARRIVE(INDEX(rows_ring.free, const_index(0)), done))
            known = {half: self._row_values(state, half) for half in (0, 1)}
            starts = values | {stream.row: row, stream.column: const_index(0)}
            place = Place(self.group, self.member, self.leads, starts, done)
            write_results(out, emission.results(result, known), place, self.outgoing)
        if self.outgoing is not None:
            with out.when(self.leads):
                out.emit(STORE_BOX_WAIT(self.leads, attrs=CountAttrs(0)))

    @property
    def used(self) -> Node:
        """The number of a tile's first block: 0 for the first tile of all alone."""
        return cast(self.counted, index)

    def _zeros(self, columns: int) -> Node:
        lanes = LanesAttrs(GROUP_ROWS * columns // GROUP_THREADS)
        return self.out.variable(BROADCAST(const(0.0, float32), attrs=lanes))

    def _row_values(self, state: _State, half: int) -> dict[Node, Node]:
        """The folds of a row as they are in the end."""
        stream = self.stream
        fold = FoldAttrs(Fold.ADD)
        values: dict[Node, Node] = {stream.running.most: state.most[half]}
        for node, (value, outside) in stream.running.sums.items():
            if value is stream.running.term:
                found = self.out.emit(FOLD_QUAD(state.total[half], attrs=fold))
                for op, factor in outside:
                    found = op(found, _computed(factor, values))
                values[node] = found
        return values

    # ---- one block of keys: its weights, while the product of the block before goes on

    def _start(self, state: _State, turn: Node, after: Node) -> None:
        """Start the product that the scores of a block come from."""
        rows, keys, _ = self.rings
        slot, parity = self.emission.place(simplify.add(self.used, turn))
        wait = self.out.emit(SIGNAL_WAIT(INDEX(keys.full, slot), parity, after))
        begin = self.out.emit(MATRIX_BEGIN(wait))
        self._score(state.scores, rows, keys, slot, begin)
        self.out.emit(MATRIX_COMMIT(begin))

    def _finish_scores(self, turn: Node, done: Node) -> None:
        """The scores of a block are there: hand its keys back."""
        keys = self.rings[1]
        slot, _ = self.emission.place(simplify.add(self.used, turn))
        with self.out.when(self.leads):
            self.out.emit(SIGNAL_ARRIVE(INDEX(keys.free, slot), done))

    def _finish_values(self, turn: Node, done: Node) -> None:
        """The last product with values is done: hand them back, if there was one.

        It may be that of the tile before: so all blocks are alike but the very first.
        """
        values = self.rings[2]
        at = simplify.add(self.used, turn)
        slot, _ = self.emission.place(simplify.add(at, const_index(2 * self.stream.slots - 1)))
        there = simplify.less(const_index(0), at)
        with self.out.when(simplify.both(self.leads, there)):
            self.out.emit(SIGNAL_ARRIVE(INDEX(values.free, slot), done))

    def _block(self, state: _State, turn: Node, whole: Node) -> None:
        """All of a block but the last one, and the start of the next."""
        out = self.out
        following = out.emit(simplify.add(turn, const_index(1)))
        factors = self._weigh(state, turn, whole)
        pairs = self._settle(state, turn)
        self._start(state, following, turn)
        self._rescale(state, factors)
        self._mix(state.result, pairs, turn, following)
        done = out.emit(MATRIX_WAIT(state.scores, turn, attrs=CountAttrs(1)))
        self._finish_scores(following, done)

    def _last_block(self, state: _State, turn: Node, whole: Node) -> Node:
        """The last block; returns the statement after which the results are there."""
        factors = self._weigh(state, turn, whole)
        pairs = self._settle(state, turn)
        self._rescale(state, factors)
        self._mix(state.result, pairs, turn, turn)
        return self.out.emit(MATRIX_WAIT(state.result, attrs=CountAttrs(0)))

    def _settle(self, state: _State, turn: Node) -> list[Node]:
        """Wait for the product of the block before; returns the weights in pairs."""
        out = self.out
        settled = out.emit(MATRIX_WAIT(state.result, turn, attrs=CountAttrs(0)))
        self._finish_values(turn, settled)
        attrs = PairAttrs(self.rings[2].array.dtype)
        picks = [PICK(state.scores, const_index(i)) for i in range(self.stream.block // 2)]
        return [out.emit(PAIR(*picks[i : i + 2], attrs=attrs)) for i in range(0, len(picks), 2)]

    def _rescale(self, state: _State, factors: list[Node]) -> None:
        out = self.out
        with out.loop(self.stream.columns // 8, Unit.UNROLL) as eighth:
            for element in range(4):
                at = simplify.add(simplify.scale(eighth, 4), const_index(element))
                scaled = math.MUL(PICK(state.result, at), factors[element // 2])
                out.emit(PUT(state.result, at, scaled))

    def _score(self, scores: Node, rows: _Ring, keys: _Ring, at: Node, begin: Node) -> None:
        width = self.emission.width
        mine = simplify.scale(self.group, GROUP_ROWS * width)
        slot = simplify.scale(at, keys.slot_elements)
        for position in range(0, size(self.stream.inner), 16):
            part, inside = divmod(position, width)
            a = simplify.add(mine, const_index(part * width * rows.lines + inside))
            b = simplify.add(slot, const_index(part * width * keys.lines + inside))
            attrs = MatrixAttrs(
                GROUP_ROWS, self.stream.block, 16, True, 0, True, 0, is_first=not position
            )
            operands = INDEX(rows.memory, a), INDEX(keys.memory, b)
            self.out.assign(scores, MATRIX(scores, *operands, begin, attrs=attrs))

    def _mix(self, result: Node, pairs: list[Node], turn: Node, after: Node) -> None:
        """Start to add the product of the weights and a block's values."""
        out, values = self.out, self.rings[2]
        at, parity = self.emission.place(simplify.add(self.used, turn))
        ready = out.emit(SIGNAL_WAIT(INDEX(values.full, at), parity, after))
        begin = out.emit(MATRIX_BEGIN(ready, result))
        columns, width = self.stream.columns, self.emission.width
        chunk = width * values.lines * values.array.dtype.itemsize
        attrs = HeldAttrs(GROUP_ROWS, columns, 16, False, chunk)
        slot = simplify.scale(at, values.slot_elements)
        for sixteen in range(self.stream.block // 16):
            held = pairs[4 * sixteen : 4 * sixteen + 4]
            start = simplify.add(slot, const_index(16 * sixteen * width))
            address = INDEX(values.memory, start)
            out.assign(result, MATRIX_HELD(result, address, *held, begin, attrs=attrs))
        out.emit(MATRIX_COMMIT(begin))

    def _weigh(self, state: _State, turn: Node, whole: Node) -> list[Node]:
        """Replace scores by weights; returns what sums of earlier blocks are multiplied by."""
        out, none, scores = self.out, const_index(0), state.scores
        key = out.emit(simplify.scale(turn, self.stream.block))
        left = simplify.sub(whole, turn)  # blocks that no mask cuts, this one included
        most = [out.variable(const(float("-inf"), float32)) for _ in (0, 1)]
        with out.when(simplify.less(none, left)):
            self._scale(state, scores, key, most, masked=False)
        with out.when(simplify.at_least(none, left)):
            self._scale(state, scores, key, most, masked=True)
        references, factors = [], []
        _, scale = factored(self.stream.running.score)
        low = const(float("-inf"), float32)
        for half in (0, 1):
            top = math.MUL(FOLD_QUAD(most[half], attrs=FoldAttrs(Fold.MAX)), scale)
            raised = out.emit(math.MAXIMUM(state.most[half], top))
            is_empty = math.EQ(raised, low)
            reference = out.emit(math.WHERE(is_empty, const(0.0, float32), raised))
            before = math.MUL(math.SUB(state.most[half], reference), LOG2_E)
            factors.append(out.emit(POWER_OF_TWO(before)))
            references.append(reference)
            out.assign(state.most[half], raised)
            out.assign(state.total[half], math.MUL(state.total[half], factors[half]))
        with out.loop(self.stream.block // 8, Unit.UNROLL) as eighth:
            for element in range(4):
                at = simplify.add(simplify.scale(eighth, 4), const_index(element))
                raised = exponent(PICK(scores, at), scale, references[element // 2])
                weight = out.emit(POWER_OF_TWO(raised))
                out.emit(PUT(scores, at, weight))
                total = state.total[element // 2]
                out.assign(total, math.ADD(total, weight))
        return factors

    def _scale(
        self, state: _State, scores: Node, key: Node, most: list[Node], *, masked: bool
    ) -> None:
        """Turn sums of products into scores without their factor, and find the greatest ones."""
        out = self.out
        with out.loop(self.stream.block // 8, Unit.UNROLL) as eighth:
            for element in range(4):
                at = simplify.add(simplify.scale(eighth, 4), const_index(element))
                score = self._score_of(state, scores, at, (eighth, key), element, masked=masked)
                score = out.emit(score)
                out.emit(PUT(scores, at, score))
                top = most[element // 2]
                out.assign(top, math.MAXIMUM(top, score))

    def _score_of(
        self,
        state: _State,
        scores: Node,
        at: Node,
        where: tuple[Node, Node],
        element: int,
        *,
        masked: bool,
    ) -> Node:
        """The score of one element, from its sum of products."""
        stream = self.stream
        eighth, key = where
        column = simplify.add(simplify.add(key, self.pair), simplify.scale(eighth, 8))
        column = simplify.add(column, const_index(element % 2))
        line, place = state.lines[element // 2], column
        if self.emission.loads:
            # What is loaded for a score is so inside of its array alone.
            line = simplify.minimum(line, const_index(size(stream.row) - 1))
            place = simplify.minimum(place, const_index(size(stream.key) - 1))
        ranges = state.values | {stream.row: line, stream.key: place}
        root, _ = factored(stream.running.score)
        memo: dict[Node, Node] = {stream.scores: PICK(scores, at)}
        if not masked:
            root = _without_masks(root)
        found = substitute_ranges(root, ranges, {}, memo)
        length = size(stream.key)
        if masked and length % self.stream.block:
            inside = simplify.less(column, const_index(length))
            found = math.WHERE(inside, found, const(float("-inf"), float32))
        return found


def _is_masked(score: Node) -> bool:
    """Is this a score where a condition holds, and -inf elsewhere?"""
    return score.op is math.WHERE and score.src[2] is const(float("-inf"), float32)


def _without_masks(score: Node) -> Node:
    """The score where all conditions hold."""
    while _is_masked(score):
        score = score.src[1]
    return score


@dataclass(frozen=True, slots=True)
class _State:
    """What a group carries from block to block."""

    values: dict[Node, Node]
    lines: list[Node]
    result: Node
    scores: Node
    most: list[Node]
    total: list[Node]
