"""Recurrent layers over whole sequences: plain, GRU, LSTM; parameters are named as in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from tilework.base.errors import ShapeError, UserError
from tilework.nn.utils.rnn import PackedSequence
from tilework.tensor.tensor import Tensor

State = tuple[Tensor, ...]


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
        proj_size: features of the output, made from those of the state; of LSTM only.
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
        proj_size: int = 0,
    ) -> None:
        if not isinstance(bias, bool) or not 0 <= proj_size < max(hidden_size, 1):
            raise UserError(
                "recurrent layer: bias or proj_size make no sense",
                got=f"bias {bias!r}, proj_size {proj_size}",
                expected=f"True or False, and a number below {hidden_size}",
            )
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
        self.proj_size = proj_size
        given = proj_size or hidden_size
        bound = hidden_size**-0.5
        for layer in range(num_layers):
            inside = input_size if layer == 0 else given * self.directions
            for suffix in self._suffixes(layer):
                shapes: dict[str, tuple[int, ...]] = {
                    "weight_ih": (inside,),
                    "weight_hh": (given,),
                }
                if bias:
                    shapes |= {"bias_ih": (), "bias_hh": ()}
                for name, rest in shapes.items():
                    value = Tensor.uniform(self.gates * hidden_size, *rest, low=-bound, high=bound)
                    setattr(self, name + suffix, value)
                if proj_size:
                    value = Tensor.uniform(proj_size, hidden_size, low=-bound, high=bound)
                    setattr(self, f"weight_hr{suffix}", value)

    def _suffixes(self, layer: int) -> list[str]:
        return [f"_l{layer}", f"_l{layer}_reverse"][: self.directions]

    def _step(self, x: Tensor, h: Tensor, state: State) -> State:
        raise NotImplementedError

    def __call__(self, x: Tensor | PackedSequence, state: Any = None) -> tuple[Any, Any]:
        """Apply the layer.

        Args:
            x: the sequence, or sequences of several lengths as a `PackedSequence`.
            state: where to start, zeros by default; of LSTM a pair.

        Shape: x (t, n, input_size) (n, t, ... if batch_first; without n a single sequence), state
            (num_layers * directions, n, hidden_size)

        Returns:
            The outputs of the last layer at each step, packed if the input was, and the last state.

        Raises:
            ShapeError: the input or the state have other axes.
        """
        if isinstance(x, PackedSequence):
            return self._packed(x, state)
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
        steps, count = int(rows.shape[0]), int(rows.shape[1])
        flat = rows.reshape(steps * count, self.input_size)
        found, last = self._layers(flat, [count] * steps, self._begin(rows, count, state))
        found = found.reshape(steps, count, found.shape[-1])
        return (found.transpose(0, 1) if self.batch_first else found), last

    def _packed(self, x: PackedSequence, state: Any) -> tuple[PackedSequence, Any]:
        """Sequences of several lengths."""
        if x.data.ndim != 2 or x.data.shape[-1] != self.input_size:
            raise ShapeError(
                "recurrent layer: the input doesn't fit",
                got=x.data.shape,
                expected=f"(steps, {self.input_size})",
            )
        sizes = x.sizes()
        begin = self._begin(x.data, sizes[0], state)
        if x.sorted_indices is not None and state is not None:
            order = x.sorted_indices.to(x.data.device)
            begin = tuple([part.index_select(1, order) for part in begin])
        found, last = self._layers(x.data, sizes, begin)
        if x.unsorted_indices is not None:
            back = x.unsorted_indices.to(x.data.device)
            last = _mapped(last, lambda part: part.index_select(1, back))
        return x._replace(data=found), last

    def _layers(self, rows: Tensor, sizes: Sequence[int], begin: State) -> tuple[Tensor, Any]:
        """All layers over the steps of all sequences; `sizes[t]` of them have a step t."""
        ends: list[State] = []
        for layer in range(self.num_layers):
            outputs = []
            for number, suffix in enumerate(self._suffixes(layer)):
                start = tuple([part[layer * self.directions + number] for part in begin])
                output, end = self._run(rows, sizes, start, suffix, is_reverse=number == 1)
                outputs.append(output)
                ends.append(end)
            rows = outputs[0].cat(*outputs[1:], dim=-1) if len(outputs) > 1 else outputs[0]
            if layer + 1 < self.num_layers:
                rows = rows.dropout(self.dropout)
        last = tuple([Tensor.stack(*parts) for parts in zip(*ends, strict=True)])
        return rows, last if self.states > 1 else last[0]

    def _begin(self, rows: Tensor, count: int, state: Any) -> State:
        layers = self.num_layers * self.directions
        sizes = (self.proj_size or self.hidden_size, self.hidden_size)[: self.states]
        shapes = [(layers, count, size) for size in sizes]
        if state is None:
            return tuple(
                [Tensor.zeros(*shape, dtype=rows.dtype, device=rows.device) for shape in shapes]
            )
        parts = tuple(state) if isinstance(state, tuple | list) else (state,)
        if [part.shape for part in parts] != shapes:
            raise ShapeError(
                "recurrent layer: the state doesn't fit",
                got=f"{[part.shape for part in parts]}",
                expected=f"{shapes}",
            )
        return parts

    def _run(
        self, rows: Tensor, sizes: Sequence[int], start: State, suffix: str, is_reverse: bool
    ) -> tuple[Tensor, State]:
        """One layer in one direction: a sequence that ends keeps its state, one that begins joins.

        Sequences are sorted by their lengths, so those that take part in a step are the first ones.
        """
        inside = rows.matmul(getattr(self, f"weight_ih{suffix}").transpose())
        if self.bias:
            inside = inside + getattr(self, f"bias_ih{suffix}")
        weight = getattr(self, f"weight_hh{suffix}").transpose()
        begins = [0, *accumulate(sizes)]
        outputs: list[Tensor] = []
        ended: list[State] = []
        state = start
        taking_part = sizes[0] if sizes else 0
        if is_reverse:
            taking_part = sizes[-1] if sizes else 0
            state = tuple([part[:taking_part] for part in start])
        for number in reversed(range(len(sizes))) if is_reverse else range(len(sizes)):
            size = sizes[number]
            if size > taking_part:
                state = tuple(
                    [
                        part.cat(other[taking_part:size], dim=0)
                        for part, other in zip(state, start, strict=True)
                    ]
                )
            elif size < taking_part:
                ended.append(tuple([part[size:] for part in state]))
                state = tuple([part[:size] for part in state])
            taking_part = size
            product = state[0].matmul(weight)
            if self.bias:
                product = product + getattr(self, f"bias_hh{suffix}")
            state = self._step(inside[begins[number] : begins[number + 1]], product, state)
            if self.proj_size:
                projection = getattr(self, f"weight_hr{suffix}").transpose()
                state = (state[0].matmul(projection), *state[1:])
            outputs.append(state[0])
        last = tuple(
            [
                part.cat(*[each[place] for each in reversed(ended)], dim=0) if ended else part
                for place, part in enumerate(state)
            ]
        )
        ordered = outputs[::-1] if is_reverse else outputs
        return Tensor.cat(*ordered) if ordered else inside[:, : self.hidden_size], last


class RNN(_Recurrent):
    """h' = tanh(W x + b + U h + c), or relu.

    Args:
        input_size: features of the input.
        hidden_size: features of the state.
        num_layers: layers, each over the output of the one below.
        nonlinearity: "tanh" or "relu".
        bias: whether something is added.
        batch_first: the batch is the first axis, not the second.
        dropout: between layers, while training.
        bidirectional: run over the sequence from both ends.

    Raises:
        UserError: the nonlinearity is unknown, or a size makes no sense.

    Example:
        >>> RNN(3, 4)(Tensor.ones(5, 2, 3))[0].shape
        (5, 2, 4)
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise UserError("RNN: unknown nonlinearity", got=nonlinearity, expected="tanh or relu")
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        )
        self.nonlinearity = nonlinearity

    def _step(self, x: Tensor, h: Tensor, state: State) -> State:
        total = x + h
        return (total.tanh() if self.nonlinearity == "tanh" else total.relu(),)


class GRU(_Recurrent):
    """Gated recurrent units (Cho and others, 2014), in PyTorch's form.

    Args:
        input_size: features of the input.
        hidden_size: features of the state.
        num_layers: layers, each over the output of the one below.
        bias: whether something is added.
        batch_first: the batch is the first axis, not the second.
        dropout: between layers, while training.
        bidirectional: run over the sequence from both ends.

    Example:
        >>> GRU(3, 4, bidirectional=True)(Tensor.ones(5, 2, 3))[0].shape
        (5, 2, 8)
    """

    gates = 3

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
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional
        )

    def _step(self, x: Tensor, h: Tensor, state: State) -> State:
        return gru_step(x, h, state)


class LSTM(_Recurrent):
    """Long short-term memory (Hochreiter and Schmidhuber, 1997); the state is a pair.

    Args:
        input_size: features of the input.
        hidden_size: features of the state.
        num_layers: layers, each over the output of the one below.
        bias: whether something is added.
        batch_first: the batch is the first axis, not the second.
        dropout: between layers, while training.
        bidirectional: run over the sequence from both ends.
        proj_size: features of the output, made from those of the state; 0 for none.

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
