"""Many threads at once: captures, eager runs, writes and reads never mix."""

import gc

import numpy as np
import pytest
from tests.threads import run_threads

from tilework import Tensor, jit
from tilework.engine.device import Device


def capture_and_compare(number: int, calls: int) -> None:
    """A captured function with state of its own, against integers of Python."""
    total = Tensor([0]).contiguous().realize()

    def step(x: Tensor) -> Tensor:
        total.assign(total + x * (number + 1))
        return total * 2

    captured, wanted = jit(step), 0
    for call in range(calls):
        wanted += call * (number + 1)
        assert captured(Tensor([call]).realize()).item() == wanted * 2


def run_eagerly(number: int, calls: int) -> None:
    x = np.arange(20, dtype=np.float32) + number
    for call in range(calls):
        y = Tensor(x)
        y[3:9] = y[1:7] * 2
        expected = x.copy()
        expected[3:9] = x[1:7] * 2
        assert (y + call).tolist() == (expected + call).tolist()


def test_EXE_07_eight_threads_capture_and_run_eagerly_at_once() -> None:
    def work(number: int) -> None:
        if number % 2:
            run_eagerly(number, 25)
        else:
            capture_and_compare(number, 25)

    run_threads(8, work)


def check_public_objects(calls: int) -> None:
    """16 threads share tensors, a captured function and a device."""
    shared = Tensor(np.arange(64, dtype=np.float32)).realize()
    double = jit(lambda x: x * 2 + 1)
    double(shared)
    device = Device["CPU"]

    def work(number: int) -> None:
        for call in range(calls):
            kind = (number + call) % 4
            if kind == 0:
                found = double(Tensor(np.full(64, number, np.float32)).realize())
                assert found.tolist() == [2.0 * number + 1] * 64
            elif kind == 1:
                assert (shared + number).sum().item() == 2016.0 + 64 * number
            elif kind == 2:
                lazy = shared.reshape(8, 8)[number % 8] * 3
                assert lazy.tolist() == [3.0 * (8 * (number % 8) + i) for i in range(8)]
            else:
                buffer = device.allocate(256)
                device.copy_in(buffer, memoryview(bytes([number]) * 256))
                back = bytearray(256)
                device.copy_out(buffer, memoryview(back))
                assert back == bytes([number]) * 256
                buffer.close()

    run_threads(16, work)


def test_GEN_10_tensors_captures_and_devices_are_shared_by_16_threads() -> None:
    check_public_objects(12)


@pytest.mark.slow
def test_GEN_10_16_threads_for_a_long_time() -> None:
    check_public_objects(3000)


def check_tensor_map(calls: int) -> None:
    """Threads make, slice, write and realize tensors, as NumPy does."""

    def work(number: int) -> None:
        rng = np.random.default_rng(number)
        array = rng.integers(-9, 9, (6, 5)).astype(np.int32)
        tensor = Tensor(array)
        views: list[tuple[Tensor, np.ndarray]] = []
        for _ in range(calls):
            kind = int(rng.integers(0, 4))
            row = int(rng.integers(0, 5))
            if kind == 0:
                views.append((tensor[row : row + 2], array[row : row + 2]))
            elif kind == 1:
                factor = int(rng.integers(-2, 3))
                tensor[row] = tensor[row + 1] * factor
                array[row] = array[row + 1] * factor
            elif kind == 2:
                later = tensor.flip(0) + row
                assert later.tolist() == (array[::-1] + row).tolist()
            else:
                Tensor.realize(tensor, *[view for view, _ in views[-3:]])
            for view, own in views[-3:]:
                assert view.tolist() == own.tolist()
        assert tensor.tolist() == array.tolist()

    run_threads(16, work)


def test_SCH_03_16_threads_make_and_realize_tensors() -> None:
    check_tensor_map(10)


@pytest.mark.slow
def test_SCH_03_16_threads_make_and_realize_many_tensors() -> None:
    check_tensor_map(400)


def test_threads_leave_no_memory_behind() -> None:
    device = Device["CPU"]
    check_public_objects(3)
    gc.collect()
    used = device.memory_used()["used"]
    check_public_objects(6)
    gc.collect()
    assert device.memory_used()["used"] <= used + (1 << 16)
