"""The default plan of a kernel, found at once by a cost model, with no search.

A contraction gets a register tile of vector accumulators with staged panels; everything else gets
lanes along the range that memory likes best, outer ranges as tasks, and enough accumulators to
hide the latency of a reduction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.records import dataclass, replace
from tilework.codegen.analysis import Kernel, stride
from tilework.codegen.linearize.large import leaves_caches
from tilework.codegen.passes.accesses import LONGEST_STEP
from tilework.codegen.plan.extents import fitting_lanes, lanes_for, least_size, number, size
from tilework.codegen.plan.plan import Part, Plan, Split
from tilework.codegen.plan.results import MOST_ACCESSES, accesses, can_roll
from tilework.codegen.plan.tilings import choose_contraction_plan
from tilework.codegen.plan.window_plan import choose_window_plan
from tilework.ir.ops.index import Unit
from tilework.ir.ops.memory import LOAD, STORE
from tilework.ir.ops.tensor import REDUCE, SCAN
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

#: A launch is worth splitting into about this many tasks per core, so that cores stay even.
_TASKS_PER_CORE = 8
#: Squares along each side of a block of a transpose; along its rows, where stores pass the caches.
_BLOCK, _LONG_BLOCK = 4, 64
#: Elements of a simple loop that pay for handing a task to another thread.
_LEAST_TASK = 4096
#: What a task has of each line that all tasks share: so many lines of the cache at least.
_LINES, _PARTS_OF_LINES = 2, 2
#: Rows that are scanned side by side.
_SCANS = 4
#: Rows that are summed side by side, with so many accumulators each.
_SUMS, _ACCUMULATORS = 4, 2
#: Element operations that costly ops count for.
OP_COST = (
    dict.fromkeys(
        [
            "exp",
            "exp2",
            "log",
            "log2",
            "expm1",
            "log1p",
            "tanh",
            "sinh",
            "cosh",
            "erf",
            "asin",
            "acos",
            "atan",
            "asinh",
            "acosh",
            "atanh",
        ],
        20,
    )
    | dict.fromkeys(["sin", "cos", "tan", "pow", "fmod", "atan2"], 40)
    | {"fdiv": 4, "sqrt": 4, "reciprocal": 4}
)


def choose_plan(kernel: Kernel, target: TargetSpec) -> Plan:
    """The plan that the cost model likes best."""
    plan = choose_contraction_plan(kernel, target) or choose_window_plan(kernel, target)
    if plan is None:
        plan = _loop_plan(kernel, target)
    is_long = accesses(kernel, plan) > MOST_ACCESSES
    return replace(plan, rolled=True) if is_long and can_roll(kernel, plan) else plan


def plain_plan(kernel: Kernel) -> Plan:
    """One serial loop for each range: what a kernel means, without any tile."""
    scanned = _scanned(kernel)
    outputs = sorted(kernel.outputs, key=lambda at: at in scanned)
    return Plan((), tuple((number(range_), 0) for range_ in outputs), 0, (), overlap=False)


# ---- loops


@dataclass(frozen=True, slots=True)
class _Choice:
    """Lanes along an output range (or none), and along a range of each reduction."""

    cost: float
    output: Node | None
    reduced: dict[Node, Node]


def _loop_plan(kernel: Kernel, target: TargetSpec) -> Plan:
    lanes = lanes_for(kernel, target)
    choice = _choose_lanes(kernel, lanes)
    splits: list[Split] = []
    if choice.output is not None:
        splits.append(_output_split(kernel, choice.output, lanes))
        if square := _transposing_split(kernel, choice.output, splits[0]):
            return _transposing_plan(kernel, square, splits[0], target)
    elif rows := _scan_rows(kernel) or _summed_rows(kernel):
        splits.append(rows)
    bound = {r for reduce in kernel.reduces for r in reduce.src[1:]}
    for range_ in sorted(bound, key=number):
        most = 4 if _summed_rows(kernel) is None or choice.output is not None else _ACCUMULATORS
        tile = _reduce_tile(range_, choice, lanes, most)
        if tile:
            splits.append(Split(number(range_), (Part(Unit.LOOP),), tile))
    return _with_tasks(kernel, target, splits)


def _scanned(kernel: Kernel) -> set[Node]:
    """The ranges along which scans run."""
    return {node.src[1] for node in kernel.order if node.op is SCAN}


def _scan_rows(kernel: Kernel) -> Split | None:
    """Several rows side by side, which hide the latency of the additions of a scan."""
    scanned = _scanned(kernel)
    rows = [r for r in kernel.outputs if r not in kernel.serial and least_size(r) > 1]
    if not scanned or not rows:
        return None
    # Rows far apart in memory are fine: each is read in order.
    row = max(rows, key=lambda r: (least_size(r) >= _SCANS, number(r)))
    copies = fitting_lanes(_SCANS, least_size(row))
    return Split(number(row), (Part(Unit.LOOP),), (Part(Unit.UNROLL, copies),))


def _summed_rows(kernel: Kernel) -> Split | None:
    """Several rows side by side in a sum along rows, so that memory is read in several streams.

    A factor that all rows share is then read once for them.
    """
    if len(kernel.reduces) != 1 or kernel.serial or kernel.read_and_written:
        return None
    (reduce,) = kernel.reduces
    mask = kernel.free.mask[reduce]
    rows = [r for r in kernel.outputs if mask & kernel.free.bit(r) and least_size(r) >= _SUMS]
    if not rows:
        return None
    row = max(rows, key=number)
    return Split(number(row), (Part(Unit.LOOP),), (Part(Unit.UNROLL, _SUMS),))


def _choose_lanes(kernel: Kernel, lanes: int) -> _Choice:
    """Compare lanes along each output range, and none, by what memory traffic they cost."""
    candidates: list[Node | None] = [None]
    candidates += [r for r in kernel.outputs if r not in kernel.serial and least_size(r) > 1]
    best: _Choice | None = None
    for candidate in candidates:
        choice = _evaluate(kernel, candidate, lanes)
        if best is None or choice.cost < best.cost:
            best = choice
    if best is None:
        return _Choice(0.0, None, {})
    return best


def _evaluate(kernel: Kernel, output: Node | None, lanes: int) -> _Choice:
    cost = 0.0
    width = fitting_lanes(lanes, least_size(output)) if output is not None else 1
    reduced: dict[Node, Node] = {}
    for reduce in kernel.reduces:
        depends = output is not None and kernel.free.mask[reduce] & kernel.free.bit(output)
        if not depends:
            along = _best_reduced(kernel, reduce, lanes)
            others = [*reduced.values(), *([] if output is None else [output])]
            if along is not None and not _meets(kernel, along, others):
                reduced[reduce] = along
    for node in [*kernel.loads, *kernel.stores]:
        cost += _access_cost(kernel, node, output, width, reduced, lanes)
    cost += _arithmetic_cost(kernel, output, width, reduced, lanes)
    return _Choice(cost, output, reduced)


def _meets(kernel: Kernel, along: Node, others: Iterable[Node]) -> bool:
    """Would a value be a vector along one of `others` too, if `along` had lanes?"""
    free = kernel.free
    bit = free.bit(along)
    lanes = sum({free.bit(range_) for range_ in others} - {bit})
    if not lanes:
        return False
    for node in kernel.order:
        found = free.mask[node]
        if node.op is REDUCE:
            for bound in node.src[1:]:
                found |= free.bit(bound)
        if found & bit and found & lanes:
            return True
    return False


def _iterations(kernel: Kernel, node: Node) -> float:
    total = 1.0
    for range_ in kernel.free.of(node):
        total *= size(range_)
    return total


def _lane_of(
    kernel: Kernel, node: Node, output: Node | None, reduced: dict[Node, Node]
) -> Node | None:
    mask = kernel.free.mask[node]
    if output is not None and mask & kernel.free.bit(output):
        return output
    for along in reduced.values():
        if mask & kernel.free.bit(along):
            return along
    return None


def _access_cost(
    kernel: Kernel,
    node: Node,
    output: Node | None,
    width: int,
    reduced: dict[Node, Node],
    lanes: int,
) -> float:
    """Instructions that all executions of a load or store take."""
    count = _iterations(kernel, node)
    lane = _lane_of(kernel, node, output, reduced)
    if lane is None:
        return count
    own = width if lane is output else fitting_lanes(lanes, least_size(lane))
    step = stride(node.src[0].src[1], lane)
    if step == 1:
        gated = node.op is LOAD and len(node.src) > 1
        return count / own * (1.5 if gated else 1.0)
    if node.op is LOAD and step == -1:
        return count / own * 2.0  # a vector, turned around
    if node.op is LOAD and len(node.src) == 1 and step and 1 < step <= LONGEST_STEP and own > 1:
        return count / own * (2 * step - 1)  # vectors that hold all between, shuffled into one
    # Lanes far apart: one access and one insertion each, and a cache line for each.  Loads may
    # become register transposes (`_transposing_split`), stores cannot.
    return count * (1.5 if node.op is LOAD else 2.5)


def _arithmetic_cost(
    kernel: Kernel, output: Node | None, width: int, reduced: dict[Node, Node], lanes: int
) -> float:
    cost = 0.0
    each: dict[int, float] = {}  # by the ranges that a node depends on
    for node in kernel.order:
        if not node.op.elementwise or not node.type.dtype.is_float or not node.src:
            continue
        mask = kernel.free.mask[node]
        spent = each.get(mask)
        if spent is None:
            lane = _lane_of(kernel, node, output, reduced)
            own = 1
            if lane is not None:
                own = width if lane is output else fitting_lanes(lanes, least_size(lane))
            spent = each[mask] = _iterations(kernel, node) / own * 0.5
        cost += spent
    return cost


def _best_reduced(kernel: Kernel, reduce: Node, lanes: int) -> Node | None:
    """The range of a reduction whose elements lie next to each other, if it is long enough."""
    mask = kernel.free.mask
    best: tuple[float, Node] | None = None
    for range_ in reduce.src[1:]:
        if simplify.value_of(range_.src[0]) is None or size(range_) < 4:
            continue
        bit = kernel.free.bit(range_)
        cost = 0.0
        for load in kernel.loads:
            if not mask[load] & bit:
                continue
            step = stride(load.src[0].src[1], range_)
            cost += 1.0 if step in (0, 1) else 2.0 * lanes
        if best is None or cost < best[0]:
            best = (cost, range_)
    if best is None or best[0] >= lanes:
        return None
    return best[1]


def _transposing_split(kernel: Kernel, lane: Node, along: Split) -> Split | None:
    """Copies of another range, as many as lanes, where a load is contiguous along that one.

    The square of loads is then transposed in registers instead of gathered element by element.
    """
    width = along.tile_size
    if width < 4 or kernel.reduces or kernel.serial:
        return None
    for range_ in kernel.outputs:
        extent = simplify.value_of(range_.src[0])
        if range_ is lane or extent is None or extent < width:
            continue
        if kernel.read_and_written and extent % width:
            continue
        for load in kernel.loads:
            offset = load.src[0].src[1]
            is_dense = stride(offset, range_) in (1, -1)
            if len(load.src) == 1 and is_dense and _is_far(offset, lane):
                return Split(number(range_), (Part(Unit.LOOP),), (Part(Unit.UNROLL, width),))
    return None


def _transposing_plan(kernel: Kernel, rows: Split, columns: Split, target: TargetSpec) -> Plan:
    """Squares in blocks, so that few pages are in use at a time.

    Results that go past the caches gain nothing from neighbours in a line or a page: then a block
    is long, and what it reads lies in order.
    """
    is_long = all(_writes_lines(store, columns, target) for store in kernel.stores)
    long, short = (_LONG_BLOCK, 1) if is_long else (_BLOCK, _BLOCK)
    square = (rows.number, columns.number)
    # Ranges of every store first: they may be tasks.
    ranges = sorted(kernel.outputs, key=lambda r: not _only_last(kernel, r))
    outer = [(number(r), 0) for r in ranges if number(r) not in square]
    tasks = sum(_only_last(kernel, r) for r in ranges if number(r) not in square)
    if all(_only_last(kernel, r) for r in ranges):
        tasks += 2
    splits = tuple(
        Split(split.number, (Part(Unit.LOOP), Part(Unit.LOOP, block)), split.tile)
        for split, block in ((rows, long), (columns, short))
    )
    blocks = [(rows.number, 0), (columns.number, 0), (rows.number, 1), (columns.number, 1)]
    return Plan(splits, (*outer, *blocks), tasks, (), overlap=not kernel.read_and_written)


def _writes_lines(store: Node, columns: Split, target: TargetSpec) -> bool:
    """Are vectors along the columns as long as lines of an array that leaves the caches?

    They pass the caches then if rows are whole lines too (`linearize.past_caches`).  Where rows end
    within a line, long blocks are still the faster ones: rows lie no power of two apart.
    """
    array = store.src[0].src[0]
    vector_bytes = columns.tile_size * array.type.dtype.itemsize
    fills = bool(target.line_bytes) and vector_bytes % target.line_bytes == 0
    return fills and leaves_caches(array, target)


def _is_far(offset: Node, lane: Node) -> bool:
    return stride(offset, lane) not in (None, 0, 1, -1)


def _output_split(kernel: Kernel, output: Node, lanes: int) -> Split:
    extent = least_size(output)
    width = fitting_lanes(lanes, extent)
    copies = 1
    depends = [r for r in kernel.reduces if kernel.free.mask[r] & kernel.free.bit(output)]
    if depends:
        # Several accumulators hide the latency of additions and use whole cache lines.
        while copies < 4 and width * copies * 2 <= extent:
            copies *= 2
    tile = (
        (Part(Unit.UNROLL, copies), Part(Unit.LANE, width))
        if copies > 1
        else (Part(Unit.LANE, width),)
    )
    return Split(number(output), (Part(Unit.LOOP),), tile)


def _reduce_tile(range_: Node, choice: _Choice, lanes: int, most: int) -> tuple[Part, ...]:
    """Lanes and at most so many accumulators for a range that a reduction binds."""
    extent = simplify.value_of(range_.src[0])
    if extent is None:
        return ()
    if range_ in choice.reduced.values():
        width = fitting_lanes(lanes, extent)
        copies = 1
        while copies < most and width * copies * 2 <= extent:
            copies *= 2
        parts = [Part(Unit.UNROLL, copies)] if copies > 1 else []
        return (*parts, Part(Unit.LANE, width))
    return ()


def _with_tasks(kernel: Kernel, target: TargetSpec, splits: list[Split]) -> Plan:
    """Map leading output ranges to tasks until there are enough of them."""
    wanted = target.cores * _TASKS_PER_CORE
    by_number = {split.number: split for split in splits}
    nest: list[tuple[int, int]] = []
    tasks = 0
    count = 1
    inner = _work(kernel)
    # A scan runs through its row in the innermost loop: its state is one register.
    scanned = _scanned(kernel)
    for range_ in sorted(kernel.outputs, key=lambda at: at in scanned):
        own = number(range_)
        split = by_number.get(own, Split(own, (Part(Unit.LOOP),)))
        tiles = -(-size(range_) // split.tile_size)
        leading = len(nest) == tasks
        parallel = range_ not in kernel.ordered and leading and count < wanted
        if parallel and tiles * count > 4 * wanted and _only_last(kernel, range_):
            block = _block_size(tiles, count, wanted, inner)
            if block > 1:
                split = Split(own, (Part(Unit.LOOP), Part(Unit.LOOP, block)), split.tile)
                by_number[own] = split
                nest += [(own, 0), (own, 1)]
                tasks += 1
                count *= -(-tiles // block)
                continue
        if parallel and _worth_tasks(kernel, range_, inner):
            tasks += 1
            count *= tiles
        nest.append((own, 0))
    if not tasks and kernel.ordered - scanned:
        tasks = _share_lines(kernel, target, by_number, nest)
    return Plan(
        tuple(by_number.values()),
        tuple(nest),
        tasks,
        (),
        not kernel.read_and_written and kernel.serial <= scanned,
    )


def _share_lines(
    kernel: Kernel, target: TargetSpec, splits: dict[int, Split], nest: list[tuple[int, int]]
) -> int:
    """Where an outer range must run in order, and another one need not: tasks along that one.

    Each task runs through all of the outer range, in order, and has a part of each line.

    Returns:
        How many leading entries of the nest are tasks now.
    """
    free = [r for r in kernel.outputs if r not in kernel.ordered and _only_last(kernel, r)]
    if not free or _work(kernel) < 2 * _LEAST_TASK:
        return 0
    range_ = max(free, key=lambda r: (size(r) > 1, number(r)))
    own = number(range_)
    split = splits.get(own, Split(own, (Part(Unit.LOOP),)))
    tiles = -(-size(range_) // split.tile_size)
    # Tasks that write to one line would take it from each other.
    bytes_ = max(store.src[0].src[0].type.dtype.itemsize for store in kernel.stores)
    least = -(-max(target.line_bytes, 1) * _LINES // (bytes_ * split.tile_size))
    block = max(-(-tiles // (target.cores * _PARTS_OF_LINES)), least)
    if nest != [(number(r), 0) for r in kernel.outputs] or block >= tiles:
        return 0
    splits[own] = Split(own, (Part(Unit.LOOP), Part(Unit.LOOP, block)), split.tile)
    nest[:] = [(own, 0), *[(n, int(n == own)) for n, _ in nest]]
    return 1


def _only_last(kernel: Kernel, range_: Node) -> bool:
    """No reduction or store outside of this range would be repeated in each of its blocks.

    Small kernels that were joined into one have ranges of their own.
    """
    bit = kernel.free.bit(range_)
    return all(kernel.free.mask[node] & bit for node in (*kernel.reduces, *kernel.stores))


def _worth_tasks(kernel: Kernel, range_: Node, inner: float) -> bool:
    return _only_last(kernel, range_) and inner >= _LEAST_TASK


def _work(kernel: Kernel) -> float:
    """The most often repeated access of the kernel."""
    return max((_iterations(kernel, node) for node in [*kernel.loads, *kernel.stores]), default=1)


def estimate_work(kernel: Kernel) -> float:
    """Element operations of the whole kernel: accesses, arithmetic, elementary functions."""
    total = 0.0
    each: dict[int, float] = {}  # by the ranges that a node depends on
    for node in kernel.order:
        counts = node.op.elementwise or node.op in (LOAD, STORE)
        if counts and node.src and not node.type.dtype.is_integer:
            mask = kernel.free.mask[node]
            if mask not in each:
                each[mask] = _iterations(kernel, node)
            total += each[mask] * OP_COST.get(node.op.name, 1)
    return total


def _block_size(tiles: int, count: int, wanted: int, work: float) -> int:
    """Tiles in one task, at least `_LEAST_TASK` of the `work` elements of all."""
    per_tile = max(work / (tiles * count), 1.0)
    return max(tiles * count // wanted, 1, min(tiles, int(_LEAST_TASK / per_tile)))
