"""Factors that must be converted are converted once, as they are copied into panels."""

import numpy as np
import pytest

from tilework import Tensor, dtypes
from tilework.codegen.analysis import Kernel, analyse
from tilework.codegen.plan.choose import choose_plan
from tilework.dtypes import DType, bfloat16, float16, float32
from tilework.ir.build import cast, const_index
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.tensor import REDUCE, Fold, ReduceAttrs
from tilework.ir.symbolic import simplify
from tilework.target.known.cpu import x86_level_spec

TARGET = x86_level_spec("x86-64-v4", cores=2)


def product(dtype: DType, size: int) -> Kernel:
    """A matrix product of `dtype` that is accumulated in float32."""
    i, j, p = (RANGE(const_index(size), attrs=RangeAttrs(number)) for number in range(3))
    x, y, out = (
        PARAM(attrs=ParamAttrs(slot, (size * size,), kind))
        for slot, kind in ((1, dtype), (2, dtype), (0, float32))
    )
    left = LOAD(INDEX(x, simplify.add(simplify.scale(i, size), p)))
    right = LOAD(INDEX(y, simplify.add(simplify.scale(p, size), j)))
    total = REDUCE(
        math.MUL(cast(left, float32), cast(right, float32)), p, attrs=ReduceAttrs(Fold.ADD)
    )
    return analyse(SINK(STORE(INDEX(out, simplify.add(simplify.scale(i, size), j)), total)))


@pytest.mark.parametrize("dtype", [float16, bfloat16], ids=repr)
def test_both_small_factors_are_staged(dtype: DType) -> None:
    staged = choose_plan(product(dtype, 1024), TARGET).staged
    assert [copy.operand for copy in staged] == [0, 1]


def test_a_factor_that_needs_no_conversion_is_read_where_it_lies() -> None:
    staged = choose_plan(product(float32, 1024), TARGET).staged
    assert [copy.operand for copy in staged] == [1]


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_products_of_small_floats_are_accumulated_in_float32(name: str) -> None:
    dtype = getattr(dtypes, name)
    x = (np.arange(130 * 300).reshape(130, 300) % 13 - 6).astype(np.float32)
    y = (np.arange(300 * 70).reshape(300, 70) % 7 - 3).astype(np.float32)
    found = Tensor(x).cast(dtype).matmul(Tensor(y).cast(dtype), dtype=dtypes.float32).numpy()
    np.testing.assert_array_equal(found, x @ y)
