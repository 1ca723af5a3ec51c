"""Adam and its kin."""

from __future__ import annotations

from collections.abc import Sequence

from tilework import dtypes
from tilework.base.errors import UserError
from tilework.nn.optim.optimizer import Optimizer
from tilework.tensor.tensor import Tensor


class LAMB(Optimizer):
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

    #: Whether the decay is added to the gradient instead.
    _decays_gradient = False

    def __init__(  # noqa: PLR0913  # the arguments that programs give
        self,
        params: Sequence[Tensor],
        lr: float = 0.001,
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
        if weight_decay < 0:
            raise UserError("optimizer: the weight decay is negative", got=weight_decay)
        super().__init__(params, lr, device, fused)
        self.b1 = b1
        self.b2 = b2
        self.eps = eps
        self.weight_decay = weight_decay
        self.adam = adam
        # b1 and b2 to the power of the number of steps: state, so that captures carry them on.
        self.b1_t = Tensor([1.0], device=self.device, dtype=dtypes.float32, requires_grad=False)
        self.b2_t = Tensor([1.0], device=self.device, dtype=dtypes.float32, requires_grad=False)
        self.m = self._state(self.params)
        self.v = self._state(self.params)
        self.maximize = maximize
        self.greatest = self._state(self.params) if amsgrad else []

    def _update(self, params: list[Tensor]) -> list[Tensor]:
        self.b1_t *= self.b1
        self.b2_t *= self.b2
        written = [self.b1_t, self.b2_t]
        place = {id(param): number for number, param in enumerate(self.params)}
        for param in params:
            g = self._gradient(param)
            m, v = self.m[place[id(param)]], self.v[place[id(param)]]
            value = param.cast(g.dtype)
            if self.maximize:
                g = -g
            if self.weight_decay and self._decays_gradient:
                g = g + value * self.weight_decay
            m.assign(m * self.b1 + g * (1 - self.b1))
            v.assign(v * self.b2 + g * g * (1 - self.b2))
            written += [m, v]
            mean = m / (1 - self.b1_t).cast(g.dtype)
            spread = v
            if self.greatest:
                spread = self.greatest[place[id(param)]]
                spread.assign(spread.maximum(v))
                written.append(spread)
            square = spread / (1 - self.b2_t).cast(g.dtype)
            step = mean / (square.sqrt() + self.eps)
            if self.weight_decay and not self._decays_gradient:
                step = step + value * self.weight_decay
            if not self.adam:
                step = step * _trust(value, step)
            param.assign((value - step * self.lr.cast(g.dtype)).cast(param.dtype))
        return written


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
        b1: share of the old mean of gradients.
        b2: share of the old mean of their squares.
        eps: added to the root of the mean square.
        weight_decay: of the parameter, added to the step.
        device: see `Optimizer`.
        fused: see `Optimizer`.
        betas: `b1` and `b2` as one pair.
        amsgrad: divide by the greatest mean square so far.
        maximize: go along the gradient, not against it.
    """

    def __init__(  # noqa: PLR0913  # the arguments that programs give
        self,
        params: Sequence[Tensor],
        lr: float = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        device: str | None = None,
        fused: bool = False,
        *,
        betas: tuple[float, float] | None = None,
        amsgrad: bool = False,
        maximize: bool = False,
    ) -> None:
        b1, b2 = (b1, b2) if betas is None else betas
        super().__init__(
            params, lr, b1, b2, eps, weight_decay, True, device, fused,
            amsgrad=amsgrad, maximize=maximize,
        )  # fmt: skip


class Adam(AdamW):
    """Adam (Kingma and Ba, 2014); arguments as of `AdamW`.

    `weight_decay` is 0 by default, and the parameter's share is added to its gradient.
    """

    _decays_gradient = True

    def __init__(  # noqa: PLR0913  # the arguments that programs give
        self,
        params: Sequence[Tensor],
        lr: float = 0.001,
        b1: float = 0.9,
        b2: float = 0.999,
        eps: float = 1e-8,
        device: str | None = None,
        fused: bool = False,
        *,
        betas: tuple[float, float] | None = None,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        maximize: bool = False,
    ) -> None:
        super().__init__(
            params, lr, b1, b2, eps, weight_decay, device, fused,
            betas=betas, amsgrad=amsgrad, maximize=maximize,
        )  # fmt: skip
