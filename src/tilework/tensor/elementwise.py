"""Arithmetic, comparison, selection, conversion and elementary functions, element by element."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

from tilework import dtypes
from tilework.base.errors import DTypeError
from tilework.dtypes import DType, bool_, float_of, promote
from tilework.ir.build import const
from tilework.ir.ops import math as ops
from tilework.tensor.conversion import Conversion
from tilework.tensor.core import TensorBase
from tilework.tensor.promotion import (
    Number,
    broadcast_shapes,
    dtype_of_number,
    dtype_with_number,
)
from tilework.tensor.variable import Variable
from tilework.tensor.version import Version, merge_bindings

if TYPE_CHECKING:
    from tilework.ir.node import OpDef

#: What a binary operation takes besides a tensor.
Operand = Any


class Elementwise(Conversion):
    """Operations on each element by itself."""

    __slots__ = ()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """NumPy's operators of arrays and tensors give tensors, its other functions arrays."""
        from tilework.tensor.numpy_calls import numpy_call  # who calls it has NumPy

        return numpy_call(ufunc, method, inputs, options)

    # --- bringing operands together ------------------------------------------------------------

    @classmethod
    def _lift(cls, value: Any, device: str) -> Self:
        """A tensor from anything that the constructor takes; `Tensor` says how."""
        raise NotImplementedError

    def _operand(self, other: Operand, what: str) -> Self | Number:
        """The other operand as a tensor or a Python number."""
        if other.__class__ is self.__class__ or isinstance(other, bool | int | float):
            return other
        if isinstance(other, Elementwise):  # of this class, or of one that a user derived
            return other  # type: ignore[return-value]
        if isinstance(other, Variable):
            return self._from_node(other.node, self.device, other.bindings)
        if other is None or isinstance(other, TensorBase):
            kind = "an operand" if other is None else "a tensor of another class"
            raise DTypeError(
                f"{what}: {kind} can't be used",
                got=type(other).__name__,
                expected="a tensor, a number or an array",
            )
        item = getattr(other, "item", None)
        if item is not None and getattr(other, "shape", None) == ():
            number = item()
            if isinstance(number, bool | int | float):
                return number
        return self._lift(other, self.device)

    def _number(self, value: Number, dtype: DType) -> Self:
        version = Version(
            const(value, dtype, self._type.shape),
            self._storage.version.device,
            bindings=self._bindings,
        )
        return self._over(version)

    def _matched(self, other: Operand, what: str, *, as_float: bool = False) -> tuple[Self, Self]:
        """Both operands in one dtype and one shape."""
        own = self._type.dtype
        second = self._operand(other, what)
        if isinstance(second, bool | int | float):
            dtype = dtype_with_number(own, second, what)
            dtype = float_of(dtype) if as_float else dtype
            return self if dtype is own else self.cast(dtype), self._number(second, dtype)
        if second._type.dtype is own and (own.is_float or not as_float) and not own.is_packed:
            return self._together(second, what)
        dtype = promote(own, second.dtype)
        dtype = float_of(dtype) if as_float else dtype
        return self.cast(dtype)._together(second.cast(dtype), what)

    def _together(self, other: Self, what: str) -> tuple[Self, Self]:
        """Both broadcast to one shape."""
        if self._dims == other._dims:
            return self, other
        shape = broadcast_shapes((self._dims, other._dims), what)
        bindings = merge_bindings((self._bindings, other._bindings), what)
        return (
            self._broadcast_to(shape, bindings, what),
            other._broadcast_to(shape, bindings, what),
        )

    def _binary(self, op: OpDef, other: Operand, reverse: bool = False) -> Self:
        x, y = self._matched(other, op.name)
        return y._apply(op, x) if reverse else x._apply(op, y)

    def _truth(self) -> Self:
        return self.cast(dtypes.bool_)

    def _float_unary(self, op: OpDef) -> Self:
        return self.cast(float_of(self.dtype))._apply(op)

    # --- arithmetic ----------------------------------------------------------------------------

    def add(self, other: Operand, reverse: bool = False, *, alpha: Number = 1) -> Self:
        """self + other, of which `alpha` is a factor."""
        if alpha != 1:
            other = self._scaled(other, alpha, "add")
        x, y = self._matched(other, "add")
        op = ops.OR if x.dtype.is_bool else ops.ADD
        return y._apply(op, x) if reverse else x._apply(op, y)

    def _scaled(self, other: Operand, factor: Number, what: str) -> Self:
        return self._matched(other, what)[1].mul(factor)

    def sub(self, other: Operand, reverse: bool = False, *, alpha: Number = 1) -> Self:
        """self - other (or other - self if `reverse`); `alpha` is a factor of `other`."""
        if alpha != 1:
            other = self._scaled(other, alpha, "sub")
        x, y = self._matched(other, "sub")
        if x.dtype.is_bool:
            raise _no_bool("sub")
        return y._apply(ops.SUB, x) if reverse else x._apply(ops.SUB, y)

    def mul(self, other: Operand, reverse: bool = False) -> Self:
        """self * other."""
        x, y = self._matched(other, "mul")
        op = ops.AND if x.dtype.is_bool else ops.MUL
        return y._apply(op, x) if reverse else x._apply(op, y)

    def div(self, other: Operand, reverse: bool = False, rounding_mode: str | None = None) -> Self:
        """self / other; integers are divided as float32.

        Args:
            other: the divisor (the dividend if `reverse`).
            reverse: exchange the operands.
            rounding_mode: None, or "floor" or "trunc" to round the quotient.

        Example:
            >>> Tensor([7, -7]).div(2, rounding_mode="floor").tolist()
            [3, -4]
        """
        if rounding_mode is None:
            x, y = self._matched(other, "div", as_float=True)
            return y._apply(ops.FDIV, x) if reverse else x._apply(ops.FDIV, y)
        x, y = self._matched(other, "div")
        x, y = (y, x) if reverse else (x, y)
        if rounding_mode == "floor":
            return x.floordiv(y)
        if rounding_mode != "trunc":
            raise DTypeError(
                "div: unknown rounding_mode", got=rounding_mode, expected="floor or trunc"
            )
        return x._truncated_division(y)

    def _truncated_division(self, y: Self) -> Self:
        if self.dtype.is_float:
            return self._apply(ops.FDIV, y)._apply(ops.TRUNC)
        quotient, rest = self._apply(ops.IDIV, y), self._apply(ops.MOD, y)
        is_low = rest.ne(0) & ((self < 0) != (y < 0))
        return is_low.where(quotient + 1, quotient)

    def floordiv(self, other: Operand, reverse: bool = False) -> Self:
        """The quotient rounded towards minus infinity; integers divided by 0 give 0."""
        x, y = self._matched(other, "floordiv")
        x, y = (y, x) if reverse else (x, y)
        if not x.dtype.is_float:
            return x._apply(ops.IDIV, y)
        rest = x._apply(ops.FMOD, y)
        quotient = (x - rest) / y
        is_low = rest.ne(0) & ((rest < 0) != (y < 0))
        nearest = is_low.where(quotient - 1, quotient)._apply(ops.ROUND)
        signed = nearest.eq(0).where(nearest._apply(ops.COPYSIGN, x / y), nearest)
        return y.eq(0).where(x / y, signed)

    def mod(self, other: Operand, reverse: bool = False) -> Self:
        """The remainder, with the sign of the divisor, as Python's `%`."""
        x, y = self._matched(other, "mod")
        x, y = (y, x) if reverse else (x, y)
        if not x.dtype.is_float:
            return x._apply(ops.MOD, y)
        rest = x._apply(ops.FMOD, y)
        is_other_side = rest.ne(0) & ((rest < 0) != (y < 0))
        return is_other_side.where(rest + y, rest)

    def remainder(self, other: Operand) -> Self:
        """Another name for `mod`."""
        return self.mod(other)

    def fmod(self, other: Operand) -> Self:
        """The remainder with the sign of the dividend, as C's fmod."""
        x, y = self._matched(other, "fmod")
        if x.dtype.is_float:
            return x._apply(ops.FMOD, y)
        rest = x._apply(ops.MOD, y)
        return (rest.ne(0) & ((x < 0) != (y < 0))).where(rest - y, rest)

    def maximum(self, other: Operand) -> Self:
        """The greater one; NaN if one is NaN.

        Example:
            >>> Tensor([1, 5]).maximum(3).tolist()
            [3, 5]
        """
        x, y = self._matched(other, "maximum")
        return x._apply(ops.OR if x.dtype.is_bool else ops.MAXIMUM, y)

    def minimum(self, other: Operand) -> Self:
        """The lesser one; NaN if one is NaN.

        Example:
            >>> Tensor([1, 5]).minimum(3).tolist()
            [1, 3]
        """
        x, y = self._matched(other, "minimum")
        return x._apply(ops.AND if x.dtype.is_bool else ops.MINIMUM, y)

    def neg(self) -> Self:
        """-self."""
        if self.dtype.is_bool:
            raise _no_bool("neg")
        return self._apply(ops.NEG)

    def abs(self) -> Self:
        """The magnitude."""
        is_positive = self.dtype.is_unsigned or self.dtype.is_bool
        return self._apply(None if is_positive else ops.ABS)

    def sign(self) -> Self:
        """-1, 0 or 1; NaN stays NaN."""
        x = self.detach()
        if self.dtype.is_bool or self.dtype.is_unsigned:
            return x.ne(0).cast(self.dtype)
        return (x > 0).where(1, (x < 0).where(-1, x))

    def lerp(self, end: Operand, weight: Operand) -> Self:
        """self + (end - self) * weight.

        Example:
            >>> Tensor([0.0]).lerp(Tensor([4.0]), 0.25).tolist()
            [1.0]
        """
        return self + (self._other(end) - self) * self._other(weight)

    def _other(self, value: Operand) -> Self:
        """The operand as a tensor."""
        found = self._operand(value, "operand")
        if isinstance(found, bool | int | float):
            return self._number(found, dtype_with_number(self.dtype, found, "operand"))
        return found

    # --- powers --------------------------------------------------------------------------------

    def pow(self, other: Operand, reverse: bool = False) -> Self:
        """self ** other; integers to integer powers are exact modulo 2**width.

        Raises:
            DTypeError: an integer tensor to a negative Python int.

        Example:
            >>> Tensor([2, 3]).pow(3).tolist()
            [8, 27]
        """
        exponent = self._operand(other, "pow")
        if isinstance(exponent, bool | int | float):
            return self._number_to_power(exponent) if reverse else self._to_number(exponent)
        base = exponent if reverse else self
        exponent = self if reverse else exponent
        x, y = base._matched(exponent, "pow")
        if x.dtype.is_float:
            return x._apply(ops.POW, y)
        return x._integer_power(y)

    def _number_to_power(self, base: Number) -> Self:
        """base ** self."""
        x, y = self._matched(base, "pow")
        if not x.dtype.is_float:
            return y._integer_power(x)
        return x._apply(ops.EXP2) if base == 2 else y._apply(ops.POW, x)

    def _to_number(self, exponent: Number) -> Self:
        """self ** exponent by the least work that gives the same value."""
        dtype = dtype_with_number(self.dtype, exponent, "pow")
        x = self.cast(dtype)
        if not dtype.is_float:
            if exponent < 0:
                raise DTypeError(
                    "pow: an integer tensor to a negative power",
                    got=f"{dtype.name} ** {exponent}",
                    try_="cast it to a float first",
                )
            return x._multiplied_out(int(exponent))
        if exponent == 0:  # 1 also for NaN; `x` stays in the history, with a gradient of zero
            return x._constant(False, bool_).where(x, 1)
        if exponent == 0.5:
            return x._apply(ops.SQRT)
        if exponent == -0.5:
            return x.rsqrt()
        if exponent in (1, 2, 3):
            return x._multiplied_out(int(exponent))
        if exponent == -1:
            return x._apply(ops.RECIPROCAL)
        return x._apply(ops.POW, x._number(exponent, dtype))

    def _multiplied_out(self, exponent: int) -> Self:
        """A power by repeated squaring."""
        result: Self | None = None
        square = self
        while exponent:
            if exponent & 1:
                result = square if result is None else result * square
            exponent >>= 1
            if exponent:
                square = square * square
        if result is None:
            return self.ones_like()
        return result._apply(None) if result is self else result

    def _integer_power(self, exponent: Self) -> Self:
        """A power with an exponent per element; negative ones give 0 unless the base is 1 or -1."""
        if self.dtype.is_bool:
            return self | exponent.logical_not()
        result, square = self.ones_like(), self
        bits = self.dtype.bits - int(self.dtype.is_signed)
        for bit in range(bits):
            shifted = exponent._apply(ops.SHR, exponent._number(bit, exponent.dtype))
            is_set = (shifted & 1).ne(0)
            result = is_set.where(result * square, result)
            square = square * square
        if not self.dtype.is_signed:
            return result
        is_odd = (exponent & 1).ne(0)
        inverse = self.eq(1).where(1, self.eq(-1).where(is_odd.where(-1, self.ones_like()), 0))
        return (exponent < 0).where(inverse.cast(self.dtype), result)

    def square(self) -> Self:
        """self * self."""
        return self * self

    def sqrt(self) -> Self:
        """The square root."""
        return self._float_unary(ops.SQRT)

    def rsqrt(self) -> Self:
        """1 / sqrt(self)."""
        return self.sqrt()._apply(ops.RECIPROCAL)

    def reciprocal(self) -> Self:
        """1 / self."""
        return self._float_unary(ops.RECIPROCAL)

    # --- bits ----------------------------------------------------------------------------------

    def bitwise_and(self, other: Operand, reverse: bool = False) -> Self:
        """self & other."""
        return self._binary(ops.AND, other)

    def bitwise_or(self, other: Operand, reverse: bool = False) -> Self:
        """self | other."""
        return self._binary(ops.OR, other)

    def bitwise_xor(self, other: Operand, reverse: bool = False) -> Self:
        """self ^ other."""
        return self._binary(ops.XOR, other)

    def bitwise_not(self) -> Self:
        """~self; for bool the logical not."""
        if self.dtype.is_float:
            raise DTypeError("bitwise_not: needs integers", got=self.dtype.name)
        ones = 1 if self.dtype.is_bool else (-1 if self.dtype.is_signed else self.dtype.maximum)
        return self._apply(ops.XOR, self._number(ones, self.dtype))

    def lshift(self, other: Operand, reverse: bool = False) -> Self:
        """self << other."""
        return self._binary(ops.SHL, other, reverse)

    def rshift(self, other: Operand, reverse: bool = False) -> Self:
        """self >> other, with the sign."""
        return self._binary(ops.SHR, other, reverse)

    # --- comparison and logic ------------------------------------------------------------------

    def eq(self, other: Operand) -> Self:
        """self == other."""
        return self._binary(ops.EQ, other)

    def ne(self, other: Operand) -> Self:
        """self != other."""
        return self._binary(ops.NE, other)

    def lt(self, other: Operand) -> Self:
        """self < other."""
        return self._binary(ops.LT, other)

    def le(self, other: Operand) -> Self:
        """self <= other."""
        return self._binary(ops.LE, other)

    def gt(self, other: Operand) -> Self:
        """self > other."""
        return self._binary(ops.LT, other, reverse=True)

    def ge(self, other: Operand) -> Self:
        """self >= other."""
        return self._binary(ops.LE, other, reverse=True)

    def logical_not(self) -> Self:
        """True where the element is zero."""
        return self._truth().bitwise_not()

    def logical_and(self, other: Operand) -> Self:
        """True where both are not zero."""
        return self._truth() & self._other(other)._truth()

    def logical_or(self, other: Operand) -> Self:
        """True where one is not zero."""
        return self._truth() | self._other(other)._truth()

    def logical_xor(self, other: Operand) -> Self:
        """True where exactly one is not zero."""
        return self._truth() ^ self._other(other)._truth()

    def isnan(self) -> Self:
        """True where the element is NaN."""
        return self != self if self.dtype.is_float else self._constant(False, dtypes.bool_)

    def isinf(self, detect_positive: bool = True, detect_negative: bool = True) -> Self:
        """True where the element is infinite."""
        if not self.dtype.is_float or self.dtype.finite_only:
            return self._constant(False, dtypes.bool_)
        if detect_positive and detect_negative:
            return self.abs().eq(math.inf)
        if not (detect_positive or detect_negative):
            return self._constant(False, dtypes.bool_)
        return self.eq(math.inf if detect_positive else -math.inf)

    def isfinite(self) -> Self:
        """True where the element is neither infinite nor NaN."""
        if not self.dtype.is_float:
            return self._constant(True, dtypes.bool_)
        if self.dtype.finite_only:
            return self.isnan().logical_not()
        return self.abs() < math.inf

    def isclose(
        self, other: Operand, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
    ) -> Self:
        """True where |self - other| <= atol + rtol * |other|, or both are equal."""
        x, y = self._matched(other, "isclose", as_float=True)
        is_near = (x - y).abs() <= atol + y.abs() * rtol
        result = (x == y) | (is_near & x.isfinite() & y.isfinite())
        return result | (x.isnan() & y.isnan()) if equal_nan else result

    # --- selection -----------------------------------------------------------------------------

    def where(self, x: Operand, y: Operand) -> Self:
        """x where this tensor is True (not zero), else y.

        Raises:
            DTypeError: only the second operand looks like a condition, as in PyTorch's order.

        Example:
            >>> (Tensor([1, -2]) > 0).where(Tensor([5, 6]), 0).tolist()
            [5, 0]
        """
        first, second = self._pair(x, y)
        is_mask = isinstance(x, TensorBase) and x.dtype.is_bool
        if is_mask and not self.dtype.is_bool and not second.dtype.is_bool:
            raise DTypeError(
                "where: the condition comes first",
                got=f"{self.dtype.name}.where(bool, {second.dtype.name})",
                expected="condition.where(x, y)",
            )
        condition = self._truth()
        shapes = (condition._dims, first._dims, second._dims)
        if shapes[0] == shapes[1] == shapes[2]:
            return condition._apply(ops.WHERE, first, second)
        shape = broadcast_shapes(shapes, "where")
        found = [condition._bindings, first._bindings, second._bindings]
        bindings = merge_bindings(found, "where")
        return condition._broadcast_to(shape, bindings, "where")._apply(
            ops.WHERE,
            first._broadcast_to(shape, bindings, "where"),
            second._broadcast_to(shape, bindings, "where"),
        )

    def _pair(self, x: Operand, y: Operand) -> tuple[Self, Self]:
        """The two values of a selection in one dtype."""
        first, second = self._operand(x, "where"), self._operand(y, "where")
        if isinstance(first, bool | int | float):
            if isinstance(second, bool | int | float):
                own = dtype_of_pair(first, second)
                return self._number(first, own), self._number(second, own)
            dtype = dtype_with_number(second.dtype, first, "where")
            return second._number(first, dtype), second.cast(dtype)
        if isinstance(second, bool | int | float):
            dtype = dtype_with_number(first.dtype, second, "where")
            return first.cast(dtype), first._number(second, dtype)
        dtype = promote(first.dtype, second.dtype)
        return first.cast(dtype), second.cast(dtype)

    def masked_fill(self, mask: Operand, value: Operand) -> Self:
        """`value` where `mask` is True, else this tensor.

        Example:
            >>> Tensor([1, 2, 3]).masked_fill(Tensor([1, 2, 3]) > 1, 0).tolist()
            [1, 0, 0]
        """
        if self.dtype.is_bool and isinstance(value, int | float):
            value = bool(value)
        return self._other(mask).where(value, self)

    def clamp(self, min_: Operand = None, max_: Operand = None) -> Self:
        """Values below `min_` become `min_`, those above `max_` become `max_`; NaN stays.

        Example:
            >>> Tensor([-5, 5]).clamp(-1, 1).tolist()
            [-1, 1]
        """
        if min_ is None and max_ is None:
            raise DTypeError("clamp: neither a minimum nor a maximum is given")
        x = self
        if min_ is not None:
            x = (x < min_).where(min_, x)
        if max_ is not None:
            x = (x > max_).where(max_, x)
        return x

    def clip(self, min_: Operand = None, max_: Operand = None) -> Self:
        """Another name for `clamp`."""
        return self.clamp(min_, max_)

    def nan_to_num(
        self, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
    ) -> Self:
        """Numbers in the place of NaN and infinities (the largest finite ones by default)."""
        if not self.dtype.is_float:
            return self._apply(None)
        largest = _largest(self.dtype)
        x = self.isnan().where(nan, self)
        x = self.eq(math.inf).where(largest if posinf is None else posinf, x)
        return self.eq(-math.inf).where(-largest if neginf is None else neginf, x)

    def copysign(self, other: Operand) -> Self:
        """The magnitude of this tensor with the sign of `other`, -0.0 included.

        Example:
            >>> Tensor([1.0, 2.0]).copysign(Tensor([-0.0, 1.0])).tolist()
            [-1.0, 2.0]
        """
        x, y = self._matched(other, "copysign", as_float=True)
        return x._apply(ops.COPYSIGN, y)

    # --- operators -----------------------------------------------------------------------------

    def __add__(self, other: Operand) -> Self:
        return self.add(other)

    def __radd__(self, other: Operand) -> Self:
        return self.add(other, reverse=True)

    def __sub__(self, other: Operand) -> Self:
        return self.sub(other)

    def __rsub__(self, other: Operand) -> Self:
        return self.sub(other, reverse=True)

    def __mul__(self, other: Operand) -> Self:
        return self.mul(other)

    def __rmul__(self, other: Operand) -> Self:
        return self.mul(other, reverse=True)

    def __truediv__(self, other: Operand) -> Self:
        return self.div(other)

    def __rtruediv__(self, other: Operand) -> Self:
        return self.div(other, reverse=True)

    def __floordiv__(self, other: Operand) -> Self:
        return self.floordiv(other)

    def __rfloordiv__(self, other: Operand) -> Self:
        return self.floordiv(other, reverse=True)

    def __mod__(self, other: Operand) -> Self:
        return self.mod(other)

    def __rmod__(self, other: Operand) -> Self:
        return self.mod(other, reverse=True)

    def __pow__(self, other: Operand) -> Self:
        return self.pow(other)

    def __rpow__(self, other: Operand) -> Self:
        return self.pow(other, reverse=True)

    def __and__(self, other: Operand) -> Self:
        return self.bitwise_and(other)

    def __rand__(self, other: Operand) -> Self:
        return self.bitwise_and(other)

    def __or__(self, other: Operand) -> Self:
        return self.bitwise_or(other)

    def __ror__(self, other: Operand) -> Self:
        return self.bitwise_or(other)

    def __xor__(self, other: Operand) -> Self:
        return self.bitwise_xor(other)

    def __rxor__(self, other: Operand) -> Self:
        return self.bitwise_xor(other)

    def __lshift__(self, other: Operand) -> Self:
        return self.lshift(other)

    def __rlshift__(self, other: Operand) -> Self:
        return self.lshift(other, reverse=True)

    def __rshift__(self, other: Operand) -> Self:
        return self.rshift(other)

    def __rrshift__(self, other: Operand) -> Self:
        return self.rshift(other, reverse=True)

    def __neg__(self) -> Self:
        return self.neg()

    def __pos__(self) -> Self:
        return self

    def __abs__(self) -> Self:
        return self.abs()

    def __invert__(self) -> Self:
        return self.bitwise_not()

    def __eq__(self, other: object) -> Self:  # type: ignore[override]  # elementwise, as in NumPy
        return NotImplemented if other is None or isinstance(other, str) else self.eq(other)

    def __ne__(self, other: object) -> Self:  # type: ignore[override]  # elementwise, as in NumPy
        return NotImplemented if other is None or isinstance(other, str) else self.ne(other)

    def __lt__(self, other: Operand) -> Self:
        return self.lt(other)

    def __le__(self, other: Operand) -> Self:
        return self.le(other)

    def __gt__(self, other: Operand) -> Self:
        return self.gt(other)

    def __ge__(self, other: Operand) -> Self:
        return self.ge(other)

    __hash__ = object.__hash__


def dtype_of_pair(x: Number, y: Number) -> DType:
    """The dtype of two Python numbers."""
    a, b = dtype_of_number(x), dtype_of_number(y)
    return dtype_with_number(a, y, "where") if promote(a, b) is a else b


def _no_bool(what: str) -> DTypeError:
    return DTypeError(
        f"{what}: bool has no subtraction",
        got="bool",
        try_="x.logical_not() or x ^ y for logic, x.int() for numbers",
    )


def _largest(dtype: DType) -> Any:
    top = (1 << dtype.exponent_bits) - 1
    bits = (top << dtype.mantissa_bits) - 1
    if dtype.finite_only:
        bits = (top << dtype.mantissa_bits) | ((1 << dtype.mantissa_bits) - 2)
    return dtypes.decode(bits, dtype)
