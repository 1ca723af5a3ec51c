"""A card that hangs: every wait ends, nothing that was in flight can be read, and it comes back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from threading import Event

import numpy as np
import pytest
from tests.emulated_cards import emulated_cards

from tilework import Tensor, jit
from tilework.base.errors import (
    DeviceError,
    DeviceFaultError,
    DeviceLostError,
    DeviceTimeoutError,
    OutOfMemoryError,
    StaleHandleError,
    StaleOutputError,
)
from tilework.engine.device import Device
from tilework.runtime.cuda import contexts, proof
from tilework.runtime.drivers import null
from tilework.testing.emulators.cuda import EmulatedCuda

SOON = 0.02


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedCuda]:
    with emulated_cards(monkeypatch) as found:
        yield found
    assert found.held["context"] == 0  # what else a lost card held goes with it


def tensor(*numbers: float) -> Tensor:
    return Tensor(np.array(numbers, np.float32), device="CUDA").realize()


def hurry() -> None:
    """Let a wait of the card end soon."""
    Device["CUDA"].wait_seconds = SOON


def test_GEN_05_reading_a_result_of_a_card_that_hangs_ends(library: EmulatedCuda) -> None:
    x = tensor(1, 2)
    hurry()
    with library.hold():
        y = (x * 2).realize()
        started = time.monotonic()
        with pytest.raises(DeviceTimeoutError):
            y.numpy()
        assert time.monotonic() - started < 30


def test_GEN_05_an_upload_after_work_that_hangs_ends(library: EmulatedCuda) -> None:
    x = tensor(1, 2)
    hurry()
    with library.hold():
        (x * 2).realize()
        with pytest.raises(DeviceTimeoutError):
            tensor(3, 4)


def test_GEN_05_closing_a_card_that_hangs_ends(library: EmulatedCuda) -> None:
    x = tensor(1, 2)
    hurry()
    with library.hold():
        (x * 2).realize()
        with pytest.raises(DeviceTimeoutError):
            Device["CUDA"].close()
    assert tensor(1, 2).tolist() == [1, 2]  # on a card that was opened again


def test_BKE_13_no_result_that_was_in_flight_can_be_read(library: EmulatedCuda) -> None:
    step = jit(lambda x: ((x * 2).realize() + 1, x - 1))
    x = tensor(1, 2)
    for _ in range(3):
        step(x)
    hurry()
    with library.hold():
        results = [*step(x), *step(x), (x * 3).realize()]
        with pytest.raises(DeviceTimeoutError) as first:
            results[0].numpy()
        assert any("in flight" in note for note in first.value.__notes__)
        for result in results:
            with pytest.raises(DeviceLostError, match="the device is lost"):
                result.numpy()
    Device["CUDA"].close()
    assert tensor(5).tolist() == [5]
    for result in results:
        with pytest.raises((DeviceError, StaleHandleError)):
            result.numpy()


def test_BKE_13_one_cause_is_reported_once(library: EmulatedCuda) -> None:
    x = tensor(1, 2)
    hurry()
    with library.hold():
        y = (x * 2).realize()
        reports: list[str] = []
        for _ in range(4):
            with pytest.raises(DeviceError) as caught:
                y.numpy()
            reports.append(type(caught.value).__name__)
    assert reports == ["DeviceTimeoutError", *["DeviceLostError"] * 3]


def check_cycles(library: EmulatedCuda, count: int) -> None:
    """The card hangs, is found lost, is opened again, and the capture goes on."""
    step = jit(lambda x: (x * 2).realize() + 1)
    x = tensor(1, 2)
    for _ in range(3):
        step(x)
    for cycle in range(count):
        hurry()
        generation = Device["CUDA"].generation
        with library.hold():
            late = step(x)
            with pytest.raises(DeviceTimeoutError):
                late.numpy() if cycle % 2 else Device["CUDA"].synchronize()
            with pytest.raises(DeviceLostError):
                step(x)
        Device["CUDA"].close()
        assert Device["CUDA"].generation is not generation
        x = tensor(cycle, cycle + 1)
        assert step(x).tolist() == [2 * cycle + 1, 2 * cycle + 3]


def test_EXE_20_a_card_that_hangs_comes_back_again_and_again(library: EmulatedCuda) -> None:
    check_cycles(library, 12)


@pytest.mark.slow
def test_EXE_20_a_thousand_hangs(library: EmulatedCuda) -> None:
    check_cycles(library, 1000)


@pytest.mark.parametrize("ring", [1, 3])
def test_GEN_07_a_ring_of_results_never_overwrites_what_the_card_still_reads(
    library: EmulatedCuda, ring: int
) -> None:
    step = jit(lambda x: (x * 2).realize() + 1, outputs=ring)
    inputs = [tensor(float(number)) for number in range(9)]
    for x in inputs[:3]:
        step(x)
    with library.hold():
        results, readers = [], []
        for x in inputs:
            results.append(step(x))
            readers.append((results[-1] * 10).realize())  # reads the slot, and waits in the queue
    assert [reader.item() for reader in readers] == [10.0 * (2 * n + 1) for n in range(9)]
    assert [result.item() for result in results[-ring:]] == [2.0 * n + 1 for n in range(9)][-ring:]
    for result in results[:-ring]:
        with pytest.raises(StaleOutputError):
            result.item()


def test_GEN_07_memory_that_is_given_back_while_the_card_hangs_is_written_after_its_last_use(
    library: EmulatedCuda,
) -> None:
    x = tensor(1, 2)
    (x * 2).realize()
    with library.hold():
        first = (x * 2).realize()
        second = (first + 1).realize()
        del first  # its block may go to the next result at once
        third = (x * 100).realize()
    assert (second.tolist(), third.tolist()) == ([3, 5], [100, 200])


def test_GEN_07_addresses_that_run_out_are_refused_and_not_used_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(null, "_LAST_ADDRESS", null._FIRST_ADDRESS + 4096)
    memory = null.NullMemory()
    blocks = [memory.allocate(1024) for _ in range(4)]
    for block in blocks:
        memory.free(block)
    with pytest.raises(OutOfMemoryError, match="no addresses are left"):
        memory.allocate(1024)


def streams_tried(library: EmulatedCuda) -> list[str]:
    """What has been asked of a card that was opened just now, but for marks and contexts."""
    asked = ("stream_create", "fill", "copy_to_host", "copy_between_cards", "launch")
    return [call for call in library.calls if call in asked]


def test_BKE_12_a_card_that_comes_back_has_new_queues_that_have_done_something(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with emulated_cards(monkeypatch, cards=2) as library:
        x = tensor(1, 2)
        (other,) = (Tensor([5.0], device="CUDA:1").realize(),)
        assert other.to("CUDA").tolist() == [5]
        hurry()
        with library.hold():
            (x * 2).realize()
            with pytest.raises(DeviceTimeoutError):
                Device["CUDA"].close()
        library.calls.clear()
        Device["CUDA"].synchronize()
        assert streams_tried(library) == ["stream_create", "fill", "copy_to_host"]
        library.calls.clear()
        assert other.to("CUDA").tolist() == [5]
        assert streams_tried(library)[:4] == [
            *("stream_create", "fill", "copy_to_host"),
            "copy_between_cards",
        ]


@pytest.mark.parametrize("call", ["fill", "copy_to_host", "event_record"])
def test_BKE_12_a_context_that_is_still_broken_is_not_opened(
    library: EmulatedCuda, call: str
) -> None:
    library.fail_next(call, 700)
    with pytest.raises(DeviceLostError, match="does not do what it is given"):
        tensor(1, 2)
    assert library.held["context"] == 0


def test_BKE_12_after_a_kernel_has_failed_whoever_opens_the_card_hears_what_helps(
    library: EmulatedCuda,
) -> None:
    x = tensor(1, 2)
    library.fail_next("copy_to_host", 700)
    with pytest.raises(DeviceFaultError, match="start the process again"):
        (x * 2).numpy()
    with pytest.raises(DeviceLostError, match="start the process again"):
        x.numpy()
    Device["CUDA"].close()
    for _ in range(2):
        with pytest.raises(DeviceLostError, match="since a kernel has failed"):
            tensor(1, 2)


def test_BKE_12_a_kernel_that_does_not_end_keeps_whoever_closes_the_card_for_a_while_only(
    library: EmulatedCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, release = Event(), library.context_release

    def waits(ordinal: int) -> None:
        ended.wait(60)
        release(ordinal)

    monkeypatch.setattr(contexts, "RELEASE_SECONDS", SOON)
    monkeypatch.setattr(library, "context_release", waits)
    x = tensor(1, 2)
    hurry()
    with library.hold():
        (x * 2).realize()
        with pytest.raises(DeviceTimeoutError):
            Device["CUDA"].synchronize()
        with pytest.raises(DeviceLostError, match="a kernel that does not end"):
            Device["CUDA"].close()
        with pytest.raises(DeviceLostError, match="still busy"):
            tensor(1, 2)
    ended.set()
    for thread in tuple(contexts._waiting.values()):
        thread.join(60)
    assert tensor(1, 2).tolist() == [1, 2]


def test_BKE_12_a_card_whose_first_work_does_not_end_or_is_not_done_is_not_opened(
    library: EmulatedCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof, "PROOF_SECONDS", SOON)
    with library.hold(), pytest.raises(DeviceLostError, match="no progress"):
        tensor(1, 2)
    with monkeypatch.context() as patch:
        patch.setattr(library, "fill", lambda *arguments: None)
        with pytest.raises(DeviceLostError, match="came back"):
            tensor(1, 2)
    assert tensor(1, 2).tolist() == [1, 2]
