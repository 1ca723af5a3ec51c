"""Cascades in one pass on matrix units: attention as blocks of threads compute it."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from tests.attention_kernels import SCALE, WIDTH, attention, expected, shared_heads

from tilework.base.records import replace
from tilework.codegen.analysis import analyse
from tilework.codegen.matrix.stream import Stream, find_stream
from tilework.codegen.matrix.stream_lower import lower_stream
from tilework.codegen.passes.normalise import normalise_ranges
from tilework.codegen.pipeline import lower_kernel
from tilework.codegen.plan.extents import ceil_div, size
from tilework.dtypes import DType, bfloat16, float16, float32
from tilework.ir.interpret.blocks import run_blocks
from tilework.ir.stage import Stage
from tilework.ir.verify import verify
from tilework.target.known.cuda import cuda_spec
from tilework.target.spec import TargetSpec

HOPPER, AMPERE, TURING = cuda_spec(90), cuda_spec(80), cuda_spec(75)
ARRAYS = {bfloat16: np.dtype(ml_dtypes.bfloat16), float16: np.dtype(np.float16)}


def by_crew(stream: Stream, groups: int, block: int, slots: int) -> Stream:
    """The same with so many warps, positions and slots."""
    crew = replace(stream.crew, groups=groups)
    return replace(stream, crew=crew, block=block, slots=slots)


def is_close(stream: Stream, target: TargetSpec, dtype: DType, *, causal: bool) -> bool:
    """Run a stream of attention over random numbers; is it what the kernel says?"""
    rows, keys = size(stream.row), size(stream.key)
    linear = lower_stream(stream, target)
    verify(linear, Stage.LINEAR, after="stream")
    draw = np.random.default_rng(3)
    kind = ARRAYS[dtype]
    q, k, v = (draw.standard_normal((n, WIDTH)).astype(kind) for n in (rows, keys, keys))
    found = np.full((rows, WIDTH), np.nan, dtype=kind)
    blocks = ceil_div(rows, stream.crew.rows) if stream.crew.is_warps else 1
    run_blocks(linear, [x.view(np.uint8).data.cast("B") for x in (found, q, k, v)], blocks=blocks)
    wanted = expected(q, k, v, causal=causal)
    return bool(np.abs(found.astype(np.float64) - wanted).max() <= 2**-7 * np.abs(wanted).max())


@pytest.mark.parametrize(("rows", "keys", "causal"), [(24, 40, False), (72, 136, True)])
def test_one_pass_computes_what_the_kernel_says(rows: int, keys: int, *, causal: bool) -> None:
    stream = find_stream(analyse(normalise_ranges(attention(rows, keys, causal=causal))), HOPPER)
    assert stream is not None
    assert is_close(stream, HOPPER, bfloat16, causal=causal)


@pytest.mark.parametrize(
    ("target", "dtype", "causal", "cut"),
    [
        (AMPERE, bfloat16, False, (1, 32, 2)),
        (AMPERE, float16, True, (2, 16, 3)),
        (TURING, float16, True, (2, 16, 2)),
        (TURING, float16, False, (1, 32, 2)),
    ],
)
def test_warps_compute_what_the_kernel_says_without_races(
    target: TargetSpec, dtype: DType, *, causal: bool, cut: tuple[int, int, int]
) -> None:
    """Copies that run beside the threads, loads that are held, and loads behind a block."""
    sink = attention(40, 72, causal=causal, dtype=dtype)
    stream = find_stream(analyse(normalise_ranges(sink)), target)
    assert stream is not None
    assert stream.crew.instruction.unit == "warp"
    assert is_close(by_crew(stream, *cut), target, dtype, causal=causal)


@pytest.mark.parametrize(("target", "cut"), [(HOPPER, None), (AMPERE, (1, 32, 2))])
def test_a_rows_maximum_and_total_leave_with_the_result_without_races(
    target: TargetSpec, cut: tuple[int, int, int] | None
) -> None:
    rows, keys = 18, 40
    sink = attention(rows, keys, causal=True, keeps=True)
    stream = find_stream(analyse(normalise_ranges(sink)), target)
    assert stream is not None
    stream = by_crew(stream, *cut) if cut else stream
    draw = np.random.default_rng(3)
    kind = ARRAYS[bfloat16]
    q, k, v = (draw.standard_normal((n, WIDTH)).astype(kind) for n in (rows, keys, keys))
    found = np.full((rows, WIDTH), np.nan, dtype=kind)
    folds = [np.full(rows, np.nan, np.float32) for _ in range(2)]
    buffers = [x.view(np.uint8).data.cast("B") for x in (found, q, k, v, *folds)]
    blocks = ceil_div(rows, stream.crew.rows) if stream.crew.is_warps else 1
    run_blocks(lower_stream(stream, target), buffers, blocks=blocks)
    scores = q.astype(np.float64) @ k.astype(np.float64).T * SCALE
    scores = np.where(np.arange(keys) <= np.arange(rows)[:, None], scores, -np.inf)
    most = scores.max(1)
    for got, wanted in zip(folds, (most, np.exp(scores - most[:, None]).sum(1)), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5)
    wide = expected(q, k, v, causal=True)
    assert np.abs(found.astype(np.float64) - wide).max() <= 2**-7 * np.abs(wide).max()


@pytest.mark.parametrize("target", [AMPERE, TURING])
def test_several_warps_share_the_only_block_of_a_key_without_races(target: TargetSpec) -> None:
    sink = attention(18, 12, causal=False, dtype=float16)
    stream = find_stream(analyse(normalise_ranges(sink)), target)
    assert stream is not None
    assert is_close(by_crew(stream, 2, 16, 2), target, float16, causal=False)


def test_the_pipeline_takes_one_pass_where_it_can() -> None:
    lowered = lower_kernel(attention(256, 256, causal=True), HOPPER)
    names = {node.op.name for node in lowered.linear.src}
    assert {"matrix", "matrix_held", "copy_box", "fold_quad"} <= names
    assert lowered.threads == 384


def test_weights_that_stay_float32_are_not_shortened() -> None:
    kernel = analyse(normalise_ranges(attention(256, 256, causal=True, weights=float32)))
    assert find_stream(kernel, HOPPER) is None


@pytest.mark.parametrize("capability", [80, 86, 89, 100, 120])
def test_the_pipeline_takes_warps_on_cards_without_warp_groups(capability: int) -> None:
    lowered = lower_kernel(attention(256, 256, causal=True), cuda_spec(capability))
    names = {node.op.name for node in lowered.linear.src}
    assert {"matrix_warp", "load_fragment", "copy_chunk", "fold_quad", "power_of_two"} <= names
    assert lowered.threads % 32 == 0


def test_cards_without_products_of_a_dtype_have_no_such_pass() -> None:
    kernel = analyse(normalise_ranges(attention(256, 256, causal=False, dtype=bfloat16)))
    assert find_stream(kernel, TURING) is None


def test_few_rows_have_few_warps_and_many_rows_have_many() -> None:
    crews = []
    for rows in (16, 1 << 16):
        stream = find_stream(analyse(normalise_ranges(attention(rows, 512, causal=False))), AMPERE)
        assert stream is not None
        crews.append(stream.crew.groups)
    assert crews == [1, 8]


@pytest.mark.parametrize(
    ("target", "width"),
    [(HOPPER, 24), (AMPERE, 24), pytest.param(HOPPER, 256, marks=pytest.mark.slow)],
)
def test_shared_heads_under_a_mask_of_any_width_take_one_pass(
    target: TargetSpec, width: int
) -> None:
    rows, keys = 10, 36
    stream = find_stream(analyse(normalise_ranges(shared_heads(rows, keys, width))), target)
    assert stream is not None
    if target is HOPPER:
        assert stream.block == (64 if width == 256 else 128)
    else:
        stream = by_crew(stream, 1, 16, 2)
    linear = lower_stream(stream, target)
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
    tiles = (1, 2) if target is HOPPER else (2, 1)
    run_blocks(linear, buffers, blocks=tiles[0], tasks=tiles[1])
    scores = q.astype(np.float64) @ k.astype(np.float64).T * SCALE
    scores = np.where(np.tile(mask, (2, 1)), scores, -1e300)
    weights = np.exp(scores - scores.max(1, keepdims=True))
    wanted = weights / weights.sum(1, keepdims=True) @ v.astype(np.float64)
    wanted[[3, rows + 3]] = 0.0
    assert np.abs(found.astype(np.float64) - wanted).max() <= 2**-6 * np.abs(wanted).max()
