"""Plans for contractions: a register tile, staged panels, blocks for the cache, and their cost.

Every orientation (which factor gives the rows) and every range that could carry the lanes is
planned and its cost estimated in cycles; the cheapest wins.  On a CPU the tile is rows x vectors
of accumulators; machines with blocks of threads are planned by `codegen.gpu.choose` and
`codegen.matrix.choose`, in the same words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.codegen.linearize.fetch_panels import NEAR_AHEAD_BYTES
from tilework.codegen.plan.contraction import load_stride, loaded_share
from tilework.codegen.plan.extents import ceil_div, number, product, size
from tilework.codegen.plan.plan import Part, Plan, Split, Staged
from tilework.codegen.plan.tile_cost import (
    COPY_SCALAR,
    COPY_SCALAR_GATED,
    COPY_WINDOW,
    PAGE_BYTES,
    TileCost,
)
from tilework.ir.ops.index import Unit
from tilework.ir.types import Memory

if TYPE_CHECKING:
    from tilework.ir.node import Node

#: How far panels are fetched ahead from beyond the cache: some pages, at which the machine's own
#: fetching stops and begins anew.
_AHEAD_BYTES = 4 * PAGE_BYTES


class Tiling(TileCost):
    """Plans for one way to tile a contraction, in all orders of its loops."""

    def candidates(self) -> list[tuple[float, Plan]]:
        """Plans for this tile in all loop orders, each with its estimated cycles."""
        return [
            *(self.by_columns(block) for block in self.column_blocks()),
            *(self.by_windows(*blocks) for blocks in self.window_blocks()),
            *(
                self.by_rows(block, copied)
                for block in self.row_blocks()
                for copied in self._ways()
            ),
        ]

    def by_columns(self, block: int) -> tuple[float, Plan]:
        """A block of panels of b stays in the cache while all rows of a pass: tasks are blocks."""
        outer = [*self.contraction.batch, *self.n_rest]
        inner = [*self.m_rest, self.row]
        blocks = ceil_div(self.lane_tiles, block)
        around = product(outer) * blocks
        reuse = product(self.m_rest) * self.row_tiles
        cycles = self.compute + self._read_a(around * block) + self._stream_a(around)
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
        plan = self._plan(splits, nest, tasks, staged)
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

    def by_rows(self, block: int, is_copied: bool) -> tuple[float, Plan]:
        """A block of rows of a, `is_copied` or in place, stays in the cache; panels of b pass."""
        blocks = ceil_div(self.row_tiles, block)
        outer = [*self.contraction.batch, *self.m_rest]
        around = product(outer) * blocks
        nest = [(number(r), 0) for r in outer] + [(number(self.row), 0)]
        tasks = len(nest)
        panels = product(self.n_rest) * self.lane_tiles
        # The last block may be smaller than those that all wait for.
        cycles = self.compute * blocks * block / self.row_tiles
        staged: list[Staged] = []
        if is_copied:
            staged.append(Staged(0, Memory.TILE, len(nest), 1))
            copied = around * block * self.height * self.depth * self.loads_a
            cycles += copied * (COPY_SCALAR_GATED if self.gated_a else COPY_SCALAR)
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
        plan = self._plan(splits, nest, tasks, staged)
        return self._parallel(cycles, around), plan

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
        cycles = self.compute * whole / (tiles * passes)
        # What is dear is that another core has written it: bytes count, not loads.
        copied = tasks * self._window_elements(block) * loaded_share(self.contraction.a)
        cycles += copied * COPY_WINDOW / self.lanes
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
        plan = self._plan(splits, nest, level, staged)
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

    # ---- parts

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

    def _grouped(self) -> list[Node]:
        return [] if self.group is None else [self.group]

    def _plan(
        self,
        splits: tuple[Split, ...],
        nest: list[tuple[int, int]],
        tasks: int,
        staged: list[Staged],
    ) -> Plan:
        """A plan whose first `tasks` loops are shared out."""
        return Plan(
            splits,
            tuple(nest),
            tasks,
            tuple(staged),
            self.overlap,
            self.swapped,
            ahead=self._ahead(staged),
        )

    def _splits(self, parts: dict[Node, tuple[Part, ...]]) -> tuple[Split, ...]:
        """The splits of a plan whose ranges have the outer parts `parts`, else one loop each."""
        tiles: dict[Node, tuple[Part, ...]] = {self.row: (Part(Unit.UNROLL, self.rows),)}
        tiles |= {r: (Part(Unit.UNROLL, size(r)),) for r in self._grouped()}
        tiles[self.lane] = (Part(Unit.UNROLL, self.vectors), Part(Unit.LANE, self.lanes))
        return tuple(
            Split(number(r), parts.get(r, (Part(Unit.LOOP),)), tiles.get(r, ()))
            for r in dict.fromkeys([*tiles, *parts])
        )

    def _ways(self) -> tuple[bool, ...]:
        """Whether blocks of rows of a are copied; both are compared where it is read in order."""
        if not self._stage_a(product(self.n_rest) * self.lane_tiles):
            return (False,)
        in_order = self.plain_a and load_stride(self.contraction.a, self.contraction.k[-1]) == 1
        return (True, False) if in_order else (True,)

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


def _outer_parts(block: int) -> tuple[Part, ...]:
    """One loop, or with a block a loop over blocks and one inside."""
    return (Part(Unit.LOOP), Part(Unit.LOOP, block)) if block else (Part(Unit.LOOP),)
