"""Activation functions, written so that values and gradients are right at the edges.

A branch that is not taken must not put NaN into the gradient, so its argument is replaced first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import update_wrapper
from typing import Concatenate, ParamSpec, Self, TypeVar

from tilework.base.errors import UserError
from tilework.dtypes import float32
from tilework.tensor.functions import Functions

P = ParamSpec("P")
T = TypeVar("T", bound="Activations")

SELU_SCALE = 1.0507009873554804934193349852946
SELU_ALPHA = 1.6732632423543772848170429916717


def rounded_once(
    method: Callable[Concatenate[T, P], T],
) -> Callable[Concatenate[T, P], T]:
    """Let a formula of several steps compute floats of fewer than 32 bits in float32.

    The result is rounded once, as one function's would be, and not at each step.
    """

    def wide(self: T, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if not self.dtype.is_float or self.dtype.bits >= float32.bits:
            return method(self, *args, **kwargs)
        return method(self.cast(float32), *args, **kwargs).cast(self.dtype)

    update_wrapper(wide, method)
    return wide


class Activations(Functions):
    """The nonlinear functions of neural networks."""

    __slots__ = ()

    def relu(self) -> Self:
        """The positive part; its gradient at 0 is 0, NaN stays NaN.

        Example:
            >>> Tensor([-1.0, 2.0]).relu().tolist()
            [0.0, 2.0]
        """
        return (self <= 0).where(0, self)

    def relu6(self) -> Self:
        """The part between 0 and 6.

        Example:
            >>> Tensor([-1.0, 3.0, 9.0]).relu6().tolist()
            [0.0, 3.0, 6.0]
        """
        return self.hardtanh(0, 6)

    def hardtanh(self, min_val: float = -1, max_val: float = 1) -> Self:
        """The part between two bounds; no gradient at the bounds and outside.

        Example:
            >>> Tensor([-3.0, 0.5]).hardtanh().tolist()
            [-1.0, 0.5]
        """
        x = (self <= min_val).where(min_val, self)
        found = (x >= max_val).where(max_val, x)
        return found if self.dtype.is_float else found.cast(self.dtype)

    def leaky_relu(self, neg_slope: float = 0.01) -> Self:
        """self where positive, else self * neg_slope.

        Example:
            >>> Tensor([-100.0, 1.0]).leaky_relu(0.5).tolist()
            [-50.0, 1.0]
        """
        return (self > 0).where(self, self * neg_slope)

    @rounded_once
    def sigmoid(self) -> Self:
        """1 / (1 + exp(-self)), accurate on both sides."""
        return self._as_float()._sigmoid()

    def _as_float(self) -> Self:
        return self if self.dtype.is_float else self.float()

    def _minus_abs(self) -> Self:
        """-|self|, whose slope at 0 is that of the positive side."""
        return (self >= 0).where(-self, self)

    def _sigmoid(self) -> Self:
        small = self._minus_abs().exp()
        return (self >= 0).where(1.0, small) / (small + 1.0)

    @rounded_once
    def logsigmoid(self) -> Self:
        """log(sigmoid(self)) without overflow."""
        return -((-self).softplus())

    @rounded_once
    def softplus(self, beta: float = 1.0, threshold: float = math.inf) -> Self:
        """log(1 + exp(beta * self)) / beta without overflow; self where beta * self > threshold."""
        x = self * beta
        large = (x > 0).where(x, 0.0)
        small = (x > 0).where(-x, x).exp().log1p()
        found = (large + small) * (1 / beta)
        return found if threshold == math.inf else (x > threshold).where(self, found)

    @rounded_once
    def silu(self) -> Self:
        """self * sigmoid(self).

        Example:
            >>> Tensor([0.0]).silu().tolist()
            [0.0]
        """
        return self * self.sigmoid()

    def swish(self) -> Self:
        """Another name for `silu`."""
        return self.silu()

    @rounded_once
    def quick_gelu(self) -> Self:
        """self * sigmoid(1.702 * self)."""
        return self * (self * 1.702).sigmoid()

    @rounded_once
    def gelu(self, approximate: str = "tanh") -> Self:
        """The Gaussian error linear unit.

        Args:
            approximate: "tanh" for the usual formula with tanh, "none" for the exact one with erf.

        Example:
            >>> Tensor([-1.0, 0.0, 1.0]).gelu().numpy().round(3).tolist()
            [-0.1589999943971634, 0.0, 0.8410000205039978]
        """
        if approximate == "none":
            return self * 0.5 * ((self * math.sqrt(0.5)).erf() + 1)
        if approximate != "tanh":
            raise UserError(
                "gelu: unknown approximation", got=approximate, expected='"tanh" or "none"'
            )
        # (1 + tanh(y)) / 2 is sigmoid(2 y), which keeps its digits where tanh is close to -1.
        inner = (self + self * self * self * 0.044715) * (2 * math.sqrt(2 / math.pi))
        return self * inner._sigmoid()

    @rounded_once
    def elu(self, alpha: float = 1.0) -> Self:
        """self where positive, else alpha * (exp(self) - 1)."""
        low = (self > 0).where(0.0, self).expm1() * alpha
        return (self > 0).where(self, low)

    @rounded_once
    def celu(self, alpha: float = 1.0) -> Self:
        """self where positive, else alpha * (exp(self / alpha) - 1)."""
        low = ((self > 0).where(0.0, self) / alpha).expm1() * alpha
        return (self > 0).where(self, low)

    @rounded_once
    def selu(self, alpha: float = SELU_ALPHA, gamma: float = SELU_SCALE) -> Self:
        """gamma * elu(self, alpha), with the constants that keep mean 0 and variance 1."""
        return self.elu(alpha) * gamma

    @rounded_once
    def hardsigmoid(self, alpha: float = 1 / 6, beta: float = 0.5) -> Self:
        """alpha * self + beta, cut to [0, 1]."""
        return (self * alpha + beta).hardtanh(0, 1)

    @rounded_once
    def hardswish(self) -> Self:
        """self * relu6(self + 3) / 6."""
        return self * (self + 3).relu6() * (1 / 6)

    @rounded_once
    def mish(self) -> Self:
        """self * tanh(softplus(self))."""
        return self * self.softplus().tanh()

    @rounded_once
    def softsign(self) -> Self:
        """self / (1 + |self|)."""
        return self / (self.abs() + 1)

    @rounded_once
    def tanhshrink(self) -> Self:
        """self - tanh(self)."""
        return self - self.tanh()

    def hardshrink(self, lambd: float = 0.5) -> Self:
        """self where its magnitude is above `lambd`, else 0."""
        return (self.abs() <= lambd).where(0, self)

    def softshrink(self, lambd: float = 0.5) -> Self:
        """The magnitude less `lambd`, or 0."""
        inside = self.isnan().where(self, self.zeros_like())
        above = (self > lambd).where(self - lambd, inside)
        return (self < -lambd).where(self + lambd, above)
