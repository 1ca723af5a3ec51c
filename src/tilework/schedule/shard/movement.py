"""Movement ops on parts: what a box becomes, what a box needs, and the op that does it locally."""

from __future__ import annotations

from collections.abc import Callable
from math import lcm, prod
from typing import TYPE_CHECKING, Any, Final

from tilework.ir.node import make
from tilework.ir.ops import tensor
from tilework.ir.ops.multi import Box, Interval, Layout
from tilework.schedule.shard import spec, windows
from tilework.schedule.shard.cutting import moved as _make

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.ir.node import Node, OpDef
    from tilework.ir.types import Shape

#: A device may have this much more than its share before the parts are cut anew.
_UNFAIR: Final = 1.5
_SMALL: Final = 64


def forward(node: Node, box: Box) -> Box | None:
    """The part of the result that a part of the source gives without anything else, or None."""
    return _FORWARD[node.op](node.attrs, box, node.src[0].type.shape, node.type.shape)


def needed(node: Node, box: Box) -> Box | None:
    """The part of the source that a part of the result needs; None where it is no box."""
    return _NEEDED[node.op](node.attrs, box, node.src[0].type.shape, node.type.shape)


def local(node: Node, source_box: Box, box: Box, part: Node) -> Node:
    """The part `box` of the result, from the part of the source that `needed` says."""
    return _LOCAL[node.op](node, source_box, box, part)


def natural(node: Node, layout: Layout) -> tuple[Layout, Layout]:
    """The layouts in which a movement op works, of its source and of its result.

    The source stays where it is if it can.
    """
    found = forward_all(node, layout)
    if found is not None:
        if node.op is not tensor.PAD or _is_balanced(found, layout, node):
            return layout, found
        result = _balanced(found, node)
        return _source_of(node, result), result
    if node.op in _OWNERS:
        result = _OWNERS[node.op](node, layout)
        return _source_of(node, result), result
    moved = _align_reshape(node, layout) if node.op is tensor.RESHAPE else None
    if moved is not None:
        found = forward_all(node, moved)
        if found is not None:
            return moved, found
    moved = spec.replicated(layout.devices, len(node.src[0].type.shape))
    return moved, spec.replicated(layout.devices, len(node.type.shape))


def forward_all(node: Node, layout: Layout) -> Layout | None:
    """What `forward` makes of each device's part; None where one of them needs others."""
    boxes = []
    for box in layout.boxes:
        found = forward(node, box)
        if found is None:
            return None
        boxes.append(found)
    return Layout(layout.devices, tuple(boxes))


def _source_of(node: Node, result: Layout) -> Layout:
    boxes = []
    for box in result.boxes:
        found = needed(node, box)
        boxes.append(spec.whole(len(node.src[0].type.shape)) if found is None else found)
    return Layout(result.devices, tuple(boxes))


# --- reshape -------------------------------------------------------------------------------------


def _groups(old: Shape, new: Shape) -> list[tuple[range, range]] | None:
    """Runs of old and new axes that hold the same elements; None where sizes say too little."""
    if not all(isinstance(size, int) for size in (*old, *new)) or 0 in old or 0 in new:
        return None
    found = []
    i = j = 0
    while i < len(old) or j < len(new):
        first = (i, j)
        left = right = 1
        while True:
            if i < len(old) and (left <= right or j >= len(new)):
                left *= old[i]  # type: ignore[operator]  # all sizes are numbers
                i += 1
            elif j < len(new):
                right *= new[j]  # type: ignore[operator]
                j += 1
            if (
                left == right
                and (i > first[0] or i >= len(old))
                and (j > first[1] or j >= len(new))
            ):
                break
        found.append((range(first[0], i), range(first[1], j)))
    return found


def _flat(cuts: Sequence[Interval], sizes: Sequence[int]) -> tuple[int, int] | None:
    """The run of row-major places that a box is; None if it is no run."""
    bounds = [spec.bounds_of(cut, size) for cut, size in zip(cuts, sizes, strict=True)]
    if any(start >= stop for start, stop in bounds):
        return (0, 0)
    last = max((axis for axis, cut in enumerate(cuts) if cut is not None), default=-1)
    if any(stop - start != 1 for start, stop in bounds[:last] if last >= 0):
        return None
    first = sum(start * prod(sizes[axis + 1 :]) for axis, (start, _) in enumerate(bounds))
    return first, first + prod(stop - start for start, stop in bounds)


def _unflat(first: int, last: int, sizes: Sequence[int]) -> list[Interval] | None:
    """The box that a run of row-major places is, if it is one."""
    whole: list[Interval] = [None] * len(sizes)
    if last - first == prod(sizes):
        return whole
    if first == last:
        whole[0] = (0, 0)
        return whole
    for axis in range(len(sizes)):
        step = prod(sizes[axis + 1 :])
        outer = step * sizes[axis]
        if first % step or last % step or first // outer != (last - 1) // outer:
            continue
        found: list[Interval] = []
        for before in range(axis):
            at = first // prod(sizes[before + 1 :]) % sizes[before]
            found.append(spec.interval(at, at + 1, sizes[before]))
        start = first % outer // step
        found.append(spec.interval(start, start + (last - first) // step, sizes[axis]))
        return found + [None] * (len(sizes) - axis - 1)
    return None


def _reshaped(box: Box, old: Shape, new: Shape) -> Box | None:
    if all(cut is None for cut in box):
        return spec.whole(len(new))
    groups = _groups(old, new)
    if groups is None:
        return _reshaped_ends(box, old, new)
    found: list[Interval] = []
    for before, after in groups:
        cuts = [box[axis] for axis in before]
        if all(cut is None for cut in cuts):
            found += [None] * len(after)
            continue
        sizes: list[Any] = [new[axis] for axis in after]
        run = _flat(cuts, [old[axis] for axis in before])  # type: ignore[misc]
        if run is None or not sizes:
            return None
        part = _unflat(*run, sizes)
        if part is None:
            return None
        found += part
    return tuple(found)


def _reshaped_ends(box: Box, old: Shape, new: Shape) -> Box | None:
    """Where sizes are symbolic: leading and trailing axes that stay as they are keep their cuts."""
    if 0 in old:
        return None
    front = 0
    while front < min(len(old), len(new)) and old[front] == new[front]:
        front += 1
    back = 0
    while back < min(len(old), len(new)) - front and old[-1 - back] == new[-1 - back]:
        back += 1
    middle = box[front : len(old) - back]
    if any(cut is not None for cut in middle):
        return None
    end = box[len(old) - back :] if back else ()
    return (*box[:front], *[None] * (len(new) - front - back), *end)


def _align_reshape(node: Node, layout: Layout) -> Layout | None:
    """The source cut at multiples of rows of both shapes, one part for each that there is now."""
    old, new = node.src[0].type.shape, node.type.shape
    groups = _groups(old, new)
    if groups is None:
        return None
    boxes = [list(box) for box in layout.boxes]
    for before, after in groups:
        rows = [tuple(box[axis] for axis in before) for box in layout.boxes]
        sizes: list[Any] = [old[axis] for axis in before]
        wanted: list[Any] = [new[axis] for axis in after]
        runs = [_flat(row, sizes) for row in rows]
        if all(run is not None and wanted and _unflat(*run, wanted) for run in runs):
            continue
        for box, cuts in zip(boxes, _aligned_cuts(rows, sizes, wanted), strict=True):
            box[before.start : before.stop] = cuts
    found = Layout(layout.devices, tuple([tuple(box) for box in boxes]))
    return found if spec.layout_covers(found, old) else None


def _aligned_cuts(
    rows: Sequence[tuple[Interval, ...]], old: Sequence[int], new: Sequence[int]
) -> list[list[Interval]]:
    total = prod(old)
    unit = lcm(_row_of(old), _row_of(new))
    kinds = list(dict.fromkeys(rows))
    if total % unit or total // unit < len(kinds) or len(kinds) == 1:
        return [[None] * len(old) for _ in rows]
    runs = spec.even_cuts(total // unit, len(kinds))
    place = dict(zip(kinds, runs, strict=True))
    found: list[list[Interval]] = []
    for row in rows:
        start, stop = place[row]
        cuts = _unflat(start * unit, stop * unit, old)
        found.append([None] * len(old) if cuts is None else cuts)
    return found


def _row_of(sizes: Sequence[int]) -> int:
    """Elements of one step along the first axis that has several."""
    for axis, size in enumerate(sizes):
        if size > 1:
            return prod(sizes[axis + 1 :])
    return 1


def _local_reshape(node: Node, source_box: Box, box: Box, part: Node) -> Node:
    return _make(tensor.RESHAPE, part, tensor.ShapeAttrs(spec.local_shape(box, node.type.shape)))


# --- permute, expand, flip -----------------------------------------------------------------------


def _permuted(attrs: Any, box: Box, old: Shape, new: Shape) -> Box:
    return tuple([box[axis] for axis in attrs.axes])


def _unpermuted(attrs: Any, box: Box, old: Shape, new: Shape) -> Box:
    found: list[Interval] = [None] * len(box)
    for place, axis in enumerate(attrs.axes):
        found[axis] = box[place]
    return tuple(found)


def _expanded(attrs: Any, box: Box, old: Shape, new: Shape) -> Box:
    return tuple(
        [
            cut if before is after or before == after or cut is None else (0, 0)
            for cut, before, after in zip(box, old, new, strict=True)
        ]
    )


def _unexpanded(attrs: Any, box: Box, old: Shape, new: Shape) -> Box:
    return tuple(
        [
            cut if before is after or before == after else None
            for cut, before, after in zip(box, old, new, strict=True)
        ]
    )


def _local_expand(node: Node, source_box: Box, box: Box, part: Node) -> Node:
    return _make(tensor.EXPAND, part, tensor.ShapeAttrs(spec.local_shape(box, node.type.shape)))


def _flipped(attrs: Any, box: Box, old: Shape, new: Shape) -> Box:
    found = list(box)
    for axis in attrs.axes:
        cut = box[axis]
        if cut is not None:
            size: Any = old[axis]
            found[axis] = (size - cut[1], size - cut[0])
    return tuple(found)


def _same(node: Node, source_box: Box, box: Box, part: Node) -> Node:
    return make(node.op, (part,), node.attrs)


# --- pad and shrink ------------------------------------------------------------------------------


def _padded(attrs: Any, box: Box, old: Shape, new: Shape) -> Box | None:
    found: list[Interval] = []
    for cut, (low, high), size, total in zip(box, attrs.pads, old, new, strict=True):
        if cut is None:
            found.append(None)
            continue
        if not isinstance(low, int) or not isinstance(high, int) or not isinstance(total, int):
            return None
        start, stop = cut
        first, last = start + low, stop + low
        if start < stop:
            first = 0 if start == 0 else first
            last = total if stop == size else last
        found.append(spec.interval(first, last, total))
    return tuple(found)


def _unpadded(attrs: Any, box: Box, old: Shape, new: Shape) -> Box | None:
    found: list[Interval] = []
    for cut, (low, _), size in zip(box, attrs.pads, old, strict=True):
        if cut is None:
            found.append(None)
            continue
        if not isinstance(low, int) or not isinstance(size, int):
            return None
        start, stop = (min(max(at - low, 0), size) for at in cut)
        found.append(spec.interval(start, max(start, stop), size))
    return tuple(found)


def _local_pad(node: Node, source_box: Box, box: Box, part: Node) -> Node:
    pads: list[Any] = []
    shape, total = node.src[0].type.shape, node.type.shape
    for axis, (low, high) in enumerate(node.attrs.pads):
        if box[axis] is None and source_box[axis] is None:
            pads.append((low, high))
            continue
        start, stop = spec.bounds_of(box[axis], total[axis])
        first, last = spec.bounds_of(source_box[axis], shape[axis])
        if first >= last:
            pads.append((stop - start, 0))
        else:
            pads.append((first + low - start, stop - last - low))
    return _make(tensor.PAD, part, tensor.PadAttrs(tuple(pads)))


def _is_balanced(result: Layout, source: Layout, node: Node) -> bool:
    """Whether no device gets much more than its share of the zeros."""
    shape, old = node.type.shape, node.src[0].type.shape
    grown = spec.count(_all_of(shape)) / max(spec.count(_all_of(old)), 1)
    fair = max(spec.largest_part(source, old), 1) * grown
    return spec.largest_part(result, shape) <= _UNFAIR * fair + _SMALL


def _all_of(shape: Shape) -> spec.Bounds:
    return spec.numbers(spec.whole(len(shape)), shape)


def _balanced(result: Layout, node: Node) -> Layout:
    """The padded axes cut anew, into as many parts as they have."""
    shape = node.type.shape
    boxes = [list(box) for box in result.boxes]
    for axis, pads in enumerate(node.attrs.pads):
        kinds = list(dict.fromkeys(box[axis] for box in result.boxes))
        size = shape[axis]
        if pads == (0, 0) or len(kinds) == 1 or not isinstance(size, int):
            continue
        kinds.sort(key=lambda cut, size=size: spec.bounds_of(cut, size))  # type: ignore[misc]
        cuts = dict(zip(kinds, spec.even_cuts(size, len(kinds)), strict=True))
        for box in boxes:
            box[axis] = spec.interval(*cuts[box[axis]], size)
    return Layout(result.devices, tuple([tuple(box) for box in boxes]))


def _shrunk(attrs: Any, box: Box, old: Shape, new: Shape) -> Box | None:
    found: list[Interval] = []
    for cut, (start, _, step), size in zip(box, attrs.bounds, new, strict=True):
        if cut is None:
            found.append(None)
            continue
        if not isinstance(start, int) or not isinstance(size, int):
            return None
        first, last = (min(max(-(-(at - start) // step), 0), size) for at in cut)
        found.append(spec.interval(first, last, size))
    return tuple(found)


def _unshrunk(attrs: Any, box: Box, old: Shape, new: Shape) -> Box | None:
    found: list[Interval] = []
    for cut, (start, stop, step), before, size in zip(box, attrs.bounds, old, new, strict=True):
        is_fixed = all(isinstance(each, int) for each in (start, stop, before, size))
        if not is_fixed:
            if cut is not None:
                return None
            found.append(None)
            continue
        first, last = spec.bounds_of(cut, size)
        low = start + first * step
        high = low + max(last - first - 1, 0) * step + 1 if last > first else low
        found.append(spec.interval(min(low, before), min(high, before), before))
    return tuple(found)


def _local_shrink(node: Node, source_box: Box, box: Box, part: Node) -> Node:
    bounds: list[Any] = []
    shape = node.type.shape
    for axis, (start, stop, step) in enumerate(node.attrs.bounds):
        if source_box[axis] is None and box[axis] is None:
            bounds.append((start, stop, step))
            continue
        first, last = spec.bounds_of(box[axis], shape[axis])
        base = 0 if source_box[axis] is None else source_box[axis][0]  # type: ignore[index]
        low = start + first * step - base
        high = low + max(last - first - 1, 0) * step + 1 if last > first else low
        if last <= first:
            low = high = 0
        bounds.append((low, high, step))
    return _make(tensor.SHRINK, part, tensor.ShrinkAttrs(tuple(bounds)))


_Move = Callable[[Any, Box, "Shape", "Shape"], "Box | None"]
_FORWARD: Final[dict[OpDef, _Move]] = {
    tensor.RESHAPE: lambda attrs, box, old, new: _reshaped(box, old, new),
    tensor.PERMUTE: _permuted,
    tensor.EXPAND: _expanded,
    tensor.FLIP: _flipped,
    tensor.PAD: _padded,
    tensor.SHRINK: _shrunk,
    tensor.WINDOW: windows.windowed,
    tensor.UNWINDOW: windows.spread,
}
_NEEDED: Final[dict[OpDef, _Move]] = {
    tensor.RESHAPE: lambda attrs, box, old, new: _reshaped(box, new, old),
    tensor.PERMUTE: _unpermuted,
    tensor.EXPAND: _unexpanded,
    tensor.FLIP: _flipped,
    tensor.PAD: _unpadded,
    tensor.SHRINK: _unshrunk,
    tensor.WINDOW: windows.unwindowed,
    tensor.UNWINDOW: windows.unspread,
}
_LOCAL: Final[dict[OpDef, Callable[[Node, Box, Box, Node], Node]]] = {
    tensor.RESHAPE: _local_reshape,
    tensor.PERMUTE: _same,
    tensor.EXPAND: _local_expand,
    tensor.FLIP: _same,
    tensor.PAD: _local_pad,
    tensor.SHRINK: _local_shrink,
    tensor.WINDOW: windows.local_window,
    tensor.UNWINDOW: windows.local_spread,
}
_OWNERS: Final[dict[OpDef, Callable[[Node, Layout], Layout]]] = {
    tensor.WINDOW: windows.window_layouts,
    tensor.UNWINDOW: windows.spread_layouts,
}
MOVES: Final = frozenset(_LOCAL)
