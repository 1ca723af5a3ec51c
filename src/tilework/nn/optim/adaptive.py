"""Optimizers that scale each element by the history of its gradient: RMSprop, Adagrad and kin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.errors import UserError
from tilework.nn.optim.optimizer import Optimizer

if TYPE_CHECKING:
    from tilework.nn.optim.groups import Params
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
        maximize: go along the gradient, not against it.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 0.01,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, weight_decay=weight_decay, maximize=maximize)
        self.alpha = alpha
        self.eps = eps
        self.momentum: float | Tensor = momentum
        self.centered = centered
        self.square = self._state(self.params)
        self.mean = self._state(self.params) if centered else []
        self.velocity = self._state(self.params) if momentum else []

    def set_momentum(self, momentum: float) -> None:
        """Change the share of the last step that is kept by the first group; captures follow."""
        self.momentum = self._held_momentum(self.momentum, momentum)
        self._given["momentum"] = momentum
        if not self.velocity:
            self.velocity = self._state(self.params)

    def _step(self, number: int, value: Tensor, g: Tensor, written: list[Tensor]) -> Tensor:
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
        if self.velocity:
            velocity = self.velocity[number]
            velocity.assign(velocity * self._as(self.momentum, g) + step)
            written.append(velocity)
            step = velocity
        return step * self._rate(g)


class Adagrad(Optimizer):
    """Steps divided by the root of the sum of all squared gradients (Duchi and others, 2011).

    Args:
        params: see `Optimizer`.
        lr: the learning rate.
        lr_decay: the rate is divided by 1 + lr_decay * (steps done).
        weight_decay: of the parameter, added to its gradient.
        initial_accumulator_value: where the sums start.
        eps: added to the root.
        maximize: go along the gradient, not against it.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 0.01,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, weight_decay=weight_decay, maximize=maximize)
        self.lr_decay = lr_decay
        self.eps = eps
        self.total = self._state(self.params)
        if initial_accumulator_value:
            for total in self.total:
                # Now: a write that is pending would be captured with a step, and repeated.
                total.assign(total + initial_accumulator_value).realize()
        self.steps = self._number(0.0)

    def _step(self, number: int, value: Tensor, g: Tensor, written: list[Tensor]) -> Tensor:
        total = self.total[number]
        total.assign(total + g * g)
        written.append(total)
        rate = self.lr / (self.steps * self.lr_decay + 1)
        return g / (total.sqrt() + self.eps) * rate.cast(g.dtype)

    def _end(self) -> list[Tensor]:
        self.steps += 1
        return [self.steps]


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
        params: Params,
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, weight_decay=weight_decay, maximize=maximize)
        self.rho = rho
        self.eps = eps
        self.square = self._state(self.params)
        self.moved = self._state(self.params)

    def _step(self, number: int, value: Tensor, g: Tensor, written: list[Tensor]) -> Tensor:
        square, moved = self.square[number], self.moved[number]
        square.assign(square * self.rho + g * g * (1 - self.rho))
        step = (moved + self.eps).sqrt() / (square + self.eps).sqrt() * g
        step = step.contiguous()
        moved.assign(moved * self.rho + step * step * (1 - self.rho))
        written += [square, moved]
        return step * self._rate(g)


class Rprop(Optimizer):
    """Steps by the signs of gradients alone (Riedmiller and Braun, 1993).

    Args:
        params: see `Optimizer`.
        lr: the first size of each step.
        etas: what a step shrinks and grows by.
        step_sizes: the least and the greatest step.
        maximize: go along the gradient, not against it.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 0.01,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50.0),
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, maximize=maximize)
        if not 0 < etas[0] < 1 < etas[1]:
            raise UserError("Rprop: the factors don't fit", got=etas, expected="0 < a < 1 < b")
        self.etas = etas
        self.step_sizes = step_sizes
        self.last = self._state(self.params)
        self.size = self._state(self.params)
        for size in self.size:
            # Now: a write that is pending would be captured with a step, and repeated.
            size.assign(size + self._rate(size)).realize()

    def _step(self, number: int, value: Tensor, g: Tensor, written: list[Tensor]) -> Tensor:
        last, size = self.last[number], self.size[number]
        turn = (g * last).sign()
        factor = (turn < 0).where(self.etas[0], (turn > 0).where(self.etas[1], 1.0))
        size.assign((size * factor).clamp(*self.step_sizes))
        kept = (turn < 0).where(0.0, g).contiguous()
        last.assign(kept)
        written += [last, size]
        return kept.sign() * size


class ASGD(Optimizer):
    """Plain steps whose results are averaged (Polyak and Juditsky, 1992); see `average`.

    Args:
        params: see `Optimizer`.
        lr: the first learning rate.
        lambd: how fast the rate falls, and by how much parameters shrink in a step of rate 1.
        alpha: the power of the number of steps by which the rate falls.
        t0: the step at which averaging starts.
        weight_decay: of the parameter, added to its gradient.
        maximize: go along the gradient, not against it.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 0.01,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, weight_decay=weight_decay, maximize=maximize)
        self.lambd = lambd
        self.alpha = alpha
        self.t0 = t0
        self.steps = self._number(0.0)
        #: The mean of each parameter over the steps from `t0` on.
        self.average = self._state(self.params)

    def _step(self, number: int, value: Tensor, g: Tensor, written: list[Tensor]) -> Tensor:
        fall = (self.lr * self.steps * self.lambd + 1) ** self.alpha
        rate = (self.lr / fall).cast(g.dtype)
        step = (value * self.lambd + g) * rate
        share = 1 / (self.steps - self.t0).maximum(1.0)
        average, moved = self.average[number], value - step
        average.assign(share.eq(1).where(moved, average + (moved - average) * share.cast(g.dtype)))
        written.append(average)
        return step

    def _end(self) -> list[Tensor]:
        self.steps += 1
        return [self.steps]


class Adafactor(Optimizer):
    """Adam's scaling with the squares kept as rows and columns (Shazeer and Stern, 2018).

    Args:
        params: see `Optimizer`.
        lr: the greatest learning rate.
        beta2_decay: the share of a new square is the number of steps to this power.
        eps: the least square (None for that of the dtype) and the least scale of a parameter.
        d: the greatest root mean square of a step.
        weight_decay: of the parameter, times the rate.
        maximize: go along the gradient, not against it.
    """

    _decays_gradient = False

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 0.01,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, weight_decay=weight_decay, maximize=maximize)
        self.beta2_decay = beta2_decay
        self.eps = eps
        self.d = d
        self.steps = self._number(0.0)
        many = [param for param in self.params if param.ndim > 1]
        wholes = [param[..., :1] if param.ndim > 1 else param for param in self.params]
        self.rows = self._state(wholes)
        self.columns = self._state([param[..., :1, :] for param in many])
        # Which of the columns belongs to a parameter.
        self._places = {id(param): place for place, param in enumerate(many)}

    def _begin(self) -> list[Tensor]:
        self.steps += 1
        return [self.steps]

    def _step(self, number: int, value: Tensor, g: Tensor, written: list[Tensor]) -> Tensor:
        param, row = self.params[number], self.rows[number]
        least = 2.0**-param.dtype.mantissa_bits if self.eps[0] is None else self.eps[0]
        part = (self.steps**self.beta2_decay).cast(g.dtype)
        if id(param) in self._places:
            column = self.columns[self._places[id(param)]]
            row.assign(row + (g.square().mean(-1, keepdim=True) - row) * part)
            column.assign(column + (g.square().mean(-2, keepdim=True) - column) * part)
            written.append(column)
            square = row * column / row.mean(-2, keepdim=True).clamp(min_=least)
        else:
            row.assign(row + (g * g - row) * part)
            square = row
        written.append(row)
        step = g * square.clamp(min_=least * least).rsqrt()
        size = (step.square().mean().sqrt() / self.d).clamp(min_=1.0)
        rate = self.lr.minimum(self.steps.rsqrt()).cast(g.dtype)
        scale = value.square().mean().sqrt().clamp(min_=self.eps[1]) * rate
        decay = value * (self._rate(g) * self.weight_decay) if self.weight_decay else 0.0
        return step * (scale / size) + decay
