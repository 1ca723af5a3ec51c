"""Pruning of captures: what nobody reads is left out, what somebody can see never is."""

from random import Random
from typing import Any

import numpy as np
import pytest

from tilework import Tensor, jit
from tilework.base.errors import BoundsError
from tilework.engine.prune import _Needed, live_steps
from tilework.engine.steps import PoisonCall


def steps_of(step: Any) -> int:
    captured = step.captured
    assert captured is not None
    return sum(not isinstance(each, PoisonCall) for each in captured.recipe.program.steps)


def sample() -> Tensor:
    return Tensor(np.arange(6, dtype=np.float32)).realize()


def test_EXE_26_a_value_that_is_dropped_is_not_computed_again() -> None:
    def body(x: Tensor) -> Tensor:
        first = (x * 3).realize()
        (first + 1).realize()
        return x + 2

    step = jit(body)
    for _ in range(3):
        found = step(sample())
    assert found.tolist() == [2, 3, 4, 5, 6, 7]
    assert steps_of(step) == 1
    assert step.captured is not None
    assert step.captured.recipe.program.arenas == ()


def test_EXE_26_what_a_kept_call_reads_is_kept() -> None:
    def body(x: Tensor) -> Tensor:
        first = (x * 3).realize()
        (first * first).realize()
        return (first + 1).realize() * 2

    step = jit(body)
    assert [step(sample()).tolist() for _ in range(3)] == [[2, 8, 14, 20, 26, 32]] * 3
    assert steps_of(step) == 3


def test_EXE_26_a_write_in_place_is_kept() -> None:
    total = Tensor(np.zeros(6, np.float32)).realize()

    def body(x: Tensor) -> Tensor:
        total[2:4] = x[2:4] * 2
        x.assign(x + 1)
        return total.sum() * 0

    step = jit(body)
    x = sample()
    for _ in range(3):
        step(x)
    assert (x.tolist(), total.tolist()) == ([3, 4, 5, 6, 7, 8], [0, 0, 8, 10, 0, 0])


def test_EXE_26_a_check_of_an_index_is_kept() -> None:
    table = sample()

    def body(x: Tensor, places: Tensor) -> Tensor:
        table[places].realize()
        return x * 2

    step = jit(body)
    good = Tensor(np.array([0, 5], np.int32)).realize()
    bad = Tensor(np.array([0, 6], np.int32)).realize()
    for _ in range(3):
        step(sample(), good)
    with pytest.raises(BoundsError):
        step(sample(), bad)


def random_program(random: Random, count: int) -> list[tuple[str, int, int, int]]:
    kinds = ["value", "value", "value", "drop", "assign", "part", "argument"]
    return [
        (random.choice(kinds), random.randrange(8), random.randrange(8), random.randint(-2, 2))
        for _ in range(count)
    ]


def run_tensors(program: list[Any], states: list[Tensor], x: Tensor) -> Tensor:
    values: list[Tensor] = [x * 1]
    for kind, first, second, factor in program:
        a, b = values[first % len(values)], values[second % len(values)]
        state = states[second % len(states)]
        if kind == "value":
            values.append((a * factor + b).realize())
        elif kind == "drop":
            (a * b + factor).realize().sum().realize()
        elif kind == "assign":
            state.assign(a * factor)
        elif kind == "part":
            state[1:4] = a[1:4] + factor
        else:
            x.assign(x + b * factor)
    return values[-1] + 1


def run_arrays(program: list[Any], states: list[Any], x: Any) -> Any:
    values = [x * 1]
    for kind, first, second, factor in program:
        a, b = values[first % len(values)], values[second % len(values)]
        state = states[second % len(states)]
        if kind == "value":
            values.append(a * factor + b)
        elif kind == "assign":
            state[:] = a * factor
        elif kind == "part":
            state[1:4] = a[1:4] + factor
        elif kind == "argument":
            x += b * factor
    return values[-1] + 1


def check(seed: int) -> None:
    """Run a random program captured and in NumPy."""
    random = Random(seed)
    program = random_program(random, random.randrange(1, 10))
    arrays = [np.array([random.randint(-9, 9) for _ in range(6)], np.int32) for _ in range(2)]
    states = [Tensor(array).realize() for array in arrays]
    step = jit(lambda x: run_tensors(program, states, x))
    for _ in range(4):
        given = np.array([random.randint(-9, 9) for _ in range(6)], np.int32)
        x = Tensor(given).realize()
        found = step(x)
        with np.errstate(over="ignore"):
            wanted = run_arrays(program, arrays, given)
        np.testing.assert_array_equal(found.numpy(), wanted, err_msg=f"{seed}: {program}")
        np.testing.assert_array_equal(x.numpy(), given, err_msg=f"{seed}: {program}")
        for state, array in zip(states, arrays, strict=True):
            np.testing.assert_array_equal(state.numpy(), array, err_msg=f"{seed}: {program}")


def test_EXE_26_random_programs_keep_every_effect() -> None:
    for seed in range(40):
        check(seed)


@pytest.mark.slow
def test_EXE_26_a_thousand_random_programs_keep_every_effect() -> None:
    for seed in range(40, 1040):
        check(seed)


@pytest.mark.parametrize("seed", range(20))
def test_ranges_of_bytes_are_joined_as_a_set_of_bytes_is(seed: int) -> None:
    random = Random(seed)
    needed, model = _Needed(), set[int]()
    for _ in range(40):
        start = random.randrange(60)
        stop = start + random.randrange(1, 9)
        assert needed.overlaps(start, stop) == bool(model & set(range(start, stop)))
        if random.random() < 0.5:
            needed.add(start, stop)
            model |= set(range(start, stop))


def test_of_no_steps_none_is_live() -> None:
    assert live_steps([], []) == []
