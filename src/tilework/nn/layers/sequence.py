"""Recurrent layers over whole sequences: plain, GRU, LSTM; parameters are named as in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilework.base.errors import ShapeError, UserError
from tilework.tensor.tensor import Tensor

State = tuple[Tensor, ...]


def _plain(activation: str) -> Callable[[Tensor, Tensor, State], State]:
    def step(x: Tensor, h: Tensor, state: State) -> State:
        total = x + h
        return (total.tanh() if activation == "tanh" else total.relu(),)

    return step


def gru_step(x: Tensor, h: Tensor, state: State) -> State:
    """One step of a GRU, of the products with the input and with the old state."""
    reset_x, update_x, new_x = x.chunk(3, -1)
    reset_h, update_h, new_h = h.chunk(3, -1)
    reset, update = (reset_x + reset_h).sigmoid(), (update_x + update_h).sigmoid()
    new = (new_x + reset * new_h).tanh()
    return (new + update * (state[0] - new),)


def lstm_step(x: Tensor, h: Tensor, state: State) -> State:
    """One step of an LSTM, of the products with the input and with the old state."""
    inside, forget, cell, out = (x + h).chunk(4, -1)
    memory = forget.sigmoid() * state[1] + inside.sigmoid() * cell.tanh()
    return out.sigmoid() * memory.tanh(), memory


class _Recurrent:
    """What recurrent layers share.

    Args:
        input_size: features of the input.
        hidden_size: features of the state.
        num_layers: layers, each over the output of the one below.
        bias: whether something is added.
        batch_first: the batch is the first axis, not the second.
        dropout: between layers, while training.
        bidirectional: run over the sequence from both ends.
    """

    gates = 1
    states = 1

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
    ) -> None:
        if num_layers < 1 or hidden_size < 1:
            raise UserError(
                "recurrent layer: sizes must be positive", got=f"{num_layers}, {hidden_size}"
            )
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = dropout
        self.directions = 2 if bidirectional else 1
        bound = hidden_size**-0.5
        for layer in range(num_layers):
            inside = input_size if layer == 0 else hidden_size * self.directions
            for suffix in self._suffixes(layer):
                shapes: dict[str, tuple[int, ...]] = {
                    "weight_ih": (inside,),
                    "weight_hh": (hidden_size,),
                }
                if bias:
                    shapes |= {"bias_ih": (), "bias_hh": ()}
                for name, rest in shapes.items():
                    value = Tensor.uniform(self.gates * hidden_size, *rest, low=-bound, high=bound)
                    setattr(self, name + suffix, value)

    def _suffixes(self, layer: int) -> list[str]:
        return [f"_l{layer}", f"_l{layer}_reverse"][: self.directions]

    def _step(self, x: Tensor, h: Tensor, state: State) -> State:
        raise NotImplementedError

    def __call__(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Apply the layer.

        Args:
            x: the sequence.
            state: where to start, zeros by default; of LSTM a pair.

        Shape: x (t, n, input_size) (n, t, ... if batch_first; without n a single sequence), state
            (num_layers * directions, n, hidden_size)

        Returns:
            The outputs of the last layer at each step, and the last state.
        """
        if x.ndim == 2:
            first = None if state is None else _mapped(state, lambda part: part.unsqueeze(1))
            axis = 0 if self.batch_first else 1
            found, last = self(x.unsqueeze(axis), first)
            return found.squeeze(axis), _mapped(last, lambda part: part.squeeze(1))
        if x.ndim != 3 or x.shape[-1] != self.input_size:
            raise ShapeError(
                "recurrent layer: the input doesn't fit",
                got=x.shape,
                expected=f"(steps, batch, {self.input_size})",
            )
        rows = x.transpose(0, 1) if self.batch_first else x
        begin = self._begin(rows, state)
        ends: list[State] = []
        for layer in range(self.num_layers):
            outputs = []
            for number, suffix in enumerate(self._suffixes(layer)):
                start = tuple([part[layer * self.directions + number] for part in begin])
                output, end = self._run(rows, start, suffix, is_reverse=number == 1)
                outputs.append(output)
                ends.append(end)
            rows = outputs[0].cat(*outputs[1:], dim=-1) if len(outputs) > 1 else outputs[0]
            if layer + 1 < self.num_layers:
                rows = rows.dropout(self.dropout)
        last = tuple([Tensor.stack(*parts) for parts in zip(*ends, strict=True)])
        found = rows.transpose(0, 1) if self.batch_first else rows
        return found, last if self.states > 1 else last[0]

    def _begin(self, rows: Tensor, state: Any) -> State:
        shape = (self.num_layers * self.directions, rows.shape[1], self.hidden_size)
        if state is None:
            zeros = Tensor.zeros(*shape, dtype=rows.dtype, device=rows.device)
            return (zeros,) * self.states
        parts = tuple(state) if isinstance(state, tuple | list) else (state,)
        if len(parts) != self.states or any(part.shape != shape for part in parts):
            raise ShapeError(
                "recurrent layer: the state doesn't fit",
                got=f"{[part.shape for part in parts]}",
                expected=f"{self.states} of shape {shape}",
            )
        return parts

    def _run(
        self, rows: Tensor, state: State, suffix: str, is_reverse: bool
    ) -> tuple[Tensor, State]:
        """One layer in one direction."""
        inside = rows.matmul(getattr(self, f"weight_ih{suffix}").transpose())
        if self.bias:
            inside = inside + getattr(self, f"bias_ih{suffix}")
        weight = getattr(self, f"weight_hh{suffix}").transpose()
        outputs = []
        steps = range(rows.shape[0])
        for number in reversed(steps) if is_reverse else steps:
            product = state[0].matmul(weight)
            if self.bias:
                product = product + getattr(self, f"bias_hh{suffix}")
            state = self._step(inside[number], product, state)
            outputs.append(state[0])
        return Tensor.stack(*(outputs[::-1] if is_reverse else outputs)), state


class RNN(_Recurrent):
    """h' = tanh(W x + b + U h + c); `nonlinearity` (an attribute) may be "relu".

    Example:
        >>> RNN(3, 4)(Tensor.ones(5, 2, 3))[0].shape
        (5, 2, 4)
    """

    nonlinearity = "tanh"

    def _step(self, x: Tensor, h: Tensor, state: State) -> State:
        return _plain(self.nonlinearity)(x, h, state)


class GRU(_Recurrent):
    """Gated recurrent units (Cho and others, 2014), in PyTorch's form.

    Example:
        >>> GRU(3, 4, bidirectional=True)(Tensor.ones(5, 2, 3))[0].shape
        (5, 2, 8)
    """

    gates = 3

    def _step(self, x: Tensor, h: Tensor, state: State) -> State:
        return gru_step(x, h, state)


class LSTM(_Recurrent):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997); the state is a pair.

    Example:
        >>> output, (h, c) = LSTM(3, 4, num_layers=2)(Tensor.ones(5, 2, 3))
        >>> c.shape
        (2, 2, 4)
    """

    gates = 4
    states = 2

    def _step(self, x: Tensor, h: Tensor, state: State) -> State:
        return lstm_step(x, h, state)


class GRUCell:
    """One step of a GRU; parameters as of `GRU` without the layer's number.

    Shape: (n, input_size), (n, hidden_size) -> (n, hidden_size)
    """

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True) -> None:
        bound = hidden_size**-0.5
        shape = 3 * hidden_size
        self.hidden_size = hidden_size
        self.weight_ih = Tensor.uniform(shape, input_size, low=-bound, high=bound)
        self.weight_hh = Tensor.uniform(shape, hidden_size, low=-bound, high=bound)
        self.bias_ih = Tensor.uniform(shape, low=-bound, high=bound) if bias else None
        self.bias_hh = Tensor.uniform(shape, low=-bound, high=bound) if bias else None

    def __call__(self, x: Tensor, h: Tensor | None = None) -> Tensor:
        """Apply the layer."""
        if h is None:
            h = Tensor.zeros(*x.shape[:-1], self.hidden_size, dtype=x.dtype, device=x.device)
        inside = x.linear(self.weight_ih.transpose(), self.bias_ih)
        product = h.linear(self.weight_hh.transpose(), self.bias_hh)
        return gru_step(inside, product, (h,))[0]


def _mapped(state: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(state, tuple | list):
        return tuple([change(part) for part in state])
    return change(state)
