"""Products of 16 bits that cannot be grouped take a word each, and are exact modulo 2**32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilework import Tensor, dtypes, jit
from tilework.codegen.analysis import analyse
from tilework.codegen.plan.single_products import with_single_products
from tilework.dtypes import DType, float32, int8, int16, int32, int64, uint8, uint16, uint32
from tilework.ir.build import cast, const_bits, const_index
from tilework.ir.node import Node, toposort
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.tensor import REDUCE, Fold, ReduceAttrs
from tilework.target.known.cpu import aarch64_spec, x86_level_spec

TARGET = x86_level_spec("x86-64-v3", cores=2)
ROWS, DEPTH = 16, 9


def load(slot: int, dtype: DType, offset: Node) -> Node:
    return LOAD(INDEX(PARAM(attrs=ParamAttrs(slot, (ROWS * DEPTH,), dtype)), offset))


def folded(a: DType, b: DType, total: DType = int32, fold: Fold = Fold.ADD, point: int = 0) -> Node:
    """For each row a fold of products, of which one factor is the same for all rows."""
    row, at = (
        RANGE(const_index(size), attrs=RangeAttrs(n)) for n, size in enumerate((ROWS, DEPTH))
    )
    here = math.ADD(math.MUL(row, const_index(DEPTH)), at)
    x = cast(load(1, a, here), total)
    if point:
        x = math.SUB(x, const_bits(point, total))
    y = cast(load(2, b, at), total)
    found = REDUCE(math.MUL(x, y), at, attrs=ReduceAttrs(fold))
    return SINK(STORE(INDEX(PARAM(attrs=ParamAttrs(0, (ROWS,), total)), row), found))


def value_of(kernel: Node) -> Node:
    (found,) = [
        n for n in toposort(with_single_products(analyse(kernel), TARGET)) if n.op is REDUCE
    ]
    return found.src[0]


@pytest.mark.parametrize(("a", "b"), [(uint8, int8), (int8, int8), (int16, uint8), (int16, int16)])
@pytest.mark.parametrize("total", [int32, uint32])
def test_a_product_takes_half_a_word(a: DType, b: DType, total: DType) -> None:
    value = value_of(folded(a, b, total))
    assert value.op is math.DOT_PAIRS
    half, other = value.src[:2]
    # The half is made of what is the same for all rows.
    assert half.op is math.AND
    assert [n.attrs.slot for n in toposort(half) if n.op is PARAM] == [2]
    assert [n.attrs.slot for n in toposort(other) if n.op is PARAM] == [1]


def test_a_zero_point_may_be_within_16_bits() -> None:
    assert value_of(folded(uint8, int8, point=113)).op is math.DOT_PAIRS
    assert value_of(folded(uint8, int8, point=40000)).op is math.MUL


@pytest.mark.parametrize(
    "kernel",
    [
        folded(uint16, int8),
        folded(int32, int8),
        folded(int8, int8, int64),
        folded(int8, int8, float32),
        folded(int8, int8, fold=Fold.MAX),
    ],
    ids=["unsigned 16 bits", "32 bits", "a wide sum", "a sum of floats", "another fold"],
)
def test_other_products_stay(kernel: Node) -> None:
    assert value_of(kernel).op is math.MUL


def test_a_target_without_pairs_multiplies() -> None:
    kernel = folded(int8, int8)
    assert with_single_products(analyse(kernel), aarch64_spec()) is kernel


@pytest.mark.parametrize("device", ["PYTHON", "CPU:CLANG", "CPU"])
@pytest.mark.parametrize("captured", [False, True], ids=["plain", "captured"])
@pytest.mark.parametrize("dtypes_", [("uint8", "int8"), ("int8", "int8"), ("int16", "int16")])
@pytest.mark.parametrize(("stride", "padding"), [(1, 1), (2, (0, 2, 1, 0))])
def test_depthwise_convolutions_are_exact(
    device: str, captured: bool, dtypes_: tuple[str, str], stride: int, padding: Any
) -> None:
    first, second = dtypes_
    rng = np.random.default_rng(3)
    low, high = np.iinfo(first).min, np.iinfo(first).max
    x = rng.choice([low, high, 0, 1, low + 1], (1, 20, 9, 6)).astype(first)
    low, high = np.iinfo(second).min, np.iinfo(second).max
    w = rng.choice([low, high, low + 1, -1], (20, 1, 3, 3)).astype(second)
    weight = Tensor(w, device=device)

    def convolved(value: Tensor) -> Tensor:
        return (value.cast(dtypes.int32) - 5).conv2d(
            weight.cast(dtypes.int32), None, 20, stride, 1, padding, dtype=dtypes.int32
        )

    run = jit(convolved) if captured else convolved
    found = run(Tensor(x, device=device)).numpy()
    wide = Tensor(x, device="CPU").cast(dtypes.int64) - 5
    exact = wide.conv2d(
        Tensor(w, device="CPU").cast(dtypes.int64), None, groups=20, stride=stride, padding=padding
    )
    assert np.array_equal(found, exact.numpy().astype(np.int32))
