"""Captures on a device with graphs: one graph a replay, told what differs."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest
from tests.emulated_cards import emulated_cards

from tilework import Tensor, Variable, jit
from tilework.engine.device import Device
from tilework.testing.emulators.cuda import EmulatedCuda


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedCuda]:
    with emulated_cards(monkeypatch) as found:
        yield found
    assert not +found.held


def tensor(*numbers: float) -> Tensor:
    return Tensor(np.array(numbers, np.float32), device="CUDA").realize()


def two_kernels(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    total = (x * y).sum().contiguous()
    return total, (x / total).cumsum(0)


def test_replays_of_several_kernels_are_one_graph(library: EmulatedCuda) -> None:
    function = jit(two_kernels)
    for start in (1.0, 2.0, 3.0, 4.0):
        x, y = tensor(start, start + 1), tensor(2.0, 3.0)
        library.calls.clear()
        total, parts = function(x, y)
        want = start * 2 + (start + 1) * 3
        assert total.item() == want
        assert np.allclose(parts.numpy(), np.array([start, 2 * start + 1]) / want)
    assert "graph_launch" in library.calls
    assert library.calls.count("graph_create") == 0  # made by an earlier replay


def test_a_result_of_an_earlier_replay_stays_as_it_was(library: EmulatedCuda) -> None:
    function = jit(two_kernels)
    y = tensor(1.0, 1.0)
    results = [function(tensor(float(i), float(i)), y)[0] for i in range(1, 6)]
    assert [result.item() for result in results] == [2.0, 4.0, 6.0, 8.0, 10.0]


def test_a_graph_keeps_no_memory_of_its_last_replay_and_goes_with_the_capture(
    library: EmulatedCuda,
) -> None:
    function = jit(two_kernels)
    y = tensor(1.0, 1.0)
    x = tensor(3.0, 4.0)
    for _ in range(4):
        function(x, y)
    used = Device["CUDA"].memory_used()["used"]
    x = tensor(5.0, 6.0)
    gc.collect()
    assert Device["CUDA"].memory_used()["used"] <= used
    function.reset()
    del function
    gc.collect()
    Device["CUDA"].memory_used()
    assert library.held["graph"] in (0, 1)


def test_a_graph_follows_a_size_that_changes(library: EmulatedCuda) -> None:
    x = tensor(*(float(i) for i in range(1, 9)))

    @jit
    def function(x: Tensor, n: Variable) -> tuple[Tensor, Tensor]:
        total = x[:n].sum().contiguous()
        return total, x / total

    for size in (2, 8, 3, 3, 5):
        total, parts = function(x, Variable("n", 1, 8).bind(size))
        want = size * (size + 1) / 2
        assert total.item() == want
        assert np.allclose(parts.numpy(), np.arange(1, 9) / want)


def test_a_call_does_not_wait_for_the_card(library: EmulatedCuda) -> None:
    function = jit(two_kernels)
    x, y = tensor(1.0, 2.0), tensor(2.0, 3.0)
    for _ in range(3):
        function(x, y)
    with library.hold():
        total, _ = function(x, y)  # nothing runs meanwhile
    assert total.item() == 8.0
