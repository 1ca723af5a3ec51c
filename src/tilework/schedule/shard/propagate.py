"""In which layouts each op works: of its sources, and of its result.

    working = work_of(node, layouts)        # None: every device can make that source by itself

The choice moves as few bytes as it can, then leaves the smallest part on the busiest device, then
takes the first.  It is a function of the node and of the layouts of its sources alone, so that a
tensor knows its layout at the line where it is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.records import dataclass
from tilework.ir.ops import math, memory, multi, tensor
from tilework.ir.ops.multi import Box, Layout
from tilework.schedule.shard import spec
from tilework.schedule.shard.indexing import aligned_axes, word_of
from tilework.schedule.shard.movement import MOVES, natural

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tilework.ir.node import Node
    from tilework.ir.types import Shape

_UNARY = frozenset((tensor.CONTIGUOUS, tensor.DETACH))


@dataclass(frozen=True, slots=True)
class Work:
    """The layouts in which an op works.

    `groups` says for each device whose values are folded for its part, in this order (REDUCE and
    partial SCATTER); None where nothing is folded between devices.
    """

    sources: tuple[Layout, ...]
    result: Layout
    groups: tuple[tuple[int, ...], ...] | None = None


def layout_after(node: Node, layouts: Sequence[Layout | None]) -> Layout | None:
    """The layout of what `node` gives; None if every device can make it by itself."""
    if node.op is multi.UNSHARD or node.op is multi.RESHARD:
        found: Layout = node.attrs
        return found
    if node.op is memory.AFTER:
        if layouts[0] is not None:
            return layouts[0]
        wide = next((each for each in layouts if each is not None), None)
        return None if wide is None else spec.replicated(wide.devices, len(node.type.shape))
    if all(each is None for each in layouts):
        return None
    return work_of(node, layouts).result


def work_of(node: Node, layouts: Sequence[Layout | None]) -> Work:
    """The layouts in which `node` works, where some source has the layout that is given."""
    op = node.op
    if op.elementwise or op in _UNARY:
        if op is math.BITCAST and node.src[0].type.dtype.bits != node.type.dtype.bits:
            return _along(node, layouts, (len(node.type.shape) - 1,))
        return _elementwise(node, layouts)
    if op in MOVES:
        source, result = natural(node, _given(layouts))
        return Work((source,), result)
    if op is tensor.REDUCE:
        return _reduce(node, _given(layouts))
    if op is tensor.SCAN or op is tensor.SORT:
        return _along(node, layouts, (node.attrs.axis,))
    if op is tensor.GATHER:
        return _gather(node, layouts)
    if op is tensor.SCATTER:
        return _scatter(node, layouts)
    devices = _given(layouts).devices
    sources = tuple([spec.replicated(devices, len(source.type.shape)) for source in node.src])
    return Work(sources, spec.replicated(devices, len(node.type.shape)))


def _given(layouts: Iterable[Layout | None]) -> Layout:
    return next(each for each in layouts if each is not None)


def _bytes_moved(have: Layout | None, want: Layout, source: Node) -> int:
    return spec.moved_elements(have, want, source.type.shape) * source.type.dtype.itemsize


def _elementwise(node: Node, layouts: Sequence[Layout | None]) -> Work:
    best = common_layout(node.src, layouts)
    return Work((best,) * len(node.src), best)


def common_layout(sources: Sequence[Node], layouts: Sequence[Layout | None]) -> Layout:
    """The layout in which values of one shape meet with the fewest bytes moved."""
    candidates = list(dict.fromkeys([each for each in layouts if each is not None]))
    if len(candidates) == 1:
        return candidates[0]
    shape = sources[0].type.shape

    def cost(candidate: Layout) -> tuple[int, int]:
        moved = sum(
            _bytes_moved(have, candidate, source)
            for have, source in zip(layouts, sources, strict=True)
        )
        return moved, spec.largest_part(candidate, shape)

    return min(candidates, key=cost)


# --- folds ---------------------------------------------------------------------------------------


def _reduce(node: Node, layout: Layout) -> Work:
    axes, shape = node.attrs.axes, node.src[0].type.shape
    groups = fold_groups(layout, axes, shape)
    if groups is None:
        layout = spec.with_whole(layout, axes)
        groups = fold_groups(layout, axes, shape)
    kept = tuple(
        [tuple([cut for axis, cut in enumerate(box) if axis not in axes]) for box in layout.boxes]
    )
    if groups is not None and _is_local(groups):
        groups = None
    return Work((layout,), Layout(layout.devices, kept), groups)


def _is_local(groups: Sequence[tuple[int, ...]]) -> bool:
    """Whether every device has all that it folds."""
    return all(group == (number,) for number, group in enumerate(groups))


def fold_groups(
    layout: Layout, axes: Sequence[int], shape: Shape
) -> tuple[tuple[int, ...], ...] | None:
    """For each device, whose folds over `axes` make up the fold of all, in the order of the parts.

    A device whose own part is whole along `axes` has only itself.  None if the parts of a group
    overlap or leave something out.
    """
    rows = [spec.numbers(box, shape) for box in layout.boxes]
    wanted = 1
    for axis in axes:
        wanted *= spec.bounds_of(None, shape[axis])[1]
    groups: dict[Box, dict[spec.Bounds, int]] = {}
    keys: list[Box] = []
    for number, (box, bounds) in enumerate(zip(layout.boxes, rows, strict=True)):
        key = tuple([cut for axis, cut in enumerate(box) if axis not in axes])
        keys.append(key)
        folded = tuple([bounds[axis] for axis in axes])
        if spec.count(folded):
            groups.setdefault(key, {}).setdefault(folded, number)
    found: list[tuple[int, ...]] = []
    for number, key in enumerate(keys):
        members = groups.get(key, {})
        parts = list(members)
        total = sum(map(spec.count, parts))
        overlaps = any(
            spec.common(one, other) is not None
            for place, one in enumerate(parts)
            for other in parts[:place]
        )
        is_empty = any(start >= stop for start, stop in _kept(rows[number], axes))
        if is_empty or not wanted:
            found.append((number,))
            continue
        if overlaps or total != wanted:
            return None
        mine = tuple([rows[number][axis] for axis in axes])
        own = members.get(mine)
        if len(parts) == 1 and own is not None:
            found.append((number,))
        else:
            found.append(tuple([members[part] for part in sorted(parts)]))
    return tuple(found)


def _kept(bounds: spec.Bounds, axes: Sequence[int]) -> spec.Bounds:
    return tuple([each for axis, each in enumerate(bounds) if axis not in axes])


def _along(node: Node, layouts: Sequence[Layout | None], axes: tuple[int, ...]) -> Work:
    """An op that needs all of `axes` at one place: other axes take over the cuts if they can."""
    layout = _given(layouts)
    if not spec.cut_axes(layout) & set(axes):
        return Work((layout,), layout)
    shape = node.src[0].type.shape
    best = spec.with_whole(layout, axes)
    kinds = list(dict.fromkeys(layout.boxes))
    for axis, size in enumerate(shape):
        if axis in axes or not isinstance(size, int) or size < len(kinds):
            continue
        if axis in spec.cut_axes(layout):
            continue
        place = dict(zip(kinds, spec.even_cuts(size, len(kinds)), strict=True))
        cuts = [[spec.interval(*place[box], size)] for box in layout.boxes]
        candidate = spec.with_axes(spec.replicated(layout.devices, len(shape)), cuts, (axis,))
        if spec.moved_elements(layout, candidate, shape) < spec.moved_elements(layout, best, shape):
            best = candidate
    return Work((best,), best)


# --- gathers -------------------------------------------------------------------------------------


def _gather(node: Node, layouts: Sequence[Layout | None]) -> Work:
    x, indices = node.src[0], node.src[1:]
    devices = _given(layouts).devices
    at, count = node.attrs.axis, len(indices)
    given = layouts[0] or spec.replicated(devices, len(x.type.shape))
    table = spec.with_whole(given, range(at, at + count))
    nowhere = spec.replicated(devices, len(indices[0].type.shape))
    places = nowhere
    if any(each is not None for each in layouts[1:]):
        places = common_layout(indices, layouts[1:])
    candidates = [
        (table, places), (table, nowhere), (spec.replicated(devices, len(x.type.shape)), places),
    ]  # fmt: skip
    aligned = aligned_axes(node, indices)
    if spec.cut_axes(given) & set(aligned):
        loose = [axis for axis in range(at, at + count) if axis not in aligned]
        beside = [
            (spec.with_whole(given, loose), spec.with_axes(
                nowhere, [[box[axis] for axis in aligned] for box in given.boxes],
                list(aligned.values()),
            ))
        ]  # fmt: skip
        candidates = beside + candidates

    def result_of(pair: tuple[Layout, Layout]) -> Layout:
        boxes = [
            (*box[:at], *place, *box[at + count :])
            for box, place in zip(pair[0].boxes, pair[1].boxes, strict=True)
        ]
        return Layout(devices, tuple(boxes))

    def cost(pair: tuple[Layout, Layout]) -> tuple[int, int]:
        moved = _bytes_moved(layouts[0], pair[0], x)
        moved += sum(
            _bytes_moved(have, pair[1], source)
            for have, source in zip(layouts[1:], indices, strict=True)
        )
        return moved, spec.largest_part(result_of(pair), node.type.shape)

    complete = [pair for pair in candidates if spec.layout_covers(result_of(pair), node.type.shape)]
    best = min(complete, key=cost)
    partial = _partial_gather(node, layouts, cost(best)[0])
    if partial is not None:
        return partial
    return Work((best[0], *[best[1]] * count), result_of(best))


def _partial_gather(node: Node, layouts: Sequence[Layout | None], moved_bytes: int) -> Work | None:
    """Rows of a table that is cut: each device gives those that it has, if that moves less.

    So a lookup of a few tokens moves their rows, and not the vocabulary.
    """
    table, indices = layouts[0], node.src[1:]
    at, rank = node.attrs.axis, len(indices[0].type.shape)
    axes = tuple(range(at, at + len(indices)))
    word = word_of(node.type.dtype)
    if table is None or word is None or not spec.cut_axes(table) & set(axes):
        return None
    groups = fold_groups(table, axes, node.src[0].type.shape)
    if groups is None or _is_local(groups):
        return None
    nowhere = spec.replicated(table.devices, rank)
    boxes = [(*box[:at], *[None] * rank, *box[at + len(axes) :]) for box in table.boxes]
    result = Layout(table.devices, tuple(boxes))
    most = max(len(group) for group in groups)
    moved = 2 * (most - 1) * spec.largest_part(result, node.type.shape) * word.itemsize
    moved += sum(
        _bytes_moved(have, nowhere, source)
        for have, source in zip(layouts[1:], indices, strict=True)
    )
    if moved >= moved_bytes:
        return None
    return Work((table, *[nowhere] * len(indices)), result, groups)


def _scatter(node: Node, layouts: Sequence[Layout | None]) -> Work:
    """Each device writes what falls into its part; updates come to all that may need them."""
    x, updates, indices = node.src[0], node.src[1], node.src[2:]
    devices = _given(layouts).devices
    at, count = node.attrs.axis, len(indices)
    rank = len(indices[0].type.shape)
    nowhere = spec.replicated(devices, rank)
    aligned = aligned_axes(node, indices)
    if layouts[0] is not None:
        target = layouts[0]
    else:
        partial = _partial_scatter(node, layouts)
        if partial is not None:
            return partial
        given = layouts[1] or spec.replicated(devices, len(updates.type.shape))
        boxes = [(*box[:at], *[None] * count, *box[at + rank :]) for box in given.boxes]
        target = spec.with_axes(
            Layout(devices, tuple(boxes)),
            [[box[at + along] for along in aligned.values()] for box in given.boxes],
            list(aligned),
        )
        if not spec.layout_covers(target, x.type.shape):
            target = spec.replicated(devices, len(x.type.shape))
    cuts = [[box[axis] for axis in aligned] for box in target.boxes]
    places = spec.with_axes(nowhere, cuts, list(aligned.values()))
    rows = [
        (*box[:at], *place, *box[at + count :])
        for box, place in zip(target.boxes, places.boxes, strict=True)
    ]
    return Work((target, Layout(devices, tuple(rows)), *[places] * count), target)


def _partial_scatter(node: Node, layouts: Sequence[Layout | None]) -> Work | None:
    """Sums into zeros: each device sums its own updates, and the sums are added, if that is less.

    So the gradient of an embedding whose tokens lie on several devices moves as much as the
    weights are, and not as much as the tokens' gradients are.
    """
    x, updates, indices = node.src[0], node.src[1], node.src[2:]
    if aligned_axes(node, indices):
        return None
    is_sum = node.attrs.fold is tensor.Fold.ADD and x.op is math.CONST and x.attrs.bits == 0
    if not is_sum or layouts[1] is None or updates.type.dtype.is_bool:
        return None
    at, rank = node.attrs.axis, len(indices[0].type.shape)
    axes = tuple(range(at, at + rank))
    groups = fold_groups(layouts[1], axes, updates.type.shape)
    if groups is None or _is_local(groups):
        return None
    given, devices = layouts[1], layouts[1].devices
    places = Layout(devices, tuple([box[at : at + rank] for box in given.boxes]))
    boxes = [(*box[:at], *[None] * len(indices), *box[at + rank :]) for box in given.boxes]
    target = Layout(devices, tuple(boxes))
    gathered = spec.with_whole(given, axes)
    most = max(len(group) for group in groups)
    folding = 2 * (most - 1) * spec.largest_part(target, x.type.shape)
    if folding >= spec.moved_elements(given, gathered, updates.type.shape):
        return None
    return Work((target, given, *[places] * len(indices)), target, groups)
