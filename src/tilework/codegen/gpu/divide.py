"""One kernel as several, where that is faster: factors copied first, sums over parts of k last.

A copy engine takes arrays whose rows start at multiples of 16 bytes and whose elements lie side by
side along k or along the factor's own range.  A factor that is stored otherwise is copied once, by
a kernel of its own, into an array that is; every tile then reads the copy.  Where tiles are fewer
than the machine's multiprocessors, k is cut in parts: a kernel computes the sums of all parts, and
another adds them, always in the same order, and does what follows.  So are folds across rows of few
columns.

Results are ordinary kernels with plans of their own.  Copies change no number; parts of k change
the order of a sum, as every plan may, and by the sizes alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.codegen.analysis import Kernel, analyse, substitute_ranges
from tilework.codegen.gpu.choose import choose_gpu_plan, column_plan
from tilework.codegen.matrix.arrays import ROW_BYTES, Array, any_array_of, loaded_by
from tilework.codegen.matrix.choose import Costed, best_ring
from tilework.codegen.matrix.operands import narrowed
from tilework.codegen.passes.normalise import normalise_ranges, renumber
from tilework.codegen.plan.contraction import Contraction, orientations, with_factors
from tilework.codegen.plan.extents import ceil_div, product, size
from tilework.codegen.plan.prepack import Pack, Prepacked
from tilework.ir.build import const_index
from tilework.ir.node import Node, in_use, toposort
from tilework.ir.ops.index import RANGE, RangeAttrs, Unit
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.tensor import REDUCE
from tilework.ir.rewrite import rewrite
from tilework.ir.rules import SIMPLIFY
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tilework.codegen.gpu.plan import GpuPlan
    from tilework.target.spec import TargetSpec

#: Rows of a copy start at multiples of so many bytes.
_ALIGNMENT_BYTES = 16
#: Cycles that one more kernel costs, and the share of the memory's bandwidth that copies reach:
#: those that keep the order of their source, and those that turn it.
_LAUNCH = 5000.0
_STRAIGHT, _TURNED = 0.5, 0.35
#: Bytes of a row along k that are worth a slot's row.
_LEAST_ROW = ROW_BYTES // 2
#: A division must cost less than this share of the kernel as it is.
_GAIN = 0.9
#: Parts of k that are tried; each has so many slots of k at least.
_PARTS = (2, 3, 4, 6, 8, 12, 16, 24, 32)
_LEAST_STEPS = 8
#: Bytes to be folded that are worth another kernel, and elements of one part of a column.
_WORTH_PARTS, _LEAST_PART = 16 << 20, 64
#: Tiles for each multiprocessor from which on cutting k gains nothing.
_MANY_TILES = 4


def divide(sink: Node, target: TargetSpec) -> Prepacked | None:
    """Several kernels that do what one does, in less time; None where it is best as it is.

    Args:
        sink: The kernel, at the KERNEL stage.
        target: A machine with blocks of threads.

    Returns:
        The last kernel, which reads what those before it leave in memory after its own buffers.
    """
    if not any(i.unit == "warp_group" for i in target.matrix_instructions):
        return None
    with in_use():
        kernel = analyse(_prepared(sink))
        found = best_ring(kernel, target)
        if found is None:
            return _columns_in_parts(kernel, target)
        best: tuple[float, Prepacked] | None = None
        operands = (found.ring.a, found.ring.b)
        if all(operand.array is not None for operand in operands):
            candidates = _with_parts(kernel, found, target)
        else:
            candidates = _with_copies(kernel, target)
        for cost, candidate in candidates:
            if cost < _GAIN * found.cycles and (best is None or cost < best[0]):
                best = (cost, candidate)
        return None if best is None else best[1]


def _prepared(sink: Node) -> Node:
    """The kernel as plans see it, its ranges numbered by twos: a part fits between."""
    simple = normalise_ranges(rewrite(sink, SIMPLIFY))
    ranges = [node for node in toposort(simple) if node.op is RANGE]
    return renumber(simple, sorted(ranges, key=lambda r: int(r.attrs.number)), 2)


def _cycles_for(size_bytes: float, share: float, target: TargetSpec) -> float:
    """What it costs to move bytes from and to the memory that all share, in a kernel."""
    far = next(memory for memory in target.memories if memory.name == "global")
    return _LAUNCH + size_bytes / (far.bandwidth_bytes_per_cycle * share)


# ---- copies of factors


def _with_copies(kernel: Kernel, target: TargetSpec) -> Iterator[tuple[float, Prepacked]]:
    """The kernel with one or both factors copied, and what each way costs."""
    for contraction in orientations(kernel)[:1]:
        sides = ((contraction.a, contraction.m), (contraction.b, contraction.n))
        options = [_copies_of(factor, own, contraction) for factor, own in sides]
        for first in options[0]:
            for second in options[1]:
                chosen = [copy for copy in (first, second) if copy is not None]
                if not chosen:
                    continue
                candidate, cost = _copied(kernel, contraction, chosen, target)
                found = best_ring(analyse(_prepared(candidate.kernel)), target)
                if found is not None and found.ring.a.array and found.ring.b.array:
                    yield cost + found.cycles, candidate


class _Copy:
    """A factor's array, stored anew with the elements of one axis side by side."""

    def __init__(self, factor: Node, load: Node, array: Array, fast: int) -> None:
        self.factor = factor
        self.load = load
        self.array = array
        axes = list(array.axes)
        self.is_turned = fast != 0
        self.axes = [axes.pop(fast), *axes]
        width = _ALIGNMENT_BYTES // array.dtype.itemsize
        self.strides = [1]
        step = ceil_div(self.axes[0].size, width) * width
        for axis in self.axes[1:]:
            self.strides.append(step)
            step *= axis.size
        self.count = step

    @property
    def size_bytes(self) -> int:
        """Bytes of the copy."""
        return self.count * self.array.dtype.itemsize

    def offset(self, places: Mapping[int, Node]) -> Node:
        """Where an element is, by its place on each axis."""
        found = const_index(0)
        for number, stride in enumerate(self.strides):
            found = simplify.add(found, simplify.scale(places[number], stride))
        return found

    def kernel(self) -> Node:
        """The kernel that makes it: PARAM 0 from PARAM 1."""
        places, source = {}, const_index(self.array.start)
        # Loops as the copy is stored: the last moves by one element.
        for number in reversed(range(len(self.axes))):
            axis = self.axes[number]
            attrs = RangeAttrs(len(self.axes) - 1 - number)
            places[number] = RANGE(const_index(axis.size), attrs=attrs)
            source = simplify.add(source, simplify.scale(places[number], axis.stride))
        dtype = self.array.dtype
        shape = self.array.param.attrs.shape
        target = PARAM(attrs=ParamAttrs(0, (self.count,), dtype))
        value = LOAD(INDEX(PARAM(attrs=ParamAttrs(1, shape, dtype)), source))
        return SINK(STORE(INDEX(target, self.offset(places)), value))

    def loaded(self, slot: int) -> Node:
        """The factor, read from the copy in a slot of the kernel."""
        packed = PARAM(attrs=ParamAttrs(slot, (self.count,), self.array.dtype))
        values = {range_: range_ for range_ in self.array.ranges}
        places = {number: axis.place(values) for number, axis in enumerate(self.axes)}
        load = LOAD(INDEX(packed, self.offset(places)), *self.load.src[1:])
        (found,) = simplify.substitute([self.factor], {self.load: load})
        return found


def _copies_of(factor: Node, own: Sequence[Node], contraction: Contraction) -> list[_Copy | None]:
    """Ways to store a factor anew; None stands for leaving it."""
    found: list[_Copy | None] = [None]
    narrow = narrowed(factor)
    loaded = loaded_by(narrow)
    if loaded is None:
        return found
    load, gates = loaded
    array = any_array_of(load.src[0], [*own, *contraction.k, *contraction.batch], gates)
    if array is None:
        return found
    for number, axis in enumerate(array.axes):
        is_own = axis.ranges == (own[-1],) and array.dtype.itemsize == 2
        is_inner = len(axis.ranges) == 1 and axis.ranges[0] in contraction.k
        is_inner = is_inner and axis.size * array.dtype.itemsize >= _LEAST_ROW
        if is_own or is_inner:
            found.append(_Copy(factor, load, array, number))
    return found


def _copied(
    kernel: Kernel, contraction: Contraction, copies: Sequence[_Copy], target: TargetSpec
) -> tuple[Prepacked, float]:
    """The kernel with some factors read from copies, and what the copies cost."""
    slot = _next_slot(kernel)
    factors = {contraction.a: contraction.a, contraction.b: contraction.b}
    packs, cost = [], 0.0
    for copy in copies:
        source = copy.array.param.attrs.slot
        factors[copy.factor] = copy.loaded(slot)
        cost += _cycles_for(2 * copy.size_bytes, _TURNED if copy.is_turned else _STRAIGHT, target)
        packs.append(Pack(copy.kernel(), (source,), slot, copy.size_bytes, False, 0.0))
        slot += 1
    return Prepacked(with_factors(kernel.sink, contraction, factors), tuple(packs)), cost


def _next_slot(kernel: Kernel) -> int:
    return 1 + max(int(node.attrs.slot) for node in kernel.order if node.op is PARAM)


# ---- parts of k


def _with_parts(
    kernel: Kernel, found: Costed, target: TargetSpec
) -> Iterator[tuple[float, Prepacked]]:
    """The kernel with k cut in several numbers of parts, and what each costs."""
    ring = found.ring
    if ring.tiles >= _MANY_TILES * max(target.unit("grid").count, 1):
        return
    contraction = ring.contraction
    for count in _PARTS:
        if ring.steps < count * _LEAST_STEPS:
            return
        cut = _cut_range(contraction.k, ring.a.inner, ring.a.depth, count)
        if cut is None:
            continue
        layout = [*contraction.batch, *contraction.m, *contraction.n]
        candidate = _in_parts(kernel, contraction.reduce, layout, cut, count)
        partial = best_ring(analyse(_prepared(candidate.packs[0].kernel)), target)
        if partial is not None:
            moved = 2 * candidate.packs[0].size_bytes
            yield partial.cycles + _cycles_for(moved, _STRAIGHT, target), candidate


def _cut_range(k: Sequence[Node], inner: Node, depth: int, count: int) -> Node | None:
    """The range of k that falls into `count` parts of whole slots; None if none does."""
    for range_ in k:
        if range_ is not inner and size(range_) % count == 0:
            return range_
    return inner if size(inner) % (count * depth) == 0 else None


def _columns_in_parts(kernel: Kernel, target: TargetSpec) -> Prepacked | None:
    """A fold across rows of few columns, in parts: more blocks than columns alone give."""
    if not kernel.reduces or kernel.read_and_written or kernel.serial:
        return None
    plan = column_plan(kernel, target)
    if plan is None or plan != choose_gpu_plan(kernel, target):
        return None
    (reduce,) = kernel.reduces
    bound = max(reduce.src[1:], key=size)
    columns = plan.unit_size(Unit.LOCAL) * max(_lanes_of(plan), 1)
    blocks = ceil_div(product(kernel.outputs), columns)
    units = max(target.unit("grid").count, 1)
    loads = [node for node in kernel.loads if kernel.free.mask[node] & kernel.free.bit(bound)]
    moved = max(product(kernel.free.of(node)) * node.type.dtype.itemsize for node in loads)
    if blocks >= 2 * units or moved < _WORTH_PARTS or reduce.type.dtype.bits < 32:
        return None
    parts = [count for count in _PARTS if size(bound) % (count * _LEAST_PART) == 0]
    enough = [count for count in parts if count * blocks >= 4 * units]
    if not enough:
        return None
    return _in_parts(kernel, reduce, kernel.outputs, bound, enough[0])


def _lanes_of(plan: GpuPlan) -> int:
    tiles = [part for split in plan.splits for part in split.tile]
    return max((part.size for part in tiles if part.unit is Unit.LANE), default=1)


def _in_parts(
    kernel: Kernel, reduce: Node, layout: Sequence[Node], cut: Node, count: int
) -> Prepacked:
    """A kernel that folds each part of a range into results of a layout, and one that goes on."""
    number = int(cut.attrs.number)
    last = max(int(range_.attrs.number) for range_ in kernel.free.ranges)
    length = size(cut) // count
    part = RANGE(const_index(count), attrs=RangeAttrs(last + 1))
    inside = RANGE(const_index(length), attrs=RangeAttrs(number))
    value = simplify.add(simplify.scale(part, length), inside)
    partial = substitute_ranges(reduce, {cut: value}, {cut: (inside,)})
    results, offset = product(layout), const_index(0)
    for range_ in layout:
        offset = simplify.add(simplify.scale(offset, size(range_)), range_)
    offset = simplify.add(simplify.scale(part, results), offset)
    dtype = reduce.type.dtype
    slot = _next_slot(kernel)
    sums = PARAM(attrs=ParamAttrs(slot, (count * results,), dtype))
    total = REDUCE(LOAD(INDEX(sums, offset)), part, attrs=reduce.attrs)
    (sink,) = simplify.substitute([kernel.sink], {reduce: total})
    sources = tuple(sorted({n.attrs.slot for n in toposort(partial) if n.op is PARAM}))
    target = PARAM(attrs=ParamAttrs(-1, (count * results,), dtype))
    own = [part, *layout, *(node for node in toposort(partial) if node.op is RANGE)]
    stored = renumber(SINK(STORE(INDEX(target, offset), partial)), list(dict.fromkeys(own)))
    slots = {-1: 0} | {source: place + 1 for place, source in enumerate(sources)}
    pack = Pack(
        _with_slots(stored, slots), sources, slot, count * results * dtype.itemsize, False, 0.0
    )
    return Prepacked(sink, (pack,))


def _with_slots(sink: Node, slots: Mapping[int, int]) -> Node:
    """A kernel whose buffers have other slots."""
    mapping: dict[Node, Node] = {}
    for node in toposort(sink):
        if node.op is PARAM:
            old = node.attrs
            attrs = ParamAttrs(slots[old.slot], old.shape, old.dtype, old.device)
            mapping[node] = PARAM(attrs=attrs)
    (found,) = simplify.substitute([sink], mapping)
    return found
