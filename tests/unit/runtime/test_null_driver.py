import pytest

from tilework.base.clock import WaitLimit
from tilework.base.errors import (
    BoundsError,
    DeviceError,
    InternalError,
    OutOfMemoryError,
    ShapeError,
    StaleHandleError,
    UnsupportedError,
)
from tilework.base.ledger import Ledger
from tilework.runtime.allocator import Block
from tilework.runtime.driver import Copy, Driver, KernelCode, Launch
from tilework.runtime.drivers import null
from tilework.runtime.drivers.null import NullDriver, NullMemory
from tilework.target.known.cpu import x86_level_spec

SPEC = x86_level_spec("x86-64-v3")
CODE = KernelCode(name="k", data=b"", num_buffers=2, num_variables=1, writes=(1,))


@pytest.fixture
def device() -> NullDriver:
    return NullDriver(SPEC, ledger=Ledger())


def test_it_fills_the_contract(device: NullDriver) -> None:
    contract: Driver = device
    assert not contract.target.runs_code
    assert null.probe().is_openable


def test_BKE_16_commands_are_checked_and_not_run(device: NullDriver) -> None:
    (kernel,) = device.load([CODE]).kernels
    a, b = device.allocate(1 << 44), device.allocate(1 << 44)  # more than any machine has
    ticket = device.submit([Launch(kernel, (a, b), (1,), grid=(5,)), Copy(b, a)])
    device.wait(ticket, WaitLimit.of(1))
    with pytest.raises(ShapeError, match="other arguments"):
        device.submit([Launch(kernel, (a,), (1,))])
    with pytest.raises(DeviceError, match="no such ticket"):
        device.wait(ticket + 1, WaitLimit.of(1))


def test_BKE_16_recordings_are_checked_when_they_change(device: NullDriver) -> None:
    (kernel,) = device.load([CODE]).kernels
    a = device.allocate(64)
    recording = device.record([Launch(kernel, (a, a), (1,)), Copy(device.allocate(64), a)])
    recording.set_buffer(0, 0, device.allocate(8))
    recording.set_variable(0, 0, 3)
    recording.set_grid(0, (9,))
    assert recording.time() == (0.0, 0.0)
    with pytest.raises(BoundsError, match="no such grid"):
        recording.set_grid(0, (-1,))
    with pytest.raises(UnsupportedError, match="only the buffers of launches"):
        recording.set_buffer(1, 0, a)
    recording.close()


def test_reading_a_result_is_refused(device: NullDriver) -> None:
    buffer = device.allocate(8)
    device.copy_in(buffer, memoryview(bytes(8)))
    with pytest.raises(UnsupportedError, match="runs nothing"):
        device.copy_out(buffer, memoryview(bytearray(8)))
    with pytest.raises(ShapeError):
        device.copy_in(buffer, memoryview(bytes(9)))


def test_memory_is_counted_and_limited() -> None:
    ledger = Ledger()
    device = NullDriver(SPEC, memory_limit=1000, ledger=ledger)
    held = device.allocate(500)
    with pytest.raises(OutOfMemoryError):
        device.allocate(600)
    assert device.memory_used() == {"used": 512, "kept": 0, "peak": 512}
    held.close()
    assert device.memory_used()["used"] == 0
    assert ledger.snapshot() == {}
    with pytest.raises(InternalError):
        device.memory.free(Block(1, 1, 1, 1))


def test_a_closed_device_refuses_work(device: NullDriver) -> None:
    device.close()
    with pytest.raises(StaleHandleError):
        device.submit([])


def test_MPL_15_addresses_that_are_never_used_twice_have_a_bound() -> None:
    memory = NullMemory()
    blocks = [memory.allocate(1 << 40) for _ in range(3)]
    assert len({block.address for block in blocks}) == 3
    memory._next = (1 << 62) - (1 << 20)
    last = memory.allocate(1 << 19)
    assert last.address + last.capacity_bytes <= 1 << 62
    with pytest.raises(OutOfMemoryError, match="no addresses are left"):
        memory.allocate(1 << 20)
    for block in (*blocks, last):
        memory.free(block)
    assert memory.used_bytes == 0
