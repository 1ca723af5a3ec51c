"""ONNX's numbers for element types, and how arrays of each become tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tilework import dtypes
from tilework.base.errors import UnsupportedError

if TYPE_CHECKING:
    from tilework.dtypes import DType

# TensorProto.DataType; 4-bit integers are held in bytes, one value each.
BY_NUMBER: dict[int, DType] = {
    1: dtypes.float32,
    2: dtypes.uint8,
    3: dtypes.int8,
    4: dtypes.uint16,
    5: dtypes.int16,
    6: dtypes.int32,
    7: dtypes.int64,
    9: dtypes.bool_,
    10: dtypes.float16,
    11: dtypes.float64,
    12: dtypes.uint32,
    13: dtypes.uint64,
    16: dtypes.bfloat16,
    17: dtypes.fp8e4m3,
    19: dtypes.fp8e5m2,
    21: dtypes.uint8,
    22: dtypes.int8,
}
NAMES = {
    8: "string", 14: "complex64", 15: "complex128", 18: "float8e4m3fnuz", 20: "float8e5m2fnuz",
    23: "float4e2m1", 24: "float8e8m0", 25: "uint2", 26: "int2",
}  # fmt: skip
FOUR_BITS = {21: (0, 15), 22: (-8, 7)}
# Names under which extension types of NumPy go.
_EXTENSION = {
    "bfloat16": dtypes.bfloat16,
    "float8_e4m3fn": dtypes.fp8e4m3,
    "float8_e5m2": dtypes.fp8e5m2,
}
#: Stored in NumPy only as an extension type, so arrays of them are passed on as bits.
EXTENSION_TYPES = frozenset(_EXTENSION.values())


def dtype_of_number(number: int, what: str) -> DType:
    """Return the dtype for ONNX's number of an element type.

    Raises:
        UnsupportedError: tilework has no such dtype.
    """
    found = BY_NUMBER.get(number)
    if found is None:
        raise UnsupportedError(
            f"{what}: element type {NAMES.get(number, number)} is not supported",
            expected=", ".join(sorted({dtype.name for dtype in BY_NUMBER.values()})),
        )
    return found


def dtype_of_array(array: np.ndarray[Any, Any]) -> DType | None:
    """Return the dtype of a host array, or None if tilework has none for it."""
    name = array.dtype.name
    if name in _EXTENSION:
        return _EXTENSION[name]
    if name in ("int4", "uint4"):
        return dtypes.int8 if name == "int4" else dtypes.uint8
    try:
        return dtypes.by_name(name)
    except KeyError:
        return None


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """Return NumPy's dtype for `dtype` (bits for those that NumPy lacks)."""
    if dtype in EXTENSION_TYPES:
        return np.dtype(f"uint{dtype.bits}")
    return np.dtype(dtype.name)
