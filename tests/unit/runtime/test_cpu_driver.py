import ctypes
import threading

import pytest

from tilework.base import faults
from tilework.base.clock import WaitLimit
from tilework.base.errors import (
    AliasError,
    BoundsError,
    DeviceError,
    DeviceFaultError,
    IndexingError,
    ModelFileError,
    OutOfMemoryError,
    ShapeError,
    StaleHandleError,
    UnsupportedError,
)
from tilework.base.ledger import Ledger
from tilework.runtime.buffer import Buffer
from tilework.runtime.driver import Copy, Driver, KernelCode, Launch, Signal
from tilework.runtime.drivers import cpu
from tilework.runtime.drivers.cpu import CpuDriver, CpuProgram
from tilework.runtime.lease import Lease
from tilework.toolchain.llvm import LlvmToolchain

SOURCE = """
define void @{name}(ptr %buffers, ptr %variables, i64 %begin, i64 %end, ptr %scratch) nounwind {{
entry:
  %source = load ptr, ptr %buffers
  %target.at = getelementptr ptr, ptr %buffers, i64 1
  %target = load ptr, ptr %target.at
  %extra.at = getelementptr i64, ptr %variables, i64 1
  %extra = load i64, ptr %extra.at
  %empty = icmp sge i64 %begin, %end
  br i1 %empty, label %done, label %loop
loop:
  %i = phi i64 [%begin, %entry], [%next, %loop]
  %from = getelementptr i64, ptr %source, i64 %i
  %value = load i64, ptr %from
  %sum = add i64 %value, %extra
  %to = getelementptr i64, ptr %target, i64 %i
  store i64 %sum, ptr %to
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  {last}
  ret void
}}
"""
REPORT = "%fault = load ptr, ptr %variables\n  store i64 5, ptr %fault"
LIMIT = WaitLimit.of(1)


def code_for(driver: CpuDriver, name: str, last: str = "") -> KernelCode:
    data = LlvmToolchain(driver.target).compile(SOURCE.format(name=name, last=last))
    return KernelCode(name=name, data=data, num_buffers=2, num_variables=1, writes=(1,))


@pytest.fixture
def program(driver: CpuDriver) -> CpuProgram:
    return driver.load([code_for(driver, "shift"), code_for(driver, "faulty", REPORT)])


def filled(driver: CpuDriver, *values: int) -> Buffer:
    buffer = driver.allocate(8 * len(values))
    driver.copy_in(buffer, memoryview((ctypes.c_int64 * len(values))(*values)))
    return buffer


def read(driver: CpuDriver, buffer: Buffer) -> list[int]:
    out = (ctypes.c_int64 * (buffer.size_bytes // 8))()
    driver.copy_out(buffer, memoryview(out))
    return list(out)


def test_it_fills_the_contract(driver: CpuDriver) -> None:
    contract: Driver = driver
    assert contract.name == "CPU"


def test_BKE_01_probing_says_what_is_there_and_starts_nothing() -> None:
    threads = threading.active_count()
    found = cpu.probe()
    assert found.is_openable
    assert found.isa.startswith("cpu-")
    assert threading.active_count() == threads


def test_commands_run_in_order(driver: CpuDriver, program: CpuProgram) -> None:
    a, b, c = filled(driver, *range(100)), filled(driver, *[0] * 100), filled(driver, *[0] * 100)
    shift = program.kernels[0]
    ticket = driver.submit(
        [
            Launch(shift, (a, b), (1,), grid=(100,)),
            Copy(c, b),
            Launch(shift, (c, a), (10,), grid=(100,)),
        ]
    )
    driver.wait(ticket, LIMIT)
    assert read(driver, a) == [x + 11 for x in range(100)]


def test_tickets_rise_and_unknown_ones_are_refused(driver: CpuDriver) -> None:
    first, second = driver.submit([]), driver.submit([])
    assert second > first
    with pytest.raises(DeviceError, match="no such ticket"):
        driver.wait(second + 1, LIMIT)


def test_views_are_launched_on_their_part(driver: CpuDriver, program: CpuProgram) -> None:
    a, b = filled(driver, *range(10)), filled(driver, *[0] * 10)
    launch = Launch(program.kernels[0], (a.view(16, 24), b.view(40, 24)), (0,), grid=(3,))
    driver.submit([launch])
    assert read(driver, b) == [0] * 5 + [2, 3, 4] + [0] * 2


def test_a_large_copy_is_complete(driver: CpuDriver) -> None:
    size = (1 << 22) + 13
    a, b = driver.allocate(size), driver.allocate(size)
    a.as_memoryview()[:] = bytes(range(256)) * (size // 256) + bytes(size % 256)
    driver.submit([Copy(b, a)])
    assert b.as_memoryview() == a.as_memoryview()


def test_a_recording_runs_again_with_what_was_changed(
    driver: CpuDriver, program: CpuProgram
) -> None:
    a, b, c = filled(driver, 1, 2, 3), filled(driver, 0, 0, 0), filled(driver, 0, 0, 0)
    recording = driver.record([Launch(program.kernels[0], (a, b), (1,), grid=(3,))])
    recording.submit()
    recording.set_buffer(0, 1, c)
    recording.set_variable(0, 0, 5)
    recording.set_grid(0, (2,))
    recording.submit()
    assert (read(driver, b), read(driver, c)) == ([2, 3, 4], [6, 7, 0])
    recording.close()
    with pytest.raises(StaleHandleError):
        recording.submit()


def test_a_recording_keeps_its_buffers(driver: CpuDriver, program: CpuProgram) -> None:
    a, b = filled(driver, 1, 2, 3), filled(driver, 0, 0, 0)
    window = b.as_memoryview().cast("q")
    recording = driver.record([Launch(program.kernels[0], (a, b), (1,), grid=(3,))])
    del a, b
    other = filled(driver, 9, 9, 9)
    recording.submit()
    assert list(window) == [2, 3, 4]
    assert read(driver, other) == [9, 9, 9]


def test_time_gives_seconds_for_each_command(driver: CpuDriver, program: CpuProgram) -> None:
    a, b = filled(driver, *range(100)), filled(driver, *[0] * 100)
    times = driver.time([Launch(program.kernels[0], (a, b), (1,), grid=(100,)), Copy(a, b)])
    assert len(times) == 2
    assert all(0 < seconds < 10 for seconds in times)


def test_a_fault_is_raised_once_at_the_next_wait(driver: CpuDriver, program: CpuProgram) -> None:
    a, b = filled(driver, 1), filled(driver, 0)
    ticket = driver.submit([Launch(program.kernels[1], (a, b), (1,), grid=(1,))])
    with pytest.raises(DeviceFaultError, match="reported a fault"):
        driver.wait(ticket, LIMIT)
    driver.wait(ticket, LIMIT)


def test_a_fault_is_raised_by_a_readback_in_the_program_s_words(
    driver: CpuDriver, program: CpuProgram
) -> None:
    driver.describe_fault = lambda code: IndexingError(f"gather: index is out of range ({code})")
    a, b = filled(driver, 1), filled(driver, 0)
    driver.submit([Launch(program.kernels[1], (a, b), (1,), grid=(1,))])
    with pytest.raises(IndexingError, match=r"gather: index is out of range \(5\)"):
        read(driver, b)


def test_arguments_are_counted(driver: CpuDriver, program: CpuProgram) -> None:
    a = filled(driver, 1)
    for launch in (Launch(program.kernels[0], (a,), (1,)), Launch(program.kernels[0], (a, a), ())):
        with pytest.raises(ShapeError, match="other arguments than it has"):
            driver.submit([launch])


def test_BKE_05_argument_limits_are_typed_errors(driver: CpuDriver, program: CpuProgram) -> None:
    a = filled(driver, 1)
    with pytest.raises(UnsupportedError, match="too many buffers"):
        driver.submit([Launch(program.kernels[0], (a,) * 5000, (1,))])


def test_bad_grids_are_refused(driver: CpuDriver, program: CpuProgram) -> None:
    a = filled(driver, 1)
    with pytest.raises(BoundsError, match="no such grid"):
        driver.submit([Launch(program.kernels[0], (a, a), (1,), grid=(-1,))])
    with pytest.raises(ShapeError, match="a grid has one number"):
        driver.submit([Launch(program.kernels[0], (a, a), (1,), grid=(1, 2))])


def test_copies_are_checked(driver: CpuDriver) -> None:
    a = driver.allocate(64)
    with pytest.raises(ShapeError, match="different sizes"):
        driver.submit([Copy(a, driver.allocate(32))])
    with pytest.raises(AliasError, match="a part of itself"):
        driver.submit([Copy(a.view(0, 32), a.view(16, 32))])
    with pytest.raises(ShapeError, match="sizes that differ"):
        driver.copy_in(a, memoryview(bytes(10)))


def test_views_of_several_axes_are_copied(driver: CpuDriver) -> None:
    buffer = driver.allocate(6)
    driver.copy_in(buffer, memoryview(bytes(range(6))).cast("B", (2, 3)))
    found = bytearray(6)
    driver.copy_out(buffer, memoryview(found).cast("B", (3, 2)))
    assert found == bytes(range(6))


def test_timelines_are_refused(driver: CpuDriver) -> None:
    class Counter:
        name = "t"

        def value(self) -> int:
            return 0

        def advance(self, value: int) -> None:
            return None

    with pytest.raises(DeviceError, match="moved by the host"):
        driver.submit([Signal(Counter(), 1)])


def test_leased_memory_is_used_in_place_and_not_written_if_readonly(
    driver: CpuDriver, program: CpuProgram, ledger: Ledger
) -> None:
    lent = (ctypes.c_int64 * 3)(1, 2, 3)
    lease = Lease(ctypes.addressof(lent), 24, owner="test", is_readonly=True, ledger=ledger)
    source, target = driver.map(lease), filled(driver, 0, 0, 0)
    kernel = program.kernels[0]
    driver.submit([Launch(kernel, (source, target), (4,), grid=(3,))])
    assert read(driver, target) == [5, 6, 7]
    with pytest.raises(AliasError, match="writes to read-only memory"):
        driver.submit([Launch(kernel, (target, source), (4,), grid=(3,))])
    lease.release()
    with pytest.raises(StaleHandleError, match="given back"):
        driver.submit([Launch(kernel, (source, target), (4,), grid=(3,))])


def test_memory_counters_and_limit(native_object: bytes) -> None:
    driver = CpuDriver(native_object, num_threads=1, memory_limit=1 << 20, ledger=Ledger())
    before = driver.memory_used()["used"]
    held = driver.allocate(1000)
    assert driver.memory_used()["used"] == before + 1024
    with pytest.raises(OutOfMemoryError, match="memory limit"):
        driver.allocate(2 << 20)
    held.close()
    assert driver.memory_used()["used"] == before
    driver.close()


def test_a_malformed_program_is_refused(driver: CpuDriver) -> None:
    with pytest.raises(ModelFileError):
        driver.load([KernelCode(name="x", data=b"not an object", num_buffers=0)])


def test_a_closed_driver_holds_nothing_and_refuses_work(native_object: bytes) -> None:
    ledger = Ledger()
    driver = CpuDriver(native_object, num_threads=2, ledger=ledger)
    driver.allocate(100).close()
    driver.close()
    driver.close()
    assert ledger.snapshot() == {}
    with pytest.raises(StaleHandleError, match="was closed"):
        driver.submit([])


def test_opening_that_fails_at_any_step_leaves_nothing(native_object: bytes) -> None:
    with faults.count() as points:
        CpuDriver(native_object, ledger=Ledger()).close()
    for step in range(len(points)):
        ledger = Ledger()
        with faults.fail_at(step), pytest.raises(faults.InjectedFault):
            CpuDriver(native_object, ledger=ledger)
        assert ledger.snapshot() == {}, points[step]


def test_loading_that_fails_at_any_step_leaves_nothing(driver: CpuDriver, ledger: Ledger) -> None:
    codes = [code_for(driver, "shift")]
    with faults.count() as points:
        driver.load(codes).close()
    before = ledger.snapshot()
    for step in range(len(points)):
        with faults.fail_at(step), pytest.raises(faults.InjectedFault):
            driver.load(codes)
        assert ledger.snapshot() == before, points[step]
