"""What `from tinygrad.dtype import ...` gives."""

from __future__ import annotations

import functools
import math
import struct
from typing import Any, Final

from tilework import dtypes as own
from tilework import errors
from tilework.dtypes import DType
from tilework.ir.rules.casts import holds_every_value

DTypeLike = str | DType
ConstType = float | int | bool


class _DTypes:
    """The namespace `dtypes`: element types, groups of them, and questions about them."""

    bool: Final = own.bool_
    int8: Final = own.int8
    uint8: Final = own.uint8
    int16: Final = own.int16
    uint16: Final = own.uint16
    int32: Final = own.int32
    uint32: Final = own.uint32
    int64: Final = own.int64
    uint64: Final = own.uint64
    fp8e4m3: Final = own.fp8e4m3
    fp8e5m2: Final = own.fp8e5m2
    float16: Final = own.float16
    bfloat16: Final = own.bfloat16
    float32: Final = own.float32
    float64: Final = own.float64
    char: Final = own.int8
    uchar: Final = own.uint8
    short: Final = own.int16
    ushort: Final = own.uint16
    int: Final = own.int32
    uint: Final = own.uint32
    long: Final = own.int64
    ulong: Final = own.uint64
    half: Final = own.float16
    float: Final = own.float32
    double: Final = own.float64
    fp8_ocp: Final = (own.fp8e4m3, own.fp8e5m2)
    fp8s: Final = fp8_ocp
    floats: Final = (*fp8s, own.float16, own.bfloat16, own.float32, own.float64)
    int8s: Final = (own.uint8, own.int8)
    int16s: Final = (own.uint16, own.int16)
    int32s: Final = (own.uint32, own.int32)
    int64s: Final = (own.uint64, own.int64)
    uints: Final = (own.uint8, own.uint16, own.uint32, own.uint64)
    sints: Final = (own.int8, own.int16, own.int32, own.int64)
    ints: Final = uints + sints
    all: Final = (*floats, *ints, own.bool_)

    @property
    def default_float(self) -> DType:
        """What Python floats become."""
        return own.default_float

    @property
    def default_int(self) -> DType:
        """What Python integers become."""
        return own.default_int

    @staticmethod
    def is_float(x: DType) -> Any:
        """Whether it is a float of any format."""
        return x.is_float

    @staticmethod
    def is_int(x: DType) -> Any:
        """Whether it is an integer; bool is none."""
        return x.is_integer

    @staticmethod
    def is_unsigned(x: DType) -> Any:
        """Whether it is an unsigned integer."""
        return x.is_unsigned

    @staticmethod
    def is_bool(x: DType) -> Any:
        """Whether it is bool."""
        return x.is_bool

    @staticmethod
    def finfo(dtype: DType) -> tuple[Any, Any]:
        """The bits of exponent and mantissa of a float.

        Raises:
            DTypeError: it is no float.
        """
        if not dtype.is_float:
            raise errors.DTypeError("finfo: only floats have one", got=dtype.name)
        return dtype.exponent_bits, dtype.mantissa_bits

    @staticmethod
    def min(dtype: DType) -> Any:
        """The least value."""
        return -math.inf if dtype.is_float else dtype.minimum

    @staticmethod
    def max(dtype: DType) -> Any:
        """The greatest value."""
        return math.inf if dtype.is_float else dtype.maximum

    @staticmethod
    def from_py(x: Any) -> DType:
        """The dtype of a Python number, or of nested lists of them."""
        if isinstance(x, list | tuple):
            if not x:
                return own.default_float
            return least_upper_dtype(*[_DTypes.from_py(each) for each in x])
        if x is True or x is False:
            return own.bool_
        if isinstance(x, _PYTHON_INT):
            return own.default_int
        if isinstance(x, _PYTHON_FLOAT):
            return own.default_float
        raise errors.DTypeError("from_py: this is not a number", got=f"{x!r}")


_PYTHON_INT: Final = int
_PYTHON_FLOAT: Final = float

dtypes: Final = _DTypes()
DTYPES_DICT: Final = {dtype.name: dtype for dtype in _DTypes.all}


def to_dtype(dtype: DTypeLike) -> DType:
    """A dtype given by itself or by name.

    Raises:
        DTypeError: there is none of this name.
    """
    found = getattr(dtypes, dtype.lower(), None) if isinstance(dtype, str) else dtype
    if not isinstance(found, DType):
        raise errors.DTypeError("dtype: there is no dtype of this name", got=repr(dtype))
    return found


def least_upper_dtype(*ds: DType) -> DType:
    """The least dtype that values of all of these are promoted to."""
    return functools.reduce(own.promote, ds)


def least_upper_float(dt: DType) -> DType:
    """The float that values of `dt` are promoted to by functions that give floats."""
    return own.float_of(dt)


def can_lossless_cast(dt0: DType, dt1: DType) -> bool:
    """Whether each value of `dt0` is one of `dt1`."""
    return holds_every_value(dt1, dt0)


def float_to_fp16(x: float) -> float:
    """The next float16, as a Python float."""
    try:
        found: float = struct.unpack("e", struct.pack("e", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)
    return found


__all__ = [
    "DTYPES_DICT", "ConstType", "DType", "DTypeLike", "can_lossless_cast", "dtypes",
    "float_to_fp16", "least_upper_dtype", "least_upper_float", "to_dtype",
]  # fmt: skip
