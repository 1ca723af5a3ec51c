"""The CPU: `submit` runs the commands on the thread pool before it returns.

    driver = CpuDriver(native_object, target=host_spec())
    program = driver.load([KernelCode(name="k", data=object_bytes, num_buffers=2, writes=(1,))])
    x, y = driver.allocate(64), driver.allocate(64)
    driver.copy_in(x, memoryview(data))
    driver.submit([Launch(program.kernels[0], (x, y), grid=(tasks,))])
    driver.copy_out(y, memoryview(result))

A kernel that reads an index out of range stores a number in the fault word; the next `wait` or
`copy_out` raises what `describe_fault` makes of it.  Native code cannot be interrupted, so a
time limit is met only between submissions.  A forked child may go on using the driver: memory is
copied on write, and the child starts its own threads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final

from tilework.base import faults, trace
from tilework.base.clock import WaitLimit
from tilework.base.errors import (
    DeviceError,
    DeviceFaultError,
    ShapeError,
    StaleHandleError,
    TileworkError,
)
from tilework.base.forks import new_lock
from tilework.base.ledger import LEDGER, Ledger
from tilework.runtime import reclaim, self_test
from tilework.runtime.allocator import DEFAULT_KEPT_BYTES, PLAIN, BufferSpec, HostAllocator
from tilework.runtime.buffer import Buffer, allocate_buffer, lease_buffer
from tilework.runtime.counted import CountsMemory
from tilework.runtime.driver import (
    Command,
    Copy,
    Kernel,
    KernelCode,
    Launch,
    Probe,
    Signal,
    Wait,
    check_commands,
)
from tilework.runtime.host import host_spec
from tilework.runtime.hostos import HostOs, host_os
from tilework.runtime.interpreter import view_memory
from tilework.runtime.launch import KernelLaunch, LaunchTable
from tilework.runtime.lease import Lease
from tilework.runtime.loader import LoadedCode, load_objects
from tilework.runtime.native.layout import COPY_BLOCK_BYTES
from tilework.runtime.pool import ThreadPool
from tilework.target.spec import TargetSpec

DEVICE: Final = "CPU"
_SERIAL_COPY_BYTES: Final = 4 * COPY_BLOCK_BYTES  # below, one core moves it before another wakes


def probe(host: HostOs | None = None) -> Probe:
    """Say whether programs can run on this machine's processor."""
    try:
        system = host or host_os()
        spec = host_spec() if host is None else None
    except TileworkError as error:
        return Probe(device=DEVICE, is_present=True, is_openable=False, reason=str(error))
    isa = spec.name if spec else system.isa()
    return Probe(device=DEVICE, is_present=True, is_openable=True, driver=system.name, isa=isa)


class CpuProgram:
    """Kernels in one mapping of executable memory."""

    def __init__(self, code: LoadedCode, kernels: tuple[Kernel, ...]) -> None:
        self._code = code
        self.kernels = kernels

    def close(self) -> None:
        """Unmap the code."""
        self._code.close()


class CpuRecording:
    """A launch table and the buffers that it refers to.  Not thread-safe."""

    def __init__(self, driver: CpuDriver, commands: Sequence[Command]) -> None:
        self._driver = driver
        self._buffers = [_buffers_of(command) for command in commands]
        self._leases = _leases_of(commands)
        self.table = driver.make_table(commands)
        self._is_closed = False

    def set_buffer(self, command: int, slot: int, buffer: Buffer) -> None:
        """Give launch number `command` another buffer (a copy: slot 0 target, 1 source)."""
        self._buffers[command][slot] = buffer
        self.table.words[self.table.buffer_word(command, slot)] = buffer.address
        if buffer.lease is not None and buffer.lease not in self._leases:
            self._leases.append(buffer.lease)

    def set_variable(self, command: int, slot: int, value: int) -> None:
        """Give launch number `command` another value of a variable."""
        self.table.words[self.table.variable_word(command, slot)] = value

    def set_grid(self, command: int, grid: tuple[int, ...]) -> None:
        """Give launch number `command` another number of tasks."""
        (tasks,) = grid
        self.table.words[self.table.tasks_word(command)] = tasks

    def submit(self) -> int:
        """Run it; done when this returns."""
        if self._is_closed:
            raise StaleHandleError(f"{DEVICE}: the recording was closed")
        return self._driver.run_table(self.table, self._leases)

    def time(self) -> tuple[float, ...]:
        """Run it and return the seconds of each command."""
        times = (ctypes.c_int64 * max(self.table.count, 1))()
        self._driver.run_table(self.table, self._leases, ctypes.addressof(times))
        return tuple(value * 1e-9 for value in times[: self.table.count])

    def close(self) -> None:
        """Let go of the buffers."""
        self._is_closed = True
        self._buffers.clear()
        self._leases.clear()


class CpuDriver(CountsMemory):
    """The processor of this machine as a device.  Thread-safe.

    Args:
        native_object: the compiled pool (`native.pool_source`).
        target: what programs may use; the host's own spec by default.
        num_threads: threads for parallel kernels, the caller's included; 0 takes the target's.
        memory_limit: bytes that may be allocated; 0 is no limit.
        poison: fill new memory with NaN patterns.
    """

    allocator: HostAllocator

    def __init__(
        self,
        native_object: bytes,
        *,
        target: TargetSpec | None = None,
        num_threads: int = 0,
        memory_limit: int = 0,
        kept_limit_bytes: int = DEFAULT_KEPT_BYTES,
        poison: bool = False,
        host: HostOs | None = None,
        ledger: Ledger = LEDGER,
    ) -> None:
        self.name = DEVICE
        self.target = target or host_spec(num_threads)
        self._host = host or host_os()
        self._ledger = ledger
        self.allocator = HostAllocator(
            device=DEVICE,
            limit_bytes=memory_limit,
            kept_limit_bytes=kept_limit_bytes,
            poison=poison,
            host=self._host,
            ledger=ledger,
        )
        faults.hit("cpu.open.pool")
        width = num_threads or self.target.cores
        self.pool = ThreadPool(native_object, width, host=self._host, ledger=ledger)
        self.describe_fault: Callable[[int], TileworkError] = _plain_fault
        try:
            self._fault_buffer = allocate_buffer(self.allocator, 64, zero=True)
            try:
                self._self_test()
            except BaseException:
                self._fault_buffer.close()
                raise
        except BaseException:
            self.pool.close()
            self.allocator.close()
            raise
        self._fault = ctypes.c_int64.from_address(self._fault_buffer.address)
        self._ticket = 0
        self._lock = new_lock()
        self._is_closed = False

    def _self_test(self) -> None:
        kernel, fault = self.pool.runtime.probe_kernel, self._fault_buffer.address
        self_test.check(DEVICE, self.target, self_test.ask(self.pool.run, kernel, fault))

    def allocate(self, size_bytes: int, *, zero: bool = False, spec: BufferSpec = PLAIN) -> Buffer:
        """Return new memory, aligned to 64 bytes."""
        return allocate_buffer(self.allocator, size_bytes, zero=zero, spec=spec)

    def map(self, lease: Lease) -> Buffer:
        """Return a buffer over memory of somebody else; nothing is copied."""
        return lease_buffer(DEVICE, lease)

    def load(self, kernels: Sequence[KernelCode]) -> CpuProgram:
        """Load the objects of a program into one mapping."""
        faults.hit("cpu.load")
        code = load_objects(
            [(kernel.data, [kernel.name]) for kernel in kernels],
            host=self._host,
            ledger=self._ledger,
        )
        loaded = tuple(
            Kernel(
                name=kernel.name,
                handle=code.address_of(kernel.name, index),
                num_buffers=kernel.num_buffers,
                num_variables=kernel.num_variables,
                writes=kernel.writes,
                scratch_bytes=kernel.scratch_bytes,
            )
            for index, kernel in enumerate(kernels)
        )
        return CpuProgram(code, loaded)

    def copy_in(self, target: Buffer, source: memoryview) -> None:
        """Copy bytes of the host to the device."""
        _check_sizes(target, source)
        _bytes_of(target)[:] = _as_bytes(source)

    def copy_out(self, source: Buffer, target: memoryview) -> None:
        """Copy bytes of the device to the host.  Raises what a kernel reported."""
        if self._fault.value:
            self.raise_fault()
        _check_sizes(source, target)
        view = _as_bytes(target)
        view[:] = _bytes_of(source)

    def submit(self, commands: Sequence[Command]) -> int:
        """Run `commands`; they are done when this returns."""
        check_commands(self.target, DEVICE, commands)
        return self.run_table(self.make_table(commands), _leases_of(commands))

    def record(self, commands: Sequence[Command]) -> CpuRecording:
        """Prepare `commands` as a launch table, which one native call runs."""
        check_commands(self.target, DEVICE, commands)
        return CpuRecording(self, commands)

    def wait(self, ticket: int, limit: WaitLimit) -> None:
        """Return at once, since work is done when it was submitted.  Raises a reported fault."""
        if ticket > self._ticket:
            raise DeviceError(f"{DEVICE}: no such ticket", got=ticket, expected=f"{self._ticket}")
        reclaim.run()
        self.raise_fault()

    def settle(self) -> None:
        """`wait` for everything, without a limit: it is done already.  Raises a reported fault."""
        if reclaim.waiting:
            reclaim.run()
        if self._fault.value:
            self.raise_fault()

    def time(self, commands: Sequence[Command]) -> tuple[float, ...]:
        """Run `commands` and return the seconds of each."""
        return self.record(commands).time()

    def raise_fault(self) -> None:
        """Raise what a kernel has reported since the last look, and forget it."""
        code = self._fault.value
        if code:
            self._fault.value = 0
            raise self.describe_fault(code)

    def make_table(self, commands: Sequence[Command]) -> LaunchTable:
        """Return the launch table of `commands`, which must have been checked."""
        launches = [self._as_launch(command) for command in commands]
        return LaunchTable(launches, self._fault_buffer.address)

    def fill_launch(self, buffer: Buffer, byte: int) -> Launch:
        """Return the launch that stores `byte` to each byte of a buffer."""
        kernel = Kernel(
            name="fill",
            handle=self.pool.runtime.fill_kernel,
            num_buffers=1,
            num_variables=2,
            writes=(0,),
        )
        size = buffer.size_bytes
        return Launch(
            kernel,
            (buffer,),
            (size, byte),
            grid=(-(-size // COPY_BLOCK_BYTES),),
            is_serial=size < _SERIAL_COPY_BYTES,
        )

    def run_table(self, table: LaunchTable, leases: Sequence[Lease], times: int = 0) -> int:
        """Run a table and return a ticket.

        Raises: StaleHandleError when a lease has ended or the driver is closed.
        """
        if self._is_closed:
            raise StaleHandleError(f"{DEVICE}: the device was closed")
        if trace.enabled():
            trace.emit(trace.Launched(f"{table.count} commands", DEVICE))
        if leases:
            with ExitStack() as stack:
                for lease in leases:
                    stack.enter_context(lease.device_access())
                self.pool.run(table, times)
        else:
            self.pool.run(table, times)
        reclaim.run()
        with self._lock:
            self._ticket += 1
            return self._ticket

    def table_function(self, table: LaunchTable) -> Callable[[], int] | None:
        """Return the cheapest way to run a short table: see `NativeRuntime.function_of`.

        It makes no ticket and no events, and must not be called once the driver is closed.
        """
        return self.pool.runtime.function_of(table)

    def close(self) -> None:
        """End the threads and release what nobody holds; buffers that live on stay valid.

        Raises: DeviceTimeoutError when another thread's submission does not end in a second.
        """
        if self._is_closed:
            return
        self.pool.close()
        self._is_closed = True
        self._fault = ctypes.c_int64(0)
        self._fault_buffer.close()
        self.allocator.close()

    def _as_launch(self, command: Command) -> KernelLaunch:
        match command:
            case Launch():
                if len(command.grid) != 1:
                    raise ShapeError(
                        f"{DEVICE}: a grid has one number, its tasks", got=command.grid
                    )
                kernel = command.kernel
                return KernelLaunch(
                    kernel.handle,
                    tuple(buffer.address for buffer in command.buffers),
                    command.variables,
                    tasks=command.grid[0],
                    grain=command.grain,
                    scratch_bytes=kernel.scratch_bytes,
                    serial=command.is_serial,
                    name=kernel.name,
                )
            case Copy():
                size = command.target.size_bytes
                return KernelLaunch(
                    self.pool.runtime.copy_kernel,
                    (command.target.address, command.source.address),
                    (size,),
                    tasks=-(-size // COPY_BLOCK_BYTES),
                    serial=size < _SERIAL_COPY_BYTES,
                    name="copy",
                )
            case Wait() | Signal():
                # Work is done when `submit` returns, so the engine needs neither on this device.
                raise DeviceError(
                    f"{DEVICE}: timelines are moved by the host on this device",
                    got=repr(command),
                    try_="wait for the ticket",
                )


def _plain_fault(code: int) -> TileworkError:
    return DeviceFaultError(f"{DEVICE}: a kernel reported a fault", kind=f"code {code}", got=code)


def _buffers_of(command: Command) -> list[Buffer]:
    if isinstance(command, Launch):
        return list(command.buffers)
    return [command.target, command.source] if isinstance(command, Copy) else []


def _leases_of(commands: Sequence[Command]) -> list[Lease]:
    """Return each lease that the commands touch, once."""
    found: dict[int, Lease] = {}
    for command in commands:
        for buffer in _buffers_of(command):
            lease = buffer.memory.lease
            if lease is not None:
                found[id(lease)] = lease
    return list(found.values())


def _as_bytes(view: memoryview) -> memoryview:
    """The bytes of a view of any format and shape; `cast` takes longer than most copies."""
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


def _bytes_of(buffer: Buffer) -> memoryview:
    """The bytes of a buffer that outlives the use of this view."""
    memory = buffer.memory
    if memory.is_readonly:
        return buffer.as_memoryview()
    return view_memory(memory.address + buffer.offset_bytes, buffer.size_bytes)


def _check_sizes(buffer: Buffer, view: memoryview) -> None:
    if buffer.size_bytes != view.nbytes:
        raise ShapeError(
            f"{DEVICE}: a copy between sizes that differ",
            got=f"{view.nbytes} bytes on the host, {buffer.size_bytes} on the device",
        )
