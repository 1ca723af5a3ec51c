"""Rewrite a kernel by a plan for blocks of threads: KERNEL -> TILED.

Every range becomes an expression over its parts.  Where a tile does not divide its range, loads,
stores and folded values are gated: a vector lies inside of the range or outside of it as a whole
where its lanes divide the range, as they do but for scans; else each lane has a gate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.records import dataclass, field
from tilework.codegen.analysis import BINDERS, FreeRanges, Kernel
from tilework.codegen.gpu.plan import THREADS, GpuPlan
from tilework.codegen.gpu.scans import group_of
from tilework.codegen.plan.nests import Nests, Space, with_gate
from tilework.ir.build import const_bits, const_index
from tilework.ir.fold import identity_bits
from tilework.ir.node import toposort
from tilework.ir.ops import math
from tilework.ir.ops.control import SCAN_THREADS
from tilework.ir.ops.index import RANGE, TASK_IN_ORDER, RangeAttrs, Unit
from tilework.ir.ops.memory import LOAD, STORE
from tilework.ir.ops.program import FAULT_IF
from tilework.ir.ops.scan import SCAN_BLOCKS, ScanBlocksAttrs, words_of_row
from tilework.ir.ops.tensor import REDUCE, SCAN, Fold
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tilework.ir.node import Node


def apply_gpu_plan(kernel: Kernel, plan: GpuPlan) -> Node:
    """The TILED form of `kernel` under `plan`, which must have passed `check_gpu_plan`."""
    return _Application(kernel, plan).run()


def unify_units(sink: Node) -> Node:
    """Let all ranges of one unit of a block be one: there is one index of a thread.

    Ensures: equal accesses by different loops over a block's threads are one node, so a value that
    each thread needs again stays in its register.
    """
    first: dict[Unit, Node] = {}
    values: dict[Node, Node] = {}
    ranges = [node for node in toposort(sink) if node.op is RANGE]
    for range_ in sorted(ranges, key=lambda r: int(r.attrs.number)):
        unit = range_.attrs.unit
        if unit in THREADS:
            values[range_] = first.setdefault(unit, range_)
    return substitute_gated(sink, values, {}, {old: (new,) for old, new in values.items()})


@dataclass
class _Parts:
    """What a range has become: its parts, its value, and the condition that it is inside."""

    ranges: list[Node]
    value: Node
    gate: Node = field(default=simplify.TRUE)


class _Application:
    def __init__(self, kernel: Kernel, plan: GpuPlan) -> None:
        self.kernel = kernel
        self.plan = plan
        self.by_number = {int(r.attrs.number): r for r in kernel.free.ranges}
        # Above all numbers of the kernel: a part must not be the same node as a range it replaces.
        self.number = max(self.by_number, default=-1) + 1
        self.parts: dict[Node, list[Node]] = {}  # of the output ranges

    def run(self) -> Node:
        positions, task_gate = self._nest()
        values: dict[Node, Node] = {}
        gates: dict[Node, Node] = {}
        tasks = {number for number, _ in self.plan.nest[: self.plan.tasks]}
        for range_ in self.kernel.outputs:
            number = int(range_.attrs.number)
            parts = self._parts(range_, positions[number])
            values[range_] = parts.value
            self.parts[range_] = parts.ranges
            gate = simplify.both(parts.gate, task_gate) if number in tasks else parts.gate
            if gate is not simplify.TRUE:
                gates[range_] = gate
        sink = substitute_gated(self._scans(), values, gates)
        return self._once(self._reduces(sink))

    def _range(self, size: Node | int, unit: Unit) -> Node:
        node = const_index(size) if isinstance(size, int) else size
        if simplify.value_of(node) == 1 and unit is not Unit.THREAD:
            return const_index(0)
        number = self.number
        self.number += 1
        return RANGE(node, attrs=RangeAttrs(number, unit))

    # ---- output ranges

    def _nest(self) -> tuple[dict[int, Node], Node]:
        """The position of each range's tile, and the condition that the task exists."""
        plan = self.plan
        numbers = [number for number, _ in plan.nest]
        counts = {number: self._count(number) for number in numbers}
        total = const_index(1)
        for number in numbers[: plan.tasks]:
            total = simplify.mul(total, counts[number])
        block = max(plan.block, 1)
        rounded = simplify.add(total, const_index(block - 1))
        task = self._range(simplify.idiv(rounded, const_index(block)), Unit.THREAD)
        self.warp = self._range(plan.unit_size(Unit.WARP), Unit.WARP)
        self.local = self._range(plan.unit_size(Unit.LOCAL), Unit.LOCAL)
        gate = simplify.TRUE
        value = task if simplify.value_of(total) != 1 else const_index(0)
        words = [scan.src[2] for scan in self.kernel.order if self._is_in_tiles(scan)]
        if words:  # blocks wait for those whose tiles come before
            value = TASK_IN_ORDER(task, words[0])
        if plan.block:
            value = simplify.add(simplify.scale(task, block), self.local)
            if simplify.value_of(simplify.mod(total, const_index(block))) != 0:
                gate = simplify.less(value, total)
        positions: dict[int, Node] = {}
        self.task = value
        for position, number in reversed(list(enumerate(numbers[: plan.tasks]))):
            positions[number] = simplify.mod(value, counts[number]) if position else value
            value = simplify.idiv(value, counts[number])
        for number in numbers[plan.tasks :]:
            positions[number] = self._range(counts[number], Unit.LOOP)
        return positions, gate

    def _is_in_tiles(self, node: Node) -> bool:
        """Is it a scan with words for its blocks, under a plan whose tasks are tiles of it?"""
        if node.op is not SCAN or len(node.src) < 3:
            return False
        return self.plan.split_of(int(node.src[1].attrs.number)).tile_size > 1

    def _count(self, number: int) -> Node:
        """How many tiles a range has."""
        tile = self.plan.split_of(number).tile_size
        size = self.by_number[number].src[0]
        return simplify.idiv(simplify.add(size, const_index(tile - 1)), const_index(tile))

    def _parts(self, range_: Node, position: Node, *, bound: bool = False) -> _Parts:
        """The parts of a tile of `range_` at a position."""
        split = self.plan.split_of(int(range_.attrs.number))
        inside, first_lane = const_index(0), const_index(0)
        lanes = next((part.size for part in split.tile if part.unit is Unit.LANE), 1)
        is_whole = simplify.value_of(simplify.mod(range_.src[0], const_index(lanes))) == 0
        ranges: list[Node] = []
        for part in split.tile:
            node = self._part(part.unit, part.size, bound=bound)
            if node.op is RANGE:
                ranges.append(node)
            size = const_index(part.size)
            inside = simplify.add(simplify.mul(inside, size), node)
            at_first = const_index(0) if part.unit is Unit.LANE and is_whole else node
            first_lane = simplify.add(simplify.mul(first_lane, size), at_first)
        start = simplify.scale(position, split.tile_size)
        parts = _Parts(ranges, simplify.add(start, inside))
        rest = simplify.mod(range_.src[0], const_index(split.tile_size))
        if simplify.value_of(rest) != 0:
            parts.gate = simplify.less(simplify.add(start, first_lane), range_.src[0])
        return parts

    def _part(self, unit: Unit, size: int, *, bound: bool) -> Node:
        if bound or unit not in THREADS:
            return self._range(size, unit)
        return self.warp if unit is Unit.WARP else self.local

    # ---- scans

    def _scans(self) -> Node:
        """The kernel with scans along ranges that the threads of a block share."""
        shared = {r for r, parts in self.parts.items() if self.local in parts}
        done: dict[Node, Node] = {}
        for node in self.kernel.order:
            src = tuple([done[source] for source in node.src])
            if self._is_in_tiles(node):
                done[node] = self._scan_blocks(node, *src)
            elif node.op is SCAN and node.src[1] in shared:
                done[node] = SCAN_THREADS(src[0], *self.parts[node.src[1]], attrs=node.attrs)
            else:
                done[node] = node if src == node.src else simplify.rebuild(node, src)
        return done[self.kernel.sink]

    def _scan_blocks(self, node: Node, value: Node, along: Node, words: Node) -> Node:
        """A scan whose tiles are tasks: those of a row come one after the other."""
        number, attrs, dtype = int(node.src[1].attrs.number), node.attrs, node.type.dtype
        tiles = simplify.value_of(self._count(number)) or 1
        row = simplify.idiv(self.task, const_index(tiles))
        tile = simplify.mod(self.task, const_index(tiles))
        row = simplify.plus(simplify.scale(row, words_of_row(dtype, tiles, group_of())), 1)
        how = ScanBlocksAttrs(attrs.fold, attrs.exclusive, tiles, group_of())
        return SCAN_BLOCKS(words, row, tile, value, attrs=how)

    # ---- reductions

    def _reduces(self, sink: Node) -> Node:
        """Split the ranges that reductions bind."""
        return Nests(sink, self._spaces, self._folded).run()

    def _spaces(self, node: Node) -> list[Space]:
        """The parts of a reduction's ranges."""
        bound = node.src[1:]
        loops = [self._range(self._count(int(r.attrs.number)), Unit.LOOP) for r in bound]
        found = Space([], {})
        for range_, loop in zip(bound, loops, strict=True):
            parts = self._parts(range_, loop, bound=True)
            found.ranges.extend([loop, *parts.ranges] if loop.op is RANGE else parts.ranges)
            found.values[range_] = parts.value
            if parts.gate is not simplify.TRUE:
                found.gates[range_] = parts.gate
        return [found]

    def _folded(self, node: Node, spaces: list[Space], values: list[Node]) -> Node:
        (space,), (value,) = spaces, values
        gate = simplify.all_of(space.gates.values())
        if gate is not simplify.TRUE:
            value = _neutral(node.attrs.fold, gate, value)
        loops = [r for r in space.ranges if r.attrs.unit is Unit.LOOP]
        others = [r for r in space.ranges if r.attrs.unit is not Unit.LOOP]
        if not loops and not others:
            return value
        return REDUCE(value, *loops, *others, attrs=node.attrs)

    # ---- effects that belong to no thread

    def _once(self, sink: Node) -> Node:
        """A store whose place is the same for all threads of a block is done by the first one."""
        units = [unit for unit in (self.warp, self.local) if unit.op is RANGE]
        if not units:
            return sink
        free = FreeRanges(toposort(sink))
        effects = []
        for effect in sink.src:
            gate = simplify.TRUE
            for unit in units:
                is_free = unit in free.position and free.mask[effect] & free.bit(unit)
                if not is_free:
                    gate = simplify.both(gate, simplify.equal(unit, const_index(0)))
            effects.append(with_gate(effect, effect.src, gate) if gate is not simplify.TRUE
                           else effect)  # fmt: skip
        return sink.op(*effects)


def _neutral(fold: Fold, gate: Node, value: Node) -> Node:
    """The value where the gate holds, elsewhere what changes nothing.

    A sum of products stays one, so that it still accumulates with one rounding for each product.
    """
    dtype = value.dtype
    if fold is Fold.ADD and value.op is math.MUL and dtype.is_float:
        zero = const_bits(0, dtype)
        return math.MUL(*(math.WHERE(gate, factor, zero) for factor in value.src))
    return math.WHERE(gate, value, const_bits(identity_bits(fold, dtype), dtype))


def substitute_gated(
    root: Node,
    values: Mapping[Node, Node],
    gates: Mapping[Node, Node],
    binders: Mapping[Node, tuple[Node, ...]] | None = None,
) -> Node:
    """Replace ranges by expressions; accesses that depend on a range get its gate.

    Args:
        root: Where to start.
        values: What each RANGE becomes.
        gates: For some of them, the condition under which memory may be touched.
        binders: What a REDUCE, STAGE or END binds instead of a range.
    """
    order = toposort(root)
    free = FreeRanges(order)
    gated = [(free.bit(r), gate) for r, gate in gates.items() if r in free.position]
    done: dict[Node, Node] = {}
    for node in order:
        if node in values:
            done[node] = values[node]
            continue
        if node.op in BINDERS and binders:
            src = (done[node.src[0]], *(n for b in node.src[1:] for n in binders.get(b, (b,))))
        else:
            src = tuple([done[source] for source in node.src])
        if gated and node.op in (LOAD, STORE, FAULT_IF):
            mask = free.mask[node]
            gate = simplify.all_of(gate for bit, gate in gated if mask & bit)
            if gate is not simplify.TRUE:
                done[node] = with_gate(node, src, gate)
                continue
        done[node] = node if src == node.src else simplify.rebuild(node, src)
    return done[root]
