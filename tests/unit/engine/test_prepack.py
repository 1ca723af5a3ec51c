"""Packed constants of captured programs: same results, and no stale copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilework import Tensor, TinyJit
from tilework.base import settings
from tilework.engine import compile as compile_module
from tilework.engine.stats import COUNTERS, difference
from tilework.engine.steps import KernelCall


def _layer(size: int = 7) -> tuple[Tensor, np.ndarray]:
    rng = np.random.default_rng(1)
    weights = rng.standard_normal((256, 128, 3, 3)).astype(np.float32) / 30
    return Tensor(weights).realize(), rng.standard_normal((1, 128, size, size)).astype(np.float32)


def _calls(function: TinyJit[Any, Any]) -> int:
    assert function.captured is not None
    program = function.captured.recipe.program
    return sum(isinstance(step, KernelCall) for step in program.steps)


def test_packing_changes_no_bit_of_the_result() -> None:
    weights, image = _layer()
    layer = TinyJit(lambda x: x.conv2d(weights, padding=1).relu().realize())
    plain = Tensor(image).conv2d(weights, padding=1).relu().numpy()
    for _ in range(3):
        result = layer(Tensor(image).realize()).numpy()
        np.testing.assert_array_equal(result, plain)


def test_packing_is_split_off_only_when_it_is_wanted() -> None:
    for wanted in (True, False):
        with settings.override(prepack=wanted):
            weights, image = _layer()
            layer = TinyJit(lambda x, w=weights: x.conv2d(w, padding=1).realize())
            for _ in range(2):
                layer(Tensor(image).realize())
            assert layer.captured is not None
            assert (layer.captured.recipe.program.packed is not None) is wanted


@pytest.mark.parametrize("how", ["assign", "setitem", "augmented"])
def test_a_constant_that_is_written_is_packed_again(how: str) -> None:
    weights, image = _layer()
    layer = TinyJit(lambda x: x.conv2d(weights, padding=1).realize())
    for _ in range(3):
        layer(Tensor(image).realize())
    if how == "assign":
        weights.assign(weights * 2).realize()
    elif how == "setitem":
        weights[3] = 0.5
        weights.realize()
    else:
        weights += 1
        weights.realize()
    expected = Tensor(image).conv2d(Tensor(weights.numpy()), padding=1).numpy()
    np.testing.assert_array_equal(layer(Tensor(image).realize()).numpy(), expected)


@pytest.mark.parametrize("columns", [40, 1000, 1001])
def test_a_sum_that_is_carried_in_place_is_added_once(columns: int) -> None:
    """The last panel may not reach back over columns that were updated already."""
    rng = np.random.default_rng(3)
    weights = rng.standard_normal((columns, 256)).astype(np.float32) / 16
    held = Tensor(weights).realize()
    total = Tensor.zeros(64, columns).contiguous().realize()
    step = TinyJit(lambda x: total.assign(total + x @ held.T).realize())
    expected = np.zeros((64, columns))
    for _ in range(4):
        x = rng.standard_normal((64, 256)).astype(np.float32)
        step(Tensor(x).realize())
        expected += x @ weights.T
    np.testing.assert_allclose(total.numpy(), expected, rtol=1e-4, atol=1e-4)


def test_a_capture_compiles_only_what_its_replays_run() -> None:
    compile_module.clear_memory()
    weights, image = _layer(9)
    before = COUNTERS.snapshot()
    with settings.override(cache_dir=None):
        layer = TinyJit(lambda x: x.conv2d(weights, padding=1).tanh().realize())
        layer(Tensor(image).realize())
    assert layer.captured is not None
    program = layer.captured.recipe.program
    assert program.packed is not None
    steps = [*program.steps, *program.packed.copies]
    kernels = {step.code.key for step in steps if isinstance(step, KernelCall)}
    assert difference(before)["compiles"] == len(kernels)


def test_what_the_capture_has_packed_is_not_packed_again() -> None:
    weights, image = _layer()
    layer = TinyJit(lambda x: x.conv2d(weights, padding=1).realize())
    x = Tensor(image).realize()
    layer(x)
    before = COUNTERS.snapshot()
    layer(x)
    assert difference(before)["kernels"] == _calls(layer)


def test_weights_that_the_capture_itself_changes_are_read_as_they_are() -> None:
    """The first part of the capture takes them for constant, and the second writes to them."""
    weights, image = _layer()
    expected_weights = weights.numpy()

    @TinyJit
    def step(x: Tensor) -> Tensor:
        result = x.conv2d(weights, padding=1).realize()
        weights.assign(weights * 0.5).realize()
        return result

    for _ in range(4):
        expected = Tensor(image).conv2d(Tensor(expected_weights), padding=1).numpy()
        np.testing.assert_array_equal(step(Tensor(image).realize()).numpy(), expected)
        expected_weights = expected_weights * np.float32(0.5)


def test_weights_that_share_memory_with_what_is_written_are_read_as_they_are() -> None:
    weights, image = _layer()
    both = Tensor(np.stack([weights.numpy(), weights.numpy()])).realize()
    expected_weights = weights.numpy()

    @TinyJit
    def step(x: Tensor) -> Tensor:
        both[0] = both[0] * 0.5
        return x.conv2d(both[0], padding=1).realize() + x.conv2d(both[1], padding=1).realize()

    for _ in range(4):
        expected_weights = expected_weights * np.float32(0.5)
        first = Tensor(image).conv2d(Tensor(expected_weights), padding=1).numpy()
        second = Tensor(image).conv2d(weights, padding=1).numpy()
        result = step(Tensor(image).realize()).realize().numpy()
        np.testing.assert_array_equal(result, first + second)


def test_nothing_is_taken_for_constant_while_a_capture_trains() -> None:
    weights, image = _layer()
    with Tensor.train():
        layer = TinyJit(lambda x: x.conv2d(weights, padding=1).realize())
        x = Tensor(image).realize()
        layer(x)
        before = COUNTERS.snapshot()
        layer(x)
    # The copies are made at the first replay.
    assert difference(before)["kernels"] > _calls(layer)
