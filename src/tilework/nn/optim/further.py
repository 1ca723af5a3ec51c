"""Optimizers of later years: NAdam, RAdam, Rprop and Adafactor."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilework import dtypes
from tilework.base.errors import UserError
from tilework.nn.optim.optimizer import Optimizer
from tilework.tensor.tensor import Tensor


class _Moments(Optimizer):
    """Running means of gradients and of their squares, and the number of steps in float64."""

    def __init__(
        self,
        params: Sequence[Tensor],
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
    ) -> None:
        super().__init__(params, lr)
        self.b1, self.b2 = betas
        self.eps = eps
        self.weight_decay = weight_decay
        options = {"device": self.device, "dtype": dtypes.float64, "requires_grad": False}
        self.steps = Tensor([0.0], **options)  # type: ignore[arg-type]  # of different types
        self.m = self._state(self.params)
        self.v = self._state(self.params)

    def _update(self, params: list[Tensor]) -> list[Tensor]:
        self.steps += 1
        written = [self.steps, *self._prepare()]
        place = {id(param): number for number, param in enumerate(self.params)}
        for param in params:
            m, v = self.m[place[id(param)]], self.v[place[id(param)]]
            g = self._gradient(param)
            value = param.cast(g.dtype)
            if self.weight_decay:
                g = g + value * self.weight_decay
            m.assign(m * self.b1 + g * (1 - self.b1))
            v.assign(v * self.b2 + g * g * (1 - self.b2))
            written += [m, v]
            step = self._step(g, m, v)
            param.assign((value - step * self.lr.cast(g.dtype)).cast(param.dtype))
        return written

    def _prepare(self) -> list[Tensor]:
        """Write what is the same for all parameters; returns what was written."""
        return []

    def _step(self, g: Tensor, m: Tensor, v: Tensor) -> Tensor:
        """The step of one parameter for a rate of 1."""
        raise NotImplementedError


class NAdam(_Moments):
    """Adam with Nesterov's momentum (Dozat, 2016).

    Args:
        params: see `Optimizer`.
        lr: the learning rate.
        betas: shares of the old means of gradients and of their squares.
        eps: added to the root of the mean square.
        weight_decay: of the parameter, added to its gradient.
        momentum_decay: how fast the momentum grows to its full value.
    """

    def __init__(
        self,
        params: Sequence[Tensor],
        lr: float = 0.002,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 0.004,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay)
        self.momentum_decay = momentum_decay
        self.product = Tensor([1.0], device=self.device, dtype=dtypes.float64, requires_grad=False)

    def _momentum(self, steps: Tensor) -> Tensor:
        decay = (steps * (self.momentum_decay * math.log(0.96))).exp()
        return (1 - decay * 0.5) * self.b1

    def _prepare(self) -> list[Tensor]:
        self.product.assign(self.product * self._momentum(self.steps))
        return [self.product]

    def _step(self, g: Tensor, m: Tensor, v: Tensor) -> Tensor:
        now, after = self._momentum(self.steps), self._momentum(self.steps + 1)
        whole = 1 - (self.steps * math.log(self.b2)).exp()
        divisor = (v / whole.cast(g.dtype)).sqrt() + self.eps
        of_gradient = ((1 - now) / (1 - self.product)).cast(g.dtype)
        of_mean = (after / (1 - self.product * after)).cast(g.dtype)
        return (g * of_gradient + m * of_mean) / divisor


class RAdam(_Moments):
    """Adam that trusts its mean of squares only when it has seen enough (Liu and others, 2019).

    Args:
        params: see `Optimizer`.
        lr: the learning rate.
        betas: shares of the old means of gradients and of their squares.
        eps: added to the root of the mean square.
        weight_decay: of the parameter, added to its gradient.
    """

    def __init__(
        self,
        params: Sequence[Tensor],
        lr: float = 0.001,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay)

    def _step(self, g: Tensor, m: Tensor, v: Tensor) -> Tensor:
        t = self.steps
        first = 1 - (t * math.log(self.b1)).exp()
        power = (t * math.log(self.b2)).exp()
        most = 2 / (1 - self.b2) - 1
        length = most - t * 2 * power / (1 - power)
        is_enough = length > 5
        safe = is_enough.where(length, 6.0)
        ratio = (safe - 4) * (safe - 2) * most / ((most - 4) * (most - 2) * safe)
        scale = ((1 - power) * ratio).sqrt().cast(g.dtype)
        mean = m / first.cast(g.dtype)
        return mean * is_enough.where(scale / (v.sqrt() + self.eps), 1.0)


class Rprop(Optimizer):
    """Steps by the signs of gradients alone (Riedmiller and Braun, 1993).

    Args:
        params: see `Optimizer`.
        lr: the first size of each step.
        etas: what a step shrinks and grows by.
        step_sizes: the least and the greatest step.
    """

    def __init__(
        self,
        params: Sequence[Tensor],
        lr: float = 0.01,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50.0),
    ) -> None:
        super().__init__(params, lr)
        if not 0 < etas[0] < 1 < etas[1]:
            raise UserError("Rprop: the factors don't fit", got=etas, expected="0 < a < 1 < b")
        self.etas = etas
        self.step_sizes = step_sizes
        self.last = self._state(self.params)
        self.size = self._state(self.params)
        for size in self.size:
            size.assign(size + lr)

    def _update(self, params: list[Tensor]) -> list[Tensor]:
        written: list[Tensor] = []
        place = {id(param): number for number, param in enumerate(self.params)}
        for param in params:
            last, size = self.last[place[id(param)]], self.size[place[id(param)]]
            g = self._gradient(param)
            turn = (g * last).sign()
            factor = (turn < 0).where(self.etas[0], (turn > 0).where(self.etas[1], 1.0))
            size.assign((size * factor).clamp(*self.step_sizes))
            kept = (turn < 0).where(0.0, g).contiguous()
            last.assign(kept)
            written += [last, size]
            param.assign((param.cast(g.dtype) - kept.sign() * size).cast(param.dtype))
        return written


class Adafactor(Optimizer):
    """Adam's scaling with the squares kept as rows and columns (Shazeer and Stern, 2018).

    Args:
        params: see `Optimizer`.
        lr: the greatest learning rate.
        beta2_decay: the share of a new square is the number of steps to this power.
        eps: the least square (None for that of the dtype) and the least scale of a parameter.
        d: the greatest root mean square of a step.
        weight_decay: of the parameter, times the rate.
    """

    def __init__(
        self,
        params: Sequence[Tensor],
        lr: float = 0.01,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr)
        self.beta2_decay = beta2_decay
        self.eps = eps
        self.d = d
        self.weight_decay = weight_decay
        self.steps = Tensor([0.0], device=self.device, requires_grad=False)
        self.rows = self._state([param[..., :1] if param.ndim > 1 else param for param in params])
        self.columns = self._state([param[..., :1, :] for param in params if param.ndim > 1])

    def _update(self, params: list[Tensor]) -> list[Tensor]:
        self.steps += 1
        written = [self.steps]
        share = self.steps**self.beta2_decay
        rate = self.lr.minimum(self.steps.rsqrt())
        columns = iter(self.columns)
        state = {
            id(param): (row, next(columns) if param.ndim > 1 else None)
            for param, row in zip(self.params, self.rows, strict=True)
        }
        for param in params:
            g = self._gradient(param)
            value = param.cast(g.dtype)
            least = self.eps[0]
            if least is None:
                least = 2.0**-param.dtype.mantissa_bits
            row, column = state[id(param)]
            part = share.cast(g.dtype)
            if column is None:
                row.assign(row + (g * g - row) * part)
                square = row
            else:
                row.assign(row + (g.square().mean(-1, keepdim=True) - row) * part)
                column.assign(column + (g.square().mean(-2, keepdim=True) - column) * part)
                written.append(column)
                square = row * column / row.mean(-2, keepdim=True).clamp(min_=least)
            written.append(row)
            step = g * square.clamp(min_=least * least).rsqrt()
            size = step.square().mean().sqrt() / self.d
            scale = value.square().mean().sqrt().clamp(min_=self.eps[1]) * rate.cast(g.dtype)
            if self.weight_decay:
                value = value * (1 - self.lr.cast(g.dtype) * self.weight_decay)
            param.assign((value - step * (scale / size.clamp(min_=1.0))).cast(param.dtype))
        return written
