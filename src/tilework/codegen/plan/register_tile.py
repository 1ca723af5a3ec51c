"""The register tile of a product: rows x vectors of accumulators, and what a step along k takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.records import dataclass
from tilework.codegen.linearize.short_loops import fits_registers
from tilework.codegen.plan.extents import ceil_div
from tilework.codegen.plan.windows import Window

if TYPE_CHECKING:
    from tilework.target.spec import TargetSpec

#: Cycles from an accumulator to itself: four on most machines, and some slack.
_LATENCY = 5.0
#: What one step along k takes beyond its multiply-adds: its own, for each load, and for each vector
#: of b, which is fetched again by each row of tiles.
_STEP_CYCLES, _LOAD_CYCLES, _FETCH_CYCLES = 0.5, 0.1, 0.1
#: What each row beyond so many takes where all rows lie in the same lines of the first cache.
_ROWS_APART, _ALIAS_CYCLES = 6, 0.25


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
