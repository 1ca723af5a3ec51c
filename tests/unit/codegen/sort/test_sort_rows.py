"""Kernels that sort rows: what each stage and the machine make of SORT_ROWS."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilework import dtypes
from tilework.base.errors import InternalError, UnsupportedError, VerifyError
from tilework.codegen.pipeline import lower_kernel
from tilework.codegen.sort.lower import RANK_LIMIT
from tilework.codegen.sort.statements import Statements
from tilework.dtypes import ALL, DType, decode, index
from tilework.ir.build import const_index
from tilework.ir.interpret import run_kernel, run_linear
from tilework.ir.node import Node
from tilework.ir.ops.index import RANGE, VARIABLE, RangeAttrs, VariableAttrs
from tilework.ir.ops.memory import INDEX, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.sort import SORT_ROWS, SortRowsAttrs
from tilework.ir.stage import Stage
from tilework.ir.symbolic import simplify
from tilework.ir.text import format_node, parse
from tilework.ir.verify import verify
from tilework.testing.kernels import (
    Case,
    Outcome,
    compile_to,
    execute,
    run_on_machine,
    target,
)

LONG = RANK_LIMIT + 3


def sort_kernel(
    dtype: DType, rows: int, size: int | Node, *, descending: bool = False, most: int = 0
) -> Node:
    """Positions of PARAM 1's rows into PARAM 0."""
    extent = const_index(size) if isinstance(size, int) else size
    row = RANGE(const_index(rows), attrs=RangeAttrs(0))
    start = simplify.mul(row, extent)
    count = rows * (size if isinstance(size, int) else most)
    target_ = PARAM(attrs=ParamAttrs(0, (count,), index))
    source = PARAM(attrs=ParamAttrs(1, (count,), dtype))
    attrs = SortRowsAttrs(descending)
    return SINK(SORT_ROWS(INDEX(target_, start), INDEX(source, start), extent, attrs=attrs))


def random_bits(dtype: DType, count: int, seed: int, *, few: bool = False) -> bytes:
    """Elements of all bit patterns, or of few, so that many are equal."""
    rng = np.random.default_rng(seed)
    if dtype.is_bool:
        return rng.integers(0, 2, count).astype(np.uint8).tobytes()
    raw = np.dtype(f"u{dtype.itemsize}")
    values = rng.integers(0, np.iinfo(raw).max, count, dtype=raw, endpoint=True)
    if few:
        values = values[rng.integers(0, min(count, 3), count)] if count else values
    special = special_bits(dtype)
    if special and count:
        places = rng.random(count) < 0.4
        chosen = np.array(special, raw)[rng.integers(0, len(special), count)]
        values = np.where(places, chosen, values)
    return values.astype(raw).tobytes()


def special_bits(dtype: DType) -> list[int]:
    """Zeros of both signs, infinities, NaNs of both signs, ones."""
    if not dtype.is_float:
        return [0, 1, (1 << dtype.bits) - 1, 1 << (dtype.bits - 1)]
    sign = 1 << (dtype.bits - 1)
    top = ((1 << dtype.exponent_bits) - 1) << dtype.mantissa_bits
    nan = top | ((1 << dtype.mantissa_bits) - 1)
    return [0, sign, nan, sign | nan, top, sign | top, 1, sign | 1]


def expected_positions(raw: bytes, dtype: DType, rows: int, *, descending: bool) -> np.ndarray:
    """The positions by comparing the values, one pair after the other."""
    kind = np.dtype(f"u{dtype.itemsize}")
    values = [decode(int(bits), dtype) for bits in np.frombuffer(raw, kind)]
    size = len(values) // rows

    def compare(x: float, y: float) -> int:
        if x != x or y != y:
            return (x != x) - (y != y)
        return (x > y) - (x < y)

    found = []
    for row in range(rows):
        held = values[row * size : row * size + size]

        def order(i: int, j: int, held: list[float] = held) -> int:
            sign = compare(held[i], held[j])
            return (-sign if descending else sign) or i - j

        found += sorted(range(size), key=functools.cmp_to_key(order))
    return np.array(found, np.int64)


def case_of(
    dtype: DType, rows: int, size: int, seed: int, *, descending: bool = False, few: bool = False
) -> Case:
    raw = random_bits(dtype, rows * size, seed, few=few)
    sink = sort_kernel(dtype, rows, size, descending=descending)
    return Case(sink, [b"\xcd" * (8 * rows * size), raw])


def assert_sorted(outcome: Outcome, case: Case, dtype: DType, rows: int, descending: bool) -> None:
    wanted = expected_positions(case.buffers[1], dtype, rows, descending=descending)
    np.testing.assert_array_equal(np.frombuffer(outcome.buffers[0], np.int64), wanted)
    assert outcome.buffers[1] == case.buffers[1]


def run_interpreted(case: Case, form: str) -> Outcome:
    buffers = case.copies()
    if form == "kernel":
        run_kernel(case.sink, buffers, case.variables)
    else:
        lowered = lower_kernel(case.sink, target("host"))
        run_linear(lowered.linear, buffers, case.variables)
    return Outcome(form, [bytes(buffer) for buffer in buffers], [])


@pytest.mark.parametrize("dtype", ALL, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("size", [1, 5, LONG])
@pytest.mark.parametrize("form", ["kernel", "linear"])
def test_the_interpreter_sorts_rows_of_every_dtype(dtype: DType, size: int, form: str) -> None:
    for descending in (False, True):
        case = case_of(dtype, 2, size, size, descending=descending)
        assert_sorted(run_interpreted(case, form), case, dtype, 2, descending)


@pytest.mark.parametrize("dtype", ALL, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("size", [7, 64, LONG])
@pytest.mark.parametrize("descending", [False, True])
def test_the_machine_sorts_rows_of_every_dtype(dtype: DType, size: int, descending: bool) -> None:
    case = case_of(dtype, 3, size, size, descending=descending)
    assert_sorted(run_on_machine(case, "llvm"), case, dtype, 3, descending)


@pytest.mark.parametrize("level", ["x86-64", "x86-64-v3"])
@pytest.mark.parametrize("size", [3, 50, LONG])
def test_every_processor_level_gives_the_same_positions(level: str, size: int) -> None:
    for dtype in (dtypes.float32, dtypes.float64):
        case = case_of(dtype, 2, size, 1)
        assert_sorted(run_on_machine(case, "llvm", level), case, dtype, 2, descending=False)


@pytest.mark.parametrize("size", range(41))
def test_short_rows_of_all_lengths_are_sorted(size: int) -> None:
    if not size:
        return
    for dtype in (dtypes.float32, dtypes.int64):
        case = case_of(dtype, 3, size, size, few=size % 2 == 0)
        outcome = run_on_machine(case, "llvm", split_tasks=True)
        assert_sorted(outcome, case, dtype, 3, descending=False)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.int64, dtypes.bool_])
@pytest.mark.parametrize("descending", [False, True])
def test_equal_elements_keep_their_order(dtype: DType, descending: bool) -> None:
    for size in (9, 77, 500):
        case = case_of(dtype, 2, size, 5, descending=descending, few=True)
        assert_sorted(run_on_machine(case, "llvm"), case, dtype, 2, descending)


def test_a_long_row_is_sorted_by_wide_digits() -> None:
    rng = np.random.default_rng(0)
    for kind in (np.float32, np.float64):
        x = rng.standard_normal((1, 70_000)).astype(kind)
        sink = sort_kernel(dtypes.by_name(np.dtype(kind).name), 1, x.size)
        outcome = run_on_machine(Case(sink, [bytes(8 * x.size), x.tobytes()]), "llvm")
        found = np.frombuffer(outcome.buffers[0], np.int64)
        np.testing.assert_array_equal(found, np.argsort(x[0], kind="stable"))


@pytest.mark.parametrize("size", [LONG, 5000])
@pytest.mark.parametrize("kind", ["int64", "uint64", "float64", "int32"])
def test_keys_that_differ_in_few_bits_are_sorted(kind: str, size: int) -> None:
    rng = np.random.default_rng(8)
    raw = np.dtype(f"u{np.dtype(kind).itemsize}")
    bits = raw.itemsize * 8
    sink = sort_kernel(dtypes.by_name(kind), 1, size)
    lowered = lower_kernel(sink, target("host"))
    code = compile_to("llvm", "host", lowered)
    for shift in range(0, bits - 2, 5):
        moved = rng.integers(0, 4, (1, size), raw) << raw.type(shift)
        for constant in (0, 1 << (bits // 2), 5 << (bits // 2 - 2)):
            x = (moved ^ raw.type(constant)).view(kind)
            outcome = execute(lowered, code, Case(sink, [bytes(8 * size), x.tobytes()]))
            found = np.frombuffer(outcome.buffers[0], np.int64)
            np.testing.assert_array_equal(found, np.argsort(x[0], kind="stable"))


@pytest.mark.parametrize("most", [60, 300])
def test_a_row_whose_size_is_known_at_run_time_is_sorted(most: int) -> None:
    size = VARIABLE(attrs=VariableAttrs("n", 0, most))
    sink = sort_kernel(dtypes.float32, 2, size, most=most)
    lowered = lower_kernel(sink, target("host"))
    code = compile_to("llvm", "host", lowered)
    for count in (0, 1, 17, most):
        raw = random_bits(dtypes.float32, 2 * count, count)
        # The buffers hold the greatest size; rows lie close together at the start.
        padded = raw + bytes(8 * most - len(raw))
        case = Case(sink, [bytes(16 * most), padded], {"n": count})
        found = np.frombuffer(execute(lowered, code, case).buffers[0], np.int64)[: 2 * count]
        wanted = expected_positions(raw, dtypes.float32, 2, descending=False)
        np.testing.assert_array_equal(found, wanted)


@given(data=st.data())
def test_random_rows_are_sorted_alike_by_every_stage(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(ALL))
    size = data.draw(st.one_of(st.integers(1, 30), st.integers(LONG, LONG + 40)))
    rows = data.draw(st.integers(1, 3))
    descending, few = data.draw(st.booleans()), data.draw(st.booleans())
    seed = data.draw(st.integers(0, 1 << 30))
    case = case_of(dtype, rows, size, seed, descending=descending, few=few)
    for form in ("kernel", "linear"):
        assert_sorted(run_interpreted(case, form), case, dtype, rows, descending)


def test_a_sort_is_printed_and_parsed_back() -> None:
    sink = sort_kernel(dtypes.float32, 2, 5, descending=True)
    assert parse(format_node(sink)) is sink


def test_a_sort_is_legal_in_a_kernel_but_not_among_statements() -> None:
    sink = sort_kernel(dtypes.float32, 2, 5)
    verify(sink, Stage.KERNEL)
    verify(lower_kernel(sink, target("host")).linear, Stage.LINEAR)
    with pytest.raises(VerifyError, match="sort_rows"):
        verify(sink, Stage.TENSOR)


def test_a_row_too_long_for_32_bit_positions_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="too long"):
        lower_kernel(sort_kernel(dtypes.int8, 1, 1 << 31), target("host"))


def test_a_sort_beside_other_effects_is_refused() -> None:
    sort = sort_kernel(dtypes.int64, 1, 4).src[0]
    other = STORE(INDEX(PARAM(attrs=ParamAttrs(2, (1,), index)), const_index(0)), const_index(1))
    with pytest.raises(UnsupportedError, match="only effect"):
        lower_kernel(SINK(sort, other), target("host"))


def test_a_statement_cannot_stand_twice() -> None:
    out = Statements()
    memory = out.allocate(index, 1)
    out.store(memory, const_index(0), const_index(1))
    store = out.items[-1]
    out.scopes[0].discard(store)
    with pytest.raises(InternalError, match="twice"):
        out.emit(store)
