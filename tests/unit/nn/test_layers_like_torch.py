"""Layers with parameters: PyTorch's arguments, state, numbers and gradients."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tilework import Tensor, nn
from tilework.base.errors import IndexingError, ShapeError, TileworkError, UserError
from tilework.nn.layers.functions import LAYERS

RANDOM = np.random.default_rng(5)


def numbers(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype("float32")


X, IMAGES, SEQUENCES = numbers(2, 4, 6), numbers(2, 4, 6, 6), numbers(3, 3, 8)
MEMORY = numbers(4, 3, 8)
CAUSAL = np.triu(np.full((3, 3), -np.inf, "float32"), 1)
PADDING = np.arange(3)[None] >= np.array([[3], [1], [2]])
MEMORY_PADDING = np.arange(4)[None] >= np.array([[4], [3], [2]])
FAR_BELOW = np.where(PADDING, -1e9, 0.0).astype("float32")
WORDS = np.array([[0, 2, 2], [5, 1, 0]])

Row = tuple[str, tuple[Any, ...], dict[str, Any], tuple[Any, ...], dict[str, Any]]


def row(name: str, *given: Any, x: Any, call: dict[str, Any] | None = None, **named: Any) -> Row:
    inputs = x if isinstance(x, tuple) else (x,)
    return name, given, named, inputs, call or {}


ROWS: list[Row] = [
    row("Linear", 6, 3, x=X), row("Linear", 6, 3, False, x=X),
    row("Bilinear", 6, 6, 3, x=(X, X[::-1].copy())), row("PReLU", 4, x=X),
    *[
        row("Conv2d", 4, 6, 3, padding=1, padding_mode=mode, groups=2, x=IMAGES)
        for mode in ("zeros", "reflect", "replicate", "circular")
    ],
    row("Conv1d", 4, 3, 3, padding="same", padding_mode="reflect", dilation=2, x=X),
    row("Conv2d", 4, 3, (3, 2), (2, 1), (1, 0), x=IMAGES),
    row("ConvTranspose2d", 4, 6, 3, 2, 1, 1, groups=2, dilation=2, x=IMAGES),
    row("BatchNorm1d", 4, 1e-3, 0.2, x=X),
    row("BatchNorm2d", num_features=4, affine=False, x=IMAGES),
    row("BatchNorm2d", 4, 1e-5, 0.1, True, False, x=IMAGES),
    row("BatchNorm2d", 4, 1e-5, None, True, True, x=IMAGES), row("BatchNorm1d", 4, bias=False, x=X),
    row("InstanceNorm1d", 4, x=X), row("InstanceNorm1d", 4, x=X[0]),
    row("InstanceNorm2d", 4, 1e-3, 0.3, True, True, x=IMAGES),
    row("InstanceNorm2d", 4, 1e-5, None, True, True, bias=False, x=IMAGES),
    row("GroupNorm", 2, 4, 1e-3, x=X), row("GroupNorm", 2, 4, bias=False, x=X),
    row("LayerNorm", (4, 6), bias=False, x=X), row("LayerNorm", 6, x=X),
    row("RMSNorm", (4, 6), 1e-3, x=X), row("RMSNorm", normalized_shape=6, eps=None, x=X),
    row("Embedding", 7, 3, x=WORDS),
    row("Embedding", num_embeddings=7, embedding_dim=3, padding_idx=2, x=WORDS),
    row("Embedding", 7, 3, scale_grad_by_freq=True, x=WORDS),
    row("EmbeddingBag", 7, 3, x=WORDS), row("EmbeddingBag", 7, 3, mode="max", x=WORDS),
    row("EmbeddingBag", 7, 3, mode="sum", x=(WORDS, None, numbers(2, 3))),
    row("EmbeddingBag", 7, 3, mode="sum", padding_idx=2, include_last_offset=True,
        x=(WORDS.flatten(), np.array([0, 4, 6]))),
    *[row(name, 8, 4, 2, x=SEQUENCES) for name in ("RNN", "GRU", "LSTM")],
    row("RNN", 8, 4, 1, "relu", False, True, 0.0, True, x=SEQUENCES),
    row("LSTM", 8, 4, proj_size=2, x=(SEQUENCES, (numbers(1, 3, 2), numbers(1, 3, 4)))),
    row("LSTM", 8, 4, proj_size=2, batch_first=True, x=SEQUENCES[0]),
    *[row(name, 8, 4, x=x)
      for name in ("RNNCell", "GRUCell", "LSTMCell") for x in (numbers(2, 8), numbers(8))],
    row("RNNCell", 8, 4, False, "relu", x=(SEQUENCES[0], numbers(3, 4))),
    *[
        row("MultiheadAttention", 8, 2, *given, x=(SEQUENCES, SEQUENCES, SEQUENCES), call=call)
        for given, call in (
            ((), {}), ((0.0, False), {"need_weights": False}),
            ((0.0, True, True, True), {"key_padding_mask": PADDING, "attn_mask": CAUSAL}),
            ((), {"average_attn_weights": False, "attn_mask": np.repeat(CAUSAL[None], 6, 0) != 0}),
        )
    ],
    row("MultiheadAttention", 8, 2, kdim=3, vdim=4, batch_first=True,
        x=(numbers(3, 3, 8), numbers(3, 4, 3), numbers(3, 4, 4)),
        call={"key_padding_mask": MEMORY_PADDING}),
    row("MultiheadAttention", 8, 2, x=(SEQUENCES[:, 0], MEMORY[:, 0], MEMORY[:, 0])),
    *[
        row("TransformerEncoderLayer", 8, 2, 16, 0.0, **options, x=SEQUENCES,
            call={"src_mask": CAUSAL, "src_key_padding_mask": FAR_BELOW})
        for options in ({}, {"activation": "gelu", "norm_first": True, "bias": False})
    ],
    row("TransformerDecoderLayer", 8, 2, 16, 0.0, norm_first=True, x=(SEQUENCES, MEMORY),
        call={"tgt_mask": CAUSAL, "memory_key_padding_mask": MEMORY_PADDING,
              "tgt_is_causal": True}),
    row("Transformer", 8, 2, 1, 1, 16, 0.0, batch_first=True, norm_first=True, bias=False,
        x=(MEMORY, MEMORY[::-1].copy())),
]  # fmt: skip

#: For the full run alone; smaller ones of their kinds are above.
SLOW_ROWS: list[Row] = [
    row("LSTM", 8, 4, 2, bidirectional=True, proj_size=3, x=SEQUENCES[:2]),
    row("Transformer", 8, 2, 1, 2, 16, 0.0, x=(MEMORY, SEQUENCES),
        call={"tgt_mask": CAUSAL, "src_key_padding_mask": MEMORY_PADDING,
              "tgt_key_padding_mask": FAR_BELOW,
              "memory_key_padding_mask": MEMORY_PADDING}),
]  # fmt: skip


def in_library(value: Any, library: Any, has_gradient: bool = False) -> Any:
    if isinstance(value, tuple):
        return tuple(in_library(each, library, has_gradient) for each in value)
    if not isinstance(value, np.ndarray):
        return value
    wants = has_gradient and value.dtype.kind == "f"
    if library is torch:
        return torch.tensor(value, requires_grad=wants)
    return Tensor(value, requires_grad=wants or None)


def flat(found: Any) -> list[Any]:
    if isinstance(found, tuple | list):
        return [each for part in found for each in flat(part)]
    return [] if found is None else [found]


def pair(name: str, given: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, Any]:
    """Both layers with the same parameters; PyTorch's are drawn, so that none are 0 or 1."""
    theirs = getattr(torch.nn, name)(*given, **named)
    own = getattr(nn, name)(*given, **named)
    with torch.no_grad():
        for value in theirs.parameters():
            value.copy_(torch.from_numpy(numbers(*value.shape)) * 0.5)
    state = {key: Tensor(value.numpy()) for key, value in theirs.state_dict().items()}
    assert set(nn.state.get_state_dict(own)) == set(state)
    nn.state.load_state_dict(own, state)
    return own, theirs


@pytest.mark.filterwarnings("ignore::UserWarning")  # PyTorch's of slow paths
@pytest.mark.parametrize(
    ("name", "given", "named", "inputs", "call"),
    [
        *(pytest.param(*each, id=each[0]) for each in ROWS),
        *(pytest.param(*each, id=each[0], marks=pytest.mark.slow) for each in SLOW_ROWS),
    ],
)
def test_values_and_gradients_are_pytorchs(
    name: str,
    given: tuple[Any, ...],
    named: dict[str, Any],
    inputs: tuple[Any, ...],
    call: dict[str, Any],
) -> None:
    own, theirs = pair(name, given, named)
    found, given_back = [], []
    for layer, library in ((own, Tensor), (theirs, torch)):
        options = {key: in_library(value, library) for key, value in call.items()}
        with Tensor.train():
            values = in_library(inputs, library, True)
            results = flat(layer(*values, **options))
        if library is Tensor:
            for parameter in nn.state.get_parameters(layer):
                if parameter.requires_grad is None and parameter.dtype.is_float:
                    parameter.requires_grad_()
        (results[0] * results[0]).sum().backward()
        found.append(results)
        given_back.append([each.grad for each in flat(values) if each.grad is not None])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=2e-4, atol=2e-5)
    for a, b in zip(*given_back, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=2e-3, atol=2e-3)
    own_state = nn.state.get_state_dict(own)
    for key, value in theirs.state_dict(keep_vars=True).items():
        assert tuple(own_state[key].shape) == tuple(value.shape)
        if value.grad is not None:
            gradient: Any = own_state[key].grad
            np.testing.assert_allclose(gradient.numpy(), value.grad, rtol=2e-3, atol=2e-3)
        else:  # running statistics
            np.testing.assert_allclose(own_state[key].numpy(), value.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["BatchNorm2d", "InstanceNorm2d"])
def test_running_statistics_are_used_outside_of_training(name: str) -> None:
    own, theirs = pair(name, (4,), {"affine": True, "track_running_stats": True})
    with Tensor.train():
        own(Tensor(IMAGES))
    theirs(torch.from_numpy(IMAGES))
    found, expected = own(Tensor(IMAGES * 2)), theirs.eval()(torch.from_numpy(IMAGES * 2))
    np.testing.assert_allclose(found.numpy(), expected.detach(), rtol=1e-4, atol=1e-5)


# --- sequences of several lengths ----------------------------------------------------------------


@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("is_sorted", [True, False])
@pytest.mark.parametrize("with_state", [True, False])
def test_packed_sequences_give_pytorchs_outputs_and_states(
    name: str, is_sorted: bool, with_state: bool
) -> None:
    own, theirs = pair(name, (8, 4), {"bidirectional": True})
    lengths = [3, 2, 1] if is_sorted else [1, 3, 2]
    state: Any = numbers(2, 3, 4)
    if name == "LSTM":
        state = (state, numbers(2, 3, 4))
    found = []
    for layer, library, module in (
        (own, Tensor, nn.utils.rnn),
        (theirs, torch, torch.nn.utils.rnn),
    ):
        packed = module.pack_padded_sequence(
            in_library(SEQUENCES, library), lengths, enforce_sorted=is_sorted
        )
        output, last = layer(packed, in_library(state, library) if with_state else None)
        padded = module.pad_packed_sequence(output, padding_value=-1.0, total_length=4)
        padded[0].square().sum().backward()
        found.append(flat((*padded, last)))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=1e-4, atol=1e-5)
    gradient: Any = own.weight_hh_l0.grad
    np.testing.assert_allclose(gradient.numpy(), theirs.weight_hh_l0.grad, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("batch_first", [True, False])
def test_padded_sequences_are_pytorchs(side: str, batch_first: bool) -> None:
    arrays = [numbers(n, 2) for n in (2, 4, 1)]
    own = nn.utils.rnn.pad_sequence([Tensor(x) for x in arrays], batch_first, 0.5, side)
    theirs = torch.nn.utils.rnn.pad_sequence(
        [torch.from_numpy(x) for x in arrays], batch_first, 0.5, side
    )
    np.testing.assert_array_equal(own.numpy(), theirs.numpy())


def test_unpacked_sequences_are_what_was_packed() -> None:
    arrays = [numbers(n, 2) for n in (2, 4, 1)]
    packed = nn.utils.rnn.pack_sequence([Tensor(x) for x in arrays], enforce_sorted=False)
    for a, b in zip(nn.utils.rnn.unpack_sequence(packed), arrays, strict=True):
        np.testing.assert_array_equal(a.numpy(), b)


# --- arguments -----------------------------------------------------------------------------------

#: Constructor arguments that differ from PyTorch's, and why; besides, no layer has these.
EVERYWHERE = {
    "device": "parameters are moved with `to_`",
    "dtype": "as device",
    "_weight": "from_pretrained",
    "_freeze": "from_pretrained",
}
ORDERS = {
    "BatchNorm1d": "tinygrad's order; PyTorch's is understood, and `num_features`",
    "BatchNorm2d": "as BatchNorm1d",
    "BatchNorm3d": "as BatchNorm1d",
    "ConvTranspose1d": "tinygrad's order; flags in the place of numbers are refused",
    "ConvTranspose2d": "as ConvTranspose1d",
    "ConvTranspose3d": "as ConvTranspose1d",
    "Embedding": "tinygrad's names; PyTorch's are understood",
    "RMSNorm": "tinygrad's name and eps; PyTorch's name is understood",
    "GRU": "any arguments there, in its documentation these",
    "LSTM": "as GRU",
    "RNN": "as GRU",
    "Identity": "any arguments in both",
    "Sequential": "layers, or a list of them",
    "ModuleList": "a list",
    "ModuleDict": "a dictionary",
    "TransformerEncoderLayer": "the default function is named, not given",
    "TransformerDecoderLayer": "as TransformerEncoderLayer",
    "Transformer": "as TransformerEncoderLayer",
    "Dropout": "the last argument is the layer's own",
}


#: Arguments that are deprecated there, stand for any, or are given to all layers that have them.
OLD = {"size_average", "reduce", "inplace", "min_value", "max_value", "args", "kwargs"}


def parameters_of(kind: type) -> list[tuple[str, Any]]:
    found = inspect.signature(kind).parameters.values()
    return [(each.name, each.default) for each in found if each.name not in EVERYWHERE]


SHARED = sorted(
    name
    for name in nn.__all__
    if isinstance(getattr(torch.nn, name, None), type) and name not in LAYERS and name not in ORDERS
)


@pytest.mark.parametrize("name", SHARED)
def test_constructors_take_pytorchs_arguments_in_its_order(name: str) -> None:
    assert parameters_of(getattr(nn, name)) == parameters_of(getattr(torch.nn, name))


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_layers_without_parameters_take_pytorchs_arguments(name: str) -> None:
    theirs = [
        (key, default) for key, default in parameters_of(getattr(torch.nn, name)) if key not in OLD
    ]
    own = [(key, default) for key, (_, default) in LAYERS[name].options.items()]
    needed = inspect.Parameter.empty
    assert [key for key, _ in own] == [key for key, _ in theirs]
    assert [d for _, d in own if isinstance(d, int | float | str | None)] == [
        d for _, d in theirs if d is not needed and isinstance(d, int | float | str | None)
    ]


@pytest.mark.parametrize(
    "kind", ["ReLU", "ELU", "Hardtanh", "Dropout", "Dropout2d", "Threshold", "RReLU", "SiLU"]
)
def test_layers_in_place_write_into_their_input(kind: str) -> None:
    given = (0.1, 5.0) if kind == "Threshold" else ()
    x = Tensor([[[[-1.0, 2.0]]]]).clone()
    found = getattr(nn, kind)(*given, inplace=True)(x)
    assert found is x


def test_tables_that_are_there_are_used_themselves() -> None:
    table = Tensor(numbers(4, 3))
    layer = nn.Embedding.from_pretrained(table, padding_idx=-1)
    assert layer.weight is table
    assert (table.requires_grad, layer.padding_idx) == (False, 3)


VECTOR = Tensor.ones(4)
#: What another order of the arguments has in the place of a flag.
NUMBER: Any = (3,)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: nn.ConvTranspose2d(2, 2, 3, 1, 0, 0, 1, True), UserError, "by name"),
        (lambda: nn.Conv2d(2, 2, 3, padding_mode="mirror"), UserError, "unknown padding_mode"),
        (lambda: nn.BatchNorm2d(2, momentum=True), UserError, "momentum must be a number"),
        (lambda: nn.BatchNorm2d(2, 1e-5, True, 0.1), TileworkError, "track_running_stats is of"),
        (lambda: nn.BatchNorm2d(sz=2, num_features=2), UserError, "under two names"),
        (lambda: nn.InstanceNorm2d(2)(Tensor.ones(2, 2)), ShapeError, "other axes"),
        (lambda: nn.GroupNorm(2, 4)(Tensor.ones(2, 3)), ShapeError, "other channels"),
        (lambda: nn.Embedding(3, 2, 3), IndexingError, "padding_idx is out of range"),
        (lambda: nn.EmbeddingBag(3, 2, padding_idx=-4), IndexingError, "out of range"),
        (lambda: nn.Embedding.from_pretrained(Tensor.ones(2)), ShapeError, "no matrix"),
        (lambda: nn.RNN(3, 2, 1, "gelu"), UserError, "unknown nonlinearity"),
        (lambda: nn.LSTM(3, 2, proj_size=2), UserError, "make no sense"),
        (lambda: nn.GRU(3, 2)(Tensor.ones(2, 4, 5)), ShapeError, "input doesn't fit"),
        (
            lambda: nn.MultiheadAttention(4, 2, 0.0, True, *NUMBER),
            TileworkError,
            "add_bias_kv is of",
        ),
        (
            lambda: nn.MultiheadAttention(4, 2)(VECTOR, VECTOR, VECTOR),
            ShapeError,
            "other axes",
        ),
        (lambda: nn.Transformer(8, 2, activation="cubic"), UserError, "unknown activation"),
        (
            lambda: nn.utils.rnn.pack_padded_sequence(Tensor.ones(3, 2), [1, 2]),
            UserError,
            "don't fall",
        ),
        (
            lambda: nn.utils.rnn.pack_padded_sequence(Tensor.ones(3, 2), [4, 2]),
            ShapeError,
            "don't fit",
        ),
        (lambda: nn.utils.rnn.pad_sequence([]), UserError, "no sequences"),
        (
            lambda: nn.utils.rnn.pad_sequence([Tensor.ones(2, 3), Tensor.ones(2)]),
            ShapeError,
            "more than their length",
        ),
    ],
)
def test_wrong_calls_say_what_is_wrong(
    call: Callable[[], Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        call()
