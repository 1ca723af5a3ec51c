"""Cascades in one pass on matrix units: scores, their maximum, weights, and what they weigh.

A block of threads has a tile of rows.  A feed brings the tile's rows once, then for each block of
keys the factors of the scores and of the last product, through slots of each (`group_feed` and
`warp_feed`).  Groups of threads, each with its own rows, compute (`stream_group`):

    scores = rows x keys                                 sums in registers
    most' = max(most, max over the block's scores)       a row is held by four threads
    weights = 2**((scores - most') log2(e))
    total = total * f + sum of weights,  f = 2**((most - most') log2(e))
    result = result * f + weights x values               weights stay in registers

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

from tilework.codegen.matrix.exchange import Tile, stagings
from tilework.codegen.matrix.feed import Supply
from tilework.codegen.matrix.feeds import feed_for
from tilework.codegen.matrix.stream_group import StreamGroup, computed, is_masked
from tilework.codegen.matrix.writer import Writer
from tilework.codegen.plan.extents import ceil_div, product, size
from tilework.ir.build import const_index
from tilework.ir.ops import math
from tilework.ir.ops.matrix import PICK
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilework.codegen.matrix.feed import Feed
    from tilework.codegen.matrix.stream import Stream
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec


def lower_stream(stream: Stream, target: TargetSpec) -> Node:
    """The statements of a cascade in one pass."""
    out = Writer(target)
    StreamWork(stream, out).write()
    return out.linear()


class StreamWork:
    """The tiles of a stream, and the blocks of each."""

    def __init__(self, stream: Stream, out: Writer) -> None:
        self.stream = stream
        self.out = out
        self.block = stream.block
        self.key = stream.key
        self.of_positions: tuple[Node, ...] = ()
        self.rows = stream.crew.rows
        self.row_tiles = ceil_div(size(stream.row), self.rows)
        self.tiles = self.row_tiles * product(stream.others)

    def write(self) -> None:
        """All that a block of threads does."""
        stream, slots = self.stream, self.stream.slots
        supplies = (
            Supply((stream.rows,), stream.row, self.rows, 1, is_held=True),
            Supply((stream.keys,), stream.key, stream.block, slots, ahead=1),
            Supply((stream.values,), stream.key, stream.block, slots),
        )
        feed = feed_for(self.out, self, stream.crew, supplies)
        feed.outgoing = stagings(self.out, [self.results(None, {})], stream.crew)
        feed.write(self._start)

    def _start(self, feed: Feed) -> Callable[[Node], None]:
        return StreamGroup(self, feed).tile

    def results(self, result: Node | None, rows: dict[int, dict[Node, Node]]) -> Tile:
        """What becomes of a tile's sums, with the values of folds for both halves of its rows."""
        stream = self.stream

        def known(position: Node, half: int) -> dict[Node, Node]:
            if result is None:
                return {}
            values = dict(rows[half])
            total: Node = PICK(result, position)
            for op, factor in stream.running.sums[stream.result][1]:
                total = op(total, computed(factor, values))
            return values | {stream.result: total}

        return Tile(
            tuple([store for store in stream.cascade.stores if store not in stream.of_rows]),
            ((stream.row, self.rows),),
            ((stream.column, stream.columns),),
            stream.others,
            stream.crew.group_rows,
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

    def span(self, row: Node) -> tuple[Node, Node]:
        """The first block of a tile, and how many there are."""
        return const_index(0), self.blocks(row)[1]

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
        while is_masked(node):
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


def _blocks_up_to(limit: Node, block: int) -> Node:
    """The blocks that hold the keys below a limit."""
    positive = simplify.maximum(limit, const_index(0))
    return simplify.idiv(simplify.add(positive, const_index(block - 1)), const_index(block))
