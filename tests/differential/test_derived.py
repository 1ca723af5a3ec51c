"""Gradients of whole programs, and gradients of those, are PyTorch's."""

from __future__ import annotations

import pytest
from tests.differential.programs.derived import Step, a_program, fault_of

#: Programs whose gradients were wrong, or did not compile.
ONCE_WRONG: dict[str, tuple[list[tuple[int, ...]], list[Step]]] = {
    "a fold over what another store of its phase runs over": (
        [(2, 5), (4, 3), (2,), (2, 2, 3)],
        [
            ("half detached", (639, 200, 498, 65, 795)), ("cumprod", (522, 227, 924, 404, 354)),
            ("scatter", (332, 73, 431, 519, 848)), ("times the least", (254, 676, 400, 38, 807)),
            ("prod", (924, 767, 705, 238, 782)),
        ],
    ),
    "checks of indices over what a fold of a joined kernel runs over": (
        [(4, 4), (1, 3), (4,)],
        [
            ("tanh", (382, 273, 141, 190, 887)), ("logsumexp", (346, 514, 474, 919, 619)),
            ("scatter", (342, 567, 958, 631, 716)), ("logsumexp", (745, 388, 173, 720, 968)),
            ("log_softmax", (974, 742, 432, 160, 172)),
        ],
    ),
    "logcumsumexp of equals": ([(5, 5), (3,)], [("logcumsumexp", (0, 0, 0, 0, 0))]),
    "logaddexp of equals": ([(4, 5)], [("logaddexp", (0, 0, 0, 0, 0))]),
    "hypot of equals": ([(4, 5)], [("hypot", (0, 0, 0, 0, 0))]),
}  # fmt: skip


def faults(first: int, count: int, is_captured: bool) -> list[str]:
    numbers = range(first, first + count)
    found = [(number, fault_of(number, *a_program(number), is_captured)) for number in numbers]
    return [f"program {number}: {fault[:500]}" for number, fault in found if fault]


@pytest.mark.parametrize("name", ONCE_WRONG)
def test_gradients_that_were_wrong_once_are_right(name: str) -> None:
    shapes, steps = ONCE_WRONG[name]
    is_tied = "equals" in name
    assert fault_of(100_029, shapes, steps, is_tied=is_tied) == ""


@pytest.mark.parametrize("hand", range(2))
def test_gradients_of_programs_and_of_those_are_those_of_pytorch(hand: int) -> None:
    assert faults(1000 * hand, 6, is_captured=False) == []


def test_gradients_that_are_captured_are_those_of_pytorch() -> None:
    assert faults(5000, 3, is_captured=True) == []


@pytest.mark.slow
@pytest.mark.parametrize("hand", range(8))
def test_gradients_of_many_programs_are_those_of_pytorch(hand: int) -> None:
    assert faults(10_000 + 1000 * hand, 150, is_captured=False) == []


@pytest.mark.slow
@pytest.mark.parametrize("hand", range(4))
def test_gradients_of_many_captured_programs_are_those_of_pytorch(hand: int) -> None:
    assert faults(20_000 + 1000 * hand, 50, is_captured=True) == []
