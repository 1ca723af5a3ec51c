"""The memory of a captured program, planned and counted."""

import numpy as np
import pytest

from tilework import Tensor, jit
from tilework.engine.device import Device
from tilework.engine.footprint import Peak, measure_peaks
from tilework.runtime.allocator import size_class


def peaks_of(size: int, layers: int) -> list[Peak]:
    weight = Tensor(np.full((size, size), 0.5, np.float32)).realize()

    def body(x: Tensor) -> Tensor:
        for _ in range(layers):
            x = (x @ weight).contiguous().tanh()
        return x

    step = jit(body)
    x = Tensor(np.ones((size, size), np.float32)).realize()
    for _ in range(2):
        step(x)
    assert step.captured is not None
    _, buffers, values = step.captured.bind((x,), {})
    return measure_peaks(step.captured.recipe.program, buffers, values)


@pytest.mark.parametrize("layers", [1, 2, 5])
def test_MPL_12_the_measured_peak_is_the_predicted_one_but_for_the_size_classes(
    layers: int,
) -> None:
    (peak,) = peaks_of(96, layers)
    assert peak.predicted >= 96 * 96 * 4
    assert peak.predicted <= peak.measured <= size_class(peak.predicted) * 9 // 8


def test_MPL_12_a_plan_that_is_too_small_would_show() -> None:
    device = Device["CPU"]
    before = device.restart_peak()
    held = device.allocate(1 << 20)
    assert device.memory_used()["peak"] - before == 1 << 20
    held.close()
    assert device.memory_used()["peak"] - before == 1 << 20
    assert device.restart_peak() == before
    assert device.memory_used()["peak"] == before


def test_MPL_12_a_device_without_memory_counts_too() -> None:
    device = Device["NULL"]
    before = device.restart_peak()
    x = Tensor.empty(1 << 16, device="NULL").realize()
    assert device.memory_used()["peak"] - before == 1 << 18
    assert x.shape == (1 << 16,)
