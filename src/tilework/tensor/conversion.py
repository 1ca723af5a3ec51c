"""Conversion between dtypes."""

from __future__ import annotations

import importlib
from typing import Any, Self

from tilework import dtypes
from tilework.base.errors import ShapeError
from tilework.dtypes import DType
from tilework.ir.ops import math as ops
from tilework.tensor.core import TensorBase
from tilework.tensor.creation import Creation, as_dtype
from tilework.tensor.movement import Movement


def packed_module() -> Any:
    """The module of packed tensors, loaded when the first one is made."""
    return importlib.import_module("tilework.tensor.packed_tensor")


def destination(device: Any, dtype: DType | str | None) -> tuple[Any, DType | str | None]:
    """The device (`()` for where it is) and the dtype (or None) that `to` was asked for."""
    if dtype is None and (isinstance(device, DType) or _stands_for_dtype(device)):
        return (), device
    if isinstance(device, TensorBase):
        return device.device, device.dtype if dtype is None else dtype
    return device, dtype


def _stands_for_dtype(value: Any) -> bool:
    """Whether it is the name of a dtype, or a dtype of NumPy: no device is called as one."""
    if isinstance(value, str):
        return isinstance(getattr(dtypes, value, None), DType)
    owner = value if isinstance(value, type) else type(value)
    return owner.__module__.partition(".")[0] in ("numpy", "ml_dtypes")


class Conversion(Creation, Movement):
    """Casts; in a class of its own, since some are called as Python's types are."""

    __slots__ = ()

    def cast(self, dtype: DType | str) -> Self:
        """The values in another dtype.

        Floats to integers truncate; out of range they saturate, NaN gives 0.  Integers keep the
        value modulo 2**width.  Two elements of a packed dtype (int4, uint4, fp4e2m1) share a byte.
        """
        kind = dtype if isinstance(dtype, DType) else as_dtype(dtype, may_be_packed=True)
        if kind is self.dtype:
            return self
        if kind.is_packed:
            found: Self = packed_module().packed_as(self, kind)
            return found
        return self._apply(ops.CAST, attrs=ops.CastAttrs(kind))

    def type(self, dtype: DType | str) -> Self:
        """Another name for `cast`."""
        return self.cast(dtype)

    def to(self, device: Any = (), dtype: DType | str | None = None) -> Self:
        """This tensor on a device, in a dtype, or both; itself if it is that already.

        On several devices each gets all of it; `shard` splits it.

        Args:
            device: a name, a sequence of names, None for the default one, or nothing (`()`) for
                where it is; a dtype (or its name, or one of NumPy's) in its place converts, and a
                tensor stands for both of its own.
            dtype: what to convert to.

        Example:
            >>> Tensor([1, 2]).to(dtypes.float16).tolist()
            [1.0, 2.0]
        """
        place, kind = destination(device, dtype)
        converted = self if kind is None else self.cast(kind)
        return converted if place == () else TensorBase.to(converted, place)

    def view(self, *shape: Any) -> Self:
        """Another name for `reshape`, and with a dtype instead of a shape for `bitcast`."""
        if len(shape) == 1 and isinstance(shape[0], DType):
            return self.bitcast(shape[0])
        return self.reshape(*shape)

    def bitcast(self, dtype: DType | str) -> Self:
        """The bits read as another dtype; the last axis scales if the widths differ."""
        kind = as_dtype(dtype, may_be_packed=True)
        if kind is self.dtype:
            return self
        if kind.is_packed:
            data = self.bitcast(dtypes.uint8)
            if not data.ndim:
                raise ShapeError("bitcast: a scalar has no axis that could grow", got="shape ()")
            shape = (*data._sizes()[:-1], 2 * data._sizes()[-1])
            found: Self = packed_module().made(data, kind, shape)
            return found
        return self._apply(ops.BITCAST, attrs=ops.CastAttrs(kind))

    def float(self) -> Self:
        """Cast to float32."""
        return self.cast(dtypes.float32)

    def double(self) -> Self:
        """Cast to float64."""
        return self.cast(dtypes.float64)

    def half(self) -> Self:
        """Cast to float16."""
        return self.cast(dtypes.float16)

    def bfloat16(self) -> Self:
        """Cast to bfloat16."""
        return self.cast(dtypes.bfloat16)

    def short(self) -> Self:
        """Cast to int16."""
        return self.cast(dtypes.int16)

    def int(self) -> Self:
        """Cast to int32."""
        return self.cast(dtypes.int32)

    def long(self) -> Self:
        """Cast to int64."""
        return self.cast(dtypes.int64)

    def bool(self) -> Self:
        """Cast to bool: whether each element is not zero."""
        return self.cast(dtypes.bool_)

    def is_floating_point(self) -> Any:
        """Whether the elements are floats."""
        return self.dtype.is_float
