"""Where each element of a movement op comes from, as a list of positions in its source.

`None` stands for an element that comes from nowhere and is 0.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

from tilework.ir.interpret.value import strides_of
from tilework.ir.ops import tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tilework.ir.node import OpDef
    from tilework.ir.types import Dim

Ints = tuple[int, ...]


def positions(
    op: OpDef, attrs: Any, old: Ints, new: Ints, size: Callable[[Dim], int]
) -> list[int | None]:
    """For each element of the result, in row-major order, its position in the source.

    Args:
        op: A movement op.
        attrs: Its attributes.
        old: Shape of the source.
        new: Shape of the result.
        size: Gives the number that a symbolic size stands for.
    """
    if op is tensor.RESHAPE:
        return list(range(prod(new)))
    if op is tensor.UNWINDOW:
        return _unwindow(attrs, old, new)
    return _combine(_AXES[op](attrs, old, new, size))


def _combine(axes: Iterable[list[int | None]]) -> list[int | None]:
    # No None among the offsets here.
    return [None if None in offsets else sum(offsets) for offsets in product(*axes)]  # type: ignore[arg-type]


def _permute(attrs: Any, old: Ints, new: Ints, size: Any) -> list[list[int | None]]:
    strides = strides_of(old)
    return [[at * strides[axis] for at in range(old[axis])] for axis in attrs.axes]


def _expand(attrs: Any, old: Ints, new: Ints, size: Any) -> list[list[int | None]]:
    strides = strides_of(old)
    return [
        [0 if before == 1 else at * stride for at in range(after)]
        for before, after, stride in zip(old, new, strides, strict=True)
    ]


def _pad(attrs: Any, old: Ints, new: Ints, size: Any) -> list[list[int | None]]:
    axes: list[list[int | None]] = []
    for length, total, stride, (low, _) in zip(old, new, strides_of(old), attrs.pads, strict=True):
        start = size(low)
        axes.append(
            [(at - start) * stride if start <= at < start + length else None for at in range(total)]
        )
    return axes


def _shrink(attrs: Any, old: Ints, new: Ints, size: Any) -> list[list[int | None]]:
    return [
        [(size(start) + at * step) * stride for at in range(total)]
        for total, stride, (start, _, step) in zip(new, strides_of(old), attrs.bounds, strict=True)
    ]


def _flip(attrs: Any, old: Ints, new: Ints, size: Any) -> list[list[int | None]]:
    return [
        [(length - 1 - at if axis in attrs.axes else at) * stride for at in range(length)]
        for axis, (length, stride) in enumerate(zip(old, strides_of(old), strict=True))
    ]


def _window(attrs: Any, old: Ints, new: Ints, size: Any) -> list[list[int | None]]:
    axes: list[list[int | None]] = []
    for axis, (length, stride) in enumerate(zip(old, strides_of(old), strict=True)):
        if axis == attrs.axis:
            axes.append([at * attrs.stride * stride for at in range(new[axis])])
            axes.append([at * attrs.dilation * stride for at in range(attrs.size)])
        else:
            axes.append([at * stride for at in range(length)])
    return axes


def _unwindow(attrs: Any, old: Ints, new: Ints) -> list[int | None]:
    strides = strides_of(old)
    axis = attrs.axis
    found: list[int | None] = []
    for place in product(*[range(length) for length in new]):
        numerator = place[axis] - place[axis + 1] * attrs.dilation
        at, rest = divmod(numerator, attrs.stride)
        if rest or not 0 <= at < old[axis]:
            found.append(None)
            continue
        source = (*place[:axis], at, *place[axis + 1 :])
        found.append(sum(p * s for p, s in zip(source, strides, strict=True)))
    return found


_AXES: dict[OpDef, Callable[..., list[list[int | None]]]] = {
    tensor.PERMUTE: _permute,
    tensor.EXPAND: _expand,
    tensor.PAD: _pad,
    tensor.SHRINK: _shrink,
    tensor.FLIP: _flip,
    tensor.WINDOW: _window,
}
MOVEMENT = frozenset([*_AXES, tensor.RESHAPE, tensor.UNWINDOW])
