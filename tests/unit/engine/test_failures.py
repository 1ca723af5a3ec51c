"""A run that fails: what it would have returned is no result, and no half of it can be read."""

import numpy as np
import pytest

from tilework import Tensor, jit
from tilework.base import faults
from tilework.base.errors import BoundsError, StaleOutputError, TileworkError
from tilework.engine import link
from tilework.engine.device import Device


def state() -> Tensor:
    return Tensor([1.0, 2.0, 3.0]).realize()


def test_EXE_21_a_write_that_was_made_is_not_made_again() -> None:
    x, table, bad = state(), Tensor([1.0, 2.0]).realize(), Tensor([5, 7]).realize()
    x.assign(x + 1)
    picked = table[bad]
    for _ in range(2):
        with pytest.raises(BoundsError):
            Tensor.realize(x, picked)
        assert x.tolist() == [2.0, 3.0, 4.0]
    assert not picked.is_realized


def test_EXE_21_a_write_that_an_index_has_spoiled_cannot_be_read() -> None:
    x, rows = state(), Tensor([0, 9, 2]).realize()
    x[rows] = 5.0
    with pytest.raises(BoundsError):
        x.tolist()
    with pytest.raises(StaleOutputError, match="has failed"):
        x.tolist()
    with pytest.raises(StaleOutputError):
        (x + 1).tolist()


def test_EXE_21_old_contents_that_somebody_holds_survive_a_failed_write() -> None:
    x, table, bad = state(), Tensor([1.0, 2.0]).realize(), Tensor([5]).realize()
    before = x * 1
    x.assign(x + table[bad])
    with pytest.raises(BoundsError):
        x.tolist()
    assert before.tolist() == [1.0, 2.0, 3.0]


def test_EXE_21_random_numbers_go_on_after_a_failed_run() -> None:
    table, bad = Tensor([1.0, 2.0]).realize(), Tensor([5, 7]).realize()
    Tensor.manual_seed(3)
    with pytest.raises(BoundsError):
        (Tensor.rand(2) + table[bad]).tolist()
    drawn = Tensor.rand(4).numpy()
    assert ((drawn >= 0) & (drawn < 1)).all()


@pytest.mark.parametrize("broken", [0, 1, 2])
def test_EXE_21_whichever_step_fails_no_output_can_be_read(
    broken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three kernels on a device that runs commands one by one; step `broken` fails."""
    other = Device["PYTHON"]
    x = Tensor([1.0, 2.0, 3.0], device="PYTHON").realize()
    y = Tensor([4.0, 5.0], device="PYTHON").realize()
    x.assign(x * 2)
    y.assign(y + x.sum())
    total = (y.cumsum(0) @ y).reshape(1)
    submit = other.driver.submit
    passed: list[object] = []

    def fail(commands: list[object]) -> int:
        for command in commands:
            if len(passed) == broken:
                raise faults.InjectedFault("PYTHON: injected")
            passed.append(command)
            submit([command])  # type: ignore[list-item]
        return other.last_ticket

    with monkeypatch.context() as patch:
        patch.setattr(other.driver, "submit", fail)
        with pytest.raises(faults.InjectedFault):
            Tensor.realize(x, y, total)
    assert not total.is_realized
    for tensor in (x, y, total):
        with pytest.raises(StaleOutputError):
            tensor.tolist()


def test_EXE_21_a_failed_replay_leaves_no_state_that_can_be_read() -> None:
    weights, table = state(), Tensor([10.0, 20.0, 30.0]).realize()

    @jit
    def step(rows: Tensor) -> Tensor:
        weights.assign(weights + table[rows])
        return weights.sum()

    good, bad = Tensor([0, 1, 2]).realize(), Tensor([0, 7, 2]).realize()
    for _ in range(3):
        step(good).item()
    with pytest.raises(BoundsError):
        step(bad)
    for _ in range(2):
        with pytest.raises(StaleOutputError):
            weights.tolist()
        with pytest.raises(TileworkError):
            step(good)


def test_EXE_21_an_error_before_the_first_kernel_spoils_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = state()
    x.assign(x + 1)

    def refuse(*_: object) -> None:
        raise faults.InjectedFault("link: injected")

    with monkeypatch.context() as patch:
        patch.setattr(link, "_load", refuse)
        patch.setattr(link.LinkCache, "get", lambda *_: None)
        with pytest.raises(faults.InjectedFault):
            x.realize()
    assert x.tolist() == [2.0, 3.0, 4.0]


def test_a_failed_run_gives_its_memory_back() -> None:
    device = Device["CPU"]
    table, bad = Tensor(np.ones(100_000, np.float32)).realize(), Tensor([100_000]).realize()
    used = device.memory_used()["used"]
    for _ in range(5):
        with pytest.raises(BoundsError):
            (table * 2 + table[bad]).realize()
    assert device.memory_used()["used"] <= used + (1 << 16)
