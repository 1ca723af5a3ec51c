"""Scans whose rows blocks of threads share: their values, their words, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from tests.emulated_cards import emulated_cards
from tests.unit.codegen.gpu.test_plans import HOPPER, kernel_of, numbers

from tilework import Tensor
from tilework.base.errors import InternalError, PlanError
from tilework.base.records import replace
from tilework.base.settings import override
from tilework.codegen.alternatives import alternatives
from tilework.codegen.analysis import analyse
from tilework.codegen.gpu import scans
from tilework.codegen.gpu.check import check_gpu_plan
from tilework.codegen.gpu.divide import divide
from tilework.codegen.gpu.scans import is_in_tiles, scan_in_tiles, tiled_scan_plan
from tilework.codegen.passes.normalise import normalise_ranges
from tilework.codegen.pipeline import lower_kernel
from tilework.engine import splits, tune
from tilework.engine.kernels import written_slots
from tilework.ir.interpret.blocks import run_blocks
from tilework.ir.ops.index import TASK_IN_ORDER, Unit
from tilework.ir.ops.scan import SCAN_BLOCKS, words_of_row
from tilework.render.c_family.cuda import CudaRenderer
from tilework.schedule.call import transform_to_call
from tilework.schedule.passes import split_scan
from tilework.schedule.pipeline import create_schedule
from tilework.testing.emulators.cuda import EmulatedCuda
from tilework.toolchain.nvrtc import NvrtcToolchain, compiler_version


@pytest.fixture(autouse=True)
def _small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two warps, eight numbers a thread, groups of two tiles."""
    monkeypatch.setattr(scans, "THREADS", 64)
    monkeypatch.setattr(scans, "_HELD_BYTES", 32)
    monkeypatch.setattr(scans, "MOST_IN_GROUP", 2)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedCuda]:
    splits.clear_memory()
    with override(cache_dir=None), emulated_cards(monkeypatch) as found:
        yield found
    splits.clear_memory()


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("dtype", "shape", "axis"),
    [
        ("float32", (2051,), 0),  # rows end within a vector
        ("int32", (3, 1100), 1),
        ("int64", (1100,), 0),  # a value takes two words
        ("float64", (1026, 2), 0),  # elements of a row lie apart
    ],
)
def test_tiles_make_up_the_scan_of_a_row(dtype: str, shape: tuple[int, ...], axis: int) -> None:
    x = (np.random.default_rng(0).standard_normal(shape) * 1000).astype(dtype)
    found = Tensor(x, device="CUDA").cumsum(axis).numpy()
    exact = np.cumsum(x.astype(found.dtype), axis, dtype=found.dtype)
    tolerance = 0.0 if found.dtype.kind == "i" else 1e-5
    assert np.allclose(found, exact, rtol=tolerance, atol=tolerance * 1000)


@pytest.mark.usefixtures("library")
def test_other_folds_and_directions() -> None:
    x = np.random.default_rng(0).uniform(0.99, 1.01, 1300).astype(np.float32)
    y = Tensor(x, device="CUDA")
    assert np.array_equal(y.cummax(0)[0].numpy(), np.maximum.accumulate(x))
    assert np.allclose(y.cumprod(0).numpy(), np.cumprod(x.astype(np.float64)), rtol=1e-5)
    backward = y.flip(0).cumsum(0).flip(0).numpy()
    assert np.allclose(backward, np.cumsum(x[::-1].astype(np.float64))[::-1], rtol=1e-5)


def run(words: list[int], *, blocks: int = 3) -> tuple[np.ndarray, memoryview]:
    """Blocks of a scan of three tiles of 512 ones, whose words hold what is given before."""
    sink = kernel_of(lambda a: a.cumsum(-1), numbers(1301))
    found = scan_in_tiles(sink)
    assert found is not None
    kernel = lower_kernel(found.kernel, HOPPER)
    assert {SCAN_BLOCKS, TASK_IN_ORDER} <= {node.op for node in kernel.linear.src}
    result, ones = np.zeros(1301, np.float32), np.ones(1301, np.float32)
    told = memoryview(bytearray(np.array(words, np.uint64).tobytes()))
    run_blocks(
        kernel.linear, [result.data.cast("B"), ones.data.cast("B"), told],
        blocks=blocks,
    )  # fmt: skip
    return result, told


def test_blocks_tell_totals_of_tiles_and_ends_of_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_scan, "MANY_ELEMENTS", 1 << 20)
    result, told = run([0] * 6)
    assert np.array_equal(result, np.arange(1, 1302, dtype=np.float32))
    words = np.frombuffer(told, np.uint64)
    assert words[0] == 3, "three blocks took a tile"
    assert all(word >> np.uint64(32) == 1 for word in words[1:5])
    totals = (words[1:5] & np.uint64(0xFFFFFFFF)).astype(np.uint32).view(np.float32)
    assert list(totals) == [512.0, 512.0, 277.0, 1024.0]
    assert words[5] == 0, "the last group has no end that anybody needs"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([1, 0, 0, 0, 0, 0], "never comes"),  # a tile before has not been started
        ([0, 1 << 32, 0, 0, 0, 0], "written twice"),
    ],
)
def test_what_blocks_may_not_find(words: list[int], message: str) -> None:
    with pytest.raises(InternalError, match=message):
        run(words, blocks=1)


def test_the_kernel_writes_its_words() -> None:
    found = scan_in_tiles(kernel_of(lambda a: a.cumsum(-1), numbers(1301)))
    assert found is not None
    (pack,) = found.packs
    assert pack.size_bytes == 8 * (1 + words_of_row(Tensor.zeros(1).dtype, 3, 2))
    assert pack.slot in written_slots(found.kernel)
    assert scan_in_tiles(found.kernel) is None


@pytest.mark.skipif(compiler_version() is None, reason="the package nvidia-cuda-nvrtc is needed")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_scans_of_the_greatest_start_at_an_infinity_that_nvidias_compiler_knows(dtype: str) -> None:
    sink = kernel_of(lambda a: a.cast(dtype).cummax(-1)[0], numbers(1300))
    in_tiles = scan_in_tiles(sink)
    for kernel in (sink, in_tiles.kernel if in_tiles else sink):
        text = CudaRenderer(HOPPER.limits.shared_memory_bytes).render(lower_kernel(kernel, HOPPER))
        assert "__builtin" not in text
        assert NvrtcToolchain(HOPPER).compile(text)


@pytest.mark.usefixtures("library")
def test_a_scan_in_tiles_is_not_tuned_since_it_runs_once_on_cleared_words() -> None:
    x = Tensor(numbers(1301), device="CUDA").realize()
    calls = tune.collect(lambda: x.cumsum(0).realize())
    shared = [call.kernel for call in calls if call.kernel and is_in_tiles(call.kernel)]
    assert len(shared) == 1
    assert alternatives(shared[0], HOPPER) is None


def test_a_plan_with_tiles_of_another_size_is_refused() -> None:
    found = scan_in_tiles(kernel_of(lambda a: a.cumsum(-1), numbers(1301)))
    assert found is not None
    kernel = analyse(normalise_ranges(found.kernel))
    plan = tiled_scan_plan(kernel, 4)
    assert plan is not None
    check_gpu_plan(plan, kernel, HOPPER)
    (split,) = plan.splits
    half = tuple([replace(p, size=p.size // (1 + (p.unit is Unit.LANE))) for p in split.tile])
    with pytest.raises(PlanError):  # twice as many tiles have no words
        check_gpu_plan(replace(plan, splits=(replace(split, tile=half),)), kernel, HOPPER)


@pytest.mark.usefixtures("library")
def test_validation_compares_what_a_scan_in_tiles_stores_and_not_its_words() -> None:
    x = Tensor(np.ones(1301, np.float32), device="CUDA").realize()
    with override(validate=True):
        assert x.cumsum(0).numpy()[-1] == 1301.0


@pytest.mark.parametrize(
    ("shape", "is_in_tiles"), [((3, 9), False), ((1 << 20, 9), False), ((3, 1001), True)]
)
def test_many_short_rows_are_scanned_by_a_thread_each(
    shape: tuple[int, ...], is_in_tiles: bool
) -> None:
    call = transform_to_call([Tensor.empty(*shape).cumsum(1).node])
    sink = create_schedule(call.function).linear.src[-1].src[0]
    assert (divide(sink, HOPPER) is not None) is is_in_tiles
