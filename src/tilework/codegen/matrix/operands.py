"""Factors of a contraction as boxes: what a copy engine can move, and how it then lies in a slot.

A factor qualifies if it is a load of a buffer at an affine position: every range moves it by a
fixed number of elements.  The ranges are the axes of an array; one of them has its elements side
by side, along k or along the factor's own range, which decides the layout in TILE memory.  Casts
that keep every value stay outside: matrix instructions take the narrow dtype.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilework.codegen.plan.extents import least_size, size
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE
from tilework.ir.ops.matrix import BoxedAttrs
from tilework.ir.ops.memory import LOAD, PARAM
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.dtypes import DType
    from tilework.ir.node import Node

#: Bytes of one row of a slot: the width of the widest swizzle.
ROW_BYTES = 128
#: Copy engines want the start of an array and its strides in multiples of this.
_ALIGNMENT_BYTES = 16
_MOST_AXES = 5


@dataclass(frozen=True, slots=True)
class Array:
    """A buffer as an array over ranges: `ranges[i]` moves by `strides[i]`, the first by 1."""

    param: Node
    start: int
    ranges: tuple[Node, ...]
    strides: tuple[int, ...]

    @property
    def dtype(self) -> DType:
        """The dtype in memory."""
        return self.param.type.dtype


def array_of(address: Node, allowed: Sequence[Node]) -> Array | None:
    """The array that an INDEX moves through, over ranges of fixed size; None if it is not affine.

    Also None where a copy engine could not take it: rows that do not start at multiples of 16
    bytes, or more axes than it knows.
    """
    param, offset = address.src
    if param.op is not PARAM:
        return None
    start, total = simplify.terms(offset)
    axes = sorted(
        total.items(),
        key=lambda item: (item[1], item[0].attrs.number if item[0].op is RANGE else 0),
    )
    for term, stride in axes:
        fixed = term.op is RANGE and term in allowed and least_size(term) == size(term)
        if not fixed or stride <= 0:
            return None
    axes = [(term, stride) for term, stride in axes if size(term) > 1]
    if not axes or len(axes) > _MOST_AXES or axes[0][1] != 1:
        return None
    itemsize = param.type.dtype.itemsize
    steps = [start, *(stride for _, stride in axes[1:])]
    if start < 0 or any(step * itemsize % _ALIGNMENT_BYTES for step in steps):
        return None
    return Array(param, start, tuple(term for term, _ in axes), tuple(s for _, s in axes))


@dataclass(frozen=True, slots=True)
class Operand:
    """One factor in a ring of slots.

    Attributes:
        array: What it is copied from.
        own: Its range of m or n that is tiled.
        inner: The range of k that is tiled.
        rows: How many values of `own` a slot holds.
        depth: How many values of `inner` a slot holds: one row of bytes.
    """

    array: Array
    own: Node
    inner: Node
    rows: int
    depth: int

    @property
    def along_k(self) -> bool:
        """Do neighbours along k lie side by side?"""
        return self.array.ranges[0] is self.inner

    @property
    def width(self) -> int:
        """Elements in one row of a slot."""
        return ROW_BYTES // self.array.dtype.itemsize

    @property
    def chunks(self) -> int:
        """Copies that fill one slot."""
        return 1 if self.along_k else -(-self.rows // self.width)

    @property
    def chunk_elements(self) -> int:
        """Elements of one copy."""
        return (self.rows if self.along_k else self.depth) * self.width

    @property
    def slot_elements(self) -> int:
        """Elements of one slot."""
        return self.chunks * self.chunk_elements

    @property
    def chunk_bytes(self) -> int:
        """From one chunk of a slot to the next; 0 where all of it is one."""
        return 0 if self.along_k else self.chunk_elements * self.array.dtype.itemsize

    def boxed(self) -> BoxedAttrs:
        """The description of the array for the copy engine."""
        other = self.rows if self.along_k else self.depth
        box = []
        for position, range_ in enumerate(self.array.ranges):
            if position == 0:
                box.append(self.width)
            else:
                box.append(other if range_ in (self.own, self.inner) else 1)
        sizes = tuple(size(range_) for range_ in self.array.ranges)
        return BoxedAttrs(self.array.start, sizes, self.array.strides, tuple(box), ROW_BYTES)

    def row_offset(self, row: int) -> int:
        """By how many elements row `row` (a multiple of the width, or along k of 8) is further."""
        return row // self.width * self.chunk_elements if not self.along_k else row * self.width

    def depth_offset(self, position: int) -> int:
        """By how many elements position `position` of k is further."""
        return position if self.along_k else position * self.width


def operand_of(
    factor: Node, own: tuple[Node, ...], k: tuple[Node, ...], others: Sequence[Node]
) -> tuple[Array, Node] | None:
    """The array of a factor and the range of k to be tiled; None if it cannot be moved in boxes."""
    while factor.op is math.CAST and _is_exact(factor.src[0].type.dtype, factor.type.dtype):
        factor = factor.src[0]
    if factor.op is not LOAD or len(factor.src) > 1 or factor.type.shape:
        return None
    array = array_of(factor.src[0], [*own, *k, *others])
    if array is None or own[-1] not in array.ranges:
        return None
    if not all(range_ in array.ranges or size(range_) == 1 for range_ in k):
        return None
    first = array.ranges[0]
    if first in k:
        return array, first
    return (array, k[-1]) if first is own[-1] else None


def _is_exact(narrow: DType, wide: DType) -> bool:
    """Does a cast keep every value?"""
    if narrow.is_float and wide.is_float:
        return (
            narrow.exponent_bits <= wide.exponent_bits
            and narrow.mantissa_bits <= wide.mantissa_bits
        )
    if narrow.is_integer and wide.is_integer:
        return wide.minimum <= narrow.minimum and narrow.maximum <= wide.maximum
    return False
