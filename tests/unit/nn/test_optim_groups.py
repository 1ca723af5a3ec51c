"""Groups of parameters, schedules of several rates, and states, against PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tilework import Tensor, TinyJit
from tilework.base.errors import DTypeError, UserError
from tilework.compat.tinygrad import optim as tinygrads
from tilework.engine.stats import COUNTERS
from tilework.nn import optim

RANDOM = np.random.default_rng(5)
STARTS = [RANDOM.standard_normal((3, 2)).astype(np.float32) for _ in range(3)]
GRADIENTS = [[RANDOM.standard_normal((3, 2)).astype(np.float32) for _ in STARTS] for _ in range(6)]

Make = Callable[[Any, list[Any]], Any]
Schedule = Callable[[Any, Any], Any]


def stepped(make: Make, schedule: Schedule | None = None) -> tuple[Any, Any]:
    """The parameters and rates that both libraries end with after the same gradients."""
    ours = [Tensor(start, requires_grad=True) for start in STARTS]
    theirs = [torch.nn.Parameter(torch.tensor(start)) for start in STARTS]
    own, other = make(optim, ours), make(torch.optim, theirs)
    paced = None if schedule is None else schedule(optim, own)
    expected = None if schedule is None else schedule(torch.optim.lr_scheduler, other)
    rates = []
    for gradients in GRADIENTS:
        for mine, his, gradient in zip(ours, theirs, gradients, strict=True):
            mine.grad = Tensor(gradient)
            his.grad = torch.tensor(gradient)
        own.step()
        other.step()
        if paced is not None and expected is not None:
            paced.step()
            expected.step()
        rates.append([[group["lr"] for group in each.param_groups] for each in (own, other)])
    for one, two in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one.numpy(), two.detach().numpy(), rtol=2e-5, atol=2e-5)
    for found, wanted in rates:
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    return own, other


MAKERS: dict[str, Make] = {
    "SGD": lambda kinds, p: kinds.SGD(
        [{"params": p[:1], "lr": 0.5, "weight_decay": 0.1}, {"params": p[1:], "momentum": 0.5}],
        0.1,
        0.9,
    ),
    "AdamW": lambda kinds, p: kinds.AdamW(
        [{"params": p[0]}, {"params": p[1:], "weight_decay": 0.0, "betas": (0.5, 0.9)}], lr=0.1
    ),
    "Adam": lambda kinds, p: kinds.Adam(
        [{"params": p[:2], "amsgrad": True}, {"params": p[2:], "lr": 0.01}], 0.1, (0.8, 0.9)
    ),
    "RMSprop": lambda kinds, p: kinds.RMSprop(
        [{"params": p[:2], "centered": True}, {"params": p[2:], "eps": 0.1}], momentum=0.3
    ),
    "NAdam": lambda kinds, p: kinds.NAdam([{"params": p[:2], "lr": 0.1}, {"params": p[2:]}]),
    "names": lambda kinds, p: kinds.SGD([("a", p[0]), ("b", p[1]), ("c", p[2])], 0.1),
    "order": lambda kinds, p: kinds.SGD(p, 0.1, 0.9, 0.2, 0.3, False),
    "order of Adam": lambda kinds, p: kinds.Adam(p, 0.1, (0.8, 0.9), 1e-6, 0.1, True),
}


@pytest.mark.parametrize("name", MAKERS)
def test_groups_take_the_steps_of_pytorchs(name: str) -> None:
    stepped(MAKERS[name])


def added(kinds: Any, p: list[Any]) -> Any:
    optimizer: Any = kinds.SGD([{"params": p[:1], "lr": 0.5}], 0.1, 0.9)
    optimizer.add_param_group({"params": p[1:]})
    optimizer.param_groups[1]["lr"] *= 0.5
    optimizer.param_groups[0]["weight_decay"] = 0.1
    return optimizer


def test_groups_can_be_added_and_changed() -> None:
    own, other = stepped(added)
    assert own.param_groups[1]["lr"] == other.param_groups[1]["lr"] == 0.05


SCHEDULES: dict[str, Schedule] = {
    "StepLR": lambda kinds, o: kinds.StepLR(o, 2, 0.5),
    "LambdaLR": lambda kinds, o: kinds.LambdaLR(o, [lambda n: 0.9**n, lambda n: 1 / (n + 1)]),
    "MultiplicativeLR": lambda kinds, o: kinds.MultiplicativeLR(o, [lambda n: 0.9, lambda n: 0.5]),
    "CosineAnnealingLR": lambda kinds, o: kinds.CosineAnnealingLR(o, 4, 0.01),
    "OneCycleLR": lambda kinds, o: kinds.OneCycleLR(o, [1.0, 0.5], 8),
    "three phases": lambda kinds, o: kinds.OneCycleLR(
        o, 1.0, 10, anneal_strategy="linear", three_phase=True, base_momentum=[0.5, 0.6]
    ),
    "CyclicLR": lambda kinds, o: kinds.CyclicLR(o, [0.1, 0.2], 0.5, 2, 3),
    "exp_range": lambda kinds, o: kinds.CyclicLR(o, 0.1, 0.5, 2, 1, "exp_range", 0.9),
    "scale of turns": lambda kinds, o: kinds.CyclicLR(
        o, 0.1, 0.5, 1, scale_fn=lambda turn: 1 / turn, cycle_momentum=False
    ),
    "scale of steps": lambda kinds, o: kinds.CyclicLR(
        o, 0.1, 0.5, 2, scale_fn=lambda step: 0.9**step, scale_mode="iterations"
    ),
}
#: Each has a momentum or `betas`, which some schedules set.
GROUPED: dict[str, Make] = {
    "SGD": MAKERS["SGD"],
    "AdamW": lambda kinds, p: kinds.AdamW([{"params": p[:1]}, {"params": p[1:], "lr": 0.1}], 0.01),
}


@pytest.mark.filterwarnings("ignore:Detected call of")
@pytest.mark.parametrize("kind", GROUPED)
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_sets_each_group(kind: str, name: str) -> None:
    stepped(GROUPED[kind], SCHEDULES[name])


@pytest.mark.parametrize("kind", ["NAdam", "RAdam", "Adamax", "RMSprop"])
def test_momentum_cycles_in_other_kinds(kind: str) -> None:
    stepped(lambda kinds, p: getattr(kinds, kind)(p, lr=0.1), SCHEDULES["exp_range"])


@pytest.mark.parametrize("name", ["StepLR", "CosineAnnealingLR"])
def test_a_schedule_goes_on_after_a_step(name: str) -> None:
    options = {"StepLR": (2, 0.5), "CosineAnnealingLR": (9, 0.01)}[name]
    x = Tensor([1.0], requires_grad=True)
    whole = getattr(optim, name)(optim.SGD([x], 0.8), *options)
    for _ in range(4):
        whole.step()
    group = {"params": [x], "initial_lr": 0.8}
    later = getattr(optim, name)(optim.SGD([group], 0.3), *options, last_epoch=3)
    assert later.get_last_lr() == whole.get_last_lr()
    assert later.last_epoch == 4


def test_a_schedule_that_goes_on_needs_the_first_rate() -> None:
    optimizer = optim.SGD([Tensor([1.0])], 0.1)
    with pytest.raises(UserError, match="before the first step"):
        optim.StepLR(optimizer, 2, last_epoch=3)


def test_a_schedule_is_saved_and_loaded() -> None:
    schedules = [optim.StepLR(optim.SGD([Tensor([1.0])], 0.4), 1, 0.5) for _ in range(2)]
    schedules[0].step()
    schedules[0].step()
    schedules[1].load_state_dict(schedules[0].state_dict())
    assert schedules[1].get_last_lr() == [0.1]
    assert schedules[1].optimizer.lr.item() == pytest.approx(0.1)


@pytest.mark.parametrize("kind", ["SGD", "Adam", "Adafactor", "ASGD", "RMSprop", "Rprop"])
def test_a_loaded_state_goes_on_like_the_saved_one(kind: str) -> None:
    def run(optimizer: Any, params: list[Tensor], gradients: list[Any]) -> None:
        for each in gradients:
            for param, gradient in zip(params, each, strict=True):
                param.grad = Tensor(gradient)
            optimizer.step()

    options: dict[str, Any] = {"momentum": 0.9} if kind in ("SGD", "RMSprop") else {}
    first = [Tensor(start) for start in STARTS]
    groups = [{"params": first[:1], "lr": 0.05}, {"params": first[1:]}]
    one = getattr(optim, kind)(groups, **options)
    run(one, first, GRADIENTS[:3])
    state = one.state_dict()
    second = [param.detach().clone().realize() for param in first]
    other = getattr(optim, kind)([{"params": second[:1]}, {"params": second[1:]}], **options)
    run(one, first, GRADIENTS[3:])
    other.load_state_dict(state)
    run(other, second, GRADIENTS[3:])
    assert [group["params"] for group in state["param_groups"]] == [[0], [1, 2]]
    for a, b in zip(first, second, strict=True):
        assert a.tolist() == b.tolist()


def test_a_captured_step_follows_momentum_and_compiles_nothing() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True).realize()
    y: Any = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    own = optim.SGD([x], 0.1, 0.9)
    other = torch.optim.SGD([y], 0.1, 0.9)
    paced = optim.CyclicLR(own, 0.1, 0.5, 2)
    expected = torch.optim.lr_scheduler.CyclicLR(other, 0.1, 0.5, 2)

    @TinyJit
    def step() -> Tensor:
        own.zero_grad()
        loss = (x * x).sum()
        loss.backward()
        own.step()
        return loss.realize()

    for number in range(8):
        if number == 5:
            before = COUNTERS.compiles
        step()
        other.zero_grad()
        (y * y).sum().backward()
        other.step()
        paced.step()
        expected.step()
    assert COUNTERS.compiles == before
    np.testing.assert_allclose(x.numpy(), y.detach().numpy(), rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: optim.SGD([{"params": [x], "wieght_decay": 0.1}]), "unknown arguments"),
        (lambda x: optim.SGD([{"lr": 0.1}]), "no `params`"),
        (lambda x: optim.SGD([{"params": x}, {"params": x}]), "in two groups"),
        (lambda x: optim.SGD([{"params": [1.0]}]), "no tensor"),
        (lambda x: optim.LBFGS([{"params": x}, {"params": x}]), "one group"),
        (lambda x: optim.LambdaLR(optim.SGD([x]), [abs, abs]), "value for each group"),
        (lambda x: optim.CyclicLR(optim.Adagrad([x]), 0.1, 0.2), "no momentum"),
        (lambda x: optim.CyclicLR(optim.SGD([x]), 0.1, 0.2, scale_mode="turn"), "scale_mode"),
        (lambda x: optim.OneCycleLR(optim.SGD([x]), 1.0, 9, anneal_strategy="sin"), "between"),
        (lambda x: optim.Muon([x], adjust_lr_fn="other"), "unknown scaling"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Callable[[Tensor], Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make(Tensor([1.0]))


def test_a_state_of_other_groups_is_refused() -> None:
    one, other = optim.SGD([Tensor([1.0])]), optim.SGD([Tensor([1.0]), Tensor([2.0])])
    with pytest.raises(UserError, match="other groups"):
        other.load_state_dict(one.state_dict())


@pytest.mark.parametrize("shape", [(6, 3), (3, 6)])
@pytest.mark.parametrize("adjust", [None, "match_rms_adamw"])
def test_muon_steps_as_pytorchs_within_the_digits_of_its_iteration(
    shape: tuple[int, int], adjust: str | None
) -> None:
    start = RANDOM.standard_normal(shape).astype(np.float32)
    ours, theirs = Tensor(start), torch.nn.Parameter(torch.tensor(start))
    own: Any = optim.Muon([ours], 0.1, 0.1, 0.9, adjust_lr_fn=adjust)
    other: Any = torch.optim.Muon([theirs], 0.1, 0.1, 0.9, adjust_lr_fn=adjust)
    for _ in range(3):
        gradient = RANDOM.standard_normal(shape).astype(np.float32)
        ours.grad, theirs.grad = Tensor(gradient), torch.tensor(gradient)
        own.step()
        other.step()
    # PyTorch's iteration runs in bfloat16.
    np.testing.assert_allclose(ours.numpy(), theirs.detach().numpy(), atol=0.03)


def test_tinygrads_order_of_arguments_is_kept_in_its_place() -> None:
    x = Tensor([1.0])
    sgd, adam = tinygrads.SGD([x], 0.1, 0.9, 0.2, True), tinygrads.Adam([x], 0.1, 0.8, 0.95)
    muon = tinygrads.Muon([x], 0.1, 0.7, 0.2)
    assert (sgd.momentum, sgd.weight_decay, sgd.nesterov) == (0.9, 0.2, True)
    assert (adam.b1, adam.b2) == (0.8, 0.95)
    assert (muon.momentum, muon.weight_decay, muon.adjust_lr_fn) == (0.7, 0.2, "none")
    assert tinygrads.AdamW([x], 0.1, 0.8, 0.95, 1e-6, 0.3).weight_decay == 0.3


@pytest.mark.parametrize("state", [{}, {"state": []}, {"weight": Tensor([1.0])}, [1]])
def test_what_is_no_state_of_an_optimizer_is_refused(state: Any) -> None:
    with pytest.raises(UserError, match="no state of an optimizer"):
        optim.SGD([Tensor([1.0])]).load_state_dict(state)


@pytest.mark.parametrize("parameters", [None, 3])
def test_what_is_no_list_of_parameters_is_refused(parameters: Any) -> None:
    with pytest.raises(DTypeError, match="no parameters"):
        optim.Adam(parameters)


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        (optim.Adam, {"eps": -1e-8}, "eps is no number from 0 on"),
        (optim.SparseAdam, {"eps": -1e-8}, "eps is no number from 0 on"),
        (optim.SparseAdam, {"eps": 0.0}, "eps is 0"),
        (optim.RMSprop, {"alpha": -0.9}, "alpha is no number from 0 on"),
        (optim.Adagrad, {"lr_decay": -1.0}, "lr_decay is no number from 0 on"),
        (optim.Adadelta, {"rho": 1.5}, "rho is above 1"),
        (optim.NAdam, {"momentum_decay": -1.0}, "momentum_decay is no number from 0 on"),
        (optim.Adam, {"eps": float("nan")}, "eps is no number from 0 on"),
        (optim.Adafactor, {"eps": (-1.0, 1e-3)}, "eps is no number from 0 on"),
    ],
)
def test_numbers_that_make_no_sense_are_told(
    kind: Any, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        kind([Tensor([1.0], requires_grad=True)], **options)
    with pytest.raises(UserError, match=words):
        kind([{"params": [Tensor([1.0], requires_grad=True)]} | options])
