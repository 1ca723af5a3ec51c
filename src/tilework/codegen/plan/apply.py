"""Rewrite a kernel by a plan: KERNEL -> TILED.

Every range becomes an expression over the ranges of its parts, which are numbered in nest order
(lower is further out) and carry their units; staged factors become STAGEs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.errors import UnsupportedError
from tilework.base.records import dataclass
from tilework.codegen.analysis import Kernel, substitute_ranges
from tilework.codegen.passes.normalise import merge_neighbours
from tilework.codegen.plan.matrix_results import in_matrices
from tilework.codegen.plan.nests import Nests, Space, with_gate
from tilework.codegen.plan.results import rolled
from tilework.codegen.plan.staging import Staging
from tilework.codegen.plan.windows import staged_contractions
from tilework.ir.build import const_bits, const_index
from tilework.ir.fold import combine, identity_bits
from tilework.ir.node import toposort
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs, Unit
from tilework.ir.ops.memory import LOAD, STORE
from tilework.ir.ops.program import FAULT_IF
from tilework.ir.ops.tensor import REDUCE
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tilework.codegen.plan.plan import Plan, Split
    from tilework.ir.node import Node
    from tilework.ir.ops.tensor import Fold


class _Numbers:
    """Hands out range numbers in nest order."""

    def __init__(self, first: int) -> None:
        self.next = first

    def range(self, size: Node | int, unit: Unit) -> Node:
        node = const_index(size) if isinstance(size, int) else size
        number = self.next
        self.next += 1
        return RANGE(node, attrs=RangeAttrs(number, unit))


#: A part of a vector with fewer elements than this is folded element by element.
_LEAST_PART = 3


@dataclass(frozen=True)
class _Rest:
    """Elements that no whole tile has: `count` times `lanes` from `start` on, `used` of each."""

    start: int
    count: int
    lanes: int
    used: int


@dataclass
class Tiles:
    """Extents of a split range: its size, the tile's length and how many tiles there are."""

    size: Node
    tile: int
    count: Node


def apply_plan(kernel: Kernel, plan: Plan) -> Node:
    """The TILED form of `kernel` under `plan`, which must have passed `check`.

    Raises:
        UnsupportedError: The plan uses a word that is not lowered here: a ring of copies.
    """
    if any(staged.depth > 1 for staged in plan.staged):
        raise UnsupportedError(
            "plan: rings of copies are not lowered here",
            got=f"depths {[staged.depth for staged in plan.staged]}",
        )
    return Application(kernel, plan).run()


class Application:
    """A plan at work on a kernel: its loops, the values of its ranges, what is staged."""

    def __init__(self, kernel: Kernel, plan: Plan) -> None:
        self.kernel = kernel
        self.plan = plan
        self.by_number = {int(r.attrs.number): r for r in kernel.free.ranges}
        # Above all numbers of the kernel: a part must not be the same node as a range it replaces.
        self.numbers = _Numbers(max(self.by_number, default=-1) + 1)
        self.parts: dict[tuple[int, int], Node] = {}  # value of each outer part
        self.values: dict[Node, Node] = {}
        self.gates: dict[Node, Node] = {}  # new range value -> condition
        self.tile_parts: dict[int, list[Node]] = {}

    def run(self) -> Node:
        """The TILED kernel."""
        self._nest()
        for range_ in self.kernel.outputs:
            self.values[range_] = self._value(range_)
        sink = self.kernel.sink
        moved: dict[Node, Node] = {}
        if self.plan.staged or self.plan.ahead or self.plan.matrix:
            contraction = staged_contractions(self.kernel)[int(self.plan.swapped)]
            staging = Staging(self, contraction)
            sink = staging.run()
            if self.plan.matrix:
                sink = self._reduces(in_matrices(self, contraction, staging.factors, sink))
                return merge_neighbours(sink, outputs=False)
        if self.plan.rolled:
            sink = self._reduces(rolled(self, sink))
        else:
            sink = substitute_ranges(sink, self.values, {}, moved)
            sink = self._reduces(self._gated(sink, moved))
        return merge_neighbours(sink, outputs=False) if self.plan.staged else sink

    # ---- output ranges

    def tiles(self, split: Split, range_: Node) -> Tiles:
        """How a range divides into the tiles of its split."""
        size, tile = range_.src[0], split.tile_size
        count = simplify.idiv(simplify.add(size, const_index(tile - 1)), const_index(tile))
        return Tiles(size, tile, count)

    def extents(self, number: int) -> list[Node]:
        """How many values each outer part has (inner parts: at most)."""
        split = self.plan.split_of(number)
        tiles = self.tiles(split, self.by_number[number])
        inner = 1
        for part in split.outer[1:]:
            inner *= part.size
        count = simplify.idiv(simplify.add(tiles.count, const_index(inner - 1)), const_index(inner))
        return [count, *(const_index(part.size) for part in split.outer[1:])]

    def _nest(self) -> None:
        tasks = self.plan.nest[: self.plan.tasks]
        extents = [self.extents(number)[part] for number, part in tasks]
        total = const_index(1)
        for extent in extents:
            total = simplify.mul(total, extent)
        task = self.numbers.range(total, Unit.THREAD)
        value = task if simplify.value_of(total) != 1 else const_index(0)
        for (number, part), extent in reversed(list(zip(tasks, extents, strict=True))):
            self.parts[number, part] = simplify.mod(value, extent)
            value = simplify.idiv(value, extent)
        for number, part in self.plan.nest[self.plan.tasks :]:
            self.parts[number, part] = self._loop(number, part)
        # Copies of vectors vary fastest: each row's element is used for all of them, then dropped.
        numbers = dict.fromkeys(number for number, _ in self.plan.nest)
        for number in sorted(numbers, key=self._has_lanes):
            split = self.plan.split_of(number)
            self.tile_parts[number] = [
                self.numbers.range(part.size, part.unit) for part in split.tile
            ]

    def _has_lanes(self, number: int) -> bool:
        return any(part.unit is Unit.LANE for part in self.plan.split_of(number).tile)

    def _loop(self, number: int, part: int) -> Node:
        """The range of a loop part; an inner part ends early in the last outer one."""
        extents = self.extents(number)
        extent = extents[part]
        if part == 1:
            split = self.plan.split_of(number)
            tiles = self.tiles(split, self.by_number[number])
            done = simplify.mul(self.parts[number, 0], extents[1])
            extent = simplify.minimum(extent, simplify.sub(tiles.count, done))
        if simplify.value_of(extent) == 1:
            return const_index(0)
        return self.numbers.range(extent, Unit.LOOP)

    def _value(self, range_: Node) -> Node:
        number = int(range_.attrs.number)
        split = self.plan.split_of(number)
        tiles = self.tiles(split, range_)
        position = self.parts[number, 0]
        for index in range(1, len(split.outer)):
            size = const_index(split.outer[index].size)
            position = simplify.add(simplify.mul(position, size), self.parts[number, index])
        start = simplify.scale(position, tiles.tile)
        inside = within_tile(self.tile_parts[number])
        exact = simplify.mod(tiles.size, const_index(tiles.tile))
        if simplify.value_of(exact) == 0:
            return simplify.add(start, inside)
        if self.plan.overlap:
            last = simplify.sub(tiles.size, const_index(tiles.tile))
            return simplify.add(simplify.minimum(start, last), inside)
        value = simplify.add(start, inside)
        self.gates[range_] = simplify.less(value, tiles.size)
        return value

    # ---- reductions

    def _reduces(self, sink: Node) -> Node:
        """Split the ranges that reductions bind."""
        return Nests(sink, self._spaces, self._folded).run()

    def _spaces(self, node: Node) -> list[Space]:
        """A reduction's whole tiles, and the rest of each range that is tiled."""
        bound = node.src[1:]
        rests = [
            self._rest_ranges(bound, tiled, rest)
            for tiled, size, tile in self._uneven(bound)
            for rest in self._rests_of(tiled, size, tile)
        ]
        return [self._main_ranges(bound), *rests]

    def _rests_of(self, range_: Node, size: int, tile: int) -> list[_Rest]:
        """What whole tiles leave: whole vectors, then a part of one or single elements."""
        last = self.plan.split_of(int(range_.attrs.number)).tile[-1]
        lanes = last.size if last.unit is Unit.LANE else 1
        start, left = size - size % tile, size % tile
        vectors, single = divmod(left, lanes) if lanes > 1 else (0, left)
        found = []
        if vectors:
            found.append(_Rest(start, vectors, lanes, lanes))
        if single >= _LEAST_PART:
            found.append(_Rest(size - single, 1, lanes, single))
        elif single:
            found.append(_Rest(size - single, single, 1, 1))
        return found

    def _folded(self, node: Node, spaces: list[Space], values: list[Node]) -> Node:
        """What the whole tiles give, folded with what the rests give."""
        first, *others = [
            REDUCE(_within(space, value, node.attrs.fold), *space.ranges, attrs=node.attrs)
            for space, value in zip(spaces, values, strict=True)
        ]
        for other in others:
            first = combine(node.attrs.fold, first, other)
        return first

    def _uneven(self, bound: tuple[Node, ...]) -> list[tuple[Node, int, int]]:
        """The ranges whose size is no multiple of their tile: (range, size, tile)."""
        found = []
        for range_ in bound:
            tile = self.plan.split_of(int(range_.attrs.number)).tile_size
            size = simplify.value_of(range_.src[0])
            if tile > 1 and size is not None and size % tile:
                found.append((range_, size, tile))
        return found

    def _main_ranges(self, bound: tuple[Node, ...]) -> Space:
        ranges: list[Node] = []
        values: dict[Node, Node] = {}
        tiles: list[Node] = []
        for range_ in bound:
            split = self.plan.split_of(int(range_.attrs.number))
            size = range_.src[0]
            if split.tile_size == 1:
                loop = self.numbers.range(size, Unit.LOOP)
                ranges.append(loop)
                values[range_] = loop
                continue
            loop = self.numbers.range(simplify.idiv(size, const_index(split.tile_size)), Unit.LOOP)
            parts = [self.numbers.range(part.size, part.unit) for part in split.tile]
            values[range_] = simplify.add(simplify.scale(loop, split.tile_size), within_tile(parts))
            ranges.append(loop)
            tiles.extend(parts)
        return Space(ranges + tiles, values)

    def _rest_ranges(self, bound: tuple[Node, ...], tiled: Node, rest: _Rest) -> Space:
        ranges: list[Node] = []
        values: dict[Node, Node] = {}
        gates: dict[Node, Node] = {}
        tile: list[Node] = []
        # The rest of an earlier range has been folded along with all of this one.
        covered = {r: n - n % t for r, n, t in self._uneven(bound[: bound.index(tiled)])}
        for range_ in bound:
            if range_ is tiled:
                continue
            loop = self.numbers.range(covered.get(range_, range_.src[0]), Unit.LOOP)
            values[range_] = loop
            ranges.append(loop)
        if rest.lanes == 1:
            tile.append(self.numbers.range(rest.count, Unit.LOOP))
        elif rest.count > 1:
            tile.append(self.numbers.range(rest.count, Unit.UNROLL))
        if rest.lanes > 1:
            tile.append(self.numbers.range(rest.lanes, Unit.LANE))
        inside = within_tile(tile)
        values[tiled] = simplify.add(inside, const_index(rest.start))
        if rest.used < rest.lanes:
            gates[tiled] = simplify.less(inside, const_index(rest.used))
        return Space(ranges + tile, values, gates)

    # ---- gates

    def _gated(self, sink: Node, moved: Mapping[Node, Node]) -> Node:
        """Where edges are gated, no load, store or fault of a tile's padding happens.

        A node gets the gates of the kernel's ranges that it depended on; `moved` says what each
        node of the kernel has become.
        """
        if not self.gates:
            return sink
        free = self.kernel.free
        conditions: dict[Node, Node] = {}
        for node in self.kernel.order:
            if node.op in (LOAD, STORE, FAULT_IF):
                mask = free.mask[node]
                conditions[moved[node]] = simplify.all_of(
                    gate for range_, gate in self.gates.items() if mask & free.bit(range_)
                )
        done: dict[Node, Node] = {}
        for node in toposort(sink):
            src = tuple([done[source] for source in node.src])
            condition = conditions.get(node, simplify.TRUE)
            if condition is not simplify.TRUE:
                done[node] = with_gate(node, src, condition)
            else:
                done[node] = node if src == node.src else simplify.rebuild(node, src)
        return done[sink]


def _within(space: Space, value: Node, fold: Fold) -> Node:
    """What is folded in a space: nothing where a gate is shut."""
    for gate in space.gates.values():
        dtype = value.type.dtype
        value = math.WHERE(gate, value, const_bits(identity_bits(fold, dtype), dtype))
    return value


def within_tile(parts: list[Node]) -> Node:
    """The position inside a tile: the last part moves fastest."""
    value = const_index(0)
    for part in parts:
        value = simplify.add(simplify.mul(value, part.src[0]), part)
    return value
