"""Adaptive optimizers, schedules and clipping do what PyTorch's do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tilework import Tensor, TinyJit
from tilework.base.errors import UserError
from tilework.nn import optim

START = np.array([1.0, -2.0, 3.0], np.float32)


def _both(name: str, steps: int = 4, **options: Any) -> tuple[Any, Any]:
    ours = Tensor(START.copy(), requires_grad=True)
    theirs = torch.tensor(START.copy(), requires_grad=True)
    own = getattr(optim, name)([ours], **options)
    other = getattr(torch.optim, name)([theirs], **options)
    for _ in range(steps):
        own.zero_grad()
        other.zero_grad()
        (ours * ours * ours).sum().backward()
        torch.autograd.backward((theirs**3).sum())
        own.step()
        other.step()
    return ours.numpy(), theirs.detach().numpy()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("RMSprop", {"lr": 0.01}),
        ("RMSprop", {"lr": 0.01, "momentum": 0.9, "centered": True, "weight_decay": 0.1}),
        ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.5}),
        ("Adagrad", {"lr": 0.1, "weight_decay": 0.1}),
        ("Adadelta", {"lr": 1.0, "weight_decay": 0.1}),
        ("Adamax", {"lr": 0.1, "weight_decay": 0.1}),
    ],
)
def test_an_optimizer_agrees_with_pytorch(name: str, options: dict[str, Any]) -> None:
    ours, theirs = _both(name, **options)
    np.testing.assert_allclose(ours, theirs, rtol=2e-5)


#: Each kind whose steps can be captured; see the first lines of `lbfgs.py` for the other one.
KINDS = [
    name
    for name in optim.__all__
    if isinstance(kind := getattr(optim, name), type)
    and issubclass(kind, optim.Optimizer)
    and kind not in (optim.Optimizer, optim.LBFGS)
]


@pytest.mark.parametrize("name", KINDS)
def test_captured_steps_are_those_of_plain_calls(name: str) -> None:
    def stepped(wrap: Any) -> Any:
        x = Tensor(START.reshape(3, 1).copy(), requires_grad=True).realize()
        options = {"lr_decay": 0.5, "initial_accumulator_value": 0.5} if name == "Adagrad" else {}
        optimizer = getattr(optim, name)([x], lr=0.1, **options)

        def step() -> Tensor:
            optimizer.zero_grad()
            loss: Tensor = (x * x).sum()
            loss.backward()
            optimizer.step()
            return loss.realize()

        call = wrap(step)
        for _ in range(5):
            call()
        return x.numpy()

    np.testing.assert_allclose(stepped(TinyJit), stepped(lambda step: step), rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("StepLR", {"step_size": 2, "gamma": 0.5}),
        ("MultiStepLR", {"milestones": [1, 3], "gamma": 0.5}),
        ("ExponentialLR", {"gamma": 0.9}),
        ("LinearLR", {"start_factor": 0.25, "total_iters": 3}),
        ("PolynomialLR", {"total_iters": 4, "power": 2.0}),
        ("CosineAnnealingLR", {"T_max": 4, "eta_min": 0.01}),
    ],
)
def test_a_schedule_agrees_with_pytorch(name: str, arguments: dict[str, Any]) -> None:
    own = optim.SGD([Tensor(START, requires_grad=True)], lr=0.5)
    other = torch.optim.SGD([torch.tensor(START, requires_grad=True)], lr=0.5)
    schedule = getattr(optim, name)(own, **arguments)
    reference = getattr(torch.optim.lr_scheduler, name)(other, **arguments)
    rates, expected = [], []
    for _ in range(5):
        rates.append(own.lr.item())
        expected.append(other.param_groups[0]["lr"])
        other.step()
        schedule.step()
        reference.step()
    np.testing.assert_allclose(rates, expected, rtol=1e-5, atol=1e-8)


def test_the_rate_falls_when_nothing_gets_better() -> None:
    own = optim.SGD([Tensor(START, requires_grad=True)], lr=0.5)
    schedule = optim.ReduceLROnPlateau(own, factor=0.5, patience=1)
    for measure in (1.0, 2.0, 2.0):
        schedule.step(measure)
    assert own.lr.item() == 0.25


def test_a_warm_up_grows_and_ends_at_the_least_rate() -> None:
    own = optim.SGD([Tensor(START, requires_grad=True)], lr=1.0)
    schedule = optim.CosineWarmupLR(own, total=4, warmup=2, least=0.5)
    rates = [own.lr.item()]
    for _ in range(4):
        schedule.step()
        rates.append(own.lr.item())
    np.testing.assert_allclose(rates, [0.5, 1.0, 1.0, 0.75, 0.5])


def test_a_step_size_below_one_is_refused() -> None:
    own = optim.SGD([Tensor(START, requires_grad=True)], lr=1.0)
    with pytest.raises(UserError, match="StepLR: `step_size` is too small"):
        optim.StepLR(own, 0)


@pytest.mark.parametrize("norm_type", [1.0, 2.0, float("inf")])
def test_gradients_are_clipped_by_their_common_norm(norm_type: float) -> None:
    ours = [Tensor(START, requires_grad=True), Tensor(START * 2, requires_grad=True)]
    theirs = [torch.tensor(START, requires_grad=True), torch.tensor(START * 2, requires_grad=True)]
    sum(((x * x).sum() for x in ours), start=Tensor(0.0)).backward()
    sum((x * x).sum() for x in theirs).backward()  # type: ignore[union-attr]  # a tensor
    total = optim.clip_grad_norm_(ours, 1.0, norm_type)
    expected = torch.nn.utils.clip_grad_norm_(theirs, 1.0, norm_type)
    np.testing.assert_allclose(total.item(), expected.item(), rtol=1e-5)
    for x, y in zip(ours, theirs, strict=True):
        assert x.grad is not None
        assert y.grad is not None
        np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-5)


def test_gradients_are_cut_element_by_element() -> None:
    x = Tensor(START, requires_grad=True)
    (x * x).sum().backward()
    optim.clip_grad_value_([x], 3.0)
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, -3.0, 3.0]


def test_averages_can_be_put_into_the_parameters() -> None:
    x = Tensor([1.0]).contiguous().realize()
    average = optim.EMA([x], decay=0.5)
    x.assign(Tensor([3.0])).realize()
    average.update()
    average.copy_to_params()
    assert x.tolist() == [2.0]


def test_a_decay_that_is_no_share_is_refused() -> None:
    with pytest.raises(UserError, match="EMA: the decay is no share"):
        optim.EMA([], decay=2.0)
