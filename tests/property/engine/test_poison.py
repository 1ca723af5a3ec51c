"""Memory that holds nothing is poisoned: programs do not notice, and planted mistakes show."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilework import Tensor, jit
from tilework.base import settings
from tilework.engine import link
from tilework.engine.device import Device
from tilework.engine.steps import PoisonCall, operands_of
from tilework.schedule import cache, linear, memory_plan
from tilework.schedule.memory_plan import Lifetime

SIZE = 48


@pytest.fixture(autouse=True)
def poisoned() -> Iterator[None]:
    """Devices are opened anew, since memory is poisoned from the first block on."""
    Device.close_all()
    with settings.override(poison=True):
        yield
    Device.close_all()
    cache.clear()
    link.CACHE.clear()


def program(seed: int, given_rows: Sequence[Tensor]) -> list[Tensor]:
    """Products and sums in a chain, so that intermediates are stored and die at various times."""
    choose = random.Random(seed)
    values = list(given_rows)
    for _ in range(choose.randrange(3, 9)):
        one, other = choose.choice(values), choose.choice(values)
        kind = choose.randrange(4)
        if kind == 0:
            made = (one @ other) * 0.125
        elif kind == 1:
            made = one.softmax(-1) + other
        elif kind == 2:
            made = (one - one.mean(0, keepdim=True)).contiguous()
        else:
            made = (one.permute(1, 0) @ other) * 0.125 - other
        if choose.random() < 0.3:
            made = made.realize()
        values.append(made)
    return values[-2:]


def rows(seed: int) -> list[Tensor]:
    choose = random.Random(seed)
    return [
        Tensor([[choose.gauss(0, 1) for _ in range(SIZE)] for _ in range(SIZE)]) for _ in range(3)
    ]


@given(st.integers(0, 1 << 32))
def test_MPL_11_random_programs_give_the_same_bits_while_dead_memory_is_filled(seed: int) -> None:
    with settings.override(poison=False):
        expected = [value.tolist() for value in program(seed, rows(seed))]
    assert [value.tolist() for value in program(seed, rows(seed))] == expected
    captured = jit(lambda *given_rows: program(seed, given_rows))
    for _ in range(4):
        assert [value.tolist() for value in captured(*rows(seed))] == expected


def chain(value: Tensor) -> Tensor:
    """Three products: two intermediates, the first of which is read again by the last."""
    first = value @ value
    second = first @ value
    return second @ first


def test_MPL_11_what_is_read_after_its_planned_end_is_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    value = Tensor.eye(SIZE).realize()
    assert chain(value).tolist() == value.tolist()
    cache.clear()
    link.CACHE.clear()

    def too_short(lifetimes: Sequence[Lifetime]) -> memory_plan.Plan:
        # Each buffer keeps bytes of its own, so only the poison can show the mistake.
        return memory_plan.plan_memory([replace(life, first=0, last=99) for life in lifetimes])

    true = linear._dead_after

    def ends_early(
        count: int, lifetimes: Sequence[Lifetime], slots: Sequence[int], offsets: Sequence[int]
    ) -> tuple[tuple[tuple[int, int, int], ...], ...]:
        return true(count, [replace(life, last=life.first) for life in lifetimes], slots, offsets)

    monkeypatch.setattr(linear, "plan_memory", too_short)
    monkeypatch.setattr(linear, "_dead_after", ends_early)
    found = chain(value).tolist()
    assert all(number != number for row in found for number in row)


def test_MPL_11_every_byte_of_an_arena_is_poisoned_after_its_last_use_and_no_sooner() -> None:
    seen: list[link.LinkedSteps] = []
    made = link.LinkedSteps.__init__

    class Noted(link.LinkedSteps):
        def __init__(self, *args: object, **kwargs: object) -> None:
            made(self, *args, **kwargs)  # type: ignore[arg-type]
            seen.append(self)

    patch = pytest.MonkeyPatch()
    patch.setattr(link, "LinkedSteps", Noted)
    try:
        for seed in range(8):
            for value in program(seed, rows(seed)):
                value.realize()
    finally:
        patch.undo()
    poisoned_bytes = 0
    for linked in seen:
        last: dict[tuple[int, int], int] = {}
        filled: dict[tuple[int, int], int] = {}
        for number, step in enumerate(linked.steps):
            for operand in operands_of(step):
                if operand.slot not in linked.temporary:
                    continue
                for byte in range(operand.offset_bytes, operand.offset_bytes + operand.size_bytes):
                    place = (operand.slot, byte)
                    if isinstance(step, PoisonCall):
                        filled[place] = number
                        poisoned_bytes += 1
                    else:
                        last[place] = number
        assert all(filled[place] > number for place, number in last.items())
    assert poisoned_bytes > 0


def test_MPL_11_freed_memory_is_filled() -> None:
    device = Device["CPU"]
    buffer = device.allocate(256)
    device.copy_in(buffer, memoryview(bytes(256)))
    seen = buffer.as_memoryview()
    address = buffer.address
    del buffer
    assert bytes(seen) == bytes(256)  # the view keeps the memory
    del seen
    again = device.allocate(256)
    assert again.address == address
    assert bytes(again.as_memoryview()) == b"\xff" * 256


@pytest.mark.parametrize("device", ["CPU", "PYTHON"])
def test_MPL_11_between_two_replays_the_arena_of_a_captured_program_holds_poison_alone(
    device: str,
) -> None:
    value = Tensor.eye(SIZE, device=device).realize()
    captured = jit(chain)
    for _ in range(3):
        assert captured(value).tolist() == value.tolist()
    memory = [row for row in captured._kept[0].recipe.program._memory if row.size_bytes]
    assert memory
    for buffer in memory:
        assert set(bytes(buffer.as_memoryview())) == {0xFF}
