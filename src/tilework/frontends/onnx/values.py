"""The values that flow along a graph's edges: known on the host, or tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tilework.base.errors import UnsupportedError
from tilework.engine.capture import is_capturing
from tilework.frontends.onnx.element_types import EXTENSION_TYPES, dtype_of_array
from tilework.tensor.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.dtypes import DType

Array = np.ndarray[Any, Any]
# A repeated value becomes a constant of the kernel up to any size; other arrays become buffers.
_SCAN_LIMIT = 1 << 12


class HostValue:
    """An array that is known while the graph is traced, and its tensor once one is needed.

    A tensor that is made during a capture belongs to that capture, so it is not kept.
    """

    __slots__ = ("_tensor", "array")

    def __init__(self, array: Array) -> None:
        self.array = array
        self._tensor: Tensor | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the array."""
        return tuple(self.array.shape)

    def tensor(self, device: str | None) -> Tensor:
        """Return the value as a tensor, made once outside captures."""
        found = self._tensor
        if found is None:
            found = tensor_of(self.array, device)
            if not is_capturing() and found.is_realized:
                self._tensor = found
        return found


#: What an edge carries; None is an optional value that is absent.
Value: TypeAlias = HostValue | Tensor | list[Any] | None


def tensor_of(array: Array, device: str | None) -> Tensor:
    """Make a tensor of a host array; a value that repeats is not stored.

    Raises:
        UnsupportedError: tilework has no dtype for the array.
    """
    dtype = dtype_of_array(array)
    if dtype is None:
        raise UnsupportedError("onnx: a constant's element type is not supported", got=array.dtype)
    if dtype in EXTENSION_TYPES:
        bits = np.ascontiguousarray(array).view(f"uint{dtype.bits}").reshape(array.shape)
        return Tensor(bits, device=device).bitcast(dtype)
    if array.dtype.name in ("int4", "uint4"):
        array = array.astype(dtype.name)
    if _is_uniform(array):
        return Tensor.full(array.shape, array.reshape(-1)[0].item(), dtype=dtype, device=device)
    return Tensor(np.ascontiguousarray(array).reshape(array.shape), device=device)


def _is_uniform(array: Array) -> bool:
    if not 0 < array.size <= _SCAN_LIMIT:
        return False
    # Bits are compared, so that -0.0 stays apart from 0.0 and NaN equals itself.
    row = np.ascontiguousarray(array).reshape(-1)
    return bool((row.view(np.uint8).reshape(row.size, -1) == row[:1].view(np.uint8)).all())


def full(shape: Sequence[int], value: float | bool, dtype: DType, device: str | None) -> Tensor:
    """Make a tensor that repeats one value."""
    return Tensor.full(tuple(shape), value, dtype=dtype, device=device)


def filled(operands: Sequence[Tensor | None], count: int) -> list[Tensor | None]:
    """Return the operands with None for those at the end that the model leaves out."""
    return [*operands, *([None] * (count - len(operands)))]


def as_device_value(value: Value, device: str | None) -> Tensor:
    """Return the tensor that an edge carries.

    Raises:
        UnsupportedError: it carries a sequence or nothing.
    """
    if isinstance(value, HostValue):
        return value.tensor(device)
    if isinstance(value, (list, type(None))):
        raise UnsupportedError("onnx: a tensor is needed where the model gives a sequence")
    return value
