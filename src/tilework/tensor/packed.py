"""Tensors of 4-bit integers and floats, of which two share a byte.

The first of two elements is the low half of a byte.  Where the last axis has an even size its
elements are packed, so that bytes keep the other axes; else all elements are packed as one row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilework import dtypes
from tilework.base.integers import ceil_div, product

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.dtypes import DType

_HALF_BITS = 4
_MASK = (1 << _HALF_BITS) - 1


def packed_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of the bytes that hold 4-bit elements of `shape`."""
    if shape and shape[-1] % 2 == 0:
        return (*shape[:-1], shape[-1] // 2)
    return (ceil_div(product(tuple(shape)), 2),)


def pack(values: Any, dtype: DType) -> Any:
    """The bytes that hold `values` in a packed dtype, as a tensor of uint8.

    Integers keep their value modulo 16; floats become integers toward zero and saturate, NaN gives
    0.  Into fp4e2m1 numbers are rounded to nearest even and saturate; NaN gives -0.
    """
    halves = _float_halves(values) if dtype.is_float else _integer_halves(values, dtype)
    shape = tuple(values._sizes())
    flat = halves
    if not shape or shape[-1] % 2:
        flat = halves.reshape(-1)
        if flat.shape[0] % 2:
            flat = flat.pad(((0, 1),))
    pairs = flat.reshape(*flat.shape[:-1], flat.shape[-1] // 2, 2)
    low, high = pairs[..., 0], pairs[..., 1]
    return (low | (high << _HALF_BITS)).reshape(packed_shape(shape))


def unpack(data: Any, dtype: DType, shape: Sequence[int]) -> Any:
    """The elements in bytes, in the dtype that they are computed with."""
    pairs = data.unsqueeze(-1).expand(*data.shape, 2)
    shift = (pairs._positions(pairs.ndim - 1) * _HALF_BITS).cast(dtypes.uint8)
    halves = (pairs >> shift) & _MASK
    count = product(tuple(shape))
    if packed_shape(shape) == (ceil_div(count, 2),) and (not shape or shape[-1] % 2):
        halves = halves.reshape(-1)[:count]
    halves = halves.reshape(tuple(shape))
    if dtype.is_float:
        return _float_of(halves)
    if dtype.is_unsigned:
        return halves
    # The sign bit of four counts -8.
    return ((halves ^ 8).cast(dtypes.int8) - 8).cast(dtypes.int8)


def _integer_halves(values: Any, dtype: DType) -> Any:
    x = values
    if x.dtype.is_float:
        x = x.cast(dtypes.int32).clamp(dtype.minimum, dtype.maximum)
    return x.cast(dtypes.uint8) & _MASK


def _float_halves(values: Any) -> Any:
    """The bits of fp4e2m1: sign, two of exponent, one of mantissa."""
    x = values if values.dtype is dtypes.float64 else values.cast(dtypes.float32)
    size = x.abs()
    # Between the limits lie the numbers that are rounded to 0, 0.5, 1, 1.5, 2, 3, 4 and 6; a
    # limit itself belongs to the even neighbour.
    code = (size > 0.25).cast(dtypes.uint8)
    for limit, takes_limit in ((0.75, 1), (1.25, 0), (1.75, 1), (2.5, 0), (3.5, 1), (5.0, 0)):
        is_above = (size >= limit) if takes_limit else (size > limit)
        code = code + is_above.cast(dtypes.uint8)
    is_nan = x.isnan()
    sign = (x.signbit() | is_nan).cast(dtypes.uint8) << (_HALF_BITS - 1)
    return is_nan.where(0, code) | sign


def _float_of(halves: Any) -> Any:
    """The float32 values of the bits of fp4e2m1."""
    code = halves & 7
    mantissa = (code & 1).cast(dtypes.float32)
    exponent = (code >> 1).cast(dtypes.int32)
    # 2 ** (exponent - 1) by its bits; the least exponent means 0 and 0.5.
    power = ((exponent + 126) << 23).bitcast(dtypes.float32)
    size = exponent.eq(0).where(mantissa * 0.5, power * (mantissa * 0.5 + 1))
    return (halves > 7).where(-size, size)
