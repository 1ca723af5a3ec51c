"""A scalar that was differentiated is computed with the writes that its gradients lead to."""

from __future__ import annotations

import gc

import numpy as np

from tilework import Tensor, nn
from tilework.tensor import realize


def made() -> tuple[Tensor, Tensor]:
    """A weight, and a loss of it that nobody has computed."""
    weight = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3), requires_grad=True).realize()
    return weight, (weight * weight).exp2().sum()


def is_computed(x: Tensor) -> bool:
    return x._storage.version.buffer is not None


def stepped(weight: Tensor, loss: Tensor) -> None:
    with Tensor.train():
        loss.backward()
        nn.optim.SGD([weight], lr=0.5).step()


def test_a_loss_is_computed_with_the_step_that_follows_from_it() -> None:
    weight, loss = made()
    expected = np.exp2(np.arange(6.0) ** 2).sum()
    assert not is_computed(loss)
    stepped(weight, loss)
    assert is_computed(loss)
    assert loss.item() == np.float32(expected)


def test_what_else_reads_the_old_weight_keeps_it() -> None:
    weight, loss = made()
    other = weight.sum(0)
    stepped(weight, loss)
    assert other.tolist() == [3.0, 5.0, 7.0]


def test_gradients_alone_compute_no_loss() -> None:
    weight, loss = made()
    loss.backward()
    assert weight.grad is not None
    weight.grad.realize()
    assert not is_computed(loss)


def test_a_loss_of_other_weights_waits() -> None:
    weight, loss = made()
    other_weight, other = made()
    other.backward()
    stepped(weight, loss)
    assert is_computed(loss)
    assert not is_computed(other)
    assert other.item() == loss.item()
    assert other_weight.grad is not None


def test_random_numbers_that_are_drawn_meanwhile_compute_no_loss() -> None:
    weight, _ = made()
    with Tensor.train():
        loss = (weight.dropout(0.5) * weight.dropout(0.5)).sum()
        loss.backward()
        Tensor.rand(3).realize()
        assert not is_computed(loss)
        nn.optim.SGD([weight], lr=0.5).step()
    assert is_computed(loss)


def test_a_loss_that_nobody_refers_to_is_forgotten() -> None:
    weight, loss = made()
    loss.backward()
    version = loss._storage.version
    assert version in realize._differentiated
    serial = version.serial
    del loss, version
    gc.collect()
    assert all(each.serial != serial for each in realize._differentiated)
    assert weight.grad is not None


def test_losses_of_several_steps_are_all_computed() -> None:
    weight, _ = made()
    losses = []
    for _ in range(3):
        loss = weight.square().sum()
        weight.grad = None
        with Tensor.train():
            loss.backward()
            nn.optim.SGD([weight], lr=0.25).step()
        losses.append(loss)
    assert [each.item() for each in losses] == [55.0, 13.75, 3.4375]
