"""Writes by index, through views of views, and by tables of positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tests.differential.reported.case import Array, Case, by_numpy, by_torch

_RANDOM = np.random.default_rng(3)
CUBE = _RANDOM.standard_normal((4, 5, 6)).astype(np.float32)
SQUARE = _RANDOM.standard_normal((5, 5)).astype(np.float32)
THIRDS = np.arange(20).reshape(4, 5) % 3 == 0
SEVENTHS = np.arange(120).reshape(4, 5, 6) % 7 == 0
ODD_ROWS = np.array([True, False, True, False])
ODD_COLUMNS = np.array([True, False, True, False, True])
_ALL = slice(None)
_BACK = slice(None, None, -1)

#: An index, and the number that is written there.
NUMBERS: dict[str, tuple[Any, float]] = {
    "every second, backwards": ((slice(None, None, -2),), 3.0),
    "columns backwards": ((_ALL, slice(4, 0, -2)), 2.0),
    "two lists around a slice": (([0, 2], _ALL, [1, 5]), 7.0),
    "lists that grow to each other": (([[0], [2]], [1, 3, 4]), 8.0),
    "one place three times": (([1, 1, 1],), 9.0),
    "a mask of two axes": ((THIRDS,), 5.0),
    "a mask and a number": ((ODD_ROWS, 2), 5.0),
    "a mask of the second axis": ((_ALL, ODD_COLUMNS), -1.0),
    "a new axis": ((None, 1), 4.0),
    "the last axis backwards": ((Ellipsis, slice(None, None, -3)), 6.0),
    "an array of negative places": ((np.array([-1, -4]), _BACK), 6.0),
    "an empty list": (([],), 6.0),
    "an empty slice": ((slice(3, 1),), 6.0),
    "a mask of nothing": ((np.zeros(4, bool),), 6.0),
}
#: An index, and the shape of the values that are written there.
VALUES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "all rows backwards": ((_BACK,), (4, 5, 6)),
    "two axes backwards": ((slice(3, 0, -2), _BACK), (2, 5, 6)),
    "a column that grows": ((_BACK, slice(0, 4, 3)), (2, 1)),
    "a mask of rows": ((THIRDS,), (7, 6)),
    "a mask, one row for all": ((THIRDS,), (6,)),
    "a mask of all axes": ((SEVENTHS,), (18,)),
    "lists around a slice": (([0, 2], _ALL, [1, 5]), (2, 5)),
    "lists side by side": ((_ALL, [0, 2], [1, 5]), (4, 2)),
    "a list behind a slice backwards": ((_BACK, [3, 1]), (4, 2, 6)),
    "a list of lists": (([[0, 1], [2, 3]], slice(1, 3)), (2, 2, 2, 6)),
    "a number and a list": ((1, [0, 3, 2]), (3, 6)),
    "a list, a number, a slice": (([0, 3], 1, slice(None, None, -2)), (2, 3)),
    "axes of one in front": ((slice(0, 2),), (1, 1, 2, 5, 6)),
    "a mask between slices": ((_ALL, ODD_COLUMNS, _BACK), (4, 3, 6)),
}


def _writer(index: Any) -> Callable[..., Any]:
    def write(x: Any, value: Any) -> Any:
        x[index] = value
        return x

    return write


def _constant_writer(index: Any, value: float) -> Callable[..., Any]:
    def write(x: Any) -> Any:
        x[index] = value
        return x

    return write


def by_index() -> list[Case]:
    """`x[index] = value` as NumPy writes it."""
    found = [
        by_numpy(name, [CUBE], _constant_writer(index, value))
        for name, (index, value) in NUMBERS.items()
    ]
    for name, (index, shape) in VALUES.items():
        values = _RANDOM.standard_normal(shape).astype(np.float32)
        found.append(by_numpy(f"values of {name}", [CUBE, values], _writer(index)))
    return found


# --- programs of writes ----------------------------------------------------------------------


def _view_of_a_view(x: Any) -> Any:
    middle = x[::-1][1:3]
    middle[0] = 5.0
    middle[:, ::2] += 1
    return x, x.sum(0)


def _flat_rows(x: Any) -> Any:
    x.reshape(20, 6)[3:9, 1] = 2.0
    x[0] *= 3
    return x


def _turned_around(x: Any) -> Any:
    columns = x[:, 1:4]
    lower = columns[1:]
    lower[:] = lower[::-1] * 2
    columns[0] -= lower[0]
    return x


def _exchanged(x: Any) -> Any:
    old = x * 1
    x[1] = x[2]
    x[2] = old[1]
    return x, old


def _all_backwards(x: Any) -> Any:
    x[...] = x[::-1]
    x += x[:, ::-1]
    return x


def _rows_into_rows(x: Any) -> Any:
    first, second = x[0], x[1]
    first += second
    second *= first
    x[2] = first - second
    return x


def _fewer_and_fewer(x: Any) -> Any:
    for start in range(4):
        x[start:] *= 1.5
    return x


def _running(x: Any) -> Any:
    for column in range(1, 5):
        x[:, column] = x[:, column - 1] * 0.5 + x[:, column]
    return x


def _view_made_before(x: Any) -> Any:
    row = x[2]
    x[2] = 0.0
    row += 1
    return x, row * 2


def _shifted(x: Any) -> Any:
    x[1:] = x[:-1]
    x[:-1] = x[1:]
    return x


def _shifted_and_flipped(x: Any) -> Any:
    x[:, :, 1:] = x[:, :, :-1]
    x[:, ::-1] = x
    return x


def _masks(x: Any) -> Any:
    x[x > 0] = 0.0
    x[x < -1] = -1.0
    x[x == 0] += 5
    return x


def _lists_added(x: Any) -> Any:
    x[[0, 1], [1, 2]] += 1
    x[[3, 3], [0, 0]] += 1
    return x


def _single_elements(x: Any) -> Any:
    x[1, 2, 3] = 7
    x[-1, -1, -1] = 8
    x[0][1][2] = 9
    return x


def _in_place_arithmetic(x: Any) -> Any:
    x //= 0.5
    x %= 0.7
    x **= 2
    return x


def _overlapping_parts(x: Any) -> Any:
    part = x[::2, ::-1]
    part[1:, :2] = part[:1, 2:4]
    part *= 2
    x[0] = part[1]
    return x


def _sums_between(x: Any) -> Any:
    first = x.sum()
    x[0] = first
    second = x.sum()
    x[1] = second - first
    return x


def _rows_permuted(x: Any) -> Any:
    x[[2, 0, 1]] = x[[0, 1, 2]]
    return x


def _columns_exchanged(x: Any) -> Any:
    x[:, [0, 2]] = x[:, [2, 0]]
    return x


def _across_axes(x: Any) -> Any:
    x[0, :] = x[:, 0, :][0:1]
    x[:, 0] = x[0, :4]
    return x


_PROGRAMS = (
    _view_of_a_view, _flat_rows, _turned_around, _exchanged, _all_backwards, _rows_into_rows,
    _fewer_and_fewer, _running, _view_made_before, _shifted, _shifted_and_flipped, _masks,
    _lists_added, _single_elements, _in_place_arithmetic, _overlapping_parts, _sums_between,
    _rows_permuted, _columns_exchanged, _across_axes,
)  # fmt: skip


def programs() -> list[Case]:
    """Several writes after each other, as NumPy does them."""
    return [
        by_numpy(program.__name__, [CUBE], program, relative=1e-4, absolute=1e-4)
        for program in _PROGRAMS
    ]


# --- tables of positions ---------------------------------------------------------------------


def _reducing(how: str, includes: bool) -> Callable[..., Any]:
    return lambda x, places, values: x.scatter_reduce(0, places, values, how, include_self=includes)


def _reductions() -> list[Case]:
    found = []
    for kind in (np.float32, np.int32, np.float16):
        bounds = {"relative": 2e-3, "absolute": 1e-3} if kind is np.float16 else {}
        base = (_RANDOM.standard_normal((5, 5)) * 4).astype(kind)
        values = (_RANDOM.standard_normal((3, 5)) * 4).astype(kind)
        places = _RANDOM.integers(0, 5, (3, 5))
        found += [
            by_torch(
                f"scatter_reduce {how} {includes} {kind.__name__}", [base, places, values],
                _reducing(how, includes), **bounds,
            )
            for how in ("sum", "prod", "mean", "amax", "amin")
            for includes in (True, False)
        ]  # fmt: skip
    return found


def by_tables() -> list[Case]:
    """`scatter`, `index_*` and their kin as PyTorch has them."""
    rows: Array = np.array([4, 0, 4])
    few: Array = np.array([[0, 1], [1, 1]])
    with_nan = SQUARE.copy()
    with_nan[0, 0] = np.nan
    parts = _RANDOM.standard_normal((3, 5)).astype(np.float32)
    columns = _RANDOM.standard_normal((5, 3)).astype(np.float32)
    numbers = _RANDOM.standard_normal(25).astype(np.float32)
    slices = _RANDOM.standard_normal((4, 6)).astype(np.float32)
    some = np.where(_RANDOM.random((3, 5)) < 0.3, np.nan, 1).astype(np.float32)
    anywhere = _RANDOM.integers(0, 5, (3, 5))
    pairs = [np.array([0, 3, 3, 1]), np.array([1, 1, 1, 4])]
    calls: dict[str, tuple[list[Array], Callable[..., Any]]] = {
        "index_put adds": ([CUBE, *pairs, slices],
                           lambda x, i, j, v: x.index_put((i, j), v, accumulate=True)),
        "index_add subtracts twice": ([SQUARE, rows, parts],
                                      lambda x, i, v: x.index_add(0, i, v, alpha=-2)),
        "index_fill": ([SQUARE, rows], lambda x, i: x.index_fill(1, i, 3.5)),
        "index_copy": ([SQUARE, np.array([4, 0, 2]), columns],
                       lambda x, i, v: x.index_copy(1, i, v)),
        "the greatest of NaN": ([with_nan, anywhere, some],
                                lambda x, i, v: x.scatter_reduce(0, i, v, "amax")),
        "fewer places than values": ([SQUARE, few, SQUARE],
                                     lambda x, i, v: x.scatter_reduce(1, i, v, "sum")),
        "scatter of a number": ([SQUARE, few], lambda x, i: x.scatter(1, i, 2.0)),
        "scatter multiplies": ([SQUARE, np.array([[0, 1], [1, 4]])],
                               lambda x, i: x.scatter(1, i, 2.0, reduce="multiply")),
        "gather": ([CUBE, _RANDOM.integers(0, 6, (2, 3, 4))], lambda x, i: x.gather(-1, i)),
        "take": ([CUBE, np.array([[0, -1], [119, -120]])], lambda x, i: x.take(i)),
        "put adds": ([SQUARE, np.array([1, 1, 3, -1]), np.array([1, 2, 3, 4], np.float32)],
                     lambda x, i, v: x.put(i, v, accumulate=True)),
        "masked_scatter": ([SQUARE, SQUARE > 0, numbers], lambda x, m, v: x.masked_scatter(m, v)),
        "masked_scatter that grows": ([SQUARE, ODD_COLUMNS, numbers],
                                      lambda x, m, v: x.masked_scatter(m, v)),
        "masked_fill by a tensor": ([SQUARE, ODD_COLUMNS, np.array(3.0, np.float32)],
                                    lambda x, m, v: x.masked_fill(m, v)),
        "masked_fill of 2**40": ([np.arange(5), ODD_COLUMNS],
                                 lambda x, m: x.masked_fill(m, 2**40)),
        "take_along_dim of all": ([SQUARE, np.array([3, 24, 0])], lambda x, i: x.take_along_dim(i)),
        "take_along_dim that grows": ([SQUARE, np.array([[3, 2, 0]])],
                                      lambda x, i: x.take_along_dim(i, 1)),
        "select_scatter": ([CUBE, slices], lambda x, v: x.select_scatter(v, 1, -1)),
        "slice_scatter": ([CUBE, CUBE[:, :2]], lambda x, v: x.slice_scatter(v, 1, -4, -1, 2)),
        "diagonal_scatter": ([SQUARE, np.arange(4, dtype=np.float32)],
                             lambda x, v: x.diagonal_scatter(v, -1)),
    }  # fmt: skip
    found = [by_torch(name, inputs, call) for name, (inputs, call) in calls.items()]
    return found + _reductions()
