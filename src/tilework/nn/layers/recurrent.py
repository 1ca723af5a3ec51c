"""Recurrent cells."""

from __future__ import annotations

from tilework.tensor.tensor import Tensor


class LSTMCell:
    """One step of a long short-term memory; gates in the order input, forget, cell, output.

    Args:
        input_size: size of the input.
        hidden_size: size of the state.
        bias: whether something is added to the gates.

    Shape: x (n, input_size), state two of (n, hidden_size) -> two of (n, hidden_size); without n
        likewise
    """

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True) -> None:
        bound = max(hidden_size, 1) ** -0.5
        width = 4 * hidden_size
        self.hidden_size = hidden_size
        self.weight_ih = Tensor.uniform(width, input_size, low=-bound, high=bound)
        self.weight_hh = Tensor.uniform(width, hidden_size, low=-bound, high=bound)
        self.bias_ih = Tensor.uniform(width, low=-bound, high=bound) if bias else None
        self.bias_hh = Tensor.uniform(width, low=-bound, high=bound) if bias else None

    def __call__(
        self, x: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Apply the layer."""
        if state is None:
            zeros = Tensor.zeros(*x.shape[:-1], self.hidden_size, dtype=x.dtype, device=x.device)
            state = (zeros, zeros)
        hidden, cell = state
        gates = x.linear(self.weight_ih.T, self.bias_ih)
        gates = gates + hidden.linear(self.weight_hh.T, self.bias_hh)
        enter, forget, new, leave = gates.chunk(4, dim=-1)
        cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
        return leave.sigmoid() * cell.tanh(), cell
