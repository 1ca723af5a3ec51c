"""Is a plan for blocks of threads legal?  Asked before every plan is applied."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.errors import PlanError
from tilework.codegen.gpu.contract import tile_size, turning_threads, turns_factors
from tilework.codegen.gpu.plan import THREADS, GpuPlan
from tilework.codegen.gpu.scans import group_of, tile_of
from tilework.codegen.plan.check import MOST_COPIES, check_lanes
from tilework.codegen.plan.contraction import load_stride, orientations
from tilework.codegen.plan.extents import number
from tilework.ir.ops.index import Unit
from tilework.ir.ops.tensor import SCAN
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from tilework.codegen.analysis import Kernel
    from tilework.codegen.plan.plan import Plan, Split
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

_UNITS = (Unit.UNROLL, Unit.WARP, Unit.LOCAL, Unit.LANE)
#: Threads that exchange values without shared memory.
NEIGHBOURS = 32
#: The widest vector of elements that one thread keeps.
_MOST_LANES = 16


def check_gpu_plan(plan: Plan, kernel: Kernel, target: TargetSpec) -> GpuPlan:
    """Refuse a plan that would not compute what the kernel says, or would not fit the target.

    Args:
        plan: The plan; its numbers are those of the kernel's ranges.
        kernel: The kernel with its ranges normalised.
        target: The machine that it is for.

    Returns:
        The plan.

    Raises:
        PlanError: Names the first rule that the plan breaks.
    """
    if not isinstance(plan, GpuPlan):
        raise PlanError(
            "plan: a machine with blocks of threads needs a plan for them",
            got=type(plan).__name__,
            expected=GpuPlan.__name__,
        )
    _Check(plan, kernel, target).run()
    return plan


class _Check:
    def __init__(self, plan: GpuPlan, kernel: Kernel, target: TargetSpec) -> None:
        self.plan = plan
        self.kernel = kernel
        self.target = target
        self.ranges = {number(r): r for r in kernel.free.ranges}
        self.outputs = {number(r) for r in kernel.outputs}
        scans = [node for node in kernel.order if node.op is SCAN]
        self.scans = scans
        self.scanned = {number(node.src[1]) for node in scans}

    def run(self) -> None:
        if self.plan.depth:
            self._contraction()
        self._splits()
        self._units()
        self._nest()
        self._order()
        check_lanes(self.plan, self.kernel)

    def _splits(self) -> None:
        seen: set[int] = set()
        for split in self.plan.splits:
            if split.number not in self.ranges or split.number in seen:
                raise PlanError(
                    "plan: a split names a range that does not exist, or twice",
                    got=f"range {split.number}",
                    expected=f"one of {sorted(self.ranges)}",
                )
            seen.add(split.number)
            self._check_split(split, self.ranges[split.number])

    def _check_split(self, split: Split, range_: Node) -> None:
        if [part.size for part in split.outer] != [0]:
            raise PlanError(
                "plan: a range has one outer part, the rest", got=f"range {split.number}"
            )
        units = [part.unit for part in split.tile]
        if any(unit not in _UNITS for unit in units) or units.count(Unit.LANE) > 1:
            raise PlanError(
                "plan: a tile is made of copies, threads and lanes of one vector",
                got=f"range {split.number}: {[unit.value for unit in units]}",
            )
        if any(part.size < 1 for part in split.tile):
            raise PlanError("plan: a part of a tile is empty", got=f"range {split.number}")
        copies = 1
        for part in split.tile:
            if part.unit is Unit.UNROLL:
                copies *= part.size
            if part.unit is Unit.LANE:
                self._check_lanes(split, part.size, range_, units[-1])
        if copies > MOST_COPIES:
            raise PlanError("plan: too many copies of a statement", got=str(copies))
        is_serial = range_ in self.kernel.meeting or split.number in self.scanned
        is_shared = split.number in self.scanned and (
            self._is_shared_scan(split, range_) or self._is_tiled_scan(split)
        )
        if is_serial and split.tile_size > 1 and not is_shared:
            raise PlanError(
                "plan: a range that must run in order has a tile", got=f"range {split.number}"
            )

    def _is_shared_scan(self, split: Split, range_: Node) -> bool:
        """Do the threads of a block, and the lanes of each, make up the whole range of a scan?"""
        units = [part.unit for part in split.tile]
        return (
            units in ([Unit.LOCAL], [Unit.LOCAL, Unit.LANE])
            and split.tile[0].size % NEIGHBOURS == 0
            and simplify.value_of(range_.src[0]) == split.tile_size
        )

    def _is_tiled_scan(self, split: Split) -> bool:
        """Do blocks take tiles of a scan that has words for them, each warp a part in order?"""
        units = [part.unit for part in split.tile]
        needed = [Unit.WARP, Unit.UNROLL, Unit.LOCAL]
        if units not in (needed, [*needed, Unit.LANE]) or self.plan.tasks != len(self.plan.nest):
            return False
        warps, _, neighbours, *_ = (part.size for part in split.tile)
        return (
            all(len(scan.src) > 2 for scan in self.scans)
            and self.plan.nest[-1] == (split.number, 0)
            and neighbours == NEIGHBOURS
            and split.tile_size == tile_of(self.scans[0])  # which says how many words there are
            and warps & (warps - 1) == 0
            and warps * neighbours >= group_of()
        )

    def _check_lanes(self, split: Split, lanes: int, range_: Node, last: Unit) -> None:
        own = split.number
        extent = simplify.value_of(range_.src[0])
        is_power = lanes & (lanes - 1) == 0
        if last is not Unit.LANE or not is_power or lanes > _MOST_LANES:
            raise PlanError(
                "plan: lanes must move fastest and be a power of two",
                got=f"range {own}: {lanes} lanes",
                expected=f"at most {_MOST_LANES}",
            )
        is_gated = own in self.scanned and self._is_tiled_scan(split)
        if lanes > 1 and not is_gated and (extent is None or extent % lanes):
            raise PlanError(
                "plan: a vector would reach past the end of its range",
                got=f"range {own} of {extent}, {lanes} lanes",
            )

    def _contraction(self) -> None:
        """All outputs are tasks, and both tiles fill a block and fit its memory."""
        plan = self.plan
        found = orientations(self.kernel)
        if len(found) <= int(plan.swapped) or plan.splits or plan.tasks != len(plan.nest):
            raise PlanError("plan: there is no contraction whose outputs are all tasks")
        sides = (tile_size(plan.rows), tile_size(plan.columns))
        contraction = found[int(plan.swapped)]
        total = 0
        for side, factor in zip(sides, (contraction.a, contraction.b), strict=True):
            if plan.depth < 1 or side * plan.depth % plan.threads:
                raise PlanError(
                    "plan: the threads of a block cannot share the copy of a tile evenly",
                    got=f"{side} x {plan.depth} elements, {plan.threads} threads",
                )
            if turns_factors(plan) and load_stride(factor, contraction.k[-1]) == 1:
                _check_turned(plan, side)
            total += side * plan.depth * factor.type.dtype.itemsize
        limit = self.target.limits.shared_memory_bytes
        if total > limit:
            raise PlanError(
                "plan: the tiles do not fit shared memory", got=total, expected=f"at most {limit}"
            )
        for part in (*plan.rows, *plan.columns):
            if part.unit not in _UNITS or part.size < 1:
                raise PlanError("plan: a tile has no such part", got=repr(part))

    def _units(self) -> None:
        for unit in THREADS:
            tiles = [split.tile for split in self.plan.splits]
            sizes = {part.size for tile in tiles for part in tile if part.unit is unit}
            if unit is Unit.LOCAL and self.plan.block:
                if sizes:
                    raise PlanError("plan: tasks form a block that tiles take parts of")
                sizes = {self.plan.block}
            if len(sizes) > 1:
                raise PlanError(
                    "plan: parts of one unit differ in size", got=f"{unit.value}: {sorted(sizes)}"
                )
        most = self.target.limits.max_workgroup_threads
        if most and self.plan.threads > most:
            raise PlanError(
                "plan: a block has too many threads",
                got=str(self.plan.threads),
                expected=f"at most {most}",
            )

    def _nest(self) -> None:
        nest = self.plan.nest
        if len(set(nest)) != len(nest) or set(nest) != {(n, 0) for n in self.outputs}:
            raise PlanError(
                "plan: the nest does not hold every output range once",
                got=str(list(nest)),
                expected=str(sorted(self.outputs)),
            )
        if not 0 <= self.plan.tasks <= len(nest):
            raise PlanError("plan: more tasks than loops", got=str(self.plan.tasks))
        for n, _ in nest[: self.plan.tasks]:
            tiled = n in self.scanned and self._is_tiled_scan(self.plan.split_of(n))
            if self.ranges[n] in self.kernel.meeting and not tiled:
                raise PlanError(
                    "plan: a range that must run in order is split in tasks", got=f"{n}"
                )

    def _order(self) -> None:
        """Serial ranges keep their order, and a scan's loop is inside of those it depends on."""
        numbers = [n for n, _ in self.plan.nest]
        serial = [n for n in numbers if self.ranges[n] in self.kernel.meeting]
        ordered = [n for n in serial if n not in self.scanned]
        if ordered != sorted(ordered):
            raise PlanError("plan: ranges that must run in order change places", got=str(ordered))
        position = {n: at for at, n in enumerate(numbers)}
        for node in self.scans:
            own = number(node.src[1])
            around = [number(r) for r in self.kernel.free.of(node) if r is not node.src[1]]
            if any(position.get(n, -1) > position[own] for n in around):
                raise PlanError(
                    "plan: a scan's loop stands outside of a range that it depends on",
                    got=f"range {own} before {around}",
                )


def _check_turned(plan: GpuPlan, side: int) -> None:
    """The threads that load pieces of rows have whole rows each time, and none is left over."""
    rows, pieces = turning_threads(plan)
    if not pieces or rows * pieces != plan.threads or side % rows:
        raise PlanError(
            "plan: the threads of a block cannot turn a tile on its way evenly",
            got=f"{side} rows, {pieces} threads on each of {rows} at once",
            expected=f"{plan.threads} threads on a number of rows that divides {side}",
        )
