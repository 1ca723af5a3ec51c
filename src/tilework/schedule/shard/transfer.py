"""Parts put together from pieces, and which pieces a device fetches from which other one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilework.dtypes import bool_ as _BOOL
from tilework.dtypes import index as _INDEX
from tilework.ir.build import const
from tilework.ir.node import make
from tilework.ir.ops import math, tensor
from tilework.schedule.shard import spec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.dtypes import DType
    from tilework.ir.node import Node
    from tilework.ir.ops.multi import Layout
    from tilework.ir.types import Shape
    from tilework.schedule.shard.spec import Bounds

#: A value, and the box that it is.
Piece = tuple["Node", "Bounds"]


def sources_of(
    layout: Layout, shape: Shape, wanted: Bounds, device: int
) -> list[tuple[int, Bounds]]:
    """Which device gives which box, so that all of `wanted` comes to `device` once.

    What it has itself stays; the rest comes from the next devices in the order of a ring, so that
    all of them are asked alike.
    """
    count = len(layout.devices)
    left = [wanted]
    found: list[tuple[int, Bounds]] = []
    for step in range(count):
        other = (device + step) % count
        have = spec.numbers(layout.boxes[other], shape)
        rest: list[Bounds] = []
        for box in left:
            shared = spec.common(box, have)
            if shared is None:
                rest.append(box)
                continue
            found.append((other, shared))
            rest += spec.without(box, shared)
        left = rest
        if not left:
            break
    return found


def assemble(pieces: Sequence[Piece], wanted: Bounds, shape: Shape) -> Node:
    """The box `wanted` made of `pieces`, which do not overlap and cover it.

    Elements are chosen by their place, never added, so every bit stays: the sign of a zero, the
    payload of a NaN.  `shape` is that of the box, where sizes may be symbolic.
    """
    ordered = sorted(pieces, key=lambda piece: piece[1])
    result = _placed(ordered[-1], wanted)
    if len(ordered) == 1:
        return result
    axes = [
        axis for axis, whole in enumerate(wanted) if any(box[axis] != whole for _, box in ordered)
    ]
    is_row = len(axes) == 1
    for piece in ordered[-2::-1]:
        inside = (
            _is_before(piece[1], wanted, axes[0], shape)
            if is_row
            else _is_inside(piece[1], wanted, shape)
        )
        result = math.WHERE(inside, _placed(piece, wanted), result)
    # It is read as any other array from here on, by products too.
    return make(tensor.CONTIGUOUS, (result,), None)


def nothing(dtype: DType, shape: Shape) -> Node:
    """A value without elements."""
    return const(0, dtype, shape)


def _placed(piece: Piece, wanted: Bounds) -> Node:
    """A piece with zeros around it, in the shape of the box that it belongs to."""
    node, box = piece
    pads: list[Any] = [
        (start - low, high - stop) for (start, stop), (low, high) in zip(box, wanted, strict=True)
    ]
    if all(pair == (0, 0) for pair in pads):
        return node
    return make(tensor.PAD, (node,), tensor.PadAttrs(tuple(pads)))


def _is_before(box: Bounds, wanted: Bounds, axis: int, shape: Shape) -> Node:
    """Whether an element lies before the end of a box; those before its start are chosen later."""
    at = make(tensor.IOTA, (), tensor.IotaAttrs(shape, axis, _INDEX))
    return math.LT(at, const(box[axis][1] - wanted[axis][0], _INDEX, shape))


def _is_inside(box: Bounds, wanted: Bounds, shape: Shape) -> Node:
    found = const(True, _BOOL, shape)
    for axis, ((start, stop), (low, high)) in enumerate(zip(box, wanted, strict=True)):
        at = make(tensor.IOTA, (), tensor.IotaAttrs(shape, axis, _INDEX))
        if stop < high:
            found = math.AND(found, math.LT(at, const(stop - low, _INDEX, shape)))
        if start > low:
            found = math.AND(found, math.LT(const(start - low - 1, _INDEX, shape), at))
    return found
