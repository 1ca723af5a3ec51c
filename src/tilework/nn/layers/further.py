"""Layers with parameters that are met less often."""

from __future__ import annotations

from tilework.base.errors import UserError
from tilework.tensor.tensor import Tensor


class PReLU:
    """Negative elements times a slope that is learned, one for all or one for each channel."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25) -> None:
        self.weight = Tensor.full((num_parameters,), float(init))

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the layer."""
        return x.prelu(self.weight)


class Bilinear:
    """x1^T @ weight @ x2 + bias for each output.

    Shape: (..., in1_features) and (..., in2_features) -> (..., out_features)
    """

    def __init__(
        self, in1_features: int, in2_features: int, out_features: int, bias: bool = True
    ) -> None:
        bound = max(in1_features, 1) ** -0.5
        self.weight = Tensor.uniform(
            out_features, in1_features, in2_features, low=-bound, high=bound
        )
        self.bias = Tensor.uniform(out_features, low=-bound, high=bound) if bias else None

    def __call__(self, x1: Tensor, x2: Tensor) -> Tensor:
        """Apply the layer."""
        return x1.bilinear(x2, self.weight, self.bias)


class RNNCell:
    """One step of a plain recurrent network.

    Args:
        input_size: size of the input.
        hidden_size: size of the state.
        bias: whether something is added.
        nonlinearity: "tanh" or "relu".

    Shape: x (n, input_size), state (n, hidden_size) -> (n, hidden_size)
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh"
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise UserError(
                "RNNCell: unknown nonlinearity", got=nonlinearity, expected="tanh or relu"
            )
        bound = max(hidden_size, 1) ** -0.5
        self.hidden_size = hidden_size
        self.nonlinearity = nonlinearity
        self.weight_ih = Tensor.uniform(hidden_size, input_size, low=-bound, high=bound)
        self.weight_hh = Tensor.uniform(hidden_size, hidden_size, low=-bound, high=bound)
        self.bias_ih = Tensor.uniform(hidden_size, low=-bound, high=bound) if bias else None
        self.bias_hh = Tensor.uniform(hidden_size, low=-bound, high=bound) if bias else None

    def __call__(self, x: Tensor, state: Tensor | None = None) -> Tensor:
        """Apply the layer."""
        if state is None:
            state = Tensor.zeros(*x.shape[:-1], self.hidden_size, dtype=x.dtype, device=x.device)
        total = x.linear(self.weight_ih.T, self.bias_ih)
        total = total + state.linear(self.weight_hh.T, self.bias_hh)
        return total.tanh() if self.nonlinearity == "tanh" else total.relu()
