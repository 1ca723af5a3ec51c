"""One kernel as several, where that is faster: factors copied first, sums over parts of k last.

A copy engine takes arrays whose rows start at multiples of 16 bytes and whose elements lie side by
side along k or along the factor's own range.  A factor that is stored otherwise is copied once, by
a kernel of its own, into an array that is; every tile then reads the copy.  One that is computed
(a cast, an activation before the product) or gathered is stored as well, a value for each of its
ranges; where all ranges of k are short (three channels of a window) k becomes one range, along
which both factors are stored.  Where tiles are fewer than the machine's multiprocessors, k is cut
in parts: a kernel computes the sums of all parts, and another adds them, always in the same order,
and does what follows.  So are folds across rows of few columns.  What follows is a kernel of its
own too where it reads and writes much more than the sums.

Results are ordinary kernels with plans of their own.  Copies change no number; parts of k change
the order of a sum, as every plan may, and by the sizes alone.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from tilework.codegen.analysis import Kernel, analyse, substitute_ranges
from tilework.codegen.gpu.choose import choose_gpu_plan, column_plan, scan_plan
from tilework.codegen.gpu.classes import by_classes
from tilework.codegen.gpu.copies import (
    OPERATIONS,
    STRAIGHT,
    Copied,
    Filled,
    copies_of,
    cycles_for,
    filled,
    with_one_k,
    with_slots,
)
from tilework.codegen.gpu.scans import pays_in_tiles, scan_in_tiles
from tilework.codegen.gpu.sort_passes import sort_in_passes
from tilework.codegen.matrix.operands import narrowed, of_one_dtype
from tilework.codegen.matrix.products import Product, best_product, unit_of
from tilework.codegen.passes.normalise import normalise_ranges, renumber
from tilework.codegen.plan.contraction import Contraction, orientations, with_factors
from tilework.codegen.plan.extents import ceil_div, least_size, product, size
from tilework.codegen.plan.prepack import Pack, Prepacked
from tilework.codegen.sort.kernels import is_sort
from tilework.ir.build import const_index
from tilework.ir.node import Node, in_use, toposort
from tilework.ir.ops.index import RANGE, RangeAttrs, Unit
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.tensor import REDUCE, SCAN
from tilework.ir.rewrite import rewrite
from tilework.ir.rules import SIMPLIFY
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tilework.codegen.gpu.plan import GpuPlan
    from tilework.target.spec import TargetSpec

#: A division must cost less than this share of the kernel as it is.
_GAIN = 0.9
#: What a copy of weights costs, as a share: captured programs make it once, other calls each time.
_KEPT_SHARE = 0.25
#: Parts of k that are tried; each has so many slots of k at least.
_PARTS = (2, 3, 4, 6, 8, 12, 16, 24, 32)
_LEAST_STEPS = 8
#: Bytes to be folded that are worth another kernel, and elements of one part of a column.
_WORTH_PARTS, _LEAST_PART = 16 << 20, 64
#: Elements for each result that what follows a product reads and writes, from which on it is long.
_LONG_REST = 5
#: Tiles for each multiprocessor from which on cutting k gains nothing.
_MANY_TILES = 4


def divide(sink: Node, target: TargetSpec, given: frozenset[int] = frozenset()) -> Prepacked | None:
    """Several kernels that do what one does, in less time; None where it is best as it is.

    Args:
        sink: The kernel, at the KERNEL stage.
        target: A machine with blocks of threads.
        given: The slots of what comes from outside of the schedule, and is not written in it.

    Returns:
        The last kernel, which reads what those before it leave in memory after its own buffers.
    """
    if is_sort(sink):
        with in_use():
            return sort_in_passes(sink, target)
    if any(node.op is SCAN for node in toposort(sink)):
        with in_use():
            return _scan_in_tiles(sink, target)
    if not unit_of(target):
        return None
    with in_use():
        kernel = analyse(_prepared(sink))
        if kernel.meeting:
            return by_classes(kernel, target)
        found = best_product(kernel, target)
        cycles = _cycles_without_units(kernel, target) if found is None else found.cycles
        if not cycles:
            return _columns_in_parts(kernel, target)
        best: tuple[float, Prepacked] | None = None
        if found is not None and found.is_moved:
            candidates = _with_parts(kernel, found, target)
        else:
            candidates = _with_copies(kernel, target, given)
            flat = with_one_k(kernel)
            if flat is not None:
                more = _with_copies(analyse(_prepared(flat)), target, given)
                candidates = chain(candidates, more)
        for cost, candidate in candidates:
            if cost < _GAIN * cycles and (best is None or cost < best[0]):
                best = (cost, candidate)
        chosen = None if best is None else best[1]
        return _without_rest(kernel.sink if chosen is None else chosen.kernel, chosen, target)


def _scan_in_tiles(sink: Node, target: TargetSpec) -> Prepacked | None:
    """A scan whose rows many blocks share, where a block holds no row or rows are few and long."""
    kernel = analyse(_prepared(sink))
    most = target.limits.max_workgroup_threads
    if scan_plan(kernel, most) is not None or not pays_in_tiles(kernel, target):
        return None
    return scan_in_tiles(sink)


def _without_rest(sink: Node, chosen: Prepacked | None, target: TargetSpec) -> Prepacked | None:
    """A product whose sums are stored, and what follows as a kernel of its own, where that is long.

    An optimizer's step moves so much more than the sums that storing them costs next to nothing;
    in the product's kernel each of a hundred registers of sums would get all its instructions.
    """
    kernel = analyse(_prepared(sink))
    if best_product(kernel, target) is None:
        return chosen
    (contraction, *_) = orientations(kernel)
    inside = {node for reduce in kernel.reduces for node in toposort(reduce)}
    moved = [node for node in (*kernel.loads, *kernel.stores) if node not in inside]
    outputs = set(kernel.outputs)
    if sum(outputs <= set(kernel.free.of(node)) for node in moved) < _LONG_REST:
        return chosen
    layout = [*contraction.batch, *contraction.m, *contraction.n]
    rest = _in_parts(kernel, [contraction.reduce], layout, None, 1)
    before = () if chosen is None else chosen.packs
    return Prepacked(rest.kernel, (*before, *rest.packs))


def _cycles_without_units(kernel: Kernel, target: TargetSpec) -> float:
    """What a product that the target has instructions for costs without them; 0 for all else."""
    found = orientations(kernel)
    if not found or kernel.overwritten or found[0].corrections:
        return 0.0
    factors = of_one_dtype(narrowed(found[0].a), narrowed(found[0].b))
    unit = unit_of(target)
    kinds = {i.a_dtype for i in target.matrix_instructions if i.unit == unit}
    if factors is None or factors[0].type.dtype.name not in kinds:
        return 0.0
    ranges = kernel.free.of(found[0].reduce.src[0])
    return product(ranges) / (max(target.unit("grid").count, 1) * OPERATIONS / 2)


def _prepared(sink: Node) -> Node:
    """The kernel as plans see it, its ranges numbered by twos: a part fits between."""
    simple = normalise_ranges(rewrite(sink, SIMPLIFY))
    ranges = [node for node in toposort(simple) if node.op is RANGE]
    return renumber(simple, sorted(ranges, key=lambda r: int(r.attrs.number)), 2)


# ---- copies of factors


def _with_copies(
    kernel: Kernel, target: TargetSpec, given: frozenset[int]
) -> Iterator[tuple[float, Prepacked]]:
    """The kernel with one or both factors copied, perhaps k in parts, and what each way costs."""
    for contraction in orientations(kernel)[:1]:
        sides = ((contraction.a, contraction.m), (contraction.b, contraction.n))
        factors = of_one_dtype(narrowed(contraction.a), narrowed(contraction.b))
        if factors is None:
            return
        options = [
            [*copies_of(factor, own, contraction), *filled(kernel, factor, value, own)]
            for (factor, own), value in zip(sides, factors, strict=True)
        ]
        for first in options[0]:
            for second in options[1]:
                chosen = [copy for copy in (first, second) if copy is not None]
                if not chosen:
                    continue
                candidate, cost = _copied(kernel, contraction, chosen, target, given)
                inner = analyse(_prepared(candidate.kernel))
                found = best_product(inner, target)
                if found is None or not found.is_moved:
                    continue
                yield cost + found.cycles, candidate
                for more, parts in _with_parts(inner, found, target):
                    yield cost + more, Prepacked(parts.kernel, (*candidate.packs, *parts.packs))


def _copied(
    kernel: Kernel,
    contraction: Contraction,
    copies: Sequence[Copied | Filled],
    target: TargetSpec,
    given: frozenset[int],
) -> tuple[Prepacked, float]:
    """The kernel with some factors read from copies, and what the copies cost.

    A factor that comes from outside where the other one is computed is most likely a layer's
    weights: a captured program copies those once (`engine.hoist`).
    """
    slot = _next_slot(kernel)
    factors = {contraction.a: contraction.a, contraction.b: contraction.b}
    has_computed = not all(_is_of(factor, given) for factor in factors)
    packs, cost = [], 0.0
    for copy in copies:
        is_kept = has_computed and isinstance(copy, Copied) and _is_of(copy.factor, given)
        factors[copy.factor] = copy.loaded(slot)
        cost += copy.cycles(target) * (_KEPT_SHARE if is_kept else 1.0)
        packs.append(copy.pack(slot))
        slot += 1
    return Prepacked(with_factors(kernel.sink, contraction, factors), tuple(packs)), cost


def _is_of(factor: Node, slots: frozenset[int]) -> bool:
    """Whether a factor is computed from arguments of these slots alone."""
    return all(n.attrs.slot in slots for n in toposort(factor) if n.op is PARAM)


def _next_slot(kernel: Kernel) -> int:
    return 1 + max(int(node.attrs.slot) for node in kernel.order if node.op is PARAM)


# ---- parts of k


def _with_parts(
    kernel: Kernel, found: Product, target: TargetSpec
) -> Iterator[tuple[float, Prepacked]]:
    """The kernel with k cut in several numbers of parts, and what each costs."""
    if found.tiles >= _MANY_TILES * max(target.unit("grid").count, 1):
        return
    contraction = found.contraction
    for count in _PARTS:
        if found.steps < count * _LEAST_STEPS:
            return
        cut = _cut_range(contraction.k, found.inner, found.depth, count)
        if cut is None:
            continue
        layout = [*contraction.batch, *contraction.m, *contraction.n]
        candidate = _in_parts(kernel, [contraction.reduce], layout, cut, count)
        partial = best_product(analyse(_prepared(candidate.packs[0].kernel)), target)
        if partial is not None:
            moved = 2 * candidate.packs[0].size_bytes
            yield partial.cycles + cycles_for(moved, STRAIGHT, target), candidate


def _cut_range(k: Sequence[Node], inner: Node, depth: int, count: int) -> Node | None:
    """The range of k that falls into `count` parts of whole slots; None if none does."""
    for range_ in k:
        if range_ is not inner and size(range_) % count == 0:
            return range_
    return inner if size(inner) % (count * depth) == 0 else None


def _columns_in_parts(kernel: Kernel, target: TargetSpec) -> Prepacked | None:
    """Folds across rows of few columns, in parts: more blocks than columns alone give.

    Several folds of the same rows are cut alike, by one kernel.
    """
    if not kernel.reduces or kernel.overwritten or kernel.serial:
        return None
    plan = column_plan(kernel, target)
    if plan is None or plan != choose_gpu_plan(kernel, target):
        return None
    first, *others = kernel.reduces
    if any(other.src[1:] != first.src[1:] or other.type != first.type for other in others):
        return None
    if any(node in kernel.reduces for each in kernel.reduces for node in toposort(each.src[0])):
        return None
    # A size that is known at run time only cannot be cut.
    fixed = [range_ for range_ in first.src[1:] if least_size(range_) == size(range_)]
    bound = max(fixed, key=size, default=None)
    if bound is None:
        return None
    wide = column_plan(kernel, target, is_cut=True) or plan
    columns = wide.unit_size(Unit.LOCAL) * _lanes_of(wide)
    blocks = ceil_div(product(kernel.outputs), columns)
    units = max(target.unit("grid").count, 1)
    loads = [node for node in kernel.loads if kernel.free.mask[node] & kernel.free.bit(bound)]
    read = [product(kernel.free.of(node)) * node.type.dtype.itemsize for node in loads]
    moved = max(read, default=0)
    if blocks >= 2 * units or moved < _WORTH_PARTS or first.type.dtype.bits < 32:
        return None
    parts = [count for count in _PARTS if size(bound) % (count * _LEAST_PART) == 0]
    enough = [count for count in parts if count * blocks >= 4 * units]
    if not enough:
        return None
    return _in_parts(kernel, kernel.reduces, kernel.outputs, bound, enough[0])


def _lanes_of(plan: GpuPlan) -> int:
    tiles = [part for split in plan.splits for part in split.tile]
    return max((part.size for part in tiles if part.unit is Unit.LANE), default=1)


def _in_parts(
    kernel: Kernel, reduces: Sequence[Node], layout: Sequence[Node], cut: Node | None, count: int
) -> Prepacked:
    """A kernel that folds each part of a range into results of a layout, and one that goes on.

    Without a range there is one part.  Folds of several values, all of one dtype and along the same
    ranges, leave their results one behind the other.
    """
    results, offset = product(layout), const_index(0)
    for range_ in layout:
        offset = simplify.add(simplify.scale(offset, size(range_)), range_)
    values: dict[Node, Node] = {}
    binders: dict[Node, tuple[Node, ...]] = {}
    parts: list[Node] = []
    if cut is not None:
        number = int(cut.attrs.number)
        last = max(int(range_.attrs.number) for range_ in kernel.free.ranges)
        length = size(cut) // count
        part = RANGE(const_index(count), attrs=RangeAttrs(last + 1))
        inside = RANGE(const_index(length), attrs=RangeAttrs(number))
        values[cut] = simplify.add(simplify.scale(part, length), inside)
        binders[cut] = (inside,)
        offset = simplify.add(simplify.scale(part, results), offset)
        parts = [part]
    dtype, total = reduces[0].type.dtype, len(reduces) * count * results
    slot = _next_slot(kernel)
    sums = PARAM(attrs=ParamAttrs(slot, (total,), dtype))
    target = PARAM(attrs=ParamAttrs(-1, (total,), dtype))
    folds: dict[Node, Node] = {}
    stores: list[Node] = []
    for position, reduce in enumerate(reduces):
        partial = substitute_ranges(reduce, values, binders) if parts else reduce
        place = simplify.add(offset, const_index(position * count * results))
        stores.append(STORE(INDEX(target, place), partial))
        found = LOAD(INDEX(sums, place))
        folds[reduce] = REDUCE(found, *parts, attrs=reduce.attrs) if parts else found
    (sink,) = simplify.substitute([kernel.sink], folds)
    before = SINK(*stores)
    sources = tuple(
        sorted({n.attrs.slot for n in toposort(before) if n.op is PARAM and n is not target})
    )
    own = [*parts, *layout, *(node for node in toposort(before) if node.op is RANGE)]
    stored = renumber(before, list(dict.fromkeys(own)))
    slots = {-1: 0} | {source: place + 1 for place, source in enumerate(sources)}
    bytes_ = total * dtype.itemsize
    pack = Pack(with_slots(stored, slots), sources, slot, bytes_, False, 0.0)
    return Prepacked(sink, (pack,))
