"""Plans for contractions: a register tile, staged panels, blocks for the cache, and their cost.

Every orientation (which factor gives the rows) and every range that could carry the lanes is
planned and its cost estimated in cycles; the cheapest wins.  On a CPU the tile is rows x vectors
of accumulators; a GPU's plans will use the same words with a block tile and matrix instructions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilework.codegen.analysis import Kernel, stride
from tilework.codegen.plan.contraction import (
    Contraction,
    is_plain_load,
    load_stride,
    orientations,
)
from tilework.codegen.plan.extents import (
    ceil_div,
    fitting_lanes,
    lanes_for,
    least_size,
    number,
    product,
    size,
)
from tilework.codegen.plan.plan import Part, Plan, Split, Staged
from tilework.ir.ops.index import Unit
from tilework.ir.types import Memory

if TYPE_CHECKING:
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

#: Cycles to copy one element into a panel: by vectors, gated vectors, one by one, gated one by one.
_COPY_VECTOR, _COPY_GATED, _COPY_SCALAR, _COPY_SCALAR_GATED = 1.0, 3.0, 1.5, 4.0


def choose_contraction_plan(kernel: Kernel, target: TargetSpec) -> Plan | None:
    """The cheapest tiling of the kernel's contraction; None if it has none that can be tiled."""
    if kernel.read_and_written:
        return None
    if any(least_size(r) != size(r) or size(r) < 1 for r in kernel.free.ranges):
        return None  # sizes known at run time only: plain loops
    best: tuple[float, Plan] | None = None
    for swapped, contraction in enumerate(orientations(kernel)):
        for lane in contraction.n:
            if size(lane) < 2:
                continue
            candidate = _Tiling(kernel, contraction, lane, target).plan(bool(swapped))
            if best is None or candidate[0] < best[0]:
                best = candidate
    return None if best is None else best[1]


@dataclass
class _Tiling:
    """One way to tile a contraction: lanes along `lane`, rows along the last range of m."""

    kernel: Kernel
    contraction: Contraction
    lane: Node
    target: TargetSpec

    def plan(self, swapped: bool) -> tuple[float, Plan]:
        """The plan and its estimated cycles on one core."""
        contraction, lane = self.contraction, self.lane
        row = contraction.m[-1]
        lanes = fitting_lanes(lanes_for(self.kernel, self.target), size(lane))
        rows, vectors, step = register_tile(self.target, size(row), size(lane), lanes)
        depth = product(contraction.k)
        row_tiles = ceil_div(size(row), rows)
        lane_tiles = ceil_div(size(lane), lanes * vectors)
        block = self._row_block(row_tiles, rows, depth)
        outer = [*contraction.batch, *contraction.m[:-1]]
        outer += [r for r in contraction.n if r is not lane]
        around = product(outer)
        nest = [(number(r), 0) for r in outer] + [(number(row), 0)]
        tasks = len(nest)
        blocks = ceil_div(row_tiles, block)
        staged: list[Staged] = []
        cycles = around * row_tiles * lane_tiles * step * depth
        split_lanes = around * blocks < 2 * self.target.cores and lane_tiles > 1
        gated_a = not is_plain_load(contraction.a)
        if not split_lanes and self._stage_a(lane_tiles, depth, row_tiles * rows, gated_a):
            staged.append(Staged(0, Memory.TILE, len(nest), 1))
            copied = around * row_tiles * rows * depth
            cycles += copied * (_COPY_SCALAR_GATED if gated_a else _COPY_SCALAR)
        elif gated_a:
            cycles += around * row_tiles * lane_tiles * rows * depth * _COPY_SCALAR_GATED
        nest.append((number(lane), 0))
        if split_lanes:
            tasks += 1
        plain = is_plain_load(contraction.b)
        contiguous = load_stride(contraction.b, lane) == 1
        if self._stage_b(plain and contiguous, block, depth):
            staged.append(Staged(1, Memory.TILE, len(nest), lanes if contiguous else 1))
            copied = around * blocks * lane_tiles * lanes * vectors * depth
            cycles += copied * _copy_cost(contiguous, plain, lanes)
        elif not (plain and contiguous):
            reads = around * row_tiles * lane_tiles * lanes * vectors * depth
            cycles += reads * _copy_cost(contiguous, plain, lanes)
        nest.append((number(row), 1))
        cycles += self._store_cycles(lanes)
        splits = (
            Split(
                number(row),
                (Part(Unit.LOOP), Part(Unit.LOOP, block)),
                (Part(Unit.UNROLL, rows),),
            ),
            Split(
                number(lane),
                (Part(Unit.LOOP),),
                (Part(Unit.UNROLL, vectors), Part(Unit.LANE, lanes)),
            ),
        )
        return cycles, Plan(splits, tuple(nest), tasks, tuple(staged), True, swapped)

    def _row_block(self, row_tiles: int, rows: int, depth: int) -> int:
        """Row tiles whose staged panels fill half of the L2 cache, in even blocks."""
        item = self.contraction.a.type.dtype.itemsize
        cache = self.target.l2_bytes or 1 << 19
        fitting = max(cache // 2 // max(depth * rows * item, 1), 1)
        blocks = ceil_div(row_tiles, fitting)
        if row_tiles * rows * depth >= 1 << 16:
            blocks = max(blocks, min(self.target.cores * 2, row_tiles))
        return ceil_div(row_tiles, blocks)

    def _stage_a(self, lane_tiles: int, depth: int, rows: int, gated: bool) -> bool:
        """Is a read often enough to be copied into panels of consecutive rows?"""
        if gated:
            return lane_tiles >= 2
        return lane_tiles >= 4 and depth >= 64 and rows >= 16

    def _stage_b(self, is_direct: bool, block: int, depth: int) -> bool:
        """Does a packed panel of b pay?  It must be read several times, or be costly to read."""
        return block > 1 if not is_direct else block >= 3 and depth >= 32

    def _store_cycles(self, lanes: int) -> float:
        count = product(self.kernel.outputs) * len(self.kernel.stores)
        along = all(stride(s.src[0].src[1], self.lane) == 1 for s in self.kernel.stores)
        return count / lanes if along else count * 2.0


def _copy_cost(contiguous: bool, plain: bool, lanes: int) -> float:
    """Cycles an element for a copy of b."""
    if contiguous:
        return (_COPY_VECTOR if plain else _COPY_GATED) / lanes
    return _COPY_SCALAR if plain else _COPY_SCALAR_GATED


def register_tile(
    target: TargetSpec, rows: int, columns: int, lanes: int
) -> tuple[int, int, float]:
    """Rows and vectors of accumulators, and the cycles of one step along k.

    The shape with the fewest cycles over the whole matrix wins: two fused multiply-adds or loads
    a cycle, four cycles from an accumulator to itself.  Registers hold the accumulators, one row
    of vectors of b and, without memory-operand broadcasts, one value of a.
    """
    registers = target.num_vector_registers or 16
    best: tuple[float, int, int, float] = (float("inf"), 1, 1, 4.0)
    for vectors in range(1, 5):
        if lanes * vectors > columns and vectors > 1:
            break
        for height in range(1, 15):
            if height > rows or height * vectors + vectors + 1 > registers:
                break
            tiles = ceil_div(rows, height) * ceil_div(columns, lanes * vectors)
            step = max(height * vectors / 2, (height + vectors) / 2, 4.0)
            if tiles * step < best[0] * 0.999:
                best = (tiles * step, height, vectors, step)
    return best[1], best[2], best[3]
