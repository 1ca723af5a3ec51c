"""Numbers as small integers: value = (integer - zero point) * scale, also for each channel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from tilework import dtypes
from tilework.base.errors import DTypeError, ShapeError, UserError
from tilework.tensor.creation import as_dtype
from tilework.tensor.pooling import Pooling
from tilework.tensor.variable import format_shape

if TYPE_CHECKING:
    from tilework.dtypes import DType

Given = Any  # a number, or a tensor: a scalar, or a vector with one for each channel


class Quantising(Pooling):
    """quantize, dequantize, fake_quantize."""

    __slots__ = ()

    def quantize(
        self,
        scale: Given,
        zero_point: Given = 0,
        dtype: DType | str = dtypes.int8,
        axis: int | None = None,
    ) -> Self:
        """The nearest integers, ties to even: round(self / scale) + zero_point, cut to the dtype.

        Args:
            scale: the step, positive; a vector gives one for each slice along `axis`.
            zero_point: the integer that stands for 0; a vector likewise.
            dtype: an integer dtype.
            axis: of vectors of scales; None for one scale.

        Example:
            >>> Tensor([-1.0, 0.0, 0.26]).quantize(0.1, 3).tolist()
            [-7, 3, 6]
        """
        kind = as_dtype(dtype, may_be_packed=True)
        if not kind.is_integer:
            raise DTypeError("quantize: needs an integer dtype", got=kind.name)
        places = self._quantised(scale, zero_point, axis, "quantize")
        return places.clamp(kind.minimum, kind.maximum).cast(kind)

    def dequantize(
        self,
        scale: Given,
        zero_point: Given = 0,
        dtype: DType | str = dtypes.float32,
        axis: int | None = None,
    ) -> Self:
        """The numbers that integers stand for: (self - zero_point) * scale.

        Args:
            scale: the step; a vector gives one for each slice along `axis`.
            zero_point: the integer that stands for 0; a vector likewise.
            dtype: a float dtype.
            axis: of vectors of scales; None for one scale.

        Example:
            >>> Tensor([-7, 3]).dequantize(0.5, 3).tolist()
            [-5.0, 0.0]
        """
        if not self.dtype.is_integer:
            raise DTypeError("dequantize: needs integers", got=self.dtype.name)
        step, zero = self._per_channel(scale, axis), self._per_channel(zero_point, axis)
        wide = dtypes.int64 if self.dtype.bits > 16 else dtypes.int32
        shifted = self.cast(wide) - (zero.cast(wide) if hasattr(zero, "cast") else int(zero))
        found: Self = (shifted.cast(dtypes.float32) * step).cast(
            as_dtype(dtype, may_be_packed=True)
        )
        return found

    def fake_quantize(
        self,
        scale: Given,
        zero_point: Given = 0,
        quant_min: int = -128,
        quant_max: int = 127,
        axis: int | None = None,
    ) -> Self:
        """Quantised and back again, with the gradient of 1 where nothing is cut off.

        Args:
            scale: the step; a vector gives one for each slice along `axis`.
            zero_point: the integer that stands for 0; a vector likewise.
            quant_min: the least integer.
            quant_max: the greatest integer.
            axis: of vectors of scales; None for one scale.
        """
        if quant_min >= quant_max:
            raise UserError("fake_quantize: the range is empty", got=f"{quant_min} to {quant_max}")
        x = self._as_float()
        plain = x.detach()
        places = plain._quantised(scale, zero_point, axis, "fake_quantize")
        is_inside = (places >= quant_min) & (places <= quant_max)
        zero = x._per_channel(zero_point, axis)
        found: Self = (places.clamp(quant_min, quant_max) - zero) * x._per_channel(scale, axis)
        return found.cast(x.dtype)._with_gradient(lambda sources, g: (is_inside.where(g, 0.0),), x)

    def _quantised(self, scale: Given, zero: Given, axis: int | None, what: str) -> Self:
        """Whole numbers, not cut yet."""
        if not self.dtype.is_float:
            raise DTypeError(f"{what}: needs floats", got=self.dtype.name)
        step = self._per_channel(scale, axis)
        if isinstance(step, int | float) and not step > 0:
            raise UserError(f"{what}: the scale is not positive", got=scale)
        # PyTorch multiplies with the reciprocal, rounded to float32; so do converters.
        inverse = step.reciprocal() if hasattr(step, "reciprocal") else 1 / step
        found: Self = (self._wide() * inverse).round() + self._per_channel(zero, axis)
        return found

    def _per_channel(self, given: Given, axis: int | None) -> Any:
        if not hasattr(given, "ndim") or axis is None or not given.ndim:
            return given
        where = self._axis(axis, "quantize")
        if given._dims != (self._dims[where],):
            raise ShapeError(
                "quantize: needs a scale for each slice",
                got=f"{format_shape(given._dims)} for axis {where} of {format_shape(self._dims)}",
            )
        shape = [1] * self.ndim
        shape[where] = -1
        return given.reshape(shape)
