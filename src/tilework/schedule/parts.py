"""Views that are one contiguous part of their buffer: such a part is a buffer of its own.

A kernel that reads the part through its own argument doesn't know where the part starts, so the
same code serves `x[0:32]`, `x[32:64]` and any buffer of that size.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Final

from tilework.base.records import dataclass
from tilework.ir.ops.memory import AFTER, BUFFER
from tilework.ir.ops.tensor import DETACH, PERMUTE, RESHAPE, SHRINK

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tilework.ir.node import Attrs, Node, OpDef

#: More parts of one buffer than this stay views of it, as a kernel takes few arguments.
MOST_PARTS: Final = 4


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the elements of a view lie in its buffer, counted in elements."""

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def count(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie side by side in row-major order; an empty view does not."""
        expected = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size != 1 and stride != expected:
                return False
            expected *= size
        return expected > 0


def whole(shape: Sequence[Any]) -> Layout | None:
    """Return the layout of a buffer seen as it is; None where a size is symbolic."""
    if not all(isinstance(size, int) for size in shape):
        return None
    return Layout(0, tuple(shape), _row_major(shape))


def follow(layout: Layout, op: OpDef, attrs: Any) -> Layout | None:
    """Return the layout after one more movement op; None where it has none of this kind."""
    if op is RESHAPE:
        return _reshaped(layout, attrs.shape)
    if op is SHRINK:
        return _shrunk(layout, attrs.bounds)
    if op is PERMUTE:
        return Layout(
            layout.offset,
            tuple([layout.shape[axis] for axis in attrs.axes]),
            tuple([layout.strides[axis] for axis in attrs.axes]),
        )
    return layout if op is DETACH else None


def longest_part(
    shape: Sequence[Any], chain: Sequence[tuple[OpDef, Attrs | None]]
) -> tuple[int, Layout] | None:
    """Return how many ops of `chain` over a buffer show a contiguous part, and which part.

    None where sizes are symbolic.  A DETACH ends it: what follows has another gradient.
    """
    layout = whole(shape)
    if layout is None or not layout.is_contiguous:
        return None
    best = (0, layout)
    for number, (op, attrs) in enumerate(chain):
        following = None if op is DETACH else follow(layout, op, attrs)
        if following is None:
            break
        layout = following
        if layout.is_contiguous:
            best = (number + 1, layout)
    return best


def find_parts(order: Iterable[Node], outputs: Sequence[Node]) -> dict[Node, tuple[Node, Layout]]:
    """Return the nodes that can be buffers of their own: of which buffer, and where they lie.

    Args:
        order: all nodes of a graph, sources first.
        outputs: its outputs, which stay as they are.
    """
    layouts: dict[Node, tuple[Node, Layout]] = {}
    parts: dict[Node, tuple[Node, Layout]] = {}
    written: set[Node] = set()
    for node in order:
        if node.op is BUFFER:
            all_of_it = whole(node.type.shape)
            if all_of_it is not None:
                layouts[node] = (node, all_of_it)
        elif node.op is AFTER:
            written.add(_place_written(node))
        elif node.src and node.src[0] in layouts:
            base, before = layouts[node.src[0]]
            after = follow(before, node.op, node.attrs)
            if after is not None:
                layouts[node] = (base, after)
                if after.is_contiguous and after.count < layouts[base][1].count:
                    parts[node] = (base, after)
    if not parts:
        return parts
    ends = {id(output) for output in outputs}
    places: dict[Node, set[tuple[int, int]]] = {}
    for base, layout in parts.values():
        places.setdefault(base, set()).add((layout.offset, layout.count))
    return {
        node: (base, layout)
        for node, (base, layout) in parts.items()
        if base not in written and id(node) not in ends and len(places[base]) <= MOST_PARTS
    }


def _place_written(node: Node) -> Node:
    while node.op is not BUFFER and node.src:
        node = node.src[0]
    return node


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    strides: list[int] = []
    stride = 1
    for size in reversed(shape):
        strides.append(stride)
        stride *= size
    return tuple(reversed(strides))


def _reshaped(layout: Layout, shape: Sequence[Any]) -> Layout | None:
    if not all(isinstance(size, int) for size in shape):
        return None
    if layout.is_contiguous:
        return Layout(layout.offset, tuple(shape), _row_major(shape))
    long = [row for row in zip(layout.shape, layout.strides, strict=True) if row[0] != 1]
    if [size for size, _ in long] != [size for size in shape if size != 1]:
        return None
    strides = iter([stride for _, stride in long])
    return Layout(
        layout.offset, tuple(shape), tuple([0 if size == 1 else next(strides) for size in shape])
    )


def _shrunk(layout: Layout, bounds: Sequence[tuple[Any, Any, int]]) -> Layout | None:
    offset = layout.offset
    shape: list[int] = []
    strides: list[int] = []
    for (start, stop, step), stride in zip(bounds, layout.strides, strict=True):
        if not isinstance(start, int) or not isinstance(stop, int):
            return None
        offset += start * stride
        shape.append(max(0, -(-(stop - start) // step)))
        strides.append(stride * step)
    return Layout(offset, tuple(shape), tuple(strides))
