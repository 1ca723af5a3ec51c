"""Memory that holds nothing is poisoned: programs do not notice, and planted mistakes show."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilework import Tensor, jit
from tilework.base import settings
from tilework.dtypes import float32, int16
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


CARDS = ("CPU", "CPU:1")


def program_of_parts(seed: int, given_rows: Sequence[Tensor]) -> list[Tensor]:
    """Values that are read as other dtypes, by the parts of devices, and by captured functions."""
    choose = random.Random(seed)
    inner = jit(lambda one, other: ((one @ other) * 0.125).contiguous() - one)
    values = [row.shard(CARDS, choose.choice((0, 1, None))) for row in given_rows]
    for number in range(choose.randrange(4, 8)):
        one, other = choose.choice(values), choose.choice(values)
        kind = number % 4
        if kind == 0:
            made = inner(one, other)
        elif kind == 1:
            halves = (one + other).contiguous().bitcast(int16).reshape(SIZE, SIZE, 2)
            made = halves.cast(float32).sum(-1) * 2.0**-15
        elif kind == 2:
            part = (one * 2 - other).contiguous().shards()[choose.randrange(2)]
            made = part.sum().shard(CARDS) * 0.01 + other
        else:
            made = (one - one.mean(0, keepdim=True)).contiguous() + other.flip(0)
        values.append(made)
    return values[-2:]


@pytest.mark.parametrize("seed", range(4))
def test_MPL_02_what_is_read_as_another_dtype_by_parts_or_by_an_inner_call_lives_on(
    seed: int,
) -> None:
    with settings.override(poison=False):
        expected = [value.tolist() for value in program_of_parts(seed, rows(seed))]
    assert [value.tolist() for value in program_of_parts(seed, rows(seed))] == expected
    captured = jit(lambda *given_rows: program_of_parts(seed, given_rows))
    for _ in range(3):
        assert [value.tolist() for value in captured(*rows(seed))] == expected


def test_MPL_02_a_life_that_is_one_reader_too_short_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each in turn; memory is not shared, so that nothing but the poison can show it."""
    true, lives, cut = linear._dead_after, list[Lifetime](), [-1]

    def alone(lifetimes: Sequence[Lifetime]) -> memory_plan.Plan:
        return memory_plan.plan_memory([replace(life, first=0, last=99) for life in lifetimes])

    def one_shorter(
        count: int, lifetimes: Sequence[Lifetime], slots: Sequence[int], offsets: Sequence[int]
    ) -> tuple[tuple[tuple[int, int, int], ...], ...]:
        lives[:] = lifetimes
        shorter = [
            replace(life, last=life.last - 1) if number == cut[0] else life
            for number, life in enumerate(lifetimes)
        ]
        return true(count, shorter, slots, offsets)

    def results() -> list[Any]:
        cache.clear()
        link.CACHE.clear()
        made = program_of_parts(1, given_rows)
        Tensor.realize(*made)
        return [value.tolist() for value in made]

    given_rows = [row.realize() for row in rows(1)]
    monkeypatch.setattr(linear, "plan_memory", alone)
    monkeypatch.setattr(linear, "_dead_after", one_shorter)
    expected = results()
    assert results() == expected  # no NaN
    several = [number for number, life in enumerate(lives) if life.first < life.last]
    assert len(several) >= 4
    for number in several:
        cut[0] = number
        assert results() != expected, lives[number]


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
