"""Products of what products give on matrix units: gradients of attention by blocks of threads."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tilework.codegen.analysis import analyse
from tilework.codegen.matrix.chain import find_chain
from tilework.codegen.matrix.chain_lower import lower_chain
from tilework.codegen.passes.normalise import normalise_ranges
from tilework.codegen.pipeline import lower_kernel
from tilework.dtypes import bfloat16, float32
from tilework.ir.build import cast, const, const_index
from tilework.ir.interpret.blocks import run_blocks
from tilework.ir.node import Node
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.tensor import REDUCE, Fold, ReduceAttrs
from tilework.ir.stage import Stage
from tilework.ir.verify import verify
from tilework.render.c_family.cuda import CudaRenderer
from tilework.target.known.cuda import cuda_spec
from tilework.toolchain.nvrtc import NvrtcToolchain

HOPPER = cuda_spec(90)
WIDTH = 64
SCALE = 0.125
ADD = ReduceAttrs(Fold.ADD, ())


def range_(size: int, number: int) -> Node:
    return RANGE(const_index(size), attrs=RangeAttrs(number))


def element(slot: int, lines: int, line: Node, column: Node) -> Node:
    buffer = PARAM(attrs=ParamAttrs(slot, (lines * WIDTH,), bfloat16))
    offset = math.ADD(math.MUL(line, const_index(WIDTH)), column)
    return cast(LOAD(INDEX(buffer, offset)), float32)


def of_row(slot: int, rows: int, row: Node) -> Node:
    return LOAD(INDEX(PARAM(attrs=ParamAttrs(slot, (rows,), float32)), row))


def by_keys(rows: int, keys: int, *, narrow: bool = True) -> Node:
    """The gradients by keys and values of causal attention, of which folds of rows are known.

    Slots: both results; queries, keys, values and the results' gradient; maximum, total, and mean.
    """
    key, column, row = range_(keys, 0), range_(WIDTH, 1), range_(rows, 2)
    first, second = range_(WIDTH, 3), range_(WIDTH, 4)
    products = math.MUL(element(2, rows, row, first), element(3, keys, key, first))
    score = math.MUL(REDUCE(products, first, attrs=ADD), const(SCALE, float32))
    seen = math.LT(key, math.ADD(row, const_index(1)))
    score = math.WHERE(seen, score, const(float("-inf"), float32))
    raised = math.EXP(math.SUB(score, of_row(6, rows, row)))
    weight = math.FDIV(raised, of_row(7, rows, row))
    arriving = math.MUL(element(5, rows, row, second), element(4, keys, key, second))
    by_weight = REDUCE(arriving, second, attrs=ADD)
    by_score = math.MUL(math.SUB(by_weight, of_row(8, rows, row)), weight)
    by_score = math.WHERE(seen, by_score, const(0.0, float32))
    by_score = math.MUL(by_score, const(SCALE, float32))
    stores = []
    for slot, (factor, other) in enumerate(((by_score, 2), (weight, 5))):
        rounded = cast(cast(factor, bfloat16), float32) if narrow else factor
        body = math.MUL(rounded, element(other, rows, row, column))
        buffer = PARAM(attrs=ParamAttrs(slot, (keys * WIDTH,), bfloat16))
        place = INDEX(buffer, math.ADD(math.MUL(key, const_index(WIDTH)), column))
        stores.append(STORE(place, cast(REDUCE(body, row, attrs=ADD), bfloat16)))
    return SINK(*stores)


@pytest.mark.parametrize("settles", [False, True])
def test_gradients_by_keys_and_values_come_from_one_kernel_without_races(*, settles: bool) -> None:
    rows, keys = 72, 40
    chain = find_chain(analyse(normalise_ranges(by_keys(rows, keys))), HOPPER)
    assert chain is not None
    linear = lower_chain(replace(chain, settles=settles), HOPPER)
    verify(linear, Stage.LINEAR, after="chain")
    draw = np.random.default_rng(3)
    q, k, v, g = (
        draw.standard_normal((lines, WIDTH)).astype(ml_dtypes.bfloat16)
        for lines in (rows, keys, keys, rows)
    )
    wide_q, wide_k, wide_v, wide_g = (x.astype(np.float64) for x in (q, k, v, g))
    scores = wide_q @ wide_k.T * SCALE
    scores = np.where(np.arange(keys) <= np.arange(rows)[:, None], scores, -np.inf)
    most = scores.max(1, keepdims=True)
    raised = np.exp(scores - most)
    total = raised.sum(1, keepdims=True)
    weights = raised / total
    by_weight = wide_g @ wide_v.T
    mean = (by_weight * weights).sum(1, keepdims=True)
    by_score = weights * (by_weight - mean) * SCALE
    found = [np.full((keys, WIDTH), np.nan, dtype=ml_dtypes.bfloat16) for _ in range(2)]
    folds = [x.astype(np.float32) for x in (most, total, mean)]
    buffers = [x.view(np.uint8).data.cast("B") for x in (*found, q, k, v, g, *folds)]
    run_blocks(linear, buffers, blocks=1)
    for got, wanted in zip(found, (by_score.T @ wide_q, weights.T @ wide_g), strict=True):
        difference = np.abs(got.astype(np.float64) - wanted).max()
        assert difference <= 2**-6 * np.abs(wanted).max()


def test_the_pipeline_takes_chains_where_it_can() -> None:
    lowered = lower_kernel(by_keys(512, 512), HOPPER)
    names = {node.op.name for node in lowered.linear.src}
    assert {"matrix", "matrix_held", "copy_box", "power_of_two"} <= names
    assert lowered.threads == 384


def test_factors_that_stay_float32_are_not_shortened() -> None:
    kernel = analyse(normalise_ranges(by_keys(512, 512, narrow=False)))
    assert find_chain(kernel, HOPPER) is None


def test_other_cards_have_no_chains() -> None:
    kernel = analyse(normalise_ranges(by_keys(512, 512)))
    assert find_chain(kernel, cuda_spec(89)) is None


def test_products_of_a_chain_are_not_waited_for_one_by_one(tmp_path: Path) -> None:
    source = CudaRenderer(HOPPER.limits.shared_memory_bytes).render(
        lower_kernel(by_keys(512, 512), HOPPER)
    )
    path = tmp_path / "kernel.cubin"
    path.write_bytes(NvrtcToolchain(HOPPER).cubin(source))
    roots = find_spec("nvidia").submodule_search_locations  # type: ignore[union-attr]
    (tool,) = [found for root in roots or () for found in Path(root).rglob("bin/nvdisasm")][:1]
    code = subprocess.run([tool, "-c", path], capture_output=True, text=True, check=True).stdout
    products = code.count("HGMMA.")
    assert products == 2 * 4 + 2 * (64 // 16)
    assert code.count("WARPGROUP.DEPBAR") < products // 2


def by_queries(rows: int, keys: int, width: int) -> Node:
    """The gradient by queries of two heads that share keys and values, with a summand of scores.

    Slots: the result; queries, keys, values and the results' gradient; what is added to scores;
    maximum, total, and mean.
    """

    def wide(slot: int, lines: int, line: Node, column: Node) -> Node:
        buffer = PARAM(attrs=ParamAttrs(slot, (lines * width,), bfloat16))
        offset = math.ADD(math.MUL(line, const_index(width)), column)
        return cast(LOAD(INDEX(buffer, offset)), float32)

    head, row, column, key = range_(2, 0), range_(rows, 1), range_(width, 2), range_(keys, 3)
    first, second = range_(width, 4), range_(width, 5)
    line = math.ADD(math.MUL(head, const_index(rows)), row)
    products = math.MUL(wide(1, 2 * rows, line, first), wide(2, keys, key, first))
    score = math.MUL(REDUCE(products, first, attrs=ADD), const(SCALE, float32))
    added = PARAM(attrs=ParamAttrs(5, (rows * keys,), float32))
    offset = math.ADD(math.MUL(row, const_index(keys)), key)
    score = math.ADD(score, LOAD(INDEX(added, offset)))
    raised = math.EXP(math.SUB(score, of_row(6, 2 * rows, line)))
    weight = math.FDIV(raised, of_row(7, 2 * rows, line))
    arriving = math.MUL(wide(4, 2 * rows, line, second), wide(3, keys, key, second))
    by_weight = REDUCE(arriving, second, attrs=ADD)
    by_score = math.MUL(math.SUB(by_weight, of_row(8, 2 * rows, line)), weight)
    by_score = math.MUL(by_score, const(SCALE, float32))
    body = math.MUL(cast(cast(by_score, bfloat16), float32), wide(2, keys, key, column))
    buffer = PARAM(attrs=ParamAttrs(0, (2 * rows * width,), bfloat16))
    place = INDEX(buffer, math.ADD(math.MUL(line, const_index(width)), column))
    return SINK(STORE(place, cast(REDUCE(body, key, attrs=ADD), bfloat16)))


def test_heads_that_share_keys_and_a_summand_of_scores_take_a_chain_of_any_width() -> None:
    rows, keys, width = 9, 37, 24
    chain = find_chain(analyse(normalise_ranges(by_queries(rows, keys, width))), HOPPER)
    assert chain is not None
    linear = lower_chain(chain, HOPPER)
    verify(linear, Stage.LINEAR, after="chain")
    draw = np.random.default_rng(4)
    q, k, v, g = (
        draw.standard_normal((lines, width)).astype(ml_dtypes.bfloat16)
        for lines in (2 * rows, keys, keys, 2 * rows)
    )
    added = draw.standard_normal((rows, keys)).astype(np.float32)
    wide_q, wide_k, wide_v, wide_g = (x.astype(np.float64) for x in (q, k, v, g))
    scores = wide_q @ wide_k.T * SCALE + np.tile(added, (2, 1))
    most = scores.max(1, keepdims=True)
    total = np.exp(scores - most).sum(1, keepdims=True)
    weights = np.exp(scores - most) / total
    by_weight = wide_g @ wide_v.T
    mean = (by_weight * weights).sum(1, keepdims=True)
    wanted = (weights * (by_weight - mean) * SCALE) @ wide_k
    found = np.full((2 * rows, width), np.nan, dtype=ml_dtypes.bfloat16)
    folds = [x.astype(np.float32) for x in (most, total, mean)]
    buffers = [x.view(np.uint8).data.cast("B") for x in (found, q, k, v, g, added, *folds)]
    run_blocks(linear, buffers, blocks=1, tasks=2)
    difference = np.abs(found.astype(np.float64) - wanted).max()
    assert difference <= 2**-6 * np.abs(wanted).max()


def folds_of_rows(rows: int, keys: int) -> Node:
    """Maximum, total and mean of each row of attention; the last row sees all keys.

    Slots: these three; queries, keys, values and the results' gradient; what is added for a key.
    """
    row, key, first, second = (range_(size, n) for n, size in enumerate((rows, keys, WIDTH, WIDTH)))
    products = math.MUL(element(3, rows, row, first), element(4, keys, key, first))
    score = math.MUL(REDUCE(products, first, attrs=ADD), const(SCALE, float32))
    score = math.ADD(score, of_row(7, keys, key))
    seen = math.LT(key, math.ADD(row, const_index(keys - rows + 1)))
    score = math.WHERE(seen, score, const(float("-inf"), float32))
    most = REDUCE(score, key, attrs=ReduceAttrs(Fold.MAX, ()))
    raised = math.EXP(math.SUB(score, most))
    total = REDUCE(raised, key, attrs=ADD)
    arriving = math.MUL(element(6, rows, row, second), element(5, keys, key, second))
    by_weight = REDUCE(arriving, second, attrs=ADD)
    mean = REDUCE(math.MUL(by_weight, math.FDIV(raised, total)), key, attrs=ADD)
    stores = []
    for slot, value in enumerate((most, total, mean)):
        buffer = PARAM(attrs=ParamAttrs(slot, (rows,), float32))
        stores.append(STORE(INDEX(buffer, row), value))
    return SINK(*stores)


def test_folds_of_all_rows_are_taken_against_their_greatest_score_without_races() -> None:
    rows, keys = 16, 140
    chain = find_chain(analyse(normalise_ranges(folds_of_rows(rows, keys))), HOPPER)
    assert chain is not None
    assert chain.running is not None
    linear = lower_chain(replace(chain, block=64, slots=2), HOPPER)  # a slot is filled again
    verify(linear, Stage.LINEAR, after="chain")
    draw = np.random.default_rng(5)
    q, k, v, g = (
        draw.standard_normal((lines, WIDTH)).astype(ml_dtypes.bfloat16)
        for lines in (rows, keys, keys, rows)
    )
    q *= 24  # powers of such scores are no float32, unless they are taken against the greatest
    wide_q, wide_k, wide_v, wide_g = (x.astype(np.float64) for x in (q, k, v, g))
    added = draw.standard_normal(keys).astype(np.float32)
    scores = wide_q @ wide_k.T * SCALE + added
    scores = np.where(np.arange(keys) - (keys - rows) <= np.arange(rows)[:, None], scores, -np.inf)
    most = scores.max(1)
    raised = np.exp(scores - most[:, None])
    mean = (wide_g @ wide_v.T * raised).sum(1) / raised.sum(1)
    found = [np.full(rows, np.nan, dtype=np.float32) for _ in range(3)]
    buffers = [x.view(np.uint8).data.cast("B") for x in (*found, q, k, v, g, added)]
    run_blocks(linear, buffers, blocks=1)
    for got, wanted in zip(found, (most, raised.sum(1), mean), strict=True):
        assert np.abs(got - wanted).max() <= 1e-4 * max(np.abs(wanted).max(), 1.0)
