"""Cascades in one pass on matrix units: attention as blocks of threads compute it."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tilework.codegen.analysis import analyse
from tilework.codegen.matrix.stream import find_stream
from tilework.codegen.matrix.stream_lower import lower_stream
from tilework.codegen.passes.normalise import normalise_ranges
from tilework.codegen.pipeline import lower_kernel
from tilework.dtypes import DType, bfloat16, bool_, float32
from tilework.ir.build import cast, const, const_index
from tilework.ir.interpret.blocks import run_blocks
from tilework.ir.node import Node
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.tensor import REDUCE, Fold, ReduceAttrs
from tilework.ir.stage import Stage
from tilework.ir.verify import verify
from tilework.target.known.cuda import cuda_spec

HOPPER = cuda_spec(90)
WIDTH = 64
SCALE = 0.125


def attention(rows: int, keys: int, *, causal: bool, weights: DType = bfloat16) -> Node:
    """softmax(scale q k^T) v with everything in one kernel, at the KERNEL stage."""

    def range_(size: int, number: int) -> Node:
        return RANGE(const_index(size), attrs=RangeAttrs(number))

    def load(slot: int, lines: int, line: Node, column: Node) -> Node:
        buffer = PARAM(attrs=ParamAttrs(slot, (lines * WIDTH,), bfloat16))
        offset = math.ADD(math.MUL(line, const_index(WIDTH)), column)
        return cast(LOAD(INDEX(buffer, offset)), float32)

    row, column = range_(rows, 0), range_(WIDTH, 1)

    def score(key: Node, number: int) -> Node:
        inner = range_(WIDTH, number)
        products = math.MUL(load(1, rows, row, inner), load(2, keys, key, inner))
        total = REDUCE(products, inner, attrs=ReduceAttrs(Fold.ADD, ()))
        scaled = math.MUL(total, const(SCALE, float32))
        if not causal:
            return scaled
        seen = math.LT(key, math.ADD(row, const_index(1)))
        return math.WHERE(seen, scaled, const(float("-inf"), float32))

    first, second, third = (range_(keys, number) for number in (10, 11, 12))
    most = REDUCE(score(first, 20), first, attrs=ReduceAttrs(Fold.MAX, ()))
    terms = [math.EXP(math.SUB(score(k, n), most)) for k, n in ((second, 21), (third, 22))]
    total = REDUCE(terms[0], second, attrs=ReduceAttrs(Fold.ADD, ()))
    weight = cast(cast(math.FDIV(terms[1], total), weights), float32)
    result = REDUCE(
        math.MUL(weight, load(3, keys, third, column)), third, attrs=ReduceAttrs(Fold.ADD, ())
    )
    buffer = PARAM(attrs=ParamAttrs(0, (rows * WIDTH,), bfloat16))
    target = INDEX(buffer, math.ADD(math.MUL(row, const_index(WIDTH)), column))
    return SINK(STORE(target, cast(result, bfloat16)))


def expected(q: np.ndarray, k: np.ndarray, v: np.ndarray, *, causal: bool) -> np.ndarray:
    q, k, v = (array.astype(np.float64) for array in (q, k, v))
    scores = q @ k.T * SCALE
    if causal:
        scores = np.where(np.arange(len(k)) <= np.arange(len(q))[:, None], scores, -np.inf)
    weights = np.exp(scores - scores.max(1, keepdims=True))
    result: np.ndarray = weights @ v / weights.sum(1, keepdims=True)
    return result


@pytest.mark.parametrize(("rows", "keys", "causal"), [(24, 40, False), (72, 136, True)])
def test_one_pass_computes_what_the_kernel_says(rows: int, keys: int, *, causal: bool) -> None:
    kernel = analyse(normalise_ranges(attention(rows, keys, causal=causal)))
    stream = find_stream(kernel, HOPPER)
    assert stream is not None
    linear = lower_stream(stream, HOPPER)
    verify(linear, Stage.LINEAR, after="stream")
    draw = np.random.default_rng(3)
    q, k, v = (
        draw.standard_normal((lines, WIDTH)).astype(ml_dtypes.bfloat16)
        for lines in (rows, keys, keys)
    )
    found = np.full((rows, WIDTH), np.nan, dtype=ml_dtypes.bfloat16)
    run_blocks(linear, [x.view(np.uint8).data.cast("B") for x in (found, q, k, v)], blocks=1)
    wanted = expected(q, k, v, causal=causal)
    assert np.abs(found.astype(np.float64) - wanted).max() <= 2**-7 * np.abs(wanted).max()


def test_the_pipeline_takes_one_pass_where_it_can() -> None:
    lowered = lower_kernel(attention(256, 256, causal=True), HOPPER)
    names = {node.op.name for node in lowered.linear.src}
    assert {"matrix", "matrix_held", "copy_box", "fold_quad"} <= names
    assert lowered.threads == 384


def test_weights_that_stay_float32_are_not_shortened() -> None:
    kernel = analyse(normalise_ranges(attention(256, 256, causal=True, weights=float32)))
    assert find_stream(kernel, HOPPER) is None


def test_other_cards_have_no_such_pass() -> None:
    kernel = analyse(normalise_ranges(attention(256, 256, causal=False)))
    assert find_stream(kernel, cuda_spec(89)) is None


def shared_heads(rows: int, keys: int, width: int) -> Node:
    """Two heads of queries that share keys and values, under a mask; rows without any are 0.

    Slots: the result; queries, keys, values; the mask, one bool for each query and key.
    """

    def range_(size: int, number: int) -> Node:
        return RANGE(const_index(size), attrs=RangeAttrs(number))

    def load(slot: int, lines: int, line: Node, column: Node) -> Node:
        buffer = PARAM(attrs=ParamAttrs(slot, (lines * width,), bfloat16))
        offset = math.ADD(math.MUL(line, const_index(width)), column)
        return cast(LOAD(INDEX(buffer, offset)), float32)

    head, row, column = range_(2, 0), range_(rows, 1), range_(width, 2)
    line = math.ADD(math.MUL(head, const_index(rows)), row)
    lowest, zero = const(float("-inf"), float32), const(0.0, float32)
    mask = PARAM(attrs=ParamAttrs(4, (rows * keys,), bool_))

    def score(key: Node, number: int) -> Node:
        inner = range_(width, number)
        products = math.MUL(load(1, 2 * rows, line, inner), load(2, keys, key, inner))
        total = REDUCE(products, inner, attrs=ReduceAttrs(Fold.ADD, ()))
        scaled = math.MUL(total, const(SCALE, float32))
        seen = LOAD(INDEX(mask, math.ADD(math.MUL(row, const_index(keys)), key)))
        return math.WHERE(seen, scaled, lowest)

    first, second, third = (range_(keys, number) for number in (10, 11, 12))
    most = REDUCE(score(first, 20), first, attrs=ReduceAttrs(Fold.MAX, ()))
    reference = math.WHERE(math.EQ(most, lowest), zero, most)
    terms = [math.EXP(math.SUB(score(k, n), reference)) for k, n in ((second, 21), (third, 22))]
    total = REDUCE(terms[0], second, attrs=ReduceAttrs(Fold.ADD, ()))
    divisor = math.WHERE(math.EQ(total, zero), const(1.0, float32), total)
    weight = cast(cast(math.FDIV(terms[1], divisor), bfloat16), float32)
    body = math.MUL(weight, load(3, keys, third, column))
    result = REDUCE(body, third, attrs=ReduceAttrs(Fold.ADD, ()))
    buffer = PARAM(attrs=ParamAttrs(0, (2 * rows * width,), bfloat16))
    target = INDEX(buffer, math.ADD(math.MUL(line, const_index(width)), column))
    return SINK(STORE(target, cast(result, bfloat16)))


@pytest.mark.parametrize("width", [24, pytest.param(256, marks=pytest.mark.slow)])
def test_shared_heads_under_a_mask_of_any_width_take_one_pass(width: int) -> None:
    rows, keys = 10, 36
    stream = find_stream(analyse(normalise_ranges(shared_heads(rows, keys, width))), HOPPER)
    assert stream is not None
    assert stream.block == (64 if width == 256 else 128)
    linear = lower_stream(stream, HOPPER)
    verify(linear, Stage.LINEAR, after="stream")
    draw = np.random.default_rng(5)
    q, k, v = (
        draw.standard_normal((lines, width)).astype(ml_dtypes.bfloat16)
        for lines in (2 * rows, keys, keys)
    )
    mask = draw.random((rows, keys)) < 0.5
    mask[3] = False
    found = np.full((2 * rows, width), np.nan, dtype=ml_dtypes.bfloat16)
    buffers = [x.view(np.uint8).data.cast("B") for x in (found, q, k, v, mask)]
    run_blocks(linear, buffers, blocks=1, tasks=2)
    scores = q.astype(np.float64) @ k.astype(np.float64).T * SCALE
    scores = np.where(np.tile(mask, (2, 1)), scores, -1e300)
    weights = np.exp(scores - scores.max(1, keepdims=True))
    wanted = weights / weights.sum(1, keepdims=True) @ v.astype(np.float64)
    wanted[[3, rows + 3]] = 0.0
    assert np.abs(found.astype(np.float64) - wanted).max() <= 2**-6 * np.abs(wanted).max()
