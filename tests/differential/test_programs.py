"""Whole programs of views, folds, sorts and writes give what NumPy gives, to the last bit.

Found faults go into tests of their own; these look for more.
"""

from __future__ import annotations

import random

import pytest
from tests.differential.programs.run import Program, fault_of, fault_of_captured
from tests.differential.programs.steps import STEPS

NAMES = ["started", "realized", "realized", "forgotten", *STEPS]


def a_program(number: int) -> tuple[tuple[int, ...], Program]:
    """The numbers that inputs are drawn from, and 5 to 40 steps."""
    draw = random.Random(number)

    def row() -> tuple[int, ...]:
        return tuple(draw.randrange(1000) for _ in range(7))

    return row(), [(draw.choice(NAMES), row()) for _ in range(draw.randrange(5, 41))]


def faults(first: int, count: int, captured: bool, device: str = "CPU") -> list[str]:
    found = []
    for number in range(first, first + count):
        row, program = a_program(number)
        fault = fault_of_captured(row, program) if captured else fault_of(row, program, device)
        if fault:
            found.append(f"program {number}: {fault[:500]}")
    return found


@pytest.mark.parametrize("hand", range(4))
def test_programs_give_what_numpy_gives(hand: int) -> None:
    assert faults(100 * hand, 15, captured=False) == []


def test_programs_that_are_captured_give_what_they_give_at_once() -> None:
    assert faults(1000, 8, captured=True) == []


def test_programs_give_the_same_on_the_interpreter() -> None:
    assert faults(2000, 4, captured=False, device="PYTHON") == []


@pytest.mark.slow
@pytest.mark.parametrize("hand", range(8))
def test_many_programs_give_what_numpy_gives(hand: int) -> None:
    assert faults(10_000 + 1000 * hand, 250, captured=False) == []


@pytest.mark.slow
@pytest.mark.parametrize("hand", range(4))
def test_many_captured_programs_give_what_they_give_at_once(hand: int) -> None:
    assert faults(20_000 + 1000 * hand, 40, captured=True) == []
