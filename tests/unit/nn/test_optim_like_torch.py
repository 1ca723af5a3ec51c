"""Optimizers and schedules take the steps that PyTorch's take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tilework import Tensor
from tilework.base.errors import UserError
from tilework.nn import optim

RANDOM = np.random.default_rng(3)
START = RANDOM.standard_normal((4, 3)).astype(np.float32)
GRADIENTS = RANDOM.standard_normal((7, 4, 3)).astype(np.float32)

#: Name, and arguments that both take.
OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3}),
    ("SGD", {"lr": 0.1, "maximize": True}),
    ("Adam", {"lr": 0.1, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.1, "betas": (0.8, 0.95), "amsgrad": True}),
    ("Adam", {"lr": 0.1, "maximize": True}),
    ("Adam", {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("AdamW", {"lr": 0.1, "weight_decay": 0.1, "amsgrad": True}),
    ("NAdam", {"lr": 0.1, "weight_decay": 0.01}),
    ("RAdam", {"lr": 0.1, "weight_decay": 0.01}),
    ("NAdam", {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {"lr": 0.1, "betas": (0.5, 0.6), "maximize": True}),
    ("Adamax", {"lr": 0.1, "betas": (0.8, 0.9), "weight_decay": 0.1}),
    ("ASGD", {"lr": 0.1, "lambd": 0.01, "t0": 3, "weight_decay": 0.1}),
    ("RMSprop", {"lr": 0.1, "maximize": True}),
    ("Adagrad", {"lr": 0.1, "maximize": True}),
    ("Adadelta", {"lr": 1.0, "maximize": True}),
    ("Adafactor", {"lr": 0.1, "maximize": True}),
    ("Rprop", {"lr": 0.1}),
    ("Rprop", {"lr": 0.1, "maximize": True}),
    ("Adafactor", {"lr": 0.1, "weight_decay": 0.1}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.2}),
    ("RMSprop", {"lr": 0.1, "momentum": 0.5, "centered": True}),
    ("Adadelta", {"lr": 1.0, "weight_decay": 0.1}),
    ("Adamax", {"lr": 0.1}),
]


@pytest.mark.parametrize("shape", [(4, 3), (12,)])
@pytest.mark.parametrize(("name", "options"), OPTIMIZERS)
def test_an_optimizer_takes_the_steps_of_pytorchs(
    name: str, options: dict[str, Any], shape: tuple[int, ...]
) -> None:
    ours = Tensor(START.reshape(shape), requires_grad=True)
    theirs = torch.nn.Parameter(torch.tensor(START.reshape(shape)))
    own = getattr(optim, name)([ours], **options)
    other = getattr(torch.optim, name)([theirs], **options)
    for gradient in GRADIENTS:
        ours.grad = Tensor(gradient.reshape(shape))
        theirs.grad = torch.tensor(gradient.reshape(shape))
        own.step()
        other.step()
    np.testing.assert_allclose(ours.numpy(), theirs.detach().numpy(), rtol=2e-5, atol=2e-5)


SCHEDULES: dict[str, Callable[[Any, Any], Any]] = {
    "LambdaLR": lambda kinds, o: kinds.LambdaLR(o, lambda step: 0.9**step),
    "MultiplicativeLR": lambda kinds, o: kinds.MultiplicativeLR(o, lambda step: 0.9 + step / 999),
    "ConstantLR": lambda kinds, o: kinds.ConstantLR(o, 0.5, 4),
    "LinearLR": lambda kinds, o: kinds.LinearLR(o),
    "StepLR": lambda kinds, o: kinds.StepLR(o, 3),
    "MultiStepLR": lambda kinds, o: kinds.MultiStepLR(o, [3, 8]),
    "PolynomialLR": lambda kinds, o: kinds.PolynomialLR(o, 9, 2.0),
    "CosineAnnealingLR": lambda kinds, o: kinds.CosineAnnealingLR(o, 10, 0.01),
    "warm restarts": lambda kinds, o: kinds.CosineAnnealingWarmRestarts(o, 3, 2, 0.01),
    "OneCycleLR": lambda kinds, o: kinds.OneCycleLR(o, 1.0, None, 4, 5),
    "CyclicLR": lambda kinds, o: kinds.CyclicLR(o, 0.01, 0.5, 4, 6, "triangular2"),
    "SequentialLR": lambda kinds, o: kinds.SequentialLR(
        o, [kinds.LinearLR(o, 0.1, 1.0, 5), kinds.ExponentialLR(o, 0.9)], [5]
    ),
    "ChainedScheduler": lambda kinds, o: kinds.ChainedScheduler(
        [kinds.ConstantLR(o, 0.5, 4), kinds.ExponentialLR(o, 0.9)]
    ),
}


@pytest.mark.filterwarnings("ignore:Detected call of")
@pytest.mark.filterwarnings("ignore:The epoch parameter")
@pytest.mark.parametrize("first", [0.1, 0.0])
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_gives_the_rates_of_pytorchs(name: str, first: float) -> None:
    own = optim.SGD([Tensor([1.0], requires_grad=True)], lr=first)
    other = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=first)
    ours = SCHEDULES[name](optim, own)
    theirs = SCHEDULES[name](torch.optim.lr_scheduler, other)
    rates = []
    for _ in range(20):
        rates.append((own.lr.item(), other.param_groups[0]["lr"]))
        ours.step()
        other.step()
        theirs.step()
    found, wanted = zip(*rates, strict=True)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


@pytest.mark.parametrize("options", [{"momentum": 0.9, "dampening": 0.1}, {"momentum": 0.0}])
def test_nesterovs_momentum_is_above_0_and_has_no_dampening(options: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="no dampening, and is above 0"):
        optim.SGD([Tensor([1.0])], nesterov=True, **options)
    with pytest.raises(ValueError, match="Nesterov"):
        torch.optim.SGD([torch.ones(1)], lr=0.1, nesterov=True, **options)


@pytest.mark.parametrize("share", [0.1, 1.0])
def test_one_cycle_of_one_slope_starts_or_ends_at_the_greatest_rate(share: float) -> None:
    optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=0.1)
    schedule = optim.OneCycleLR(optimizer, 1.0, 10, pct_start=share)
    rates = [optimizer.lr.item()]
    for _ in range(9):
        schedule.step()
        rates.append(optimizer.lr.item())
    assert rates[0 if share < 1 else 9] == pytest.approx(1.0)


def test_a_schedule_asks_for_each_factor_once() -> None:
    asked: list[int] = []

    def factor(step: int) -> float:
        asked.append(step)
        return 0.5

    optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    schedule = optim.MultiplicativeLR(optimizer, factor)
    for _ in range(5):
        schedule.step()
    assert asked == [1, 2, 3, 4, 5]
    assert schedule.get_last_lr() == [0.5**5]


@pytest.mark.parametrize(
    "make",
    [
        lambda o: optim.StepLR(o, 0),
        lambda o: optim.PolynomialLR(o, 0),
        lambda o: optim.CosineAnnealingLR(o, 0),
        lambda o: optim.CosineAnnealingWarmRestarts(o, 0),
        lambda o: optim.OneCycleLR(o, 1.0, 0),
        lambda o: optim.CyclicLR(o, 0.1, 1.0, 0),
    ],
)
def test_a_schedule_of_no_steps_is_refused(make: Callable[[Any], Any]) -> None:
    optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=0.1)
    with pytest.raises(UserError, match="too small"):
        make(optimizer)


def test_the_average_of_asgd_is_that_of_the_last_steps() -> None:
    ours = Tensor(START, requires_grad=True)
    theirs = torch.nn.Parameter(torch.tensor(START))
    own, other = optim.ASGD([ours], t0=2), torch.optim.ASGD([theirs], t0=2)
    for gradient in GRADIENTS:
        ours.grad, theirs.grad = Tensor(gradient), torch.tensor(gradient)
        own.step()
        other.step()
    wanted = other.state[theirs]["ax"].numpy()
    np.testing.assert_allclose(own.average[0].numpy(), wanted, rtol=1e-5)


def test_shares_of_old_means_are_checked() -> None:
    with pytest.raises(UserError, match="shares of old means"):
        optim.RAdam([Tensor([1.0])], betas=(0.9, 1.0))


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("threshold_mode", ["rel", "abs"])
def test_a_plateau_lowers_the_rate_as_pytorchs_does(mode: str, threshold_mode: str) -> None:
    ours = optim.SGD([Tensor([1.0], requires_grad=True)], lr=1.0)
    theirs = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1.0)
    options: Any = {"threshold_mode": threshold_mode, "threshold": 0.1, "cooldown": 2}
    own = optim.ReduceLROnPlateau(ours, mode, 0.5, 1, min_lr=0.1, **options)
    other: Any = torch.optim.lr_scheduler.ReduceLROnPlateau
    expected = other(theirs, mode, 0.5, 1, min_lr=0.1, **options)
    for measure in [1.0, 0.9, 0.95, 0.93, 0.9, 1.2, 1.3, 1.25, 1.2, 0.2, 0.3, 0.3, 0.3, 0.3, 0.3]:
        own.step(measure)
        expected.step(measure)
        assert own.get_last_lr() == pytest.approx([theirs.param_groups[0]["lr"]])


def valley(x: Any) -> Any:
    """Rosenbrock's function of two numbers."""
    return (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2


def hollow(x: Any) -> Any:
    return ((x - 0.5) ** 4).sum() + (x[0] * x[1]) ** 2


def minimised(library: Any, kind: Any, loss: Any, calls: int, **options: Any) -> list[float]:
    """Where `calls` steps of L-BFGS lead, from the same start."""
    start = [-0.5, 1.5]
    x = (
        Tensor(start, requires_grad=True)
        if library is Tensor
        else torch.tensor(start, requires_grad=True)
    )
    optimizer = kind([x], **options)

    def closure() -> Any:
        optimizer.zero_grad()
        value = loss(x)
        value.backward()
        return value

    for _ in range(calls):
        optimizer.step(closure)
    found: list[float] = x.tolist()
    return found


@pytest.mark.parametrize(
    ("calls", "history"),
    [(1, 1), (1, 10), (2, 1), pytest.param(3, 10, marks=pytest.mark.slow)],
)
def test_lbfgs_without_a_search_takes_pytorchs_steps(history: int, calls: int) -> None:
    options = {"lr": 0.1, "max_iter": 4, "history_size": history}
    own = minimised(Tensor, optim.LBFGS, hollow, calls, **options)
    theirs = minimised(torch, torch.optim.LBFGS, hollow, calls, **options)
    np.testing.assert_allclose(own, theirs, rtol=1e-4, atol=1e-5)


def test_lbfgs_with_a_search_takes_pytorchs_first_steps() -> None:
    options = {"max_iter": 2, "line_search_fn": "strong_wolfe"}
    own = minimised(Tensor, optim.LBFGS, hollow, 1, **options)
    theirs = minimised(torch, torch.optim.LBFGS, hollow, 1, **options)
    np.testing.assert_allclose(own, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_lbfgs_with_a_search_finds_the_end_of_a_valley() -> None:
    found = minimised(Tensor, optim.LBFGS, valley, 2, line_search_fn="strong_wolfe")
    np.testing.assert_allclose(found, [1.0, 1.0], atol=2e-3)


#: What tinygrad has in the place of a pair, or of a flag.
NUMBER: Any = 0.9


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: optim.SGD([x], 0.1, 0.9, 5e-4, True), "weight decay is no number"),
        (lambda x: optim.Adam([x], 0.1, NUMBER, 0.99), "betas is of the wrong kind"),
        (lambda x: optim.Adam([x], 0.1, betas=(0.9,)), "expected: 2 numbers"),  # type: ignore[arg-type]
        (lambda x: optim.Adam([{"params": [x], "betas": (0.9, 0.9, 0.9)}]), "no pair"),
        (lambda x: optim.Muon([x], 0.1, 0.95, 0.1, 1), "nesterov and classic"),  # type: ignore[arg-type]
        (lambda x: optim.Muon([x], 0.1, 0.95, 0.1, NUMBER), "nesterov is of the wrong kind"),
        (lambda x: optim.LBFGS([x], line_search_fn="armijo"), "unknown search"),
        (lambda x: optim.LBFGS([x]).step(), "needs a closure"),
        (
            lambda x: optim.ReduceLROnPlateau(optim.SGD([x], 0.1), "least"),
            "options make no sense",
        ),
        (lambda x: optim.OneCycleLR(optim.SGD([x], 0.1), 1.0), "needs total_steps"),
    ],
)
def test_arguments_in_another_librarys_order_are_refused(
    make: Callable[[Tensor], Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        make(Tensor([1.0], requires_grad=True))


def test_pairs_of_shares_may_stand_where_pytorch_has_them() -> None:
    x = Tensor([1.0], requires_grad=True)
    found = optim.Adam([x], 0.1, (0.8, 0.95))
    assert (found.b1, found.b2) == (0.8, 0.95)


def test_a_step_may_compute_its_loss_itself() -> None:
    x = Tensor([2.0], requires_grad=True)

    def closure() -> Tensor:
        loss = (x * x).sum()
        loss.backward()
        return loss

    loss = optim.SGD([x], 0.25).step(closure)
    assert loss is not None
    assert (loss.item(), x.tolist()) == (4.0, [1.0])


def test_gradients_may_be_set_to_zero() -> None:
    x = Tensor([2.0], requires_grad=True)
    (x * 3).sum().backward()
    optim.SGD([x], 0.1).zero_grad(set_to_none=False)
    assert x.grad is not None
    assert x.grad.tolist() == [0.0]
