"""Element types: the table, promotion and bit codecs; also the user's namespace.

Example:
    >>> from tilework import dtypes
    >>> dtypes.float16.itemsize
    2
"""

from __future__ import annotations

from tilework.dtypes.codecs import decode, encode, nan_bits, round_to
from tilework.dtypes.promotion import (
    accumulation_dtype,
    default_float,
    default_int,
    float_of,
    promote,
    smallest_int,
    sum_dtype,
    value_dtype,
)
from tilework.dtypes.table import (
    ALL,
    FLOATS,
    INTEGERS,
    PACKED,
    SHOWN_NAMES,
    DType,
    Kind,
    bfloat16,
    bool_,
    by_name,
    float16,
    float32,
    float64,
    fp4e2m1,
    fp8e4m3,
    fp8e5m2,
    index,
    int4,
    int8,
    int16,
    int32,
    int64,
    uint4,
    uint8,
    uint16,
    uint32,
    uint64,
)

# The short names that users of tinygrad and PyTorch know.
half = float16
float = float32
double = float64
char = int8
uchar = uint8
short = int16
ushort = uint16
int = int32
uint = uint32
long = int64
ulong = uint64
bool = bool_

__all__ = [
    "ALL",
    "FLOATS",
    "INTEGERS",
    "PACKED",
    "SHOWN_NAMES",
    "DType",
    "Kind",
    "accumulation_dtype",
    "bfloat16",
    "bool",
    "bool_",
    "by_name",
    "char",
    "decode",
    "default_float",
    "default_int",
    "double",
    "encode",
    "float",
    "float16",
    "float32",
    "float64",
    "float_of",
    "fp4e2m1",
    "fp8e4m3",
    "fp8e5m2",
    "half",
    "index",
    "int",
    "int4",
    "int8",
    "int16",
    "int32",
    "int64",
    "long",
    "nan_bits",
    "promote",
    "round_to",
    "short",
    "smallest_int",
    "sum_dtype",
    "uchar",
    "uint",
    "uint4",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "ulong",
    "ushort",
    "value_dtype",
]  # fmt: skip
