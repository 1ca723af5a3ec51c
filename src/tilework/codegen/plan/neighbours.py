"""Plans next to a plan: what `tune` measures, one change of one word at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tilework.base.errors import PlanError
from tilework.base.records import replace
from tilework.codegen.plan.check import check
from tilework.codegen.plan.extents import fitting_lanes, lanes_for, least_size, number
from tilework.codegen.plan.plan import Part, Plan, Split
from tilework.ir.ops.index import Unit

if TYPE_CHECKING:
    from tilework.codegen.analysis import Kernel
    from tilework.target.spec import TargetSpec


def neighbours(plan: Plan, kernel: Kernel, target: TargetSpec) -> list[Plan]:
    """The legal plans that differ from `plan` in one word, the most promising kinds first."""
    found: dict[Plan, None] = {}
    for changed in (
        *_changes(plan),
        *_other_lanes(plan, kernel, target),
        *_new_tiles(plan, kernel),
    ):
        if changed != plan and changed not in found and _is_legal(changed, kernel, target):
            found[changed] = None
    return list(found)


def _is_legal(plan: Plan, kernel: Kernel, target: TargetSpec) -> bool:
    try:
        check(plan, kernel, target)
    except PlanError:
        return False
    return True


def _changes(plan: Plan) -> Iterator[Plan]:
    for index, split in enumerate(plan.splits):
        for changed in (*_other_tiles(split), *_other_blocks(split)):
            yield _with_split(plan, index, changed)
    yield from _other_blockings(plan)
    for tasks in (plan.tasks + 1, plan.tasks - 1):
        if 0 <= tasks <= len(plan.nest):
            yield replace(plan, tasks=tasks)
    for ahead in (0, 1024, 4 * 4096):
        yield replace(plan, ahead=ahead)
    yield replace(plan, rolled=not plan.rolled)
    for index in range(len(plan.staged)):
        yield replace(plan, staged=plan.staged[:index] + plan.staged[index + 1 :])
    for first in range(len(plan.nest) - 1):
        nest = list(plan.nest)
        nest[first : first + 2] = reversed(nest[first : first + 2])
        yield replace(plan, nest=tuple(nest))


def _other_lanes(plan: Plan, kernel: Kernel, target: TargetSpec) -> Iterator[Plan]:
    """The vectors of the plan along another range, and with copies of them."""
    lanes = lanes_for(kernel, target)
    own = {split.number for split in plan.splits if _has_lanes(split)}
    for range_ in kernel.free.ranges:
        at = number(range_)
        width = fitting_lanes(lanes, least_size(range_))
        if at in own or width < 2:
            continue
        for copies in (1, 4):
            tile = (Part(Unit.UNROLL, copies),) if copies > 1 else ()
            splits = [
                replace(split, tile=()) if split.number in own else split
                for split in plan.splits
                if split.number != at
            ]
            outer = plan.split_of(at).outer
            splits.append(Split(at, outer, (*tile, Part(Unit.LANE, width))))
            yield replace(plan, splits=tuple(splits))


def _has_lanes(split: Split) -> bool:
    return any(part.unit is Unit.LANE for part in split.tile)


def _new_tiles(plan: Plan, kernel: Kernel) -> Iterator[Plan]:
    """Copies side by side of ranges that the plan does not name, and blocks of them."""
    named = {split.number for split in plan.splits}
    for range_ in kernel.free.ranges:
        at = number(range_)
        if at in named:
            continue
        for copies in (2, 4, 8):
            tile = (Part(Unit.UNROLL, copies),)
            yield replace(plan, splits=(*plan.splits, Split(at, (Part(Unit.LOOP),), tile)))
        if (at, 0) in plan.nest:
            parts = (Part(Unit.LOOP), Part(Unit.LOOP, 16))
            blocked = replace(plan, splits=(*plan.splits, Split(at, parts)))
            yield replace(blocked, nest=(*plan.nest, (at, 1)))


def _with_split(plan: Plan, index: int, split: Split) -> Plan:
    return replace(plan, splits=(*plan.splits[:index], split, *plan.splits[index + 1 :]))


def _other_tiles(split: Split) -> Iterator[Split]:
    """Other numbers of copies, and of lanes."""
    for index, part in enumerate(split.tile):
        near = {part.size * 2, part.size // 2}
        if part.unit is Unit.UNROLL:
            near |= {part.size + 1, part.size - 1, part.size + 2, part.size - 2}
        for size in sorted(near, key=lambda size: abs(size - part.size)):
            if size >= 1:
                tile = (*split.tile[:index], Part(part.unit, size), *split.tile[index + 1 :])
                yield replace(split, tile=tile)
    if split.tile and split.tile[0].unit is Unit.LANE:
        yield replace(split, tile=())
        for copies in (2, 4):
            yield replace(split, tile=(Part(Unit.UNROLL, copies), *split.tile))
    elif not split.tile:
        for copies in (2, 4):
            yield replace(split, tile=(Part(Unit.UNROLL, copies),))


def _other_blocks(split: Split) -> Iterator[Split]:
    """Other sizes of the blocks that loops run over."""
    for index, part in enumerate(split.outer):
        if part.size < 1:
            continue
        near = {part.size * 2, part.size // 2, part.size * 3 // 2, part.size * 2 // 3}
        for size in sorted(near - {part.size}):
            if size >= 1:
                outer = (*split.outer[:index], Part(part.unit, size), *split.outer[index + 1 :])
                yield replace(split, outer=outer)


def _other_blockings(plan: Plan) -> Iterator[Plan]:
    """A range blocked that is not, or the other way round."""
    for index, split in enumerate(plan.splits):
        if len(split.outer) == 2:
            nest = tuple([entry for entry in plan.nest if entry != (split.number, 1)])
            place = plan.nest.index((split.number, 1)) if (split.number, 1) in plan.nest else -1
            tasks = plan.tasks - (0 <= place < plan.tasks)
            plain = _with_split(plan, index, replace(split, outer=split.outer[:1]))
            yield replace(plain, nest=nest, tasks=tasks)
        elif len(split.outer) == 1 and (split.number, 0) in plan.nest:
            for size in (4, 16, 64):
                outer = (*split.outer, Part(Unit.LOOP, size))
                blocked = _with_split(plan, index, replace(split, outer=outer))
                yield replace(blocked, nest=(*plan.nest, (split.number, 1)))
