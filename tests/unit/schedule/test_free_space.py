"""Free space of arenas: judged block by block by a model, and by the steps that it takes."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilework.base.errors import InternalError
from tilework.schedule.free_space import BLOCK, FreeSpace, OrderedIntegers


class Model:
    """One byte for each block, 1 where it is taken; knows nothing of free parts."""

    def __init__(self) -> None:
        self.blocks = bytearray()

    def take(self, start: int, count: int) -> None:
        end = start + count
        if end > len(self.blocks):
            self.blocks.extend(bytes(end - len(self.blocks)))
        assert not any(self.blocks[start:end]), "two parts overlap"
        self.blocks[start:end] = b"\1" * count

    def give_back(self, start: int, count: int) -> None:
        self.blocks[start : start + count] = bytes(count)


def exercise(operations: int, seed: int, most: int) -> None:
    """Random takes and gives, up to `most` parts at once; ends with everything merged."""
    choose = random.Random(seed)
    below, roll = choose.randrange, choose.random
    space, model = FreeSpace(), Model()
    taken: list[tuple[int, int]] = []
    for _ in range(operations):
        if taken and (len(taken) >= most or roll() < 0.5):
            place = below(len(taken))
            taken[place], taken[-1] = taken[-1], taken[place]
            start, size = taken.pop()
            space.give_back(start, size)
            model.give_back(start // BLOCK, -(-size // BLOCK))
        else:
            size = 1 + below(BLOCK * (64 if roll() < 0.1 else 6))
            start = space.take(size)
            assert not start % BLOCK
            model.take(start // BLOCK, -(-size // BLOCK))
            taken.append((start, size))
    assert space.size_bytes == len(model.blocks) * BLOCK
    for start, size in taken:
        space.give_back(start, size)
    whole = space.size_bytes
    assert space.take(whole) == 0, "free neighbours were not merged"
    assert space.size_bytes == whole


@pytest.mark.parametrize(("seed", "most"), [(1, 8), (2, 100), (3, 3000)])
def test_MPL_14_parts_never_overlap_and_all_merge_in_the_end(seed: int, most: int) -> None:
    exercise(30_000, seed, most)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_MPL_14_ten_million_operations_keep_parts_apart(seed: int) -> None:
    exercise(1_000_000, seed, 10 ** (1 + seed % 4))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_MPL_14_the_smallest_part_that_fits_is_taken_and_of_several_the_first(
    sizes: list[int], choose: random.Random
) -> None:
    space = FreeSpace()
    taken = {space.take(size * BLOCK): size for size in sizes}
    for start in choose.sample(sorted(taken), len(taken) // 2):
        space.give_back(start, taken.pop(start) * BLOCK)
    model = bytearray(space.size_bytes // BLOCK)
    for start, size in taken.items():
        model[start // BLOCK : start // BLOCK + size] = b"\1" * size
    free = [len(part) for part in bytes(model).split(b"\1")]
    wanted = choose.randrange(1, 60)
    fitting = [length for length in free if length >= wanted]
    start = space.take(wanted * BLOCK) // BLOCK
    if fitting:
        found = bytes(model[start:]).split(b"\1")[0]
        assert len(found) == min(fitting)
        assert start == 0 or model[start - 1]
        first = b"\1" + bytes(model) + b"\1"
        assert first.index(b"\1" + bytes(min(fitting)) + b"\1") == start


@pytest.mark.parametrize("wrong", [(0, 512), (256, 256), (128, 256), (-256, 256)])
def test_MPL_14_giving_back_what_was_not_taken_is_refused(wrong: tuple[int, int]) -> None:
    space = FreeSpace()
    space.take(256)
    with pytest.raises(InternalError, match="given back that were not taken"):
        space.give_back(*wrong)
    space.give_back(0, 256)  # nothing was changed


def test_MPL_14_giving_back_twice_is_refused() -> None:
    space = FreeSpace()
    start = space.take(256)
    space.give_back(start, 256)
    with pytest.raises(InternalError, match="given back that were not taken"):
        space.give_back(start, 256)


def lines_of(action: Callable[..., Any], *arguments: int) -> tuple[Any, int]:
    """What a function returns, and how many lines of Python it executes."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        result = action(*arguments)
    finally:
        sys.settrace(before)
    return result, count


def most_lines(parts: int) -> int:
    """The most lines of one operation while about `parts` parts are free."""
    choose = random.Random(parts)
    space = FreeSpace()
    taken = [(space.take(size * BLOCK), size * BLOCK) for size in range(1, 2 * parts + 1)]
    for row in taken[::2]:
        space.give_back(*row)
    kept = taken[1::2]
    most = 0
    for _ in range(200):
        size = choose.randrange(1, 4 * parts) * BLOCK
        start, lines = lines_of(space.take, size)
        kept.append((start, size))
        _, more = lines_of(space.give_back, *kept.pop(choose.randrange(len(kept))))
        most = max(most, lines, more)
    return most


def test_MPL_14_an_operation_takes_a_bounded_number_of_steps_however_many_parts_are_free() -> None:
    bound = 170  # at most five visits of sets of four levels, of about eight lines each
    assert most_lines(10) <= bound
    assert most_lines(3000) <= bound


@given(st.lists(st.integers(0, (1 << 40) - 1), max_size=30), st.lists(st.integers(0, 1 << 40)))
def test_ordered_integers_are_a_sorted_set(numbers: list[int], asked: list[int]) -> None:
    found = OrderedIntegers()
    for number in numbers:
        found.add(number)
    kept = sorted(set(numbers))
    for number in kept[::3]:
        found.remove(number)
    left = [number for place, number in enumerate(kept) if place % 3]
    assert bool(found) == bool(left)
    for number in [*asked, *kept, *[number + 1 for number in kept]]:
        if number < 1 << 40:
            assert found.next(number) == min((n for n in left if n >= number), default=None)
