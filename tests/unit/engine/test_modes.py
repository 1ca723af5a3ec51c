"""The same program eagerly, while it is captured and replayed; at any length; over any memory."""

import ctypes
import gc
import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tilework import Tensor, dtypes, jit
from tilework.base.errors import AliasError, StaleHandleError
from tilework.engine.device import Device
from tilework.engine.stats import COUNTERS, difference
from tilework.runtime.lease import Lease
from tilework.tensor.version import from_buffer

LIBC = ctypes.CDLL(None, use_errno=True)
PAGE = mmap.PAGESIZE


def chain(x: Tensor, length: int) -> Tensor:
    """A program of `length` kernels: each reduction is one of its own."""
    for step in range(length):
        x = (x + x.sum() * (step + 1)).contiguous() % 97
    return x


def numbers(array: Any, length: int) -> Any:
    for step in range(length):
        array = (array + array.sum() * (step + 1)) % 97
    return array


@pytest.mark.parametrize("length", [0, 1, 2, 3, 5, 8, 13, 21, 34, 64])
def test_EXE_17_a_program_of_any_number_of_kernels_gives_the_same(length: int) -> None:
    array = np.arange(6, dtype=np.int64)
    wanted = numbers(array, length).tolist()
    captured = jit(lambda x: chain(x, length) + 0)
    for _ in range(4):
        assert captured(Tensor(array).realize()).tolist() == wanted
    assert chain(Tensor(array), length).tolist() == wanted


@pytest.mark.slow
def test_EXE_17_every_length_up_to_64_and_a_very_long_one() -> None:
    array = np.arange(6, dtype=np.int64)
    for length in [*range(65), 3000]:
        captured = jit(lambda x, length=length: chain(x, length) + 0)
        wanted = numbers(array, length).tolist()
        assert [captured(Tensor(array).realize()).tolist() for _ in range(3)] == [wanted] * 3


def rows_of(dtype: dtypes.DType, count: int) -> bytes:
    """Numbers of a dtype that are exact in it: 0 and 1, by turns."""
    one = {1: b"\1"}.get(dtype.itemsize)
    if dtype.is_float:
        raw = dtypes.encode(1.0, dtype)
        one = raw.to_bytes(dtype.itemsize, "little")
    elif one is None:
        one = (1).to_bytes(dtype.itemsize, "little")
    return (bytes(dtype.itemsize) + one) * (count // 2)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize(
    "device", ["CPU", pytest.param("CPU:CLANG", marks=pytest.mark.needs("program:cc"))]
)
def test_EXE_15_every_dtype_is_loaded_and_stored_at_any_address(
    dtype: dtypes.DType, device: str
) -> None:
    count = 38
    data = rows_of(dtype, count)
    offsets = range(0, 128, 1) if device == "CPU" and dtype.itemsize == 4 else range(0, 128, 9)
    for offset in offsets:
        memory = np.zeros(len(data) + 256, np.uint8)
        place = memory[offset : offset + len(data)]
        place[:] = np.frombuffer(data, np.uint8)
        lease = Lease(memory.ctypes.data + offset, len(data), owner="test")
        buffer = Device[device].map(lease)
        tensor = Tensor._over(from_buffer(buffer, device, (count,), dtype))
        # Reversed in place: every element is loaded and stored through the odd address.
        tensor.assign(tensor.flip(0))
        tensor.realize()
        step = dtype.itemsize
        wanted = b"".join(data[i : i + step] for i in range(len(data) - step, -1, -step))
        assert place.tobytes() == wanted
        assert not memory[:offset].any()
        assert not memory[offset + len(data) :].any()
        del tensor, buffer
        lease.release()


class Slot:
    """One frame of a camera: a page that nobody can touch once it was given back."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, PAGE)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self.lent = 0

    def protect(self, rights: int) -> None:
        if LIBC.mprotect(ctypes.c_void_p(self.address), ctypes.c_size_t(PAGE), rights):
            raise OSError(ctypes.get_errno(), "mprotect")

    def fill(self, value: int) -> Lease:
        self.protect(3)
        ctypes.memset(self.address, value, PAGE)
        self.lent += 1
        return Lease(self.address, PAGE, owner="camera", on_release=self.give_back)

    def give_back(self) -> None:
        """Poisoned, and unreadable until the camera fills it again."""
        ctypes.memset(self.address, 0xDB, PAGE)
        self.protect(0)
        self.lent -= 1


@pytest.fixture
def ring() -> Iterator[list[Slot]]:
    slots = [Slot() for _ in range(4)]
    yield slots
    gc.collect()
    for slot in slots:
        slot.protect(3)


def run_frames(ring: list[Slot], frames: int) -> None:
    mean = jit(lambda frame: frame.cast("int32").sum())
    for frame in range(frames):
        value = frame % 200 + 1
        lease = ring[frame % 4].fill(value)
        buffer = Device["CPU"].map(lease)
        image = Tensor._over(from_buffer(buffer, "CPU", (PAGE,), dtypes.uint8))
        result = mean(image)
        del image, buffer
        lease.release()  # the work that reads it is done, or this would be refused
        assert result.item() == value * PAGE
    assert [slot.lent for slot in ring] == [0, 0, 0, 0]


def test_EXE_14_a_ring_of_four_camera_frames_is_read_before_it_is_given_back(
    ring: list[Slot],
) -> None:
    run_frames(ring, 400)


@pytest.mark.slow
def test_EXE_14_a_hundred_thousand_camera_frames(ring: list[Slot]) -> None:
    run_frames(ring, 100_000)


def test_EXE_14_a_lease_cannot_end_while_a_device_works(ring: list[Slot]) -> None:
    lease = ring[0].fill(3)
    with lease.device_access(), pytest.raises(AliasError, match="still uses the memory"):
        lease.release()
    lease.release()
    assert ring[0].lent == 0


def test_EXE_14_work_on_memory_that_was_given_back_is_refused(ring: list[Slot]) -> None:
    lease = ring[0].fill(3)
    buffer = Device["CPU"].map(lease)
    image = Tensor._over(from_buffer(buffer, "CPU", (PAGE,), dtypes.uint8))
    total = image.sum()
    lease.release()
    with pytest.raises(StaleHandleError):
        total.item()
    captured = jit(lambda frame: frame.sum())
    with pytest.raises(StaleHandleError):
        captured(image)


def test_EXE_06_results_of_rings_from_one_to_four_are_right_or_refused() -> None:
    from tilework.base.errors import StaleOutputError

    for size in (1, 2, 3, 4):
        step = jit(lambda x: x * 7, outputs=size)
        results = [step(Tensor([i]).realize()) for i in range(12)]
        for age, result in enumerate(reversed(results[2:])):
            if age < size:
                assert result.item() == 7 * (11 - age)
            else:
                with pytest.raises(StaleOutputError):
                    result.item()


@pytest.mark.slow
def test_EXE_01_a_hundred_thousand_replays_do_nothing_but_run() -> None:
    step = jit(lambda x: (x @ x).relu() + 1)
    x = Tensor(np.eye(8, dtype=np.float32)).realize()
    for _ in range(100):
        step(x)
    with open("/proc/self/statm") as file:
        before_pages = int(file.read().split()[1])
    before = COUNTERS.snapshot()
    for _ in range(100_000):
        step(x)
    changed = difference(before)
    with open("/proc/self/statm") as file:
        after_pages = int(file.read().split()[1])
    assert changed.pop("replays") == 100_000
    assert set(changed) <= {"launches", "kernels"}
    assert after_pages - before_pages < 256  # pages of resident memory


@pytest.mark.slow
def test_MPL_10_a_thousand_times_freed_and_taken_again() -> None:
    check_free_and_replay(1000)


def test_MPL_10_freed_intermediates_are_taken_again() -> None:
    check_free_and_replay(20)


def check_free_and_replay(cycles: int) -> None:
    device = Device["CPU"]
    step = jit(lambda x: ((x @ x).relu() @ x).sum())
    x = Tensor(np.full((64, 64), 0.125, np.float32)).realize()
    wanted = step(x).item()
    for _ in range(3):
        step(x).item()
    gc.collect()
    with_arena = device.memory_used()["used"]
    step.free_intermediates()
    gc.collect()
    without = device.memory_used()["used"]
    assert without < with_arena
    for _ in range(cycles):
        assert step(x).item() == wanted
        gc.collect(0)
        assert device.memory_used()["used"] >= with_arena - (64 << 10)
        step.free_intermediates()
        assert device.memory_used()["used"] <= without + (64 << 10)
