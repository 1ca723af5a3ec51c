"""Values that their rounding holds exactly are read from it; others, and their readers, stay."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
from tests.unit.schedule.schedule_builders import param, permute, reshape

from tilework.dtypes import DType, bfloat16, float16, float32
from tilework.ir.interpret import Value, evaluate
from tilework.ir.node import Node, toposort
from tilework.ir.ops import math, memory, tensor
from tilework.ir.ops.tensor import Fold
from tilework.schedule.passes.exact import read_roundings

KINDS = ("CUDA", "CPU", "")


def cast(x: Node, dtype: DType) -> Node:
    return math.CAST(x, attrs=math.CastAttrs(dtype))


def widened(slot: int, dtype: DType = bfloat16) -> Node:
    return cast(param(slot, (32, 16), dtype), float32)


def padded(x: Node, before: int, after: int) -> Node:
    return tensor.PAD(x, attrs=tensor.PadAttrs(((0, 0), (before, after))))


def beside(*, overlap: int = 0, second: DType = bfloat16) -> Node:
    """Two arrays of 16 columns side by side in 32."""
    first = padded(widened(0), 0, 16)
    return math.ADD(first, padded(widened(1, second), 16 - overlap, overlap))


def summed(x: Node) -> Node:
    return tensor.REDUCE(x, attrs=tensor.ReduceAttrs(Fold.ADD, (0,)))


def outputs(x: Node) -> Node:
    return memory.SINK(cast(x, bfloat16), summed(x))


def test_the_sum_of_what_is_put_side_by_side_reads_the_rounding() -> None:
    x = beside()
    found = read_roundings(outputs(x), KINDS)
    assert found is memory.SINK(cast(x, bfloat16), summed(cast(cast(x, bfloat16), float32)))


def test_what_was_turned_after_it_was_padded_is_seen() -> None:
    parts = [permute(padded(widened(n), 16 * n, 16 - 16 * n), 1, 0) for n in (0, 1)]
    x = math.ADD(*parts)
    assert read_roundings(outputs(x), KINDS) is not outputs(x)


def heads(*, shape: tuple[int, ...], taken: tuple[int, int] = (0, 1)) -> Node:
    """Two of three parts of four columns each, with their axes merged."""
    parts = []
    for slot, place in enumerate(taken):
        x = cast(param(slot, (32, 1, 4), bfloat16), float32)
        around = ((0, 0), (place, 2 - place), (0, 0))
        parts.append(reshape(tensor.PAD(x, attrs=tensor.PadAttrs(around)), *shape))
    return math.ADD(*parts)


@pytest.mark.parametrize("shape", [(32, 12), (1, 32, 12), (32, 1, 3, 4, 1)])
def test_parts_whose_axes_are_merged_are_apart(shape: tuple[int, ...]) -> None:
    x = heads(shape=shape)
    made = memory.SINK(cast(x, bfloat16), summed(x))
    assert read_roundings(made, KINDS) is not made


@pytest.mark.parametrize(
    ("shape", "taken"), [((32, 12), (1, 1)), ((384,), (0, 2)), ((64, 6), (0, 2))]
)
def test_parts_that_are_mixed_or_meet_are_not_apart(
    shape: tuple[int, ...], taken: tuple[int, int]
) -> None:
    x = heads(shape=shape, taken=taken)
    made = memory.SINK(cast(x, bfloat16), summed(x))
    assert read_roundings(made, KINDS) is made


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda: outputs(beside(overlap=1)), id="parts that overlap"),
        pytest.param(lambda: outputs(beside(second=float16)), id="two dtypes"),
        pytest.param(lambda: memory.SINK(summed(beside())), id="no rounding"),
        pytest.param(lambda: memory.SINK(cast(beside(), float16), summed(beside())), id="another"),
        pytest.param(lambda: memory.SINK(cast(beside(), bfloat16)), id="no other reader"),
        pytest.param(lambda: outputs(math.ADD(widened(0), widened(1))), id="a true sum"),
        pytest.param(lambda: outputs(widened(0)), id="stored so already"),
    ],
)
def test_other_functions_are_left_alone(function: Callable[[], Node]) -> None:
    made = function()
    assert read_roundings(made, KINDS) is made
    assert made in toposort(made)


def test_functions_of_other_devices_are_left_alone() -> None:
    made = outputs(beside())
    assert read_roundings(made, ("OTHER",)) is made


def test_signs_of_zero_infinities_and_nan_are_kept() -> None:
    values = np.array([[-0.0, 0.0, np.inf, -np.inf, np.nan, 1.5, -2.25, 3e-39]], np.float32)
    x = param(0, (1, 8), bfloat16)
    first, second = padded(cast(x, float32), 0, 8), padded(cast(x, float32), 8, 0)
    wide = math.ADD(first, second)
    made = memory.SINK(cast(wide, bfloat16), math.NEG(wide))
    found = read_roundings(made, KINDS)
    assert found.src[1] is not made.src[1]
    given = {x: Value((1, 8), bfloat16, rounded(values).tolist())}
    plain, kept = (np.array(evaluate(one.src[1], given).elements) for one in (made, found))
    assert np.array_equal(plain, kept, equal_nan=True)
    assert np.array_equal(np.signbit(plain[plain == 0]), np.signbit(kept[kept == 0]))


def rounded(values: np.ndarray) -> np.ndarray:
    """Each value as bfloat16 has it, in one row."""
    return values.astype(ml_dtypes.bfloat16).astype(np.float64).reshape(-1)
