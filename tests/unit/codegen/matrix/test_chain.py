"""Products of what products give on matrix units: gradients of attention by blocks of threads."""

from __future__ import annotations

import subprocess
from importlib.util import find_spec
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from tests.attention_kernels import SCALE, WIDTH, by_keys, by_queries, folds_of_rows

from tilework.base.records import replace
from tilework.codegen.analysis import analyse
from tilework.codegen.matrix.chain import Chain, find_chain
from tilework.codegen.matrix.chain_lower import lower_chain
from tilework.codegen.matrix.group_feed import GroupFeed
from tilework.codegen.passes.normalise import normalise_ranges
from tilework.codegen.pipeline import lower_kernel
from tilework.codegen.plan.extents import ceil_div, size
from tilework.ir.interpret.blocks import run_blocks
from tilework.ir.stage import Stage
from tilework.ir.verify import verify
from tilework.render.c_family.cuda import CudaRenderer
from tilework.target.known.cuda import cuda_spec
from tilework.target.spec import TargetSpec
from tilework.toolchain.nvrtc import NvrtcToolchain

HOPPER, AMPERE = cuda_spec(90), cuda_spec(80)
#: Machines, and warps, positions of a block and slots where warps compute.
CREWS = [(HOPPER, None), (AMPERE, (1, 16, 3)), (AMPERE, (2, 32, 2))]


def by_crew(chain: Chain | None, cut: tuple[int, int, int] | None) -> tuple[Chain, int]:
    """The chain with so many warps, positions and slots, and how many blocks its rows take."""
    assert chain is not None
    if cut is None:
        return chain, 1
    groups, block, slots = cut
    crew = replace(chain.crew, groups=groups)
    chain = replace(chain, crew=crew, block=block, slots=slots)
    return chain, ceil_div(size(chain.row), crew.rows)


@pytest.mark.parametrize(
    ("target", "cut", "settles", "all_release"),
    [
        (HOPPER, None, False, False),
        pytest.param(HOPPER, None, False, True, marks=pytest.mark.slow),
        *((target, cut, True, False) for target, cut in CREWS),
    ],
)
def test_gradients_by_keys_and_values_come_from_one_kernel_without_races(
    target: TargetSpec,
    cut: tuple[int, int, int] | None,
    monkeypatch: pytest.MonkeyPatch,
    *,
    settles: bool,
    all_release: bool,
) -> None:
    monkeypatch.setattr(GroupFeed, "all_release", all_release)
    rows, keys = 72, 40
    found_chain = find_chain(analyse(normalise_ranges(by_keys(rows, keys))), target)
    chain, blocks = by_crew(found_chain, cut)
    linear = lower_chain(replace(chain, settles=settles), target)
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
    run_blocks(linear, buffers, blocks=blocks)
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


@pytest.mark.parametrize("capability", [80, 86, 89, 100, 120])
def test_cards_without_warp_groups_have_chains_of_warps(capability: int) -> None:
    lowered = lower_kernel(by_keys(512, 512), cuda_spec(capability))
    names = {node.op.name for node in lowered.linear.src}
    assert {"matrix_warp", "load_fragment", "copy_chunk", "power_of_two"} <= names


def test_cards_without_products_of_a_dtype_have_no_chains() -> None:
    assert find_chain(analyse(normalise_ranges(by_keys(512, 512))), cuda_spec(75)) is None


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


@pytest.mark.parametrize(("target", "cut"), CREWS[:2])
def test_heads_that_share_keys_and_a_summand_of_scores_take_a_chain_of_any_width(
    target: TargetSpec, cut: tuple[int, int, int] | None
) -> None:
    rows, keys, width = 9, 37, 24
    found_chain = find_chain(analyse(normalise_ranges(by_queries(rows, keys, width))), target)
    chain, blocks = by_crew(found_chain, cut)
    linear = lower_chain(chain, target)
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
    tiles = (1, 2) if cut is None else (2 * blocks, 1)
    run_blocks(linear, buffers, blocks=tiles[0], tasks=tiles[1])
    difference = np.abs(found.astype(np.float64) - wanted).max()
    assert difference <= 2**-6 * np.abs(wanted).max()


@pytest.mark.parametrize(("target", "cut"), CREWS[:2])
def test_folds_of_all_rows_are_taken_against_their_greatest_score_without_races(
    target: TargetSpec, cut: tuple[int, int, int] | None
) -> None:
    rows, keys = 16, 140
    found_chain = find_chain(analyse(normalise_ranges(folds_of_rows(rows, keys))), target)
    chain, _ = by_crew(found_chain, cut)
    assert chain.running is not None
    if cut is None:
        chain = replace(chain, block=64, slots=2)  # a slot is filled again
    linear = lower_chain(chain, target)
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
