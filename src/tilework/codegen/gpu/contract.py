"""Contractions by plain arithmetic: tiles of both factors in shared memory, results in registers.

All ranges of m count as one, so do those of n and of k, whatever the kernel calls them: a
convolution is tiled like a product of matrices.  A block holds a tile of results; for each step
along k its threads copy the tiles of both factors that the step needs into shared memory, then each
thread multiplies what its results need.  Kernels that a matrix instruction can do come here only
where its copies cannot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.codegen.analysis import stride
from tilework.codegen.gpu.apply import substitute_gated
from tilework.codegen.gpu.flat import Flat, raster
from tilework.codegen.gpu.plan import GpuPlan
from tilework.codegen.plan.contraction import Contraction, load_stride, orientations
from tilework.codegen.plan.extents import ceil_div, number, product
from tilework.codegen.plan.plan import Part, Staged
from tilework.ir.build import const_bits, const_index
from tilework.ir.node import toposort
from tilework.ir.ops import math
from tilework.ir.ops.control import STAGE, StageAttrs
from tilework.ir.ops.index import RANGE, RangeAttrs, Unit
from tilework.ir.ops.memory import INDEX, LOAD, PARAM
from tilework.ir.ops.tensor import REDUCE
from tilework.ir.symbolic import simplify
from tilework.ir.types import Memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.codegen.analysis import Kernel
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

#: Threads of a block along the rows and the columns of its tile.
_SIDE = 16
#: The longest side of a tile, and how much of k is staged at a time.
_LONGEST, _DEPTH = 128, 16
#: From this share of busy multiprocessors on a tile may be twice as wide.
_FULL = 0.8
_ACCESS_BYTES, _WORD_BYTES = 16, 4
#: Results and products from which on a tile pays.
_LEAST_SIDE, _LEAST_DEPTH = 16, 8
#: Elements of a slot row that are turned by one place, so that neighbours use other banks.
_TURN = 2
#: Of large products: threads of a warp along rows and columns, warps along both, the results of a
#: thread along a side, which depth is staged, and how many blocks a multiprocessor holds.  Two of
#: 256 threads with 64 results each leave no thread more than 128 registers, and hide each other's
#: barriers.
_LANES, _WARPS, _EACH, _SHALLOW, _RESIDENT = (4, 8), (4, 2), 8, 16, 2


def choose_contraction_plan(kernel: Kernel, target: TargetSpec) -> GpuPlan | None:
    """A tiled plan for the kernel's contraction; None if it has none that is worth a tile."""
    if kernel.overwritten or any(simplify.value_of(r.src[0]) is None for r in kernel.free.ranges):
        return None
    best: tuple[float, GpuPlan] | None = None
    for swapped, found in enumerate(orientations(kernel)):
        if not _stores_along(kernel, found.n[-1]) and best is not None:
            continue
        rows, columns, depth = product(found.m), product(found.n), product(found.k)
        if min(rows, columns) < _LEAST_SIDE or depth < _LEAST_DEPTH:
            continue
        plan = _plan(kernel, found, bool(swapped), target)
        cost = 0.0 if _stores_along(kernel, found.n[-1]) else 1.0
        if best is None or cost < best[0]:
            best = (cost, plan)
    return None if best is None else best[1]


def _stores_along(kernel: Kernel, range_: Node) -> bool:
    return any(stride(store.src[0].src[1], range_) == 1 for store in kernel.stores)


def _plan(kernel: Kernel, found: Contraction, swapped: bool, target: TargetSpec) -> GpuPlan:
    if _is_large(found, target):
        return _large_plan(kernel, found, swapped)
    height, width = _sides(found, target)
    along = load_stride(found.b, found.k[-1]) != 1
    lanes = 1
    if along:
        last = simplify.value_of(found.n[-1].src[0]) or 1
        lanes = next(n for n in (4, 2, 1) if last % n == 0 and width // _SIDE % n == 0)
    rows = _parts(height, Unit.WARP, Unit.UNROLL, 4)
    columns = _parts(width, Unit.LOCAL, Unit.LANE, lanes)
    return GpuPlan(
        (),
        tuple((number(r), 0) for r in kernel.outputs),
        len(kernel.outputs),
        (Staged(0, Memory.TILE, len(kernel.outputs)), Staged(1, Memory.TILE, len(kernel.outputs))),
        overlap=False,
        swapped=swapped,
        rows=rows,
        columns=columns,
        depth=_DEPTH,
    )


def _is_large(found: Contraction, target: TargetSpec) -> bool:
    """Are there tiles for all multiprocessors, of factors that are loaded as they are?

    What computes or gathers a factor needs registers beside those of sums and fragments.
    """
    if len(found.k) > 1 or found.reduce.type.dtype.itemsize > _WORD_BYTES:
        return False
    for factor in (found.a, found.b):
        if factor.op is not LOAD or len(factor.src) > 1 or factor.src[0].src[0].op is not PARAM:
            return False
    down, across = (ceil_div(product(ranges), _LONGEST) for ranges in (found.m, found.n))
    return product(found.batch) * down * across >= max(target.unit("grid").count, 1)


def _is_wide(found: Contraction, target: TargetSpec) -> bool:
    """Do tiles of 128 x 256 keep nearly all multiprocessors busy?

    They have twice as many products for each element that is read from shared memory.
    """
    rows, columns, batch = product(found.m), product(found.n), product(found.batch)
    tiles = batch * ceil_div(rows, _LONGEST) * ceil_div(columns, 2 * _LONGEST)
    is_full = _waves(tiles, max(target.unit("grid").count, 1)) >= _FULL
    return is_full and columns % (2 * _LONGEST) == 0


def _large_plan(kernel: Kernel, found: Contraction, swapped: bool) -> GpuPlan:
    """Tiles whose warps have blocks of 32 x 64, their threads fours of rows and of columns.

    Fours of neighbouring threads lie side by side, so that a load of 16 bytes a thread, of which
    the threads of a warp share most, is whole rows of banks.
    """
    rows, columns = _LANES
    near = _ACCESS_BYTES // _WORD_BYTES
    level = len(kernel.outputs)
    last = simplify.value_of(found.n[-1].src[0]) or 1
    side_by_side = Part(Unit.LANE if last % near == 0 else Unit.UNROLL, near)
    copies = Part(Unit.UNROLL, _EACH // near)
    return GpuPlan(
        (),
        tuple((number(r), 0) for r in kernel.outputs),
        level,
        (Staged(0, Memory.TILE, level), Staged(1, Memory.TILE, level)),
        overlap=False,
        swapped=swapped,
        rows=(Part(Unit.LOCAL, _WARPS[0]), copies, Part(Unit.LOCAL, rows), Part(Unit.UNROLL, near)),
        columns=(Part(Unit.LOCAL, _WARPS[1]), copies, Part(Unit.LOCAL, columns), side_by_side),
        depth=_SHALLOW,
        resident=_RESIDENT,
    )


def _sides(found: Contraction, target: TargetSpec) -> tuple[int, int]:
    """The sides of a tile: long ones move less, many tiles keep all multiprocessors busy."""
    rows, columns, batch = product(found.m), product(found.n), product(found.batch)
    height = width = _LONGEST
    grid = target.unit("grid").count
    if _is_wide(found, target):
        return height, 2 * width
    while height > 2 * _SIDE and height >= 2 * rows:
        height //= 2
    while width > 2 * _SIDE and width >= 2 * columns:
        width //= 2
    while max(height, width) > 4 * _SIDE and (
        batch * -(-rows // height) * -(-columns // width) < grid
    ):
        if height >= width:
            height //= 2
        else:
            width //= 2
    return height, width


def _waves(tiles: int, grid: int) -> float:
    """The share of the multiprocessors that have a tile, on average."""
    return tiles / (ceil_div(tiles, grid) * grid)


def _parts(side: int, unit: Unit, inner: Unit, most: int) -> tuple[Part, ...]:
    """A side as copies x threads x neighbours of one thread."""
    each = side // _SIDE
    near = min(each, most)
    parts = [Part(Unit.UNROLL, each // near)] if each > near else []
    parts.append(Part(unit, _SIDE))
    if near > 1:
        parts.append(Part(inner, near))
    return tuple(parts)


def tile_size(parts: Sequence[Part]) -> int:
    """How long a side of parts is."""
    size = 1
    for part in parts:
        size *= part.size
    return size


def apply_contraction(kernel: Kernel, plan: GpuPlan) -> Node:
    """The TILED form of a contraction under a plan with rows, columns and a depth."""
    return _Tiling(kernel, plan).run()


def thread_places(plan: GpuPlan, warp: Node, local: Node) -> list[Node | None]:
    """Which value of each part of rows, then of columns, a thread has; None for other parts.

    A unit's parts are digits of its number, the last one moving fastest.  Where both sides have
    threads of LOCAL, the last part of each makes up a warp, in which two columns come first and
    two of their rows: a card serves a load of 16 bytes by half warps, each at once if neighbours,
    or threads two apart, read the same, and so it is for both factors.
    """
    parts = (*plan.rows, *plan.columns)
    found: list[Node | None] = [None] * len(parts)
    for unit, node in ((Unit.WARP, warp), (Unit.LOCAL, local)):
        rows = [at for at, part in enumerate(plan.rows) if part.unit is unit]
        own = [at for at, part in enumerate(parts) if part.unit is unit]
        rest = node
        if unit is Unit.LOCAL and rows and len(rows) < len(own):
            down, across = parts[rows[-1]].size, parts[own[-1]].size
            lane = simplify.mod(rest, const_index(down * across))
            rest = simplify.idiv(rest, const_index(down * across))
            high = simplify.idiv(lane, const_index(2 * across))
            low = simplify.mod(lane, const_index(2))
            found[rows[-1]] = simplify.add(simplify.scale(high, 2), low)
            pair = simplify.idiv(lane, const_index(2))
            found[own[-1]] = simplify.mod(pair, const_index(across))
            own = [at for at in own if found[at] is None]
        for at in reversed(own):
            found[at] = simplify.mod(rest, const_index(parts[at].size))
            rest = simplify.idiv(rest, const_index(parts[at].size))
    return found


def turns_factors(plan: GpuPlan) -> bool:
    """Whether factors that lie along k are turned on their way into shared memory."""
    return any(part.unit is Unit.LOCAL for part in plan.rows)


def turning_threads(plan: GpuPlan) -> tuple[int, int]:
    """How many rows of a factor that is turned are loaded at once, by how many threads each.

    Neighbouring threads load pieces of one row.  No threads where a row has not even one piece.
    """
    pieces = plan.depth * _WORD_BYTES // _ACCESS_BYTES
    return plan.threads // max(pieces, 1), pieces


class _Side:
    """One side of the tile: where it starts, what a thread holds of it, and whether it is inside.

    `inside` is the place of an element in the tile, `first` that of the first lane of its vector.
    """

    def __init__(self, flat: Flat, tile: Node, length: int) -> None:
        self.flat = flat
        self.length = length
        self.start = simplify.scale(tile, length)
        self.inside = self.first = const_index(0)
        self.lane: Node | None = None

    def gate(self, first: Node) -> Node:
        """Is the vector that starts at a place of the tile inside of the range?"""
        if self.flat.size % self.length == 0:
            return simplify.TRUE
        return simplify.less(simplify.add(self.start, first), const_index(self.flat.size))


class _Tiling:
    def __init__(self, kernel: Kernel, plan: GpuPlan) -> None:
        self.kernel = kernel
        self.plan = plan
        self.found = orientations(kernel)[int(plan.swapped)]
        self.number = max((int(r.attrs.number) for r in kernel.free.ranges), default=-1) + 1
        self.warps = plan.unit_size(Unit.WARP)
        self.local = plan.unit_size(Unit.LOCAL)
        #: Are factors turned on their way?
        self.turns = turns_factors(plan)
        if self.turns:
            self.warps, self.local = turning_threads(plan)

    def _range(self, size: int, unit: Unit) -> Node:
        if size == 1 and unit is not Unit.THREAD:
            return const_index(0)
        self.number += 1
        return RANGE(const_index(size), attrs=RangeAttrs(self.number - 1, unit))

    def run(self) -> Node:
        m, n, k = (Flat(r) for r in (self.found.m, self.found.n, self.found.k))
        batch = Flat(self.found.batch)
        height, width = tile_size(self.plan.rows), tile_size(self.plan.columns)
        down, across = -(-m.size // height), -(-n.size // width)
        task = self._range(batch.size * down * across, Unit.THREAD)
        place = simplify.mod(task, const_index(down * across))
        self.batch = batch.values(simplify.idiv(task, const_index(down * across)))
        tile_m, tile_n = raster(place, down, across)
        warp, local = self._range(self.warps, Unit.WARP), self._range(self.local, Unit.LOCAL)
        rows, columns = _Side(m, tile_m, height), _Side(n, tile_n, width)
        shared = thread_places(self.plan, warp, local)
        if self.turns:
            thread = simplify.add(simplify.scale(warp, self.local), local)
            shared = thread_places(self.plan, const_index(0), thread)
        self._hold(rows, self.plan.rows, shared)
        self._hold(columns, self.plan.columns, shared[len(self.plan.rows) :])
        steps = self._range(-(-k.size // self.plan.depth), Unit.LOOP)
        inner = self._range(self.plan.depth, Unit.LOOP)
        self.depth = _Side(k, steps, self.plan.depth)
        factors = [
            self._staged(0, self.found.a, rows, inner),
            self._staged(1, self.found.b, columns, inner),
        ]
        reduce = self.found.reduce
        if reduce.src[0].src[0] is not self.found.a:
            factors.reverse()
        loops = [loop for loop in (steps, inner) if loop.op is RANGE]
        new = REDUCE(math.MUL(*factors), *loops, attrs=reduce.attrs)
        (sink,) = simplify.substitute([self.kernel.sink], {reduce: new})
        return self._placed(sink, rows, columns)

    def _hold(self, side: _Side, parts: Sequence[Part], shared: Sequence[Node | None]) -> None:
        """What each thread holds of a side."""
        for part, place in zip(parts, shared, strict=False):
            node = self._range(part.size, part.unit) if place is None else place
            size = const_index(part.size)
            side.inside = simplify.add(simplify.mul(side.inside, size), node)
            is_lane = part.unit is Unit.LANE
            side.first = simplify.mul(side.first, size)
            if is_lane:
                side.lane = node
            else:
                side.first = simplify.add(side.first, node)

    def _placed(self, sink: Node, rows: _Side, columns: _Side) -> Node:
        """The kernel with its output ranges where the tile is."""
        values = dict(self.batch)
        gates: dict[Node, Node] = {}
        for side in (rows, columns):
            values |= side.flat.values(simplify.add(side.start, side.first), side.lane)
            gate = side.gate(side.first)
            if gate is not simplify.TRUE:
                gates |= dict.fromkeys(side.flat.ranges, gate)
        return substitute_gated(sink, values, gates)

    # ---- staged factors

    def _staged(self, operand: int, factor: Node, side: _Side, inner: Node) -> Node:
        """The load, from shared memory, that stands for a factor."""
        depth, length = self.plan.depth, side.length
        by_k = load_stride(factor, self.depth.flat.ranges[-1]) == 1
        if by_k and self.turns:
            return self._turned(operand, factor, side, inner)
        fast = self.depth.flat if by_k else side.flat
        lanes = self._lanes(factor, fast, (depth if by_k else length), length * depth)
        row = (depth if by_k else length) // lanes
        # Neighbours along the columns read at once: their rows are turned to other banks.
        turns = by_k and operand == 1
        copies = length * depth // (self.warps * self.local * lanes)
        ranges = [
            self._range(copies, Unit.UNROLL),
            self._range(self.warps, Unit.WARP),
            self._range(self.local, Unit.LOCAL),
        ]
        lane = self._range(lanes, Unit.LANE)
        vector = const_index(0)
        for range_, size in zip(ranges, (copies, self.warps, self.local), strict=True):
            vector = simplify.add(simplify.scale(vector, size), range_)
        slow = simplify.idiv(vector, const_index(row))
        quick = simplify.mod(vector, const_index(row))
        if turns:
            turned = simplify.add(quick, simplify.idiv(slow, const_index(_TURN)))
            quick = simplify.mod(turned, const_index(row))
        quick = simplify.scale(quick, lanes)
        value = self._filled(factor, side, (slow, quick) if by_k else (quick, slow), lane, by_k)
        bound = [r for r in (*ranges, lane) if r.op is RANGE]
        stage = STAGE(value, *bound, attrs=StageAttrs(Memory.TILE, operand))
        return LOAD(INDEX(stage, _offset(side.inside, inner, by_k, turns, row, lanes, length)))

    def _turned(self, operand: int, factor: Node, side: _Side, inner: Node) -> Node:
        """The same, turned on its way: loaded along k, stored along the factor's own range."""
        depth, length = self.plan.depth, side.length
        lanes = self._lanes(factor, self.depth.flat, depth // self.local, length * depth)
        step = self._range(depth // (self.local * lanes), Unit.UNROLL)
        warp, local = self._range(self.warps, Unit.WARP), self._range(self.local, Unit.LOCAL)
        lane = self._range(lanes, Unit.LANE)
        copy = self._range(length // self.warps, Unit.UNROLL)
        own = simplify.add(simplify.scale(copy, self.warps), warp)
        k = simplify.scale(simplify.add(simplify.scale(step, self.local), local), lanes)
        value = self._filled(factor, side, (own, k), lane, by_k=True)
        bound = [range_ for range_ in (step, local, lane, copy, warp) if range_.op is RANGE]
        stage = STAGE(value, *bound, attrs=StageAttrs(Memory.TILE, operand))
        return LOAD(INDEX(stage, simplify.add(simplify.scale(inner, length), side.inside)))

    def _filled(
        self, factor: Node, side: _Side, places: tuple[Node, Node], lane: Node, by_k: bool
    ) -> Node:
        """A factor at places (own, k) of its tile, 0 past the end of k."""
        own, k = places
        own_lane, k_lane = (None, lane) if by_k else (lane, None)
        values = dict(self.batch)
        values |= side.flat.values(simplify.add(side.start, own), own_lane)
        values |= self.depth.flat.values(simplify.add(self.depth.start, k), k_lane)
        gates: dict[Node, Node] = {}
        own_gate, k_gate = side.gate(own), self.depth.gate(k)
        if own_gate is not simplify.TRUE:
            gates |= dict.fromkeys(side.flat.ranges, own_gate)
        if k_gate is not simplify.TRUE:
            gates |= dict.fromkeys(self.depth.flat.ranges, k_gate)
        value = substitute_gated(factor, values, gates)
        if k_gate is simplify.TRUE:
            return value
        return math.WHERE(k_gate, value, const_bits(0, value.dtype))

    def _lanes(self, factor: Node, fast: Flat, row: int, elements: int) -> int:
        """Elements that a thread copies at once along the ranges that move fastest."""
        last = fast.ranges[-1]
        if load_stride(factor, last) != 1:
            return 1
        widest = factor.type.dtype.itemsize
        loads = [n for n in toposort(factor) if n.op is LOAD]
        lanes = _ACCESS_BYTES // max(widest, *(n.type.dtype.itemsize for n in loads))
        size = simplify.value_of(last.src[0]) or 1
        while lanes > 1 and not (
            size % lanes == 0
            and row % lanes == 0
            and elements % (self.warps * self.local * lanes) == 0
            and all(_starts_at(load, last, lanes) for load in loads)
        ):
            lanes //= 2
        return lanes


def _starts_at(load: Node, last: Node, lanes: int) -> bool:
    """Do rows along `last` start at multiples of the lanes?"""
    constant, total = simplify.terms(load.src[0].src[1])
    steps = [constant, *(factor for term, factor in total.items() if term is not last)]
    return all(step % lanes == 0 for step in steps)


def _offset(own: Node, k: Node, by_k: bool, turns: bool, row: int, lanes: int, length: int) -> Node:
    """Where a staged factor's element at (own, k) stands."""
    if not by_k:
        return simplify.add(simplify.scale(k, length), own)
    slot = simplify.idiv(k, const_index(lanes))
    if turns:
        turned = simplify.mod(simplify.idiv(own, const_index(_TURN)), const_index(row))
        back = simplify.sub(const_index(row), turned)
        slot = simplify.mod(simplify.add(slot, back), const_index(row))
    vector = simplify.add(simplify.scale(own, row), slot)
    return simplify.add(simplify.scale(vector, lanes), simplify.mod(k, const_index(lanes)))
