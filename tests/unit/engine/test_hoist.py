"""Steps of a captured program that depend on constants alone run once, till those change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilework import Tensor, jit
from tilework.base import settings
from tilework.dtypes import float32
from tilework.engine.hoist import constant_steps
from tilework.engine.steps import KernelCall, Operand, PlannedCall, PoisonCall
from tilework.ir.build import const_index
from tilework.ir.node import Node
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.tensor.jit import Jit

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def weights() -> Tensor:
    return Tensor(np.array([1.0, -2.0, 4.0], np.float32)).realize()


def steps_of(function: Jit[Any, Any]) -> int:
    """How many kernels a replay launches."""
    assert function.captured is not None
    return sum(isinstance(step, KernelCall) for step in function.captured.recipe.program.steps)


def warmed(function: Callable[..., Tensor], *args: Tensor) -> Jit[Any, Any]:
    made = jit(function)
    for _ in range(3):
        made(*args)
    return made


def test_what_depends_on_constants_alone_runs_once() -> None:
    w = weights()

    def scaled(x: Tensor) -> Tensor:
        return (x * (w.exp() + 1).contiguous()).realize()

    x = Tensor(X).realize()
    function = warmed(scaled, x)
    assert steps_of(function) == 1
    np.testing.assert_array_equal(function(x).numpy(), scaled(x).numpy())
    with settings.override(prepack=False):
        assert steps_of(warmed(scaled, x)) == 2


def test_what_depends_on_such_a_result_runs_once_too() -> None:
    w = weights()

    def scaled(x: Tensor) -> Tensor:
        return (x * (w.exp().contiguous() + w).contiguous()).realize()

    assert steps_of(warmed(scaled, Tensor(X).realize())) == 1


@pytest.mark.parametrize("how", ["assign", "setitem", "in place"])
def test_constants_that_are_written_are_followed(how: str) -> None:
    w = weights()
    x = Tensor(X).realize()
    function = warmed(lambda x: (x * (w.exp() + 1).contiguous()).realize(), x)
    if how == "assign":
        w.assign(w * 2).realize()
    elif how == "setitem":
        w[1] = 7.0
        w.realize()
    else:
        w += 3
        w.realize()
    for _ in range(2):
        np.testing.assert_array_equal(function(x).numpy(), (x * (w.exp() + 1).contiguous()).numpy())


def test_a_state_that_the_function_writes_is_no_constant() -> None:
    w = weights()

    def step(x: Tensor) -> Tensor:
        found = (x * (w.exp() + 1).contiguous()).realize()
        w.assign(w * 0.5).realize()
        return found

    function, state = warmed(step, Tensor(X).realize()), w.numpy().copy()
    found = function(Tensor(X).realize()).numpy()
    np.testing.assert_allclose(found, X * (np.exp(state) + 1), rtol=1e-6)


@pytest.mark.parametrize(("rows", "kernels"), [(64, 1), (1 << 17, 2)])
def test_what_is_much_larger_than_the_constants_is_made_each_time(rows: int, kernels: int) -> None:
    w = weights()
    x = Tensor(np.ones((rows, 3), np.float32)).realize()
    function = warmed(lambda x: (x * w.exp().expand(rows, 3).contiguous()).realize(), x)
    assert steps_of(function) == kernels


def test_a_part_that_is_written_is_not_taken_for_the_whole() -> None:
    w, x = weights(), Tensor(X).realize()

    def padded(x: Tensor) -> Tensor:
        both = Tensor.zeros(2, 3).contiguous()
        both[0] = w.exp()
        return (both + x).realize()

    function = warmed(padded, x)
    np.testing.assert_array_equal(function(x).numpy(), padded(x).numpy())


@given(st.data())
def test_random_programs_give_the_bits_of_those_that_hoist_nothing(data: st.DataObject) -> None:
    """Constants and arguments meet in steps of their own, whose memory is used again and again."""
    held = [Tensor(np.arange(4, dtype=np.float32) + number).realize() for number in range(2)]
    choices = data.draw(
        st.lists(
            st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans()), min_size=2, max_size=9
        )
    )

    def program(x: Tensor) -> Tensor:
        known = [*held, x]
        for first, second, stored in choices:
            value = known[first % len(known)] * 0.5 + known[second % len(known)]
            known.append(value.contiguous() if stored else value)
        return (known[-1] + x).realize()

    arguments = [Tensor(np.full(4, number, np.float32)).realize() for number in (1, 2, 3, 4)]
    wanted = [program(x).numpy() for x in arguments]
    function = jit(program)
    for x, each in zip(arguments, wanted, strict=True):
        np.testing.assert_array_equal(function(x).numpy(), each)
    held[0].assign(held[0] + 1).realize()
    np.testing.assert_array_equal(function(arguments[0]).numpy(), program(arguments[0]).numpy())


# --- which steps


def copy_kernel(size: int) -> Node:
    """Argument 1 is copied to argument 0."""
    place = RANGE(const_index(size), attrs=RangeAttrs(0))
    target, source = (PARAM(attrs=ParamAttrs(slot, (size,), float32)) for slot in range(2))
    return SINK(STORE(INDEX(target, place), LOAD(INDEX(source, place))))


def copies(*rows: tuple[tuple[int, int, int], tuple[int, int, int]]) -> list[PlannedCall]:
    """Copies of 4 floats each: (target, source), as (slot, offset, bytes)."""
    return [
        PlannedCall("CPU", copy_kernel(4), (Operand(*target), Operand(*source)))
        for target, source in rows
    ]


CONSTANT, ARGUMENT, OUTPUT, ARENA = (0, 0, 16), (1, 0, 16), (2, 0, 16), (3, 0, 16)
SHIFTED, WIDE = (3, 8, 16), (3, 0, 32)


def hoisted(steps: list[Any]) -> set[int]:
    return set(constant_steps(steps, frozenset({0}), range(3, 4)).results)


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        ([(ARENA, CONSTANT), (OUTPUT, ARENA)], {0}),
        ([(ARENA, ARGUMENT), (OUTPUT, ARENA)], set()),
        ([(OUTPUT, CONSTANT)], set()),
        ([(ARENA, CONSTANT), (OUTPUT, SHIFTED)], set()),
        ([(ARENA, CONSTANT), (SHIFTED, ARGUMENT), (OUTPUT, ARENA)], set()),
        ([(ARENA, CONSTANT), (SHIFTED, ARGUMENT), (OUTPUT, SHIFTED)], set()),
        ([(ARENA, CONSTANT), (OUTPUT, ARENA), (SHIFTED, ARGUMENT), (OUTPUT, SHIFTED)], {0}),
        ([(ARENA, CONSTANT), (OUTPUT, ARENA), (ARENA, CONSTANT), (OUTPUT, ARENA)], {0, 2}),
        ([(ARENA, CONSTANT), (OUTPUT, ARENA), (ARENA, ARGUMENT), (OUTPUT, ARENA)], {0}),
    ],
    ids=[
        "read", "of an argument", "a result", "a part is read", "overwritten before it is read",
        "overwritten and not read", "overwritten in part later", "twice", "memory used again",
    ],
)  # fmt: skip
def test_steps_are_taken_where_all_who_read_them_are_known(
    rows: list[Any], wanted: set[int]
) -> None:
    assert hoisted(list(copies(*rows))) == wanted


def test_poison_is_a_write() -> None:
    first, last = copies((ARENA, CONSTANT), (OUTPUT, ARENA))
    poison = PoisonCall("CPU", Operand(*ARENA))
    assert hoisted([first, last, poison]) == {0}
    assert hoisted([first, poison, last]) == set()
