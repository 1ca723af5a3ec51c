"""The phases of a cascade: a small kernel for each value that is kept, then one for the stores.

A phase runs for one tile of rows, and perhaps for one block of the folded axis.  The numbers of the
tile and the block are the VARIABLEs `%tile` and `%block`, and the memories that phases hand values
on in are PARAMs above the kernel's own; `lower` replaces them.  So each phase is an ordinary
kernel, and gets the plan that it would get on its own.

Phases that need a fold's final value stand in a later group.  In a group that runs block by block,
a fold adds each block's to what it has: (((0 + block 0) + block 1) + ...), whatever the number of
threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.records import dataclass, field
from tilework.codegen.analysis import FreeRanges, substitute_ranges
from tilework.codegen.cascade.finite import greatest, is_finite
from tilework.codegen.cascade.live import (
    Masked,
    find_mask,
    live_range,
    without_exponentials,
)
from tilework.codegen.plan.extents import number, product, size
from tilework.dtypes import float32
from tilework.ir.build import const, const_bits, const_index
from tilework.ir.fold import combine, identity_bits
from tilework.ir.node import Node, toposort
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, VARIABLE, RangeAttrs, VariableAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.tensor import REDUCE, Fold, ReduceAttrs
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from tilework.codegen.cascade.find import Cascade
    from tilework.codegen.cascade.tile import Tile
    from tilework.dtypes import DType

TILE_NAME, BLOCK_NAME = "%tile", "%block"
_ZERO = const_index(0)


@dataclass(frozen=True, slots=True)
class Memory:
    """Where a kept value lies: the PARAM that phases know it by, its ranges, its size.

    Rows lie side by side, but for a last fold, whose stores run along its own ranges.  What is read
    in its own group alone needs room for one block, of `length` positions.
    """

    param: Node
    along: tuple[Node, ...]
    rows: int
    rows_first: bool = False
    length: int = 0

    @property
    def count(self) -> int:
        """Elements."""
        return (self.length or product(self.along)) * self.rows


@dataclass(slots=True)
class Group:
    """Phases that run one after the other; for `count` blocks from `first` on, if that is given."""

    sinks: list[Node]
    count: Node | None = None
    first: Node = _ZERO
    folded: set[Node] = field(default_factory=set)


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
        self.params: list[Node] = []
        ranges = {number(r): r for r in cascade.kernel.free.ranges}
        self._next = max(ranges, default=0) + 1
        self._inside = self._range(tile.rows)
        #: The position in a block, in the offsets of memories for one block.
        self.in_block = self._range(max(tile.block, 1))
        self.variable = VARIABLE(attrs=VariableAttrs(TILE_NAME, 0, tile.count - 1))
        self._rows = self._row_values()
        self._local: dict[Node, Node] = {}
        self._slot = first_slot
        self.masked = find_mask(cascade) if tile.block else None
        guarded = {} if self.masked is None else self.masked.guarded
        #: What must be finite for positions to be left out, and where it is said whether it is.
        self._sums = list(dict.fromkeys(sum_ for _, sum_ in guarded.values()))
        self._flag = self._memory(1, float32) if self._sums else None
        self._cut_axis()
        self._keep_all()

    def _keep_all(self) -> None:
        """Give every kept value its memory."""
        if self.tile.block:
            for factor in self._gathered():
                self._keep(factor)
        for node in self.cascade.kept:
            self._keep(node, length=self.tile.block if self._is_passed_on(node) else 0)
        if self.tile.block:
            for node in self.cascade.lasts:
                self._keep(node, rows_first=True)

    def _is_passed_on(self, node: Node) -> bool:
        """Is a value along the key read by last folds alone, in the block in which it is made?"""
        if self.cascade.key is None or self.cascade.along(node) != [self.cascade.key]:
            return False
        others = [kept for kept in self.cascade.kept if kept is not node]
        return not any(node in _read_by(kept, self.cascade) for kept in others)

    def _range(self, extent: int) -> Node:
        made = RANGE(const_index(extent), attrs=RangeAttrs(self._next))
        self._next += 1
        return made

    def _keep(self, node: Node, *, rows_first: bool = False, length: int = 0) -> None:
        along = tuple(self.cascade.along(node))
        param = self._memory((length or product(along)) * self.tile.rows, node.type.dtype)
        self.memories[node] = Memory(param, along, self.tile.rows, rows_first, length)

    def _memory(self, count: int, dtype: DType) -> Node:
        """A further memory of a tile."""
        attrs = ParamAttrs(self._slot, (count,), dtype)
        self._slot += 1
        made = PARAM(attrs=attrs)
        self.params.append(made)
        return made

    def _gathered(self) -> list[Node]:
        """Factors of the scores whose rows lie far apart: copied once, side by side."""
        free = self.cascade.kernel.free
        found: dict[Node, None] = {}
        for node in self.cascade.kept:
            if node.op is not REDUCE or not self.cascade.along(node):
                continue
            for factor in node.src[0].src:
                mask = free.mask[factor]
                if self.cascade.key is None or mask & free.bit(self.cascade.key):
                    continue
                if self.tile.row is not None and mask & free.bit(self.tile.row):
                    found[factor] = None
        return list(found)

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

    def _cut_axis(self) -> None:
        """Whole blocks from `first` to `end`, and `rest_count` times what they leave."""
        key, block = self.cascade.key, self.tile.block
        self.whole, self.rest = divmod(size(key), block) if key is not None and block else (0, 0)
        self.first, self.end, self.rest_count = _ZERO, const_index(self.whole), const_index(1)
        if self.masked is None or key is None:
            return
        first, end = live_range(self.masked.condition, key, size(key), self._rows, self._inside)
        most = const_index(self.whole)
        ceiling = simplify.idiv(simplify.add(end, const_index(block - 1)), const_index(block))
        self.first = _within(simplify.idiv(first, const_index(block)), _ZERO, most)
        self.end = _within(ceiling, self.first, most)
        over = simplify.sub(end, const_index(self.whole * block))
        self.rest_count = _within(over, _ZERO, const_index(1))

    # ---- groups

    def groups(self) -> list[Group]:
        """The phases in order."""
        if not self.tile.block:
            sinks = [self._placed(self._map(node), {}) for node in self.memories]
            return [Group([*sinks, *self._last_phases()])]
        made = [self._first_group()]
        blocks = Group([])
        for node in self.memories:
            if not self._runs_along(node):
                made[0].sinks.append(self._placed(self._map(node), {}))
                continue
            if _read_by(node, self.cascade) & blocks.folded:
                made += self._in_blocks(blocks)
                blocks = Group([])
            if node.op is REDUCE and self.cascade.key in node.src[1:]:
                made[-1].sinks.append(self._placed(self._start(node), {}))
                blocks.sinks.append(self._accumulate(node))
                blocks.folded.add(node)
            else:
                blocks.sinks.append(self._map(node))
        made += self._in_blocks(blocks)
        made[-1].sinks += self._last_phases()
        return made

    def _first_group(self) -> Group:
        """What comes before all else: whether positions may be left out, if that must be asked."""
        if self._flag is None:
            return Group([])
        return Group([self._placed(self._store_flag(self._flag), {})])

    def _runs_along(self, node: Node) -> bool:
        key = self.cascade.key
        return key in self.memories[node].along or key in node.src[1:]

    def _in_blocks(self, group: Group) -> list[Group]:
        """A group for each block, one for what the last block leaves, one for what comes next."""
        key = self.cascade.key
        if key is None:
            return [group]
        block = self.tile.block
        found = []
        if self.whole:
            variable = VARIABLE(attrs=VariableAttrs(BLOCK_NAME, 0, self.whole - 1))
            start = simplify.scale(variable, block)
            sinks = [self._at(sink, start, block) for sink in group.sinks]
            count = self._if_finite(simplify.sub(self.end, self.first), const_index(self.whole))
            found.append(Group(sinks, count, self._if_finite(self.first, _ZERO)))
        if self.rest:
            start = const_index(size(key) - self.rest)
            sinks = [self._at(sink, start, self.rest) for sink in group.sinks]
            found.append(Group(sinks, self._if_finite(self.rest_count, const_index(1))))
        return [*found, Group([])]

    def _at(self, sink: Node, start: Node, extent: int) -> Node:
        """A phase for the positions from `start` on."""
        key = self.cascade.key
        if key is None:
            return self._placed(sink, {})
        inner = RANGE(const_index(extent), attrs=RangeAttrs(self._next))
        values = {key: simplify.add(start, inner), self.in_block: inner}
        return self._placed(sink, values, {key: (inner,)})

    # ---- phases

    def _map(self, node: Node) -> Node:
        memory = self.memories[node]
        return SINK(STORE(INDEX(memory.param, self._offset(memory)), self._body(node)))

    def _start(self, node: Node) -> Node:
        memory = self.memories[node]
        dtype = node.type.dtype
        start: Node = const_bits(identity_bits(node.attrs.fold, dtype), dtype)
        if self.masked is not None and node.attrs.fold is Fold.ADD:
            start = math.ADD(start, self._if_any(self._skipped(node, self.masked)))
        return SINK(STORE(INDEX(memory.param, self._offset(memory)), start))

    def _skipped(self, node: Node, masked: Masked) -> Node:
        """What the positions that are left out add to a sum: 0, or NaN."""
        body = node.src[0]
        if node in masked.guarded:
            return self._value(masked.guarded[node][0])
        if node not in self.cascade.lasts or body.op is not math.MUL:
            return self._value(masked.at_masked[body])
        row, other = (masked.at_masked[factor] for factor in body.src)
        free = FreeRanges(toposort(row, other))
        key = 0 if self.cascade.key is None else free.bit(self.cascade.key)
        zero = const_bits(0, other.type.dtype)
        if free.mask[row] & free.mask[other] & key:
            added, row = math.MUL(without_exponentials(row), without_exponentials(other)), zero
        else:
            if free.mask[row] & key:
                row, other = other, row
            added = math.MUL(zero, other)
        total: Node = zero
        for start, count in self._left_out():
            range_ = RANGE(count, attrs=RangeAttrs(self._next))
            self._next += 1
            at = {self.cascade.key: simplify.add(start, range_)} if self.cascade.key else {}
            left_out = substitute_ranges(added, at, {})
            total = math.ADD(total, REDUCE(left_out, range_, attrs=ReduceAttrs(Fold.ADD)))
        return math.ADD(self._value(row), self._value(total))

    def _store_flag(self, flag: Node) -> Node:
        """1 where positions may be left out, 0 where what they give might not be finite."""
        value: Node = const(1.0, float32)
        for node in self._sums:
            condition = is_finite(node, self.cascade, self._most_left_out, self._most_of_tile)
            value = math.WHERE(condition, value, const(0.0, float32))
        return SINK(STORE(INDEX(flag, _ZERO), value))

    def _most_left_out(self, value: Node, ranges: tuple[Node, ...]) -> Node:
        """The greatest of a value at the positions that are left out, at least 0."""
        most: Node = const_bits(0, value.type.dtype)
        for start, count in self._left_out():
            range_ = RANGE(count, attrs=RangeAttrs(self._next))
            self._next += 1
            at = {self.cascade.key: simplify.add(start, range_)} if self.cascade.key else {}
            left_out = substitute_ranges(value, at, {})
            most = math.MAXIMUM(most, greatest(left_out, (range_, *ranges)))
        return most

    def _most_of_tile(self, value: Node, ranges: tuple[Node, ...]) -> Node:
        """The greatest of a value in the rows of a tile."""
        row = self.tile.row
        if row is None or self.tile.rows == 1:
            return greatest(value, ranges)
        inside = self._range(self.tile.rows)
        (at,) = simplify.substitute([self._rows[row]], {self._inside: inside})
        return greatest(substitute_ranges(value, {row: at}, {}), (inside, *ranges))

    def _if_finite(self, live: Node, every: Node) -> Node:
        """`live` where positions may be left out, else `every`."""
        if self._flag is None:
            return live
        is_known = math.LT(const(0.0, float32), LOAD(INDEX(self._flag, _ZERO)))
        return simplify.where(is_known, live, every)

    def _if_any(self, value: Node) -> Node:
        """`value` if this tile leaves positions out, else 0."""
        count = _ZERO
        for _, part in self._left_out():
            count = simplify.add(count, part)
        condition = simplify.less(_ZERO, count)
        zero = const_bits(0, value.type.dtype)
        if condition.op is math.CONST:
            return value if condition is simplify.TRUE else zero
        return math.WHERE(condition, value, zero)

    def _left_out(self) -> list[tuple[Node, Node]]:
        """The positions that are left out: from where on, and how many."""
        block = self.tile.block
        whole = const_index(self.whole)
        rest = simplify.sub(const_index(1), self.rest_count)
        parts = [
            (_ZERO, simplify.scale(self.first, block)),
            (simplify.scale(self.end, block), simplify.scale(simplify.sub(whole, self.end), block)),
            (simplify.scale(whole, block), simplify.scale(rest, self.rest)),
        ]
        return [(start, count) for start, count in parts if simplify.value_of(count) != 0]

    def _accumulate(self, node: Node) -> Node:
        memory = self.memories[node]
        address = INDEX(memory.param, self._offset(memory))
        return SINK(STORE(address, combine(node.attrs.fold, LOAD(address), self._body(node))))

    def _last_phases(self) -> list[Node]:
        """The stores: in one phase, but for those whose loops do not nest in the others'."""
        free = self.cascade.kernel.free
        phases: list[list[Node]] = []
        for store in self.cascade.stores:
            mask = free.mask[store]
            fitting = (
                stores
                for stores in phases
                if all(mask & free.mask[other] in (mask, free.mask[other]) for other in stores)
            )
            found = next(fitting, None)
            if found is None:
                phases.append([store])
            else:
                found.append(store)
        return [self._placed(SINK(*map(self._store, stores)), {}) for stores in phases]

    def _store(self, store: Node) -> Node:
        address, value = store.src
        return STORE(INDEX(address.src[0], self._value(address.src[1])), self._value(value))

    def _offset(self, memory: Memory) -> Node:
        total = const_index(0)
        if memory.length:
            total = self.in_block
        for range_ in () if memory.length else memory.along:
            total = simplify.add(simplify.mul(total, range_.src[0]), range_)
        if memory.rows == 1:
            return total
        if memory.rows_first:
            return simplify.add(simplify.scale(self._inside, product(memory.along)), total)
        return simplify.add(simplify.scale(total, memory.rows), self._inside)

    def _body(self, node: Node) -> Node:
        return self._rebuilt(node, tuple([self._value(source) for source in node.src]))

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
                done[node] = self._rebuilt(node, tuple([done[source] for source in node.src]))
        return done[root]

    def _rebuilt(self, node: Node, src: tuple[Node, ...]) -> Node:
        return node if src == node.src else simplify.rebuild(node, src)

    def _placed(
        self,
        sink: Node,
        values: dict[Node, Node],
        binders: dict[Node, tuple[Node, ...]] | None = None,
    ) -> Node:
        """A phase for the rows of its tile, with ranges numbered from the outside in."""
        sink = _with_folds_of_their_own(substitute_ranges(sink, self._rows | values, binders or {}))
        order = toposort(sink)
        bound = {r for node in order if node.op is REDUCE for r in node.src[1:]}
        first = any(m.rows_first and m.param in order for m in self.memories.values())
        ranges = [node for node in order if node.op is RANGE]
        # The order of the ranges is that in memory; those of folds are innermost.
        ranges.sort(key=lambda r: (r in bound, (r is self._inside) != first, number(r)))
        fresh = {
            range_: RANGE(range_.src[0], attrs=RangeAttrs(position))
            for position, range_ in enumerate(ranges)
        }
        return substitute_ranges(sink, fresh, {old: (new,) for old, new in fresh.items()})


def _with_folds_of_their_own(sink: Node) -> Node:
    """Folds run over ranges that no store of the phase runs over.

    A value is kept under the names of the fold that reads it, so one store of a phase may run over
    what a fold of another binds.
    """
    order = toposort(sink)
    free = FreeRanges(order)
    outside = set(free.of(sink))
    first = max([number(range_) for range_ in free.ranges], default=0) + 1
    done: dict[Node, Node] = {}
    for node in order:
        src = tuple([done[source] for source in node.src])
        done[node] = node if src == node.src else simplify.rebuild(node, src)
        shared = outside.intersection(node.src[1:]) if node.op is REDUCE else ()
        if shared:
            fresh = {r: RANGE(*r.src, attrs=RangeAttrs(first + number(r))) for r in shared}
            binders = {old: (new,) for old, new in fresh.items()}
            done[node] = substitute_ranges(done[node], fresh, binders)
    return done[sink]


def _read_by(node: Node, cascade: Cascade) -> set[Node]:
    """The kept values that a kept value is computed from."""
    found: set[Node] = set()
    seen: set[Node] = set()
    stack = list(node.src)
    while stack:
        part = stack.pop()
        if part in seen:
            continue
        seen.add(part)
        if part in cascade.kept:
            found.add(part)
        else:
            stack.extend(part.src)
    return found


def _within(value: Node, low: Node, high: Node) -> Node:
    return simplify.minimum(simplify.maximum(value, low), high)
