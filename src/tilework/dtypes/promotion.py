"""The one promotion lattice: which dtype holds the result of an operation on two dtypes.

Rules (those of PyTorch, with NumPy's for unsigned integers wider than 8 bits): bool < integers <
floats; an integer with a float takes the float; a signed with an unsigned integer takes the next
wider signed one (int64 with uint64 takes float32, the default float); float16 with bfloat16, and
fp8 with another small float, take the least float that holds both.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from tilework.dtypes.table import (
    Kind,
    bfloat16,
    float16,
    float32,
    fp8e4m3,
    fp8e5m2,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint64,
)

if TYPE_CHECKING:
    from tilework.dtypes.table import DType

#: The float that an integer turns into where a float is needed (division, mean, exp).
default_float = float32
#: The dtype of a Python int.  A value that does not fit is kept in int64.
default_int = int32

_SIGNED_BY_BITS = {16: int16, 32: int32, 64: int64}


@cache
def promote(a: DType, b: DType) -> DType:
    """The dtype that holds values of both `a` and `b`.

    Example:
        >>> from tilework import dtypes
        >>> dtypes.promote(dtypes.int32, dtypes.float16)
        dtypes.float16
    """
    if a.is_packed or b.is_packed:
        return _promote_packed(a, b)
    if a is b:
        return a
    if a.kind is Kind.BOOL:
        return b
    if b.kind is Kind.BOOL:
        return a
    if a.is_float and b.is_float:
        return _promote_floats(a, b)
    if a.is_float or b.is_float:
        return a if a.is_float else b
    if a.kind is b.kind:
        return a if a.bits > b.bits else b
    signed, unsigned = (a, b) if a.is_signed else (b, a)
    if signed.bits > unsigned.bits:
        return signed
    return _SIGNED_BY_BITS.get(unsigned.bits * 2, default_float)


def value_dtype(dtype: DType) -> DType:
    """The dtype in which values of `dtype` are computed with: another one for packed dtypes."""
    if not dtype.is_packed:
        return dtype
    return float32 if dtype.is_float else int8 if dtype.is_signed else uint8


def _promote_packed(a: DType, b: DType) -> DType:
    """Packed dtypes count as the dtype of their values; a packed float as the least of floats."""
    if a.is_float and b.is_float and not (a.is_packed and b.is_packed):
        return b if a.is_packed else a
    return promote(value_dtype(a), value_dtype(b))


def _promote_floats(a: DType, b: DType) -> DType:
    low, high = sorted((a, b), key=lambda dtype: dtype.rank)
    if low is float16 and high is bfloat16:
        return float32
    if low is fp8e4m3 and high is fp8e5m2:
        return float16
    return high


def sum_dtype(dtype: DType) -> DType:
    """The dtype of a sum or product of `dtype` values: integers widen, so that none wraps.

    bool and signed integers go to int64, unsigned ones to uint64, as NumPy and PyTorch do; floats
    keep their dtype (they accumulate wider inside).
    """
    if dtype.kind is Kind.BOOL or dtype.is_signed:
        return int64
    if dtype.is_unsigned:
        return uint64
    return dtype


def accumulation_dtype(dtype: DType) -> DType:
    """The dtype in which a reduction of `dtype` values adds up: float32 for smaller floats."""
    if dtype.is_float and dtype.bits < 32:
        return float32
    return dtype


def float_of(dtype: DType) -> DType:
    """`dtype` if it is a float, else the default float."""
    return dtype if dtype.is_float else default_float


def smallest_int(value: int) -> DType:
    """The dtype of the Python integer `value`: int32 where it fits, else int64, else uint64.

    Raises OverflowError for a value outside of all of them.
    """
    if int32.minimum <= value <= int32.maximum:
        return int32
    if int64.minimum <= value <= int64.maximum:
        return int64
    if 0 <= value <= uint64.maximum:
        return uint64
    raise OverflowError(f"the integer {value} fits no dtype (largest: uint64)")


__all__ = [
    "accumulation_dtype",
    "default_float",
    "default_int",
    "float_of",
    "promote",
    "smallest_int",
    "sum_dtype",
]
