"""Factors of a sum of products that are narrow integers and an offset: quantised numbers.

    where(inside, int32(x) - point, 0)  ->  int32(where(inside, x, point)) - point

The offset does not vary along the sum, so that products of such factors are those of the narrow
integers, and sums of one factor alone:

    sum (a + p) (b + q)  ->  sum a b + p sum b + q sum a + count p q

All of it is exact modulo 2**32, as the sum that was written is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilework.base.records import dataclass, replace
from tilework.dtypes import bfloat16, int8, int16, int32, uint8, uint16, uint32
from tilework.ir.build import bitcast, cast, const_bits
from tilework.ir.ops import math
from tilework.ir.ops.memory import LOAD

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tilework.codegen.analysis import Kernel
    from tilework.dtypes import DType
    from tilework.ir.node import Node

_NARROW: Final = frozenset({int8, uint8, int16})
_WIDE: Final = frozenset({int32, uint32})
_SIGN_BIT: Final = 0x80
_INT16: Final = (-(1 << 15), (1 << 15) - 1)


@dataclass(frozen=True, slots=True)
class OffsetFactor:
    """A factor, modulo 2**32.

    Attributes:
        whole: The factor as it was written.
        narrow: A narrow integer.
        constant: What is added to it, as far as that is known now.
        others: What is added (True) or subtracted (False) besides: 32 bits, or narrow integers.
        flips: Whether the highest bit of `narrow`, a byte, is flipped before all that.
    """

    whole: Node
    narrow: Node
    constant: int = 0
    others: tuple[tuple[bool, Node], ...] = ()
    flips: bool = False

    @property
    def is_signed(self) -> bool:
        """Are the integers that are multiplied signed?"""
        is_signed: bool = self.narrow.dtype.is_signed
        return is_signed != self.flips

    @property
    def is_bytes(self) -> bool:
        """Are they of eight bits?"""
        bits: int = self.narrow.dtype.bits
        return bits == 8

    @property
    def has_offset(self) -> bool:
        """Is anything added?"""
        return bool(self.constant or self.others)

    def flipped(self) -> OffsetFactor:
        """The same factor, of bytes of the other signedness."""
        shift = -_SIGN_BIT if self.is_signed else _SIGN_BIT
        return replace(self, flips=not self.flips, constant=self.constant + shift)

    def offset(self) -> Node:
        """What is added, as int32."""
        total = const_bits(self.constant & 0xFFFF_FFFF, int32)
        for is_added, node in self.others:
            total = (math.ADD if is_added else math.SUB)(total, cast(node, int32))
        return total

    def as_int16(self) -> Node | None:
        """The factor as an integer of 16 bits or fewer; None where it may be a wider one."""
        if not self.has_offset:
            return self.narrow
        found = self.interval()
        is_short = found is not None and _INT16[0] <= found[0] and found[1] <= _INT16[1]
        return cast(self.whole, int32) if is_short else None

    def interval(self) -> tuple[int, int] | None:
        """The least and the greatest that the factor may be; None where it may be of 32 bits."""
        low = self.narrow.dtype.minimum + self.constant
        high = self.narrow.dtype.maximum + self.constant
        for is_added, node in self.others:
            if node.dtype.bits > 16:
                return None
            least, most = node.dtype.minimum, node.dtype.maximum
            low, high = (low + least, high + most) if is_added else (low - most, high - least)
        return low, high


def offset_factor(kernel: Kernel, k: Iterable[Node], factor: Node) -> OffsetFactor | None:
    """A factor as a narrow integer and an offset that does not vary along the summed ranges `k`."""
    summed = 0
    for range_ in k:
        summed |= kernel.free.bit(range_)
    node = factor
    gate: Node | None = None
    #: What is added outside of the gate, and inside.
    outside, found = OffsetFactor(factor, factor), OffsetFactor(factor, factor)
    while not (node.op is math.CAST and node.src[0].dtype in _NARROW):
        if node.op is math.CAST and node.src[0].dtype in _WIDE:
            node = node.src[0]
            continue
        if node.op is math.WHERE and _integer(node.src[2]) == 0 and gate is None:
            gate, node = node.src[0], node.src[1]
            outside, found = found, OffsetFactor(factor, factor)
            continue
        if node.op not in (math.ADD, math.SUB):
            return None
        first, second = node.src
        if node.op is math.ADD and not kernel.free.mask[first] & summed:
            first, second = second, first
        if kernel.free.mask[second] & summed:
            return None
        found, node = _with(found, second, is_added=node.op is math.ADD), first
    narrow = node.src[0] if gate is None else _filled(gate, node.src[0], found)
    if narrow is None:
        return None
    constant = found.constant + outside.constant
    return OffsetFactor(factor, narrow, constant, found.others + outside.others)


def float_factor(factor: Node) -> OffsetFactor | None:
    """A float32 factor that is a bfloat16: its bits, which words take as they are; else None."""
    gate: Node | None = None
    if factor.op is math.WHERE and _is_zero(factor.src[2]):
        gate, factor = factor.src[:2]
    if factor.op is not math.CAST or factor.src[0].dtype is not bfloat16:
        return None
    bits = bitcast(factor.src[0], uint16)
    narrow = bits if gate is None else math.WHERE(gate, bits, const_bits(0, uint16))
    return OffsetFactor(factor, narrow)


def _is_zero(node: Node) -> bool:
    """A literal zero that is positive."""
    return node.op is math.CONST and node.attrs.bits == 0


def _with(found: OffsetFactor, node: Node, *, is_added: bool) -> OffsetFactor:
    """What is added, and one thing more."""
    value = _integer(node)
    if value is not None:
        return replace(found, constant=found.constant + (value if is_added else -value))
    if node.op is math.CAST and node.src[0].dtype in _NARROW:
        node = node.src[0]
    return replace(found, others=(*found.others, (is_added, node)))


def _filled(gate: Node, narrow: Node, inside: OffsetFactor) -> Node | None:
    """The narrow integer that with its offset makes 0 where a gate is shut; None if none does."""
    fill = _opposite(inside, narrow.dtype)
    if fill is None:
        return None
    is_gated = narrow.op is LOAD and len(narrow.src) > 1 and narrow.src[1] is gate
    return narrow if is_gated and _integer(fill) == 0 else math.WHERE(gate, narrow, fill)


def _opposite(offset: OffsetFactor, dtype: DType) -> Node | None:
    """What an offset makes 0, in a narrow dtype."""
    if not offset.others:
        value = -offset.constant
        if not dtype.minimum <= value <= dtype.maximum:
            return None
        return const_bits(value & ((1 << dtype.bits) - 1), dtype)
    (is_added, node), *more = offset.others
    return None if more or is_added or offset.constant or node.dtype is not dtype else node


def _integer(node: Node) -> int | None:
    """The value of an integer constant, perhaps cast to a wider dtype."""
    while node.op is math.CAST and node.dtype.bits > node.src[0].dtype.bits:
        node = node.src[0]
    dtype: DType = node.dtype
    if node.op is not math.CONST or dtype.is_float or node.type.shape != ():
        return None
    bits = int(node.attrs.bits) & ((1 << dtype.bits) - 1)
    return bits - (1 << dtype.bits) if dtype.is_signed and bits >> (dtype.bits - 1) else bits
