"""Element by element: parts of numbers, steps, divisors, and comparisons of whole tensors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

from tilework import dtypes
from tilework.base.errors import DTypeError, ShapeError
from tilework.dtypes import DType
from tilework.tensor.named import MantissaAndExponent
from tilework.tensor.statistics import Statistics
from tilework.tensor.variable import format_shape

if TYPE_CHECKING:
    from tilework.tensor.elementwise import Operand

_SAME_SIZE = {16: dtypes.int16, 32: dtypes.int32, 64: dtypes.int64, 8: dtypes.int8}

#: Integers of so many bits are divided as numbers of float64, or as those of float32.
_EXACT_BITS = 32
_EXACT_IN_SINGLE = 16


class Numeric(Statistics):
    """fmax, frac, gcd, heaviside, nextafter, allclose and their kin."""

    __slots__ = ()

    # --- parts -------------------------------------------------------------------------------

    def frac(self) -> Self:
        """What is behind the point, with the sign of the number."""
        return self - self.detach().trunc()

    def signbit(self) -> Self:
        """Whether the sign is negative, that of -0.0 too."""
        if not self.dtype.is_float:
            return self < 0 if self.dtype.is_signed else self._constant(False, dtypes.bool_)
        return self._bits() < 0

    def _bits(self) -> Self:
        """The bits of floats as a signed integer."""
        return self.bitcast(_SAME_SIZE[self.dtype.bits])

    def isposinf(self) -> Self:
        """True where the element is +infinity."""
        return self.isinf(detect_negative=False)

    def isneginf(self) -> Self:
        """True where the element is -infinity."""
        return self.isinf(detect_positive=False)

    def isreal(self) -> Self:
        """True everywhere: no element has an imaginary part."""
        return self._constant(True, dtypes.bool_)

    def positive(self) -> Self:
        """This tensor."""
        return self

    def frexp(self) -> MantissaAndExponent[Self]:
        """The mantissa in [0.5, 1) and the exponent (int32): self = mantissa * 2 ** exponent."""
        x = self
        if not x.dtype.is_float:
            raise DTypeError("frexp: needs floats", got=x.dtype.name)
        # A product with a power of two is exact, and lifts subnormals into the normal range.
        lift = x.dtype.mantissa_bits + 2
        tiny = x.abs() < 2.0 ** (3 - (1 << (x.dtype.exponent_bits - 1)))
        lifted = tiny.where(x * 2.0**lift, x)
        field = (lifted._bits() >> x.dtype.mantissa_bits) & ((1 << x.dtype.exponent_bits) - 1)
        bias = (1 << (x.dtype.exponent_bits - 1)) - 2
        exponent = field.cast(dtypes.int32) - bias - tiny.where(lift, 0)
        is_plain = x.isfinite() & x.ne(0)
        exponent = is_plain.where(exponent, 0)
        return MantissaAndExponent(is_plain.where(x._scaled_by(-exponent), x), exponent)

    def _scaled_by(self, exponent: Self) -> Self:
        """self * 2 ** exponent, exact unless the result is subnormal; in three steps."""
        third = exponent.cast(dtypes.float32).div(3, rounding_mode="trunc").cast(dtypes.int32)
        step = third.cast(self.dtype).exp2()
        rest = (exponent - third * 2).cast(self.dtype).exp2()
        return self * step * step * rest

    def ldexp(self, other: Operand) -> Self:
        """self * 2 ** other."""
        return self * self._other(other).exp2()

    def nextafter(self, other: Operand) -> Self:
        """The next float from here towards `other`."""
        x, y = self._matched(other, "nextafter", as_float=True)
        x, y = x.detach(), y.detach()
        bits = x._bits()
        is_away = (y > x) == (x > 0)
        stepped = is_away.where(bits + 1, bits - 1).bitcast(x.dtype)
        least = bits.ones_like().bitcast(x.dtype)
        stepped = x.eq(0).where((y > x).where(least, -least), stepped)
        found = x.eq(y).where(y, stepped)
        return (x.isnan() | y.isnan()).where(math.nan, found)

    # --- steps and bounds --------------------------------------------------------------------

    def heaviside(self, values: Self) -> Self:
        """0 below 0, 1 above, `values` at 0."""
        x, at_zero = self._together(values, "heaviside")
        found = x.eq(0).where(at_zero, (x > 0).cast(x.dtype))
        return x.isnan().where(0, found) if x.dtype.is_float else found

    def fmax(self, other: Operand) -> Self:
        """The greater one; a number rather than NaN."""
        x, y = self._matched(other, "fmax")
        takes_y = (x < y) | x.isnan()
        takes_y = takes_y & y.isnan().logical_not()
        return takes_y.where(y, x)

    def fmin(self, other: Operand) -> Self:
        """The lesser one; a number rather than NaN."""
        x, y = self._matched(other, "fmin")
        takes_y = (x > y) | x.isnan()
        takes_y = takes_y & y.isnan().logical_not()
        return takes_y.where(y, x)

    def clamp_min(self, min_: Operand) -> Self:
        """Values below `min_` become it."""
        return self.clamp(min_=min_)

    def clamp_max(self, max_: Operand) -> Self:
        """Values above `max_` become it."""
        return self.clamp(max_=max_)

    def threshold(self, threshold: float, value: float) -> Self:
        """This tensor where it is above `threshold`, else `value`."""
        return (self <= threshold).where(value, self).cast(self.dtype)

    def prelu(self, weight: Self) -> Self:
        """self where positive, else self * weight; a weight for each channel (axis 1), or one."""
        factor = weight if self.ndim else weight.reshape(())
        if weight.ndim == 1 and weight._dims[0] != 1 and self.ndim > 1:
            factor = self._along(weight, 1)
        return (self > 0).where(self, self * factor)

    def glu(self, dim: int = -1) -> Self:
        """The first half along `dim` times the sigmoid of the second.

        Raises:
            ShapeError: the size of the axis is odd.
        """
        size = self._fixed_size(self._axis(dim, "glu"), "glu")
        if size % 2:
            raise ShapeError(
                "glu: the axis has no two halves",
                got=f"size {size} on axis {dim} of {format_shape(self._dims)}",
                expected="an even size",
            )
        if not size:
            return self._apply(None)
        first, second = self.chunk(2, dim)
        return first * second.sigmoid()

    # --- other arithmetic --------------------------------------------------------------------

    def deg2rad(self) -> Self:
        """Degrees as radians."""
        return self._as_float() * (math.pi / 180)

    def rad2deg(self) -> Self:
        """Radians as degrees."""
        return self._as_float() * (180 / math.pi)

    def logaddexp2(self, other: Operand) -> Self:
        """log2(2 ** self + 2 ** other) without overflow."""
        x, y = self._matched(other, "logaddexp2", as_float=True)
        scale = math.log(2)
        return (x * scale).logaddexp(y * scale) * (1 / scale)

    def float_power(self, exponent: Operand) -> Self:
        """self ** exponent in float64."""
        x = self.cast(dtypes.float64)
        return x.pow(exponent.cast(dtypes.float64) if hasattr(exponent, "cast") else exponent)

    def gcd(self, other: Operand) -> Self:
        """The greatest common divisor, element by element.

        Euclid's algorithm with the nearest quotient, unrolled; the quotients are floats.  A float64
        misses that of 64 bits by 2**-52 of it at most, which leaves a remainder that has the same
        divisors and is hardly larger.

        Example:
            >>> Tensor([12, -8, 0]).gcd(Tensor([18, 6, 5])).tolist()
            [6, 2, 5]
        """
        x, y = self._integers(other, "gcd")
        bits = x.dtype.bits
        if bits <= _EXACT_BITS:
            kind = dtypes.float32 if bits <= _EXACT_IN_SINGLE else dtypes.float64
            found = x.cast(kind).abs()._divided_away(y.cast(kind).abs(), bits)
            # The magnitude of the least number is out of range, and comes round to that number.
            return found.cast(_SAME_SIZE[kind.bits]).cast(x.dtype)
        return x.abs()._divided_away(y.abs(), bits)

    def _divided_away(self, other: Self, bits: int) -> Self:
        """The greatest common divisor of numbers that are no less than 0, of so many bits."""
        # The larger one first: else the first remainder is that one itself, out of 63 bits perhaps.
        a, b = self.maximum(other), self.minimum(other)
        # A remainder is half of its divisor at most, so that no pair of n-bit numbers takes more
        # steps than log(2**n) / log(1 + sqrt(2)) = 0.787 n.  A quotient that is not exact and the
        # exchange of two in the wrong order are a step each.
        for _ in range(math.ceil(0.787 * bits) + 4):
            is_done = b.eq(0)
            divisor = is_done.where(1, b)
            if a.dtype.is_float:
                rest = a - (a / divisor).round() * divisor
            else:
                quotient = a.cast(dtypes.float64) / divisor.cast(dtypes.float64)
                rest = a - quotient.round().cast(a.dtype) * divisor
                if not a.dtype.is_signed:
                    rest = rest.bitcast(dtypes.int64).abs().bitcast(a.dtype)
            a, b = is_done.where(a, b), is_done.where(0, rest.abs())
        return a.abs()

    def lcm(self, other: Operand) -> Self:
        """The least common multiple, element by element."""
        x, y = self._integers(other, "lcm")
        divisor = x.gcd(y)
        return (x.floordiv(divisor.eq(0).where(1, divisor)) * y).abs()

    def _integers(self, other: Operand, what: str) -> tuple[Self, Self]:
        x, y = self._matched(other, what)
        if not x.dtype.is_integer:
            raise DTypeError(f"{what}: needs integers", got=x.dtype.name)
        return x, y

    # --- whole tensors -----------------------------------------------------------------------

    def allclose(
        self, other: Self, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
    ) -> bool:
        """Whether all elements are close (see `isclose`); reads the answer."""
        return bool(self.isclose(other, rtol, atol, equal_nan).all().item())

    def equal(self, other: Self) -> bool:
        """Whether both have one shape and equal elements; reads the answer."""
        return self._dims == other._dims and bool(self.eq(other).all().item())

    def isin(self, test_elements: Operand, invert: bool = False) -> Self:
        """Whether each element is one of `test_elements`."""
        known = self._other(test_elements).reshape(-1)
        found = self.unsqueeze(-1).eq(known).any(-1)
        return found.logical_not() if invert else found

    # --- names of PyTorch --------------------------------------------------------------------

    def true_divide(self, other: Operand) -> Self:
        """Another name for `div`."""
        return self.div(other)

    def floor_divide(self, other: Operand) -> Self:
        """Another name for `floordiv`."""
        return self.floordiv(other)

    def rsub(self, other: Operand, alpha: Any = 1) -> Self:
        """other - alpha * self."""
        return (self if alpha == 1 else self * alpha).sub(other, reverse=True)

    def bitwise_left_shift(self, other: Operand) -> Self:
        """Another name for `lshift`."""
        return self.lshift(other)

    def bitwise_right_shift(self, other: Operand) -> Self:
        """Another name for `rshift`."""
        return self.rshift(other)

    def byte(self) -> Self:
        """As uint8."""
        return self.cast(dtypes.uint8)

    def char(self) -> Self:
        """As int8."""
        return self.cast(dtypes.int8)

    def new_full(self, size: Any, fill_value: Any, **options: Any) -> Self:
        """`full` with this tensor's dtype and device unless given."""
        return type(self).full(size, fill_value, **self._own(options))

    def new_zeros(self, *size: Any, **options: Any) -> Self:
        """`zeros` with this tensor's dtype and device unless given."""
        return type(self).zeros(*size, **self._own(options))

    def new_ones(self, *size: Any, **options: Any) -> Self:
        """`ones` with this tensor's dtype and device unless given."""
        return type(self).ones(*size, **self._own(options))

    def _own(self, options: dict[str, Any]) -> dict[str, Any]:
        options.setdefault("dtype", self.dtype)
        options.setdefault("device", self.device)
        return options

    @classmethod
    def logspace(
        cls, start: float, end: float, steps: int, base: float = 10.0, **options: Any
    ) -> Self:
        """`base` to the power of `steps` numbers from `start` to `end`."""
        kind: DType | str = options.pop("dtype", None) or dtypes.default_float
        exponents = cls.linspace(start, end, steps, dtype=dtypes.float64, **options)
        return exponents.pow(float(base), reverse=True).cast(kind)
