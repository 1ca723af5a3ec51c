"""Recurrent layers and attention give what PyTorch's give with the same parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tilework import Tensor, nn
from tilework.base.errors import IndexingError, ShapeError, UserError

X = np.random.default_rng(0).standard_normal((5, 2, 3)).astype(np.float32)


def _copy(source: torch.nn.Module, target: Any) -> None:
    for name, value in source.named_parameters():
        *path, last = name.split(".")
        place = target
        for part in path:
            place = getattr(place, part)
        setattr(place, last, Tensor(value.detach().numpy()))


def _close(ours: Tensor, theirs: torch.Tensor) -> None:
    np.testing.assert_allclose(ours.numpy(), theirs.detach().numpy(), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("kind", ["RNN", "GRU"])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_recurrent_layer_agrees_with_pytorch(kind: str, bidirectional: bool) -> None:
    theirs = getattr(torch.nn, kind)(3, 4, 2, bidirectional=bidirectional)
    ours = getattr(nn, kind)(3, 4, 2, bidirectional=bidirectional)
    _copy(theirs, ours)
    expected, last = theirs(torch.tensor(X))
    found, end = ours(Tensor(X))
    _close(found, expected)
    _close(end, last)


def test_an_lstm_agrees_with_pytorch_from_a_given_state() -> None:
    theirs = torch.nn.LSTM(3, 4, 2, bidirectional=True, batch_first=True)
    ours = nn.LSTM(3, 4, 2, bidirectional=True, batch_first=True)
    _copy(theirs, ours)
    x, state = X.transpose(1, 0, 2).copy(), np.ones((4, 2, 4), np.float32)
    expected, (h, c) = theirs(torch.tensor(x), (torch.tensor(state), torch.tensor(state)))
    found, (own_h, own_c) = ours(Tensor(x), (Tensor(state), Tensor(state)))
    _close(found, expected)
    _close(own_h, h)
    _close(own_c, c)


def test_gradients_flow_through_an_lstm() -> None:
    theirs, ours = torch.nn.LSTM(3, 4), nn.LSTM(3, 4)
    _copy(theirs, ours)
    theirs(torch.tensor(X))[0].square().sum().backward()
    weight = ours.weight_hh_l0  # type: ignore[attr-defined]  # set by name
    (found,) = ours(Tensor(X))[0].square().sum().gradient(weight)
    grad = dict(theirs.named_parameters())["weight_hh_l0"].grad
    assert grad is not None
    _close(found, grad)


def test_a_sequence_without_a_batch_is_one_sequence() -> None:
    assert nn.GRU(3, 4)(Tensor(X[:, 0]))[0].shape == (5, 4)


def test_a_gru_cell_agrees_with_pytorch() -> None:
    theirs, ours = torch.nn.GRUCell(3, 4), nn.GRUCell(3, 4)
    _copy(theirs, ours)
    h = np.ones((2, 4), np.float32)
    _close(ours(Tensor(X[0]), Tensor(h)), theirs(torch.tensor(X[0]), torch.tensor(h)))


def test_a_state_of_another_shape_is_refused() -> None:
    with pytest.raises(ShapeError, match="the state doesn't fit"):
        nn.RNN(3, 4)(Tensor(X), Tensor.zeros(1, 2, 5))


def test_a_recurrent_layer_without_features_is_refused() -> None:
    with pytest.raises(UserError, match="sizes must be positive"):
        nn.RNN(3, 0)


def _attentions() -> tuple[torch.nn.MultiheadAttention, nn.MultiheadAttention]:
    theirs = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    ours = nn.MultiheadAttention(8, 2, batch_first=True)
    state = {name: Tensor(value.numpy()) for name, value in theirs.state_dict().items()}
    nn.state.load_state_dict(ours, state)
    return theirs, ours


def test_attention_with_both_masks_agrees_with_pytorch() -> None:
    theirs, ours = _attentions()
    x = np.random.default_rng(1).standard_normal((3, 5, 8)).astype(np.float32)
    padding = np.zeros((3, 5), bool)
    padding[1, 3:] = True
    mask = np.triu(np.ones((5, 5), bool), 1)
    expected, weights = theirs(
        *[torch.tensor(x)] * 3,
        key_padding_mask=torch.tensor(padding),
        attn_mask=torch.tensor(mask),
    )
    own = Tensor(x)
    found, own_weights = ours(own, own, own, Tensor(padding), attn_mask=Tensor(mask))
    assert own_weights is not None
    _close(found, expected)
    _close(own_weights, weights)


def test_heads_that_do_not_divide_the_features_are_refused() -> None:
    with pytest.raises(ShapeError, match="don't divide into the heads"):
        nn.MultiheadAttention(8, 3)


@pytest.mark.parametrize("norm_first", [False, True])
def test_an_encoder_layer_agrees_with_pytorch(norm_first: bool) -> None:
    theirs = torch.nn.TransformerEncoderLayer(
        8, 2, 16, 0.0, batch_first=True, norm_first=norm_first
    )
    ours = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True, norm_first=norm_first)
    state = {name: Tensor(value.numpy()) for name, value in theirs.state_dict().items()}
    nn.state.load_state_dict(ours, state)
    x = np.random.default_rng(1).standard_normal((3, 5, 8)).astype(np.float32)
    _close(ours(Tensor(x)), theirs(torch.tensor(x)))


def test_the_padding_row_of_an_embedding_is_zero_and_gets_no_gradient() -> None:
    layer = nn.Embedding(4, 3, padding_idx=1)
    found = layer(Tensor([1, 2]))
    (grad,) = found.sum().gradient(layer.weight)
    assert found[0].tolist() == [0.0, 0.0, 0.0]
    assert grad.sum(1).tolist() == [0.0, 0.0, 3.0, 0.0]


def test_a_padding_row_outside_of_the_table_is_refused() -> None:
    with pytest.raises(IndexingError, match="padding_idx is out of range"):
        nn.Embedding(4, 3, padding_idx=4)


def test_attention_over_keys_of_other_sizes_agrees_with_pytorch() -> None:
    theirs = torch.nn.MultiheadAttention(8, 2, kdim=6, vdim=5, batch_first=True)
    ours = nn.MultiheadAttention(8, 2, kdim=6, vdim=5, batch_first=True)
    state = {name: Tensor(value.numpy()) for name, value in theirs.state_dict().items()}
    nn.state.load_state_dict(ours, state)
    random = np.random.default_rng(2)
    inputs = [random.standard_normal((2, 4, size)).astype(np.float32) for size in (8, 6, 5)]
    expected, _ = theirs(*[torch.tensor(each) for each in inputs])
    query, key, value = (Tensor(each) for each in inputs)
    found, _ = ours(query, key, value)
    _close(found, expected)
