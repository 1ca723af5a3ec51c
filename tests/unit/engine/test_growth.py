"""What compiling costs grows with what is new in a program: counted, since time is noisy."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tilework import Tensor
from tilework.base import settings, trace
from tilework.engine import link
from tilework.engine.compile import clear_memory
from tilework.engine.stats import COUNTERS
from tilework.schedule import cache
from tilework.schedule.passes.kernel_graph import Kernel

WIDTH = 24


def weight(rows: int, columns: int) -> Tensor:
    return Tensor(np.full((rows, columns), 0.01, dtype=np.float32)).realize()


def equal_layers(count: int) -> Callable[[], Tensor]:
    weights = [weight(WIDTH, WIDTH) for _ in range(count)]

    def run() -> Tensor:
        x = Tensor.ones(4, WIDTH)
        for w in weights:
            x = (x @ w).relu().contiguous()
        return x

    return run


def different_layers(count: int) -> Callable[[], Tensor]:
    sizes = [WIDTH + 8 * at for at in range(count + 1)]
    weights = [weight(rows, columns) for rows, columns in pairwise(sizes)]

    def run() -> Tensor:
        x = Tensor.ones(4, WIDTH)
        for w in weights:
            x = (x @ w).relu().contiguous()
        return x

    return run


def cold(run: Callable[[], Tensor]) -> tuple[int, int]:
    """Kernels compiled and passes over kernels of one run with nothing in memory."""
    cache.clear()
    link.CACHE.clear()
    clear_memory()
    passes = 0

    def note(event: trace.Event) -> None:
        nonlocal passes
        passes += isinstance(event, trace.PassEnded)

    before = COUNTERS.compiles
    with trace.subscribe(note):
        run().numpy()
    return COUNTERS.compiles - before, passes


def test_equal_layers_are_compiled_once() -> None:
    with settings.override(cache_dir=None):
        few, many = cold(equal_layers(3)), cold(equal_layers(30))
    assert few[0] == many[0]
    assert many[1] <= few[1] + 8


def test_ten_times_the_different_layers_are_at_most_twelve_times_the_work() -> None:
    with settings.override(cache_dir=None):
        few, many = cold(different_layers(3)), cold(different_layers(30))
    assert many[0] <= 12 * few[0]
    assert many[1] <= 12 * few[1]


def test_a_second_run_compiles_nothing(tmp_path: Path) -> None:
    run = equal_layers(3)
    with settings.override(cache_dir=tmp_path):
        cold(run)
        again = cold(run)
    assert again[0] == 0


def questions(count: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often scheduling a stack of numbers asks what has become of a kernel."""
    asked = 0
    find = Kernel.find

    def counted(kernel: Kernel) -> Kernel:
        nonlocal asked
        asked += 1
        return find(kernel)

    stacked = Tensor.stack(*[Tensor(float(number)) for number in range(count)])
    with monkeypatch.context() as patch, settings.override(cache_dir=None):
        patch.setattr(Kernel, "find", counted)
        assert stacked.tolist() == list(range(count))
    return asked


def test_joining_kernels_of_many_numbers_asks_in_proportion_to_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few, many = questions(160, monkeypatch), questions(640, monkeypatch)
    assert 0 < many <= 6 * few
