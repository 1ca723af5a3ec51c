"""Optimizers that scale each element by the history of its gradient: RMSprop, Adagrad and kin."""

from __future__ import annotations

from collections.abc import Sequence

from tilework.nn.optim.optimizer import Optimizer
from tilework.tensor.tensor import Tensor


class RMSprop(Optimizer):
    """Steps divided by the root of the running mean of squared gradients.

    Args:
        params: see `Optimizer`.
        lr: the learning rate.
        alpha: share of the old mean of squares.
        eps: added to the root.
        weight_decay: of the parameter, added to its gradient.
        momentum: share of the last step that is kept.
        centered: divide by the deviation instead: the mean of gradients is taken off.
    """

    def __init__(
        self,
        params: Sequence[Tensor],
        lr: float = 0.01,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
    ) -> None:
        super().__init__(params, lr)
        self.alpha = alpha
        self.eps = eps
        self.weight_decay = weight_decay
        self.momentum = momentum
        self.centered = centered
        self.square = self._state(self.params)
        self.mean = self._state(self.params) if centered else []
        self.velocity = self._state(self.params) if momentum else []

    def _update(self, params: list[Tensor]) -> list[Tensor]:
        written: list[Tensor] = []
        place = {id(param): number for number, param in enumerate(self.params)}
        for param in params:
            number = place[id(param)]
            g = self._gradient(param)
            value = param.cast(g.dtype)
            if self.weight_decay:
                g = g + value * self.weight_decay
            square = self.square[number]
            square.assign(square * self.alpha + g * g * (1 - self.alpha))
            written.append(square)
            spread = square
            if self.centered:
                mean = self.mean[number]
                mean.assign(mean * self.alpha + g * (1 - self.alpha))
                written.append(mean)
                spread = square - mean * mean
            step = g / (spread.sqrt() + self.eps)
            if self.momentum:
                velocity = self.velocity[number]
                velocity.assign(velocity * self.momentum + step)
                written.append(velocity)
                step = velocity
            param.assign((value - step * self.lr.cast(g.dtype)).cast(param.dtype))
        return written


class Adagrad(Optimizer):
    """Steps divided by the root of the sum of all squared gradients (Duchi and others, 2011).

    Args:
        params: see `Optimizer`.
        lr: the learning rate.
        lr_decay: the rate is divided by 1 + lr_decay * (steps done).
        weight_decay: of the parameter, added to its gradient.
        initial_accumulator_value: where the sums start.
        eps: added to the root.
    """

    def __init__(
        self,
        params: Sequence[Tensor],
        lr: float = 0.01,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
    ) -> None:
        super().__init__(params, lr)
        self.lr_decay = lr_decay
        self.weight_decay = weight_decay
        self.eps = eps
        self.total = self._state(self.params)
        if initial_accumulator_value:
            for total in self.total:
                total.assign(total + initial_accumulator_value)
        self.steps = Tensor([0.0], device=self.device, requires_grad=False)

    def _update(self, params: list[Tensor]) -> list[Tensor]:
        rate = self.lr / (self.steps * self.lr_decay + 1)
        rate = rate.contiguous()
        self.steps += 1
        written: list[Tensor] = [self.steps]
        totals = {id(param): total for param, total in zip(self.params, self.total, strict=True)}
        for param in params:
            g = self._gradient(param)
            value = param.cast(g.dtype)
            if self.weight_decay:
                g = g + value * self.weight_decay
            total = totals[id(param)]
            total.assign(total + g * g)
            written.append(total)
            step = g / (total.sqrt() + self.eps)
            param.assign((value - step * rate.cast(g.dtype)).cast(param.dtype))
        return written


class Adadelta(Optimizer):
    """Steps scaled by the ratio of running means of squares, of steps and gradients (Zeiler, 2012).

    Args:
        params: see `Optimizer`.
        lr: the learning rate.
        rho: share of the old means.
        eps: added under the roots.
        weight_decay: of the parameter, added to its gradient.
    """

    def __init__(
        self,
        params: Sequence[Tensor],
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr)
        self.rho = rho
        self.eps = eps
        self.weight_decay = weight_decay
        self.square = self._state(self.params)
        self.moved = self._state(self.params)

    def _update(self, params: list[Tensor]) -> list[Tensor]:
        written: list[Tensor] = []
        place = {id(param): number for number, param in enumerate(self.params)}
        for param in params:
            square, moved = self.square[place[id(param)]], self.moved[place[id(param)]]
            g = self._gradient(param)
            value = param.cast(g.dtype)
            if self.weight_decay:
                g = g + value * self.weight_decay
            square.assign(square * self.rho + g * g * (1 - self.rho))
            step = (moved + self.eps).sqrt() / (square + self.eps).sqrt() * g
            step = step.contiguous()
            moved.assign(moved * self.rho + step * step * (1 - self.rho))
            written += [square, moved]
            param.assign((value - step * self.lr.cast(g.dtype)).cast(param.dtype))
        return written


class Adamax(Optimizer):
    """Adam with the greatest magnitude instead of the mean square (Kingma and Ba, 2014).

    Args:
        params: see `Optimizer`.
        lr: the learning rate.
        b1: share of the old mean of gradients.
        b2: what the greatest magnitude shrinks by in each step.
        eps: added to magnitudes.
        weight_decay: of the parameter, added to its gradient.
    """

    def __init__(
        self,
        params: Sequence[Tensor],
        lr: float = 0.002,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr)
        self.b1 = b1
        self.b2 = b2
        self.eps = eps
        self.weight_decay = weight_decay
        self.b1_t = Tensor([1.0], device=self.device, requires_grad=False)
        self.m = self._state(self.params)
        self.u = self._state(self.params)

    def _update(self, params: list[Tensor]) -> list[Tensor]:
        self.b1_t *= self.b1
        written = [self.b1_t]
        place = {id(param): number for number, param in enumerate(self.params)}
        for param in params:
            m, u = self.m[place[id(param)]], self.u[place[id(param)]]
            g = self._gradient(param)
            value = param.cast(g.dtype)
            if self.weight_decay:
                g = g + value * self.weight_decay
            m.assign(m * self.b1 + g * (1 - self.b1))
            u.assign((u * self.b2).maximum(g.abs() + self.eps))
            written += [m, u]
            step = m / ((1 - self.b1_t).cast(g.dtype) * u)
            param.assign((value - step * self.lr.cast(g.dtype)).cast(param.dtype))
        return written
