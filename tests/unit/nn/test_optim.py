"""Optimizers against PyTorch's, step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tilework import Tensor, dtypes, nn
from tilework.base.errors import UserError
from tilework.engine.stats import COUNTERS

START = [np.array([1.0, -2.0, 3.0], np.float32), np.array([[0.5, 0.1]], np.float32)]


def run(optimizer: Any, params: Any, steps: int, square: Any) -> list[Any]:
    for step in range(steps):
        optimizer.zero_grad()
        loss = square(params[0]) * (step + 1) + square(params[1] * 3)
        loss.backward()
        optimizer.step()
    return [param.detach().numpy() for param in params]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (lambda p: nn.optim.SGD(p, 0.01), lambda p: torch.optim.SGD(p, 0.01)),
        (lambda p: nn.optim.SGD(p, 0.01, 0.9), lambda p: torch.optim.SGD(p, 0.01, 0.9)),
        (lambda p: nn.optim.SGD(p, 0.01, 0.9, 0.0, 0.1, True),
         lambda p: torch.optim.SGD(p, 0.01, 0.9, 0.0, 0.1, True)),
        (lambda p: nn.optim.Adam(p, 0.01), lambda p: torch.optim.Adam(p, 0.01)),
        (lambda p: nn.optim.AdamW(p, 0.01, weight_decay=0.1),
         lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.1)),
    ],
)  # fmt: skip
def test_steps_are_those_of_pytorch(ours: Any, theirs: Any) -> None:
    own = [Tensor(each) for each in START]
    other = [torch.tensor(each, requires_grad=True) for each in START]
    got = run(ours(own), own, 4, lambda x: (x * x).sum())
    want = run(theirs(other), other, 4, lambda x: (x * x).sum())
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


def test_lamb_scales_the_step_to_the_parameter() -> None:
    own = [Tensor(each) for each in START]
    got = run(nn.optim.LAMB(own, 0.1), own, 1, lambda x: (x * x).sum())
    step = START[0] - got[0]
    np.testing.assert_allclose(np.linalg.norm(step), 0.1 * np.linalg.norm(START[0]), rtol=1e-3)


def test_parameters_that_nobody_spoke_for_get_requires_grad() -> None:
    p = Tensor([1.0])
    nn.optim.SGD([p])
    assert p.requires_grad is True


def test_an_optimizer_without_parameters_is_refused() -> None:
    with pytest.raises(UserError, match="there is no parameter"):
        nn.optim.SGD([])


def test_a_step_without_gradients_is_refused() -> None:
    optimizer = nn.optim.SGD([Tensor([1.0])])
    with pytest.raises(UserError, match="no parameter has a gradient"):
        optimizer.step()


def test_a_parameter_given_twice_is_changed_once() -> None:
    p = Tensor([1.0])
    optimizer = nn.optim.SGD([p, p], 0.5)
    (p * 1).sum().backward()
    optimizer.step()
    assert p.tolist() == [0.5]


def test_half_parameters_have_float32_state() -> None:
    p = Tensor([1.0], dtype=dtypes.float16)
    optimizer = nn.optim.Adam([p], 0.5)
    (p * 1).sum().backward()
    optimizer.step()
    assert optimizer.m[0].dtype is dtypes.float32
    assert p.dtype is dtypes.float16
    assert p.tolist() == [0.5]


def test_steps_after_the_first_compile_nothing() -> None:
    p = Tensor(START[0])
    optimizer = nn.optim.Adam([p], 0.1)
    for step in range(4):
        if step == 2:
            before = COUNTERS.compiles
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        optimizer.step()
    assert COUNTERS.compiles == before


def test_a_group_steps_all_its_optimizers() -> None:
    p, q = Tensor([1.0]), Tensor([1.0])
    group = nn.optim.OptimizerGroup(nn.optim.SGD([p], 0.5), nn.optim.SGD([q], 0.25))
    (p + q).sum().backward()
    group.step()
    assert (p.tolist(), q.tolist()) == ([0.5], [0.75])
