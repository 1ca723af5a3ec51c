"""Random programs with state, views and outputs fed back: captured, plain and NumPy agree."""

import threading
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

from tilework import Tensor, jit
from tilework.base import trace
from tilework.engine.stats import COUNTERS, difference

SIZE = 6
NUM_STATES = 3
DEVICES = ("CPU", "CPU:1")
Step = Callable[[list[Any], Any], Any]


def random_step(random: Random) -> tuple[str, Any]:
    """A step as a name and its numbers, so that both sides run the very same one."""
    kind = random.choice(["assign", "assign", "slice", "reader", "realize", "argument", "swap"])
    numbers = [random.randrange(NUM_STATES) for _ in range(3)]
    start = random.randrange(SIZE - 1)
    stop = random.randrange(start + 1, SIZE)
    return kind, (*numbers, random.randint(-3, 3), start, stop)


def run_tensors(program: list[Any], states: list[Tensor], x: Tensor) -> list[Tensor]:
    results: list[Tensor] = []
    for kind, (i, j, k, factor, start, stop) in program:
        if kind == "assign":
            states[i].assign(states[j] * factor + states[k] + x)
        elif kind == "slice":
            states[i][start:stop] = states[j][start:stop] * factor + x[start:stop]
        elif kind == "reader":
            results.append(states[j] * 2 - states[k])
        elif kind == "realize":
            states[i].realize()
        elif kind == "argument":
            x.assign(x + states[j] * factor)
        else:
            first, second = states[i] * 1, states[j] * 1
            states[i].assign(second)
            states[j].assign(first)
    return [*results, states[0] + x]


def run_arrays(program: list[Any], states: list[Any], x: Any) -> list[Any]:
    results: list[Any] = []
    for kind, (i, j, k, factor, start, stop) in program:
        if kind == "assign":
            states[i][:] = states[j] * factor + states[k] + x
        elif kind == "slice":
            states[i][start:stop] = states[j][start:stop] * factor + x[start:stop]
        elif kind == "reader":
            results.append(states[j] * 2 - states[k])
        elif kind == "argument":
            x[:] = x + states[j] * factor
        elif kind == "swap":
            first, second = states[i] * 1, states[j] * 1
            states[i][:] = second
            states[j][:] = first
    return [*results, states[0] + x]


def numbers(random: Random) -> Any:
    return np.array([random.randint(-9, 9) for _ in range(SIZE)], dtype=np.int32)


@pytest.mark.parametrize("seed", range(30))
def test_EXE_05_a_random_program_means_the_same_captured_and_in_numpy(seed: int) -> None:
    check_random_program(seed)


@pytest.mark.slow
def test_EXE_05_a_thousand_random_programs_mean_the_same() -> None:
    for seed in range(30, 1000):
        check_random_program(seed)


def check_random_program(seed: int) -> None:
    random = Random(seed)
    before = COUNTERS.snapshot()
    program = [random_step(random) for _ in range(random.randrange(1, 9))]
    arrays = [numbers(random) for _ in range(NUM_STATES)]
    states = [Tensor(array).realize() for array in arrays]
    captured = jit(lambda x: run_tensors(program, states, x))
    kept: list[tuple[list[Tensor], list[Any]]] = []
    with np.errstate(over="ignore"):
        for call in range(6):
            given = numbers(random)
            x = Tensor(given).realize()
            if call == 3:  # an expression that is not computed yet keeps what it reads
                kept.append(([states[1] * 3], [arrays[1] * 3]))
            found = captured(x)
            wanted = [array.copy() for array in run_arrays(program, arrays, given)]
            kept.append((found, wanted))
            np.testing.assert_array_equal(x.numpy(), given, err_msg=f"{program}")
    for call, (found, wanted) in enumerate(kept):
        for tensor, array in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(tensor.numpy(), array, err_msg=f"{call}: {program}")
    for state, array in zip(states, arrays, strict=True):
        np.testing.assert_array_equal(state.numpy(), array, err_msg=f"{program}")
    assert difference(before)["replays"] >= 3, program
    assert not [w for w in trace.recent_warnings() if w.source == "jit"]


@pytest.mark.parametrize("seed", range(12))
def test_SCH_07_reads_come_after_writes_of_parts_of_devices_and_of_inner_calls(seed: int) -> None:
    random = Random(seed)
    steps = [random_step(random) for _ in range(random.randrange(4, 9))]
    inner_steps = [random_step(random) for _ in range(2)]
    arrays = [numbers(random) for _ in range(NUM_STATES)]
    axis = random.choice((0, 0, None))
    states = [Tensor(array).shard(DEVICES, axis).realize() for array in arrays]
    inner = jit(lambda x: run_tensors(inner_steps, states, x))

    def run(x: Tensor) -> list[Tensor]:
        before = run_tensors(steps[:2], states, x)
        parts = [part * 2 for part in states[0].shards()]  # read while writes are still to come
        called = inner(x)
        after = run_tensors(steps[2:], states, x)
        return [*before, *parts, *called, *after, *states[1].shards()]

    def run_plainly(x: Any) -> list[Any]:
        before = [array.copy() for array in run_arrays(steps[:2], arrays, x)]
        parts = [part * 2 for part in shares(arrays[0], axis)]
        called = [array.copy() for array in run_arrays(inner_steps, arrays, x)]
        after = [array.copy() for array in run_arrays(steps[2:], arrays, x)]
        return [*before, *parts, *called, *after, *shares(arrays[1], axis)]

    captured = jit(run)
    with np.errstate(over="ignore"):
        for _ in range(4):
            given = numbers(random)
            found = captured(Tensor(given).shard(DEVICES, axis).realize())
            wanted = [array.copy() for array in run_plainly(given)]
            for tensor, array in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(tensor.numpy(), array, f"{steps} {inner_steps}")
    for state, array in zip(states, arrays, strict=True):
        np.testing.assert_array_equal(state.numpy(), array, f"{steps} {inner_steps}")


def shares(array: Any, axis: int | None) -> list[Any]:
    """What each of the devices has of a value."""
    return np.array_split(array, len(DEVICES)) if axis == 0 else [array] * len(DEVICES)


@pytest.mark.parametrize("ring", [1, 2, 3, 4])
def test_EXE_06_the_last_results_of_a_ring_are_right(ring: int) -> None:
    captured = jit(lambda x: x * 3, outputs=ring)
    captured(Tensor([0]).realize())
    results = [captured(Tensor([i]).realize()) for i in range(10)]
    assert [result.item() for result in results[-ring:]] == [3 * i for i in range(10)][-ring:]


def test_EXE_02_two_captures_of_one_function_run_interleaved() -> None:
    check_interleaving(150)


@pytest.mark.slow
def test_EXE_02_ten_thousand_interleavings() -> None:
    check_interleaving(10_000)


def check_interleaving(calls: int) -> None:
    def make() -> Any:
        total = Tensor([0]).contiguous().realize()

        def step(x: Tensor) -> Tensor:
            total.assign(total * 3 + x)
            return total + 0

        return jit(step)

    wrong: list[int] = []

    def work(number: int) -> None:
        captured, wanted = make(), 0
        for call in range(calls):
            wanted = (wanted * 3 + number + call) % (1 << 32)
            found = captured(Tensor([number + call], dtype="int32").realize()).item()
            if (found - wanted) % (1 << 32):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
