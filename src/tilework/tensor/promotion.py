"""How operands of an operation are brought to one dtype and one shape."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tilework import dtypes
from tilework.base.errors import DTypeError, ShapeError
from tilework.dtypes import DType, promote
from tilework.tensor.variable import format_shape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.ir.types import Dim, Shape

Number = bool | int | float


def dtype_of_number(value: Number) -> DType:
    """The dtype that a Python number has by itself.

    Raises:
        DTypeError: an integer that fits no dtype.
    """
    if isinstance(value, bool):
        return dtypes.bool_
    if isinstance(value, int):
        try:
            return dtypes.smallest_int(value)
        except OverflowError as error:
            raise DTypeError(
                "the integer fits no dtype", got=value, expected="at most 64 bits"
            ) from error
    return dtypes.default_float


def dtype_with_number(dtype: DType, value: Number, what: str) -> DType:
    """The dtype of an operation on a tensor of `dtype` and a Python number.

    The number is weak: it takes the tensor's dtype, unless it is a float and the tensor is not, or
    an integer that does not fit.  No integer ever wraps.

    Raises:
        DTypeError: an integer that fits no dtype together with the tensor's values.
    """
    dtype = dtypes.value_dtype(dtype) if dtype.is_packed else dtype
    if isinstance(value, bool) or dtype.is_float:
        return dtype
    if isinstance(value, float):
        return dtypes.default_float
    if dtype.is_bool:
        return dtype_of_number(value)
    if dtype.minimum <= value <= dtype.maximum:
        return dtype
    wider = dtypes.int64
    if dtype is dtypes.uint64 or not wider.minimum <= value <= wider.maximum:
        raise DTypeError(
            f"{what}: the integer does not fit",
            got=f"{value} with a tensor of {dtype.name}",
            expected=f"{dtype.minimum} to {dtype.maximum}",
            try_="cast the tensor to a float first",
        )
    return wider


def check_fits(dtype: DType, value: Number, what: str) -> None:
    """Refuse to store a number in a dtype that would change it in silence.

    Raises:
        DTypeError: an integer outside of the dtype's range, or a fraction into integers.
    """
    if dtype.is_float or isinstance(value, bool):
        return
    if isinstance(value, float) and (not math.isfinite(value) or value != int(value)):
        raise DTypeError(
            f"{what}: the number is not an integer",
            got=f"{value!r} into {dtype.name}",
            try_="round it, or cast the tensor to a float first",
        )
    if not dtype.minimum <= int(value) <= dtype.maximum:
        raise DTypeError(
            f"{what}: the number does not fit",
            got=f"{value!r} into {dtype.name}",
            expected=f"{dtype.minimum} to {dtype.maximum}",
        )


def check_same_kind(source: DType, target: DType, what: str) -> None:
    """Refuse a write that would turn floats into integers, or numbers into bool, in silence.

    Raises:
        DTypeError: the kinds differ.
    """
    if promote(source, target).kind is target.kind:
        return
    if source.is_integer and target.is_integer:
        return
    raise DTypeError(
        f"{what}: the value's dtype does not fit",
        got=f"{source.name} into {target.name}",
        try_=f"cast it: value.cast(dtypes.{target.name})",
    )


def broadcast_shapes(shapes: Sequence[Shape], what: str) -> Shape:
    """The shape that all `shapes` grow to: axes are matched from the end, 1 fits anything.

    Raises:
        ShapeError: two sizes of one axis differ and none is 1.
    """
    first = shapes[0]
    if all(shape == first for shape in shapes):
        return first
    ndim = max([len(shape) for shape in shapes])
    result: list[Dim] = []
    for position in range(-ndim, 0):
        size: Dim = 1
        for shape in shapes:
            if -position > len(shape):
                continue
            own = shape[position]
            if own is size or own == size or own == 1:
                continue
            if size != 1:
                raise ShapeError(
                    f"{what}: the shapes don't fit",
                    got=" and ".join([format_shape(shape) for shape in shapes]),
                    expected="sizes that are equal or 1, matched from the last axis",
                    try_="reshape one operand, for example with unsqueeze",
                )
            size = own
        result.append(size)
    return tuple(result)
