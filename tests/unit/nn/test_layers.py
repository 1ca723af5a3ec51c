"""Layers against PyTorch's, with the same parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tilework import Tensor, nn
from tilework.base.errors import ShapeError, UserError


def values(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def copy_parameters(ours: Any, theirs: Any) -> None:
    """Give our layer the parameters of PyTorch's."""
    own = nn.state.get_state_dict(ours)
    for name, value in theirs.state_dict().items():
        array = value.numpy()
        own[name].assign(Tensor(array.reshape(own[name].shape)).cast(own[name].dtype))


@pytest.mark.parametrize(
    ("ours", "theirs", "shape"),
    [
        (lambda: nn.Linear(4, 3), lambda: torch.nn.Linear(4, 3), (2, 5, 4)),
        (lambda: nn.Linear(4, 3, bias=False), lambda: torch.nn.Linear(4, 3, bias=False), (2, 4)),
        (lambda: nn.Conv2d(4, 6, 3, 2, 1, groups=2),
         lambda: torch.nn.Conv2d(4, 6, 3, 2, 1, groups=2), (2, 4, 7, 7)),
        (lambda: nn.Conv2d(2, 3, (2, 3), padding="same"),
         lambda: torch.nn.Conv2d(2, 3, (2, 3), padding="same"), (1, 2, 5, 5)),
        (lambda: nn.Conv1d(2, 3, 3), lambda: torch.nn.Conv1d(2, 3, 3), (1, 2, 8)),
        (lambda: nn.ConvTranspose2d(2, 3, 3, 2, 1, 1),
         lambda: torch.nn.ConvTranspose2d(2, 3, 3, 2, 1, 1), (1, 2, 4, 4)),
        (lambda: nn.LayerNorm((3, 4)), lambda: torch.nn.LayerNorm((3, 4)), (2, 3, 4)),
        (lambda: nn.GroupNorm(2, 4), lambda: torch.nn.GroupNorm(2, 4), (2, 4, 3, 3)),
        (lambda: nn.InstanceNorm(4),
         lambda: torch.nn.InstanceNorm2d(4, affine=True), (2, 4, 3, 3)),
        (lambda: nn.RMSNorm(4), lambda: torch.nn.RMSNorm(4, eps=1e-6), (2, 3, 4)),
        (lambda: nn.BatchNorm(4), lambda: torch.nn.BatchNorm2d(4).eval(), (2, 4, 3, 3)),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:Using padding")
def test_layers_give_what_those_of_pytorch_give(ours: Any, theirs: Any, shape: Any) -> None:
    layer, other = ours(), theirs()
    copy_parameters(layer, other)
    x = values(*shape)
    want = other(torch.tensor(x)).detach().numpy()
    np.testing.assert_allclose(layer(Tensor(x)).numpy(), want, rtol=1e-4, atol=1e-5)


def test_embedding_gives_rows_of_its_table() -> None:
    layer = nn.Embedding(5, 3)
    table = layer.weight.numpy()
    got = layer(Tensor([[4, 0], [1, 1]])).numpy()
    np.testing.assert_array_equal(got, table[[[4, 0], [1, 1]]])


def test_lstm_cell_gives_what_that_of_pytorch_gives() -> None:
    layer, other = nn.LSTMCell(3, 4), torch.nn.LSTMCell(3, 4)
    copy_parameters(layer, other)
    x, h, c = values(2, 3), values(2, 4, seed=1), values(2, 4, seed=2)
    want = other(torch.tensor(x), (torch.tensor(h), torch.tensor(c)))
    got = layer(Tensor(x), (Tensor(h), Tensor(c)))
    for own, theirs in zip(got, want, strict=True):
        np.testing.assert_allclose(own.numpy(), theirs.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_batch_norm_in_training_normalises_and_keeps_statistics_as_pytorch() -> None:
    layer, other = nn.BatchNorm(3), torch.nn.BatchNorm2d(3)
    with Tensor.train():
        for step in range(3):
            x = values(4, 3, 2, 2, seed=step)
            got, want = layer(Tensor(x)), other(torch.tensor(x)).detach().numpy()
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-3, atol=1e-4)
    for name in ("running_mean", "running_var"):
        own, theirs = getattr(layer, name).numpy(), getattr(other, name).numpy()
        np.testing.assert_allclose(own, theirs, rtol=1e-4, atol=1e-5)
    assert layer.num_batches_tracked.item() == 3


def test_the_gradient_goes_through_the_statistics_of_the_batch() -> None:
    layer, other = nn.BatchNorm(3), torch.nn.BatchNorm1d(3)
    x, seed = values(5, 3), values(5, 3, seed=1)
    theirs = torch.tensor(x, requires_grad=True)
    other(theirs).backward(torch.tensor(seed))
    own = Tensor(x, requires_grad=True)
    with Tensor.train():
        layer(own).backward(Tensor(seed))
    np.testing.assert_allclose(own.grad.numpy(), theirs.grad.numpy(), rtol=1e-3, atol=1e-4)  # type: ignore[union-attr]


def test_channels_that_do_not_divide_into_groups_are_refused() -> None:
    with pytest.raises(ShapeError, match="the channels don't divide"):
        nn.Conv2d(3, 4, 3, groups=2)


def test_layer_norm_names_the_sizes_that_it_expects() -> None:
    with pytest.raises(ShapeError, match="the last axes have other sizes"):
        nn.LayerNorm(4)(Tensor.ones(2, 3))


def test_same_padding_with_a_stride_is_refused() -> None:
    with pytest.raises(UserError, match="needs stride 1"):
        nn.Conv2d(1, 1, 3, stride=2, padding="same")


def test_linear_and_batch_norm_name_the_sizes_that_they_expect() -> None:
    with pytest.raises(ShapeError, match=r"Linear: the last axis[^$]*expected: \(\.\.\., 3\)"):
        nn.Linear(3, 4)(Tensor.ones(2, 5))
    with pytest.raises(ShapeError, match=r"batchnorm: the mean[^$]*expected: 4 elements"):
        nn.BatchNorm2d(3)(Tensor.ones(1, 4, 2, 2))
