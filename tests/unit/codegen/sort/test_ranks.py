"""Some ranks of a row, and rows that several tasks share: the same positions as of a whole sort."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.codegen.sort.test_sort_rows import expected_positions, random_bits

from tilework.codegen.pipeline import lower_kernel
from tilework.codegen.sort import lower
from tilework.codegen.sort.lower import RANK_LIMIT
from tilework.dtypes import (
    DType,
    bfloat16,
    float32,
    float64,
    index,
    int8,
    int16,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from tilework.ir.build import const_index
from tilework.ir.interpret import run_kernel, run_linear
from tilework.ir.node import Node
from tilework.ir.ops.control import COMPRESS
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, PARAM, SINK, ParamAttrs
from tilework.ir.ops.sort import SORT_ROWS, SortRowsAttrs
from tilework.ir.symbolic import simplify
from tilework.testing.kernels import Case, run_on_machine, target

KINDS = [float32, bfloat16, int8, int64, float64]
LONG = RANK_LIMIT + 60
RANKS = [(0, 1), (0, 3), (2, 5), (LONG // 2, 1), (LONG - 1, 1), (0, LONG), (1, LONG - 1)]


def rank_kernel(
    dtype: DType, rows: int, size: int, descending: bool, ranks: tuple[int, int]
) -> Node:
    row = RANGE(const_index(rows), attrs=RangeAttrs(0))
    first, count = ranks
    written = PARAM(attrs=ParamAttrs(0, (rows * count,), index))
    source = PARAM(attrs=ParamAttrs(1, (rows * size,), dtype))
    start = simplify.scale(row, size)
    attrs = SortRowsAttrs(descending, first, count)
    effect = SORT_ROWS(
        INDEX(written, simplify.scale(row, count)),
        INDEX(source, start),
        const_index(size),
        attrs=attrs,
    )
    return SINK(effect)


def check_ranks(dtype: DType, size: int, ranks: tuple[int, int], form: str, *, few: bool) -> None:
    rows, (first, count) = 2, ranks
    raw = random_bits(dtype, rows * size, size + first, few=few)
    for descending in (False, True):
        sink = rank_kernel(dtype, rows, size, descending, ranks)
        case = Case(sink, [b"\xcd" * (8 * rows * count), raw])
        if form == "machine":
            found = run_on_machine(case, "llvm").buffers[0]
        else:
            buffers = case.copies()
            if form == "kernel":
                run_kernel(sink, buffers, {})
            else:
                run_linear(lower_kernel(sink, target("host")).linear, buffers, {})
            found = bytes(buffers[0])
        order = expected_positions(raw, dtype, rows, descending=descending).reshape(rows, size)
        np.testing.assert_array_equal(
            np.frombuffer(found, np.int64).reshape(rows, count), order[:, first : first + count]
        )


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("dtype", [float32, int16, uint64], ids=lambda dtype: dtype.name)
def test_the_interpreter_gives_the_ranks_that_are_wanted(
    dtype: DType, ranks: tuple[int, int]
) -> None:
    for form in ("kernel", "linear"):
        check_ranks(dtype, LONG, ranks, form, few=False)


@pytest.mark.parametrize("dtype", KINDS, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("size", [40, LONG, 5000])
def test_the_machine_gives_the_ranks_that_are_wanted(dtype: DType, size: int) -> None:
    check_ranks(dtype, size, (0, 4), "machine", few=False)
    check_ranks(dtype, size, (size // 2, 3), "machine", few=True)


@pytest.mark.parametrize("dtype", KINDS, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("few", [False, True])
def test_tasks_that_share_a_row_write_the_whole_order(
    dtype: DType, few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lower, "SHARED_FROM", 100)
    size = 1500
    raw = random_bits(dtype, size, 7, few=few)
    for descending in (False, True):
        sink = SINK(SORT_ROWS(*_addresses(dtype, size), attrs=SortRowsAttrs(descending)))
        case = Case(sink, [b"\xcd" * (8 * size), raw])
        found = run_on_machine(case, "llvm").buffers[0]
        wanted = expected_positions(raw, dtype, 1, descending=descending)
        np.testing.assert_array_equal(np.frombuffer(found, np.int64), wanted)


def test_elements_beyond_a_sample_belong_to_the_last_task() -> None:
    size = 40_000
    values = np.random.default_rng(3).standard_normal(size).astype(np.float32)
    sink = SINK(SORT_ROWS(*_addresses(float32, size), attrs=SortRowsAttrs(descending=False)))
    case = Case(sink, [b"\xcd" * (8 * size), values.tobytes()])
    found = run_on_machine(case, "llvm").buffers[0]
    wanted = np.argsort(values, kind="stable")
    np.testing.assert_array_equal(np.frombuffer(found, np.int64), wanted)


def _addresses(dtype: DType, size: int) -> tuple[Node, Node, Node]:
    row = RANGE(const_index(1), attrs=RangeAttrs(0))
    written = PARAM(attrs=ParamAttrs(0, (size,), index))
    source = PARAM(attrs=ParamAttrs(1, (size,), dtype))
    start = simplify.scale(row, size)
    return INDEX(written, start), INDEX(source, start), const_index(size)


@pytest.mark.parametrize("misled", ["too few", "all equal", "one bucket"])
def test_a_sample_that_misleads_costs_time_alone(misled: str) -> None:
    size, count = 5000, 400
    rng = np.random.default_rng(3)
    values = rng.random(size, dtype=np.float32)
    if misled == "too few":
        values[np.arange(size) % 8 != 0] += 10  # a sample sees every eighth element alone
    elif misled == "all equal":
        values[:] = 2
    else:
        values[np.arange(size) % 8 == 0] = 0.5
    sink = rank_kernel(float32, 1, size, False, (0, count))
    case = Case(sink, [b"\xcd" * (8 * count), values.tobytes()])
    found = np.frombuffer(run_on_machine(case, "llvm").buffers[0], np.int64)
    np.testing.assert_array_equal(found, np.argsort(values, kind="stable")[:count])


@pytest.mark.parametrize("dtype", [uint8, uint16, uint32], ids=lambda dtype: dtype.name)
def test_the_first_ranks_are_found_where_most_elements_have_the_greatest_key(
    dtype: DType,
) -> None:
    size, count = 1000, 10
    kind = np.dtype(dtype.name)
    random = np.random.default_rng(3)
    for _ in range(12):
        elements = np.full(size, np.iinfo(kind).max, kind)
        places = random.permutation(size)[:60]
        elements[places] = random.random(60) ** 0.2 * np.iinfo(kind).max
        sink = rank_kernel(dtype, 1, size, False, (0, count))
        case = Case(sink, [bytes(8 * count), elements.tobytes()])
        found = np.frombuffer(run_on_machine(case, "llvm").buffers[0], np.int64)
        np.testing.assert_array_equal(found, np.argsort(elements, kind="stable")[:count])


@pytest.mark.parametrize("level", ["x86-64", "x86-64-v4"])
@pytest.mark.parametrize("dtype", [float32, int8, float64], ids=lambda dtype: dtype.name)
def test_few_ranks_are_found_with_and_without_lanes_that_move_together(
    dtype: DType, level: str
) -> None:
    rows, size, count = 2, 300, 5
    raw = random_bits(dtype, rows * size, 11, few=False)
    lowered = lower_kernel(rank_kernel(dtype, rows, size, True, (0, count)), target(level))
    compressed = any(node.op is COMPRESS for node in lowered.linear.src)
    assert compressed == (level == "x86-64-v4" and dtype is not int8)
    buffers = [bytearray(8 * rows * count), bytearray(raw)]
    run_linear(lowered.linear, buffers, {})
    order = expected_positions(raw, dtype, rows, descending=True).reshape(rows, size)
    found = np.frombuffer(bytes(buffers[0]), np.int64).reshape(rows, count)
    np.testing.assert_array_equal(found, order[:, :count])
