"""The statements of a chain: products, what is computed from them, and products of that.

A feed brings the arrays of a tile's rows once, then those that run along the key, block by block,
through slots (`group_feed` and `warp_feed`).  Groups of threads compute, each its own rows
(`chain_group`):

    first = rows x keys, second = rows' x keys'     all started at once
    as soon as one is there: what stays of it       in its registers
    sum += factor x values                          of warp groups while the next block begins

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
from tilework.codegen.matrix.chain_group import ChainGroup
from tilework.codegen.matrix.chain_values import ChainValues
from tilework.codegen.matrix.exchange import Tile, stagings
from tilework.codegen.matrix.feed import Supply
from tilework.codegen.matrix.feeds import feed_for
from tilework.codegen.matrix.writer import Writer
from tilework.codegen.plan.extents import ceil_div, product, size
from tilework.ir.build import const_index
from tilework.ir.node import toposort
from tilework.ir.ops import math
from tilework.ir.ops.matrix import PICK
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilework.codegen.matrix.chain import Chain
    from tilework.codegen.matrix.feed import Feed
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

_ZERO = const_index(0)


def lower_chain(chain: Chain, target: TargetSpec) -> Node:
    """The statements of a chain."""
    out = Writer(target)
    ChainWork(chain, out).write()
    return out.linear()


@dataclass(frozen=True, slots=True)
class Blocks:
    """Which blocks of the key a tile needs, and between which ones nothing is masked."""

    first: Node
    whole_first: Node
    whole_end: Node
    end: Node


class ChainWork:
    """The tiles of a chain, and the blocks of each."""

    def __init__(self, chain: Chain, out: Writer) -> None:
        self.chain = chain
        self.out = out
        self.block = chain.block
        self.key = chain.key
        self.rows = chain.crew.rows
        self.row_tiles = ceil_div(size(chain.row), self.rows)
        self.tiles = self.row_tiles * product(chain.others)
        self.values = ChainValues(chain)
        self.of_positions = tuple(self.values.of_positions)

    def write(self) -> None:
        """All that a block of threads does."""
        chain = self.chain
        supplies = (
            Supply(tuple(chain.held), chain.row, self.rows, 1, is_held=True),
            Supply(tuple(chain.moving), chain.key, self.block, chain.slots),
        )
        feed = feed_for(self.out, self, chain.crew, supplies)
        stores = chain.cascade.stores if chain.sums else ()
        tiles = [self.results(number, []) for number in range(len(stores))]
        feed.outgoing = stagings(self.out, tiles, chain.crew)
        feed.write(self._start)

    def _start(self, feed: Feed) -> Callable[[Node], None]:
        return ChainGroup(self, feed).tile

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

    def span(self, row: Node) -> tuple[Node, Node]:
        """The first block of a tile, and how many there are."""
        blocks = self.blocks(row)
        return blocks.first, self.out.emit(simplify.sub(blocks.end, blocks.first))

    # ---- results

    def results(self, number: int, sums: list[Node]) -> Tile:
        """What becomes of the sums in one of the stores."""
        chain = self.chain
        store = chain.cascade.stores[number]
        inside = [i for i, each in enumerate(chain.sums) if each.node in toposort(store)]
        first = chain.sums[inside[0]]

        def known(position: Node, half: int) -> dict[Node, Node]:
            return {chain.sums[i].node: PICK(sums[i], position) for i in inside if sums}

        return Tile(
            (store,),
            ((chain.row, self.rows),),
            ((first.column, chain.crew.columns(first.columns)),),
            chain.others,
            chain.crew.group_rows,
            known,
        )
