"""Captures over several devices, and random numbers that do not depend on how many there are."""

import numpy as np
import pytest

from tilework import Tensor, distributed, jit
from tilework.base.errors import UnsupportedError
from tilework.engine.stats import COUNTERS
from tilework.tensor.exported import export

TWO = ("CPU", "CPU:1")
THREE = (*TWO, "CPU:2")
RANDOM = np.random.default_rng(3)


def rows(count: int = 6) -> np.ndarray:
    return RANDOM.standard_normal((count, 4)).astype(np.float32)


def test_a_replay_takes_parts_and_gives_parts() -> None:
    @jit
    def step(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return (x @ w).tanh(), (x * 2).sum(0)

    w = rows(4)
    kept = []
    before = COUNTERS.replays
    for _ in range(5):
        x = rows()
        first, second = step(Tensor(x).shard(THREE, 0).realize(), Tensor(w).shard(THREE).realize())
        assert (first.axis, second.axis) == (0, None)
        assert first.device == THREE
        kept.append((first, np.tanh(x @ w)))
        np.testing.assert_allclose(second.numpy(), (x * 2).sum(0), rtol=1e-5, atol=1e-5)
    assert COUNTERS.replays - before >= 3
    for found, wanted in kept:  # none was overwritten by a later call
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5, atol=1e-6)


def test_a_sum_of_what_is_in_memory_is_one_kernel_on_each_device() -> None:
    """Parts of one row each are what is summed: nothing is written before they are copied."""
    given = [rows(1) for _ in TWO]
    parts = [Tensor(a, device=d).realize() for a, d in zip(given, TWO, strict=True)]
    x = distributed.assemble(parts).realize()
    before = COUNTERS.kernels
    found = x.sum(0).realize()
    assert COUNTERS.kernels - before == 2
    np.testing.assert_array_equal(found.numpy(), given[0][0] + given[1][0])


def test_state_over_several_devices_is_carried_on() -> None:
    state = Tensor.zeros(5, 4).shard(TWO, 0).contiguous().realize()

    @jit
    def step(x: Tensor) -> Tensor:
        state.assign(state + x)
        return state.sum(0)

    total = np.zeros((5, 4), np.float32)
    for _ in range(5):
        x = np.round(rows(5) * 8)
        total += x
        found = step(Tensor(x).shard(TWO, 0).realize())
        assert found.tolist() == total.sum(0).tolist()
    seen = state + 0
    step(Tensor(x).shard(TWO, 0).realize())
    assert seen.tolist() == total.tolist()
    assert state.tolist() == (total + x).tolist()
    assert state.axis == 0


def test_another_layout_is_another_signature() -> None:
    @jit
    def twice(x: Tensor) -> Tensor:
        return x * 2

    for _ in range(3):
        assert twice(Tensor(rows()).shard(TWO, 0).realize()).axis == 0
    x = rows()
    found = twice(Tensor(x).shard(TWO, 1).realize())
    assert found.axis == 1
    np.testing.assert_array_equal(found.numpy(), x * 2)


def test_an_argument_given_twice_is_one_input() -> None:
    @jit
    def add(x: Tensor, y: Tensor) -> Tensor:
        return x + y

    for _ in range(4):
        x = Tensor(rows()).shard(TWO, 0).realize()
        np.testing.assert_array_equal(add(x, x).numpy(), x.numpy() * 2)


def test_what_runs_over_several_devices_is_not_exported(tmp_path: object) -> None:
    @jit
    def twice(x: Tensor) -> Tensor:
        return x * 2

    for _ in range(3):
        twice(Tensor(rows()).shard(TWO, 0).realize())
    with pytest.raises(UnsupportedError, match="over several devices"):
        export(twice, f"{tmp_path}/twice")


@pytest.mark.parametrize("name", ["rand", "randn"])
def test_draws_over_several_devices_are_those_of_the_first(name: str) -> None:
    Tensor.manual_seed(9)
    wanted = [getattr(Tensor, name)(7, 3).numpy() for _ in range(2)]
    Tensor.manual_seed(9)
    first = getattr(Tensor, name)(7, 3, device=THREE)
    second = getattr(first.shard(THREE, 0), f"{name}_like")()
    np.testing.assert_array_equal(first.numpy(), wanted[0])
    np.testing.assert_array_equal(second.numpy(), wanted[1])


def test_dropout_of_a_split_tensor_drops_what_one_device_would() -> None:
    x = np.ones((9, 5), np.float32)
    with Tensor.train():
        Tensor.manual_seed(2)
        wanted = Tensor(x).dropout(0.5).numpy()
        Tensor.manual_seed(2)
        found = Tensor(x).shard(THREE, 0).dropout(0.5)
        assert found.axis == 0
        np.testing.assert_array_equal(found.numpy(), wanted)
