"""What one group of threads does for all tiles of a stream; see `stream_lower`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.records import dataclass
from tilework.codegen.analysis import substitute_ranges
from tilework.codegen.matrix.chain_values import LOG2_E, exponent, factored
from tilework.codegen.matrix.epilogue import Place, write_results
from tilework.codegen.matrix.group import Group
from tilework.codegen.plan.extents import size
from tilework.dtypes import float32
from tilework.ir.build import const, const_index
from tilework.ir.node import toposort_above
from tilework.ir.ops import math
from tilework.ir.ops.control import FoldAttrs
from tilework.ir.ops.index import Unit
from tilework.ir.ops.matrix import FOLD_QUAD, PAIR, PICK, POWER_OF_TWO, PUT, PairAttrs
from tilework.ir.ops.memory import LOAD
from tilework.ir.ops.tensor import Fold
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from tilework.codegen.matrix.feed import Feed
    from tilework.codegen.matrix.stream_lower import StreamWork
    from tilework.ir.node import Node

#: The supplies of a stream.
_ROWS, _KEYS, _VALUES = range(3)
_NONE, _ZERO = const_index(0), const(0.0, float32)
_LOWEST = const(float("-inf"), float32)


def computed(root: Node, known: dict[Node, Node]) -> Node:
    """`root` from the values that are known."""
    done = dict(known)
    return substitute_ranges(root, {}, {}, done)


class StreamGroup(Group):
    """The statements of a group.

    Args:
        work: The stream's tiles.
        feed: What brings their arrays.
    """

    def __init__(self, work: StreamWork, feed: Feed) -> None:
        super().__init__(feed)
        self.work = work
        self.stream = work.stream
        above = toposort_above([self.stream.running.score], {self.stream.scores})
        #: Is something loaded for each score: a mask, or what is added to it?
        self.loads = any(node.op is LOAD for node in above)

    def tile(self, task: Node) -> None:
        """One tile."""
        out, stream, work, feed = self.out, self.stream, self.work, self.feed
        values, row = work.tile(task)
        whole, count = work.blocks(row)
        feed.begin_tile(values, row, (_NONE, count))
        most = [out.variable(_LOWEST) for _ in (0, 1)]
        total = [out.variable(_ZERO) for _ in (0, 1)]
        result, scores = self.zeros(stream.columns), self.zeros(stream.block)
        state = _State(values, self.lines_of(row), result, scores, most, total)
        self._start(state, _NONE, task)
        first_scores = feed.wait(scores, task, count=0)
        feed.release(_KEYS, _NONE, first_scores, simplify.TRUE)
        last = out.emit(simplify.sub(count, const_index(1)))
        with out.loop(last) as block:
            self._block(state, block, whole)
        done = self._last_block(state, last, whole)
        feed.end_tile(count, done)
        known = {half: self._row_values(state, half) for half in (0, 1)}
        self.write_rows(stream.of_rows, (stream.row, state.lines), values, known)
        starts = values | {stream.row: row, stream.column: _NONE}
        place = Place(feed.group, feed.member, feed.leads, starts, done)
        write_results(out, work.results(result, known), place, feed.outgoing[0])

    def _row_values(self, state: _State, half: int) -> dict[Node, Node]:
        """The folds of a row as they are in the end."""
        stream = self.stream
        fold = FoldAttrs(Fold.ADD)
        values: dict[Node, Node] = {stream.running.most: state.most[half]}
        for node, (value, outside) in stream.running.sums.items():
            if value is stream.running.term:
                found = self.out.emit(FOLD_QUAD(state.total[half], attrs=fold))
                for op, factor in outside:
                    found = op(found, computed(factor, values))
                values[node] = found
        return values

    # ---- one block of keys: its weights, while the product of the block before goes on

    def _start(self, state: _State, turn: Node, after: Node) -> None:
        """Start the product that the scores of a block come from."""
        feed, stream = self.feed, self.stream
        slot, wait = feed.ready(_KEYS, turn, after)
        begin = feed.begin(wait)
        factors = feed.slots_of(_ROWS, stream.rows), feed.slots_of(_KEYS, stream.keys)
        feed.multiply(state.scores, factors, slot, size(stream.inner), begin)
        feed.commit(begin)

    def _block(self, state: _State, turn: Node, whole: Node) -> None:
        """All of a block but the last one, and the start of the next."""
        out, feed = self.out, self.feed
        feed.begin_block(turn)
        following = out.emit(simplify.add(turn, const_index(1)))
        factors = self._weigh(state, turn, whole)
        pairs = self._settle(state, turn)
        self._start(state, following, turn)
        self._rescale(state, factors)
        self._mix(state.result, pairs, turn, following)
        done = feed.wait(state.scores, turn, count=1)
        feed.release(_KEYS, following, done, simplify.TRUE)
        feed.end_block()

    def _last_block(self, state: _State, turn: Node, whole: Node) -> Node:
        """The last block; returns the statement after which the results are there."""
        self.feed.begin_block(turn, is_last=True)
        factors = self._weigh(state, turn, whole)
        pairs = self._settle(state, turn)
        self._rescale(state, factors)
        self._mix(state.result, pairs, turn, turn)
        done = self.feed.wait(state.result, count=0)
        self.feed.release(_VALUES, turn, done, simplify.TRUE)
        return done

    def _settle(self, state: _State, turn: Node) -> list[Node]:
        """Wait for the product of the block before; returns the weights in pairs."""
        out = self.out
        settled = self.feed.wait(state.result, turn, count=0)
        was_one = simplify.less(_NONE, turn)
        self.feed.release(_VALUES, turn, settled, was_one, is_before=True)
        attrs = PairAttrs(self.stream.values.dtype)
        count = self.feed.crew.sums(self.stream.block)
        picks = [PICK(state.scores, const_index(i)) for i in range(count)]
        return [out.emit(PAIR(*picks[i : i + 2], attrs=attrs)) for i in range(0, len(picks), 2)]

    def _rescale(self, state: _State, factors: list[Node]) -> None:
        out = self.out
        with out.loop(self.stream.columns // 8, Unit.UNROLL) as eighth:
            for element in range(4):
                at = simplify.add(simplify.scale(eighth, 4), const_index(element))
                scaled = math.MUL(PICK(state.result, at), factors[element // 2])
                out.emit(PUT(state.result, at, scaled))

    def _mix(self, result: Node, pairs: list[Node], turn: Node, after: Node) -> None:
        """Start to add the product of the weights and a block's values."""
        feed = self.feed
        slot, ready = feed.ready(_VALUES, turn, after)
        begin = feed.begin(ready, result)
        feed.mix(result, feed.slots_of(_VALUES, self.stream.values), slot, pairs, begin)
        feed.commit(begin)

    def _weigh(self, state: _State, turn: Node, whole: Node) -> list[Node]:
        """Replace scores by weights; returns what sums of earlier blocks are multiplied by."""
        out, none, scores = self.out, _NONE, state.scores
        key = out.emit(simplify.scale(turn, self.stream.block))
        left = simplify.sub(whole, turn)  # blocks that no mask cuts, this one included
        most = [out.variable(_LOWEST) for _ in (0, 1)]
        with out.when(simplify.less(none, left)):
            self._scale(state, scores, key, most, masked=False)
        with out.when(simplify.at_least(none, left)):
            self._scale(state, scores, key, most, masked=True)
        references, factors = [], []
        _, scale = factored(self.stream.running.score)
        low = _LOWEST
        for half in (0, 1):
            top = math.MUL(FOLD_QUAD(most[half], attrs=FoldAttrs(Fold.MAX)), scale)
            raised = out.emit(math.MAXIMUM(state.most[half], top))
            is_empty = math.EQ(raised, low)
            reference = out.emit(math.WHERE(is_empty, _ZERO, raised))
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
        column = simplify.add(key, self.column_of(eighth, element))
        line, place = state.lines[element // 2], column
        if self.loads:
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
            found = math.WHERE(inside, found, _LOWEST)
        return found


def is_masked(score: Node) -> bool:
    """Is this a score where a condition holds, and -inf elsewhere?"""
    return score.op is math.WHERE and score.src[2] is _LOWEST


def _without_masks(score: Node) -> Node:
    """The score where all conditions hold."""
    while is_masked(score):
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
