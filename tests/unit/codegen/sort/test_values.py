"""Sorts that give elements: the same bits as the positions of a sort, applied to the row."""

from __future__ import annotations

import numpy as np
import pytest
from tests.unit.codegen.sort.test_sort_rows import expected_positions, random_bits

from tilework import Tensor
from tilework.codegen.pipeline import lower_kernel
from tilework.codegen.sort import lower
from tilework.codegen.sort.lower import RANK_LIMIT
from tilework.dtypes import (
    ALL,
    DType,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    index,
    int8,
    int32,
    int64,
    uint16,
)
from tilework.ir.build import const_index
from tilework.ir.interpret import run_kernel, run_linear
from tilework.ir.node import Node, toposort
from tilework.ir.ops import tensor
from tilework.ir.ops.control import COMPRESS
from tilework.ir.ops.index import RANGE, VARIABLE, RangeAttrs, VariableAttrs
from tilework.ir.ops.memory import INDEX, PARAM, SINK, ParamAttrs
from tilework.ir.ops.sort import SORT_ROWS, SortRowsAttrs
from tilework.ir.symbolic import simplify
from tilework.schedule.passes.sort_rows import sort_last_axis
from tilework.testing.kernels import Case, can_run, compile_to, execute, run_on_machine, target

LONG = RANK_LIMIT + 21
KINDS = [float32, float64, float16, bfloat16, int8, int32, int64, uint16, bool_]


def values_kernel(
    dtype: DType,
    rows: int,
    size: int | Node,
    *,
    descending: bool = False,
    ranks: tuple[int, int] = (0, -1),
    most: int = 0,
) -> Node:
    """Elements of PARAM 1's rows, in order, into PARAM 0."""
    extent = const_index(size) if isinstance(size, int) else size
    limit = size if isinstance(size, int) else most
    row = RANGE(const_index(rows), attrs=RangeAttrs(0))
    first, count = ranks
    step = extent if count < 0 else const_index(count)
    place = PARAM(attrs=ParamAttrs(0, (rows * (limit if count < 0 else count),), dtype))
    source = PARAM(attrs=ParamAttrs(1, (rows * limit,), dtype))
    attrs = SortRowsAttrs(descending, first, count, values=True)
    written = INDEX(place, simplify.mul(row, step))
    read = INDEX(source, simplify.mul(row, extent))
    return SINK(SORT_ROWS(written, read, extent, attrs=attrs))


def expected_values(raw: bytes, dtype: DType, rows: int, *, descending: bool) -> np.ndarray:
    """The bits of the sorted elements, one row each."""
    order = expected_positions(raw, dtype, rows, descending=descending).reshape(rows, -1)
    held = np.frombuffer(raw, f"u{dtype.itemsize}").reshape(rows, -1)
    return np.take_along_axis(held, order, 1)


def check(
    dtype: DType, rows: int, size: int, form: str, *, few: bool = False, level: str = "host"
) -> None:
    raw = random_bits(dtype, rows * size, size, few=few)
    for descending in (False, True):
        sink = values_kernel(dtype, rows, size, descending=descending)
        case = Case(sink, [b"\xcd" * len(raw), raw])
        if form in ("llvm", "clang"):
            found = run_on_machine(case, form, level).buffers[0]
        else:
            buffers = case.copies()
            if form == "kernel":
                run_kernel(sink, buffers, {})
            else:
                run_linear(lower_kernel(sink, target(level)).linear, buffers, {})
            found = bytes(buffers[0])
        wanted = expected_values(raw, dtype, rows, descending=descending)
        np.testing.assert_array_equal(
            np.frombuffer(found, wanted.dtype).reshape(wanted.shape), wanted
        )


@pytest.mark.parametrize("dtype", ALL, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("size", [1, 7, LONG, 1000])
def test_the_machine_gives_the_sorted_elements_of_every_dtype(dtype: DType, size: int) -> None:
    check(dtype, 2, size, "llvm", few=size == 7)


@pytest.mark.parametrize("dtype", ALL, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("form", ["kernel", "linear"])
def test_the_interpreter_gives_the_sorted_elements(dtype: DType, form: str) -> None:
    check(dtype, 2, LONG, form, few=True)
    check(dtype, 2, 6, form, few=True)


@pytest.mark.parametrize(
    ("form", "level"),
    [
        (form, level)
        for form in ("llvm", "clang", "linear")
        for level in ("x86-64", "x86-64-v3", "x86-64-v4")
        if form == "linear" or can_run(level)
    ],
)
def test_every_processor_level_gives_the_same_elements(
    level: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lower, "SHARED_FROM", 100)
    monkeypatch.setattr(lower, "_MOST_PARTS", 3)
    for dtype in (float32, float64, int32, int64):
        check(dtype, 1, 409, form, few=form == "linear", level=level)


@pytest.mark.parametrize("dtype", KINDS, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("few", [False, True])
def test_tasks_that_share_a_row_write_all_elements(
    dtype: DType, few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lower, "SHARED_FROM", 100)
    check(dtype, 1, 1503, "llvm", few=few)
    if few:  # the interpreter makes signalling NaNs quiet
        check(dtype, 1, 1503, "linear", few=True)


def test_a_task_whose_share_is_empty_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lower, "SHARED_FROM", 100)
    for value in (0.0, -0.0, np.nan, -np.inf, 3.5):
        raw = np.full(700, value, np.float32).tobytes()
        for descending in (False, True):
            sink = values_kernel(float32, 1, 700, descending=descending)
            case = Case(sink, [b"\xcd" * len(raw), raw])
            assert run_on_machine(case, "llvm").buffers[0] == raw


@pytest.mark.parametrize("dtype", [float32, int64, float16], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("ranks", [(0, 5), (3, 9), (LONG - 1, 1)])
def test_some_ranks_are_given_as_elements(dtype: DType, ranks: tuple[int, int]) -> None:
    first, count = ranks
    for size in (LONG, 6000):
        raw = random_bits(dtype, 2 * size, size)
        sink = values_kernel(dtype, 2, size, ranks=ranks)
        case = Case(sink, [b"\xcd" * (2 * count * dtype.itemsize), raw])
        wanted = expected_values(raw, dtype, 2, descending=False)[:, first : first + count]
        assert run_on_machine(case, "llvm").buffers[0] == wanted.tobytes()


@pytest.mark.parametrize("most", [60, 700])
def test_a_row_whose_size_is_known_at_run_time_gives_its_elements(most: int) -> None:
    for dtype in (float32, int8):
        size = VARIABLE(attrs=VariableAttrs("n", 0, most))
        sink = values_kernel(dtype, 2, size, most=most)
        lowered = lower_kernel(sink, target("host"))
        code = compile_to("llvm", "host", lowered)
        for count in (0, 1, 17, most):
            raw = random_bits(dtype, 2 * count, count)
            room = 2 * most * dtype.itemsize
            case = Case(sink, [bytes(room), raw + bytes(room - len(raw))], {"n": count})
            found = execute(lowered, code, case).buffers[0][: len(raw)]
            if count:
                assert found == expected_values(raw, dtype, 2, descending=False).tobytes()


def test_vectors_are_compressed_where_the_machine_can() -> None:
    def compresses(level: str) -> bool:
        statements = lower_kernel(values_kernel(float32, 1, 70_000), target(level)).linear.src
        return any(node.op is COMPRESS for node in statements)

    has_tasks = target("host").cores > 1
    assert "compress" in target("x86-64-v4").native_ops
    assert not compresses("x86-64-v3")
    assert compresses("host") == (has_tasks and "compress" in target("host").native_ops)


X = PARAM(attrs=ParamAttrs(0, (4, 9), float32, "CPU"))


def sorts_of(root: Node) -> list[bool]:
    """Of the sorts that are left, whether each gives elements."""
    moved = sort_last_axis(SINK(root))
    return [node.attrs.values for node in toposort(moved) if node.op is tensor.SORT]


def in_order(x: Node, positions: Node, axis: int) -> Node:
    other = tensor.IOTA(attrs=tensor.IotaAttrs(positions.shape, 1 - axis, index))
    places = (positions, other) if axis == 0 else (other, positions)
    return tensor.GATHER(x, *places, attrs=tensor.GatherAttrs(0))


@pytest.mark.parametrize("axis", [0, 1])
def test_positions_that_only_pick_the_sorted_elements_are_not_made(axis: int) -> None:
    positions = tensor.SORT(tensor.DETACH(X), attrs=tensor.SortAttrs(axis, descending=True))
    assert sorts_of(in_order(X, positions, axis)) == [True]


def test_positions_that_are_wanted_are_made() -> None:
    positions = tensor.SORT(X, attrs=tensor.SortAttrs(1, descending=False))
    assert sorts_of(positions) == [False]
    found = SINK(in_order(X, positions, 1), positions)
    kept = [node.attrs.values for node in toposort(sort_last_axis(found)) if node.op is tensor.SORT]
    assert kept == [False]


def test_positions_that_pick_from_something_else_are_made() -> None:
    other = PARAM(attrs=ParamAttrs(1, (4, 9), float32, "CPU"))
    positions = tensor.SORT(X, attrs=tensor.SortAttrs(1, descending=False))
    assert sorts_of(in_order(other, positions, 1)) == [False]
    crossed = tensor.IOTA(attrs=tensor.IotaAttrs(positions.shape, 1, index))
    assert sorts_of(tensor.GATHER(X, crossed, positions, attrs=tensor.GatherAttrs(0))) == [False]


@pytest.mark.parametrize("count", [-1, 3])
def test_elements_alone_are_those_that_come_with_positions(count: int) -> None:
    rng = np.random.default_rng(5)
    x = rng.choice(np.array([0.0, -0.0, np.nan, 1.5, -2.0, np.inf], np.float32), (5, 300))
    for axis in (0, 1):
        make = Tensor(x).sort if count < 0 else lambda dim: Tensor(x).topk(count, dim)
        alone = make(axis)[0].numpy()
        values, positions = make(axis)
        Tensor.realize(values, positions)
        assert alone.tobytes() == values.numpy().tobytes()
        picked = np.take_along_axis(x, positions.numpy(), axis)
        assert alone.tobytes() == picked.tobytes()
