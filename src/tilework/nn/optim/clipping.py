"""Norms of gradients, and gradients that are kept within bounds."""

from __future__ import annotations

from collections.abc import Iterable

from tilework.base.errors import UserError
from tilework.tensor.tensor import Tensor

Tensors = Tensor | Iterable[Tensor]


def get_total_norm(
    tensors: Tensors, norm_type: float = 2.0, error_if_nonfinite: bool = False
) -> Tensor:
    """The norm of several tensors, as if their elements were one vector.

    Args:
        tensors: what counts; 0 if there are none.
        norm_type: the p of the norm, which may be infinity.
        error_if_nonfinite: read the norm, and refuse NaN and infinity.

    Raises:
        UserError: the norm is not finite.

    Example:
        >>> get_total_norm([Tensor([3.0]), Tensor([[4.0]])]).item()
        5.0
    """
    found = _listed(tensors)
    if not found:
        return Tensor(0.0)
    p = float(norm_type)
    with Tensor.no_grad():
        device = found[0].device
        parts = [each._wide().norm(p=p).to(device) for each in found]
        total = Tensor.stack(*parts).norm(p=p)
        if error_if_nonfinite and not bool(total.isfinite().item()):
            raise UserError(
                "clip: the norm of the gradients is not finite",
                got=total.item(),
                try_="error_if_nonfinite=False to scale them anyway",
            )
        return total


def clip_grads_with_norm_(parameters: Tensors, max_norm: float, total_norm: Tensor) -> None:
    """Scale all gradients by `max_norm / total_norm` where that is below 1.

    Args:
        parameters: tensors whose `grad` is scaled; those without one are left out.
        max_norm: the greatest norm.
        total_norm: what their norm is; see `get_total_norm`.
    """
    with Tensor.no_grad():
        scale = (float(max_norm) / (total_norm + 1e-6)).minimum(1.0)
        for parameter in _listed(parameters):
            g = parameter.grad
            if g is not None:
                parameter.grad = (g * scale.to(g.device).cast(g.dtype)).contiguous()


def clip_grad_norm_(
    parameters: Tensors,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
) -> Tensor:
    """Scale all gradients so that their common norm is at most `max_norm`; returns the norm.

    Args:
        parameters: tensors whose `grad` is scaled; those without one are left out.
        max_norm: the greatest norm.
        norm_type: the p of the norm, which may be infinity.
        error_if_nonfinite: read the norm, and refuse NaN and infinity.

    Raises:
        UserError: the norm is not finite.

    Example:
        >>> x = Tensor([3.0, 4.0], requires_grad=True)
        >>> _ = (x * x * 0.5).sum().backward()
        >>> clip_grad_norm_([x], 1.0).item()
        5.0
    """
    found = _listed(parameters)
    gradients = [each.grad for each in found if each.grad is not None]
    total = get_total_norm(gradients, norm_type, error_if_nonfinite)
    clip_grads_with_norm_(found, max_norm, total)
    return total


def clip_grad_value_(parameters: Tensors, clip_value: float) -> None:
    """Cut all elements of gradients to [-clip_value, clip_value]."""
    limit = float(clip_value)
    with Tensor.no_grad():
        for parameter in _listed(parameters):
            if parameter.grad is not None:
                parameter.grad = parameter.grad.clamp(-limit, limit).contiguous()


def _listed(tensors: Tensors) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)
