"""Writes at loaded places in classes: threads share them, and each place keeps its order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from tests.emulated_cards import emulated_cards

from tilework import Tensor
from tilework.base.errors import BoundsError
from tilework.codegen.analysis import analyse
from tilework.codegen.gpu.branches import branch_loops
from tilework.codegen.gpu.classes import by_classes
from tilework.codegen.passes.normalise import renumber
from tilework.codegen.pipeline import lower_kernel
from tilework.codegen.plan.extents import size
from tilework.dtypes import float32, index, int64
from tilework.ir.build import cast, const_index
from tilework.ir.node import Node, toposort
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.target.known.cuda import cuda_spec
from tilework.testing.emulators.cuda import EmulatedCuda

HOPPER = cuda_spec(90)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedCuda]:
    with emulated_cards(monkeypatch) as found:
        yield found


def added(rows: int, columns: int, *, step: int) -> Node:
    """table[place[row] * step + column] += x[row, column], as far as the place is below 100."""
    row, column = (
        RANGE(const_index(size), attrs=RangeAttrs(n)) for n, size in enumerate((rows, columns))
    )
    table = PARAM(attrs=ParamAttrs(0, (100 * step + columns,), float32))
    places = PARAM(attrs=ParamAttrs(1, (rows,), int64))
    x = PARAM(attrs=ParamAttrs(2, (rows * columns,), float32))
    place = cast(LOAD(INDEX(places, row)), index)
    inside = math.AND(
        math.LT(math.MUL(place, const_index(-1)), const_index(1)),
        math.LT(place, const_index(100)),
    )
    at = INDEX(table, math.ADD(math.MUL(place, const_index(step)), column))
    value = LOAD(INDEX(x, math.ADD(math.MUL(row, const_index(columns)), column)))
    return SINK(STORE(at, math.ADD(LOAD(at, inside), value), inside))


def renumbered(sink: Node) -> Node:
    """Ranges numbered by twos, as kernels are divided: a part fits between."""
    return renumber(sink, [node for node in toposort(sink) if node.op is RANGE], 2)


def test_rows_that_add_to_chosen_rows_are_shared_by_classes_of_places() -> None:
    # No number of rows from 8 to 32 divides 1009: all threads look at every row.
    kernel = analyse(added(1009, 8, step=8))
    found = by_classes(kernel, HOPPER)
    assert found is not None
    assert not found.packs
    shared = analyse(found.kernel)
    (class_,) = (r for r in shared.outputs if r not in kernel.outputs)
    assert class_ not in shared.meeting
    assert [int(r.attrs.number) for r in shared.meeting] == [0]  # rows stay in order


def test_a_kernel_before_marks_the_rows_of_each_class() -> None:
    kernel = analyse(renumbered(added(1000, 8, step=8)))
    found = by_classes(kernel, HOPPER)
    assert found is not None
    (pack,) = found.packs
    assert pack.sources == (1,)
    shared = analyse(found.kernel)
    rows = sorted(shared.meeting, key=lambda range_: int(range_.attrs.number))
    assert [size(range_) for range_ in rows] == [40, 25]  # words of 25 rows each, in order
    classes = [r for r in shared.outputs if r not in (*shared.meeting, *kernel.outputs)]
    assert pack.size_bytes == 4 * 40 * size(classes[0])


def test_rows_of_other_classes_are_passed_over_word_by_word() -> None:
    kernel = analyse(renumbered(added(1024, 8, step=8)))
    found = by_classes(kernel, HOPPER)
    assert found is not None
    names = [node.op.name for node in lower_kernel(found.kernel, HOPPER).linear.src]
    first, second = [at for at, name in enumerate(names) if name == "if"][-2:]
    assert names[first + 1] == "range"  # the rows of a word that marks none
    assert not {"load", "store"} & set(names[first:second])
    assert names[second:].count("load") == 3  # the place, and what is added up


def test_a_loop_that_always_stores_has_no_branch() -> None:
    row, column = (
        RANGE(const_index(size), attrs=RangeAttrs(n)) for n, size in enumerate((64, 1024))
    )
    table = PARAM(attrs=ParamAttrs(0, (1024,), float32))
    x = PARAM(attrs=ParamAttrs(1, (64 * 1024,), float32))
    value = LOAD(INDEX(x, math.ADD(math.MUL(row, const_index(1024)), column)))
    at = INDEX(table, column)
    linear = lower_kernel(SINK(STORE(at, math.ADD(LOAD(at), value))), HOPPER).linear
    assert branch_loops(linear) is linear


def test_places_that_overlap_are_no_classes() -> None:
    assert by_classes(analyse(added(1000, 8, step=7)), HOPPER) is None


def test_what_another_row_reads_is_in_no_class() -> None:
    (stored,) = added(1000, 8, step=8).src
    (address, value, inside), table = stored.src, stored.src[0].src[0]
    other = LOAD(INDEX(table, const_index(3)))
    assert by_classes(analyse(SINK(STORE(address, value, inside))), HOPPER) is not None
    kernel = analyse(SINK(STORE(address, math.ADD(value, other), inside)))
    assert by_classes(kernel, HOPPER) is None


def test_few_rows_are_not_worth_classes() -> None:
    assert by_classes(analyse(added(100, 8, step=8)), HOPPER) is None


@pytest.mark.parametrize("count", [300, 307])
def test_the_gradient_of_an_embedding_is_the_same_bit_for_bit(
    library: EmulatedCuda, count: int
) -> None:
    draw = np.random.default_rng(0)
    rows, columns = 40, 16
    places = draw.integers(0, rows, count).astype(np.int32)
    gradient = draw.standard_normal((count, columns)).astype(np.float32)
    table = Tensor.zeros(rows, columns, device="CUDA").contiguous().realize()
    table.requires_grad_(True)
    taken = table[Tensor(places, device="CUDA").realize()]
    given = Tensor(gradient, device="CUDA").realize()
    library.launches.clear()
    (found,) = taken.gradient(table, gradient=given)
    got = found.numpy()
    ((blocks, threads),) = (row[1:3] for row in library.launches if row[0].startswith("scatter"))
    assert blocks * threads > columns  # 32 classes of places, beside the columns
    want = np.zeros((rows, columns), np.float32)
    for place, row in zip(places, gradient, strict=True):
        want[place] += row
    assert np.array_equal(got, want)


def test_a_place_that_does_not_exist_is_found_by_the_kernel_that_marks(
    library: EmulatedCuda,
) -> None:
    places = np.arange(320, dtype=np.int32) % 40
    places[77] = 41
    table = Tensor.zeros(40, 16, device="CUDA").contiguous().realize()
    index_ = Tensor(places, device="CUDA").realize()
    given = Tensor(np.ones((320, 16), np.float32), device="CUDA").realize()
    with pytest.raises(BoundsError, match="out of range"):
        table.index_add(0, index_, given).numpy()
