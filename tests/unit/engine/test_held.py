"""What a capture holds is exact: nothing that somebody can still read lies in an arena."""

import threading
from queue import SimpleQueue
from random import Random
from typing import Any

import numpy as np
import pytest
from tests.threads import run_threads

from tilework import Tensor, dtypes, jit
from tilework.base.errors import StaleOutputError
from tilework.engine.device import Device
from tilework.runtime.lease import Lease
from tilework.tensor.version import from_buffer


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
    sink: SimpleQueue[Tensor] = SimpleQueue()
    keep = sink.put  # a list would be watched, and each call captured again

    def body(x: Tensor) -> Tensor:
        first = (x * 2).contiguous()
        second = (first @ first).relu()
        keep(second.realize())
        keep((second + first).sum(0).realize())
        return (second * 3).sum()

    x = np.full((16, 16), 0.01, np.float32)
    step = jit(body)
    step(Tensor(x).realize())
    kept = [sink.get() for _ in range(sink.qsize())]
    assert [tensor.shape for tensor in kept] == [(16, 16), (16,)]
    for call in range(3):
        step(Tensor(x * (call + 2)).realize()).item()
    assert sink.empty()
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


def on_loan(numbers: np.ndarray[Any, Any]) -> tuple[Tensor, Lease]:
    """A tensor over the memory of an array."""
    lease = Lease(numbers.ctypes.data, numbers.nbytes, owner="test")
    buffer = Device["CPU"].map(lease)
    dtype = dtypes.by_name(numbers.dtype.name)
    return Tensor._over(from_buffer(buffer, "CPU", numbers.shape, dtype)), lease


class Program:
    """Random steps: values are returned, kept outside, dropped, summed up or differentiated."""

    def __init__(self, seed: int) -> None:
        random = Random(seed)
        kinds = ["value", "value", "return", "keep", "drop", "state", "gradient", "loan"]
        self.steps = [
            (random.choice(kinds), random.randrange(9), random.randint(1, 3))
            for _ in range(random.randrange(2, 10))
        ]
        self.sink: SimpleQueue[Tensor] = SimpleQueue()
        self.keep = self.sink.put  # a list would be watched
        self.loaned = np.arange(6, dtype=np.float32) - 2
        self.state = Tensor(np.zeros(6, np.float32)).realize()
        self.total = np.zeros(6, np.float32)
        self.weight = Tensor(np.full(6, 2.0, np.float32), requires_grad=True)

    def tensors(self, x: Tensor, loan: Tensor) -> list[Tensor]:
        values, returned = [x * 1], [x + 0]
        for kind, number, factor in self.steps:
            value = values[number % len(values)]
            if kind == "value":
                values.append((value * factor + 1).realize())
            elif kind == "return":
                returned.append((value + factor).realize())
            elif kind == "keep":
                self.keep((value - factor).realize())
            elif kind == "drop":
                (value * value).realize()
            elif kind == "state":
                self.state.assign(self.state + value)
            elif kind == "loan":
                values.append((value + loan * factor).realize())
            else:
                self.weight.grad = None
                (self.weight * value).sum().backward()
                returned.append(self.weight.grad.realize())  # type: ignore[attr-defined]
        return returned

    def arrays(self, x: Any) -> list[Any]:
        values, returned = [x * 1], [x + 0]
        for kind, number, factor in self.steps:
            value = values[number % len(values)]
            if kind == "value":
                values.append(value * factor + 1)
            elif kind == "return":
                returned.append(value + factor)
            elif kind == "state":
                self.total = self.total + value
            elif kind == "loan":
                values.append(value + self.loaned * factor)
            elif kind == "gradient":
                returned.append(value)
        return returned


def check_held(seed: int) -> None:
    """Everything that somebody can still see has memory of its own, whenever it was made."""
    program = Program(seed)
    loan, lease = on_loan(program.loaned)
    step = jit(lambda x: program.tensors(x, loan))
    results: list[tuple[list[Tensor], list[Any]]] = []
    for call in range(4):
        x = np.arange(6, dtype=np.float32) * (call + 1)
        results.append((step(Tensor(x).realize()), program.arrays(x)))
    for found, wanted in results:
        for tensor, array in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(tensor.numpy(), array, err_msg=f"{program.steps}")
            assert not lies_in_arena(step, tensor)
    np.testing.assert_array_equal(program.state.numpy(), program.total)
    assert not lies_in_arena(step, program.state)
    for tensor in [program.sink.get() for _ in range(program.sink.qsize())]:
        with pytest.raises(StaleOutputError):
            tensor.numpy()
    held = [buffer.lease for buffer in step.captured.recipe.program.held]  # type: ignore[union-attr]
    assert (lease in held) == any(kind == "loan" for kind, _, _ in program.steps)


def test_MPL_06_what_is_made_at_random_points_of_a_capture_is_held_if_it_can_be_seen() -> None:
    for seed in range(25):
        check_held(seed)


def test_MPL_06_programs_of_several_threads_hold_what_is_theirs() -> None:
    def work(number: int) -> None:
        for seed in range(4):
            check_held(100 + 10 * number + seed)

    run_threads(4, work)


@pytest.mark.slow
def test_MPL_06_a_thousand_random_programs_hold_what_can_be_seen() -> None:
    for seed in range(200, 1200):
        check_held(seed)
