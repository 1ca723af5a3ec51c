"""LARS, classic momentum and Muon against their formulas written out in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilework import Tensor, nn
from tilework.base.errors import UserError

START = np.array([[1.0, -2.0, 3.0], [0.5, 0.1, -1.0]], np.float64)


def gradient(value: Any, step: int) -> Any:
    """Of (step + 1) * sum(x * x) + 3 * sum(x)."""
    return 2 * (step + 1) * value + 3


def ours(make: Any, steps: int = 3) -> Any:
    param = Tensor(START.astype(np.float32))
    optimizer = make([param])
    for step in range(steps):
        optimizer.zero_grad()
        ((param * param).sum() * (step + 1) + param.sum() * 3).backward()
        optimizer.step()
    return param.numpy()


def test_the_step_of_lars_is_scaled_to_the_parameter() -> None:
    lr, momentum, decay, coefficient = 0.1, 0.5, 0.1, 0.02
    value, velocity = START.copy(), np.zeros_like(START)
    for step in range(3):
        g = gradient(value, step)
        size, steepness = np.linalg.norm(value), np.linalg.norm(g)
        trust = coefficient * size / (steepness + decay * size)
        velocity = momentum * velocity + (g + decay * value) * trust * lr
        value = value - velocity
    got = ours(lambda p: nn.optim.LARS(p, lr, momentum, weight_decay=decay, tcoef=coefficient))
    np.testing.assert_allclose(got, value, rtol=1e-5)


def test_classic_momentum_holds_steps_and_not_gradients() -> None:
    value, velocity = START.copy(), np.zeros_like(START)
    for step, lr in enumerate((0.01, 0.01, 0.001)):
        velocity = 0.9 * velocity + lr * gradient(value, step)
        value = value - velocity

    def make(params: list[Tensor]) -> Any:
        optimizer = nn.optim.SGD(params, 0.01, 0.9, classic=True)
        plain = optimizer.step
        calls = []

        def step() -> None:
            calls.append(1)
            if len(calls) == 3:
                optimizer.lr.assign([0.001])
            plain()

        optimizer.step = step  # type: ignore[assignment,method-assign]  # the rate falls before the last one
        return optimizer

    np.testing.assert_allclose(ours(make), value, rtol=1e-5)


def orthogonal(matrix: Any) -> Any:
    a, b, c = 3.4445, -4.775, 2.0315
    x = matrix / (np.linalg.norm(matrix) + 1e-7)
    for _ in range(5):
        square = x @ x.T
        x = a * x + b * square @ x + c * square @ square @ x
    return x


def test_the_steps_of_muon_are_nearly_orthogonal() -> None:
    lr, momentum, decay = 0.02, 0.95, 0.1
    value, velocity = START.copy(), np.zeros_like(START)
    for step in range(3):
        g = gradient(value, step)
        velocity = momentum * velocity + g
        value = value - lr * orthogonal(g + momentum * velocity) - lr * decay * value
    np.testing.assert_allclose(ours(lambda p: nn.optim.Muon(p, lr)), value, rtol=1e-4)


@pytest.mark.parametrize("shape", [(3, 5), (5, 3), (2, 3, 3)])
def test_newton_schulz_brings_singular_values_near_one(shape: tuple[int, ...]) -> None:
    matrix = np.random.default_rng(0).normal(0, 1, shape).astype(np.float32)
    found = Tensor(matrix).newton_schulz(12, (2.0, -1.5, 0.5)).numpy()
    assert found.shape == shape
    np.testing.assert_allclose(np.linalg.svd(found)[1], 1.0, atol=1e-3)


@pytest.mark.parametrize(
    "make",
    [
        lambda p: nn.optim.SGD(p, -0.1),
        lambda p: nn.optim.LARS(p, momentum=-1.0),
        lambda p: nn.optim.AdamW(p, weight_decay=-1.0),
    ],
)
def test_negative_rates_are_refused(make: Any) -> None:
    with pytest.raises(UserError, match="negative"):
        make([Tensor([1.0])])


def test_a_group_gives_its_optimizers_by_number() -> None:
    first, second = nn.optim.SGD([Tensor([1.0])]), nn.optim.Adam([Tensor([2.0])])
    group = nn.optim.OptimizerGroup(first, second)
    assert group[1] is second
    assert len(group.params) == 2
