"""STAGEs in global memory: a factor of a contraction brought into panels by a kernel of its own.

Worth it where the copy runs once for many uses: weights that a capture holds constant are packed
when it is made, and a gathered factor (a convolution's patches) is copied once instead of once a
task.  The result is ordinary kernels, so that every target's plans apply to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.records import dataclass
from tilework.codegen.analysis import Kernel, analyse, stride, substitute_ranges
from tilework.codegen.cascade.columns import find_columns
from tilework.codegen.linearize.large import bytes_of, leaves_caches
from tilework.codegen.passes.normalise import renumber
from tilework.codegen.plan.contraction import (
    Contraction,
    is_plain_load,
    load_stride,
    loads_of,
    orientations,
    vector_product,
    with_factors,
)
from tilework.codegen.plan.dot_products import ready_for_plans, ready_in_all_ways
from tilework.codegen.plan.extents import (
    ceil_div,
    fitting_lanes,
    lanes_for,
    least_size,
    product,
    size,
)
from tilework.codegen.plan.matrix_tiling import instruction_for, most_steps, steps_of
from tilework.codegen.plan.register_tile import register_tile
from tilework.codegen.plan.tilings import cheapest
from tilework.codegen.plan.windows import Window, window_fold, windows_of
from tilework.ir.build import const_index
from tilework.ir.node import Node, in_use, toposort
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.tensor import REDUCE
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.target.spec import TargetSpec

#: Cycles to copy an element to global memory by gated vectors, or one by one.
_GATHER_VECTOR, _GATHER_SCALAR = 1.2, 5.0
#: The same to add one word to a sum.
_SUM = 0.25
#: Vectors of a panel that is multiplied by a vector: so many sums hide an instruction's latency.
_PANEL_VECTORS = 4
#: How much better the estimate must be before a kernel is split.
_GAIN = 0.98
#: The same where the copies fit the first cache, so that they cost nothing that matters.
_SMALL_GAIN = 0.998
_WORTH_CYCLES = 4_000.0
#: With more panels than this for each core, one more for some core does not matter.
_FEW_PANELS = 8


@dataclass(frozen=True, slots=True)
class Pack:
    """A copy kernel: PARAM 0 is the packed buffer, PARAM i + 1 reads what `sources[i]` names.

    Attributes:
        kernel: The copy, at the KERNEL stage.
        sources: Slots of the contraction's kernel that it reads.
        slot: The slot of the new kernel that gets the packed buffer.
        size_bytes: Its size; 0 for a kernel without a buffer of its own, which writes to some of
            its sources: PARAM i is what `sources[i]` names, and `slot` means nothing.
        is_constant: It reads constants alone, so one run serves every call.
        cycles: What one run costs by the estimate, on one core.
    """

    kernel: Node
    sources: tuple[int, ...]
    slot: int
    size_bytes: int
    is_constant: bool
    cycles: float


@dataclass(frozen=True, slots=True)
class Prepacked:
    """A contraction that reads packed factors, and the copies that fill them, in order."""

    kernel: Node
    packs: tuple[Pack, ...]


def prepack(sink: Node, target: TargetSpec, constants: frozenset[int]) -> Prepacked | None:
    """Split packing off a kernel where the cost model says that it pays.

    Args:
        sink: The kernel, at the KERNEL stage.
        target: The machine.
        constants: Slots whose contents never change.

    Returns:
        The split kernel; None where the kernel is best as it is.
    """
    with in_use():
        ways = [analyse(_spread(way)) for way in ready_in_all_ways(sink, target)]
        fold = None if orientations(ways[0]) else window_fold(ways[0])
        if fold is not None:
            return _packed_fold(ways[0], fold, constants)
        vector = None if orientations(ways[0]) else vector_product(ways[0])
        if vector is not None:
            return _packed_matrix(ways[0], vector, target, constants)
        known = [found[0] for way in ways if (found := cheapest(way, target)) is not None]
        default = min(known, default=0.0)
        if default < _WORTH_CYCLES:
            return None
        best: tuple[float, Prepacked] | None = None
        for kernel in ways:
            for contraction in orientations(kernel):
                for candidate in _candidates(kernel, contraction, target, constants):
                    cost = _cost(candidate, target)
                    if cost is not None and (best is None or cost < best[0]):
                        best = (cost, candidate)
        if best is None:
            return None
        size_bytes = sum(pack.size_bytes for pack in best[1].packs)
        gain = _SMALL_GAIN if size_bytes <= target.l1_bytes else _GAIN
        return best[1] if best[0] <= gain * default else None


def _packed_fold(kernel: Kernel, fold: Contraction, constants: frozenset[int]) -> Prepacked | None:
    """The weights of a fold over windows, side by side along the range that has the lanes."""
    windows = windows_of(fold.a, fold.m, fold.k)
    slots = _slots(fold.b)
    if len(fold.m) == len(windows) or fold.b is fold.a or not slots or not slots <= constants:
        return None
    lane = fold.m[len(windows)]
    if load_stride(fold.b, lane) in (0, 1):
        return None
    split = _Split(kernel, fold)
    split.pack_deep(lane)
    return split.result(constants)


def _packed_matrix(
    kernel: Kernel, vector: Contraction, target: TargetSpec, constants: frozenset[int]
) -> Prepacked | None:
    """A constant matrix that a vector is multiplied by, in panels of vectors.

    Words of bytes that lie side by side along the sum are read as they lie; their sums are still
    packed.  Of other factors it is the memory that is packed, not what is computed from it.
    """
    is_static = all(least_size(r) == size(r) for r in kernel.free.ranges)
    if not is_static or kernel.read_and_written:
        return None
    if vector.reduce.src[0].op not in math.DOTS:
        return _packed_loads(kernel, vector, target, constants)
    slots = _slots(vector.b)
    if not slots or not slots <= constants:
        return None
    split = _Split(kernel, vector)
    if not any(load_stride(vector.b, r) == 1 for r in vector.k) or not is_plain_load(vector.b):
        lane = max(vector.n, key=lambda r: (load_stride(vector.b, r) == 1, size(r)))
        lanes = fitting_lanes(lanes_for(kernel, target), size(lane))
        split.pack_b(lane, min(lanes * _PANEL_VECTORS, size(lane)))
    split.pack_corrections()
    return split.result(constants) if split.packs else None


def _packed_loads(
    kernel: Kernel, vector: Contraction, target: TargetSpec, constants: frozenset[int]
) -> Prepacked | None:
    """What a matrix is computed from, in panels: bytes stay bytes, and scales of blocks as few.

    A task reads a few lines of each row, and rows lie far apart: the machine fetches nothing ahead
    then.  Panels are read from one end to the other.
    """
    loads = loads_of(vector.b)
    if not loads or not _slots(vector.b) <= constants:
        return None
    largest = max(loads, key=_array_bytes)
    lanes = [r for r in vector.n if stride(largest.src[0].src[1], r) == 1]
    columns = lanes_for(kernel, target) * _PANEL_VECTORS
    if not lanes or size(lanes[0]) <= columns or _array_bytes(largest) <= target.l1_bytes:
        return None
    is_wide = columns * int(largest.type.dtype.itemsize) > target.line_bytes
    if is_wide and leaves_caches(largest.src[0].src[0], target):
        return None  # memory gives no more, in whatever order several lines of a row are read
    moved = [load for load in loads if _is_spread(kernel, load, vector)]
    in_blocks = find_columns(kernel, target)
    if largest not in moved or (in_blocks and size(vector.k[0]) % in_blocks[1].block):
        return None
    split = _Split(kernel, vector)
    split.pack_loads(moved, lanes[0], columns)
    if in_blocks:
        split.sum_in_blocks(in_blocks[1].block)
    return split.result(constants)


def _array_bytes(load: Node) -> int:
    return bytes_of(load.src[0].src[0])


def _is_spread(kernel: Kernel, load: Node, vector: Contraction) -> bool:
    """Is a load another one for each column and step, and packed no larger than its array?"""
    own = kernel.free.of(load)
    if len(load.src) > 1 or not all(any(r in own for r in part) for part in (vector.n, vector.k)):
        return False
    return product(own) * int(load.type.dtype.itemsize) <= _array_bytes(load)


def _spread(sink: Node) -> Node:
    ranges = sorted((n for n in toposort(sink) if n.op is RANGE), key=lambda r: int(r.attrs.number))
    return renumber(sink, ranges, 2)


def _cost(candidate: Prepacked, target: TargetSpec) -> float | None:
    main = cheapest(analyse(ready_for_plans(candidate.kernel, target)), target)
    if main is None:
        return None
    cycles = main[0]
    for pack in candidate.packs:
        if not pack.is_constant:
            cycles += pack.cycles / target.cores
    return cycles


def _candidates(
    kernel: Kernel, contraction: Contraction, target: TargetSpec, constants: frozenset[int]
) -> list[Prepacked]:
    slots_a, slots_b = _slots(contraction.a), _slots(contraction.b)
    lanes = lanes_for(kernel, target)
    # Where windows overlap the plan itself copies each element once, in the cache.
    gather_a = not is_plain_load(contraction.a) and bool(slots_a)
    gather_a = gather_a and not windows_of(contraction.a, contraction.m, contraction.k)
    found = _packed_windows(kernel, contraction, target, constants)
    if not slots_b or not slots_b <= constants:
        if contraction.corrections and not kernel.read_and_written:
            split = _Split(kernel, contraction)
            split.pack_corrections()
            found.append(split.result(constants))
        return found
    for lane in contraction.n:
        if size(lane) < 2:
            continue
        for columns in _widths(contraction, lane, lanes, target):
            if kernel.read_and_written and size(lane) % columns:
                continue  # what is updated in place must not be computed twice
            split = _Split(kernel, contraction)
            split.pack_b(lane, columns)
            split.pack_corrections()
            found.append(split.result(constants))
            if gather_a:
                both = _Split(kernel, contraction)
                both.pack_b(lane, columns)
                both.pack_a()
                both.pack_corrections()
                found.append(both.result(constants))
    return found


def _packed_windows(
    kernel: Kernel, contraction: Contraction, target: TargetSpec, constants: frozenset[int]
) -> list[Prepacked]:
    """Words that windows read, made once: matrix registers then read them where they lie.

    Rows of the first factor are words side by side along k, in panels of the second one along the
    lanes.  A constant factor beside them is packed likewise.
    """
    instruction = instruction_for(contraction, target)
    if instruction is None or kernel.read_and_written:
        return []
    most = most_steps(instruction)
    found = []
    for factor, own in ((contraction.a, contraction.m), (contraction.b, contraction.n)):
        windows = windows_of(factor, own, contraction.k)
        if not windows or not _slots(factor) or is_plain_load(factor):
            continue
        inside = {window.inside for window in windows}
        others = [r for r in contraction.k if r not in inside]
        if not others:
            continue
        deep = max(others, key=lambda r: steps_of(r, most))
        split = _Split(kernel, contraction)
        split.pack_windows(factor, own, windows, deep if factor is contraction.a else None)
        other = contraction.b if factor is contraction.a else contraction.a
        if _slots(other) and _slots(other) <= constants:
            if other is contraction.a:
                split.pack_rows(deep)
            else:
                lane = max(contraction.n, key=size)
                split.pack_b(lane, fitting_lanes(lanes_for(kernel, target), size(lane)))
        found.append(split.result(constants))
    return found


def _widths(contraction: Contraction, lane: Node, lanes: int, target: TargetSpec) -> list[int]:
    """Widths of panels worth trying: of the register tile that fits best, or one vector less.

    A narrower one may be shared more evenly among the cores.
    """
    own = fitting_lanes(lanes, size(lane))
    _, vectors, _ = register_tile(target, size(contraction.m[-1]), size(lane), own)
    found = [min(own * vectors, size(lane))]
    panels = ceil_div(size(lane), own * vectors)
    if vectors > 1 and 1 < panels < _FEW_PANELS * target.cores and panels % target.cores:
        found.append(own * (vectors - 1))
    return found


def _slots(factor: Node) -> frozenset[int]:
    return frozenset(n.attrs.slot for n in toposort(factor) if n.op is PARAM)


class _Split:
    """A kernel whose factors are moved, one after the other, to packed buffers."""

    def __init__(self, kernel: Kernel, contraction: Contraction) -> None:
        self.kernel = kernel
        self.contraction = contraction
        params = [n.attrs.slot for n in kernel.order if n.op is PARAM]
        self.next_slot = max(params) + 1
        self.values: dict[Node, Node] = {}
        self.factors = {contraction.a: contraction.a, contraction.b: contraction.b}
        self.packs: list[tuple[Node, Node, int, int]] = []

    def pack_b(self, lane: Node, columns: int) -> None:
        """b as (rest of n, panels of `columns`, k, columns); the lane range splits likewise."""
        panel, inside, value = self._panels(lane, columns)
        rest = [r for r in self.contraction.n if r is not lane]
        batch = self._ranges_of(self.contraction.b, self.contraction.batch)
        layout = [*batch, *rest, panel, *self.contraction.k, inside]
        self._pack(self.contraction.b, layout, {lane: value})

    def _panels(self, lane: Node, columns: int) -> tuple[Node, Node, Node]:
        """A range of panels, one inside of a panel, and the lane's value by them."""
        number = int(lane.attrs.number)
        panels = ceil_div(size(lane), columns)
        panel = RANGE(const_index(panels), attrs=RangeAttrs(number))
        inside = RANGE(const_index(columns), attrs=RangeAttrs(number + 1))
        start = simplify.scale(panel, columns)
        if size(lane) % columns:
            # The last panel reaches back: its first columns are computed twice, equal both times.
            start = simplify.minimum(start, const_index(size(lane) - columns))
        value = simplify.add(start, inside)
        self.values[lane] = value
        return panel, inside, value

    def pack_loads(self, loads: Sequence[Node], lane: Node, columns: int) -> None:
        """What b is computed from as (rest of n, panels, k, columns), each with its own ranges."""
        panel, inside, value = self._panels(lane, columns)
        rest = [r for r in self.contraction.n if r is not lane]
        packed: dict[Node, Node] = {}
        for load in loads:
            own = self._ranges_of(load, (*self.contraction.batch, *rest))
            steps = self._ranges_of(load, self.contraction.k)
            lanes = [panel, inside] if lane in self.kernel.free.of(load) else []
            self._pack(load, [*own, *lanes[:1], *steps, *lanes[1:]], {lane: value})
            packed[load] = self.factors.pop(load)
        b = self.contraction.b
        (self.factors[b],) = simplify.substitute([b], packed)

    def sum_in_blocks(self, steps: int) -> None:
        """Add sums of so many steps to the total: the order that the kernel as it was has."""
        reduce, (k,) = self.contraction.reduce, self.contraction.k
        number = int(k.attrs.number)
        block = RANGE(const_index(size(k) // steps), attrs=RangeAttrs(number))
        inside = RANGE(const_index(steps), attrs=RangeAttrs(number + 1))
        value = simplify.add(simplify.scale(block, steps), inside)
        (product_,) = simplify.substitute([reduce.src[0]], self.factors)
        product_ = substitute_ranges(product_, {k: value}, {})
        inner = REDUCE(product_, inside, attrs=reduce.attrs)
        self.factors[reduce] = REDUCE(inner, block, attrs=reduce.attrs)

    def pack_a(self) -> None:
        """a as (batch, rest of m, k, rows): the rows of a tile side by side, step after step."""
        batch = self._ranges_of(self.contraction.a, self.contraction.batch)
        *rest, row = self.contraction.m
        layout = [*batch, *rest, *self.contraction.k, row]
        self._pack(self.contraction.a, layout, {})

    def pack_rows(self, deep: Node) -> None:
        """a as (batch, rows, other k, `deep`): rows of words side by side."""
        a = self.contraction.a
        own = self._ranges_of(a, (*self.contraction.batch, *self.contraction.m))
        self._pack(a, [*own, *(r for r in self.contraction.k if r is not deep), deep], {})

    def pack_windows(
        self, factor: Node, own: Sequence[Node], windows: Sequence[Window], deep: Node | None
    ) -> None:
        """A factor as (batch, own, spans of windows, other k, `deep` or the last span)."""
        inside = {window.inside for window in windows}
        spans: list[Node] = []
        filled: dict[Node, Node] = {}
        read: dict[Node, Node] = {}
        for window in windows:
            extent = const_index(window.span(size(window.own)))
            span = RANGE(extent, attrs=RangeAttrs(int(window.own.attrs.number) + 1))
            spans.append(span)
            filled |= window.place_of(span)
            read[span] = window.position()
        others = self._ranges_of(factor, (*self.contraction.batch, *own))
        rest = [r for r in others if all(r is not window.own for window in windows)]
        steps = [r for r in self.contraction.k if r not in inside and r is not deep]
        last = [spans.pop()] if deep is None else [deep]
        self._pack(factor, [*rest, *spans, *steps, *last], filled, read)

    def pack_deep(self, lane: Node) -> None:
        """b as (others, k, lanes' range)."""
        own = self._ranges_of(self.contraction.b, (*self.contraction.batch, *self.contraction.m))
        summed = self._ranges_of(self.contraction.b, self.contraction.k)
        layout = [*(r for r in own if r is not lane), *summed, lane]
        self._pack(self.contraction.b, layout, {})

    def pack_corrections(self) -> None:
        """Sums of one factor alone, by kernels of their own."""
        for reduce in self.contraction.corrections:
            self._pack(reduce, self._ranges_of(reduce, self.kernel.outputs), {})

    def _ranges_of(self, factor: Node, ranges: Sequence[Node]) -> list[Node]:
        mask = self.kernel.free.mask[factor]
        return [r for r in ranges if mask & self.kernel.free.bit(r)]

    def _pack(
        self,
        factor: Node,
        layout: list[Node],
        values: dict[Node, Node],
        read: dict[Node, Node] | None = None,
    ) -> None:
        """Move a factor to a buffer.

        Args:
            factor: What is moved.
            layout: The ranges of the buffer, outermost first.
            values: What ranges of the factor are while it is filled.
            read: What ranges of the layout are where it is read, if they are no ranges there.
        """
        offset = const_index(0)
        for range_ in layout:
            offset = simplify.add(simplify.scale(offset, size(range_)), range_)
        count = product(layout)
        dtype = factor.type.dtype
        value = substitute_ranges(factor, values, {})
        target = PARAM(attrs=ParamAttrs(-1, (count,), dtype))
        # The loops of the copy follow the order in which it is stored.
        own = [r for part in [*layout, value] for r in toposort(part) if r.op is RANGE]
        copy = renumber(SINK(STORE(INDEX(target, offset), value)), list(dict.fromkeys(own)))
        slot = self.next_slot
        self.next_slot += 1
        packed = PARAM(attrs=ParamAttrs(slot, (count,), dtype))
        place = substitute_ranges(offset, read, {}) if read else offset
        self.factors[factor] = LOAD(INDEX(packed, place))
        self.packs.append((copy, factor, slot, count * dtype.itemsize))

    def result(self, constants: frozenset[int]) -> Prepacked:
        """The new kernel and its copies."""
        sink = with_factors(self.kernel.sink, self.contraction, self.factors)
        sink = substitute_ranges(sink, self.values, {})
        packs = []
        for copy, factor, slot, size_bytes in self.packs:
            sources = tuple(sorted(_slots(factor)))
            kernel = _renumber_params(copy, {-1: 0} | {s: i + 1 for i, s in enumerate(sources)})
            elements = size_bytes / factor.type.dtype.itemsize
            if factor.op is REDUCE:
                cycles = elements * product(factor.src[1:]) * _SUM
            else:
                cycles = elements * _gather_cycles(
                    factor, (self.contraction.m or self.contraction.n)[-1]
                )
            is_constant = set(sources) <= constants
            packs.append(Pack(kernel, sources, slot, size_bytes, is_constant, cycles))
        return Prepacked(sink, tuple(packs))


def _gather_cycles(factor: Node, along: Node) -> float:
    """Cycles an element: vectors where the source lies side by side along the copy's last range."""
    return _GATHER_VECTOR if load_stride(factor, along) == 1 else _GATHER_SCALAR


def _renumber_params(sink: Node, slots: dict[int, int]) -> Node:
    mapping: dict[Node, Node] = {}
    for node in toposort(sink):
        if node.op is PARAM:
            attrs = node.attrs
            mapping[node] = PARAM(
                attrs=ParamAttrs(slots[attrs.slot], attrs.shape, attrs.dtype, attrs.device)
            )
    (renamed,) = simplify.substitute([sink], mapping)
    ranges = sorted(
        (n for n in toposort(renamed) if n.op is RANGE), key=lambda r: int(r.attrs.number)
    )
    return renumber(renamed, ranges)
