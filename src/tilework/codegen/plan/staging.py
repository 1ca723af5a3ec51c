"""Factors of a contraction put into STAGEs, filled at their level of the nest.

A stage holds panels: (parts of its own ranges inside the level, k..., tile).  Where windows
overlap it holds each element once, and what reads it computes its place.  The loops that fill a
stage follow its source: along k first where the tile lies side by side in memory; else squares
are transposed in registers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.records import dataclass, field
from tilework.codegen.analysis import substitute_ranges
from tilework.codegen.plan.contraction import Contraction, load_stride, with_factors
from tilework.codegen.plan.extents import fitting_lanes, size
from tilework.codegen.plan.windows import Window, deep_range, windows_of
from tilework.ir.build import const_index
from tilework.ir.node import toposort
from tilework.ir.ops.control import STAGE, StageAttrs
from tilework.ir.ops.index import RANGE, Unit
from tilework.ir.ops.memory import INDEX, LOAD, LoadAttrs
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from tilework.codegen.plan.apply import Application
    from tilework.codegen.plan.plan import Staged
    from tilework.ir.node import Node

#: A square smaller than this is copied element by element.
LEAST_SQUARE = 4
#: So many steps along k are windows fetched ahead of their copy, but not farther than that many
#: bytes.
_STEPS_AHEAD, _FARTHEST = 2, 1 << 20


@dataclass(slots=True)
class _Axis:
    """One dimension of a stage: the ranges that fill it, and where its reader stands.

    `parts` are (size, unit), the last moves fastest; `fills` become their ranges.
    """

    parts: list[tuple[Node, Unit]]
    position: Node
    fills: list[Node] = field(default_factory=list)

    @property
    def size(self) -> Node:
        total = const_index(1)
        for extent, _ in self.parts:
            total = simplify.mul(total, extent)
        return total

    def value(self) -> Node:
        """The position that is being filled."""
        total = const_index(0)
        for fill in self.fills:
            total = simplify.add(simplify.mul(total, fill.src[0]), fill)
        return total


@dataclass(slots=True)
class _Own:
    """An output range of the factor: where the stage's part of it begins, and its axes."""

    range_: Node
    loops: dict[int, _Axis] = field(default_factory=dict)  # by outer part
    tile: _Axis | None = None
    outside: dict[int, Node] = field(default_factory=dict)  # values of the other outer parts


class Staging:
    """Rewrites the kernel of an application so that factors are read from their stages."""

    def __init__(self, application: Application, contraction: Contraction) -> None:
        self.application = application
        self.contraction = contraction
        #: What each factor has become.
        self.factors: dict[Node, Node] = {}

    def run(self) -> Node:
        """The kernel's sink with every staged factor replaced by a LOAD from its STAGE."""
        factors = self.factors
        for number, staged in enumerate(self.application.plan.staged):
            factor = self.contraction.b if staged.operand == 1 else self.contraction.a
            factors[factor] = _Stage(self, number, staged).run()
        second = self.contraction.b
        if self.application.plan.ahead and second not in factors:
            factors[second] = _fetched_ahead(second, self.application.plan.ahead)
        return with_factors(self.application.kernel.sink, self.contraction, factors)


class _Stage:
    """One staged factor."""

    def __init__(self, staging: Staging, number: int, staged: Staged) -> None:
        self.application = staging.application
        self.contraction = staging.contraction
        self.number = number
        self.staged = staged
        is_b = staged.operand == 1
        self.factor = self.contraction.b if is_b else self.contraction.a
        own = self.contraction.n if is_b else self.contraction.m
        self.windows: dict[Node, Window] = {}
        if staged.windows:
            found = windows_of(self.factor, own, self.contraction.k)
            self.windows = {window.own: window for window in found}
        self.inner = {window.inside for window in self.windows.values()}
        self.own = [self._own(range_) for range_ in own]
        self.values: dict[Node, Node] = {}
        self.gates: list[Node] = []
        #: A range of k that fills blocks of words, and the axes of the blocks and in them.
        self.split_step: tuple[Node, _Axis, _Axis] | None = None

    def run(self) -> Node:
        """The LOAD that stands for the factor."""
        loops = [axis for own in self.own for axis in own.loops.values()]
        tiles = [own.tile for own in self.own if own.tile is not None]
        width = self._square(tiles)
        steps = {r: self._step(r, width) for r in self.contraction.k if r not in self.inner}
        # A copy has lanes along its tile, a range that is summed, or its last window.
        is_wide = self.staged.lanes > 1 and not _has_lanes(tiles)
        windows = list(self.windows.values())
        deep = deep_range(self.factor, self.contraction.k, windows) if is_wide else None
        last = list(self.windows)[-1:] if is_wide and deep is None else []
        spans = {r: self._span(w, last=[r] == last) for r, w in self.windows.items()}
        for axis in tiles:
            axis.parts = _narrowed(axis.parts, width)
        in_memory = [*loops, *steps.values(), *spans.values(), *tiles]
        if self._is_in_matrix_rows() and not self.windows:
            in_memory = self._matrix_rows(loops, steps, spans, tiles)
        if deep is not None:
            del steps[deep]
            vectors, inside = self._deep_axes(deep)
            in_memory = [*loops, *steps.values(), vectors, *spans.values(), *tiles, inside]
        # Where the tile lies side by side in memory, the panels of one step do as well.
        along_tile = self.staged.lanes > 1 and not width and deep is None
        order = [*steps.values(), *loops, *spans.values(), *tiles] if along_tile else in_memory
        if deep is not None:
            # Blocks of one place lie side by side in memory: they are read in order.
            order = [*loops, *steps.values(), *spans.values(), *tiles, vectors, inside]
        for axis in order:
            axis.fills = [self.application.numbers.range(size, unit) for size, unit in axis.parts]
        self._fill_values(steps, spans)
        if deep is not None:
            self._fill_deep(deep, vectors, inside)
        # Blocks of one place are read in order, which the machine fetches by itself.
        factor = under_gates(self.factor if deep is not None else self._fetched(), self.gates)
        value = substitute_ranges(factor, self.values, {})
        fills = [fill for axis in in_memory for fill in axis.fills]
        stage = STAGE(value, *fills, attrs=StageAttrs(self.staged.memory, self.number))
        offset = const_index(0)
        for axis in in_memory:
            offset = simplify.add(simplify.mul(offset, axis.size), axis.position)
        ahead = self.application.plan.ahead if self.staged.operand == 1 else 0
        return LOAD(INDEX(stage, offset), attrs=LoadAttrs(1, ahead) if ahead else None)

    def _fetched(self) -> Node:
        """The factor; for windows what comes next is on its way while rows are copied.

        Rows of an image are too short for the machine's own fetching, which goes on in order.
        """
        if not self.windows:
            return self.factor
        item = self.factor.type.dtype.itemsize
        outer = [r for r in self.contraction.k if r not in self.inner]
        ahead = max([load_stride(self.factor, r) or 0 for r in outer], default=0)
        ahead *= item * _STEPS_AHEAD
        return _fetched_ahead(self.factor, ahead) if 0 < ahead <= _FARTHEST else self.factor

    # ---- axes

    def _is_in_matrix_rows(self) -> bool:
        """Is this the factor whose rows are those of a matrix register?"""
        return bool(self.application.plan.matrix) and self.staged.operand == 0

    def _fill_unit(self, part: Node) -> Unit:
        """How a part of a tile is filled: what becomes columns of a matrix register by vectors."""
        unit: Unit = part.attrs.unit
        if unit is not Unit.MATRIX:
            return unit
        return Unit.LANE if self.staged.lanes > 1 and self.staged.operand == 1 else Unit.LOOP

    def _matrix_rows(
        self,
        loops: list[_Axis],
        steps: dict[Node, _Axis],
        spans: dict[Node, _Axis],
        tiles: list[_Axis],
    ) -> list[_Axis]:
        """The axes in memory where rows are whole words along k: each register's lie together."""
        plan = self.application.plan
        (along,) = [r for r in steps if plan.split_of(int(r.attrs.number)).tile]
        width = const_index(plan.split_of(int(along.attrs.number)).tile_size)
        blocks = _Axis(
            [(simplify.idiv(along.src[0], width), Unit.LOOP)], simplify.idiv(along, width)
        )
        unit = Unit.LANE if self._moves_along(along) else Unit.LOOP
        inside = _Axis([(width, unit)], simplify.mod(along, width))
        self.split_step = (along, blocks, inside)
        outer = [blocks if range_ is along else axis for range_, axis in steps.items()]
        return [*loops, *outer, *spans.values(), *tiles, inside]

    def _moves_along(self, range_: Node) -> bool:
        """Do whole vectors lie side by side in memory along a range of k?"""
        return self.staged.lanes > 1 and load_stride(self.factor, range_) == 1

    def _own(self, range_: Node) -> _Own:
        """The parts of an output range that lie inside the stage's level."""
        application = self.application
        number = int(range_.attrs.number)
        outside = set(application.plan.nest[: self.staged.level])
        split = application.plan.split_of(number)
        found = _Own(range_)
        for part, extent in enumerate(application.extents(number)):
            value = application.parts[number, part]
            if (number, part) in outside or value.op is not RANGE:
                found.outside[part] = value
            elif range_ not in self.windows:
                found.loops[part] = _Axis([(extent, Unit.LOOP)], value)
        if range_ not in self.windows and split.tile:
            parts = application.tile_parts[number]
            position = const_index(0)
            for part_node in parts:
                position = simplify.add(simplify.mul(position, part_node.src[0]), part_node)
            found.tile = _Axis([(p.src[0], self._fill_unit(p)) for p in parts], position)
        return found

    def _square(self, tiles: list[_Axis]) -> int:
        """The width of squares that are transposed in registers; 1: copied one by one; 0: none.

        Squares are for sources that lie side by side along k instead of along the tile.
        """
        if self.staged.lanes == 1:
            return 1
        along = self._along()
        if self.windows or along is None or not tiles:
            return 0
        size, unit = tiles[-1].parts[-1]
        width = min(simplify.value_of(size) or 1, self.staged.lanes) if unit is Unit.LANE else 1
        extent = simplify.value_of(along.src[0]) or 1
        while extent % width:
            width //= 2
        return width if width >= LEAST_SQUARE else 1

    def _along(self) -> Node | None:
        """The range of k along which memory is contiguous, if the tile is not."""
        last = self.own[-1].range_
        for own in self.own:
            if own.tile is not None and any(unit is Unit.LANE for _, unit in own.tile.parts):
                last = own.range_
        if load_stride(self.factor, last) == 1:
            return None
        found = [r for r in self.contraction.k if load_stride(self.factor, r) == 1]
        return found[-1] if found else None

    def _deep_axes(self, range_: Node) -> tuple[_Axis, _Axis]:
        """A range in blocks of one vector: all windows of a block lie together.

        So neighbours in a row are a vector apart, whatever the range's size, and fall into
        different sets of a cache.
        """
        lanes = const_index(fitting_lanes(self.staged.lanes, size(range_)))
        blocks = simplify.idiv(simplify.add(range_.src[0], simplify.plus(lanes, -1)), lanes)
        return (
            _Axis([(blocks, Unit.LOOP)], simplify.idiv(range_, lanes)),
            _Axis([(lanes, Unit.LANE)], simplify.mod(range_, lanes)),
        )

    def _fill_deep(self, range_: Node, vectors: _Axis, inside: _Axis) -> None:
        place = simplify.add(simplify.mul(vectors.value(), inside.size), inside.value())
        self.values[range_] = place
        if size(range_) % size(inside.fills[-1]):
            self.gates.append(simplify.less(place, range_.src[0]))

    def _step(self, range_: Node, width: int) -> _Axis:
        if width > 1 and range_ is self._along():
            count = simplify.idiv(range_.src[0], const_index(width))
            return _Axis([(count, Unit.LOOP), (const_index(width), Unit.UNROLL)], range_)
        return _Axis([(range_.src[0], Unit.LOOP)], range_)

    def _span(self, window: Window, *, last: bool) -> _Axis:
        """The axis of a window: as many values as its outputs inside the level read."""
        own = next(own for own in self.own if own.range_ is window.own)
        base, extent = self._base(own)
        size = window.span(extent)
        local = simplify.sub(self.application.values[own.range_], base)
        position = substitute_ranges(window.position(), {own.range_: local}, {})
        lanes = self.staged.lanes if last else 1
        if lanes == 1:
            return _Axis([(const_index(size), Unit.LOOP)], position)
        vectors = const_index(-(-size // lanes))
        return _Axis([(vectors, Unit.LOOP), (const_index(lanes), Unit.LANE)], position)

    def _base(self, own: _Own) -> tuple[Node, int]:
        """Where the stage's part of a range begins, and its length."""
        application = self.application
        number = int(own.range_.attrs.number)
        split = application.plan.split_of(number)
        size = simplify.value_of(own.range_.src[0]) or 1
        extents = [simplify.value_of(extent) or 1 for extent in application.extents(number)]
        span = split.tile_size
        position = const_index(0)
        for part, extent in enumerate(extents):
            if part:
                position = simplify.scale(position, split.outer[part].size)
            if part in own.outside:
                position = simplify.add(position, own.outside[part])
            else:
                span *= extent
        span = min(span, size)
        start = simplify.scale(position, split.tile_size)
        return simplify.minimum(start, const_index(size - span)), span

    # ---- filling

    def _fill_values(self, steps: dict[Node, _Axis], spans: dict[Node, _Axis]) -> None:
        """What every range of the factor is while the stage is filled."""
        for range_, axis in steps.items():
            self.values[range_] = axis.value() if axis.fills else const_index(0)
        if self.split_step is not None:
            range_, blocks, inside = self.split_step
            place = simplify.mul(blocks.value(), inside.size)
            self.values[range_] = simplify.add(place, inside.value())
        for own in self.own:
            if own.range_ in self.windows:
                self._fill_window(own, self.windows[own.range_], spans[own.range_])
            else:
                self.values[own.range_] = self._filled(own)
        for range_ in self.contraction.batch:
            self.values[range_] = self.application.values[range_]

    def _filled(self, own: _Own) -> Node:
        application = self.application
        number = int(own.range_.attrs.number)
        split = application.plan.split_of(number)
        position = const_index(0)
        for part in range(len(split.outer)):
            if part:
                position = simplify.scale(position, split.outer[part].size)
            axis = own.loops.get(part)
            value = own.outside[part] if axis is None else axis.value()
            position = simplify.add(position, value)
        tiles = application.tiles(split, own.range_)
        # The fill of a last block runs past the range if the block is not full.
        last = simplify.sub(tiles.size, const_index(tiles.tile))
        start = simplify.minimum(simplify.scale(position, tiles.tile), last)
        return start if own.tile is None else simplify.add(start, own.tile.value())

    def _fill_window(self, own: _Own, window: Window, axis: _Axis) -> None:
        base, extent = self._base(own)
        place = axis.value()
        values = window.place_of(place)
        self.values[window.own] = simplify.add(base, values[window.own])
        self.values[window.inside] = values[window.inside]
        span = const_index(window.span(extent))
        if simplify.value_of(axis.size) != simplify.value_of(span):
            self.gates.append(simplify.less(place, span))


def _has_lanes(tiles: list[_Axis]) -> bool:
    return any(unit is Unit.LANE for axis in tiles for _, unit in axis.parts)


def _fetched_ahead(factor: Node, ahead: int) -> Node:
    """The factor with memory that is on its way to the cache before it is read."""
    done: dict[Node, Node] = {}
    for node in toposort(factor):
        src = tuple([done[source] for source in node.src])
        if node.op is LOAD:
            done[node] = LOAD(
                *src, attrs=LoadAttrs(1 if node.attrs is None else node.attrs.lanes, ahead)
            )
        else:
            done[node] = node if src == node.src else simplify.rebuild(node, src)
    return done[factor]


def _narrowed(parts: list[tuple[Node, Unit]], width: int) -> list[tuple[Node, Unit]]:
    """A tile's parts in vectors of `width` lanes, one after the other; as they are if it is 0."""
    if not width:
        return parts
    if width == 1:
        return [(size, Unit.LOOP) for size, _ in parts]
    size = const_index(1)
    for extent, _ in parts:
        size = simplify.mul(size, extent)
    return [(simplify.idiv(size, const_index(width)), Unit.LOOP), (const_index(width), Unit.LANE)]


def under_gates(factor: Node, gates: list[Node]) -> Node:
    """The factor with more conditions on all that it reads."""
    condition = simplify.all_of(gates)
    if condition is simplify.TRUE:
        return factor
    done: dict[Node, Node] = {}
    for node in toposort(factor):
        src = tuple([done[source] for source in node.src])
        if node.op is LOAD:
            gate = simplify.both(src[1], condition) if len(src) > 1 else condition
            src = (src[0], gate, *src[2:])
        done[node] = node if src == node.src else simplify.rebuild(node, src)
    return done[factor]
