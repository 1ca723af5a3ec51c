"""Two thousand steps of small nets end as near to exact arithmetic as PyTorch's float32 does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tilework import Tensor, jit, nn
from tilework.nn import optim

STEPS = 2000
BATCH = 8


class ConvNet:
    def __init__(self, layers: Any) -> None:
        self.conv = layers.Conv2d(1, 4, 3, padding=1)
        self.out = layers.Linear(64, 3)

    def __call__(self, x: Any) -> Any:
        return self.out(self.conv(x.reshape(BATCH, 1, 4, 4)).relu().reshape(BATCH, 64))


class Recurrent:
    def __init__(self, layers: Any) -> None:
        self.lstm = layers.LSTM(4, 6)
        self.out = layers.Linear(6, 3)

    def __call__(self, x: Any) -> Any:
        steps, _ = self.lstm(x.reshape(BATCH, 4, 4).permute(1, 0, 2))
        return self.out(steps[3])


class Attention:
    def __init__(self, layers: Any) -> None:
        self.layer = layers.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True)
        self.out = layers.Linear(16, 3)

    def __call__(self, x: Any) -> Any:
        return self.out(self.layer(x.reshape(BATCH, 4, 4)).reshape(BATCH, 16))


class InTorch(torch.nn.Module):
    """The same net of PyTorch's layers."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        net = kind(torch.nn)
        for name, layer in vars(net).items():
            setattr(self, name, layer)
        self.run = kind.__call__

    def forward(self, x: Any) -> Any:
        return self.run(self, x)


NETS = {"a conv-net": ConvNet, "an LSTM": Recurrent, "a transformer": Attention}
OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.05, "momentum": 0.9}),
    ("Adam", {"lr": 0.003}),
    ("AdamW", {"lr": 0.003}),
]


def losses_there(net: Any, name: str, options: Any, data: Any, labels: Any) -> Any:
    optimizer = getattr(torch.optim, name)(net.parameters(), **options)
    kind = next(net.parameters()).dtype
    found = []
    for x, y in zip(data, labels, strict=True):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(torch.tensor(x, dtype=kind)), torch.tensor(y))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        found.append(loss.item())
    return np.array(found)


def losses_here(kind: Any, state: Any, name: str, options: Any, data: Any, labels: Any) -> Any:
    net = kind(nn)
    nn.state.load_state_dict(net, {key: Tensor(value) for key, value in state.items()})
    optimizer = getattr(optim, name)(nn.state.get_parameters(net), **options)

    @jit
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    with Tensor.train():
        pairs = zip(data, labels, strict=True)
        return np.array([step(Tensor(x), Tensor(y)).item() for x, y in pairs])


def compare(net: str, name: str, options: dict[str, Any], steps: int) -> None:
    random = np.random.default_rng(0)
    centres = random.standard_normal((3, 16))
    labels = random.integers(0, 3, (steps, BATCH))
    noise = random.standard_normal((steps, BATCH, 16))
    data = (centres[labels] + noise).astype(np.float32)
    torch.manual_seed(0)
    single, again = InTorch(NETS[net]), InTorch(NETS[net])
    double = InTorch(NETS[net]).double()
    for other in (double, again):
        other.load_state_dict(single.state_dict())
    state = {key: value.detach().clone().numpy() for key, value in single.state_dict().items()}
    ours = losses_here(NETS[net], state, name, options, data, labels)
    theirs = losses_there(single, name, options, data, labels)
    exact = losses_there(double, name, options, data, labels)
    # The same sums in another order: how far rounding alone can lead, where training is unstable.
    backwards = losses_there(again, name, options, data[:, ::-1].copy(), labels[:, ::-1].copy())
    # Rounding grows from step to step, in all: by the worst so far, and the mean of the end.
    errors = np.maximum(np.abs(theirs - exact), np.abs(backwards - exact))
    worst = np.maximum.accumulate(errors) + 1e-5
    assert (np.abs(ours - exact) <= 8 * worst).all()
    end = slice(-(steps // 10), None)
    assert abs(ours[end].mean() - exact[end].mean()) <= 2 * worst[end].mean()
    assert exact[end].mean() < exact[: max(steps // 100, 4)].mean()


@pytest.mark.parametrize(
    "net",
    [pytest.param(net, marks=[] if net == "a conv-net" else pytest.mark.slow) for net in NETS],
)
def test_a_few_steps_of_a_net_follow_exact_arithmetic(net: str) -> None:
    compare(net, "Adam", {"lr": 0.01}, 40)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "options"), OPTIMIZERS, ids=[name for name, _ in OPTIMIZERS])
@pytest.mark.parametrize("net", NETS)
def test_two_thousand_steps_of_a_net_err_no_more_than_pytorchs(
    net: str, name: str, options: dict[str, Any]
) -> None:
    compare(net, name, options, STEPS)
