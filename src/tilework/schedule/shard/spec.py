"""Boxes and layouts: which part of a tensor each device holds.

A layout names a box for each device and nothing else: no mesh, no padding.  So every even or
uneven split, over one or several axes, replicated or not, is one kind of thing, and what a slice
or a flip leaves on each device is a layout as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.errors import ShapeError
from tilework.ir.ops.multi import Box, Interval, Layout
from tilework.ir.symbolic import dims

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tilework.ir.types import Dim, Shape

#: Bounds in numbers of each axis.
Bounds = tuple[tuple[int, int], ...]


def even_cuts(size: int, parts: int) -> tuple[tuple[int, int], ...]:
    """`parts` intervals that together are [0, size); the first ones are longer by at most one.

    Example:
        >>> even_cuts(7, 3)
        ((0, 3), (3, 5), (5, 7))
    """
    least, extra = divmod(size, parts)
    ends = [(number + 1) * least + min(number + 1, extra) for number in range(parts)]
    return tuple(zip([0, *ends[:-1]], ends, strict=True))


def interval(start: int, stop: int, size: Dim) -> Interval:
    """[start, stop) of an axis; None if that is all of it."""
    return None if start == 0 and stop == size else (start, stop)


def bounds_of(cut: Interval, size: Dim) -> tuple[int, int]:
    """An interval in numbers; a symbolic axis counts with its greatest size."""
    return (0, dims.greatest(size)) if cut is None else cut


def length_of(cut: Interval, size: Dim) -> Dim:
    """How many elements an interval has."""
    return size if cut is None else cut[1] - cut[0]


def local_shape(box: Box, shape: Shape) -> Shape:
    """The shape of the part of a tensor of `shape` that is `box`."""
    return tuple([length_of(cut, size) for cut, size in zip(box, shape, strict=True)])


def numbers(box: Box, shape: Shape) -> Bounds:
    """A box in numbers."""
    return tuple([bounds_of(cut, size) for cut, size in zip(box, shape, strict=True)])


def as_box(bounds: Bounds, shape: Shape) -> Box:
    """Numbers as a box; axes of symbolic size are whole."""
    return tuple(
        [
            interval(start, stop, size) if isinstance(size, int) else None
            for (start, stop), size in zip(bounds, shape, strict=True)
        ]
    )


def whole(ndim: int) -> Box:
    """The box that is all of a tensor."""
    return (None,) * ndim


def replicated(devices: Sequence[str], ndim: int) -> Layout:
    """Every device holds all of it."""
    return Layout(tuple(devices), (whole(ndim),) * len(devices))


def is_replicated(layout: Layout) -> bool:
    """Whether every device holds all of it."""
    return all(cut is None for box in layout.boxes for cut in box)


def split_axis(layout: Layout) -> int | None:
    """The only axis that is cut, or None: none is, or several are."""
    cut = {axis for box in layout.boxes for axis, part in enumerate(box) if part is not None}
    return cut.pop() if len(cut) == 1 else None


def split(shape: Shape, devices: Sequence[str], axis: int | None) -> Layout:
    """`axis` cut as evenly as can be, one part a device in order; None: replicas."""
    if axis is None:
        return replicated(devices, len(shape))
    return mesh_split(shape, devices, (len(devices),), (axis,))


def mesh_split(
    shape: Shape, devices: Sequence[str], mesh: Sequence[int], axes: Sequence[int | None]
) -> Layout:
    """Devices in a mesh (row-major), each of whose axes cuts an axis of the tensor or replicates.

    Args:
        shape: of the tensor.
        devices: as many as the mesh has places.
        mesh: sizes of the axes of the mesh.
        axes: for each axis of the mesh the axis of the tensor that it cuts, or None.

    Raises:
        ShapeError: an axis that is cut has no fixed size.
    """
    cuts: dict[int, tuple[tuple[int, int], ...]] = {}
    for axis in sorted({axis for axis in axes if axis is not None}):
        size = shape[axis]
        if not isinstance(size, int):
            raise ShapeError(
                f"shard: axis {axis} must have a fixed size", got=str(size),
                try_="shard another axis, or None to put all of it on every device",
            )  # fmt: skip
        parts = 1
        for count, wanted in zip(mesh, axes, strict=True):
            parts *= count if wanted == axis else 1
        cuts[axis] = even_cuts(size, parts)
    boxes: list[Box] = []
    for number in range(len(devices)):
        place = dict.fromkeys(cuts, 0)
        for position, (count, split_by) in enumerate(zip(mesh, axes, strict=True)):
            if split_by is not None:
                step = _product(mesh[position + 1 :])
                place[split_by] = place[split_by] * count + number // step % count
        boxes.append(
            tuple(
                [
                    interval(*cuts[axis][place[axis]], size) if axis in cuts else None
                    for axis, size in enumerate(shape)
                ]
            )
        )
    return Layout(tuple(devices), tuple(boxes))


def _product(sizes: Iterable[int]) -> int:
    total = 1
    for size in sizes:
        total *= size
    return total


# --- sets of elements ----------------------------------------------------------------------------


def count(bounds: Bounds) -> int:
    """How many elements a box has."""
    return _product(max(stop - start, 0) for start, stop in bounds)


def common(one: Bounds, other: Bounds) -> Bounds | None:
    """The elements of both boxes; None if there are none."""
    found = []
    for (start, stop), (low, high) in zip(one, other, strict=True):
        start, stop = max(start, low), min(stop, high)
        if start >= stop:
            return None
        found.append((start, stop))
    return tuple(found)


def without(one: Bounds, other: Bounds) -> list[Bounds]:
    """The elements of `one` that are not in `other`, as boxes."""
    shared = common(one, other)
    if shared is None:
        return [one] if count(one) else []
    left: list[Bounds] = []
    rest = list(one)
    for axis, (start, stop) in enumerate(shared):
        low, high = rest[axis]
        if low < start:
            left.append((*rest[:axis], (low, start), *rest[axis + 1 :]))
        if stop < high:
            left.append((*rest[:axis], (stop, high), *rest[axis + 1 :]))
        rest[axis] = (start, stop)
    return left


def covers(boxes: Iterable[Bounds], all_of: Bounds) -> bool:
    """Whether every element of a box is in one of `boxes`."""
    left = [all_of] if count(all_of) else []
    for box in boxes:
        left = [piece for each in left for piece in without(each, box)]
        if not left:
            return True
    return not left


def layout_covers(layout: Layout, shape: Shape) -> bool:
    """Whether every element is on some device."""
    return covers([numbers(box, shape) for box in layout.boxes], numbers(whole(len(shape)), shape))


def moved_elements(source: Layout | None, target: Layout, shape: Shape) -> int:
    """How many elements arrive at devices which do not have them, to go from one to the other.

    Args:
        source: None for what every device can make by itself.
        target: the other layout, over the same devices.
        shape: of the tensor.
    """
    if source is None or source == target:
        return 0
    total = 0
    for have, want in zip(source.boxes, target.boxes, strict=True):
        if have == want:
            continue
        wanted = numbers(want, shape)
        shared = common(wanted, numbers(have, shape))
        total += count(wanted) - (0 if shared is None else count(shared))
    return total


def largest_part(layout: Layout, shape: Shape) -> int:
    """How many elements the device has that has most."""
    return max(count(numbers(box, shape)) for box in layout.boxes)


def with_axes(layout: Layout, cuts: Sequence[Sequence[Interval]], axes: Sequence[int]) -> Layout:
    """The same layout, but with other intervals of `axes` (for each device, one for each axis)."""
    boxes = []
    for box, row in zip(layout.boxes, cuts, strict=True):
        changed = list(box)
        for axis, cut in zip(axes, row, strict=True):
            changed[axis] = cut
        boxes.append(tuple(changed))
    return Layout(layout.devices, tuple(boxes))


def with_whole(layout: Layout, axes: Iterable[int]) -> Layout:
    """The same layout, but for `axes`, all of which is on each device."""
    gone = frozenset(axes)
    return Layout(
        layout.devices,
        tuple(
            [
                tuple([None if axis in gone else cut for axis, cut in enumerate(box)])
                for box in layout.boxes
            ]
        ),
    )


def cut_axes(layout: Layout) -> frozenset[int]:
    """The axes of which some device has a part only."""
    return frozenset(
        axis for box in layout.boxes for axis, cut in enumerate(box) if cut is not None
    )
