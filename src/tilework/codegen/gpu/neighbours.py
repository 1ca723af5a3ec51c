"""Plans for blocks of threads next to a plan: what `tune` measures, one change at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilework.base.errors import PlanError
from tilework.base.records import replace
from tilework.codegen.gpu.check import check_gpu_plan
from tilework.codegen.gpu.plan import THREADS
from tilework.codegen.plan.plan import Part, Split
from tilework.ir.ops.index import Unit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tilework.codegen.analysis import Kernel
    from tilework.codegen.gpu.plan import GpuPlan
    from tilework.target.spec import TargetSpec

#: The fewest threads of a block of tasks that is tried: a warp.
_LEAST_BLOCK: Final = 32
#: Blocks that a multiprocessor may be asked to hold of a contraction; 0 leaves it to the compiler.
_RESIDENT: Final = (0, 1, 2)
#: What of a tile may become more at the cost of what: (from, to).
_TRADES: Final = (
    (Unit.UNROLL, Unit.LOCAL),
    (Unit.LOCAL, Unit.UNROLL),
    (Unit.UNROLL, Unit.WARP),
    (Unit.WARP, Unit.UNROLL),
    (Unit.LANE, Unit.UNROLL),
    (Unit.UNROLL, Unit.LANE),
)


def block_neighbours(plan: GpuPlan, kernel: Kernel, target: TargetSpec) -> list[GpuPlan]:
    """The legal plans that differ from `plan` in one respect, the most promising ones first.

    Args:
        plan: A plan without a matrix instruction; those that have one are all known at once.
        kernel: The kernel with its ranges normalised.
        target: A machine with blocks of threads.
    """
    found: dict[GpuPlan, None] = {}
    for changed in _changes(plan):
        if changed != plan and changed not in found and _is_legal(changed, kernel, target):
            found[changed] = None
    return list(found)


def _is_legal(plan: GpuPlan, kernel: Kernel, target: TargetSpec) -> bool:
    try:
        check_gpu_plan(plan, kernel, target)
    except PlanError:
        return False
    return True


def _changes(plan: GpuPlan) -> Iterator[GpuPlan]:
    for threads in (plan.block * 2, plan.block // 2):
        if threads >= _LEAST_BLOCK:
            yield replace(plan, block=threads)
    if plan.depth:
        yield from _other_contractions(plan)
    yield from _other_threads(plan)
    for index, split in enumerate(plan.splits):
        for tile in (*_other_copies(split.tile), *_trades(split.tile)):
            yield _with_tile(plan, index, tile)
    for first in range(len(plan.nest) - 1):
        nest = list(plan.nest)
        nest[first : first + 2] = reversed(nest[first : first + 2])
        yield replace(plan, nest=tuple(nest))


def _other_contractions(plan: GpuPlan) -> Iterator[GpuPlan]:
    """Other tiles of rows and of columns, other depths, and other numbers of blocks at a time."""
    for rows in (*_other_copies(plan.rows), *_trades(plan.rows)):
        yield replace(plan, rows=rows)
    for columns in (*_other_copies(plan.columns), *_trades(plan.columns)):
        yield replace(plan, columns=columns)
    for depth in (plan.depth * 2, plan.depth // 2):
        yield replace(plan, depth=depth)
    for resident in _RESIDENT:
        yield replace(plan, resident=resident)


def _other_threads(plan: GpuPlan) -> Iterator[GpuPlan]:
    """Twice and half as many threads along a unit, whose parts all have one size."""
    for unit in THREADS:
        for up, down in ((2, 1), (1, 2)):
            splits = tuple([replace(s, tile=_scaled(s.tile, unit, up, down)) for s in plan.splits])
            yield replace(plan, splits=splits)


def _scaled(tile: tuple[Part, ...], unit: Unit, up: int, down: int) -> tuple[Part, ...]:
    return tuple([Part(p.unit, p.size * up // down) if p.unit is unit else p for p in tile])


def _last_scaled(tile: tuple[Part, ...], unit: Unit, up: int, down: int) -> tuple[Part, ...]:
    """The same of the last part alone: a side of a contraction may have two parts of a unit."""
    places = [at for at, part in enumerate(tile) if part.unit is unit]
    return tuple(
        Part(part.unit, part.size * up // down) if at in places[-1:] else part
        for at, part in enumerate(tile)
    )


def _other_copies(tile: tuple[Part, ...]) -> Iterator[tuple[Part, ...]]:
    """Twice and half as many copies of a thread's statements, and copies where there are none."""
    if tile and not any(part.unit is Unit.UNROLL for part in tile):
        yield (Part(Unit.UNROLL, 2), *tile)
    for unit in (Unit.UNROLL, Unit.LANE):
        for up, down in ((2, 1), (1, 2)):
            yield tuple([part for part in _last_scaled(tile, unit, up, down) if part.size])


def _trades(tile: tuple[Part, ...]) -> Iterator[tuple[Part, ...]]:
    """As long a tile of which one kind of part is half and another one twice as large."""
    for less, more in _TRADES:
        units = [part.unit for part in tile]
        if less in units and more in units:
            yield _last_scaled(_last_scaled(tile, less, 1, 2), more, 2, 1)


def _with_tile(plan: GpuPlan, index: int, tile: tuple[Part, ...]) -> GpuPlan:
    split: Split = replace(plan.splits[index], tile=tile)
    return replace(plan, splits=(*plan.splits[:index], split, *plan.splits[index + 1 :]))
