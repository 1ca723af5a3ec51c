"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Sequence

from tilework.nn.optim.optimizer import Optimizer
from tilework.tensor.tensor import Tensor


class SGD(Optimizer):
    """Steps against the gradient, with momentum as PyTorch has it.

    Args:
        params: see `Optimizer`.
        lr: the learning rate.
        momentum: share of the last step that is kept.
        weight_decay: of the parameter, added to its gradient.
        nesterov: look ahead by one step of momentum.
    """

    def __init__(
        self,
        params: Sequence[Tensor],
        lr: float = 0.001,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        super().__init__(params, lr)
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.nesterov = nesterov
        self.b = self._state(self.params) if momentum else []

    def _update(self, params: list[Tensor]) -> list[Tensor]:
        written: list[Tensor] = []
        velocity = {id(param): b for param, b in zip(self.params, self.b, strict=False)}
        for param in params:
            g = self._gradient(param)
            value = param.cast(g.dtype)
            if self.weight_decay:
                g = g + value * self.weight_decay
            if self.momentum:
                b = velocity[id(param)]
                b.assign(b * self.momentum + g)
                written.append(b)
                g = g + b * self.momentum if self.nesterov else b
            param.assign((value - g * self.lr.cast(g.dtype)).cast(param.dtype))
        return written
