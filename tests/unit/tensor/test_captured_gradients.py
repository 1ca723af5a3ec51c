"""Gradients that a captured function leaves with tensors are there after a replay too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilework
from tilework import Tensor, jit, nn
from tilework.base.errors import CaptureError
from tilework.engine.stats import COUNTERS

X = np.arange(1, 7, dtype=np.float32)
Run = Callable[[int], list[Any]]


def weight(factor: float = 1.0) -> Tensor:
    return Tensor(X * factor).realize().requires_grad_()


def numbers(count: int) -> Tensor:
    return Tensor(X + count).realize()


def reset_outside(wrap: Callable[[Any], Any]) -> Run:
    w, v = weight(), weight(2.0)

    def backward(x: Tensor) -> Tensor:
        loss = (w * x).sum() * v.sum()
        loss.backward()
        return loss

    call = wrap(backward)

    def run(count: int) -> list[Any]:
        w.grad = v.grad = None
        return [call(numbers(count)), w.grad, v.grad]

    return run


def added_up_in_two_calls(wrap: Callable[[Any], Any]) -> Run:
    w = weight()
    call = wrap(lambda x: (w * x).square().sum().backward())

    def run(count: int) -> list[Any]:
        if count % 2 == 0:
            w.grad = None
        call(numbers(count))
        return [w.grad]

    return run


def step_outside(wrap: Callable[[Any], Any]) -> Run:
    w = weight()
    optimizer = nn.optim.SGD([w], lr=0.001, momentum=0.9)

    def backward(x: Tensor) -> Tensor:
        loss = ((w * x).sum() - 1).square()
        loss.backward()
        return loss

    call = wrap(backward)

    def run(count: int) -> list[Any]:
        optimizer.zero_grad()
        loss = call(Tensor(X / 10 + count / 50).realize())
        optimizer.step()
        return [loss, w]

    return run


def gradients_from_outside(wrap: Callable[[Any], Any]) -> Run:
    w = weight()

    def update() -> Tensor:
        assert w.grad is not None
        w.assign((w - 0.1 * w.grad).detach())
        return w.sum()

    call = wrap(update)

    def run(count: int) -> list[Any]:
        w.grad = None
        (w * numbers(count)).sum().backward()
        return [call(), w]

    return run


def forgotten_inside_at_the_end(wrap: Callable[[Any], Any]) -> Run:
    w = weight()

    def step(x: Tensor) -> Tensor:
        (w * x).sum().backward()
        assert w.grad is not None
        found = w.grad * 1
        w.grad = None
        return found

    call = wrap(step)
    return lambda count: [call(numbers(count)), w.grad is None]


def weights_as_arguments(wrap: Callable[[Any], Any]) -> Run:
    def backward(w: Tensor, x: Tensor) -> None:
        (w * x).sum().backward()

    call = wrap(backward)

    def run(count: int) -> list[Any]:
        w = weight(count)
        call(w, numbers(count))
        return [w.grad]

    return run


@pytest.mark.parametrize(
    "build",
    [
        reset_outside, added_up_in_two_calls, step_outside, gradients_from_outside,
        forgotten_inside_at_the_end, weights_as_arguments,
    ],
)  # fmt: skip
def test_a_captured_function_leaves_the_gradients_that_a_plain_one_leaves(
    build: Callable[[Callable[[Any], Any]], Run],
) -> None:
    plain, captured = build(lambda function: function), build(jit)
    for count in range(6):
        for a, b in zip(plain(count), captured(count), strict=True):
            assert (a is None) == (b is None)
            expected, found = (
                each.numpy() if isinstance(each, Tensor) else each for each in (a, b)
            )
            np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("build", [reset_outside, step_outside, forgotten_inside_at_the_end])
def test_such_a_function_is_captured_once_and_replayed(
    build: Callable[[Callable[[Any], Any]], Run],
) -> None:
    run = build(jit)
    run(0)
    before = COUNTERS.replays
    for count in range(1, 5):
        run(count)
    assert COUNTERS.replays == before + 4


def test_a_step_that_forgets_gradients_itself_is_replayed_without_giving_them() -> None:
    w = weight()
    optimizer = nn.optim.SGD([w], lr=0.01)

    @jit
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (w * x).sum()
        loss.backward()
        optimizer.step()
        return loss

    step(numbers(0))
    before = COUNTERS.replays
    for count in range(1, 4):
        step(numbers(count))
    assert COUNTERS.replays == before + 3
    assert step.captured is not None
    assert step.captured.recipe.gradients == []


def test_gradients_of_earlier_replays_keep_their_values() -> None:
    run = reset_outside(jit)
    kept = [run(count)[1] for count in range(5)]
    factor = float(X.sum() * 2)
    for count, found in enumerate(kept):
        np.testing.assert_allclose(found.numpy(), (X + count) * factor)


def test_a_function_that_leaves_gradients_is_not_exported(tmp_path: Path) -> None:
    w = weight()

    @jit
    def backward(x: Tensor) -> Tensor:
        loss = (w * x).sum()
        loss.backward()
        return loss

    backward(numbers(0))
    with pytest.raises(CaptureError, match="a gradient"):
        tilework.export(backward, tmp_path / "step.twx")
