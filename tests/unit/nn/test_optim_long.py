"""A thousand steps of an optimizer stay as near to exact arithmetic as PyTorch's do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tilework import Tensor, jit
from tilework.nn import optim

OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("Adam", {"lr": 0.01}),
    ("Adam", {"lr": 0.01, "amsgrad": True, "weight_decay": 0.01, "foreach": False}),
    ("AdamW", {"lr": 0.01, "maximize": True}),
    ("Adamax", {"lr": 0.01}),
    ("NAdam", {"lr": 0.01, "weight_decay": 0.01}),
    ("RAdam", {"lr": 0.01}),
    ("SGD", {"lr": 0.01, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.01, "momentum": 0.9, "dampening": 0.1, "maximize": True}),
    ("RMSprop", {"lr": 0.01, "momentum": 0.5, "centered": True}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.01}),
    ("Adadelta", {"lr": 1.0}),
]


def ends(name: str, options: dict[str, Any], steps: int) -> tuple[Any, Any, Any]:
    """Parameters after all steps: ours, PyTorch's, and PyTorch's in float64."""
    random = np.random.default_rng(0)
    start = random.standard_normal(32).astype(np.float32)
    gradients = random.standard_normal((steps, 32)).astype(np.float32)
    ours = Tensor(start, requires_grad=True)
    own = getattr(optim, name)([ours], **options)

    @jit
    def step(gradient: Tensor) -> Tensor:
        ours.grad = gradient * 1.0
        own.step()
        return ours

    wide = [torch.tensor(start.astype(kind), requires_grad=True) for kind in ("f4", "f8")]
    others = [getattr(torch.optim, name)([each], **options) for each in wide]
    for gradient in gradients:
        step(Tensor(gradient))
        for each, other in zip(wide, others, strict=True):
            each.grad = torch.from_numpy(gradient).to(each.dtype)
            other.step()
    single, double = (each.detach().numpy() for each in wide)
    return ours.numpy(), single, double


@pytest.mark.parametrize(
    ("name", "options"),
    [pytest.param(*row, marks=[] if row[1] == {"lr": 0.01} else pytest.mark.slow)
     for row in OPTIMIZERS],
)  # fmt: skip
def test_a_thousand_steps_err_no_more_than_pytorchs(name: str, options: dict[str, Any]) -> None:
    ours, theirs, exact = ends(name, options, 1000)
    limit = 2 * np.abs(theirs - exact).max() + 4e-7 * np.abs(exact).max()
    assert np.abs(ours - exact).max() <= limit


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Adam", "AdamW"])
def test_ten_thousand_steps_err_no_more_than_pytorchs(name: str) -> None:
    ours, theirs, exact = ends(name, {"lr": 0.01}, 10_000)
    limit = 2 * np.abs(theirs - exact).max() + 4e-7 * np.abs(exact).max()
    assert np.abs(ours - exact).max() <= limit
