"""Adam and its kin: steps along running means of gradients, scaled by those of their squares."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tilework import dtypes
from tilework.base.errors import UserError
from tilework.nn.optim.optimizer import Optimizer
from tilework.tensor.tensor import Tensor

if TYPE_CHECKING:
    from tilework.nn.optim.groups import Params


class Moments(Optimizer):
    """What the kinds of this file keep: a mean of gradients `m`, and of squares (or so) `v`.

    Args:
        params: see `Optimizer`.
        lr: the learning rate.
        betas: shares of the old means of gradients and of their squares.
        eps: added to the root of the mean square.
        weight_decay: of the parameter, added to its gradient.
        device: see `Optimizer`.
        fused: see `Optimizer`.
        maximize: go along the gradient, not against it.

    Raises:
        UserError: a share is not in [0, 1).
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 0.001,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        device: str | None = None,
        fused: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        if not all(0 <= beta < 1 for beta in betas) or len(betas) != 2:
            raise UserError(
                "optimizer: the shares of old means make no sense",
                got=betas,
                expected="two numbers of at least 0 and below 1",
            )
        super().__init__(params, lr, device, fused, weight_decay=weight_decay, maximize=maximize)
        self.b1: float | Tensor = betas[0]
        self.b2: float = betas[1]
        self.eps = eps
        self.m = self._state(self.params)
        self.v = self._state(self.params)

    def set_momentum(self, momentum: float) -> None:
        """Change the share of the old mean of gradients of the first group; captures follow."""
        given = self._given
        self._first_share_changes(given["betas"][0] if "betas" in given else given["b1"], momentum)
        self.b1 = self._held_momentum(self.b1, momentum)
        if "betas" in self._given:
            self._given["betas"] = (momentum, self._given["betas"][1])
        else:
            self._given["b1"] = momentum

    def _first_share_changes(self, old: float, new: float) -> None:
        """What is computed of the share of the old mean, and of the number of steps."""

    def _change(self, name: str, value: Any) -> None:
        if name == "betas":
            if float(value[1]) != self.b2:
                raise UserError(
                    f"{type(self).__name__}: the second of `betas` is given once", got=value
                )
            self.set_momentum(float(value[0]))
        elif name == "b1":
            self.set_momentum(float(value))
        elif name == "b2":
            raise UserError(f"{type(self).__name__}: `b2` is given once", got=value)
        else:
            super()._change(name, value)

    def _mean(self, number: int, g: Tensor, written: list[Tensor]) -> Tensor:
        """The running mean of the gradients of one parameter, with this one."""
        m = self.m[number]
        m.assign(m * self._as(self.b1, g) + g * self._as(1 - self.b1, g))
        written.append(m)
        return m

    def _square(self, number: int, g: Tensor, written: list[Tensor]) -> Tensor:
        """The running mean of their squares."""
        v = self.v[number]
        v.assign(v * self.b2 + g * g * (1 - self.b2))
        written.append(v)
        return v


class CorrectedMoments(Moments):
    """Moments that are divided by what of them the steps so far can have reached."""

    def _start_powers(self) -> None:
        """Begin to count b1 and b2 to the power of the number of steps.

        They are state, so that captures carry them on; in float64, since 1 - b2 is 0.001 in the
        first step, and its roundings would add up later.
        """
        self.b1_t = self._number(1.0, dtypes.float64)
        self.b2_t = self._number(1.0, dtypes.float64)

    def _begin(self) -> list[Tensor]:
        self.b1_t *= self._as(self.b1, self.b1_t)
        self.b2_t *= self.b2
        return [self.b1_t, self.b2_t]

    def _first_share_changes(self, old: float, new: float) -> None:
        raise_share(self.b1_t, old, new)


class LAMB(CorrectedMoments):
    """Adam whose step for each parameter is scaled to the parameter (You and others, 2019).

    Args:
        params: see `Optimizer`.
        lr: the learning rate.
        b1: share of the old mean of gradients.
        b2: share of the old mean of their squares.
        eps: added to the root of the mean square.
        weight_decay: of the parameter, added to the step (not to the gradient).
        adam: leave the scaling out.
        device: see `Optimizer`.
        fused: see `Optimizer`.
        amsgrad: divide by the greatest mean square so far (Reddi and others, 2018).
        maximize: go along the gradient, not against it.
    """

    _decays_gradient = False

    def __init__(  # noqa: PLR0913  # the arguments that programs give
        self,
        params: Params,
        lr: float | Tensor = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        adam: bool = False,
        device: str | None = None,
        fused: bool = False,
        *,
        amsgrad: bool = False,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, (b1, b2), eps, weight_decay, device, fused, maximize=maximize)
        self.adam = adam
        self._start_powers()
        self.greatest = self._state(self.params) if amsgrad else []

    def _step(self, number: int, value: Tensor, g: Tensor, written: list[Tensor]) -> Tensor:
        m, spread = self._mean(number, g, written), self._square(number, g, written)
        mean = m / (1 - self.b1_t).cast(g.dtype)
        if self.greatest:
            greatest = self.greatest[number]
            greatest.assign(greatest.maximum(spread))
            written.append(greatest)
            spread = greatest
        square = spread / (1 - self.b2_t).cast(g.dtype)
        step = mean / (square.sqrt() + self.eps)
        if self.weight_decay and not self._decays_gradient:
            step = step + value * self.weight_decay
        if not self.adam:
            step = step * _trust(value, step)
        return step * self._rate(g)


def _trust(value: Tensor, step: Tensor) -> Tensor:
    """The norm of the parameter over that of the step; 1 where one of them is 0."""
    a, b = value.square().sum().sqrt(), step.square().sum().sqrt()
    is_usable = (a > 0) & (b > 0)
    return is_usable.where(a / is_usable.where(b, 1.0), 1.0)


class AdamW(LAMB):
    """Adam with weight decay of its own (Loshchilov and Hutter, 2017).

    Args:
        params: see `Optimizer`.
        lr: the learning rate.
        betas: shares of the old means of gradients and of their squares.
        eps: added to the root of the mean square.
        weight_decay: of the parameter, added to the step.
        amsgrad: divide by the greatest mean square so far.
        maximize: go along the gradient, not against it.
        device: see `Optimizer`.
        fused: see `Optimizer`.
    """

    def __init__(  # noqa: PLR0913  # the arguments that programs give
        self,
        params: Params,
        lr: float | Tensor = 0.001,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        device: str | None = None,
        fused: bool | None = None,
    ) -> None:
        first, second = _pair(betas)
        super().__init__(
            params, lr, first, second, eps, weight_decay, True, device, bool(fused),
            amsgrad=amsgrad, maximize=maximize,
        )  # fmt: skip


class Adam(AdamW):
    """Adam (Kingma and Ba, 2014); arguments as of `AdamW`.

    `weight_decay` is 0 by default, and the parameter's share is added to its gradient, unless
    `decoupled_weight_decay` is asked for.
    """

    _decays_gradient = True

    def __init__(  # noqa: PLR0913  # the arguments that programs give
        self,
        params: Params,
        lr: float | Tensor = 0.001,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        decoupled_weight_decay: bool = False,
        device: str | None = None,
        fused: bool | None = None,
    ) -> None:
        self._decays_gradient = not decoupled_weight_decay
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad,
            maximize=maximize, device=device, fused=fused,
        )  # fmt: skip


def _pair(betas: tuple[float, float]) -> tuple[float, float]:
    """The shares of the old means.

    Raises:
        UserError: there are no two.
    """
    if not isinstance(betas, tuple | list) or len(betas) != 2:
        raise UserError(
            "Adam: the shares of old means are no pair", got=betas, expected="two numbers"
        )
    return betas[0], betas[1]


class _Counted(Moments):
    """Kinds that count their steps, in float64, and may decay as AdamW does.

    Args:
        params: see `Moments`.
        lr: see `Moments`.
        betas: see `Moments`.
        eps: see `Moments`.
        weight_decay: of the parameter, added to its gradient, or to the step if decoupled.
        decoupled_weight_decay: add the decay to the step.
        maximize: see `Moments`.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 0.001,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        decoupled_weight_decay: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, maximize=maximize)
        self._decays_gradient = not decoupled_weight_decay
        self.steps = self._number(0.0, dtypes.float64)

    def _begin(self) -> list[Tensor]:
        self.steps += 1
        return [self.steps]

    def _scaled(self, step: Tensor, value: Tensor, g: Tensor) -> Tensor:
        """A step times the rate, with what decay takes."""
        if self.weight_decay and not self._decays_gradient:
            step = step + value * self.weight_decay
        return step * self._rate(g)


class NAdam(_Counted):
    """Adam with Nesterov's momentum (Dozat, 2016).

    Args:
        params: see `Optimizer`.
        lr: the learning rate.
        betas: shares of the old means of gradients and of their squares.
        eps: added to the root of the mean square.
        weight_decay: of the parameter, added to its gradient, or to the step if decoupled.
        momentum_decay: how fast the momentum grows to its full value.
        decoupled_weight_decay: add the decay to the step.
        maximize: go along the gradient, not against it.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 0.002,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum_decay: float = 0.004,
        decoupled_weight_decay: bool = False,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params, lr, betas, eps, weight_decay, decoupled_weight_decay, maximize=maximize
        )
        self.momentum_decay = momentum_decay
        self.product = self._number(1.0, dtypes.float64)

    def _momentum(self, steps: Tensor) -> Tensor:
        decay = (steps * (self.momentum_decay * math.log(0.96))).exp()
        return (1 - decay * 0.5) * self.b1

    def _begin(self) -> list[Tensor]:
        written = super()._begin()
        self.product.assign(self.product * self._momentum(self.steps))
        return [*written, self.product]

    def _step(self, number: int, value: Tensor, g: Tensor, written: list[Tensor]) -> Tensor:
        m, v = self._mean(number, g, written), self._square(number, g, written)
        now, after = self._momentum(self.steps), self._momentum(self.steps + 1)
        whole = 1 - _power(self.b2, self.steps)
        divisor = (v / whole.cast(g.dtype)).sqrt() + self.eps
        of_gradient = ((1 - now) / (1 - self.product)).cast(g.dtype)
        of_mean = (after / (1 - self.product * after)).cast(g.dtype)
        return self._scaled((g * of_gradient + m * of_mean) / divisor, value, g)


class RAdam(_Counted):
    """Adam that trusts its mean of squares only when it has seen enough (Liu and others, 2019).

    Arguments as of `NAdam`, without `momentum_decay`; the rate is 0.001 by default.
    """

    def _step(self, number: int, value: Tensor, g: Tensor, written: list[Tensor]) -> Tensor:
        m, v = self._mean(number, g, written), self._square(number, g, written)
        power = _power(self.b2, self.steps)
        most = 2 / (1 - self.b2) - 1
        length = most - self.steps * 2 * power / (1 - power)
        is_enough = length > 5
        safe = is_enough.where(length, 6.0)
        ratio = (safe - 4) * (safe - 2) * most / ((most - 4) * (most - 2) * safe)
        scale = ((1 - power) * ratio).sqrt().cast(g.dtype)
        mean = m / (1 - _power(self.b1, self.steps)).cast(g.dtype)
        step = mean * is_enough.where(scale / (v.sqrt() + self.eps), 1.0)
        return self._scaled(step, value, g)


class Adamax(Moments):
    """Adam with the greatest magnitude, which shrinks by the second of `betas` in each step.

    Kingma and Ba, 2014; arguments as of `Moments`, and a rate of 0.002 by default.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 0.002,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, maximize=maximize)
        self.b1_t = self._number(1.0, dtypes.float64)

    def _begin(self) -> list[Tensor]:
        self.b1_t *= self._as(self.b1, self.b1_t)
        return [self.b1_t]

    def _first_share_changes(self, old: float, new: float) -> None:
        raise_share(self.b1_t, old, new)

    def _step(self, number: int, value: Tensor, g: Tensor, written: list[Tensor]) -> Tensor:
        m, v = self._mean(number, g, written), self.v[number]
        v.assign((v * self.b2).maximum(g.abs() + self.eps))
        written.append(v)
        return m / ((1 - self.b1_t).cast(g.dtype) * v) * self._rate(g)


def raise_share(power: Tensor, old: float, new: float) -> None:
    """Make old to the power of the number of steps the same power of another share."""
    if old == new:
        return
    if not old or not new:
        raise UserError("optimizer: a share of old means of 0 does not change", got=f"{old}, {new}")
    with Tensor.no_grad():
        power.assign(power ** (math.log(new) / math.log(old))).realize()


def _power(base: float | Tensor, steps: Tensor) -> Tensor:
    """A share to the power of the number of steps."""
    if isinstance(base, Tensor):
        return base**steps
    return (steps * math.log(base)).exp() if base else steps.zeros_like()
