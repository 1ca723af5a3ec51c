"""Weights of a given norm: as a length and a direction, or divided by their greatest stretch."""

from __future__ import annotations

from typing import Any

from tilework.base.errors import ShapeError, UserError
from tilework.nn.layers.convolution import ConvTranspose2d
from tilework.nn.utils.parametrize import register_parametrization, remove_parametrizations
from tilework.tensor.tensor import Tensor


class _WeightNorm:
    """`original0` are the lengths, `original1` the directions."""

    def __init__(self, dim: int | None) -> None:
        self.dim = dim

    def __call__(self, lengths: Tensor, directions: Tensor) -> Tensor:
        """The weight."""
        return directions * (lengths / self._norm(directions))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Lengths and directions of a weight."""
        return self._norm(weight), weight

    def _norm(self, weight: Tensor) -> Tensor:
        if self.dim is None:
            return weight.norm()
        axes = tuple([axis for axis in range(weight.ndim) if axis != self.dim % weight.ndim])
        return weight.norm(dim=axes, keepdim=True) if axes else weight.abs()


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """Learn the length and the direction of weights by themselves (Salimans and Kingma, 2016).

    Args:
        module: the layer.
        name: the attribute.
        dim: the axis along which each slice has its own length; None for one length of all.

    Returns:
        The layer, whose parameters are `parametrizations.weight.original0` (lengths) and
        `original1` (directions).

    Raises:
        UserError: there is no such tensor.

    Example:
        >>> from tilework import nn
        >>> layer = weight_norm(nn.Linear(3, 2))
        >>> sorted(nn.state.get_state_dict(layer))[1:]
        ['parametrizations.weight.original0', 'parametrizations.weight.original1']
    """
    return register_parametrization(module, name, _WeightNorm(None if dim == -1 else dim))


class _SpectralNorm:
    """Keeps the directions of the greatest stretch, found by power iteration."""

    def __init__(self, weight: Tensor, rounds: int, eps: float, dim: int) -> None:
        if not -weight.ndim <= dim < weight.ndim:
            raise ShapeError(
                "spectral_norm: there is no such axis", got=dim, expected=f"one of {weight.ndim}"
            )
        self.rounds = rounds
        self.eps = eps
        self.dim = dim % weight.ndim
        if weight.ndim > 1:
            matrix = self._matrix(weight.detach())
            rows, columns = matrix.shape
            like = {"dtype": matrix.dtype, "device": matrix.device, "requires_grad": False}
            self._u = Tensor.randn(rows, **like).normalize(dim=0, eps=eps).contiguous()
            self._v = Tensor.randn(columns, **like).normalize(dim=0, eps=eps).contiguous()
            for each in (self._u, self._v):
                each.requires_grad_(False)
            self._iterate(matrix, 15)

    def _matrix(self, weight: Tensor) -> Tensor:
        return weight.movedim(self.dim, 0).flatten(1)

    def _iterate(self, matrix: Tensor, rounds: int) -> None:
        u, v = self._u, self._v
        with Tensor.no_grad():
            for _ in range(rounds):
                u = (matrix @ v).normalize(dim=0, eps=self.eps)
                v = (matrix.T @ u).normalize(dim=0, eps=self.eps)
            self._u.assign(u)
            self._v.assign(v)
            Tensor.realize(self._u, self._v)

    def __call__(self, weight: Tensor) -> Tensor:
        """The weight divided by its greatest stretch."""
        if weight.ndim == 1:
            return weight.normalize(dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        if Tensor.training:
            self._iterate(matrix.detach(), self.rounds)
        return weight / self._u.clone().dot(matrix @ self._v.clone())


def spectral_norm(
    module: Any,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Any:
    """Divide weights by how much they stretch a vector at most (Miyato and others, 2018).

    Args:
        module: the layer.
        name: the attribute.
        n_power_iterations: rounds each time that the weight is read while training.
        eps: the least length of a vector.
        dim: the axis of the outputs; that of the layer by default: 1 for transposed convolutions,
            else 0.

    Returns:
        The layer, whose parameter is `parametrizations.weight.original`.

    Raises:
        UserError: there is no such tensor, or the rounds are not positive.

    Example:
        >>> from tilework import nn
        >>> layer = spectral_norm(nn.Linear(3, 2))
        >>> bool((layer.weight.svdvals()[0] - 1).abs() < 0.05)
        True
    """
    if n_power_iterations < 1:
        raise UserError("spectral_norm: needs a round at least", got=n_power_iterations)
    value = getattr(module, name, None)
    if not isinstance(value, Tensor):
        raise UserError(
            "parametrization: the layer has no such tensor", got=f"{type(module).__name__}.{name}"
        )
    if dim is None:
        dim = 1 if isinstance(module, ConvTranspose2d) else 0
    return register_parametrization(
        module, name, _SpectralNorm(value, n_power_iterations, eps, dim)
    )


def remove_weight_norm(module: Any, name: str = "weight") -> Any:
    """Make a weight of `weight_norm` a tensor of its own again."""
    return remove_parametrizations(module, name)


def remove_spectral_norm(module: Any, name: str = "weight") -> Any:
    """Make a weight of `spectral_norm` a tensor of its own again."""
    return remove_parametrizations(module, name)
