"""Budgets of compiling: Python calls and bytes from nothing to the first result.

Of programs that capture nothing, the calls of each operation too: they are made again by each step.
They are counted, since time is noisy.
"""

import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilework import Tensor
from tilework.base import settings
from tilework.engine import link
from tilework.engine.compile import clear_memory
from tilework.ir.node import sweep
from tilework.schedule import cache

Program = Callable[[], Any]
NUMBERS = np.arange(4, dtype=np.float32)


def forget() -> None:
    """Leave nothing in memory that an earlier program has compiled."""
    cache.clear()
    link.CACHE.clear()
    clear_memory()
    sweep(force=True)


def counted(program: Program) -> int:
    """How many Python functions a program runs."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        program()
    finally:
        sys.setprofile(before)
    return count


def calls(program: Program) -> int:
    """How many Python functions run until a program has its result, with nothing in memory."""
    forget()
    with settings.override(cache_dir=None, compile_workers=1):
        return counted(program)


def stack(count: int) -> Program:
    return lambda: Tensor.stack(*[Tensor(float(number)) for number in range(count)]).numpy()


def chain(count: int) -> Program:
    def run() -> Any:
        x = Tensor(NUMBERS)
        for _ in range(count // 2):
            x = (x + 1) * 0.5
        return x.numpy()

    return run


def inputs(count: int) -> list[Tensor]:
    return [Tensor(NUMBERS + number).realize() for number in range(count)]


def total(count: int) -> Program:
    tensors = inputs(count)

    def run() -> Any:
        x = tensors[0]
        for tensor in tensors[1:]:
            x = x + tensor
        return x.numpy()

    return run


def joined(count: int) -> Program:
    tensors = inputs(count)
    return lambda: tensors[0].cat(*tensors[1:]).numpy()


def test_a_sum_of_two_tensors_takes_few_thousand_calls() -> None:
    def add() -> Any:
        return (Tensor(NUMBERS) + Tensor(NUMBERS)).numpy()

    add()  # what happens once in a process
    assert 0 < calls(add) < 5_000


@pytest.mark.parametrize(
    ("program", "most"),
    [(stack, 1400), (chain, 320), (total, 400), (joined, 1600)],
    ids=["a stack of numbers", "a chain", "a wide sum", "joined tensors"],
)
def test_a_large_program_takes_so_many_calls_a_part(
    program: Callable[[int], Program], most: int
) -> None:
    program(40)()
    few, many = calls(program(120)), calls(program(480))
    assert 0 < many < 480 * most
    assert many <= 5 * few


@pytest.mark.parametrize(
    ("program", "most"),
    [(stack, 40_000), (chain, 5_000), (total, 8_000)],
    ids=["a stack of numbers", "a chain", "a wide sum"],
)
def test_a_large_program_takes_so_many_bytes_a_part(
    program: Callable[[int], Program], most: int
) -> None:
    program(40)()
    run = program(400)
    forget()
    tracemalloc.start()
    try:
        with settings.override(cache_dir=None, compile_workers=1):
            run()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0 < peak < 400 * most


def product() -> Program:
    x = Tensor.empty(8, 8)
    return lambda: x @ x


def views() -> Program:
    """Of a view, since each operator adds to what a tensor is seen through."""
    x = Tensor.empty(2, 3)
    for _ in range(20):
        x = x.permute(1, 0)
    return lambda: x.permute(1, 0)


def gradients() -> Program:
    """Of a loss behind ten layers, by their weights, which the program holds."""
    x, weights = Tensor.empty(8, 8), [Tensor.empty(8, 8) for _ in range(10)]
    for weight in weights:
        x = (x @ weight).relu()
    loss = x.sum()
    return lambda: loss.gradient(*weights)


def known_graph() -> Program:
    x = Tensor(NUMBERS, device="NULL").realize()
    return lambda: (x + x).realize()


@pytest.mark.parametrize(
    ("make", "most"),
    [(product, 155), (views, 30), (gradients, 4300), (known_graph, 212)],
    ids=["product", "view", "gradients", "realize"],
)
def test_an_operation_that_is_not_captured_takes_so_many_calls(
    make: Callable[[], Program], most: int
) -> None:
    program = make()
    # The first ones make what stays; a collection of garbage calls functions, too.
    assert min([counted(program) for _ in range(4)]) <= most
