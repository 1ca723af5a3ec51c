"""What a capture holds is exact: nothing that somebody can still read lies in an arena."""

import threading
from typing import Any

import numpy as np
import pytest

from tilework import Tensor, jit
from tilework.base.errors import StaleOutputError
from tilework.engine.device import Device


def arena_addresses(step: Any) -> list[tuple[int, int]]:
    captured = step.captured
    assert captured is not None
    memory = captured.recipe.program._memory
    return [(buffer.address, buffer.address + buffer.size_bytes) for buffer in memory]


def lies_in_arena(step: Any, tensor: Tensor) -> bool:
    buffer = tensor.realize()._storage.version.buffer
    assert buffer is not None
    return any(low <= buffer.address < high for low, high in arena_addresses(step))


def test_MPL_07_an_intermediate_that_was_kept_cannot_be_read_after_the_next_run() -> None:
    kept: list[Tensor] = []
    keep = kept.append  # the list itself would be watched, and each call captured again

    def body(x: Tensor) -> Tensor:
        first = (x * 2).contiguous()
        second = (first @ first).relu()
        keep(second.realize())
        keep((second + first).sum(0).realize())
        return (second * 3).sum()

    x = np.full((16, 16), 0.01, np.float32)
    step = jit(body)
    step(Tensor(x).realize())
    assert [tensor.shape for tensor in kept] == [(16, 16), (16,)]
    for call in range(3):
        step(Tensor(x * (call + 2)).realize()).item()
    assert len(kept) == 2
    for tensor in kept:
        with pytest.raises(StaleOutputError, match="return it from the function"):
            tensor.numpy()
        with pytest.raises(StaleOutputError):
            (tensor + 1).numpy()


def test_MPL_06_gradients_made_while_capturing_are_no_intermediates() -> None:
    weight = Tensor(np.ones((8, 8), np.float32), requires_grad=True)

    def body(x: Tensor) -> Tensor:
        weight.grad = None
        loss = ((x @ weight).tanh() ** 2).sum()
        loss.backward()
        gradient: Tensor | None = weight.grad
        assert gradient is not None
        return gradient.realize()

    step = jit(body)
    x = np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)
    results = [step(Tensor(x * scale).realize()) for scale in (1, 1, 1, 2)]
    plain = body(Tensor(x).realize()).numpy()
    np.testing.assert_array_equal(results[2].numpy(), plain)
    assert not any(lies_in_arena(step, result) for result in results)


def test_MPL_06_tensors_of_other_threads_are_left_alone() -> None:
    made: list[tuple[Tensor, np.ndarray]] = []
    stop = threading.Event()

    def work() -> None:
        number = 0
        while not stop.is_set() and number < 200:
            array = np.full(64, number, np.float32)
            made.append(((Tensor(array) + 1).realize(), array + 1))
            number += 1

    thread = threading.Thread(target=work)
    thread.start()
    steps = []
    for size in range(4, 12):
        step = jit(lambda x: ((x @ x).relu() @ x).sum())
        x = Tensor(np.ones((size, size), np.float32)).realize()
        assert [step(x).item() for _ in range(3)] == [float(size**4)] * 3
        steps.append(step)
    stop.set()
    thread.join()
    assert made
    for tensor, array in made:
        np.testing.assert_array_equal(tensor.numpy(), array)


def test_MPL_07_results_and_state_have_memory_of_their_own() -> None:
    total = Tensor(np.zeros((8, 8), np.float32)).realize()

    def body(x: Tensor) -> tuple[Tensor, Tensor]:
        product = (x @ x).relu()
        total.assign(total + product)
        return product.sum(0), (product @ x)[2:5]

    step = jit(body)
    x = Tensor(np.eye(8, dtype=np.float32)).realize()
    results = [step(x) for _ in range(4)]
    assert arena_addresses(step)
    for pair in results:
        assert not any(lies_in_arena(step, tensor) for tensor in pair)
    assert not lies_in_arena(step, total)
    step.free_intermediates()
    assert [tensor.sum().item() for tensor in results[-1]] == [8.0, 3.0]
    assert Device["CPU"].memory_used()["used"] > 0
