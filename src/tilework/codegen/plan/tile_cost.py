"""What a tiling of a contraction costs in cycles: multiply-adds, copies, memory, results.

The numbers are those of processors with vectors; `matrix_tiling` changes what matrix registers do
otherwise.  Machines with blocks of threads have costs of their own (`codegen.gpu`,
`codegen.matrix`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.codegen.analysis import Kernel, stride
from tilework.codegen.linearize.short_loops import LONGEST
from tilework.codegen.plan.contraction import (
    Contraction,
    is_gated,
    is_plain_load,
    load_count,
    load_stride,
)
from tilework.codegen.plan.extents import ceil_div, fitting_lanes, lanes_for, product, size
from tilework.codegen.plan.register_tile import ShortSteps, register_tile
from tilework.codegen.plan.staging import LEAST_SQUARE
from tilework.codegen.plan.windows import windows_of
from tilework.ir.ops import math

if TYPE_CHECKING:
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

#: Cycles to copy one element into a panel: by vectors, gated vectors, one by one, gated one by one.
#: (Fitted to measurements on AVX-512 and AVX2 machines, as the other numbers here.)
_COPY_VECTOR, _COPY_GATED, COPY_SCALAR, COPY_SCALAR_GATED = 1.0, 3.0, 1.5, 4.0
#: The same in squares transposed in registers, and for a gated vector of windows, which another
#: core has often just written.
_COPY_SQUARE, COPY_WINDOW = 0.4, 32.0
#: Cycles to store an element of vectors transposed in registers, or one by one.
_TRANSPOSED_STORE, _SCATTERED_STORE = 0.5, 2.0
_LEAST_TRANSPOSE = 4
#: Cycles to convert an element each time that it is multiplied.
_CONVERT_SCALAR = 0.75
#: Cycles to add up the products of one word outside of vectors.
_SCALAR_DOT = 4.0
#: What one core reads in a cycle from its L2.
_L2_BYTES_PER_CYCLE = 64.0
#: The same from beyond, in order and ahead of its use, while the multiply-adds go on.
_STREAM_BYTES_PER_CYCLE = 16.0
#: The same for what another core has just written.
_CROSSED_BYTES_PER_CYCLE = 3.0
#: Cycles for each line of a factor whose steps along k lie in different lines: from the L2, from
#: farther away, and from another page.
_NEAR_LINE_CYCLES, _LINE_CYCLES, _PAGE_CYCLES = 0.7, 2.0, 8.0
PAGE_BYTES = 4096
#: By how much of a task cores that run the same number of tasks end apart.
_UNEVEN = 0.02


class TileCost:
    """A contraction cut into tiles: lanes along `lane`, rows along a range of m; and what it costs.

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
        #: The cycles of the sums alone, in whatever order.
        self.compute = self._compute()

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

    def _square(self) -> int:
        """The width of squares that are transposed in registers where b is contiguous along k."""
        along = [r for r in self.contraction.k if load_stride(self.contraction.b, r) == 1]
        width = self.lanes if along else 1
        while width > 1 and size(along[-1]) % width:
            width //= 2
        return width if width >= LEAST_SQUARE else 1

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
        return step * self.contraction.a.type.dtype.itemsize % PAGE_BYTES == 0

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
            cost = COPY_SCALAR_GATED if self.gated_a else COPY_SCALAR
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
            is_far = step is None or step * item >= PAGE_BYTES
            cost = _PAGE_CYCLES if is_far else _LINE_CYCLES
        return converted + panels * tiles * self.depth * cost

    def _elements_a(self) -> int:
        """How many elements of a there are."""
        total = product(self.contraction.m) * self.depth
        for window in self.windows:
            outputs = size(window.own)
            total = total * window.span(outputs) // (outputs * size(window.inside))
        return total

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


def _copy_cost(contiguous: bool, gated: bool, lanes: int) -> float:
    """Cycles an element for a copy of b."""
    if contiguous:
        return (_COPY_GATED if gated else _COPY_VECTOR) / lanes
    return COPY_SCALAR_GATED if gated else COPY_SCALAR
