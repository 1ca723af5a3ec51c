"""WINDOW and UNWINDOW on parts: rows that windows share come from the next device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilework.ir.node import make
from tilework.ir.ops import tensor
from tilework.ir.ops.multi import Box, Interval, Layout
from tilework.schedule.shard import spec
from tilework.schedule.shard.cutting import moved as _make

if TYPE_CHECKING:
    from tilework.ir.node import Node
    from tilework.ir.types import Shape


def windowed(attrs: Any, box: Box, old: Shape, new: Shape) -> Box | None:
    """Of WINDOW: the positions of a part; None where they need rows of other parts."""
    at = attrs.axis
    if box[at] is not None:
        return None
    return (*box[:at], None, None, *box[at + 1 :])


def unwindowed(attrs: Any, box: Box, old: Shape, new: Shape) -> Box | None:
    """Of WINDOW: which elements some positions and taps see."""
    at = attrs.axis
    positions, taps = box[at], box[at + 1]
    cut: Interval = None
    if positions is not None or taps is not None:
        size = old[at]
        if not isinstance(size, int) or not isinstance(new[at], int):
            return None
        first, last = spec.bounds_of(positions, new[at])
        low, high = spec.bounds_of(taps, new[at + 1])
        cut = (0, 0)
        if first < last and low < high:
            start = first * attrs.stride + low * attrs.dilation
            stop = (last - 1) * attrs.stride + (high - 1) * attrs.dilation + 1
            cut = spec.interval(start, stop, size)
    return (*box[:at], cut, *box[at + 2 :])


def window_layouts(node: Node, layout: Layout) -> Layout:
    """Of WINDOW: who has the first element of a position computes it."""
    at, count = node.attrs.axis, node.type.shape[node.attrs.axis]
    if not isinstance(count, int):
        return spec.replicated(layout.devices, len(node.type.shape))
    boxes = []
    for box in layout.boxes:
        cut = box[at]
        positions: Interval = None
        if cut is not None:
            first, last = (min(-(-edge // node.attrs.stride), count) for edge in cut)
            positions = spec.interval(first, last, count)
        boxes.append((*box[:at], positions, None, *box[at + 1 :]))
    return Layout(layout.devices, tuple(boxes))


def local_window(node: Node, source_box: Box, box: Box, part: Node) -> Node:
    """A WINDOW on a part that `unwindowed` names."""
    at, attrs, shape = node.attrs.axis, node.attrs, node.type.shape
    if box[at] is None and box[at + 1] is None:
        return make(node.op, (part,), attrs)
    count = spec.length_of(box[at], shape[at])
    size: Any = spec.length_of(box[at + 1], shape[at + 1])
    if count == 0 or size == 0:
        empty = list(part.type.shape)
        empty[at : at + 1] = [count, size]
        flat = _make(tensor.SHRINK, part, _nothing(part, at))
        return _make(tensor.RESHAPE, flat, tensor.ShapeAttrs(tuple(empty)))
    return _make(
        tensor.WINDOW, part, tensor.WindowAttrs(at, count, size, attrs.stride, attrs.dilation)
    )  # fmt: skip


def _nothing(part: Node, axis: int) -> tensor.ShrinkAttrs:
    bounds: list[Any] = [(0, size, 1) for size in part.type.shape]
    bounds[axis] = (0, 0, 1)
    return tensor.ShrinkAttrs(tuple(bounds))


def spread(attrs: Any, box: Box, old: Shape, new: Shape) -> Box | None:
    """Of UNWINDOW: what a part gives; None where parts meet in one element."""
    at = attrs.axis
    if box[at] is not None or box[at + 1] is not None:
        return None
    return box


def spread_layouts(node: Node, layout: Layout) -> Layout:
    """Of UNWINDOW: who has a position computes the elements from its first one on."""
    at, stride = node.attrs.axis, node.attrs.stride
    count, positions = node.type.shape[at], node.src[0].type.shape[at]
    if not isinstance(count, int):
        return spec.replicated(layout.devices, len(node.type.shape))
    boxes = []
    for box in layout.boxes:
        cut = box[at]
        if cut is not None:
            first = min(cut[0] * stride, count)
            last = count if cut[1] == positions else min(cut[1] * stride, count)
            last = first if cut[0] == cut[1] else last
            cut = spec.interval(first, last, count)
        boxes.append((*box[:at], cut, None, *box[at + 2 :]))
    return Layout(layout.devices, tuple(boxes))


def unspread(attrs: Any, box: Box, old: Shape, new: Shape) -> Box | None:
    """Of UNWINDOW: which positions some elements come from."""
    at = attrs.axis
    if box[at + 1] is not None or not isinstance(old[at], int):
        return None if box[at] is not None or box[at + 1] is not None else box
    cut = box[at]
    if cut is not None:
        first, last = cut
        taps: Any = old[at + 1]
        low = max((first - (taps - 1) * attrs.dilation) // attrs.stride, 0)
        high = min((last - 1) // attrs.stride + 1, old[at])
        cut = (0, 0) if first >= last else spec.interval(min(low, high), high, old[at])
    return (*box[:at], cut, None, *box[at + 2 :])


def local_spread(node: Node, source_box: Box, box: Box, part: Node) -> Node:
    """An UNWINDOW on a part that `unspread` names: from its first position on, then cut."""
    at, attrs, cut = node.attrs.axis, node.attrs, box[node.attrs.axis]
    if cut is None and source_box[at] is None:
        return make(node.op, (part,), attrs)
    first, last = spec.bounds_of(cut, node.type.shape[at])
    base = 0 if source_box[at] is None else source_box[at][0] * attrs.stride
    if first >= last:
        base = first
    spread = _make(
        tensor.UNWINDOW, part,
        tensor.WindowAttrs(at, last - base, attrs.size, attrs.stride, attrs.dilation),
    )  # fmt: skip
    bounds: list[Any] = [(0, size, 1) for size in spread.type.shape]
    bounds[at] = (first - base, last - base, 1)
    return _make(tensor.SHRINK, spread, tensor.ShrinkAttrs(tuple(bounds)))
