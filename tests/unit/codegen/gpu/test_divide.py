"""Kernels that are run as several: copies of factors that no copy engine takes, parts of k."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from tests.emulated_cards import emulated_cards

from tilework import Tensor, Variable, dtypes, jit
from tilework.codegen.analysis import analyse
from tilework.codegen.gpu import copies
from tilework.codegen.gpu import divide as division
from tilework.codegen.gpu.choose import choose_gpu_plan
from tilework.codegen.gpu.divide import divide
from tilework.codegen.passes.normalise import normalise_ranges
from tilework.codegen.plan.extents import size
from tilework.dtypes import bfloat16, float32
from tilework.ir.build import cast, const_index
from tilework.ir.node import Node, toposort
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs, Unit
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.tensor import REDUCE, Fold, ReduceAttrs
from tilework.ir.symbolic import simplify
from tilework.target.known.cuda import cuda_spec
from tilework.testing.emulators.cuda import EmulatedCuda

HOPPER = cuda_spec(90)


def product(m: int, n: int, k: int) -> Node:
    """a[m, k] x b[k, n] in bfloat16."""
    row, column, inner = (
        RANGE(const_index(size), attrs=RangeAttrs(number)) for number, size in enumerate((m, n, k))
    )

    def load(slot: int, size: int, offset: Node) -> Node:
        buffer = PARAM(attrs=ParamAttrs(slot, (size,), bfloat16))
        return cast(LOAD(INDEX(buffer, offset)), float32)

    a = load(1, m * k, math.ADD(math.MUL(row, const_index(k)), inner))
    b = load(2, k * n, math.ADD(math.MUL(inner, const_index(n)), column))
    total = REDUCE(math.MUL(a, b), inner, attrs=ReduceAttrs(Fold.ADD, ()))
    target = PARAM(attrs=ParamAttrs(0, (m * n,), bfloat16))
    place = math.ADD(math.MUL(row, const_index(n)), column)
    return SINK(STORE(INDEX(target, place), cast(total, bfloat16)))


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedCuda]:
    with emulated_cards(monkeypatch) as found:
        yield found


def test_rows_that_start_anywhere_are_copied_first_where_the_product_is_large() -> None:
    found = divide(product(4000, 4001, 3999), HOPPER)
    assert found is not None
    assert [pack.sources for pack in found.packs] == [(1,), (2,)]
    # Rows of 3999 and 4001 elements start at multiples of 16 bytes.
    assert [pack.size_bytes for pack in found.packs] == [2 * 4000 * 4000, 2 * 3999 * 4008]


def test_a_product_whose_rows_can_be_copied_in_boxes_stays_as_it_is() -> None:
    assert divide(product(4096, 4096, 4096), HOPPER) is None


def test_a_small_product_is_not_worth_more_kernels() -> None:
    assert divide(product(64, 65, 63), HOPPER) is None


def test_a_fold_of_columns_of_which_nothing_is_read_row_by_row_is_one_kernel(
    library: EmulatedCuda,
) -> None:
    x, rows = np.arange(512, dtype=np.float32), np.arange(1000, dtype=np.float32)[:, None]
    on_card = Tensor(x, device="CUDA").realize()
    below = Tensor.arange(1000, device="CUDA").reshape(1000, 1).float() < on_card
    found = below.where(on_card, 0.0).sum(0)
    assert np.array_equal(found.numpy(), np.where(rows < x, x, 0).sum(0))


@pytest.mark.parametrize("is_fixed", [True, False])
def test_a_fold_of_columns_is_cut_along_a_range_of_known_size_alone(is_fixed: bool) -> None:
    rows = const_index(4096) if is_fixed else Variable("rows", 1, 4096).node
    column, outer, inner = (
        RANGE(extent, attrs=RangeAttrs(number))
        for number, extent in enumerate((const_index(1024), rows, const_index(64)))
    )
    row = simplify.add(simplify.scale(outer, 100), inner)
    x = PARAM(attrs=ParamAttrs(1, (4096 * 100 * 1024,), float32))
    load = LOAD(INDEX(x, simplify.add(simplify.scale(row, 1024), column)))
    total = REDUCE(load, outer, inner, attrs=ReduceAttrs(Fold.ADD, ()))
    target = PARAM(attrs=ParamAttrs(0, (1024,), float32))
    found = divide(SINK(STORE(INDEX(target, column), total)), HOPPER)
    assert (found is not None) == is_fixed


def folds_of_columns(rows: int, columns: int, *, nested: bool = False) -> Node:
    """Sums of x and of x * y along the rows, and what is made of both."""
    column, row = (
        RANGE(const_index(size), attrs=RangeAttrs(number))
        for number, size in enumerate((columns, rows))
    )
    place = math.ADD(math.MUL(row, const_index(columns)), column)
    x, y = (
        LOAD(INDEX(PARAM(attrs=ParamAttrs(slot, (rows * columns,), float32)), place))
        for slot in (2, 3)
    )
    first = REDUCE(x, row, attrs=ReduceAttrs(Fold.ADD, ()))
    other = math.MUL(x, first) if nested else math.MUL(x, y)
    second = REDUCE(other, row, attrs=ReduceAttrs(Fold.ADD, ()))
    values = (first, math.ADD(second, first))
    targets = [PARAM(attrs=ParamAttrs(slot, (columns,), float32)) for slot in (0, 1)]
    pairs = zip(targets, values, strict=True)
    return SINK(*(STORE(INDEX(target, column), value) for target, value in pairs))


def test_several_folds_of_the_same_rows_are_cut_alike() -> None:
    found = divide(folds_of_columns(16384, 768), HOPPER)
    assert found is not None
    (pack,) = found.packs
    parts = pack.size_bytes // (2 * 4 * 768)
    assert parts > 1
    assert [node.op for node in toposort(pack.kernel)].count(STORE) == 2
    folds = [node for node in toposort(found.kernel) if node.op is REDUCE]
    assert [size(fold.src[1]) for fold in folds] == [parts, parts]


def test_columns_of_a_fold_that_is_cut_stay_wide() -> None:
    found = divide(folds_of_columns(4096, 11008), HOPPER)
    assert found is not None, "its columns give each multiprocessor one block alone"
    plan = choose_gpu_plan(analyse(normalise_ranges(found.packs[0].kernel)), HOPPER)
    assert any(part.unit is Unit.LANE for split in plan.splits for part in split.tile)


def test_a_fold_that_needs_another_one_is_not_cut() -> None:
    assert divide(folds_of_columns(16384, 768, nested=True), HOPPER) is None


def test_several_folds_in_parts_are_right(
    library: EmulatedCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(division, "_WORTH_PARTS", 1)
    draw = np.random.default_rng(12)
    x, y = (draw.standard_normal((1024, 64)).astype(np.float32) for _ in range(2))
    ours = [Tensor(value, device="CUDA").realize() for value in (x, y)]
    library.calls.clear()
    products, plain = (ours[0] * ours[1]).sum(0), ours[0].sum(0)
    Tensor.realize(products, plain)
    assert library.calls.count("launch") == 2  # parts, and both totals
    exact = (x.astype(np.float64) * y).sum(0), x.astype(np.float64).sum(0)
    for found, wanted in zip((products, plain), exact, strict=True):
        assert np.abs(found.numpy() - wanted).max() <= 1e-5 * np.abs(wanted).max() + 1e-4


def test_a_deep_product_of_few_tiles_is_summed_in_parts() -> None:
    found = divide(product(128, 256, 1 << 16), HOPPER)
    assert found is not None
    (pack,) = found.packs
    assert pack.size_bytes % (4 * 128 * 256) == 0
    (total,) = (node for node in toposort(found.kernel) if node.op is REDUCE)
    assert total.attrs.fold is Fold.ADD


@pytest.mark.parametrize("capability", [80, 86, 89, 120])
def test_cards_whose_threads_copy_pieces_divide_products_too(capability: int) -> None:
    target = cuda_spec(capability)
    assert divide(product(4096, 4096, 4096), target) is None
    copied = divide(product(4000, 4001, 3999), target)
    assert copied is not None
    assert len(copied.packs) == 2
    in_parts = divide(product(128, 256, 1 << 16), target)
    assert in_parts is not None
    assert [node.op for node in toposort(in_parts.kernel)].count(REDUCE) == 1


def test_targets_without_matrix_units_divide_no_product() -> None:
    assert divide(product(4000, 4001, 3999), replace(HOPPER, matrix_instructions=())) is None


def test_a_divided_product_is_right_and_the_same_in_a_capture(
    library: EmulatedCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(division, "_GAIN", float("inf"))
    monkeypatch.setattr(copies, "LEAST_ROW", 1)
    draw = np.random.default_rng(2)
    a, b = (draw.standard_normal(shape).astype(np.float32) for shape in ((48, 41), (41, 23)))
    ours = [Tensor(x, device="CUDA").cast(dtypes.bfloat16).realize() for x in (a, b)]
    library.calls.clear()
    plain = (ours[0] @ ours[1]).float().numpy()
    assert library.calls.count("launch") == 3  # two copies, and the product
    rounded = [x.astype(ml_dtypes.bfloat16).astype(np.float64) for x in (a, b)]
    exact = rounded[0] @ rounded[1]
    assert np.abs(plain - exact).max() <= 2**-8 * np.abs(exact).max()
    captured = jit(lambda x, y: (x @ y).float())
    for _ in range(2):
        assert np.array_equal(captured(*ours).numpy(), plain)


def test_EXE_09_a_captured_program_copies_weights_once(
    library: EmulatedCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And again where they were written; the bits are those of a plain call."""
    monkeypatch.setattr(division, "_GAIN", float("inf"))
    monkeypatch.setattr(copies, "LEAST_ROW", 1)
    draw = np.random.default_rng(2)
    a, b = (draw.standard_normal(shape).astype(np.float32) for shape in ((48, 40), (40, 24, 3)))
    x, held = (Tensor(each, device="CUDA").cast(dtypes.bfloat16).realize() for each in (a, b))

    def layer(x: Tensor) -> Tensor:
        return (x @ held[:, :, 1]).float()  # no engine copies every third element

    captured = jit(layer)
    for _ in range(2):
        assert np.array_equal(captured(x).numpy(), layer(x).numpy())
    assert captured.captured is not None
    program = captured.captured.recipe.program
    assert program.packed is not None
    assert (len(program.packed.copies), len(program.steps)) == (1, 1)
    held.assign(held * 0.5).realize()
    assert np.array_equal(captured(x).numpy(), layer(x).numpy())


def test_factors_that_are_cast_are_stored_in_the_dtype_of_the_product() -> None:
    sink = product(4096, 4096, 4096)
    buffer = PARAM(attrs=ParamAttrs(1, (1 << 24,), float32))
    wide: dict[Node, Node] = {}
    for node in toposort(sink):
        if node.op is LOAD and node.src[0].src[0].attrs.slot == 1:
            wide[node] = cast(LOAD(INDEX(buffer, node.src[0].src[1])), bfloat16)
    (changed,) = simplify.substitute([sink], wide)
    found = divide(changed, HOPPER)
    assert found is not None
    assert [(pack.sources, pack.size_bytes) for pack in found.packs] == [((1,), 2 << 24)]


def test_a_window_of_few_channels_becomes_one_range_of_k(
    library: EmulatedCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(division, "_GAIN", float("inf"))
    draw = np.random.default_rng(4)
    x, w = (draw.standard_normal(s).astype(np.float16) for s in ((1, 3, 7, 7), (16, 3, 3, 3)))
    ours, weight = (Tensor(value, device="CUDA").realize() for value in (x, w))
    library.launches.clear()
    got = ours.conv2d(weight, stride=2, padding=1).numpy().astype(np.float64)
    assert len(library.launches) == 3  # both factors, and the product
    assert any("over_27" in name for name, *_ in library.launches)
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, ::2]
    want = np.einsum("bcyxij,ocij->boyx", windows, w.astype(np.float64))
    assert np.abs(got - want).max() <= 2**-10 * np.abs(want).max()


def test_what_follows_a_product_may_be_written_where_it_is_read(
    library: EmulatedCuda,
) -> None:
    draw = np.random.default_rng(5)
    a, b, p = (
        draw.standard_normal(shape).astype(np.float32)
        for shape in ((128, 64), (64, 128), (128, 128))
    )
    ours = [Tensor(value, device="CUDA").realize() for value in (a, b)]
    first, second = (value.cast(dtypes.bfloat16).realize() for value in ours)
    parameter = Tensor(p, device="CUDA").realize()
    library.launches.clear()
    parameter.assign(parameter * 0.5 + (first @ second).float()).realize()
    ((name, _, threads, shared),) = library.launches
    assert name.startswith("contraction")
    assert (threads, shared > 0) == (256, True)  # warp groups and a ring, not a thread a result
    rounded = [value.astype(ml_dtypes.bfloat16).astype(np.float64) for value in (a, b)]
    exact = rounded[0] @ rounded[1]
    assert np.abs(parameter.numpy() - (0.5 * p + exact)).max() <= 2**-7 * np.abs(exact).max()


def test_a_long_step_after_a_product_is_a_kernel_of_its_own(library: EmulatedCuda) -> None:
    draw = np.random.default_rng(6)
    a, b = (
        Tensor(draw.standard_normal(shape).astype(np.float32), device="CUDA")
        .cast(dtypes.bfloat16)
        .realize()
        for shape in ((128, 64), (64, 64))
    )
    p, m, v = (Tensor.ones(128, 64, device="CUDA").contiguous().realize() for _ in range(3))
    gradient = (a @ b).float()
    moment = m * 0.5 + gradient
    square = v * 0.5 + gradient * gradient
    step = p - moment / (square.sqrt() + 1.0)
    library.launches.clear()
    m.assign(moment)
    v.assign(square)
    p.assign(step)
    Tensor.realize(p, m, v)
    names = [name for name, *_ in library.launches]
    assert [name.partition("_")[0] for name in names] == ["contraction", "elementwise"]
    exact = (a.float() @ b.float()).numpy()
    rounded = exact.astype(ml_dtypes.bfloat16).astype(np.float32)
    want = 1 - (0.5 + rounded) / (np.sqrt(0.5 + rounded * rounded) + 1)
    assert np.allclose(p.numpy(), want, atol=0.05)
