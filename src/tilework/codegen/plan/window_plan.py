"""Plans for folds over windows: pooling, depthwise convolution, filters.

Without a plan of their own each output would gather its window under the conditions of the padding.
Here the input of a block of outputs is copied once into the cache, padding included, so that the
fold itself reads vectors without conditions, for several rows side by side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.codegen.plan.contraction import Contraction, is_gated, is_plain_load, load_stride
from tilework.codegen.plan.extents import (
    ceil_div,
    fitting_lanes,
    lanes_for,
    number,
    product,
    size,
)
from tilework.codegen.plan.plan import Part, Plan, Split, Staged
from tilework.codegen.plan.windows import Window, window_fold, windows_of
from tilework.ir.ops.index import Unit
from tilework.ir.types import Memory

if TYPE_CHECKING:
    from tilework.codegen.analysis import Kernel
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

#: Rows of accumulators side by side; fewer lanes than this leave the copy without a gain.
_MOST_ROWS = 8
_MOST_VECTORS = 4
#: A sum of vectors takes so many cycles, in which as many rows may begin.
_WAITED_ROWS = 4
_LEAST_LANES = 4
_TASKS_PER_CORE = 2
#: Rows of a block for each row that neighbouring blocks both copy.
_LITTLE_TWICE = 3


def choose_window_plan(kernel: Kernel, target: TargetSpec) -> Plan | None:
    """The plan of a fold over windows; None where the kernel has none, or vectors do as well."""
    fold = window_fold(kernel)
    if fold is None or kernel.read_and_written or not target.vector_bits:
        return None
    windows = windows_of(fold.a, fold.m, fold.k)
    if len(fold.m) > len(windows):
        deep = _DeepLayout(kernel, target, fold, windows)
        return deep.plan() if deep.lanes >= _LEAST_LANES else None
    side_by_side = [w for w in windows if load_stride(fold.a, w.own) == w.step]
    if not side_by_side:
        return None
    along = side_by_side[-1]
    if along.step == 1 and is_plain_load(fold.a) and not is_gated(fold.a):
        return None
    lanes = fitting_lanes(lanes_for(kernel, target), size(along.own))
    if lanes < _LEAST_LANES:
        return None
    return _Layout(kernel, target, fold, windows, along, lanes).plan()


class _Layout:
    """Lanes along one window's outputs, rows along another's, blocks of rows that fit the cache."""

    def __init__(
        self,
        kernel: Kernel,
        target: TargetSpec,
        fold: Contraction,
        windows: list[Window],
        along: Window,
        lanes: int,
    ) -> None:
        self.kernel = kernel
        self.target = target
        self.fold = fold
        self.windows = windows
        self.lane = along.own
        self.lanes = lanes
        others = [window.own for window in windows if window is not along]
        self.row = others[-1] if others else None
        self.rows = 1 if self.row is None else _even_rows(size(self.row))
        of_a = kernel.free.mask[fold.a]
        self.outer = [r for r in fold.batch if of_a & kernel.free.bit(r)]
        self.inner = [r for r in fold.batch if r not in self.outer]
        self.inner += [r for r in others if r is not self.row]

    def plan(self) -> Plan | None:
        """The plan; None where even one row's input is too much for the cache."""
        cache = self.target.l2_bytes or 1 << 19
        tiles = 1 if self.row is None else ceil_div(size(self.row), self.rows)
        wanted = ceil_div(_TASKS_PER_CORE * self.target.cores, product(self.outer))
        blocks = min(wanted, tiles)
        while self._bytes(ceil_div(tiles, blocks)) > cache // 4 and blocks < tiles:
            blocks += 1
        block = ceil_div(tiles, blocks)
        if self._bytes(block) > cache // 2:
            return None
        nest = [(number(r), 0) for r in self.outer]
        splits = [Split(number(self.lane), (Part(Unit.LOOP),), self._lane_tile())]
        parts: tuple[Part, ...] = (Part(Unit.LOOP),)
        if self.row is not None and blocks > 1:
            nest.append((number(self.row), 0))
            parts = (Part(Unit.LOOP), Part(Unit.LOOP, block))
        level = len(nest)
        nest += [(number(r), 0) for r in self.inner]
        if self.row is not None:
            nest.append((number(self.row), len(parts) - 1))
            splits.append(Split(number(self.row), parts, (Part(Unit.UNROLL, self.rows),)))
        nest.append((number(self.lane), 0))
        staged = Staged(0, Memory.TILE, level, self.lanes, windows=True)
        return Plan(tuple(splits), tuple(nest), level, (staged,))

    def _lane_tile(self) -> tuple[Part, ...]:
        vectors = 1
        while self.row is None and vectors < _MOST_VECTORS:
            if self.lanes * vectors * 2 > size(self.lane):
                break
            vectors *= 2
        unrolled = (Part(Unit.UNROLL, vectors),) if vectors > 1 else ()
        return (*unrolled, Part(Unit.LANE, self.lanes))

    def _bytes(self, block: int) -> int:
        """What a copy of the input of `block` tiles of rows takes."""
        inside = {window.inside for window in self.windows}
        count = product(r for r in self.fold.k if r not in inside)
        for window in self.windows:
            extent = size(window.own)
            if window.own is self.row:
                extent = min(block * self.rows, extent)
            count *= window.span(extent) + (self.lanes if window.own is self.lane else 0)
        return count * self.fold.a.type.dtype.itemsize


class _DeepLayout:
    """Lanes along a range that is no window: channels that are stored last.

    All taps of an output are vectors as they lie.  Conditions of the padding are met by a copy of
    the windows of one tile of channels; without conditions nothing is copied.
    """

    def __init__(
        self, kernel: Kernel, target: TargetSpec, fold: Contraction, windows: list[Window]
    ) -> None:
        self.target = target
        self.windows = windows
        self.lane = fold.m[len(windows)]
        self.lanes = fitting_lanes(lanes_for(kernel, target), size(self.lane))
        self.copies = is_gated(fold.a) or not is_plain_load(fold.a)
        owns = [window.own for window in windows]
        self.row = owns[-1]
        self.rows = _even_rows(size(self.row))
        self.block = owns[0] if len(owns) > 1 else None
        self.others = [r for r in fold.batch if r not in owns]
        self.others += owns[1:-1]

    def plan(self) -> Plan:
        """Tasks are blocks of rows where these are long, else tiles of channels."""
        tiles = ceil_div(size(self.lane), self.lanes)
        wanted = ceil_div(_TASKS_PER_CORE * self.target.cores, product(self.others))
        nest = [(number(r), 0) for r in self.others]
        parts: dict[Node, tuple[Part, ...]] = {}
        parts |= {self.lane: (Part(Unit.LOOP),), self.row: (Part(Unit.LOOP),)}
        block = self._rows_of_block()
        if block and self.block is not None:
            parts[self.block] = (Part(Unit.LOOP), Part(Unit.LOOP, block))
            nest.append((number(self.block), 0))
            tasks = len(nest)
            nest.append((number(self.lane), 0))
        else:
            block = ceil_div(tiles, wanted)
            parts[self.lane] = (Part(Unit.LOOP), Part(Unit.LOOP, block))
            nest.append((number(self.lane), 0))
            tasks = len(nest)
            nest.append((number(self.lane), 1))
        level = len(nest)
        if self.block is not None:
            nest.append((number(self.block), len(parts.get(self.block, (0,))) - 1))
        nest.append((number(self.row), 0))
        tile = {
            self.lane: (Part(Unit.LANE, self.lanes),),
            self.row: (Part(Unit.UNROLL, self.rows),),
        }
        splits = tuple(Split(number(r), parts[r], tile.get(r, ())) for r in parts)
        staged = (Staged(0, Memory.TILE, level, self.lanes, windows=True),) if self.copies else ()
        return Plan(splits, tuple(nest), tasks, staged)

    def _rows_of_block(self) -> int:
        """Rows of a task if these are shared: whole shares of the cores, that copy little twice.

        What comes before and after shares rows too, so that a core reads what it has written.
        """
        if self.block is None:
            return 0
        window = self.windows[0]
        least = max(_LITTLE_TWICE * (window.span(1) - window.step) // window.step, 1)
        cores = ceil_div(self.target.cores, product(self.others))
        share = ceil_div(size(self.block), cores)
        pieces = max(share // least, 1)
        return ceil_div(share, min(pieces, 4)) if share >= least else 0


def _even_rows(extent: int) -> int:
    """Rows that cost least: that waste little where they do not divide `extent`, yet are several.

    Each result waits for its last sum, so that a tile of few rows takes as long as one of more.
    Of equal ones the most.
    """

    def cost(rows: int) -> int:
        return ceil_div(extent, rows) * max(rows, _WAITED_ROWS)

    return min(range(1, min(extent, _MOST_ROWS) + 1), key=lambda rows: (cost(rows), -rows))
