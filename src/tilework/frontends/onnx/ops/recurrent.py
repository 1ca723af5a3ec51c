"""RNN, GRU and LSTM, unrolled over the steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tilework import dtypes
from tilework.base.errors import ModelFileError, UnsupportedError
from tilework.base.records import dataclass
from tilework.frontends.onnx.registry import onnx_op
from tilework.frontends.onnx.values import filled, full
from tilework.tensor.tensor import Tensor

if TYPE_CHECKING:
    from tilework.frontends.onnx.call import Call

Activation = Callable[[Tensor], Tensor]


def _activation(name: str, alpha: float | None, beta: float | None) -> Activation:
    def with_default(given: float | None, default: float) -> float:
        return default if given is None else given

    def hard_sigmoid(x: Tensor) -> Tensor:
        return (x * with_default(alpha, 0.2) + with_default(beta, 0.5)).clip(0.0, 1.0)

    table: dict[str, Activation] = {
        "relu": lambda x: x.relu(),
        "tanh": lambda x: x.tanh(),
        "sigmoid": lambda x: x.sigmoid(),
        "affine": lambda x: x * with_default(alpha, 1.0) + with_default(beta, 0.0),
        "leakyrelu": lambda x: (x < 0).where(x * with_default(alpha, 0.01), x),
        "thresholdedrelu": lambda x: (x >= with_default(alpha, 1.0)).where(x, 0.0),
        "scaledtanh": lambda x: (x * with_default(beta, 1.0)).tanh() * with_default(alpha, 1.0),
        "hardsigmoid": hard_sigmoid,
        "elu": lambda x: (x < 0).where((x.exp() - 1) * with_default(alpha, 1.0), x),
        "softsign": lambda x: x / (x.abs() + 1),
        "softplus": lambda x: x.softplus(),
    }
    found = table.get(name.lower())
    if found is None:
        raise UnsupportedError(f"onnx: recurrent cells have no activation {name!r}")
    return found


Product = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Weights:
    """One direction: products with w (inputs, gates*h) and r (h, gates*h), biases, peepholes."""

    by_w: Product
    by_r: Product
    by_last_r: Product
    w_bias: Tensor | None
    r_bias: Tensor | None
    peephole: Tensor | None
    activations: tuple[Activation, ...]

    def from_inputs(self, x: Tensor) -> Tensor:
        """The part of all gates that depends on inputs, for every step in one product."""
        y = self.by_w(x)
        return y if self.w_bias is None else y + self.w_bias

    def from_state(self, h: Tensor) -> Tensor:
        """The part of all gates that depends on the state."""
        y = self.by_r(h)
        return y if self.r_bias is None else y + self.r_bias


@dataclass(frozen=True, slots=True)
class Cell:
    """What is common to the directions of one node."""

    hidden: int
    clip: float | None
    linear_before_reset: bool
    input_forget: bool

    def clipped(self, x: Tensor) -> Tensor:
        """Apply the attribute `clip` to a gate."""
        return x if self.clip is None else x.clip(-self.clip, self.clip)


State = tuple[Tensor, ...]
Step = Callable[[Cell, Weights, Tensor, State], State]


def _rnn_step(cell: Cell, weights: Weights, gates: Tensor, state: State) -> State:
    return (weights.activations[0](cell.clipped(gates + weights.from_state(state[0]))),)


def _lstm_step(cell: Cell, weights: Weights, gates: Tensor, state: State) -> State:
    """Gates in the order input, output, forget, cell."""
    h, c = state
    f_act, g_act, h_act = weights.activations
    i, o, f, g = (gates + weights.from_state(h)).chunk(4, dim=-1)
    if weights.peephole is not None:
        p_i, p_o, p_f = weights.peephole.chunk(3, dim=-1)
        i, f = i + p_i * c, f + p_f * c
    i = f_act(cell.clipped(i))
    f = 1 - i if cell.input_forget else f_act(cell.clipped(f))
    c = f * c + i * g_act(cell.clipped(g))
    if weights.peephole is not None:
        o = o + p_o * c
    return f_act(cell.clipped(o)) * h_act(c), c


def _gru_step(cell: Cell, weights: Weights, gates: Tensor, state: State) -> State:
    """Gates in the order update, reset, hidden."""
    (h,) = state
    f_act, g_act = weights.activations
    size = cell.hidden
    inner = weights.from_state(h)
    z = f_act(cell.clipped(gates[..., :size] + inner[..., :size]))
    r = f_act(cell.clipped(gates[..., size : 2 * size] + inner[..., size : 2 * size]))
    if cell.linear_before_reset:
        own = r * inner[..., 2 * size :]
    else:
        own = weights.by_last_r(r * h)
        if weights.r_bias is not None:
            own = own + weights.r_bias[2 * size :]
    n = g_act(cell.clipped(gates[..., 2 * size :] + own))
    return ((1 - z) * n + z * h,)


def run_direction(
    cell: Cell,
    weights: Weights,
    step: Step,
    x: Tensor,
    state: State,
    lengths: Tensor | None,
    is_reversed: bool,
) -> tuple[Tensor, State]:
    """Unroll one direction over x (steps, batch, inputs): all outputs, and the last state.

    Entries beyond a sequence's own length give zeros and leave its state alone.
    """
    count = int(x.shape[0])
    gates = weights.from_inputs(x)
    rows: list[Tensor] = [x] * count
    for index in range(count):
        at = count - 1 - index if is_reversed else index
        new = step(cell, weights, gates[at], state)
        row = new[0]
        if lengths is not None:
            live = (lengths > at).reshape((-1, 1))
            new = tuple(live.where(a, b) for a, b in zip(new, state, strict=True))
            row = live.where(row, row * 0)
        state = new
        rows[at] = row
    return Tensor.stack(*rows, dim=0), state


def _bias_parts(bias: Tensor | None, direction: int) -> tuple[Tensor | None, Tensor | None]:
    if bias is None:
        return None, None
    w_bias, r_bias = bias[direction].chunk(2, dim=-1)
    return w_bias, r_bias


def _activations(
    call: Call, per_direction: Sequence[str], direction: int
) -> tuple[Activation, ...]:
    count = len(per_direction)
    names = call.attribute("activations", None)
    names = list(per_direction) * (direction + 1) if not names else list(names)
    alphas = list(call.attribute("activation_alpha", ()) or ())
    betas = list(call.attribute("activation_beta", ()) or ())
    found = []
    takes_alpha = {"affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu"}
    takes_beta = {"affine", "scaledtanh", "hardsigmoid"}
    for name in names:
        # The lists hold values only for the activations that take one, in order.
        alpha = alphas.pop(0) if name.lower() in takes_alpha and alphas else None
        beta = betas.pop(0) if name.lower() in takes_beta and betas else None
        found.append(_activation(name, alpha, beta))
    return tuple(found[direction * count : (direction + 1) * count])


@dataclass(frozen=True, slots=True)
class Kind:
    """What tells RNN, GRU and LSTM apart."""

    step: Step
    activations: tuple[str, ...]
    states: int


def _times(weight: Tensor) -> Product:
    return lambda x: x.matmul(weight)


def plain_products(w: Tensor, r: Tensor) -> Callable[[int], tuple[Product, Product, Product]]:
    """Products with float weights of shape (directions, gates*h, inputs)."""

    def of_direction(index: int) -> tuple[Product, Product, Product]:
        whole = r[index].transpose(0, 1)
        # GRU multiplies the last of its three gates apart.
        last = whole[:, 2 * (whole.shape[1] // 3) :]
        return _times(w[index].transpose(0, 1)), _times(whole), _times(last)

    return of_direction


def run_cells(
    call: Call,
    kind: Kind,
    x: Tensor,
    hidden: int,
    products: Callable[[int], tuple[Product, Product, Product]],
    rest: Sequence[Tensor | None],
) -> tuple[Tensor, ...]:
    """Run every direction of a node; `rest` is bias, lengths, initial states, peepholes."""
    if call.integer("hidden_size", hidden) != hidden:
        raise ModelFileError(
            f"onnx: {call.node} has another hidden_size than its weights",
            got=str(call.integer("hidden_size")),
            expected=str(hidden),
        )
    bias, lengths, *others = filled(rest, 5)
    states = kind.states
    is_batch_first = bool(call.integer("layout", 0))
    initial = others[:states]
    peephole = others[2] if states == 2 else None
    if is_batch_first:
        x = x.transpose(0, 1)
        initial = [None if value is None else value.transpose(0, 1) for value in initial]
    cell = Cell(
        hidden,
        call.number("clip") if call.has("clip") else None,
        bool(call.integer("linear_before_reset", 0)),
        bool(call.integer("input_forget", 0)),
    )
    direction = call.text("direction", "forward")
    is_reversed = [False, True] if direction == "bidirectional" else [direction == "reverse"]
    outputs: list[Tensor] = []
    finals: list[State] = []
    for index, backwards in enumerate(is_reversed):
        weights = Weights(
            *products(index),
            *_bias_parts(bias, index),
            None if peephole is None else peephole[index],
            _activations(call, kind.activations, index),
        )
        zero = full((x.shape[1], hidden), 0.0, x.dtype, call.device)
        state = tuple(zero if value is None else value[index] for value in initial)
        spans = None if lengths is None else lengths.cast(dtypes.int64)
        y, last = run_direction(cell, weights, kind.step, x, state, spans, backwards)
        outputs.append(y)
        finals.append(last)
    return _gathered(outputs, finals, is_batch_first)


def _gathered(
    outputs: list[Tensor], finals: list[State], is_batch_first: bool
) -> tuple[Tensor, ...]:
    y = Tensor.stack(*outputs, dim=1)  # steps, directions, batch, hidden
    last = [Tensor.stack(*parts, dim=0) for parts in zip(*finals, strict=True)]
    if is_batch_first:
        y = y.permute((2, 0, 1, 3))
        last = [value.transpose(0, 1) for value in last]
    return (y, *last)


RNN = Kind(_rnn_step, ("Tanh",), 1)
GRU = Kind(_gru_step, ("Sigmoid", "Tanh"), 1)
LSTM = Kind(_lstm_step, ("Sigmoid", "Tanh", "Tanh"), 2)


def _register(name: str, kind: Kind) -> None:
    @onnx_op(name)
    def rule(
        call: Call, x: Tensor, w: Tensor, r: Tensor, *rest: Tensor | None
    ) -> tuple[Tensor, ...]:
        return run_cells(call, kind, x, int(r.shape[-1]), plain_products(w, r), rest)


_register("RNN", RNN)
_register("GRU", GRU)
_register("LSTM", LSTM)
