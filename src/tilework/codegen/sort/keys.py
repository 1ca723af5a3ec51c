"""Order-preserving keys: unsigned integers that compare as the elements are to be sorted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.dtypes import DType, Kind, uint8, uint16, uint32, uint64
from tilework.ir.build import bitcast, cast, const_bits
from tilework.ir.ops import math

if TYPE_CHECKING:
    from tilework.ir.node import Node
    from tilework.ir.types import Shape

#: The dtype of the keys of so many bits.
UNSIGNED = {8: uint8, 16: uint16, 32: uint32, 64: uint64}


def key_bits(dtype: DType) -> int:
    """How many bits the keys of `dtype` have: 8, 16, 32 or 64."""
    return dtype.itemsize * 8


def sorting_key(element: Node, *, descending: bool) -> Node:
    """The key of an element (of each of a vector), an unsigned integer of its width.

    Negative floats have all bits flipped, others the sign, so that magnitudes ascend; -0.0 gets
    the key of +0.0 and every NaN the greatest one.  Descending keys are the complement.
    """
    dtype, shape = element.dtype, element.type.shape
    kind = UNSIGNED[key_bits(dtype)]
    if dtype.kind is Kind.BOOL:
        key = cast(element, kind)
    else:
        key = bitcast(element, kind)
        if dtype.kind is Kind.SIGNED:
            key = math.XOR(key, _number(1 << (dtype.bits - 1), kind, shape))
        elif dtype.kind is Kind.FLOAT:
            key = _float_key(key, dtype)
    if descending:
        key = math.XOR(key, _number((1 << kind.bits) - 1, kind, shape))
    return key


def sorted_element(key: Node, dtype: DType, *, descending: bool) -> Node:
    """An element of `dtype` that has a key: +0.0, and a NaN, where several have it."""
    kind, shape = key.dtype, key.type.shape
    if descending:
        key = math.XOR(key, _number((1 << kind.bits) - 1, kind, shape))
    if dtype.kind is Kind.BOOL:
        return cast(key, dtype)
    sign = _number(1 << (dtype.bits - 1), kind, shape)
    if dtype.kind is Kind.SIGNED:
        key = math.XOR(key, sign)
    elif dtype.kind is Kind.FLOAT:
        everything = _number((1 << dtype.bits) - 1, kind, shape)
        key = math.XOR(key, math.WHERE(math.LE(sign, key), sign, everything))
    return bitcast(key, dtype)


def shared_keys(dtype: DType, *, descending: bool) -> tuple[int, ...]:
    """The keys that elements of different bits may have: that of the zeros, that of NaN."""
    if dtype.kind is not Kind.FLOAT:
        return ()
    keys = (1 << (dtype.bits - 1), (1 << dtype.bits) - 1)
    flip = (1 << key_bits(dtype)) - 1 if descending else 0
    return tuple([key ^ flip for key in keys])


def _number(value: int, kind: DType, shape: Shape) -> Node:
    return const_bits(value, kind, shape)


def _float_key(raw: Node, dtype: DType) -> Node:
    kind, shape = raw.dtype, raw.type.shape
    sign = _number(1 << (dtype.bits - 1), kind, shape)
    everything = _number((1 << dtype.bits) - 1, kind, shape)
    if dtype.finite_only:
        largest = (1 << (dtype.bits - 1)) - 2
    else:
        largest = ((1 << dtype.exponent_bits) - 1) << dtype.mantissa_bits
    magnitude = math.AND(raw, _number((1 << (dtype.bits - 1)) - 1, kind, shape))
    is_negative = math.AND(math.LE(sign, raw), math.NE(raw, sign))
    key = math.WHERE(is_negative, math.XOR(raw, everything), math.OR(raw, sign))
    return math.WHERE(math.LT(_number(largest, kind, shape), magnitude), everything, key)
