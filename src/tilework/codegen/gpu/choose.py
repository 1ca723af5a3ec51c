"""The default plan of a kernel for blocks of threads, found at once, with no search.

Reductions whose elements lie side by side get a block for each row, whose threads hold the row in
registers and fold it together; reductions across rows get threads side by side along the columns
and warps along the rows; everything else is one task for each vector of results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.codegen.analysis import Kernel, stride
from tilework.codegen.gpu.contract import choose_contraction_plan
from tilework.codegen.gpu.plan import GpuPlan
from tilework.codegen.gpu.scans import tiled_scan_plan
from tilework.codegen.plan.check import with_two_lanes
from tilework.codegen.plan.choose import estimate_work
from tilework.codegen.plan.extents import ceil_div, number, product, size
from tilework.codegen.plan.plan import Part, Split
from tilework.dtypes import index
from tilework.ir.node import toposort
from tilework.ir.ops.index import Unit
from tilework.ir.ops.memory import LOAD
from tilework.ir.ops.tensor import SCAN
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

#: Threads of a block that does elementwise work.
BLOCK = 256
#: The widest access of one thread.
_ACCESS_BYTES = 16
#: Threads of one warp, whose values are folded without shared memory.
_WARP = 32
#: Elements of a row that a thread holds in registers, and those that it folds as it reads them.
_HELD, _STREAMED = 64, 16
#: Rows of at least this length have a block of their own.
_LEAST_ROW = 32
#: So many rows for each multiprocessor are many.
_MANY_ROWS = 16
#: Bytes of a row that a thread scans by itself, and elements of one of few rows that it folds.
_SCANNED_BYTES, _FEW = 16, 8
#: Elements of a longer row that a thread scans, so that one block holds all of it.
_MOST_SCANNED = 16
#: The most lanes of a square that a thread transposes, and its neighbours along a row of stores.
_SQUARE, _SECTORS = 8, 4
#: Rows of so many elements share a block, which has so many warps, and each warp so many of them.
_SHORT_ROW, _ROW_WARPS, _ROW_COPIES = 256, 8, 4
#: Warps that fold parts of one column, bytes of neighbouring columns that one thread loads at once,
#: and bytes that it has asked for before it waits.
_COLUMN_WARPS, _COLUMN_BYTES, _IN_FLIGHT = 8, 8, 32
#: Threads of a multiprocessor that keep its memory busy.
_BUSY = 1024
#: Operations on a byte that is moved from which on threads have several vectors, where each of the
#: busy threads would otherwise have as many one after the other: two then, and four.
_HEAVY, _WAVES_OF_TWO, _WAVES_OF_FOUR = 5, 4, 16
#: Threads of such a block.
_SHARING = (128, 96, 64, 256, 192, 160)
#: Bytes of one operand that a thread of a row asks for before it waits, where rows are many.
_STREAMED_BYTES = 128


def choose_gpu_plan(kernel: Kernel, target: TargetSpec) -> GpuPlan:
    """The plan that is taken where nobody has measured a better one."""
    most = target.limits.max_workgroup_threads or BLOCK
    if kernel.reduces and not kernel.serial and not kernel.overwritten:
        contraction = choose_contraction_plan(kernel, target)
        if contraction is not None:
            return contraction
        plan = _row_plan(kernel, target) or column_plan(kernel, target)
        if plan is not None:
            return plan
    plan = scan_plan(kernel, most) or _transposing_plan(kernel)
    return plan or _flat_plan(kernel, min(BLOCK, most), target)


def plain_gpu_plan(kernel: Kernel) -> GpuPlan:
    """One serial loop for each range in one thread: what a kernel means, without any tile."""
    scanned = _scanned(kernel)
    outputs = sorted(kernel.outputs, key=lambda at: at in scanned)
    nest = tuple((number(range_), 0) for range_ in outputs)
    return GpuPlan((), nest, 0, (), overlap=False, block=1)


# ---- facts


def _scanned(kernel: Kernel) -> set[Node]:
    return {node.src[1] for node in kernel.order if node.op is SCAN}


def _known(range_: Node) -> int:
    """The size of a range; 0 where it is known at run time only."""
    return simplify.value_of(range_.src[0]) or 0


def _reads_itself(kernel: Kernel) -> bool:
    return kernel.read_and_written


def _parallel(kernel: Kernel) -> list[Node]:
    """The output ranges whose iterations are independent.

    Where memory is written in place, an iteration that reads what others write runs in order: the
    range stays a loop unless everything that is read there moves with it.
    """
    found = [r for r in kernel.outputs if r not in kernel.meeting]
    if not _reads_itself(kernel):
        return found
    written = {store.src[0].src[0] for store in kernel.stores}
    own = [load for load in kernel.loads if load.src[0].src[0] in written]
    mask = kernel.free.mask
    return [r for r in found if all(mask[n] & kernel.free.bit(r) for n in own)]


def _lanes(kernel: Kernel, range_: Node, accesses: Iterable[Node], *, is_whole: bool = True) -> int:
    """How many elements along `range_` one thread should move at once.

    Accesses must be contiguous along the range, their rows start at a multiple of the lanes.  Lanes
    divide the range unless it need not be made of whole vectors.
    """
    known = _known(range_)
    bit = kernel.free.bit(range_)
    widest = 1
    lanes = _ACCESS_BYTES
    contiguous = False
    for access in accesses:
        if not kernel.free.mask[access] & bit:
            continue
        itemsize = access.src[0].type.dtype.itemsize
        offset = access.src[0].src[1]
        step = stride(offset, range_)
        if step == 0:
            continue
        if step != 1:
            # A gathered vector saves nothing, but does no harm where others are contiguous.
            continue
        contiguous = True
        widest = max(widest, itemsize)
        while lanes > 1 and not _is_aligned(offset, range_, lanes):
            lanes //= 2
    if not contiguous:
        return 1
    lanes = min(lanes, _ACCESS_BYTES // widest)
    while is_whole and lanes > 1 and (not known or known % lanes):
        lanes //= 2
    return lanes


def _is_aligned(offset: Node, range_: Node, lanes: int) -> bool:
    """Do vectors along `range_` start at multiples of their lanes in memory?"""
    constant, total = simplify.terms(offset)
    others = [factor for term, factor in total.items() if term is not range_]
    return constant % lanes == 0 and all(factor % lanes == 0 for factor in others)


def _accesses(kernel: Kernel) -> list[Node]:
    return [*kernel.loads, *kernel.stores]


def _nest_of(ranges: Iterable[Node]) -> tuple[tuple[int, int], ...]:
    return tuple((number(range_), 0) for range_ in ranges)


# ---- elementwise


def _flat_plan(kernel: Kernel, block: int, target: TargetSpec) -> GpuPlan:
    """A task for each result, or for a vector of them; what must run in order are loops.

    Threads that compute long on few bytes have several vectors each.
    """
    parallel = _parallel(kernel)
    scanned = _scanned(kernel)
    rest = sorted((r for r in kernel.outputs if r not in parallel), key=lambda r: r in scanned)
    # Threads side by side should write side by side: the range that stores move with goes last.
    parallel.sort(key=lambda r: (_moves_stores(kernel, r), number(r)))
    splits: list[Split] = []
    if parallel and not kernel.reduces and not scanned:
        lane = parallel[-1]
        lanes = _lanes(kernel, lane, _accesses(kernel))
        tile = () if rest else _vectors_of_thread(kernel, lane, lanes, block, target)
        if tile:
            split = Split(number(lane), (Part(Unit.LOOP),), tile)
            return GpuPlan((split,), _nest_of(parallel), len(parallel), (), overlap=False)
        if lanes > 1:
            splits.append(Split(number(lane), (Part(Unit.LOOP),), (Part(Unit.LANE, lanes),)))
    nest = _nest_of([*parallel, *rest])
    total = 1
    for range_ in parallel:
        total *= size(range_)
    while block > _WARP and total <= block // 2:
        block //= 2
    if not parallel:
        block = 1
    return GpuPlan(tuple(splits), nest, len(parallel), (), overlap=False, block=block)


def _vectors_of_thread(
    kernel: Kernel, lane: Node, lanes: int, block: int, target: TargetSpec
) -> tuple[Part, ...]:
    """The tile along `lane` of a block whose threads have several vectors; none where one does.

    One vector waits for memory, then computes on it with nothing to overlap: where that takes about
    as long as memory does, a second and fourth one fill the pauses (an H200: functions of 2^27
    bfloat16 1.1 to 1.25 times as fast with four, copies 0.98).  Neighbouring threads have
    neighbouring vectors, and blocks are fewer, which takes enough of them.
    """
    known = _known(lane)
    results = product(kernel.outputs)
    units = max(target.unit("grid").count, 1)
    waves = results // (lanes * units * _BUSY)
    if not known or waves < _WAVES_OF_TWO or kernel.serial:
        return ()
    accesses = [a for a in _accesses(kernel) if _depends(kernel, a, lane)]
    moved = sum(access.src[0].type.dtype.itemsize for access in accesses)
    if estimate_work(kernel) < _HEAVY * moved * results:
        return ()
    for count in (4, 3) if waves >= _WAVES_OF_FOUR else (2,):
        for threads in _SHARING:
            if threads <= block and known % (count * threads * lanes) == 0:
                tile = (Part(Unit.UNROLL, count), Part(Unit.LOCAL, threads))
                return (*tile, Part(Unit.LANE, lanes)) if lanes > 1 else tile
    return ()


# ---- scans


def scan_plan(kernel: Kernel, most: int) -> GpuPlan | None:
    """A block for each row of a scan: each thread has some neighbours of it in registers.

    Where the scan has words for it, the tiles of a row have blocks of their own.
    """
    scanned = _scanned(kernel)
    scans = [node for node in kernel.order if node.op is SCAN]
    if any(len(scan.src) > 2 for scan in scans):
        (along,) = scanned
        return tiled_scan_plan(kernel, _lanes(kernel, along, _accesses(kernel), is_whole=False))
    if len(scanned) != 1 or kernel.reduces or kernel.read_and_written:
        return None
    (along,) = scanned
    rows = [r for r in kernel.outputs if r is not along]
    if kernel.serial - {along} or any(n.dtype.bits < 32 or n.dtype is index for n in scans):
        return None
    known, lanes = _known(along), _lanes(kernel, along, _accesses(kernel))
    scanned = _SCANNED_BYTES * 8 // min(scan.dtype.bits for scan in scans)
    while lanes < scanned and known % (2 * lanes) == 0 and known // lanes > BLOCK:
        lanes *= 2
    while lanes < _MOST_SCANNED and known % (2 * lanes) == 0 and known // lanes > most:
        lanes *= 2
    while lanes > 1 and known // lanes < _WARP:
        lanes //= 2
    threads = known // lanes
    if threads * lanes != known or threads % _WARP or not 0 < threads <= most:
        return None
    tile = [Part(Unit.LOCAL, threads)]
    if lanes > 1:
        tile.append(Part(Unit.LANE, lanes))
    split = Split(number(along), (Part(Unit.LOOP),), tuple(tile))
    return GpuPlan((split,), _nest_of([*rows, along]), len(rows), (), overlap=False)


# ---- transposes


def _transposing_plan(kernel: Kernel) -> GpuPlan | None:
    """Squares of elements in each thread, where loads and stores are contiguous along two ranges.

    A thread loads vectors along one range and stores vectors along the other; what it holds in
    between are names of registers, so nothing moves.  Threads side by side cover whole sectors of
    memory on both sides.
    """
    parallel = _parallel(kernel)
    if kernel.reduces or kernel.serial or len(parallel) != len(kernel.outputs):
        return None
    for across in parallel:
        if not _moves_stores(kernel, across):
            continue
        for along in parallel:
            plan = _squares(kernel, across, along) if along is not across else None
            if plan is not None:
                return plan
    return None


def _squares(kernel: Kernel, across: Node, along: Node) -> GpuPlan | None:
    """Squares of stores along `across` and loads along `along`; None where loads are not so."""
    far = [
        load
        for load in kernel.loads
        if len(load.src) == 1
        and stride(load.src[0].src[1], along) == 1
        and stride(load.src[0].src[1], across) not in (None, 0, 1)
    ]
    if not far:
        return None
    lanes = min(_lanes(kernel, across, kernel.stores), _lanes(kernel, along, far), _SQUARE)
    rows = _dividing(_known(along), lanes * _WARP)
    sectors = _SECTORS
    while rows * sectors < 2 * _WARP * lanes and sectors < _WARP:
        sectors *= 2  # threads that find no more to do along the rows do it along the columns
    columns = _dividing(_known(across), lanes * sectors)
    if lanes < 2 or rows < _WARP or columns * rows // lanes**2 < 2 * _WARP:
        return None
    splits = (
        Split(
            number(across),
            (Part(Unit.LOOP),),
            (Part(Unit.LOCAL, columns // lanes), Part(Unit.LANE, lanes)),
        ),
        Split(
            number(along),
            (Part(Unit.LOOP),),
            (Part(Unit.WARP, rows // lanes), Part(Unit.UNROLL, lanes)),
        ),
    )
    return GpuPlan(splits, _nest_of(kernel.outputs), len(kernel.outputs), (), overlap=False)


def _dividing(extent: int, most: int) -> int:
    """The greatest power of two up to `most` that divides an extent; 0 divides nothing."""
    found = most
    while found > 1 and (not extent or extent % found):
        found //= 2
    return found


def _moves_stores(kernel: Kernel, range_: Node) -> bool:
    return any(stride(store.src[0].src[1], range_) == 1 for store in kernel.stores)


# ---- reductions along rows


def _row_plan(kernel: Kernel, target: TargetSpec) -> GpuPlan | None:
    """A block for each row: its threads hold or stream it, and fold what they have."""
    most = target.limits.max_workgroup_threads or BLOCK
    alongs = _contiguous_bound(kernel)
    if alongs is None:
        return None
    # A fold that several rows share is made by the block of each of them.
    folded = [r for r in kernel.outputs if any(_depends(kernel, n, r) for n in kernel.reduces)]
    columns = [r for r in kernel.outputs if r not in folded]
    if len(columns) > 1:
        return None
    lengths = {_known(r) for r in alongs} | {_known(r) for r in columns}
    if 0 in lengths or max(_known(r) for r in alongs) < _LEAST_ROW:
        return None
    length = max(lengths)
    lanes = min(_lanes(kernel, r, _accesses(kernel)) for r in {*alongs, *columns})
    if with_two_lanes(kernel, {*alongs, *columns}) is not None:
        lanes = 1  # a fold whose body folds, too
    is_held = bool(columns) or len(kernel.reduces) > 1
    each = _HELD if is_held else _streamed(kernel, product(folded), target)
    if product(folded) < max(target.unit("grid").count, 1):
        each = _FEW  # few rows: let each thread do little, since most would do nothing
    threads = _WARP
    while threads < most and threads * max(each // 2, lanes) < length:
        threads *= 2
    together = _rows_together(folded, threads, length, target)
    if together:
        lanes = min(lanes, max(length // threads, 1))
    copies = 1
    limit = each
    while threads * lanes * copies < length and lanes * copies * 2 <= limit:
        copies *= 2
    tile = [Part(Unit.UNROLL, copies)] if copies > 1 else []
    tile.append(Part(Unit.LOCAL, threads))
    if lanes > 1:
        tile.append(Part(Unit.LANE, lanes))
    splits = [
        Split(number(r), (Part(Unit.LOOP),), tuple(tile))
        for r in sorted({*alongs, *columns}, key=number)
    ]
    if together:
        splits.append(Split(number(folded[-1]), (Part(Unit.LOOP),), together))
    return GpuPlan(tuple(splits), _nest_of([*folded, *columns]), len(folded), (), overlap=False)


def _rows_together(
    rows: list[Node], threads: int, length: int, target: TargetSpec
) -> tuple[Part, ...]:
    """The tile of rows that one block has, a warp each; () where each has a block of its own.

    Of rows that a warp has in its hands at once, a block's beginning takes longer than its work.
    """
    warps = _ROW_WARPS * _ROW_COPIES
    if threads > _WARP or length > _SHORT_ROW or not rows or size(rows[-1]) % warps:
        return ()
    if product(rows) < _MANY_ROWS * warps * max(target.unit("grid").count, 1):
        return ()
    return (Part(Unit.WARP, _ROW_WARPS), Part(Unit.UNROLL, _ROW_COPIES))


def _streamed(kernel: Kernel, rows: int, target: TargetSpec) -> int:
    """Elements of a row that a thread folds as it reads them.

    Where there are more rows than blocks at a time, fewer threads share one, each with more loads
    under way: folding among threads, and beginning, take their time for each row.
    """
    if rows < _MANY_ROWS * max(target.unit("grid").count, 1):
        return _STREAMED
    widest = max(load.type.dtype.itemsize for load in kernel.loads)
    return max(_STREAMED, _STREAMED_BYTES // widest)


def _contiguous_bound(kernel: Kernel) -> list[Node] | None:
    """For each reduction the range along which its loads are contiguous; None if one has none.

    Loads that move with fewer ranges are read again and again, from the cache: they do not count.
    """
    found: dict[Node, None] = {}
    mask = kernel.free.mask
    for reduce in kernel.reduces:
        best: Node | None = None
        every = [n for n in toposort(reduce.src[0]) if n.op is LOAD]
        most = max((product(kernel.free.of(n)) for n in every), default=0)
        for range_ in reduce.src[1:]:
            bit = kernel.free.bit(range_)
            loads = [n for n in every if mask[n] & bit and product(kernel.free.of(n)) == most]
            steps = [stride(n.src[0].src[1], range_) for n in loads]
            if any(step == 1 for step in steps) and (best is None or _known(range_) > _known(best)):
                best = range_
        if best is None:
            return None
        found[best] = None
    return list(found)


def _depends(kernel: Kernel, node: Node, range_: Node) -> bool:
    return bool(kernel.free.mask[node] & kernel.free.bit(range_))


def _rows_and_columns(kernel: Kernel) -> tuple[list[Node], list[Node]]:
    """Output ranges on which every reduction depends, and the others."""
    rows = [r for r in kernel.outputs if all(_depends(kernel, n, r) for n in kernel.reduces)]
    return rows, [r for r in kernel.outputs if r not in rows]


# ---- reductions across rows


def column_plan(kernel: Kernel, target: TargetSpec, *, is_cut: bool = False) -> GpuPlan | None:
    """Threads side by side along the columns, warps along the range that is folded.

    A thread has as many columns as one access moves, as long as all multiprocessors get two blocks:
    where some have one more than others, those that wait have less to wait for.  Of a fold that is
    cut in parts one is enough, since its parts have blocks of their own.
    Several folds, each of as many rows, do so one after the other or in one loop.
    """
    rows, others = _rows_and_columns(kernel)
    bounds = {max(reduce.src[1:], key=_known): None for reduce in kernel.reduces}
    if others or len({_known(bound) for bound in bounds}) != 1:
        return None
    inside = {node: None for r in kernel.reduces for node in toposort(r.src[0])}
    loads = [node for node in inside if node.op is LOAD]
    along = [r for r in rows if any(stride(n.src[0].src[1], r) == 1 for n in loads)]
    bound = next(iter(bounds))
    if not along or _known(bound) < 4 * _COLUMN_WARPS:
        return None
    column = along[-1]
    if size(column) < _WARP:
        return None
    results = product(rows)
    units = max(target.unit("grid").count, 1)
    lanes = _lanes(kernel, column, [*loads, *kernel.stores])
    widest = max(load.type.dtype.itemsize for load in loads)
    least = _WARP * units * (1 if is_cut else 2)
    while lanes > 1 and (results < lanes * least or lanes * widest > _COLUMN_BYTES):
        lanes //= 2
    most = min(target.limits.max_workgroup_threads or BLOCK, 1024)
    warps = _COLUMN_WARPS
    blocks = ceil_div(results, _WARP * lanes)
    while (
        warps * _WARP < most
        and blocks * warps * _WARP < _BUSY * units
        and (_known(bound) >= 8 * warps)
    ):
        warps *= 2
    copies = 4
    asked = lanes * widest * len(kernel.reduces)
    while _known(bound) >= 4 * copies * warps and copies * asked < _IN_FLIGHT:
        copies *= 2
    tile = [Part(Unit.LOCAL, _WARP)]
    if lanes > 1:
        tile.append(Part(Unit.LANE, lanes))
    folded = (Part(Unit.UNROLL, copies), Part(Unit.WARP, warps))
    splits = (
        Split(number(column), (Part(Unit.LOOP),), tuple(tile)),
        *(Split(number(each), (Part(Unit.LOOP),), folded) for each in bounds),
    )
    return GpuPlan(splits, _nest_of(rows), len(rows), (), overlap=False)
