"""A device that checks every contract and runs nothing.

Programs are compiled for it as for the CPU whose spec it is given; its memory is addresses that
nothing stands behind, so that models larger than this machine can be compiled and scheduled.
Reading a result is refused, since nothing was computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilework.base.clock import WaitLimit
from tilework.base.errors import (
    DeviceError,
    InternalError,
    OutOfMemoryError,
    ShapeError,
    StaleHandleError,
    UnsupportedError,
)
from tilework.base.forks import new_lock
from tilework.base.ledger import LEDGER, Kind, Ledger
from tilework.base.records import replace
from tilework.runtime import reclaim
from tilework.runtime.allocator import PLAIN, Block, BufferSpec, size_class
from tilework.runtime.buffer import Buffer, allocate_buffer, lease_buffer
from tilework.runtime.counted import CountsMemory
from tilework.runtime.driver import (
    Command,
    Kernel,
    KernelCode,
    Launch,
    Probe,
    check_commands,
)
from tilework.runtime.lease import Lease
from tilework.target.spec import TargetSpec

DEVICE: Final = "NULL"
_FIRST_ADDRESS: Final = 1 << 46
#: Addresses are never used twice, so they run out one day: after 4 million times 1 TiB.
_LAST_ADDRESS: Final = 1 << 62


def probe() -> Probe:
    """The null device is always there."""
    return Probe(device=DEVICE, is_present=True, is_openable=True, driver="built in", isa="none")


class NullMemory:
    """Hands out addresses without memory, with the counters of a real allocator."""

    def __init__(self, limit_bytes: int = 0, ledger: Ledger = LEDGER) -> None:
        self.device = DEVICE
        self.limit_bytes = limit_bytes
        self._ledger = ledger
        self._lock = new_lock()
        self._next = _FIRST_ADDRESS
        self._live: dict[int, int] = {}
        self.used_bytes = 0
        self.kept_bytes = 0  # addresses are never used twice
        self.peak_bytes = 0

    def allocate(self, size_bytes: int, *, zero: bool = False, spec: BufferSpec = PLAIN) -> Block:
        """Return a range of addresses that was never handed out before."""
        capacity = size_class(size_bytes)
        with self._lock:
            if self.limit_bytes and self.used_bytes + capacity > self.limit_bytes:
                raise OutOfMemoryError(
                    f"{DEVICE}: the memory limit is reached",
                    pool=DEVICE,
                    got=f"{size_bytes} bytes more, {self.used_bytes} in use",
                    expected=f"at most {self.limit_bytes}",
                )
            address = self._next
            if address + capacity > _LAST_ADDRESS:
                raise OutOfMemoryError(
                    f"{DEVICE}: no addresses are left, since none is used twice",
                    pool=DEVICE,
                    got=f"{size_bytes} bytes more",
                    expected=f"addresses below {_LAST_ADDRESS:#x}",
                    try_=f'close the device and open it again: Device["{DEVICE}"]',
                )
            self._next += capacity
            self._live[address] = capacity
            self.used_bytes += capacity
            self.peak_bytes = max(self.peak_bytes, self.used_bytes)
        self._ledger.take(DEVICE, Kind.PAGES)
        return Block(address, size_bytes, capacity, capacity)

    def restart_peak(self) -> None:
        """Count the peak from what is handed out now."""
        with self._lock:
            self.peak_bytes = self.used_bytes

    def free(self, block: Block) -> None:
        """Take a range back."""
        with self._lock:
            capacity = self._live.pop(block.address, None)
            if capacity is None:
                raise InternalError(f"{DEVICE}: a block was freed twice", got=repr(block))
            self.used_bytes -= capacity
        self._ledger.give_back(DEVICE, Kind.PAGES)


class NullProgram:
    """Kernels that are never run."""

    def __init__(self, kernels: tuple[Kernel, ...]) -> None:
        self.kernels = kernels

    def close(self) -> None:
        """Nothing to unload."""


class NullRecording:
    """Commands that are checked when they are recorded and when they change."""

    def __init__(self, driver: NullDriver, commands: Sequence[Command]) -> None:
        self._driver = driver
        self._commands = list(commands)

    def set_buffer(self, command: int, slot: int, buffer: Buffer) -> None:
        """Give launch number `command` another buffer, and check it again."""
        launch = self._commands[command]
        if not isinstance(launch, Launch):
            raise UnsupportedError(f"{DEVICE}: only the buffers of launches can change")
        buffers = (*launch.buffers[:slot], buffer, *launch.buffers[slot + 1 :])
        self._replace(command, replace(launch, buffers=buffers))

    def set_variable(self, command: int, slot: int, value: int) -> None:
        """Give launch number `command` another value of a variable, and check it again."""
        launch = self._commands[command]
        if isinstance(launch, Launch):
            values = (*launch.variables[:slot], value, *launch.variables[slot + 1 :])
            self._replace(command, replace(launch, variables=values))

    def set_grid(self, command: int, grid: tuple[int, ...]) -> None:
        """Give launch number `command` another grid, and check it again."""
        launch = self._commands[command]
        if isinstance(launch, Launch):
            self._replace(command, replace(launch, grid=grid))

    def submit(self) -> int:
        """Check everything again; nothing runs."""
        return self._driver.submit(self._commands)

    def time(self) -> tuple[float, ...]:
        """Nothing takes no time."""
        self.submit()
        return (0.0,) * len(self._commands)

    def close(self) -> None:
        """Let go of the buffers."""
        self._commands.clear()

    def _replace(self, index: int, command: Command) -> None:
        check_commands(self._driver.target, DEVICE, [command])
        self._commands[index] = command


class NullDriver(CountsMemory):
    """The null device.  Thread-safe."""

    def __init__(
        self, target: TargetSpec, *, memory_limit: int = 0, ledger: Ledger = LEDGER
    ) -> None:
        """Open it.

        Args:
            target: the machine to compile for.
            memory_limit: bytes that may be allocated; 0 is no limit.
            ledger: where memory is counted.
        """
        self.name = DEVICE
        self.target = replace(
            target, name=f"null-{target.name}", runs_code=False, has_copy_queue=False
        )
        self.allocator = self.memory = NullMemory(memory_limit, ledger)
        self._lock = new_lock()
        self._ticket = 0
        self._is_closed = False

    def allocate(self, size_bytes: int, *, zero: bool = False, spec: BufferSpec = PLAIN) -> Buffer:
        """Return addresses without memory."""
        return allocate_buffer(self.memory, size_bytes, zero=zero, spec=spec)

    def map(self, lease: Lease) -> Buffer:
        """Return a buffer over memory of somebody else, which stays untouched."""
        return lease_buffer(DEVICE, lease)

    def load(self, kernels: Sequence[KernelCode]) -> NullProgram:
        """Accept the kernels of a program."""
        return NullProgram(
            tuple(
                Kernel(
                    name=kernel.name,
                    handle=index,
                    num_buffers=kernel.num_buffers,
                    num_variables=kernel.num_variables,
                    writes=kernel.writes,
                    scratch_bytes=kernel.scratch_bytes,
                )
                for index, kernel in enumerate(kernels)
            )
        )

    def copy_in(self, target: Buffer, source: memoryview) -> None:
        """Check the sizes; nothing is copied."""
        if target.size_bytes != source.nbytes:
            raise ShapeError(
                f"{DEVICE}: a copy between sizes that differ",
                got=f"{source.nbytes} bytes on the host, {target.size_bytes} on the device",
            )

    def copy_out(self, source: Buffer, target: memoryview) -> None:
        """Refuse: nothing was computed."""
        raise UnsupportedError(
            f"{DEVICE}: there is no result to read, since this device runs nothing",
            try_="run on the device CPU",
        )

    def submit(self, commands: Sequence[Command]) -> int:
        """Check `commands`; nothing runs."""
        if self._is_closed:
            raise StaleHandleError(f"{DEVICE}: the device was closed")
        check_commands(self.target, DEVICE, commands)
        reclaim.run()
        with self._lock:
            self._ticket += 1
            return self._ticket

    def record(self, commands: Sequence[Command]) -> NullRecording:
        """Check `commands` and keep them."""
        check_commands(self.target, DEVICE, commands)
        return NullRecording(self, commands)

    def wait(self, ticket: int, limit: WaitLimit) -> None:
        """Return at once."""
        if ticket > self._ticket:
            raise DeviceError(f"{DEVICE}: no such ticket", got=ticket, expected=f"{self._ticket}")

    def time(self, commands: Sequence[Command]) -> tuple[float, ...]:
        """Nothing takes no time."""
        return self.record(commands).time()

    def close(self) -> None:
        """Refuse further submissions."""
        self._is_closed = True
