"""The schedules of whole networks: kernels, copies, memory and waits may not grow.

`pytest tests/system/test_zoo.py --update-golden` records what there is now.
"""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tilework import Tensor, nn
from tilework.base import settings
from tilework.ir.ops.program import CALL
from tilework.ir.ops.tensor import COPY
from tilework.schedule.call import transform_to_call
from tilework.schedule.pipeline import create_schedule
from tilework.schedule.schedule import Schedule
from tilework.tools.models import Weights, networks

RECORD = Path(__file__).parents[1] / "data" / "zoo.json"
DEVICE = "NULL"


class Shapes(Weights):
    """Weights without numbers: a schedule needs their shapes alone."""

    def __init__(self, device: Any = DEVICE) -> None:
        self.device = device
        self.made: dict[str, Tensor] = {}

    def _get(self, name: str, shape: tuple[int, ...], change: Callable[..., Any]) -> Tensor:
        if name not in self.made:
            self.made[name] = empty(shape, self.device)
        return self.made[name]


def empty(shape: tuple[int, ...], device: Any = DEVICE) -> Tensor:
    return Tensor.empty(*shape, device=DEVICE).realize().to(device).realize()


def training_step() -> list[Tensor]:
    """The loss and the new weights of one step of a small convolutional network."""
    weights = [empty((32, 1, 3, 3)), empty((64, 32, 3, 3)), empty((64 * 49, 10))]
    for weight in weights:
        weight.requires_grad = True
    optimizer = nn.optim.Adam(weights, lr=1e-3)
    x = empty((64, 1, 28, 28))
    for weight in weights[:2]:
        x = x.conv2d(weight, padding=1).relu().max_pool2d((2, 2))
    loss = (x.flatten(1) @ weights[2]).log_softmax().square().mean()
    with Tensor.train():
        loss.backward()
        return [loss, *optimizer.schedule_step()]


def on_two_devices() -> list[Tensor]:
    """A perceptron whose rows are spread over two devices, its weights on both."""
    devices = (f"{DEVICE}:0", f"{DEVICE}:1")
    x = empty((64, 256)).shard(devices, axis=0)
    first, second = (empty((256, 256)).shard(devices) for _ in range(2))
    y = (x @ first).relu() @ second
    return [(y * y).sum(0).to(DEVICE)]


def graphs() -> dict[str, Callable[[], list[Tensor]]]:
    found: dict[str, Callable[[], list[Tensor]]] = {}
    for network in networks():

        def build(network: Any = network) -> list[Tensor]:
            inputs = [empty(shape) for shape in network.shapes]
            return [network.function(Shapes(), *inputs)]

        found[network.name] = build
    return {**found, "training step": training_step, "two devices": on_two_devices}


def waits_of(schedule: Schedule) -> int:
    """How often work of one device comes after work of another: one wait at least."""
    last: str | None = None
    count = 0
    for call in schedule.linear.src:
        base = call.src[1]
        while base.src:
            base = base.src[0]
        device = schedule.slots[base.attrs.slot].device
        count += last is not None and device != last
        last = device
    return count


@cache
def schedules(name: str) -> Schedule:
    with settings.override(verify="off"):
        outputs = graphs()[name]()
        return create_schedule(
            transform_to_call([t._storage.version.node for t in outputs]).function
        )


def facts_of(name: str) -> dict[str, int]:
    schedule = schedules(name)
    bodies = [call.src[0] for call in schedule.linear.src if call.op is CALL]
    return {
        "kernels": sum(body.op is not COPY for body in bodies),
        "different_kernels": len({body for body in bodies if body.op is not COPY}),
        "copies": sum(body.op is COPY for body in bodies),
        "peak_bytes": schedule.arena_bytes,
        "live_bytes": schedule.intermediates.live_bytes,
        "unshared_bytes": schedule.intermediates.unshared_bytes,
        "waits_between_devices": waits_of(schedule),
    }


@pytest.mark.parametrize("name", list(graphs()))
def test_SCH_22_no_network_needs_more_than_was_recorded(
    name: str, request: pytest.FixtureRequest
) -> None:
    found = facts_of(name)
    recorded = json.loads(RECORD.read_text(encoding="utf-8"))
    if request.config.getoption("--update-golden"):
        recorded[name] = found
        RECORD.write_text(json.dumps(recorded, indent=2) + "\n", encoding="utf-8")
    limits = recorded[name]
    assert {key: value for key, value in found.items() if value > limits[key]} == {}


def test_SCH_22_every_record_has_its_network() -> None:
    assert set(json.loads(RECORD.read_text(encoding="utf-8"))) == set(graphs())


@pytest.mark.parametrize("name", [name for name in graphs() if name != "two devices"])
def test_MPL_08_intermediates_take_little_more_than_what_lives_at_once(name: str) -> None:
    facts = facts_of(name)
    assert facts["live_bytes"] <= facts["peak_bytes"] <= 1.1 * facts["live_bytes"]


@pytest.mark.parametrize("name", list(graphs()))
def test_MPL_08_intermediates_never_take_more_than_without_sharing(name: str) -> None:
    facts = facts_of(name)
    assert facts["live_bytes"] <= facts["peak_bytes"] <= facts["unshared_bytes"]
