"""The default plan of a kernel, found at once by a cost model, with no search.

A contraction gets a register tile of vector accumulators with staged panels; everything else gets
lanes along the range that memory likes best, outer ranges as tasks, and enough accumulators to
hide the latency of a reduction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilework.codegen.analysis import Kernel, stride
from tilework.codegen.plan.contraction import (
    Contraction,
    find_contraction,
    is_plain_load,
    load_stride,
)
from tilework.codegen.plan.plan import Part, Plan, Split, Staged
from tilework.ir.ops.index import Unit
from tilework.ir.ops.memory import LOAD, STORE
from tilework.ir.symbolic import simplify
from tilework.ir.symbolic.bounds import bounds
from tilework.ir.types import Memory

if TYPE_CHECKING:
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

#: A launch is worth splitting into about this many tasks per core, so that cores stay even.
_TASKS_PER_CORE = 8
#: Elements of a simple loop that pay for handing a task to another thread.
_LEAST_TASK = 4096
#: Element operations that costly ops count for.
_OP_COST = (
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
    contraction = find_contraction(kernel)
    if contraction is not None:
        plan = _contraction_plan(kernel, contraction, target)
        if plan is not None:
            return plan
    return _loop_plan(kernel, target)


def _size(range_: Node) -> int:
    """The greatest extent of a range."""
    return max(bounds(range_.src[0])[1], 1)


def _least_size(range_: Node) -> int:
    return bounds(range_.src[0])[0]


def _number(range_: Node) -> int:
    return int(range_.attrs.number)


def _lanes_for(kernel: Kernel, target: TargetSpec) -> int:
    """Elements in a vector, by the widest dtype that the kernel keeps computing with."""
    widest = 32
    for node in kernel.order:
        dtype = node.type.dtype
        if dtype.bits > widest and node.op.elementwise and dtype.is_float:
            widest = dtype.bits
    return max(target.vector_bits // widest, 1)


def _fitting_lanes(lanes: int, extent: int) -> int:
    """The most lanes, a power of two, that a range of `extent` can fill."""
    while lanes > max(extent, 1):
        lanes //= 2
    return max(lanes, 1)


# ---- loops


@dataclass(frozen=True, slots=True)
class _Choice:
    """Lanes along an output range (or none), and along a range of each reduction."""

    cost: float
    output: Node | None
    reduced: dict[Node, Node]


def _loop_plan(kernel: Kernel, target: TargetSpec) -> Plan:
    lanes = _lanes_for(kernel, target)
    choice = _choose_lanes(kernel, lanes)
    splits: list[Split] = []
    if choice.output is not None:
        splits.append(_output_split(kernel, choice.output, lanes))
    bound = {r for reduce in kernel.reduces for r in reduce.src[1:]}
    for range_ in sorted(bound, key=_number):
        tile = _reduce_tile(kernel, range_, choice, lanes)
        if tile:
            splits.append(Split(_number(range_), (Part(Unit.LOOP),), tile))
    return _with_tasks(kernel, target, splits, choice)


def _choose_lanes(kernel: Kernel, lanes: int) -> _Choice:
    """Compare lanes along each output range, and none, by what memory traffic they cost."""
    candidates: list[Node | None] = [None]
    candidates += [r for r in kernel.outputs if r not in kernel.serial and _least_size(r) > 1]
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
    width = _fitting_lanes(lanes, _least_size(output)) if output is not None else 1
    reduced: dict[Node, Node] = {}
    for reduce in kernel.reduces:
        depends = output is not None and kernel.free.mask[reduce] & kernel.free.bit(output)
        if not depends:
            along = _best_reduced(kernel, reduce, lanes)
            if along is not None:
                reduced[reduce] = along
    for node in [*kernel.loads, *kernel.stores]:
        cost += _access_cost(kernel, node, output, width, reduced, lanes)
    cost += _arithmetic_cost(kernel, output, width, reduced, lanes)
    return _Choice(cost, output, reduced)


def _iterations(kernel: Kernel, node: Node) -> float:
    total = 1.0
    for range_ in kernel.free.of(node):
        total *= _size(range_)
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
    own = width if lane is output else _fitting_lanes(lanes, _least_size(lane))
    step = stride(node.src[0].src[1], lane)
    if step == 1:
        gated = node.op is LOAD and len(node.src) > 1
        return count / own * (1.5 if gated else 1.0)
    # Lanes far apart: one access and one insertion each, and a cache line for each.
    return count * 2.0


def _arithmetic_cost(
    kernel: Kernel, output: Node | None, width: int, reduced: dict[Node, Node], lanes: int
) -> float:
    cost = 0.0
    for node in kernel.order:
        if not node.op.elementwise or not node.type.dtype.is_float or not node.src:
            continue
        lane = _lane_of(kernel, node, output, reduced)
        own = 1
        if lane is not None:
            own = width if lane is output else _fitting_lanes(lanes, _least_size(lane))
        cost += _iterations(kernel, node) / own * 0.5
    return cost


def _best_reduced(kernel: Kernel, reduce: Node, lanes: int) -> Node | None:
    """The range of a reduction whose elements lie next to each other, if it is long enough."""
    mask = kernel.free.mask
    best: tuple[float, Node] | None = None
    for range_ in reduce.src[1:]:
        if simplify.value_of(range_.src[0]) is None or _size(range_) < 4:
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


def _output_split(kernel: Kernel, output: Node, lanes: int) -> Split:
    extent = _least_size(output)
    width = _fitting_lanes(lanes, extent)
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
    return Split(_number(output), (Part(Unit.LOOP),), tile)


def _reduce_tile(kernel: Kernel, range_: Node, choice: _Choice, lanes: int) -> tuple[Part, ...]:
    """Lanes and accumulators for a range that a reduction binds."""
    extent = simplify.value_of(range_.src[0])
    if extent is None:
        return ()
    if range_ in choice.reduced.values():
        width = _fitting_lanes(lanes, extent)
        copies = 1
        while copies < 4 and width * copies * 2 <= extent:
            copies *= 2
        parts = [Part(Unit.UNROLL, copies)] if copies > 1 else []
        return (*parts, Part(Unit.LANE, width))
    return ()


def _with_tasks(kernel: Kernel, target: TargetSpec, splits: list[Split], choice: _Choice) -> Plan:
    """Map leading output ranges to tasks until there are enough of them."""
    wanted = target.cores * _TASKS_PER_CORE
    by_number = {split.number: split for split in splits}
    nest: list[tuple[int, int]] = []
    tasks = 0
    count = 1
    inner = _work(kernel)
    for range_ in kernel.outputs:
        number = _number(range_)
        split = by_number.get(number, Split(number, (Part(Unit.LOOP),)))
        tiles = -(-_size(range_) // split.tile_size)
        leading = len(nest) == tasks
        parallel = range_ not in kernel.serial and leading and count < wanted
        if parallel and tiles * count > 4 * wanted and _only_last(kernel, range_):
            block = _block_size(tiles, count, wanted, inner)
            if block > 1:
                split = Split(number, (Part(Unit.LOOP), Part(Unit.LOOP, block)), split.tile)
                by_number[number] = split
                nest += [(number, 0), (number, 1)]
                tasks += 1
                count *= -(-tiles // block)
                continue
        if parallel and _worth_tasks(kernel, range_, inner):
            tasks += 1
            count *= tiles
        nest.append((number, 0))
    return Plan(
        tuple(by_number.values()),
        tuple(nest),
        tasks,
        (),
        not kernel.read_and_written and not kernel.serial,
    )


def _only_last(kernel: Kernel, range_: Node) -> bool:
    """No reduction hoisted out of this range would be repeated in each of its blocks."""
    bit = kernel.free.bit(range_)
    return all(kernel.free.mask[reduce] & bit for reduce in kernel.reduces)


def _worth_tasks(kernel: Kernel, range_: Node, inner: float) -> bool:
    return _only_last(kernel, range_) and inner >= _LEAST_TASK


def _work(kernel: Kernel) -> float:
    """The most often repeated access of the kernel."""
    return max((_iterations(kernel, node) for node in [*kernel.loads, *kernel.stores]), default=1)


def estimate_work(kernel: Kernel) -> float:
    """Element operations of the whole kernel: accesses, arithmetic, elementary functions."""
    total = 0.0
    for node in kernel.order:
        if node.src and (node.op.elementwise or node.op in (LOAD, STORE)):
            if not node.type.dtype.is_integer:
                total += _iterations(kernel, node) * _OP_COST.get(node.op.name, 1)
    return total


def _block_size(tiles: int, count: int, wanted: int, work: float) -> int:
    """Tiles in one task, at least `_LEAST_TASK` of the `work` elements of all."""
    per_tile = max(work / (tiles * count), 1.0)
    return max(tiles * count // wanted, 1, min(tiles, int(_LEAST_TASK / per_tile)))


# ---- contractions


def _contraction_plan(kernel: Kernel, contraction: Contraction, target: TargetSpec) -> Plan | None:
    """A register tile of rows by vectors; panels of both factors staged where it pays."""
    lane = _lane_range(kernel, contraction)
    row = contraction.m[-1]
    if lane is None or kernel.read_and_written or _least_size(row) < 1:
        return None
    if any(_least_size(r) != _size(r) for r in kernel.free.ranges):
        return None  # sizes known at run time only: plain loops
    lanes = _fitting_lanes(_lanes_for(kernel, target), _size(lane))
    rows, vectors = _register_tile(target, _size(row), _size(lane), lanes)
    depth = _product(contraction.k)
    row_tiles = -(-_size(row) // rows)
    lane_tiles = -(-_size(lane) // (lanes * vectors))
    block = _row_block(target, contraction, row_tiles, rows, depth)
    row_split = Split(
        _number(row), (Part(Unit.LOOP), Part(Unit.LOOP, block)), (Part(Unit.UNROLL, rows),)
    )
    lane_tile = (Part(Unit.UNROLL, vectors), Part(Unit.LANE, lanes))
    lane_split = Split(_number(lane), (Part(Unit.LOOP),), lane_tile)
    outer = [*contraction.batch, *contraction.n[:-1], *contraction.m[:-1]]
    outer = [r for r in outer if r is not lane and r is not row]
    outer += [r for r in contraction.n if r is not lane and r not in outer]
    nest = [(_number(r), 0) for r in outer]
    blocks = -(-row_tiles // block)
    tasks = len(nest) + 1
    count = blocks
    for range_ in outer:
        count *= _size(range_)
    nest.append((_number(row), 0))
    staged: list[Staged] = []
    reuse_a = lane_tiles
    if reuse_a >= 4 and depth >= 64 and row_tiles * rows * lane_tiles >= 64:
        staged.append(Staged(0, Memory.TILE, len(nest), 1))
    nest.append((_number(lane), 0))
    if count < 2 * target.cores and lane_tiles > 1:
        tasks += 1
        staged = []
    if _stage_b(contraction, lane, block, depth):
        staged.append(Staged(1, Memory.TILE, len(nest), _copy_lanes(contraction, lane, lanes)))
    nest.append((_number(row), 1))
    return Plan((row_split, lane_split), tuple(nest), tasks, tuple(staged), True)


def _product(ranges: tuple[Node, ...]) -> int:
    total = 1
    for range_ in ranges:
        total *= _size(range_)
    return total


def _lane_range(kernel: Kernel, contraction: Contraction) -> Node | None:
    """The range of n along which the result is stored contiguously, else the longest."""
    for range_ in contraction.n:
        if all(stride(store.src[0].src[1], range_) == 1 for store in kernel.stores):
            return range_ if _size(range_) > 1 else None
    return None


def _register_tile(target: TargetSpec, rows: int, columns: int, lanes: int) -> tuple[int, int]:
    """Rows and vectors of accumulators: the shape with the fewest loads that wastes least.

    Registers hold the accumulators, one row of vectors of b, and (without memory-operand
    broadcasts) one of a.
    """
    registers = target.num_vector_registers or 16
    best: tuple[float, int, int] = (float("inf"), 1, 1)
    for vectors in range(1, 5):
        if lanes * vectors > columns and vectors > 1:
            break
        for height in range(1, 15):
            if height > rows or height * vectors + vectors + 1 > registers:
                break
            padded = (-(-rows // height) * height) * (-(-columns // (lanes * vectors)) * vectors)
            per_step = max(height * vectors / 2, (height + vectors) / 2, 4.0)
            steps = padded / (height * vectors) * per_step
            if steps < best[0] * 0.999:
                best = (steps, height, vectors)
    return best[1], best[2]


def _row_block(
    target: TargetSpec, contraction: Contraction, row_tiles: int, rows: int, depth: int
) -> int:
    """Row tiles whose staged panels fill half of the L2 cache, in even blocks."""
    item = contraction.a.type.dtype.itemsize
    fitting = max((target.l2_bytes or 1 << 19) // 2 // max(depth * rows * item, 1), 1)
    blocks = -(-row_tiles // fitting)
    if row_tiles * rows * depth >= 1 << 16:
        blocks = max(blocks, min(target.cores * 2, row_tiles))
    return -(-row_tiles // blocks)


def _stage_b(contraction: Contraction, lane: Node, block: int, depth: int) -> bool:
    """Does a packed panel of b pay?  It must be read several times, or be costly to read."""
    plain = is_plain_load(contraction.b) and load_stride(contraction.b, lane) == 1
    if not plain:
        return block > 1
    return block >= 3 and depth >= 32


def _copy_lanes(contraction: Contraction, lane: Node, lanes: int) -> int:
    """Vector moves where the panel's source is contiguous along the lanes, else one by one."""
    return lanes if load_stride(contraction.b, lane) == 1 else 1
