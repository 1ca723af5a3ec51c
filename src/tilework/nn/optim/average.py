"""Clipping of gradients, and running averages of parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilework.base.errors import UserError
from tilework.tensor.tensor import Tensor


def clip_grad_norm_(params: Sequence[Tensor], max_norm: float, norm_type: float = 2.0) -> Tensor:
    """Scale all gradients so that their common norm is at most `max_norm`; returns the norm.

    Args:
        params: tensors whose `grad` is scaled; those without one are left out.
        max_norm: the greatest norm.
        norm_type: the p of the norm, which may be infinity.

    Example:
        >>> x = Tensor([3.0, 4.0], requires_grad=True)
        >>> _ = (x * x * 0.5).sum().backward()
        >>> clip_grad_norm_([x], 1.0).item()
        5.0
    """
    with_grad = [param for param in params if param.grad is not None]
    if not with_grad:
        return Tensor(0.0)
    with Tensor.no_grad():
        parts = [_grad(param)._wide().norm(p=norm_type) for param in with_grad]
        together = Tensor.stack(*parts)
        total = together.max() if norm_type == math.inf else together.norm(p=norm_type)
        scale = (max_norm / (total + 1e-6)).minimum(1.0)
        for param in with_grad:
            g = _grad(param)
            param.grad = (g * scale.cast(g.dtype)).contiguous()
        return total


def clip_grad_value_(params: Sequence[Tensor], clip_value: float) -> None:
    """Cut all elements of gradients to [-clip_value, clip_value]."""
    with Tensor.no_grad():
        for param in params:
            if param.grad is not None:
                param.grad = param.grad.clamp(-clip_value, clip_value).contiguous()


def _grad(param: Tensor) -> Tensor:
    found = param.grad
    if found is None:
        raise UserError("clip: a parameter lost its gradient")
    return found


class EMA:
    """Running averages of parameters, which often do better than the last ones.

    Args:
        params: what is averaged.
        decay: share of the old average.

    Example:
        >>> x = Tensor([1.0]).contiguous()
        >>> average = EMA([x], decay=0.5)
        >>> _ = x.assign(Tensor([3.0]))
        >>> average.update()
        >>> average.averages[0].tolist()
        [2.0]
    """

    def __init__(self, params: Sequence[Tensor], decay: float = 0.999) -> None:
        if not 0 <= decay <= 1:
            raise UserError("EMA: the decay is no share", got=decay)
        self.params = list(params)
        self.decay = decay
        self.averages = [param.detach().clone() for param in self.params]
        for average in self.averages:
            average.requires_grad_(False)
        if self.averages:
            Tensor.realize(*self.averages)

    def update(self) -> None:
        """Take in what the parameters are now."""
        with Tensor.no_grad():
            for average, param in zip(self.averages, self.params, strict=True):
                average.assign(average * self.decay + param.detach() * (1 - self.decay))
            if self.averages:
                Tensor.realize(*self.averages)

    def copy_to_params(self) -> None:
        """Write the averages into the parameters."""
        with Tensor.no_grad():
            for average, param in zip(self.averages, self.params, strict=True):
                param.assign(average)
            if self.params:
                Tensor.realize(*self.params)
