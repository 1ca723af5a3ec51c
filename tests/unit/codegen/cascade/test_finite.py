"""Sums that get 0 times further products at masked positions: left out where those are finite."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.unit.codegen.cascade.test_cascade import (
    LOWEST,
    arrays,
    cascade_of,
    param,
    position,
    product,
    same,
    softmax,
    spread,
    with_small_caches,
)

from tilework.codegen.cascade.live import find_mask
from tilework.codegen.pipeline import lower_kernel
from tilework.dtypes import float32
from tilework.dtypes import int32 as INT
from tilework.ir.build import const
from tilework.ir.node import Node, toposort
from tilework.ir.ops import math, memory, tensor
from tilework.ir.ops.index import RANGE
from tilework.ir.ops.tensor import Fold
from tilework.schedule.pipeline import build_schedule
from tilework.schedule.schedule import Limits
from tilework.testing.kernels import Case, compile_to, execute, target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.ir.lowered import LoweredKernel

HEADS, ROWS, DEPTH = 2, 263, 8
#: Three blocks of keys, and what they leave.
SHAPE = (HEADS, ROWS, DEPTH)


def turned(x: Node) -> Node:
    return tensor.PERMUTE(x, attrs=tensor.AxesAttrs((0, 2, 1)))


def seen(row: Node, column: Node, mask: str) -> Node:
    """The condition under which a score is used."""
    if mask == "past":
        return math.LE(column, row)
    if mask == "future":
        return math.LE(row, column)
    return math.LE(column, math.ADD(row, const(20, INT, row.shape)))


def gradients(mask: str, factor: float | None = None) -> tuple[Node, ...]:
    """The calls that compute attention's gradients by queries, keys and values.

    Args:
        mask: Which positions are seen.
        factor: What the gradients of weights are multiplied with, if anything.
    """
    q, k, v, g = (param(slot, *SHAPE) for slot in range(4))
    scores = product(q, k)
    row, column = position(scores.shape, 1), position(scores.shape, 2)
    lowest = const(LOWEST, float32, scores.shape)
    weights = softmax(math.WHERE(seen(row, column, mask), scores, lowest))
    by_weight = product(g, v)
    if factor is not None:
        by_weight = math.MUL(by_weight, const(factor, float32, scores.shape))
    total = tensor.REDUCE(math.MUL(weights, by_weight), attrs=tensor.ReduceAttrs(Fold.ADD, (2,)))
    mean = spread(tensor.RESHAPE(total, attrs=tensor.ShapeAttrs((HEADS, ROWS, 1))), *scores.shape)
    by_score = math.MUL(weights, math.SUB(by_weight, mean))
    wanted = (
        product(by_score, turned(k)),
        product(turned(by_score), turned(q)),
        product(turned(weights), turned(g)),
    )
    again = Limits(recomputed_from=(("CPU", 0),))
    return build_schedule(memory.SINK(*wanted), limits=again).linear.src


def sums_of_rows(mask: str, factor: float | None = None) -> tuple[Node, list[int]]:
    """The kernel of what attention's gradients need of rows, and the numbers of its inputs."""
    call = gradients(mask, factor)[0]
    sink = call.src[0]
    assert len(sink.src) == 3
    return sink, [buffer.attrs.slot for buffer in call.src[1 + len(sink.src) :]]


@cache
def compiled(
    mask: str, by: str, *, in_one_pass: bool
) -> tuple[Node, list[int], LoweredKernel, bytes]:
    """The kernel, the numbers of its inputs, its statements and its code."""
    sink, slots = sums_of_rows(mask)
    lowered = lower_kernel(sink, with_small_caches() if in_one_pass else target("host"))
    assert ("running values" in lowered.plan) is in_one_pass
    return sink, slots, lowered, compile_to(by, "host", lowered)


def means(
    mask: str, inputs: Sequence[np.ndarray], by: str = "llvm", *, in_one_pass: bool = False
) -> np.ndarray:
    """The kernel's sums of weights times their gradients, by this machine."""
    sink, slots, lowered, code = compiled(mask, by, in_one_pass=in_one_pass)
    outputs = [np.zeros((HEADS, ROWS), np.float32) for _ in sink.src]
    case = Case(sink, [a.tobytes() for a in (*outputs, *(inputs[slot] for slot in slots))])
    buffers = execute(lowered, code, case).buffers
    folded = [store.src[1].src[0] for store in sink.src]
    (which,) = [n for n, body in enumerate(folded) if body.op is math.MUL]
    slot = sink.src[which].src[0].src[0].attrs.slot
    return np.frombuffer(buffers[slot], np.float32).reshape(HEADS, ROWS)


def exact(mask: str, inputs: Sequence[np.ndarray]) -> np.ndarray:
    """The same by NumPy, with nothing left out, in float32 so that the same sums overflow."""
    q, k, v, g = inputs
    row, column = np.arange(ROWS)[:, None], np.arange(ROWS)[None]
    is_seen = {"past": column <= row, "future": row <= column, "near": column <= row + 20}[mask]
    with np.errstate(all="ignore"):
        scores = np.where(is_seen, q @ k.swapaxes(1, 2), np.float32(LOWEST))
        raised = np.exp(scores - scores.max(-1, keepdims=True))
        weights = raised / raised.sum(-1, keepdims=True)
        result: np.ndarray = (weights * (g @ v.swapaxes(1, 2))).sum(-1)
        return result


@pytest.mark.parametrize("mask", ["past", "future", "near"])
def test_masked_gradients_along_rows_and_columns_have_kernels_of_their_own(mask: str) -> None:
    assert len(gradients(mask)) == 3


@pytest.mark.parametrize("mask", ["past", "future", "near"])
def test_sums_of_zero_times_a_product_leave_masked_positions_out(mask: str) -> None:
    sink, _ = sums_of_rows(mask)
    found = cascade_of(sink)
    assert found is not None
    masked = find_mask(found)
    assert masked is not None
    assert len(masked.guarded) == 1
    linear = lower_kernel(sink, target("host")).linear
    extents = [node.src[0] for node in linear.src if node.op is RANGE]
    assert any(part.op is memory.LOAD for extent in extents for part in toposort(extent))


def test_nothing_is_left_out_where_no_bound_is_known() -> None:
    found = cascade_of(sums_of_rows("past", factor=2.0)[0])
    assert found is not None
    assert find_mask(found) is None


@pytest.mark.parametrize("in_one_pass", [False, True])
@pytest.mark.parametrize("mask", ["past", "future", "near"])
def test_sums_of_rows_are_right(mask: str, in_one_pass: bool) -> None:
    inputs = arrays(*[SHAPE] * 4)
    same(means(mask, inputs, in_one_pass=in_one_pass), exact(mask, inputs), 2e-5)


@pytest.mark.parametrize("in_one_pass", [False, True])
@pytest.mark.parametrize(
    ("mask", "value"), [("past", np.nan), ("past", np.inf), ("future", -np.inf)]
)
@pytest.mark.parametrize("operand", [0, 1, 2, 3])
@pytest.mark.parametrize("at", [2, 250])
def test_special_values_come_out_as_if_nothing_was_left_out(
    mask: str, value: float, operand: int, at: int, in_one_pass: bool
) -> None:
    inputs = arrays(*[SHAPE] * 4)
    inputs[operand][1, at, 3] = value
    same(means(mask, inputs, in_one_pass=in_one_pass), exact(mask, inputs), 2e-5)


@pytest.mark.parametrize("in_one_pass", [False, True])
@pytest.mark.parametrize("by", ["llvm", "clang"])
@pytest.mark.parametrize(("mask", "at"), [("past", 250), ("future", 2)])
def test_masked_products_that_overflow_make_sums_nan(
    mask: str, at: int, by: str, in_one_pass: bool
) -> None:
    inputs = arrays(*[SHAPE] * 4)
    inputs[2][1, at, 3] = 3e38
    inputs[3][1, :, 3] = 10.0
    got = means(mask, inputs, by, in_one_pass=in_one_pass)
    same(got, exact(mask, inputs), 2e-5)
    assert np.isnan(got[1]).sum() > ROWS // 2


def test_masked_products_that_just_do_not_overflow_add_nothing() -> None:
    inputs = arrays(*[SHAPE] * 4)
    inputs[2][1, 250, 3] = 3e37
    inputs[3][1, :200, 3] = 10.0
    got = means("past", inputs)
    same(got[:, :200], exact("past", inputs)[:, :200], 2e-5)
    assert np.isfinite(got[:, :200]).all()
