"""Buffers as arrays whose boxes a copy engine moves.

Every range moves the position in the buffer by a fixed number of elements.  Ranges that overlap,
as those of a window and of the places where it stands, are one axis: position `2 y + ky` of an
image's rows.  A condition that bounds the position on an axis bounds the array: outside of it the
engine writes zeros, which is what the kernel asks for.
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

from tilework.base.records import dataclass
from tilework.codegen.plan.extents import least_size, size
from tilework.ir.build import const_bits, const_index
from tilework.ir.node import toposort
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE
from tilework.ir.ops.matrix import BoxedAttrs
from tilework.ir.ops.memory import LOAD, PARAM
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tilework.dtypes import DType
    from tilework.ir.node import Node

#: Bytes of one row of a slot: the width of the widest swizzle.
ROW_BYTES = 128
#: Copy engines want the start of an array and its strides in multiples of this.
_ALIGNMENT_BYTES = 16
_MOST_AXES = 5
#: The greatest step of a copy engine along an axis.
_MOST_STEP = 8


@dataclass(frozen=True, slots=True)
class Axis:
    """Ranges that move along one axis of an array.

    Attributes:
        ranges, steps: Each range, and by how many places of the axis it moves.
        low: The place, by ranges and steps, that is the first of the axis.
        size: How many places the axis has.
        stride: Elements of the buffer from one place to the next.
    """

    ranges: tuple[Node, ...]
    steps: tuple[int, ...]
    low: int
    size: int
    stride: int

    def place(self, values: Mapping[Node, Node]) -> Node:
        """The place at values of the ranges."""
        found = const_index(-self.low)
        for range_, step in zip(self.ranges, self.steps, strict=True):
            found = simplify.add(found, simplify.scale(values[range_], step))
        return found


@dataclass(frozen=True, slots=True)
class Array:
    """A buffer as an array; the elements of its first axis lie side by side."""

    param: Node
    start: int
    axes: tuple[Axis, ...]

    @property
    def dtype(self) -> DType:
        """The dtype in memory."""
        return self.param.type.dtype

    @property
    def ranges(self) -> tuple[Node, ...]:
        """All ranges, those of the first axis first."""
        return tuple(range_ for axis in self.axes for range_ in axis.ranges)

    @property
    def is_plain(self) -> bool:
        """Has each range an axis of its own, whole and in steps of 1?"""
        return all(
            axis.steps == (1,) and not axis.low and axis.size == size(axis.ranges[0])
            for axis in self.axes
        )

    def boxed(self, extents: Mapping[Node, int], swizzle_bytes: int) -> BoxedAttrs:
        """Boxes of so many values of each range; of ranges that are not named, one."""
        box, steps = [], []
        for axis in self.axes:
            count, step = 1, 1
            for range_, own in zip(axis.ranges, axis.steps, strict=True):
                if extents.get(range_, 1) > 1:
                    count, step = extents[range_], own
            box.append(count)
            steps.append(step)
        return BoxedAttrs(
            self.start,
            tuple(axis.size for axis in self.axes),
            tuple(axis.stride for axis in self.axes),
            tuple(box),
            swizzle_bytes,
            tuple(steps) if any(step > 1 for step in steps) else (),
        )

    def places(self, values: Mapping[Node, Node]) -> list[Node]:
        """Where a box starts, axis by axis."""
        return [axis.place(values) for axis in self.axes]


def place_of(array: Array, lines: Node) -> tuple[object, ...]:
    """What says that two arrays are one, whose boxes run along `lines`."""
    axes = tuple((axis.size, axis.stride, axis.ranges == (lines,)) for axis in array.axes)
    return (array.param, array.start, axes)


def array_of_factor(factor: Node, allowed: Sequence[Node]) -> Array | None:
    """The array of a factor that is a load, or a load inside of bounds and 0 outside of them.

    None where a copy engine could not take it; see `array_of`.
    """
    found = loaded_by(factor)
    return None if found is None else array_of(found[0].src[0], allowed, found[1])


def loaded_by(factor: Node) -> tuple[Node, list[Node]] | None:
    """The load of such a factor, and the conditions outside of which the factor is 0."""
    gates: list[Node] = []
    if factor.op is math.WHERE and factor.src[2] is const_bits(0, factor.type.dtype):
        gates = simplify.conjuncts(factor.src[0])
        factor = factor.src[1]
    if factor.op is not LOAD or factor.type.shape:
        return None
    if len(factor.src) > 1 and set(simplify.conjuncts(factor.src[1])) != set(gates):
        return None
    return factor, gates


def array_of(address: Node, allowed: Sequence[Node], gates: Sequence[Node] = ()) -> Array | None:
    """The array that an INDEX moves through, over ranges of fixed size; None if it is not affine.

    Also None where a copy engine could not take it: rows that do not start at multiples of 16
    bytes, more axes than it knows, or conditions that are no bounds of one axis.
    """
    found = any_array_of(address, allowed, gates)
    if found is None or len(found.axes) > _MOST_AXES:
        return None
    itemsize = found.dtype.itemsize
    first, *others = found.axes
    steps = [found.start, *(axis.stride for axis in others)]
    if any(step * itemsize % _ALIGNMENT_BYTES for step in steps):
        return None
    if first.stride != 1 or len(first.ranges) > 1:
        return None
    is_near = all(step <= _MOST_STEP for axis in found.axes for step in axis.steps)
    return found if is_near else None


def any_array_of(address: Node, allowed: Sequence[Node], gates: Sequence[Node]) -> Array | None:
    """`array_of`, whether or not a copy engine takes it; the axes are those of growing strides."""
    param, offset = address.src
    if param.op is not PARAM:
        return None
    start, total = simplify.terms(offset)
    for term, step in total.items():
        fixed = term.op is RANGE and term in allowed and least_size(term) == size(term)
        if not fixed or step <= 0:
            return None
    moving = sorted(
        ((term, step) for term, step in total.items() if size(term) > 1),
        key=lambda item: (item[1], int(item[0].attrs.number)),
    )
    axes = _bounded([_axis(group) for group in _groups(moving, gates)], gates)
    if not axes:
        return None
    start += sum(axis.low * axis.stride for axis in axes)
    return None if start < 0 else Array(param, start, tuple(axes))


def _groups(
    moving: Sequence[tuple[Node, int]], gates: Sequence[Node]
) -> list[list[tuple[Node, int]]]:
    """The ranges of each axis, with their steps in the buffer.

    Those that conditions bound together are one axis; so are others, by growing steps, of which the
    next goes less far than the last ones reach.
    """
    steps = dict(moving)
    bound: list[set[Node]] = []
    for gate in gates:
        own = {node for node in toposort(gate) if node in steps}
        touching = [other for other in bound if other & own]
        bound = [other for other in bound if not other & own] + [own.union(*touching)]
    groups = [[item for item in moving if item[0] in own] for own in bound if own]
    free = [item for item in moving if not any(item[0] in own for own in bound)]
    reach = 0
    last: list[tuple[Node, int]] = []
    for range_, step in free:
        if last and step <= reach and step % last[0][1] == 0:
            last.append((range_, step))
            reach += step * (size(range_) - 1)
        else:
            last, reach = [(range_, step)], step * (size(range_) - 1)
            groups.append(last)
    return sorted(groups, key=lambda group: group[0][1])


def _axis(group: Sequence[tuple[Node, int]]) -> Axis:
    stride = gcd(*(step for _, step in group))
    steps = tuple(step // stride for _, step in group)
    ranges = tuple(range_ for range_, _ in group)
    reach = sum(step * (size(range_) - 1) for range_, step in zip(ranges, steps, strict=True))
    return Axis(ranges, steps, 0, reach + 1, stride)


def _bounded(axes: Sequence[Axis], gates: Sequence[Node]) -> list[Axis] | None:
    """The axes within the bounds that conditions set; None if one is no bound of an axis."""
    found = list(axes)
    for gate in gates:
        if gate.op not in (math.LT, math.LE):
            return None
        constant, total = simplify.terms(simplify.sub(gate.src[0], gate.src[1]))
        constant -= gate.op is math.LE
        for position, axis in enumerate(found):  # sum of terms + constant < 0
            up = dict(zip(axis.ranges, axis.steps, strict=True))
            last = axis.low + axis.size - 1
            if total == up:
                found[position] = _cut(axis, axis.low, min(last, -constant - 1))
                break
            if total == {range_: -step for range_, step in up.items()}:
                found[position] = _cut(axis, max(axis.low, constant + 1), last)
                break
        else:
            return None
    return None if any(axis.size < 1 for axis in found) else found


def _cut(axis: Axis, low: int, last: int) -> Axis:
    return Axis(axis.ranges, axis.steps, low, last - low + 1, axis.stride)


def whole_rows(count: int) -> int:
    """As many elements of 16 bits as whole rows of slots hold; zeros come for those outside."""
    width = ROW_BYTES // 2
    return -(-count // width) * width


def plain_load(factor: Node) -> Node | None:
    """The load that a factor is, without its casts; None where it is gated or something else."""
    while factor.op is math.CAST:
        factor = factor.src[0]
    return factor if factor.op is LOAD and len(factor.src) == 1 else None
