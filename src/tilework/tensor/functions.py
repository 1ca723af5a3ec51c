"""Elementary functions, element by element; integers are taken as float32."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Self

from tilework.ir.ops import math as ops
from tilework.tensor.elementwise import Elementwise, Operand

if TYPE_CHECKING:
    from tilework.ir.node import OpDef


class Functions(Elementwise):
    """Exponentials, logarithms, trigonometry, rounding."""

    __slots__ = ()

    def exp(self) -> Self:
        """e to the power of self."""
        return self._float_unary(ops.EXP)

    def exp2(self) -> Self:
        """2 to the power of self.

        Example:
            >>> Tensor([3.0]).exp2().tolist()
            [8.0]
        """
        return self._float_unary(ops.EXP2)

    def expm1(self) -> Self:
        """exp(self) - 1, accurate near 0."""
        return self._float_unary(ops.EXPM1)

    def log(self) -> Self:
        """The natural logarithm."""
        return self._float_unary(ops.LOG)

    def log2(self) -> Self:
        """The logarithm to base 2.

        Example:
            >>> Tensor([8.0]).log2().tolist()
            [3.0]
        """
        return self._float_unary(ops.LOG2)

    def log10(self) -> Self:
        """The logarithm to base 10."""
        return self._float_unary(ops.LOG2) * math.log10(2)

    def log1p(self) -> Self:
        """log(1 + self), accurate near 0."""
        return self._float_unary(ops.LOG1P)

    def sin(self) -> Self:
        """The sine of radians."""
        return self._float_unary(ops.SIN)

    def cos(self) -> Self:
        """The cosine of radians."""
        return self._float_unary(ops.COS)

    def tan(self) -> Self:
        """The tangent of radians."""
        return self._float_unary(ops.TAN)

    def asin(self) -> Self:
        """The arc sine in radians."""
        return self._float_unary(ops.ASIN)

    def acos(self) -> Self:
        """The arc cosine in radians."""
        return self._float_unary(ops.ACOS)

    def atan(self) -> Self:
        """The arc tangent in radians."""
        return self._float_unary(ops.ATAN)

    def atan2(self, other: Operand) -> Self:
        """The angle of the point (other, self)."""
        x, y = self._matched(other, "atan2", as_float=True)
        return x._apply(ops.ATAN2, y)

    def sinh(self) -> Self:
        """The hyperbolic sine."""
        return self._float_unary(ops.SINH)

    def cosh(self) -> Self:
        """The hyperbolic cosine."""
        return self._float_unary(ops.COSH)

    def tanh(self) -> Self:
        """The hyperbolic tangent."""
        return self._float_unary(ops.TANH)

    def asinh(self) -> Self:
        """The inverse hyperbolic sine."""
        return self._float_unary(ops.ASINH)

    def acosh(self) -> Self:
        """The inverse hyperbolic cosine."""
        return self._float_unary(ops.ACOSH)

    def atanh(self) -> Self:
        """The inverse hyperbolic tangent."""
        return self._float_unary(ops.ATANH)

    def erf(self) -> Self:
        """The error function."""
        return self._float_unary(ops.ERF)

    def _rounded(self, op: OpDef) -> Self:
        return self._apply(op if self.dtype.is_float else None)

    def floor(self) -> Self:
        """The greatest integer not above each element.

        Example:
            >>> Tensor([-1.5]).floor().tolist()
            [-2.0]
        """
        return self._rounded(ops.FLOOR)

    def ceil(self) -> Self:
        """The least integer not below each element."""
        return self._rounded(ops.CEIL)

    def trunc(self) -> Self:
        """Each element rounded towards zero.

        Example:
            >>> Tensor([-1.5]).trunc().tolist()
            [-1.0]
        """
        return self._rounded(ops.TRUNC)

    def round(self, decimals: int = 0) -> Self:
        """Each element rounded to the nearest integer, ties to even.

        Args:
            decimals: round to so many digits behind the point; negative ones before it.

        Example:
            >>> Tensor([0.5, 1.5, 2.5]).round().tolist()
            [0.0, 2.0, 2.0]
        """
        if decimals == 0:
            return self._rounded(ops.ROUND)
        scale = 10.0 ** abs(decimals)
        if decimals > 0:
            return (self * scale)._rounded(ops.ROUND) / scale
        return (self / scale)._rounded(ops.ROUND) * scale

    def logaddexp(self, other: Operand) -> Self:
        """log(exp(self) + exp(other)) without overflow."""
        x, y = self._matched(other, "logaddexp", as_float=True)
        # Both branches are smooth where x and y are equal, which `maximum` and `abs` are not.
        is_more = x > y
        large, small = is_more.where(x, y), is_more.where(y, x)
        is_same = x.eq(y) & x.abs().eq(math.inf)
        return large + is_same.where(0.0, small - large).exp().log1p()

    def hypot(self, other: Operand) -> Self:
        """sqrt(self**2 + other**2) without overflow in between."""
        x, y = self._matched(other, "hypot", as_float=True)
        large, small = x.abs().maximum(y.abs()), x.abs().minimum(y.abs())
        is_plain = large.ne(0) & large.isfinite()
        ratio = small / is_plain.where(large, 1.0)
        found = is_plain.where(large * (ratio * ratio + 1).sqrt(), large)
        is_infinite = x.abs().eq(math.inf) | y.abs().eq(math.inf)
        return is_infinite.where(math.inf, found)._with_gradient(_gradient_of_hypot, x, y)


def _gradient_of_hypot(sources: tuple[Any, ...], g: Any) -> tuple[Any, ...]:
    """Smooth where the two are equal; 0 where both are 0 or one is infinite."""
    x, y = sources
    length = x.hypot(y)
    is_plain = length.ne(0) & length.ne(math.inf)
    factor, divisor = is_plain.where(g, 0.0), is_plain.where(length, 1.0)
    # The quotients first: 1 / length may be beyond the dtype where they are not.
    shares = [is_plain.where(each, 0.0) / divisor for each in (x, y)]
    return shares[0] * factor, shares[1] * factor
