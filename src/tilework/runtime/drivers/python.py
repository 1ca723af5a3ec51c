"""The interpreter of the IR as a device: each kernel is run node by node on host memory.

Its programs are kernel graphs: the data of a `KernelCode` is the text of one.  Commands run before
`submit` returns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from tilework.base.clock import WaitLimit
from tilework.base.errors import (
    DeviceError,
    DeviceFaultError,
    ShapeError,
    StaleHandleError,
    TileworkError,
    UnsupportedError,
)
from tilework.base.forks import new_lock
from tilework.base.ledger import LEDGER, Ledger
from tilework.dtypes import ALL
from tilework.ir.node import toposort
from tilework.ir.ops import OPS
from tilework.ir.ops.index import VARIABLE
from tilework.runtime import reclaim
from tilework.runtime.allocator import PLAIN, BufferSpec, HostAllocator
from tilework.runtime.buffer import Buffer, allocate_buffer, lease_buffer
from tilework.runtime.counted import CountsMemory
from tilework.runtime.driver import (
    Command,
    Copy,
    Kernel,
    KernelCode,
    Launch,
    Probe,
    check_commands,
)
from tilework.runtime.lease import Lease
from tilework.target.spec import Limits, Memory, ParallelUnit, TargetSpec

DEVICE: Final = "PYTHON"

#: Every dtype and op is native to an interpreter.
TARGET: Final = TargetSpec(
    name="python",
    isa="none",
    units=ParallelUnit(name="machine", count=1),
    memories=(Memory(name="global", owner="machine", size_bytes=0),),
    limits=Limits(max_kernel_buffers=4096, max_variables=256),
    storage_dtypes=frozenset(dtype.name for dtype in ALL),
    native_dtypes=frozenset(dtype.name for dtype in ALL),
    native_ops=frozenset(OPS),
    has_fma=True,
)


def probe() -> Probe:
    """The interpreter is always there."""
    return Probe(device=DEVICE, is_present=True, is_openable=True, driver="built in", isa="none")


class PythonProgram:
    """Kernels that the interpreter runs."""

    def __init__(self, kernels: tuple[Kernel, ...]) -> None:
        self.kernels = kernels

    def close(self) -> None:
        """Nothing to unload."""


class PythonRecording:
    """Commands to be interpreted again and again.  Not thread-safe."""

    def __init__(self, driver: PythonDriver, commands: Sequence[Command]) -> None:
        self._driver = driver
        self._commands = list(commands)

    def set_buffer(self, command: int, slot: int, buffer: Buffer) -> None:
        """Give launch number `command` another buffer (a copy: slot 0 target, 1 source)."""
        old = self._commands[command]
        if isinstance(old, Launch):
            buffers = (*old.buffers[:slot], buffer, *old.buffers[slot + 1 :])
            self._commands[command] = Launch(old.kernel, buffers, old.variables)
        elif isinstance(old, Copy):
            pair = (buffer, old.source) if slot == 0 else (old.target, buffer)
            self._commands[command] = Copy(*pair)

    def set_variable(self, command: int, slot: int, value: int) -> None:
        """Give launch number `command` another value of a variable."""
        old = self._commands[command]
        if isinstance(old, Launch):
            values = (*old.variables[:slot], value, *old.variables[slot + 1 :])
            self._commands[command] = Launch(old.kernel, old.buffers, values)

    def set_grid(self, command: int, grid: tuple[int, ...]) -> None:
        """A kernel is one task here, whatever its grid."""

    def submit(self) -> int:
        """Run it; done when this returns."""
        return self._driver.submit(self._commands)

    def time(self) -> tuple[float, ...]:
        """Run it and return the seconds of each command."""
        return self._driver.time(self._commands)

    def close(self) -> None:
        """Let go of the buffers."""
        self._commands.clear()


class PythonDriver(CountsMemory):
    """The interpreter.  Thread-safe."""

    allocator: HostAllocator

    def __init__(
        self, *, memory_limit: int = 0, poison: bool = False, ledger: Ledger = LEDGER
    ) -> None:
        self.name = DEVICE
        self.target = TARGET
        self.allocator = HostAllocator(
            device=DEVICE, limit_bytes=memory_limit, poison=poison, ledger=ledger
        )
        self.describe_fault: Callable[[int], TileworkError] = _plain_fault
        self._by_handle: dict[int, tuple[Any, tuple[str, ...]]] = {}
        self._lock = new_lock()
        self._fault = 0
        self._ticket = 0
        self._is_closed = False

    def allocate(self, size_bytes: int, *, zero: bool = False, spec: BufferSpec = PLAIN) -> Buffer:
        """Return new memory of the host."""
        return allocate_buffer(self.allocator, size_bytes, zero=zero, spec=spec)

    def map(self, lease: Lease) -> Buffer:
        """Return a buffer over memory of somebody else; nothing is copied."""
        return lease_buffer(DEVICE, lease)

    def load(self, kernels: Sequence[KernelCode]) -> PythonProgram:
        """Parse the kernels of a program and make them ready to run."""
        # Only this device needs the parser and the interpreter.
        from tilework.ir.interpret.kernels import compile_kernel
        from tilework.ir.text import parse

        loaded: list[Kernel] = []
        for code in kernels:
            graph = parse(code.data.decode("utf-8", "replace"))
            program = compile_kernel(graph)
            names = {node.attrs.name for node in toposort(graph) if node.op is VARIABLE}
            handle = len(self._by_handle) + 1
            self._by_handle[handle] = (program, tuple(sorted(names)))
            loaded.append(
                Kernel(
                    name=code.name,
                    handle=handle,
                    num_buffers=code.num_buffers,
                    num_variables=code.num_variables,
                    writes=code.writes,
                )
            )
        return PythonProgram(tuple(loaded))

    def copy_in(self, target: Buffer, source: memoryview) -> None:
        """Copy bytes of the host to the device."""
        _check_sizes(target, source)
        target.as_memoryview()[:] = source.cast("B")

    def copy_out(self, source: Buffer, target: memoryview) -> None:
        """Copy bytes of the device to the host.  Raises what a kernel reported."""
        self.raise_fault()
        _check_sizes(source, target)
        target.cast("B")[:] = source.as_memoryview()

    def submit(self, commands: Sequence[Command]) -> int:
        """Interpret `commands`; they are done when this returns."""
        self.time(commands)
        return self._ticket

    def record(self, commands: Sequence[Command]) -> PythonRecording:
        """Check `commands` and keep them."""
        check_commands(self.target, DEVICE, commands)
        return PythonRecording(self, commands)

    def wait(self, ticket: int, limit: WaitLimit) -> None:
        """Return at once, since work is done when it was submitted.  Raises a reported fault."""
        if ticket > self._ticket:
            raise DeviceError(f"{DEVICE}: no such ticket", got=ticket, expected=f"{self._ticket}")
        self.raise_fault()

    def time(self, commands: Sequence[Command]) -> tuple[float, ...]:
        """Interpret `commands` and return the seconds of each."""
        if self._is_closed:
            raise StaleHandleError(f"{DEVICE}: the device was closed")
        check_commands(self.target, DEVICE, commands)
        spent: list[float] = []
        for command in commands:
            started = time.perf_counter()
            self._run(command)
            spent.append(time.perf_counter() - started)
        reclaim.run()
        with self._lock:
            self._ticket += 1
        return tuple(spent)

    def raise_fault(self) -> None:
        """Raise what a kernel has reported since the last look, and forget it."""
        code, self._fault = self._fault, 0
        if code:
            raise self.describe_fault(code)

    def close(self) -> None:
        """Release what nobody holds; buffers that live on stay valid."""
        if not self._is_closed:
            self._is_closed = True
            self._by_handle.clear()
            self.allocator.close()

    def _run(self, command: Command) -> None:
        if isinstance(command, Copy):
            command.target.as_memoryview()[:] = command.source.as_memoryview()
            return
        if not isinstance(command, Launch):
            raise UnsupportedError(f"{DEVICE}: no timelines on this device", got=repr(command))
        program, names = self._by_handle[command.kernel.handle]
        views = [buffer.as_memoryview() for buffer in command.buffers]
        values = dict(zip(names, command.variables, strict=True))
        for code in program.run(views, values):
            self._fault = self._fault or code


def _check_sizes(buffer: Buffer, view: memoryview) -> None:
    if buffer.size_bytes != view.nbytes:
        raise ShapeError(
            f"{DEVICE}: a copy between sizes that differ",
            got=f"{view.nbytes} bytes on the host, {buffer.size_bytes} on the device",
        )


def _plain_fault(code: int) -> TileworkError:
    return DeviceFaultError(f"{DEVICE}: a kernel reported a fault", kind=f"code {code}", got=code)
