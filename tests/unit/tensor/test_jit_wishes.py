"""Captured functions that ask whether a tensor requires a gradient."""

from __future__ import annotations

from typing import Any

import pytest

from tilework import Tensor, jit
from tilework.nn.optim import SGD


def asked(x: Tensor) -> Tensor:
    return x.detach() + 0 if x.requires_grad else x + 1


def test_an_argument_that_wants_a_gradient_is_another_call_than_one_that_does_not() -> None:
    captured: Any = jit(asked)
    plain, wanting = Tensor([1.0, 1.0]).realize(), Tensor([1.0, 1.0]).realize()
    wanting.requires_grad_(True)
    for _ in range(3):
        assert captured(wanting).tolist() == [1, 1]
        assert captured(plain).tolist() == [2, 2]
    for _ in range(4):
        assert captured(plain).tolist() == [2, 2]


@pytest.mark.parametrize("first", [True, False, None])
def test_what_a_held_tensor_wants_may_change_between_calls(first: bool | None) -> None:
    weight = Tensor([3.0]).realize()
    weight.requires_grad_(first)
    captured: Any = jit(lambda x: x * weight if weight.requires_grad else x)
    x = Tensor([2.0]).realize()
    for wanted in (first, True, True, False, False, None, True, True):
        weight.requires_grad_(wanted)
        assert captured(x).tolist() == ([6] if wanted else [2])


def test_what_the_function_itself_has_said_is_no_question() -> None:
    calls = []

    def step(x: Tensor) -> Tensor:
        calls.append(0)
        x.requires_grad_(True)
        return x * 2 if x.requires_grad else x

    captured: Any = jit(step)
    for _ in range(5):
        assert captured(Tensor([1.0]).realize()).tolist() == [2]


def test_training_steps_ask_nothing_and_are_replayed() -> None:
    weight = Tensor([1.0, 2.0]).realize()
    weight.requires_grad_(True)
    optimizer = SGD([weight], lr=0.5)

    def step(x: Tensor) -> Tensor:
        with Tensor.train():
            optimizer.zero_grad()
            loss = (weight * x).sum()
            loss.backward()
            optimizer.step()
            return loss

    captured: Any = jit(step)
    for _ in range(4):
        captured(Tensor([1.0, 1.0]).realize())
    assert captured.captured.recipe.wishes == []
    assert weight.tolist() == [1 - 2.0, 2 - 2.0]
