"""Sorts by blocks of threads: rows that fit one, and longer rows in three kernels for a digit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.emulated_cards import emulated_cards

from tilework import Tensor, dtypes
from tilework.base.errors import InternalError
from tilework.base.settings import override
from tilework.codegen.gpu import sort_block, sort_passes
from tilework.codegen.gpu.sort_block import Tile, tile_for
from tilework.codegen.gpu.sort_passes import lower_sort_pass, sort_in_passes
from tilework.codegen.sort.statements import Statements
from tilework.dtypes import DType, float32, int32, int64
from tilework.engine import splits
from tilework.engine.kernels import written_slots
from tilework.ir.build import const_bits, const_index
from tilework.ir.interpret.blocks import run_blocks
from tilework.ir.interpret.sorts import sorting_number
from tilework.ir.node import Node, in_use
from tilework.ir.ops.control import BARRIER
from tilework.ir.ops.index import RANGE, RangeAttrs, Unit
from tilework.ir.ops.memory import INDEX, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.sort import COUNT_UP, RANK_IN_WARP, SORT_ROWS, SortRowsAttrs
from tilework.ir.symbolic import simplify
from tilework.target.known.cuda import cuda_spec
from tilework.testing.emulators.cuda import EmulatedCuda

HOPPER = cuda_spec(90)
SMALL = Tile(32, 2, 4)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedCuda]:
    splits.clear_memory()
    with override(cache_dir=None), emulated_cards(monkeypatch) as found:
        yield found
    splits.clear_memory()


@pytest.fixture
def passes(library: EmulatedCuda, monkeypatch: pytest.MonkeyPatch) -> EmulatedCuda:
    """Rows are sorted in passes over tiles of 64 elements, by digits of 4 bits."""
    monkeypatch.setattr(sort_passes, "_tile", lambda dtype, target: SMALL)
    monkeypatch.setattr(sort_passes, "tile_of_row", lambda sink, target: None)
    return library


@pytest.fixture
def one_block(library: EmulatedCuda, monkeypatch: pytest.MonkeyPatch) -> EmulatedCuda:
    """Rows are sorted by two warps, of 4 elements a thread."""
    monkeypatch.setattr(sort_passes, "tile_of_row", lambda sink, target: Tile(64, 4, 4))
    monkeypatch.setattr(sort_block, "tile_of_row", lambda sink, target: Tile(64, 4, 4))
    return library


def order_of(x: Any, descending: bool) -> Any:
    """Stable positions; NaN counts as greatest."""
    if not descending:
        return np.argsort(x, axis=-1, kind="stable")
    mirrored = np.argsort(x[..., ::-1], axis=-1, kind="stable")
    return x.shape[-1] - 1 - mirrored[..., ::-1]


def drawn(dtype: str, shape: tuple[int, ...]) -> Any:
    draw = np.random.default_rng(0)
    if dtype.startswith("float"):
        x = draw.standard_normal(shape).astype(dtype)
        x[..., ::3], x[..., 1::7], x[..., 5] = 0.0, -0.0, np.nan
        x[..., 60], x[..., 11], x[..., 12] = -np.nan, np.inf, -np.inf
        return x
    return draw.integers(0 if dtype == "uint8" else -90, 90, shape).astype(dtype)


def check(x: Any, descending: bool) -> None:
    """Both what is sorted and where it was, bit for bit."""
    given = Tensor(x, device="CUDA").realize()
    want = order_of(x, descending)
    values = given.sort(descending=descending)[0].numpy()
    sorted_ = np.take_along_axis(x, want, -1)
    assert np.array_equal(values.view(np.uint8), sorted_.view(np.uint8))
    assert np.array_equal(given.argsort(descending=descending).numpy(), want)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "uint8", "int16"])
def test_rows_of_several_tiles_are_sorted_in_passes(
    passes: EmulatedCuda, dtype: str, descending: bool
) -> None:
    check(drawn(dtype, (2, 150)), descending)
    assert len(passes.launches) == 2 * 3 * np.dtype(dtype).itemsize * 2


def test_float32_in_passes_keeps_zeros_and_nan_as_they_were(passes: EmulatedCuda) -> None:
    check(drawn("float32", (1, 130)), descending=False)


def test_keys_of_64_bits_are_sorted_in_passes(passes: EmulatedCuda) -> None:
    x = np.random.default_rng(1).integers(-(1 << 62), 1 << 62, 100)
    assert np.array_equal(Tensor(x, device="CUDA").argsort().numpy(), np.argsort(x))


def test_of_the_last_pass_only_wanted_ranks_are_written(passes: EmulatedCuda) -> None:
    x = drawn("int16", (2, 140))
    values, positions = Tensor(x, device="CUDA").realize().topk(5)
    want = order_of(x, descending=True)[:, :5]
    assert np.array_equal(positions.numpy(), want)
    assert np.array_equal(values.numpy(), np.take_along_axis(x, want, -1))


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "int16"])
def test_a_row_that_fits_a_block_is_sorted_by_it(
    one_block: EmulatedCuda, dtype: str, descending: bool
) -> None:
    check(drawn(dtype, (2, 201)), descending)
    assert [row[1:3] for row in one_block.launches] == [(2, 64)] * 2


def test_a_block_writes_only_wanted_ranks(one_block: EmulatedCuda) -> None:
    x = drawn("float16", (2, 130))
    positions = Tensor(x, device="CUDA").realize().kthvalue(40)[1].numpy()
    assert np.array_equal(positions, order_of(x, descending=False)[:, 39])


def rows_sink(size: int, rows: int = 1, dtype: DType = float32, *, values: bool = True) -> Node:
    row = RANGE(const_index(rows), attrs=RangeAttrs(0))
    kind = dtype if values else dtypes.index
    target = PARAM(attrs=ParamAttrs(0, (rows * size,), kind))
    source = PARAM(attrs=ParamAttrs(1, (rows * size,), dtype))
    at = simplify.scale(row, size)
    attrs = SortRowsAttrs(descending=False, values=values)
    return SINK(SORT_ROWS(INDEX(target, at), INDEX(source, at), const_index(size), attrs=attrs))


def test_elements_alone_need_one_more_buffer_and_the_counts() -> None:
    with in_use():
        found = sort_in_passes(rows_sink(1 << 26), HOPPER)
    assert found is not None
    assert len(found.packs) == 11
    own = [pack.size_bytes for pack in found.packs if pack.size_bytes]
    assert len(own) == 2
    assert max(own) == 4 << 26


def test_positions_are_moved_beside_their_keys() -> None:
    with in_use():
        found = sort_in_passes(rows_sink(1 << 20, values=False), HOPPER)
    assert found is not None
    assert sorted(pack.size_bytes for pack in found.packs)[-2:] == [8 << 20, 8 << 20]


def test_what_a_pass_writes_is_known_to_the_engine() -> None:
    with in_use():
        found = sort_in_passes(rows_sink(1 << 20), HOPPER)
        assert found is not None
        assert [written_slots(pack.kernel) for pack in found.packs[:3]] == [(0,), (0,), (0,)]
        assert written_slots(found.kernel) == (0,)


def test_rows_that_fit_a_block_and_short_ones_are_not_divided() -> None:
    with in_use():
        assert sort_in_passes(rows_sink(8192, rows=4), HOPPER) is None
        assert sort_in_passes(rows_sink(40, rows=4), HOPPER) is None


def test_a_tile_holds_what_shared_memory_does() -> None:
    assert tile_for(float32, 16384, HOPPER) == Tile(1024, 16)
    assert tile_for(int64, 16384, HOPPER) is not None
    assert tile_for(int64, 16384, cuda_spec(75)) is None


def test_each_element_of_a_thread_is_ranked_in_its_warp() -> None:
    with in_use():
        found = sort_in_passes(rows_sink(1 << 16), HOPPER, Tile(512, 16))
        assert found is not None
        linear, _, threads = lower_sort_pass(found.kernel, HOPPER)
        assert threads == 512
        assert sum(node.op is RANK_IN_WARP for node in linear.src) == 16


def counted(*, waits: bool) -> list[int]:
    """What 32 threads find in a counter that each of them has raised."""
    out = Statements()
    result = PARAM(attrs=ParamAttrs(0, (32,), int32))
    with out.loop(1, Unit.THREAD), out.loop(32, Unit.LOCAL) as thread:
        counters = out.allocate(int32, 1)
        first = simplify.equal(thread, const_index(0))
        counter = INDEX(counters, const_index(0))
        out.emit(STORE(counter, const_bits(0, int32), out.emit(first)))
        out.emit(BARRIER(thread, const_index(1)))
        out.emit(COUNT_UP(counter))
        if waits:
            out.emit(BARRIER(thread, const_index(2)))
        out.store(result, thread, out.load(counters, const_index(0)))
    memory = np.zeros(32, np.int32)
    run_blocks(out.linear(), [memory.data.cast("B")], blocks=1)
    return memory.tolist()


def test_threads_that_count_up_one_counter_need_no_order() -> None:
    with in_use():
        assert counted(waits=True) == [32] * 32


def test_a_counter_is_read_behind_a_barrier_alone() -> None:
    with in_use(), pytest.raises(InternalError):
        counted(waits=False)


@pytest.mark.parametrize("descending", [False, True])
def test_numbers_of_elements_compare_as_they_are_sorted(descending: bool) -> None:
    ordered = [-np.inf, -2.0, -1e-40, 0.0, 1e-40, 3.0, np.inf, np.nan]
    numbers = [sorting_number(float(x), float32, descending=descending) for x in ordered]
    assert numbers == sorted(numbers, reverse=descending)
    assert len(set(numbers)) == len(numbers)
    zero = sorting_number(-0.0, float32, descending=descending)
    assert zero == sorting_number(0.0, float32, descending=descending)
