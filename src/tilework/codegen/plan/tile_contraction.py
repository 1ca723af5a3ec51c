"""Plans for contractions: a register tile, staged panels, blocks for the cache, and their cost.

Every orientation (which factor gives the rows) and every range that could carry the lanes is
planned and its cost estimated in cycles; the cheapest wins.  On a CPU the tile is rows x vectors
of accumulators; machines with blocks of threads are planned by `codegen.gpu.choose` and
`codegen.matrix.choose`, in the same words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilework.codegen.analysis import Kernel, stride
from tilework.codegen.linearize.fetch_panels import NEAR_AHEAD_BYTES
from tilework.codegen.linearize.short_loops import LONGEST, fits_registers
from tilework.codegen.plan.contraction import (
    Contraction,
    is_gated,
    is_plain_load,
    load_count,
    load_stride,
)
from tilework.codegen.plan.extents import (
    ceil_div,
    fitting_lanes,
    lanes_for,
    number,
    product,
    size,
)
from tilework.codegen.plan.plan import Part, Plan, Split, Staged
from tilework.codegen.plan.staging import LEAST_SQUARE
from tilework.codegen.plan.windows import Window, windows_of
from tilework.ir.ops import math
from tilework.ir.ops.index import Unit
from tilework.ir.types import Memory

if TYPE_CHECKING:
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

#: Cycles to copy one element into a panel: by vectors, gated vectors, one by one, gated one by one.
#: (Fitted to measurements on AVX-512 and AVX2 machines, as the other numbers here.)
_COPY_VECTOR, _COPY_GATED, _COPY_SCALAR, _COPY_SCALAR_GATED = 1.0, 3.0, 1.5, 4.0
#: The same in squares transposed in registers, and for a gated vector of windows, which another
#: core has often just written.
_COPY_SQUARE, _COPY_WINDOW = 0.4, 32.0
#: Cycles to store an element of vectors transposed in registers, or one by one.
_TRANSPOSED_STORE, _SCATTERED_STORE = 0.5, 2.0
_LEAST_TRANSPOSE = 4
#: Cycles to convert an element each time that it is multiplied.
_CONVERT_SCALAR = 0.75
#: Cycles to add up the products of one word outside of vectors.
_SCALAR_DOT = 4.0
#: Cycles from an accumulator to itself: four on most machines, and some slack.
_LATENCY = 5.0
#: What one step along k takes beyond its multiply-adds: its own, for each load, and for each vector
#: of b, which is fetched again by each row of tiles.
_STEP_CYCLES, _LOAD_CYCLES, _FETCH_CYCLES = 0.5, 0.1, 0.1
#: What each row beyond so many takes where all rows lie in the same lines of the first cache.
_ROWS_APART, _ALIAS_CYCLES = 6, 0.25
#: What one core reads in a cycle from its L2, and from beyond when all cores do.
_L2_BYTES_PER_CYCLE, _FAR_BYTES_PER_CYCLE = 64.0, 6.0
#: The same where it is read in order, ahead of its use, while the multiply-adds go on.
_STREAM_BYTES_PER_CYCLE = 16.0
#: The same for what another core has just written.
_CROSSED_BYTES_PER_CYCLE = 3.0
#: Cycles for each line of a factor whose steps along k lie in different lines: from the L2, from
#: farther away, and from another page.
_NEAR_LINE_CYCLES, _LINE_CYCLES, _PAGE_CYCLES = 0.7, 2.0, 8.0
_PAGE_BYTES = 4096
#: How far panels are fetched ahead from beyond the cache: some pages, at which the machine's own
#: fetching stops and begins anew.
_AHEAD_BYTES = 4 * _PAGE_BYTES
#: By how much of a task cores that run the same number of tasks end apart.
_UNEVEN = 0.02


@dataclass(frozen=True, slots=True)
class ShortSteps:
    """An innermost loop of a few steps.

    Attributes:
        count: Its iterations.
        window: That of rows and steps, where rows read what their neighbours read steps later.
    """

    count: int
    window: Window | None

    def cost(self, height: int, vectors: int, registers: int) -> float:
        """Cycles of one step of a tile."""
        # Of the shorter side of a tile all values wait, of rows that share values these do as well.
        waiting = 1 + min(height, vectors)
        reads = height * self.count
        if self.window is not None:
            # Each value of the longer side is used for all of the other, then waits for its next
            # step if it has one.
            waiting = (height - 1) * self.window.step + (2 if height <= vectors else vectors)
            reads = min(reads, self.window.span(height))
        if not fits_registers(height * vectors, waiting, registers):
            # A loop around the loop.
            return _step_cycles(height, vectors, height + vectors) + _STEP_CYCLES
        loads = reads / self.count + vectors
        spared = _STEP_CYCLES * (1 - 1 / self.count)
        return _step_cycles(height, vectors, loads) - spared


def _step_cycles(height: int, vectors: int, loads: float) -> float:
    """Two multiply-adds or loads a cycle, or the latency, and what a step and each load add."""
    busy = max(height * vectors / 2, loads / 2, _LATENCY)
    return busy + _STEP_CYCLES + _LOAD_CYCLES * loads + _FETCH_CYCLES * vectors


class Tiling:
    """One way to tile a contraction: lanes along `lane`, rows along a range of m.

    A tile may hold all of a second, short range for each of its rows: a `group`.
    """

    def __init__(
        self,
        kernel: Kernel,
        contraction: Contraction,
        lane: Node,
        rows: tuple[Node, Node | None],
        target: TargetSpec,
        swapped: bool,
    ) -> None:
        self.kernel = kernel
        self.contraction = contraction
        self.lane = lane
        self.row, self.group = rows
        group = size(self.group) if self.group is not None else 1
        self.target = target
        self.swapped = swapped
        self.lanes = self._most_lanes()
        # Where memory is written in place no tile may reach back over the one before.
        exact = kernel.read_and_written
        while exact and size(lane) % self.lanes:
            self.lanes //= 2
        self.windows = windows_of(contraction.a, contraction.m, contraction.k)
        self.rows, self.vectors, self.step = self._shape(exact, group)
        self.height = self.rows * group
        self.overlap = not exact
        self.cache = target.l2_bytes or 1 << 19
        self.depth = product(contraction.k)
        self.row_tiles = ceil_div(size(self.row), self.rows)
        self.columns = self.lanes * self.vectors
        self.lane_tiles = ceil_div(size(lane), self.columns)
        self.n_rest = [r for r in contraction.n if r is not lane]
        self.m_rest = [r for r in contraction.m if r not in rows]
        # The range whose outputs are blocked where windows are copied.
        by_row = self.group is not None or not self.m_rest
        self.blocked = self.row if by_row else self.m_rest[-1]
        self.plain_a = is_plain_load(contraction.a)
        self.gated_a = is_gated(contraction.a)
        self.gated_b = is_gated(contraction.b)
        self.loads_a, self.loads_b = load_count(contraction.a), load_count(contraction.b)
        self.along = load_stride(contraction.b, lane) == 1
        self.direct_b = self.along and is_plain_load(contraction.b)
        self.square = 1 if self.along or not is_plain_load(contraction.b) else self._square()
        self.copy_lanes = self.lanes if self.along or self.square > 1 else 1

    def _most_lanes(self) -> int:
        """Elements of a vector along the lanes' range."""
        return fitting_lanes(lanes_for(self.kernel, self.target), size(self.lane))

    def _shape(self, exact: bool, group: int) -> tuple[int, int, float]:
        """Rows and vectors of a tile, and the cycles of one step along k."""
        return register_tile(
            self.target,
            size(self.row),
            size(self.lane),
            self.lanes,
            exact=exact,
            group=group,
            steps=self._short_steps(),
            is_aliased=self._is_aliased(),
        )

    def candidates(self) -> list[tuple[float, Plan]]:
        """Plans for this tile in all loop orders, each with its estimated cycles."""
        return [
            *(self.by_columns(block) for block in self.column_blocks()),
            *(self.by_windows(*blocks) for blocks in self.window_blocks()),
            *(self.by_rows(block) for block in self.row_blocks()),
        ]

    def _square(self) -> int:
        """The width of squares that are transposed in registers where b is contiguous along k."""
        along = [r for r in self.contraction.k if load_stride(self.contraction.b, r) == 1]
        width = self.lanes if along else 1
        while width > 1 and size(along[-1]) % width:
            width //= 2
        return width if width >= LEAST_SQUARE else 1

    # ---- the loop orders

    def by_columns(self, block: int) -> tuple[float, Plan]:
        """A block of panels of b stays in the cache while all rows of a pass: tasks are blocks."""
        outer = [*self.contraction.batch, *self.n_rest]
        inner = [*self.m_rest, self.row]
        blocks = ceil_div(self.lane_tiles, block)
        around = product(outer) * blocks
        reuse = product(self.m_rest) * self.row_tiles
        cycles = self._compute() + self._read_a(around * block) + self._stream_a(around)
        cycles += self._first_b()
        nest = [(number(r), 0) for r in [*outer, self.lane]]
        tasks = len(nest)
        staged: list[Staged] = []
        if self._stage_b(reuse, block):
            staged.append(Staged(1, Memory.TILE, len(nest), self.copy_lanes))
            cycles += around * block * self.columns * self.depth * self._copy_b()
        elif not self.direct_b:
            cycles += around * block * reuse * self.columns * self.depth * self._copy_b()
        nest += [(number(r), 0) for r in [*inner, *self._grouped()]]
        count = around
        while count < 2 * self.target.cores and not staged and tasks - len(outer) <= len(inner):
            range_ = inner[tasks - len(outer) - 1]
            count *= self.row_tiles if range_ is self.row else size(range_)
            tasks += 1
        parts = _outer_parts(block if block > 1 else 0)
        if block > 1:
            nest.append((number(self.lane), 1))
        splits = self._splits({self.lane: parts})
        plan = Plan(
            splits,
            tuple(nest),
            tasks,
            tuple(staged),
            self.overlap,
            self.swapped,
            ahead=self._ahead(staged),
        )
        if around > product(self.contraction.batch):
            cycles += self._crossed()
        return self._parallel(cycles, count), plan

    def column_blocks(self) -> list[int]:
        """Numbers of panels worth trying as a block: one, and even shares that fit the cache."""
        panel = self.columns * self.depth * self.contraction.b.type.dtype.itemsize
        fitting = max(self.cache // 2 // max(panel, 1), 1)
        found = {1}
        blocks = 1
        while blocks < self.lane_tiles:
            block = ceil_div(self.lane_tiles, blocks)
            if block <= fitting:
                found.add(block)
            blocks *= 2
        found.add(min(fitting, self.lane_tiles))
        return sorted(found)

    def by_rows(self, block: int) -> tuple[float, Plan]:
        """A block of rows of a stays in the cache while the panels of b pass."""
        blocks = ceil_div(self.row_tiles, block)
        outer = [*self.contraction.batch, *self.m_rest]
        around = product(outer) * blocks
        nest = [(number(r), 0) for r in outer] + [(number(self.row), 0)]
        tasks = len(nest)
        panels = product(self.n_rest) * self.lane_tiles
        # The last block may be smaller than those that all wait for.
        cycles = self._compute() * blocks * block / self.row_tiles
        staged: list[Staged] = []
        if self._stage_a(panels):
            staged.append(Staged(0, Memory.TILE, len(nest), 1))
            copied = around * block * self.height * self.depth * self.loads_a
            cycles += copied * (_COPY_SCALAR_GATED if self.gated_a else _COPY_SCALAR)
        else:
            cycles += self._read_a(around * panels)
        nest += [(number(r), 0) for r in self.n_rest] + [(number(self.lane), 0)]
        if self._stage_b(block):
            staged.append(Staged(1, Memory.TILE, len(nest), self.copy_lanes))
            cycles += around * panels * self.columns * self.depth * self._copy_b()
        elif not self.direct_b:
            cycles += around * panels * block * self.columns * self.depth * self._copy_b()
        cycles += self._stream_b(around, panels)
        if not staged:
            cycles += self._shared_b(around)
        nest.append((number(self.row), 1))
        nest += [(number(r), 0) for r in self._grouped()]
        splits = self._splits({self.row: _outer_parts(block)})
        plan = Plan(
            splits,
            tuple(nest),
            tasks,
            tuple(staged),
            self.overlap,
            self.swapped,
            ahead=self._ahead(staged),
        )
        return self._parallel(cycles, around), plan

    def by_windows(self, block: int, shares: int) -> tuple[float, Plan]:
        """The input of a block of outputs is copied once into the cache; panels of b pass.

        With several `shares` the panels of b are divided among as many tasks, which copy the same
        input.
        """
        blocked = self.blocked
        outer = [*self.contraction.batch, *(r for r in self.m_rest if r is not blocked), blocked]
        tiles = self.row_tiles if blocked is self.row else size(blocked)
        around = product(outer[:-1]) * ceil_div(tiles, block)
        shared = self.lane if self.lane_tiles > 1 or not self.n_rest else self.n_rest[-1]
        passes = self.lane_tiles if shared is self.lane else size(shared)
        share = ceil_div(passes, shares)
        tasks = around * ceil_div(passes, share)
        nest = [(number(r), 0) for r in outer]
        if shares > 1:
            nest.append((number(shared), 0))
        level = len(nest)
        staged = [Staged(0, Memory.TILE, level, self.lanes, windows=True)]
        # The last block, and the last share, may be smaller than those that all wait for.
        whole = ceil_div(tiles, block) * block * ceil_div(passes, share) * share
        cycles = self._compute() * whole / (tiles * passes)
        copied = tasks * self._window_elements(block) * self.loads_a
        cycles += copied * _COPY_WINDOW / self.lanes
        own = [*self.n_rest, self.lane]
        nest += [(number(r), int(shares > 1 and r is shared)) for r in own]
        panels = product(self.n_rest) * self.lane_tiles
        reuse = block if blocked is self.row else block * self.row_tiles
        if self._stage_b(reuse):
            staged.append(Staged(1, Memory.TILE, len(nest), self.copy_lanes))
            cycles += around * panels * self.columns * self.depth * self._copy_b()
        elif not self.direct_b:
            cycles += around * panels * reuse * self.columns * self.depth * self._copy_b()
        cycles += self._stream_b(around, panels)
        nest.append((number(blocked), 1))
        if blocked is not self.row:
            nest.append((number(self.row), 0))
        nest += [(number(r), 0) for r in self._grouped()]
        parts = {blocked: _outer_parts(block)}
        if shares > 1:
            parts[shared] = _outer_parts(share)
        splits = self._splits(parts)
        plan = Plan(
            splits,
            tuple(nest),
            level,
            tuple(staged),
            self.overlap,
            self.swapped,
            ahead=self._ahead(staged),
        )
        return self._parallel(cycles, tasks), plan

    def window_blocks(self) -> list[tuple[int, int]]:
        """Blocks of outputs worth trying, and among how many tasks to divide the panels of b.

        Even shares of the outputs whose input fits half of the cache.
        """
        if not self.windows:
            return []
        tiles = self.row_tiles if self.blocked is self.row else size(self.blocked)
        item = self.contraction.a.type.dtype.itemsize
        found = set()
        blocks = 1
        while blocks <= tiles:
            block = ceil_div(tiles, blocks)
            if self._window_elements(block) * item <= self.cache // 2:
                found |= {(block, 1), (block, self.target.cores)}
            blocks += max(blocks // 2, 1)
        return sorted(found)

    def _window_elements(self, block: int) -> int:
        """What a copy of the input of `block` outputs holds."""
        spans = {window.own: window for window in self.windows}
        inner = {window.inside for window in self.windows}
        count = product(r for r in self.contraction.k if r not in inner)
        for range_ in self.contraction.m:
            extent = size(range_)
            if range_ is self.blocked:
                extent = min(block * (self.rows if range_ is self.row else 1), extent)
            elif range_ is not self.row and range_ is not self.group:
                extent = 1
            count *= spans[range_].span(extent) if range_ in spans else extent
        return count

    # ---- parts

    def _grouped(self) -> list[Node]:
        return [] if self.group is None else [self.group]

    def _splits(self, parts: dict[Node, tuple[Part, ...]]) -> tuple[Split, ...]:
        """The splits of a plan whose ranges have the outer parts `parts`, else one loop each."""
        tiles: dict[Node, tuple[Part, ...]] = {self.row: (Part(Unit.UNROLL, self.rows),)}
        tiles |= {r: (Part(Unit.UNROLL, size(r)),) for r in self._grouped()}
        tiles[self.lane] = (Part(Unit.UNROLL, self.vectors), Part(Unit.LANE, self.lanes))
        return tuple(
            Split(number(r), parts.get(r, (Part(Unit.LOOP),)), tiles.get(r, ()))
            for r in dict.fromkeys([*tiles, *parts])
        )

    def row_blocks(self) -> list[int]:
        """Numbers of row tiles worth trying as a block: even shares that fit half of the cache."""
        item = self.contraction.a.type.dtype.itemsize
        fitting = max(self.cache // 2 // max(self.depth * self.height * item, 1), 1)
        least = ceil_div(self.row_tiles, fitting)
        found = set()
        others = product([*self.contraction.batch, *self.m_rest])
        for tasks in (0, 1, 2):
            blocks = max(least, min(ceil_div(self.target.cores * tasks, others), self.row_tiles))
            found.add(ceil_div(self.row_tiles, blocks))
        return sorted(found)

    def _stage_a(self, panels: int) -> bool:
        """Is a read often enough to be copied into panels of consecutive rows?"""
        block = self.height * self.depth * self.contraction.a.type.dtype.itemsize
        if block > self.cache:
            return False
        if not self.plain_a:
            return panels >= 2
        if load_stride(self.contraction.a, self.row) == 1:
            return False  # rows lie side by side already
        return panels >= 4 and self.depth >= 64 and size(self.row) >= 16

    def _stage_b(self, reuse: int, block: int = 1) -> bool:
        """Do packed panels of b pay?  They must be read several times, or be costly to read."""
        panel = block * self.columns * self.depth * self.contraction.b.type.dtype.itemsize
        if panel > self.cache:
            return False
        if not self.direct_b:
            return reuse > 1
        last = self.contraction.k[-1]
        is_packed = load_stride(self.contraction.b, last) == self.columns == size(self.lane)
        return reuse >= 3 and self.depth >= 32 and not is_packed

    def _short_steps(self) -> ShortSteps | None:
        """The innermost loop along k, if it is so short that it may be written out."""
        innermost = self.contraction.k[-1]
        count = size(innermost)
        if not 1 < count <= LONGEST:
            return None
        found = [w for w in self.windows if w.own is self.row and w.inside is innermost]
        return ShortSteps(count, found[0] if found else None)

    def _is_aliased(self) -> bool:
        """Do rows that are read where they lie share the lines of the first cache?"""
        step = load_stride(self.contraction.a, self.row)
        if not step or self.windows:
            return False
        return step * self.contraction.a.type.dtype.itemsize % _PAGE_BYTES == 0

    # ---- cycles

    def _compute(self) -> float:
        tiles = product([*self.contraction.batch, *self.m_rest, *self.n_rest])
        tiles *= self.row_tiles * self.lane_tiles
        return tiles * (self.step + self._corrections()) * self.depth + self._store_cycles()

    def _corrections(self) -> float:
        """What sums of one factor alone add to each step: a row for columns, scalars for rows."""
        cycles = 0.0
        for reduce in self.contraction.corrections:
            is_wide = self.kernel.free.mask[reduce] & self.kernel.free.bit(self.lane)
            cycles += self.vectors / 2 if is_wide else self.height * _SCALAR_DOT
        return cycles

    def _read_a(self, panels: int) -> float:
        """What reading a straight from its buffer costs beyond a load with the multiplication."""
        tiles = product(self.m_rest) * self.row_tiles
        if not self.plain_a:
            cost = _COPY_SCALAR_GATED if self.gated_a else _COPY_SCALAR
            return panels * tiles * self.height * self.depth * cost * self.loads_a
        step = load_stride(self.contraction.a, self.contraction.k[-1])
        converted = 0.0
        if self.contraction.a.op is math.CAST:  # no operand of the multiplication as it is
            converted = panels * tiles * self.height * self.depth * _CONVERT_SCALAR
        if step in (0, 1):
            return converted
        # Each step along k opens a line of its own for the rows of the tile.
        item = self.contraction.a.type.dtype.itemsize
        total = self._elements_a() * item
        if total <= self.target.l1_bytes:
            return converted
        cost = _NEAR_LINE_CYCLES
        if total > self.cache // 2:
            is_far = step is None or step * item >= _PAGE_BYTES
            cost = _PAGE_CYCLES if is_far else _LINE_CYCLES
        return converted + panels * tiles * self.depth * cost

    def _elements_a(self) -> int:
        """How many elements of a there are."""
        total = product(self.contraction.m) * self.depth
        for window in self.windows:
            outputs = size(window.own)
            total = total * window.span(outputs) // (outputs * size(window.inside))
        return total

    def _ahead(self, staged: list[Staged]) -> int:
        """How far b is fetched ahead, where its panels are read in order: in copies, or packed."""
        item = self.contraction.b.type.dtype.itemsize
        is_copied = any(copy.operand == 1 for copy in staged)
        if not is_copied:
            in_order = load_stride(self.contraction.b, self.contraction.k[-1]) == self.columns
            if not self.direct_b or not in_order:
                return 0
            if product(self.contraction.n) * self.depth * item > self.cache // 2:
                return _AHEAD_BYTES
        panel = self.columns * self.depth * item
        return NEAR_AHEAD_BYTES if panel > self.target.l1_bytes else 0

    def _copy_b(self) -> float:
        if self.square > 1:
            return _COPY_SQUARE + 2.0 / self.square
        return self.loads_b * _copy_cost(self.along, self.gated_b, self.lanes)

    def _stream_a(self, times: int) -> float:
        """a read from far away once for each block of columns."""
        total = self._elements_a() * self.contraction.a.type.dtype.itemsize
        return times * total / _STREAM_BYTES_PER_CYCLE if total > self.cache // 2 else 0.0

    def _first_b(self) -> float:
        """b read once from far away."""
        of_b = self.kernel.free.mask[self.contraction.b]
        batch = [r for r in self.contraction.batch if of_b & self.kernel.free.bit(r)]
        total = product([*batch, *self.contraction.n]) * self.depth
        total *= self.contraction.b.type.dtype.itemsize
        return total / _STREAM_BYTES_PER_CYCLE if total > self.cache // 2 else 0.0

    def _stream_b(self, times: int, panels: int) -> float:
        """b read again and again from L2, or from farther away where it does not fit."""
        item = self.contraction.b.type.dtype.itemsize
        total = panels * self.columns * self.depth * item
        fits = total <= self.cache
        return times * total / (_L2_BYTES_PER_CYCLE if fits else _STREAM_BYTES_PER_CYCLE)

    def _shared_b(self, tasks: int) -> float:
        """b read by each core, where one after the other could have had its own part."""
        of_b = self.kernel.free.mask[self.contraction.b]
        if any(of_b & self.kernel.free.bit(r) for r in self.contraction.batch):
            return 0.0
        total = product(self.contraction.n) * self.depth * self.contraction.b.type.dtype.itemsize
        return (min(self.target.cores, tasks) - 1) * total / _STREAM_BYTES_PER_CYCLE

    def _crossed(self) -> float:
        """What cores read that others have just written, if they share columns instead of rows.

        Other kernels share rows as far as they can: half of a comes from other cores, and half of
        the results goes there.
        """
        batch = product(self.contraction.batch)
        weights = product(self.contraction.n) * self.depth * self.contraction.b.type.dtype.itemsize
        if batch >= self.target.cores or weights > self.cache // 2:
            return 0.0  # sharing rows would have each core read all of b from far away
        results = product(self.contraction.m) * product(self.contraction.n)
        total = batch * (self._elements_a() + results) * self.contraction.a.type.dtype.itemsize
        crossed = min(total, self.target.cores * self.cache) / 2
        return (self.target.cores - 1) * crossed / _CROSSED_BYTES_PER_CYCLE

    def _results(self) -> int:
        """How many elements are stored."""
        return product(self.kernel.outputs) * len(self.kernel.stores)

    def _store_cycles(self) -> float:
        count = self._results()
        offsets = [s.src[0].src[1] for s in self.kernel.stores]
        if all(stride(offset, self.lane) == 1 for offset in offsets):
            return count / self.lanes
        for range_, copies in ((self.row, self.rows), (self.group, self.height // self.rows)):
            if range_ is None or copies < _LEAST_TRANSPOSE:
                continue
            if all(stride(offset, range_) == 1 for offset in offsets):
                return count * _TRANSPOSED_STORE
        return count * _SCATTERED_STORE

    def _parallel(self, cycles: float, tasks: int) -> float:
        """Cycles on all cores, with those that wait in the last round."""
        cores = self.target.cores
        rounds = ceil_div(tasks, cores) + (_UNEVEN if cores > 1 else 0.0)
        return cycles * rounds / tasks


def _outer_parts(block: int) -> tuple[Part, ...]:
    """One loop, or with a block a loop over blocks and one inside."""
    return (Part(Unit.LOOP), Part(Unit.LOOP, block)) if block else (Part(Unit.LOOP),)


def _copy_cost(contiguous: bool, gated: bool, lanes: int) -> float:
    """Cycles an element for a copy of b."""
    if contiguous:
        return (_COPY_GATED if gated else _COPY_VECTOR) / lanes
    return _COPY_SCALAR_GATED if gated else _COPY_SCALAR


def register_tile(
    target: TargetSpec,
    rows: int,
    columns: int,
    lanes: int,
    *,
    exact: bool = False,
    group: int = 1,
    steps: ShortSteps | None = None,
    is_aliased: bool = False,
) -> tuple[int, int, float]:
    """Rows and vectors of accumulators, and the cycles of one step along k.

    The shape with the fewest cycles over the whole matrix wins.  Registers hold the accumulators,
    the shorter side of the tile and one value of the longer one.  With `exact` the shape divides
    the matrix.  Each of the rows may stand for a `group` of them.  The innermost loop along k may
    be short: then it is written out where registers allow that.  With `is_aliased` the rows lie
    whole pages apart.
    """
    registers = target.num_vector_registers or 16
    best: tuple[float, int, int, float] = (float("inf"), 1, 1, 4.0)
    for vectors in range(1, 6):
        if lanes * vectors > columns and vectors > 1:
            break
        for count in range(1, 15):
            height = count * group
            if count > rows or height * vectors + min(height, vectors) + 1 > registers:
                break
            if exact and (rows % count or columns % (lanes * vectors)):
                continue
            tiles = ceil_div(rows, count) * ceil_div(columns, lanes * vectors)
            if steps is None:
                step = _step_cycles(height, vectors, height + vectors)
            else:
                step = steps.cost(height, vectors, registers)
            if is_aliased:
                step += _ALIAS_CYCLES * max(height - _ROWS_APART, 0)
            if tiles * step < best[0] * 0.999:
                best = (tiles * step, count, vectors, step)
    return best[1], best[2], best[3]
