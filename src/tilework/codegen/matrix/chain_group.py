"""What one group of threads does for all tiles of a chain; see `chain_lower`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.records import dataclass, field
from tilework.codegen.analysis import substitute_ranges
from tilework.codegen.matrix.chain_values import LOG2_E, exponent, factored
from tilework.codegen.matrix.epilogue import Place, write_results
from tilework.codegen.matrix.group import Group
from tilework.codegen.plan.extents import size
from tilework.dtypes import float32
from tilework.ir.build import const, const_index
from tilework.ir.ops import math
from tilework.ir.ops.control import FoldAttrs
from tilework.ir.ops.index import Unit
from tilework.ir.ops.matrix import FOLD_QUAD, PAIR, PICK, POWER_OF_TWO, PUT, PairAttrs
from tilework.ir.ops.memory import INDEX, LOAD
from tilework.ir.ops.tensor import Fold
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilework.codegen.matrix.chain import Product, Sum
    from tilework.codegen.matrix.chain_lower import Blocks, ChainWork
    from tilework.codegen.matrix.feed import Feed
    from tilework.ir.node import Node

#: The supplies of a chain.
_HELD, _MOVING = range(2)
_ZERO = const_index(0)
_LOWEST, _NOTHING = const(float("-inf"), float32), const(0.0, float32)


@dataclass(frozen=True, slots=True)
class _State:
    """What a group has of a tile.

    Attributes:
        values: The values of the ranges that are not tiled.
        lines: The two rows that a thread has a part of.
        of_rows: What is fixed for each of them.
        found: The accumulators of the products.
        sums: Those of the sums.
        most, totals: The running maximum and sums of both rows.
    """

    values: dict[Node, Node]
    lines: list[Node]
    of_rows: list[dict[Node, Node]]
    found: list[Node]
    sums: list[Node]
    most: list[Node] = field(default_factory=list)
    totals: dict[Node, list[Node]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Block:
    """One block: its number in the tile, its slot, its first position, where its values stand.

    `is_masked` is 1 where a mask, or the end of the key, may hide some of its positions.
    """

    turn: Node
    slot: Node
    key: Node
    staged: Node
    is_masked: Node


class ChainGroup(Group):
    """The statements of a group.

    Args:
        work: The chain's tiles.
        feed: What brings their arrays.
    """

    def __init__(self, work: ChainWork, feed: Feed) -> None:
        super().__init__(feed)
        self.work = work
        self.chain = work.chain
        self.values = work.values

    def tile(self, task: Node) -> None:
        """One tile."""
        out, chain, work, feed = self.out, self.chain, self.work, self.feed
        values, row = work.tile(task)
        blocks = work.blocks(row)
        state = self._start(values, row)
        count = out.emit(simplify.sub(blocks.end, blocks.first))
        held = feed.begin_tile(values, row, (blocks.first, count))
        with out.loop(count) as block:
            self._block(state, block, blocks, held)
        done = feed.wait(*state.sums, task, count=0)
        if chain.sums and not chain.settles:
            feed.release(_MOVING, count, done, simplify.less(_ZERO, count), is_before=True)
        feed.end_tile(count, done)
        if chain.running is None:
            self._write_sums(state, row, done)
        else:
            self._write_folds(state)

    def _start(self, values: dict[Node, Node], row: Node) -> _State:
        """Accumulators, and what is fixed for the rows of a tile."""
        out, chain = self.out, self.chain
        lines, of_rows = self.lines_of(row), []
        last = const_index(size(chain.row) - 1)
        for line in lines:
            # Rows outside are computed like the last one, and stored nowhere.
            inside = simplify.minimum(line, last)
            at = values | {chain.row: inside}
            memo: dict[Node, Node] = {}
            fixed = {n: substitute_ranges(n, at, {}, memo) for n in self.values.of_rows}
            of_rows.append({node: out.emit(value) for node, value in fixed.items()})
        found = [self.zeros(chain.block) for _ in chain.products]
        sums = [self.zeros(chain.crew.columns(each.columns)) for each in chain.sums]
        state = _State(values, lines, of_rows, found, sums)
        if chain.running is not None:
            state.most.extend(out.variable(_LOWEST) for _ in (0, 1))
            for fold in chain.running.sums:
                state.totals[fold] = [out.variable(_NOTHING) for _ in (0, 1)]
        return state

    # ---- one block

    def _block(self, state: _State, turn: Node, blocks: Blocks, held: Node) -> None:
        out, chain, feed = self.out, self.chain, self.feed
        feed.begin_block(turn)
        slot, wait = feed.ready(_MOVING, turn, held, turn)
        for each, found in zip(chain.products, state.found, strict=True):
            begin = feed.begin(wait)
            self._multiply(each, found, slot, begin)
            wait = feed.commit(begin)
        number = out.emit(simplify.add(blocks.first, turn))
        key = out.emit(simplify.scale(number, chain.block))
        from_first = simplify.at_least(number, blocks.whole_first)
        is_whole = simplify.both(from_first, simplify.less(number, blocks.whole_end))
        masked = out.emit(simplify.where(is_whole, _ZERO, const_index(1)))
        staged = out.emit(simplify.scale(slot, chain.block))
        block = _Block(turn, slot, key, staged, masked)
        if chain.running is None:
            self._sum(state, block)
        else:
            self._fold(state, block)
        feed.end_block()

    def _sum(self, state: _State, block: _Block) -> None:
        """What stays of a block's products, and its part of the sums."""
        chain, feed, turn = self.chain, self.feed, block.turn
        for stage in range(len(chain.products)):
            waiting = len(chain.products) - 1 - stage
            done = feed.wait(*state.found[: stage + 1], turn, count=waiting)
            if not stage and not chain.settles:
                was_one = simplify.less(_ZERO, turn)
                feed.release(_MOVING, turn, done, was_one, is_before=True)
            self._keep(state, block, stage)
        if chain.crew.is_warps:
            for last, total in zip(chain.sums, state.sums, strict=True):
                self._mix(block, last, total, self._pairs(state, block, last))
            return
        # Factors are held in registers, which nothing may write while a product is on its way: the
        # machine would do one product after the other.
        pairs = [self._pairs(state, block, each) for each in chain.sums]
        feed.end_positions(turn)
        for last, total, own in zip(chain.sums, state.sums, pairs, strict=True):
            self._mix(block, last, total, own)
        if chain.settles:
            done = feed.wait(*state.sums, turn, count=0)
            feed.release(_MOVING, turn, done, simplify.TRUE)

    def _multiply(self, each: Product, found: Node, slot: Node, begin: Node) -> None:
        """Start a product of the tile's rows and a block."""
        feed = self.feed
        factors = feed.slots_of(_HELD, each.row), feed.slots_of(_MOVING, each.key)
        feed.multiply(found, factors, slot, size(each.inner), begin)

    def _each(self, block: _Block, put: Callable[[Node, int, bool], None]) -> None:
        """Do something for each element of a block, with or without its mask."""
        out, chain = self.out, self.chain
        may_mask = chain.mask is not None or size(chain.key) % chain.block
        for is_masked in (False, True) if may_mask else (False,):
            condition = simplify.equal(block.is_masked, const_index(int(is_masked)))
            gate = condition if may_mask else simplify.TRUE
            with out.when(gate), out.loop(chain.block // 8, Unit.UNROLL) as eighth:
                for element in range(4):
                    put(eighth, element, is_masked)

    def _value(
        self,
        root: Node,
        state: _State,
        block: _Block,
        where: tuple[Node, int],
        known: dict[Node, Node],
    ) -> Node:
        """A value for one of the four elements that a thread has in eight positions."""
        eighth, element = where
        chain = self.chain
        offset = self.column_of(eighth, element)
        half = element // 2
        line, position = state.lines[half], simplify.add(block.key, offset)
        if self.values.loads_elements:
            # What is loaded for an element is so inside of its array alone.
            line = simplify.minimum(line, const_index(size(chain.row) - 1))
            position = simplify.minimum(position, const_index(size(chain.key) - 1))
        ranges = state.values | {chain.row: line, chain.key: position}
        memo = known | state.of_rows[half]
        for node in self.values.of_positions:
            place = simplify.add(block.staged, offset)
            memo[node] = LOAD(INDEX(self.feed.staged[node], place))
        return substitute_ranges(root, ranges, {}, memo)

    def _inside(self, block: _Block, eighth: Node, element: int) -> Node:
        """Is a position within the key?"""
        offset = self.column_of(eighth, element)
        position = simplify.add(block.key, offset)
        return simplify.less(position, const_index(size(self.chain.key)))

    def _keep(self, state: _State, block: _Block, stage: int) -> None:
        """Replace the elements of a product by what stays of them."""
        stays, chain = self.values.stays, self.chain
        plain = self.values.without_mask(stays[stage], stays[:stage])

        def put(eighth: Node, element: int, is_masked: bool) -> None:
            at = simplify.add(simplify.scale(eighth, 4), const_index(element))
            known = {stays[i]: PICK(state.found[i], at) for i in range(stage)}
            known[chain.products[stage].node] = PICK(state.found[stage], at)
            root = stays[stage] if is_masked else plain
            value = self._value(root, state, block, (eighth, element), known)
            if is_masked and size(chain.key) % chain.block:
                value = math.WHERE(self._inside(block, eighth, element), value, _NOTHING)
            self.out.emit(PUT(state.found[stage], at, self.out.emit(value)))

        self._each(block, put)

    def _pairs(self, state: _State, block: _Block, each: Sum) -> list[Node]:
        """The elements of a factor, two by two."""
        out, chain = self.out, self.chain
        factor = self.values.factors[chain.sums.index(each)]
        stays = self.values.stays
        found: list[Node] = []
        for place in range(chain.crew.sums(chain.block)):
            at = const_index(place)
            known = {stays[i]: PICK(state.found[i], at) for i in range(each.stage + 1)}
            where = (const_index(place // 4), place % 4)
            found.append(out.emit(self._value(factor, state, block, where, known)))
        attrs = PairAttrs(each.values.dtype)
        return [out.emit(PAIR(*found[i : i + 2], attrs=attrs)) for i in range(0, len(found), 2)]

    def _mix(self, block: _Block, each: Sum, total: Node, pairs: list[Node]) -> None:
        """Start to add the product of a factor, held in registers, and a block of values."""
        feed = self.feed
        begin = feed.begin(*pairs[:1], block.turn)
        feed.mix(total, feed.slots_of(_MOVING, each.values), block.slot, pairs, begin)
        feed.commit(begin)

    # ---- folds of rows

    def _fold(self, state: _State, block: _Block) -> None:
        """A block's part of the running maximum and sums of each row."""
        out, chain, values = self.out, self.chain, self.values
        running, score = chain.running, values.score
        if running is None or score is None:
            return
        first = state.found[0]
        done = self.feed.wait(first, block.turn, count=len(chain.products) - 1)
        tops = [out.variable(_LOWEST) for _ in (0, 1)]
        raw, factor = factored(score)
        plain = values.without_mask(raw)

        def put(eighth: Node, element: int, is_masked: bool) -> None:
            at = simplify.add(simplify.scale(eighth, 4), const_index(element))
            known = {chain.products[0].node: PICK(first, at)}
            root = raw if is_masked else plain
            found = self._value(root, state, block, (eighth, element), known)
            if is_masked and size(chain.key) % chain.block:
                found = math.WHERE(self._inside(block, eighth, element), found, _LOWEST)
            found = out.emit(found)
            out.emit(PUT(first, at, found))
            out.assign(tops[element // 2], math.MAXIMUM(tops[element // 2], found))

        self._each(block, put)
        references = self._raise(state, tops, factor)
        own = [fold for fold, (value, _) in running.sums.items() if value is running.term]
        with out.loop(chain.block // 8, Unit.UNROLL) as eighth:
            for element in range(4):
                at = simplify.add(simplify.scale(eighth, 4), const_index(element))
                raised = exponent(PICK(first, at), factor, references[element // 2])
                weight = out.emit(POWER_OF_TWO(raised))
                out.emit(PUT(first, at, weight))
                for fold in own:
                    total = state.totals[fold][element // 2]
                    out.assign(total, math.ADD(total, weight))
        if values.added:
            done = self.feed.wait(*state.found[1:], block.turn, count=0)
            self._add(state, block)
        self.feed.end_positions(block.turn)
        self.feed.release(_MOVING, block.turn, done, simplify.TRUE)

    def _raise(self, state: _State, tops: list[Node], factor: Node) -> list[Node]:
        """Raise the maximum of each row; returns what terms are taken against.

        `tops` are the greatest scores of the block, without their `factor`.
        """
        out = self.out
        references = []
        for half in (0, 1):
            top = math.MUL(FOLD_QUAD(tops[half], attrs=FoldAttrs(Fold.MAX)), factor)
            raised = out.emit(math.MAXIMUM(state.most[half], top))
            is_empty = math.EQ(raised, _LOWEST)
            reference = out.emit(math.WHERE(is_empty, _NOTHING, raised))
            before = math.MUL(math.SUB(state.most[half], reference), LOG2_E)
            rescaling = out.emit(POWER_OF_TWO(before))
            references.append(reference)
            out.assign(state.most[half], raised)
            for total in state.totals.values():
                out.assign(total[half], math.MUL(total[half], rescaling))
        return references

    def _add(self, state: _State, block: _Block) -> None:
        """Add what needs further products to the sums of rows."""
        out, chain, running = self.out, self.chain, self.chain.running
        if running is None:
            return
        with out.loop(chain.block // 8, Unit.UNROLL) as eighth:
            for element in range(4):
                at = simplify.add(simplify.scale(eighth, 4), const_index(element))
                known = {running.term: PICK(state.found[0], at)}
                for product, found in zip(chain.products[1:], state.found[1:], strict=True):
                    known[product.node] = PICK(found, at)
                for fold, root in self.values.added.items():
                    value = self._value(root, state, block, (eighth, element), known)
                    total = state.totals[fold][element // 2]
                    more = value.src if value.op is math.MUL else None
                    out.assign(total, math.MULACC(*more, total) if more else math.ADD(total, value))

    # ---- results

    def _write_sums(self, state: _State, row: Node, done: Node) -> None:
        """Store what becomes of the sums."""
        chain, feed = self.chain, self.feed
        for number in range(len(chain.cascade.stores)):
            tile = self.work.results(number, state.sums)
            starts = state.values | {chain.row: row, tile.column_parts[0][0]: _ZERO}
            place = Place(feed.group, feed.member, feed.leads, starts, done)
            write_results(self.out, tile, place, feed.outgoing[number])

    def _write_folds(self, state: _State) -> None:
        """Store what becomes of the folds."""
        out, chain, running = self.out, self.chain, self.chain.running
        if running is None:
            return
        fold = FoldAttrs(Fold.ADD)
        known: dict[int, dict[Node, Node]] = {}
        for half in (0, 1):
            values = known[half] = {running.most: state.most[half]}
            for node, (_, outside) in running.sums.items():
                found = out.emit(FOLD_QUAD(state.totals[node][half], attrs=fold))
                for op, factor in outside:
                    found = op(found, substitute_ranges(factor, {}, {}, dict(values)))
                values[node] = out.emit(found)
        lines = (chain.row, state.lines)
        self.write_rows(chain.cascade.stores, lines, state.values, known)
