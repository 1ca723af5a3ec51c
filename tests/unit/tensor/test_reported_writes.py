"""Small programs that write in place, each run on a NumPy array and on a tensor.

They are of the kinds that users of lazy engines report: overlapping reads and writes, chains of
views, readers that were built before a write, one element at two places.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tilework import Tensor

Program = Callable[[Any], Any]


def shift_right(x: Any) -> Any:
    x[1:] = x[:-1]


def shift_left(x: Any) -> Any:
    x[:-1] = x[1:]


def mirror(x: Any) -> Any:
    x[:] = x[::-1]


def mirror_halves(x: Any) -> Any:
    x[:3], x[3:] = x[5:2:-1] + 0, x[2::-1] + 0


def add_neighbour(x: Any) -> Any:
    x[1:] += x[:-1]


def running_sum(x: Any) -> Any:
    for place in range(1, 6):
        x[place] += x[place - 1]


def swap_elements(x: Any) -> Any:
    x[[0, 5]] = x[[5, 0]]


def every_other(x: Any) -> Any:
    x[::2] = 7
    x[1::2] -= 1


def from_behind(x: Any) -> Any:
    x[-1:-4:-2] = 9


def view_of_views(x: Any) -> Any:
    part = x[1:][::-1][1:]
    part[0] = 50
    part[-1] += part[0]


def write_and_read_views(x: Any) -> Any:
    low, high = x[:3], x[3:]
    high += low
    low *= 2
    return low + high


def reader_before_write(x: Any) -> Any:
    before = x * 1
    x[2] = 100
    x += 1
    return before


def two_readers(x: Any) -> Any:
    first = x[1:] + x[:-1]
    x[0] = -5
    second = x[1:] + x[:-1]
    return first * second


def dictionary_of_parts(x: Any) -> Any:
    parts = {name: x[2 * name : 2 * name + 2] for name in range(3)}
    parts[1][:] = parts[0] + parts[2]
    parts[0][1] = parts[1][0] * 2


def scaled_in_steps(x: Any) -> Any:
    for step in range(4):
        x *= 2
        x[step] = step


def masked(x: Any) -> Any:
    x[x > 2] = 0
    x[x == 1] = x[x == 1] + 10


def masked_by_values(x: Any) -> Any:
    x[x > 2] = x[x > 2] * -1


def repeated_index(x: Any) -> Any:
    x[[1, 1, 1]] += 1


def empty_writes(x: Any) -> Any:
    x[3:3] = 5
    x[[]] = 7
    x[6:] += 1


def ellipsis(x: Any) -> Any:
    x[...] = x[...] + 1
    x[..., 2] = 9


def new_axis(x: Any) -> Any:
    x[None, 1:3] = x[None, 3:5]


def copy_is_apart(x: Any) -> Any:
    y = x[:] + 0
    y[0] = 99
    x[1] = y[0]
    return y


def swap_names(x: Any) -> Any:
    a, b = x[:2] + 0, x[2:4] + 0
    a, b = b, a
    x[:2], x[2:4] = a, b


def fibonacci(x: Any) -> Any:
    x[0], x[1] = 1, 1
    for place in range(2, 6):
        x[place] = x[place - 1] + x[place - 2]


def sieve(x: Any) -> Any:
    x[:] = 1
    for step in (2, 3):
        x[step * 2 :: step] = 0
        x[:2] = 0


LINES: list[Program] = [
    shift_right, shift_left, mirror, mirror_halves, add_neighbour, running_sum, swap_elements,
    every_other, from_behind, view_of_views, write_and_read_views, reader_before_write, two_readers,
    dictionary_of_parts, scaled_in_steps, masked, masked_by_values, repeated_index, empty_writes,
    ellipsis, new_axis, copy_is_apart, swap_names, fibonacci, sieve,
]  # fmt: skip


def transpose_onto_itself(x: Any) -> Any:
    x[:] = x.T


def rows_swapped(x: Any) -> Any:
    x[[0, 2]] = x[[2, 0]]


def column_from_row(x: Any) -> Any:
    x[:, 1] = x[1]


def corners(x: Any) -> Any:
    x[::2, ::2] = -x[::2, ::2]


def flipped_block(x: Any) -> Any:
    block = x[::-1, 1:][1:]
    block[:, 0] = 5
    block[0] += block[1]


def outer_places(x: Any) -> Any:
    x[[0, 1], [1, 2]] = 8
    x[[[0], [2]], [0, 1]] = 6


def mixed_index(x: Any) -> Any:
    x[1:, [2, 0]] = x[:2, [0, 2]]


def bool_rows(x: Any) -> Any:
    x[np.array([True, False, True])] = 4


def bool_and_slice(x: Any) -> Any:
    x[np.array([True, False, True]), 1:] += 1


def diagonal_by_index(x: Any) -> Any:
    x[[0, 1, 2], [0, 1, 2]] *= 10


def broadcast_row(x: Any) -> Any:
    x[:] = x[1]


def broadcast_column(x: Any) -> Any:
    x[:] = x[:, 2:3] + 0


def accumulate_rows(x: Any) -> Any:
    for row in range(1, 3):
        x[row] += x[row - 1]


def pascal(x: Any) -> Any:
    x[0, :], x[:, 0] = 1, 1
    for row in range(1, 3):
        for column in range(1, 3):
            x[row, column] = x[row - 1, column] + x[row, column - 1]


SQUARES: list[Program] = [
    transpose_onto_itself, rows_swapped, column_from_row, corners, flipped_block, outer_places,
    mixed_index, bool_rows, bool_and_slice, diagonal_by_index, broadcast_row, broadcast_column,
    accumulate_rows, pascal,
]  # fmt: skip


def agrees(program: Program, values: np.ndarray[Any, Any], is_lazy: bool) -> None:
    array, x = values.copy(), Tensor(values.copy())
    x = x * 1 if is_lazy else x.realize()
    want, found = program(array), program(x)
    np.testing.assert_array_equal(x.numpy(), array)
    if want is not None:
        np.testing.assert_array_equal(found.numpy(), want)


@pytest.mark.parametrize("is_lazy", [False, True], ids=["in memory", "lazy"])
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
@pytest.mark.parametrize("program", LINES, ids=lambda program: program.__name__)
def test_a_program_over_a_row_writes_what_numpy_writes(
    program: Program, dtype: Any, is_lazy: bool
) -> None:
    agrees(program, np.arange(6).astype(dtype), is_lazy)


@pytest.mark.parametrize("is_lazy", [False, True], ids=["in memory", "lazy"])
@pytest.mark.parametrize("program", SQUARES, ids=lambda program: program.__name__)
def test_a_program_over_a_square_writes_what_numpy_writes(program: Program, is_lazy: bool) -> None:
    agrees(program, np.arange(9).reshape(3, 3).astype(np.float32), is_lazy)


@pytest.mark.parametrize("program", SQUARES, ids=lambda program: program.__name__)
def test_a_program_writes_through_a_flipped_and_exchanged_view(program: Program) -> None:
    values = np.arange(16).reshape(4, 4).astype(np.float32)
    array, x = values.copy(), Tensor(values.copy()).realize()
    program(array.T[::-1, 1:][:3])
    program(x.T[::-1, 1:][:3])
    np.testing.assert_array_equal(x.numpy(), array)


INDICES: list[Any] = [
    (np.array([0, 2]), slice(None), np.array([1, 3])),
    (slice(1, 3), np.array([[0, 1], [2, 3]])),
    (Ellipsis, np.array([0, -1])),
    (None, np.array([1]), 0),
    (np.array([True, False, True, True]),),
    (slice(None), np.array([True, False, True, True, False]), slice(1, 4)),
    (0, np.array([1, 2]), slice(None)),
    (np.array([1, 2]), None, slice(None), np.array([0, 1])),
    (np.array(1),),
    (slice(None, None, 2), -1),
    (True,),
    (False,),
    (np.array([], np.int64),),
    (slice(None), np.array([[1]]), np.array([0, 1, 2])),
    (np.array([-1, 0], np.int8), slice(2)),
    (np.array([3, 1], np.uint8),),
]


def torch_index(index: Any) -> Any:
    return tuple(torch.tensor(i) if isinstance(i, np.ndarray) else i for i in index)


def own_index(index: Any) -> Any:
    return tuple(Tensor(i) if isinstance(i, np.ndarray) else i for i in index)


def plain_index(index: Any) -> Any:
    wide = [i.astype(np.int64) if getattr(i, "dtype", None) == np.int8 else i for i in index]
    return tuple(i.astype(np.int64) if getattr(i, "dtype", None) == np.uint8 else i for i in wide)


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_an_index_reads_and_writes_what_pytorchs_does(index: Any) -> None:
    values = np.random.default_rng(0).standard_normal((4, 5, 6)).astype(np.float32)
    theirs = torch.tensor(values)
    wanted = torch_index(plain_index(index))
    for own in (own_index(index), index):
        np.testing.assert_array_equal(Tensor(values)[own].numpy(), theirs[wanted].numpy())
        x, y = Tensor(values), theirs.clone()
        x[own] = x[own] * 2 + 1
        y[wanted] = y[wanted] * 2 + 1
        np.testing.assert_array_equal(x.numpy(), y.numpy())
        x[own] = 7.0
        y[wanted] = 7.0
        np.testing.assert_array_equal(x.numpy(), y.numpy())


@pytest.mark.parametrize(("length", "size", "step"), [(7, 2, 2), (7, 2, 3), (9, 3, 3), (8, 1, 4)])
def test_windows_that_do_not_overlap_can_be_written_to(length: int, size: int, step: int) -> None:
    array = np.arange(2.0 * length, dtype=np.float32).reshape(2, length)
    own, theirs = Tensor(array).clone(), torch.tensor(array)
    own.unfold(1, size, step)[:, 0] = -1.0
    theirs.unfold(1, size, step)[:, 0] = -1.0
    np.testing.assert_array_equal(own.numpy(), theirs.numpy())
