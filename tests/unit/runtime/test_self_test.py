"""The self test at open: a right device passes, one that lacks anything is refused by name."""

import struct
from collections.abc import Callable
from dataclasses import replace

import pytest

from tilework.base.errors import DeviceUnavailableError
from tilework.base.ledger import LEDGER, difference
from tilework.engine.device import Device
from tilework.runtime import self_test
from tilework.runtime.drivers import cpu
from tilework.runtime.host import host_spec
from tilework.runtime.native.kernels_source import PROBES
from tilework.target.known.cpu import aarch64_spec, x86_level_spec

WORD = (1 << 64) - 1
RIGHT = [row.expected for row in self_test.ROWS]


def test_the_kernel_has_an_operation_for_each_row() -> None:
    assert len(PROBES) == len(self_test.ROWS)


def float_of(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits & 0xFFFFFFFF))[0])


def bits_of(value: float) -> int:
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def truncated_sum(row: self_test.Row) -> int:
    """Addition by an adder that rounds towards zero."""
    exact = float_of(row.first) + float_of(row.second)
    bits = bits_of(exact)
    return bits - 1 if float_of(bits) > exact else bits


def sum_rounded_up(row: self_test.Row) -> int:
    exact = float_of(row.first) + float_of(row.second)
    bits = bits_of(exact)
    return bits + 1 if float_of(bits) < exact else bits


#: Machines that lack one thing: which rows they compute how.
MACHINES: dict[str, tuple[list[int], Callable[[self_test.Row], int]]] = {
    "no float bits": ([0], lambda row: 0),
    "rounds towards zero": ([1, 2], truncated_sum),
    "rounds upwards": ([1, 2], sum_rounded_up),
    "multiplies 32 bits": ([5], lambda row: (row.first * row.second) & 0xFFFFFFFF),
    "shifts 32 bits": ([6], lambda row: (row.first << row.second) & 0xFFFFFFFF),
    "shifts without the sign": ([7], lambda row: row.first >> row.second),
    "converts to 32 bits": ([8], lambda row: 1 << 31),
}


def answers(rows: list[int], compute: Callable[[self_test.Row], int]) -> list[int]:
    return [
        compute(row) & WORD if number in rows else row.expected
        for number, row in enumerate(self_test.ROWS)
    ]


@pytest.mark.parametrize("name", MACHINES)
def test_TRN_15_a_device_that_lacks_something_is_refused(name: str) -> None:
    found = answers(*MACHINES[name])
    with pytest.raises(DeviceUnavailableError) as info:
        self_test.check("CPU", host_spec(), found)
    wrong = [
        row.name for row, one in zip(self_test.ROWS, found, strict=True) if one != row.expected
    ]
    assert wrong
    assert all(row in str(info.value) for row in wrong)


@pytest.mark.parametrize("number", range(len(RIGHT)))
@pytest.mark.parametrize("bit", [0, 7, 31, 63])
def test_TRN_15_a_wrong_bit_of_any_answer_is_found(number: int, bit: int) -> None:
    found = list(RIGHT)
    found[number] ^= 1 << bit
    with pytest.raises(DeviceUnavailableError, match="does not compute as kernels expect"):
        self_test.check("CPU", host_spec(), found)


def test_TRN_15_this_machine_passes() -> None:
    driver = Device["CPU"].driver
    assert isinstance(driver, cpu.CpuDriver)
    runtime = driver.pool.runtime
    found = self_test.ask(driver.pool.run, runtime.probe_kernel, driver._fault_buffer.address)
    assert found == RIGHT
    self_test.check("CPU", driver.target, found)


def test_TRN_15_a_device_that_fails_is_not_opened_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Device["CPU:7"].close()
    before = LEDGER.snapshot()
    with monkeypatch.context() as patch:
        patch.setattr(self_test, "ask", lambda *_: answers(*MACHINES["rounds towards zero"]))
        with pytest.raises(DeviceUnavailableError, match="rounding to nearest"):
            _ = Device["CPU:7"]
    assert difference(before, LEDGER.snapshot()) == {}
    Device["CPU:7"].close()


def test_TRN_15_fused_multiply_add_is_used_only_where_the_processor_has_it() -> None:
    assert x86_level_spec("x86-64-v3").has_fma
    assert not x86_level_spec("x86-64-v2").has_fma
    assert "mulacc" not in x86_level_spec("x86-64-v2").native_ops
    assert host_spec().has_fma == ("fma" in host_spec().features or host_spec().isa == "aarch64")


FLUSHING = answers([3, 4], lambda row: 0)


def test_TRN_16_the_policy_for_subnormals_is_part_of_each_target() -> None:
    for spec in (host_spec(), x86_level_spec("x86-64"), aarch64_spec()):
        assert spec.keeps_subnormals
        assert spec.key() != replace(spec, keeps_subnormals=False).key()


def test_TRN_16_a_device_that_flushes_subnormals_must_say_so() -> None:
    with pytest.raises(DeviceUnavailableError, match="flushed to zero"):
        self_test.check("CPU", host_spec(), FLUSHING)
    flushing = replace(host_spec(), keeps_subnormals=False)
    self_test.check("CPU", flushing, FLUSHING)
    with pytest.raises(DeviceUnavailableError, match="subnormals, which are kept"):
        self_test.check("CPU", flushing, RIGHT)


def test_TRN_16_kernels_keep_subnormals_whatever_the_calling_thread_has_set() -> None:
    import numpy as np
    import torch

    from tilework import Tensor

    x = Tensor(np.full(70_000, 2.0**-126, np.float32)).realize()
    wanted = np.full(70_000, 2.0**-130, np.float32)
    if not torch.set_flush_denormal(True):
        pytest.fail("this processor cannot flush subnormals, so there is nothing to test")
    try:
        found = (x * 0.0625).numpy()
        Device["CPU:6"].close()  # opened again: its self test runs on this very thread
        # A pool that is made now: its workers start as this thread is.
        new = (Tensor(np.full(70_000, 2.0**-126, np.float32), device="CPU:5") * 0.0625).numpy()
    finally:
        torch.set_flush_denormal(False)
    assert (found == wanted).all()
    assert (new == wanted).all()
    assert found.view(np.uint32)[0] != 0
