"""The fully connected layer."""

from __future__ import annotations

from tilework.base.errors import ShapeError
from tilework.tensor.tensor import Tensor


class Linear:
    """x @ weight^T + bias.

    Args:
        in_features: size of the last axis of the input.
        out_features: size of the last axis of the output.
        bias: whether something is added.

    Shape: (..., in_features) -> (..., out_features)

    Example:
        >>> Linear(3, 4)(Tensor.ones(2, 3)).shape
        (2, 4)
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        bound = max(in_features, 1) ** -0.5
        self.weight = Tensor.uniform(out_features, in_features, low=-bound, high=bound)
        self.bias = Tensor.uniform(out_features, low=-bound, high=bound) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        size = self.weight.shape[1]
        if not x.ndim or x.shape[-1] != size:
            raise ShapeError(
                "Linear: the last axis has another size", got=x.shape, expected=f"(..., {size})"
            )
        return x.linear(self.weight.transpose(), self.bias)
