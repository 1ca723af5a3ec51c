"""The phases of a cascade: a small kernel for each value that is kept, then one for the stores.

A phase runs for one tile of rows.  The tile's number is the VARIABLE `%tile`, and the memories that
phases hand values on in are PARAMs above the kernel's own; `lower` replaces both.  So each phase is
an ordinary kernel, and gets the plan that it would get on its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilework.codegen.analysis import stride, substitute_ranges
from tilework.codegen.plan.extents import number, product, size
from tilework.ir.build import const_index
from tilework.ir.node import Node, toposort
from tilework.ir.ops.index import RANGE, VARIABLE, RangeAttrs, VariableAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.tensor import REDUCE
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from tilework.codegen.cascade.find import Cascade
    from tilework.target.spec import TargetSpec

TILE_NAME = "%tile"
#: Vectors of rows in a tile, the most first.
_VECTORS = (4, 3, 2, 1)


@dataclass(frozen=True, slots=True)
class Memory:
    """Where a kept value lies: the PARAM that phases know it by, its ranges, its size."""

    param: Node
    along: tuple[Node, ...]
    rows: int

    @property
    def count(self) -> int:
        """Elements."""
        return product(self.along) * self.rows


@dataclass(frozen=True, slots=True)
class Tile:
    """How the rows of a cascade are cut.

    Attributes:
        row: The range of which a tile holds several values; None for one row at a time.
        rows: Rows in a tile.
        count: Tiles in all.
    """

    row: Node | None
    rows: int
    count: int


def choose_tile(cascade: Cascade, target: TargetSpec) -> Tile:
    """Vectors run along the rows where memory, or a sum of products, has them side by side."""
    row = _row_range(cascade)
    if row is None:
        return Tile(None, 1, product(cascade.rows))
    others = product(range_ for range_ in cascade.rows if range_ is not row)
    lanes = max(target.vector_bits // 32, 1)
    limit = (target.l2_bytes or 1 << 19) // 2
    per_row = sum(product(cascade.along(node)) * node.type.dtype.itemsize for node in cascade.kept)
    rows = size(row)
    for vectors in _VECTORS:
        rows = min(vectors * lanes, size(row))
        tiles = -(-size(row) // rows) * others
        if rows * per_row <= limit and tiles >= 4 * target.cores:
            break
    return Tile(row, rows, -(-size(row) // rows) * others)


def _row_range(cascade: Cascade) -> Node | None:
    """The range of rows along which a tile is cut."""
    free = cascade.kernel.free
    for node in cascade.kept:
        if node.op is not REDUCE or not cascade.along(node) or len(node.src[0].src) != 2:
            continue
        a, b = node.src[0].src
        apart = free.mask[a] ^ free.mask[b]
        own = [range_ for range_ in cascade.rows if apart & free.bit(range_)]
        if own:
            return own[-1]
    for range_ in cascade.rows:
        for load in cascade.kernel.loads:
            if stride(load.src[0].src[1], range_) == 1 and cascade.along(load):
                return range_
    return None


class Phases:
    """Builds the kernels of a cascade.

    Args:
        cascade: What is kept.
        tile: How rows are cut.
        first_slot: The slot of the first memory, above those of the kernel.
    """

    def __init__(self, cascade: Cascade, tile: Tile, first_slot: int) -> None:
        self.cascade = cascade
        self.tile = tile
        self.memories: dict[Node, Memory] = {}
        self._ranges = {number(r): r for r in cascade.kernel.free.ranges}
        self._inside = RANGE(
            const_index(tile.rows), attrs=RangeAttrs(max(self._ranges, default=0) + 1)
        )
        self.variable = VARIABLE(attrs=VariableAttrs(TILE_NAME, 0, tile.count - 1))
        self._rows = self._row_values()
        self._local: dict[Node, Node] = {}
        for position, node in enumerate(cascade.kept):
            along = tuple(cascade.along(node))
            count = product(along) * tile.rows
            attrs = ParamAttrs(first_slot + position, (count,), node.type.dtype)
            self.memories[node] = Memory(PARAM(attrs=attrs), along, tile.rows)

    def _row_values(self) -> dict[Node, Node]:
        """Every range of rows as an expression over the tile's number and the row in the tile."""
        rest = self.variable
        values: dict[Node, Node] = {}
        for range_ in reversed(self.cascade.rows):
            tiles = size(range_)
            if range_ is self.tile.row:
                tiles = -(-tiles // self.tile.rows)
            position = simplify.mod(rest, const_index(tiles))
            rest = simplify.idiv(rest, const_index(tiles))
            if range_ is self.tile.row:
                # The last tile reaches back over the one before where rows are left over.
                last = const_index(size(range_) - self.tile.rows)
                start = simplify.minimum(simplify.scale(position, self.tile.rows), last)
                position = simplify.add(start, self._inside) if self.tile.rows > 1 else start
            values[range_] = position
        return values

    def kernels(self) -> list[Node]:
        """The SINKs of the phases, in order."""
        found = []
        for node in self.cascade.kept:
            memory = self.memories[node]
            address = INDEX(memory.param, self._offset(memory))
            found.append(SINK(STORE(address, self._body(node))))
        stores = [
            STORE(
                INDEX(store.src[0].src[0], self._value(store.src[0].src[1])),
                self._value(store.src[1]),
            )
            for store in self.cascade.stores
        ]
        found.append(SINK(*stores))
        return [self._placed(sink) for sink in found]

    def _offset(self, memory: Memory) -> Node:
        total = const_index(0)
        for range_ in memory.along:
            total = simplify.add(simplify.mul(total, range_.src[0]), range_)
        if memory.rows == 1:
            return total
        return simplify.add(simplify.scale(total, memory.rows), self._inside)

    def _body(self, node: Node) -> Node:
        src = tuple([self._value(source) for source in node.src])
        return node if src == node.src else simplify.rebuild(node, src)

    def _value(self, root: Node) -> Node:
        """`root` with kept values loaded from their memories."""
        done = self._local
        for node in toposort(root):
            if node in done:
                continue
            memory = self.memories.get(node)
            if memory is not None:
                done[node] = LOAD(INDEX(memory.param, self._offset(memory)))
            else:
                done[node] = self._body_of(node, done)
        return done[root]

    def _body_of(self, node: Node, done: dict[Node, Node]) -> Node:
        src = tuple([done[source] for source in node.src])
        return node if src == node.src else simplify.rebuild(node, src)

    def _placed(self, sink: Node) -> Node:
        """A phase for the rows of its tile, with ranges numbered from the outside in."""
        sink = substitute_ranges(sink, self._rows, {})
        order = toposort(sink)
        bound = {r for node in order if node.op is REDUCE for r in node.src[1:]}
        ranges = [node for node in order if node.op is RANGE]
        # Rows of a tile lie next to each other, so they are innermost of what is no fold.
        ranges.sort(key=lambda r: (r in bound, r is self._inside, number(r)))
        values = {
            range_: RANGE(range_.src[0], attrs=RangeAttrs(position))
            for position, range_ in enumerate(ranges)
        }
        return substitute_ranges(sink, values, {old: (new,) for old, new in values.items()})
