"""Factors of a contraction as boxes: what a copy engine can move, and how it then lies in a slot.

A factor qualifies if it is a load of a buffer at an affine position (`arrays`).  One axis of the
array has its elements side by side, along k or along the factor's own range, which decides the
layout in TILE memory.  A slot's rows are a box of the factor's own ranges: of one range, or of
several (the pixels of some images), as far as rows lie along k.  Casts that keep every value stay
outside: matrix instructions take the narrow dtype.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from tilework.base.records import dataclass
from tilework.codegen.analysis import stride
from tilework.codegen.matrix.arrays import ROW_BYTES, Array, array_of_factor
from tilework.codegen.plan.extents import ceil_div, least_size, size
from tilework.dtypes import decode, encode
from tilework.ir.build import cast, const_bits
from tilework.ir.node import toposort
from tilework.ir.ops import math
from tilework.ir.ops.memory import LOAD
from tilework.ir.ops.tensor import REDUCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.codegen.plan.contraction import Contraction
    from tilework.dtypes import DType
    from tilework.ir.node import Node
    from tilework.ir.ops.matrix import BoxedAttrs


class InRows:
    """A factor of a product whose elements lie in rows of a slot."""

    __slots__ = ()

    #: The factor without casts that keep every value.
    value: Node

    @property
    def dtype(self) -> DType:
        """The dtype in a slot."""
        return self.value.type.dtype

    @property
    def width(self) -> int:
        """Elements in one row of a slot."""
        return ROW_BYTES // self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Operand(InRows):
    """One factor in a ring of slots.

    Attributes:
        value: The factor without casts that keep every value.
        array: What it is copied from; None if threads fill its slots.
        own: Its ranges of m or n that are tiled; the first moves fastest.
        inner: The range of k that is tiled.
        along_k: Do neighbours along k lie side by side?
        parts: How many values of each range of `own` a slot holds.
        depth: How many values of `inner` a slot holds: one row of bytes.
    """

    value: Node
    array: Array | None
    own: tuple[Node, ...]
    inner: Node
    along_k: bool
    parts: tuple[int, ...] = ()
    depth: int = 0

    @property
    def rows(self) -> int:
        """Rows of a slot: one for each combination of values of `own`."""
        return prod(self.parts)

    @property
    def tiles(self) -> int:
        """How many parts cover all rows."""
        pairs = zip(self.own, self.parts, strict=True)
        return prod(ceil_div(size(range_), part) for range_, part in pairs)

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
        return 0 if self.along_k else self.chunk_elements * self.dtype.itemsize

    def boxed(self, array: Array) -> BoxedAttrs:
        """The description of the array for the copy engine."""
        extents = dict(zip(self.own, self.parts, strict=True)) | {self.inner: self.depth}
        first = array.axes[0].ranges[0]
        return array.boxed(extents | {first: self.width}, ROW_BYTES)

    def row_offset(self, row: int) -> int:
        """By how many elements row `row` (a multiple of the width, or along k of 8) is further."""
        return row // self.width * self.chunk_elements if not self.along_k else row * self.width

    def depth_offset(self, position: int) -> int:
        """By how many elements position `position` of k is further."""
        return position if self.along_k else position * self.width


def is_plain_product(contraction: Contraction) -> bool:
    """Is this one sum of products, over ranges of known sizes, that a matrix unit may add up?"""
    ranges = [*contraction.m, *contraction.n, *contraction.k, *contraction.batch]
    if any(least_size(r) != size(r) or size(r) < 1 for r in ranges):
        return False
    return not contraction.corrections and contraction.reduce.src[0].op is math.MUL


def operands_of(contraction: Contraction) -> tuple[Operand, Operand] | None:
    """Both factors, of one narrow dtype and with one range of k to be tiled; None if they differ.

    A factor is copied in boxes where a copy engine can do that; threads fill the slots of others:
    of arrays whose rows start anywhere, of gathers, and of what is computed.
    """
    k, others = contraction.k, contraction.batch
    factors = of_one_dtype(narrowed(contraction.a), narrowed(contraction.b))
    if factors is None:
        return None
    owns = (contraction.m, contraction.n)
    arrays = [_array(*pair, k, others) for pair in zip(factors, owns, strict=True)]
    inner = next((found[1] for found in arrays if found is not None), None)
    if inner is None:
        inner = _nearest(factors, k)
    first, second = (
        _operand(factor, own, inner, found)
        for factor, own, found in zip(factors, owns, arrays, strict=True)
    )
    return None if first is None or second is None else (first, second)


def _operand(
    value: Node, own: tuple[Node, ...], inner: Node, found: tuple[Array, Node] | None
) -> Operand | None:
    """A factor that is copied if its array suits the range of k, else filled."""
    only_k = value.type.dtype.itemsize != 2  # matrix units transpose elements of 16 bits alone
    last = own[-1]
    if found is not None and found[1] is inner:
        array = found[0]
        along_k = array.axes[0].ranges[0] is inner
        if along_k:
            return Operand(value, array, _tiled(array, own), inner, along_k)
        if not only_k and array.axes[0].ranges[0] is last:
            return Operand(value, array, (last,), inner, along_k)
    loads = [node for node in toposort(value) if node.op is LOAD]
    if any(node.op is REDUCE for node in toposort(value)) or value.type.shape or not loads:
        return None
    is_across = all(stride(load.src[0].src[1], last) == 1 for load in loads)
    return Operand(value, None, (last,), inner, only_k or not is_across)


def _tiled(array: Array, own: Sequence[Node]) -> tuple[Node, ...]:
    """The ranges of which a slot may hold several values: one of each axis, the fastest first."""
    found = []
    for axis in array.axes:
        mine = [range_ for range_ in axis.ranges if range_ in own]
        found += mine[:1]
    return tuple(found)


def _nearest(factors: Sequence[Node], k: Sequence[Node]) -> Node:
    """The range of k that fills rows of slots best, and then that along which most loads move by 1.

    Those of a convolution over a window are short, so that channels are taken.
    """
    loads = [node for factor in factors for node in toposort(factor) if node.op is LOAD]
    width = ROW_BYTES // factors[0].type.dtype.itemsize

    def rank(range_: Node) -> tuple[float, int]:
        extent = size(range_)
        rows = -(-extent // width)
        near = sum(stride(load.src[0].src[1], range_) == 1 for load in loads)
        return extent / (rows * width), near

    return max(reversed(k), key=rank)


def of_one_dtype(first: Node, second: Node) -> tuple[Node, Node] | None:
    """Both factors in the dtype of one that keeps every value of the other; None if neither does.

    Weights of 8 bits beside activations of 16 are widened as slots are filled.
    """
    kinds = (first.type.dtype, second.type.dtype)
    if kinds[0] is kinds[1]:
        return first, second
    if _is_exact(kinds[1], kinds[0]):
        return first, cast(second, kinds[0])
    if _is_exact(kinds[0], kinds[1]):
        return cast(first, kinds[1]), second
    return None


def narrowed(factor: Node) -> Node:
    """A factor without casts that keep every value; choices between values are of narrow ones."""
    while factor.op is math.CAST and _is_exact(factor.src[0].type.dtype, factor.type.dtype):
        factor = factor.src[0]
    if factor.op is not math.WHERE:
        return factor
    condition, *choices = factor.src
    inside = [narrowed(choice) for choice in choices]
    for place in (0, 1):
        kind = inside[place].type.dtype
        other = inside[1 - place]
        same = _as_constant(other, kind) if other.op is math.CONST else other
        if same is not None and same.type.dtype is kind and kind is not factor.type.dtype:
            inside[1 - place] = same
            return math.WHERE(condition, *inside)
    return factor


def _as_constant(node: Node, dtype: DType) -> Node | None:
    """A literal in another dtype; None if its value is changed."""
    value = decode(node.attrs.bits, node.type.dtype)
    if not (dtype.is_float and node.type.dtype.is_float) or value != value:
        return None
    bits = encode(value, dtype)
    return const_bits(bits, dtype) if decode(bits, dtype) == value else None


def _array(
    factor: Node, own: tuple[Node, ...], k: tuple[Node, ...], others: Sequence[Node]
) -> tuple[Array, Node] | None:
    """The array of a factor and the range of k to be tiled; None if it cannot be moved in boxes."""
    array = array_of_factor(factor, [*own, *k, *others])
    if array is None or not any(range_ in array.ranges for range_ in own):
        return None
    if not all(range_ in array.ranges or size(range_) == 1 for range_ in k):
        return None
    first = array.axes[0].ranges[0]
    if first in k:
        return array, first
    return (array, k[-1]) if first is own[-1] and _has_axis(array, k[-1]) else None


def _has_axis(array: Array, range_: Node) -> bool:
    return any(axis.ranges == (range_,) for axis in array.axes)


def _is_exact(narrow: DType, wide: DType) -> bool:
    """Does a cast keep every value?"""
    if narrow.is_float and wide.is_float:
        return (
            narrow.exponent_bits <= wide.exponent_bits
            and narrow.mantissa_bits <= wide.mantissa_bits
        )
    if narrow.is_integer and wide.is_integer:
        return wide.minimum <= narrow.minimum and narrow.maximum <= wide.maximum
    if narrow.is_integer and wide.is_float:
        return max(-narrow.minimum, narrow.maximum) <= 1 << (wide.mantissa_bits + 1)
    return False
