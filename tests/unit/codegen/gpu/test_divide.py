"""Kernels that are run as several: copies of factors that no copy engine takes, parts of k."""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest

from tilework import Tensor, dtypes, jit
from tilework.backends import cuda
from tilework.codegen.gpu import divide as division
from tilework.codegen.gpu.divide import divide
from tilework.dtypes import bfloat16, float32
from tilework.engine.device import Device
from tilework.ir.build import cast, const_index
from tilework.ir.node import Node, toposort
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.tensor import REDUCE, Fold, ReduceAttrs
from tilework.target.known.cuda import cuda_spec
from tilework.testing.emulators.cuda import EmulatedCuda
from tilework.testing.emulators.cuda_device import emulated_backend

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
    found = EmulatedCuda()
    monkeypatch.setattr(cuda, "BACKEND", emulated_backend(found))
    yield found
    for name in Device.opened():
        if name.startswith("CUDA"):
            Device[name].close()


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


def test_a_deep_product_of_few_tiles_is_summed_in_parts() -> None:
    found = divide(product(128, 256, 1 << 16), HOPPER)
    assert found is not None
    (pack,) = found.packs
    assert pack.size_bytes % (4 * 128 * 256) == 0
    (total,) = (node for node in toposort(found.kernel) if node.op is REDUCE)
    assert total.attrs.fold is Fold.ADD


def test_targets_without_copies_in_boxes_divide_nothing() -> None:
    assert divide(product(4000, 4001, 3999), cuda_spec(80)) is None


def test_a_divided_product_is_right_and_the_same_in_a_capture(
    library: EmulatedCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(division, "_GAIN", float("inf"))
    monkeypatch.setattr(division, "_LEAST_ROW", 1)
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
