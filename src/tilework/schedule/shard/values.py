"""What a value of a function becomes: one node on one device, or a part on each of several."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.ir.node import make
from tilework.ir.ops import math, memory, tensor
from tilework.ir.rules.casts import holds_every_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.dtypes import DType
    from tilework.ir.node import Node
    from tilework.ir.ops.multi import Layout

#: Ops whose result has as many elements as their source; of folds those of single elements.
_SAME_ELEMENTS = (tensor.RESHAPE, tensor.REDUCE)


class Single:
    """A value on one device ("" if any device can make it), and whether making it costs little."""

    __slots__ = ("device", "is_light", "node")

    def __init__(self, node: Node, device: str, is_light: bool) -> None:
        self.node = node
        self.device = device
        self.is_light = is_light


class Spread:
    """A value over several devices: the part of each.

    Where `groups` is given, the parts are folds of what each device had, and still to be folded
    with those of the other devices of its group.
    """

    __slots__ = ("dtype", "fold", "groups", "is_open", "layout", "parts")

    def __init__(self, layout: Layout, parts: Sequence[Node], *, is_open: bool = False) -> None:
        self.layout = layout
        self.parts = list(parts)
        self.fold: tensor.Fold | None = None
        self.dtype: DType | None = None  # of what the folded bits are
        self.groups: tuple[tuple[int, ...], ...] | None = None
        self.is_open = is_open  # made elementwise from a fold that need not be finished

    def finished(self, part: Node) -> Node:
        """What was folded, in its dtype."""
        if self.dtype is None or self.dtype is part.type.dtype:
            return part
        return make(math.BITCAST, (part,), math.CastAttrs(self.dtype))


Value = Single | Spread


def send_part(layout: Layout, part: Node, source: int, target: int) -> Node:
    """A part of the device of number `source` on that of number `target`."""
    return part if source == target else copied_to(part, layout.devices[target])


def copied_to(part: Node, device: str) -> Node:
    """A copy on another device; what came from there is not copied back.

    Where the same elements are in memory as they are, or in fewer bytes, those are copied instead,
    and what was made of them is made there: the same bits, and no kernel before the copy.
    """
    while part.op is tensor.COPY:
        source = part.src[0]
        if device_of(source) == device:
            return source
        part = source
    steps = _steps_from_fewer_bytes(part)
    copy = make(tensor.COPY, (steps[-1].src[0] if steps else part,), tensor.DeviceAttrs(device))
    for node in reversed(steps):
        copy = make(node.op, (copy, *node.src[1:]), node.attrs)
    return copy


def _steps_from_fewer_bytes(part: Node) -> list[Node]:
    """From a value down: how it was made of the same elements in memory, or in a narrower dtype."""
    found: list[Node] = []
    passed: list[Node] = []
    while part.op is math.CAST or part.op in _SAME_ELEMENTS:
        source = part.src[0]
        if part.op is tensor.REDUCE and any(
            source.type.shape[axis] != 1 for axis in part.attrs.axes
        ):
            break
        passed.append(part)
        if part.op is math.CAST:
            narrow, wide = source.type.dtype, part.type.dtype
            if narrow.bits >= wide.bits or not holds_every_value(wide, narrow):
                break
            found += passed
            passed = []
        part = source
    return found + passed if part.op is memory.PARAM else found


def device_of(part: Node) -> str:
    """The device of a lowered value; "" if any can make it."""
    stack, seen = [part], {part}
    while stack:
        node = stack.pop()
        if node.op is memory.PARAM or node.op is tensor.COPY:
            return str(node.attrs.device)
        for source in node.src:
            if source not in seen:
                seen.add(source)
                stack.append(source)
    return ""


def is_free(part: Node) -> bool:
    """Whether any device can make a lowered value."""
    return not device_of(part)
