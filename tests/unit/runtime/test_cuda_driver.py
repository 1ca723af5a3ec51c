"""The CUDA driver against NVIDIA's in software: faults, time limits, memory, what is held."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tilework.base import faults
from tilework.base.clock import WaitLimit
from tilework.base.errors import (
    DeviceFaultError,
    DeviceLostError,
    DeviceTimeoutError,
    InternalError,
    ModelFileError,
    OutOfMemoryError,
    StaleHandleError,
    UnsupportedError,
)
from tilework.base.ledger import Ledger
from tilework.codegen.pipeline import lower_kernel
from tilework.dtypes import float32
from tilework.ir.build import const, const_index
from tilework.ir.node import Node
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.math import MUL
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.text import format_node
from tilework.runtime.cuda.memory import block_bytes
from tilework.runtime.driver import Command, Copy, KernelCode, Launch, Program
from tilework.runtime.drivers.cuda import CudaDriver, probe
from tilework.target.cuda_code import Box, CudaHead, pack_code, unpack_code
from tilework.target.known.cuda import cuda_spec
from tilework.testing.emulators.cuda import EmulatedCuda

COUNT = 64


def doubling() -> Node:
    i = RANGE(const_index(COUNT), attrs=RangeAttrs(0))
    out, x = (PARAM(attrs=ParamAttrs(slot, (COUNT,), float32)) for slot in (0, 1))
    return SINK(STORE(INDEX(out, i), MUL(LOAD(INDEX(x, i)), const(2.0, float32))))


def head(**changes: object) -> CudaHead:
    fields: dict[str, object] = {
        "name": "k", "arch": "sm_90a", "threads": 32, "shared": 0, "scratch": 0, "buffers": 2,
        "variables": 0, "has_any": True, "is_persistent": False, "boxes": (),
    }  # fmt: skip
    return CudaHead(**{**fields, **changes})  # type: ignore[arg-type]


def code(**changes: object) -> KernelCode:
    lowered = lower_kernel(doubling(), cuda_spec(90))
    found = head(threads=lowered.threads, **changes)
    data = pack_code(found, format_node(lowered.linear).encode())
    return KernelCode(name="k", data=data, num_buffers=2, writes=(0,))


@pytest.fixture
def library() -> EmulatedCuda:
    return EmulatedCuda()


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
def driver(library: EmulatedCuda, ledger: Ledger) -> Iterator[CudaDriver]:
    opened = CudaDriver(library=library, ledger=ledger)
    yield opened
    opened.close()


def doubled(driver: CudaDriver, program: Program, size: int = 4 * COUNT) -> bytes:
    x, y = driver.allocate(size), driver.allocate(size)
    driver.copy_in(x, memoryview(b"\0\0\x80\x3f" * COUNT))
    driver.wait(driver.submit([Launch(program.kernels[0], (y, x))]), WaitLimit.of(10.0))
    result = bytearray(size)
    driver.copy_out(y, memoryview(result))
    return bytes(result)


def test_a_kernel_runs_on_memory_of_the_card(driver: CudaDriver) -> None:
    assert doubled(driver, driver.load([code()])) == b"\0\0\0\x40" * COUNT


def test_buffers_that_do_not_start_at_sixteen_bytes_take_the_second_entry_point(
    driver: CudaDriver, library: EmulatedCuda
) -> None:
    program = driver.load([code()])
    whole = driver.allocate(8 * COUNT)
    aligned, crooked = whole.view(0, 4 * COUNT), whole.view(4, 4 * COUNT)
    target = driver.allocate(4 * COUNT)
    driver.submit([Launch(program.kernels[0], (target, aligned))])
    driver.submit([Launch(program.kernels[0], (target, crooked))])
    assert [launch[0] for launch in library.launches] == ["k", "k_any"]


def test_arrays_that_start_anywhere_are_copied_for_the_copy_engine(
    driver: CudaDriver, library: EmulatedCuda
) -> None:
    box = Box(
        slot=1, dtype="float32", start_bytes=0, sizes=(COUNT,), strides_bytes=(4,), box=(COUNT,),
        swizzle_bytes=0,
    )  # fmt: skip
    program = driver.load([code(boxes=(box,))])
    whole, target = driver.allocate(8 * COUNT), driver.allocate(4 * COUNT)
    crooked = whole.view(4, 4 * COUNT)
    driver.copy_in(crooked, memoryview(b"\0\0\x80\x3f" * COUNT))
    launch = Launch(program.kernels[0], (target, crooked))
    recording = driver.record([launch])
    for is_recorded in (False, True):
        library.calls.clear()
        ticket = recording.submit() if is_recorded else driver.submit([launch])
        driver.wait(ticket, WaitLimit.of(10.0))
        result = bytearray(4 * COUNT)
        driver.copy_out(target, memoryview(result))
        assert bytes(result) == b"\0\0\0\x40" * COUNT
        assert "copy_on_device" in library.calls
    recording.close()


def test_buffers_that_do_not_start_at_an_element_are_copied_first(
    driver: CudaDriver, library: EmulatedCuda
) -> None:
    program = driver.load([code(widths="4,4")])
    whole = driver.allocate(8 * COUNT)
    crooked = whole.view(3, 4 * COUNT)
    driver.copy_in(crooked, memoryview(b"\0\0\x80\x3f" * COUNT))
    target = driver.allocate(4 * COUNT + 8).view(1, 4 * COUNT)
    library.calls.clear()
    driver.wait(driver.submit([Launch(program.kernels[0], (target, crooked))]), WaitLimit.of(10.0))
    result = bytearray(4 * COUNT)
    driver.copy_out(target, memoryview(result))
    assert bytes(result) == b"\0\0\0\x40" * COUNT
    assert library.calls.count("copy_on_device") == 3
    assert library.launches[-1][0] == "k"


def test_closing_gives_everything_back(library: EmulatedCuda, ledger: Ledger) -> None:
    driver = CudaDriver(library=library, ledger=ledger)
    program = driver.load([code()])
    doubled(driver, program)
    driver.close()
    driver.close()
    assert not +library.held
    assert ledger.snapshot() == {}


def test_a_failure_at_any_step_of_opening_gives_everything_back(library: EmulatedCuda) -> None:
    with faults.count() as points:
        CudaDriver(library=library, ledger=Ledger()).close()
    assert "cuda.open.stream" in points
    for step in range(len(points)):
        own, ledger = EmulatedCuda(), Ledger()
        with faults.fail_at(step), pytest.raises(faults.InjectedFault):
            CudaDriver(library=own, ledger=ledger)
        assert not +own.held, points[step]
        assert ledger.snapshot() == {}, points[step]


def test_a_failure_while_code_is_loaded_unloads_what_was(
    driver: CudaDriver, library: EmulatedCuda
) -> None:
    with faults.fail_at(1), pytest.raises(faults.InjectedFault):
        driver.load([code(), code()])
    assert library.held["module"] == 0


def test_an_illegal_address_names_the_kernel_and_loses_the_device(
    library: EmulatedCuda, ledger: Ledger
) -> None:
    driver = CudaDriver(library=library, ledger=ledger)
    program = driver.load([code()])
    x, y = driver.allocate(4 * COUNT), driver.allocate(4 * COUNT)
    ticket = driver.submit([Launch(program.kernels[0], (y, x), grid=(3,))])
    library.fail_next("event_is_done", 700)
    with pytest.raises(DeviceFaultError, match="k on 3 blocks") as caught:
        driver.wait(ticket, WaitLimit.of(10.0))
    assert caught.value.kind == "CUDA_ERROR_700"
    with pytest.raises(DeviceLostError, match="start the process again"):
        driver.submit([])
    driver.close()
    with pytest.raises(DeviceLostError, match="since a kernel has failed"):
        CudaDriver(library=library, ledger=ledger)
    assert ledger.snapshot() == {}


def test_a_card_that_hangs_ends_the_wait_in_time_and_is_lost(
    driver: CudaDriver, library: EmulatedCuda
) -> None:
    program = driver.load([code()])
    x, y = driver.allocate(4 * COUNT), driver.allocate(4 * COUNT)
    with library.hold():
        ticket = driver.submit([Launch(program.kernels[0], (y, x))])
        with pytest.raises(DeviceTimeoutError) as caught:
            driver.wait(ticket, WaitLimit.of(0.02))
        assert any("k on 1 blocks" in note for note in caught.value.__notes__)
        with pytest.raises(DeviceLostError):
            driver.wait(ticket, WaitLimit.of(0.02))


def test_freed_memory_is_reused_and_makes_room_before_the_card_is_full(ledger: Ledger) -> None:
    library = EmulatedCuda(memory_bytes=16 << 20)
    driver = CudaDriver(library=library, ledger=ledger)
    first = driver.allocate(6 << 20)
    address = first.address
    first.close()
    assert driver.allocate(6 << 20).address == address
    driver.memory_used()
    whole = driver.allocate(12 << 20)  # the six that wait for reuse are given back first
    with pytest.raises(OutOfMemoryError, match="the card has no room"):
        driver.allocate(8 << 20)
    whole.close()
    driver.close()
    assert ledger.snapshot() == {}


def test_a_recording_is_one_graph_whose_arguments_change(
    driver: CudaDriver, library: EmulatedCuda
) -> None:
    program = driver.load([code()])
    x, y, z, other = (driver.allocate(4 * COUNT) for _ in range(4))
    for buffer, bits in ((x, b"\0\0\x80\x3f"), (other, b"\0\0\0\x40")):
        driver.copy_in(buffer, memoryview(bits * COUNT))
    recording = driver.record([Launch(program.kernels[0], (y, x)), Copy(z, y)])
    library.calls.clear()
    driver.wait(recording.submit(), WaitLimit.of(10.0))
    assert library.calls.count("graph_launch") == 1
    assert "graph_set_kernel" not in library.calls
    recording.set_buffer(0, 1, other)
    driver.wait(recording.submit(), WaitLimit.of(10.0))
    result = bytearray(4 * COUNT)
    driver.copy_out(z, memoryview(result))
    assert bytes(result) == b"\0\0\x80\x40" * COUNT
    recording.close()
    with pytest.raises(StaleHandleError):
        recording.submit()
    assert library.held["graph"] == library.held["instance"] == 0


def kinds_of_nodes(driver: CudaDriver, library: EmulatedCuda, **changes: object) -> list[str]:
    (kernel,) = driver.load([code(**changes)]).kernels
    x, y, z = (driver.allocate(4 * COUNT) for _ in range(3))
    library.calls.clear()
    commands: list[Command] = [
        Launch(kernel, (y, x)), Launch(kernel, (z, y)), Copy(x, z), Launch(kernel, (y, x))
    ]  # fmt: skip
    driver.record(commands).close()
    return [call.removeprefix("graph_add_") for call in library.calls if "graph_add" in call]


def test_a_kernel_that_waits_by_itself_starts_before_the_kernel_ahead_of_it_ends(
    driver: CudaDriver, library: EmulatedCuda
) -> None:
    assert kinds_of_nodes(driver, library, waits=True) == [
        "kernel", "early_kernel", "copy", "kernel",
    ]  # fmt: skip


def test_code_that_does_not_wait_starts_after_the_kernel_ahead_of_it(
    driver: CudaDriver, library: EmulatedCuda
) -> None:
    assert kinds_of_nodes(driver, library) == ["kernel", "kernel", "copy", "kernel"]


def test_older_drivers_start_no_kernel_early(library: EmulatedCuda) -> None:
    library.version = lambda: 12020  # type: ignore[method-assign]
    opened = CudaDriver(library=library, ledger=Ledger())
    assert kinds_of_nodes(opened, library, waits=True) == ["kernel", "kernel", "copy", "kernel"]
    opened.close()


def test_a_file_from_before_kernels_waited_is_read_as_code_that_does_not() -> None:
    old = pack_code(head(waits=True), b"cubin").replace(b',"waits":true', b"")
    length = old.index(b"cubin") - 12
    packed = old[:8] + length.to_bytes(4, "little") + old[12:]
    found, _ = unpack_code(packed)
    assert not found.waits


def test_code_for_another_card_is_refused(driver: CudaDriver) -> None:
    with pytest.raises(UnsupportedError, match="for another card"):
        driver.load([code(arch="sm_80")])
    with pytest.raises(UnsupportedError, match="shared memory"):
        driver.load([code(shared=1 << 20)])


def test_the_head_of_code_survives_packing_and_malformed_ones_are_refused() -> None:
    found = head(shared=1024)
    assert unpack_code(pack_code(found, b"cubin")) == (found, b"cubin")
    packed = pack_code(found, b"cubin")
    for broken in (
        b"",
        b"TWCUDA01",
        packed[:20],
        packed.replace(b'"threads":32', b'"threads":"a"'),
    ):
        with pytest.raises(ModelFileError):
            unpack_code(broken)


def test_a_block_freed_twice_is_an_error_of_ours(driver: CudaDriver) -> None:
    block = driver.allocator.allocate(100)
    driver.allocator.free(block)
    with pytest.raises(InternalError, match="freed twice"):
        driver.allocator.free(block)


def test_sizes_of_blocks_waste_at_most_an_eighth() -> None:
    for size in (257, 1000, 5000, 100_001, (1 << 20) + 1):
        assert size <= block_bytes(size) <= size * 9 // 8 + 256


def test_a_probe_without_cards_says_so() -> None:
    assert not probe(EmulatedCuda(cards=0)).is_present
    assert probe(EmulatedCuda()).is_openable
