"""The contract of every device: `Driver`, its commands, and what it hands out.

A driver is one open device.  The engine gives it programs and lists of commands; the driver owns
the queue, the memory and the loaded code, and gives all of it back in `close`.  How devices of
different kinds fill the same contract:

- *CPU*: `submit` runs the commands before it returns; a recording is a launch table that one
  native call runs (`runtime.launch`, `runtime.pool`).
- *CUDA, Metal*: `submit` encodes into a stream or a command buffer and returns; a recording is a
  device graph or an indirect command buffer, `set_buffer` updates a node's parameters.
- *User-space queues* (NV, AMD, QCOM): `submit` writes packets into a ring; a recording is a
  pre-encoded packet list with a patch list; `Wait` and `Signal` are packets on a timeline in
  memory.
- A device that lacks something (a null device runs nothing, a disk computes nothing) says so in
  its `TargetSpec` and refuses the rest with `UnsupportedError`.

Tickets of one driver rise; work is done in the order of tickets.  Methods may be called from any
thread unless they say otherwise.  A forked child may not use a device that its parent opened,
except where a driver says that it can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from tilework.base.clock import WaitLimit
from tilework.base.errors import AliasError, BoundsError, ShapeError, UnsupportedError
from tilework.base.records import dataclass
from tilework.runtime.allocator import PLAIN, BufferSpec
from tilework.runtime.buffer import Buffer
from tilework.runtime.lease import Lease
from tilework.target.spec import TargetSpec

#: Raised when a line of this contract changes; back ends name the one that they are written for.
DRIVER_API_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """What is known of a device without opening it or changing anything."""

    device: str
    is_present: bool
    is_openable: bool
    reason: str = ""  # why it is not present or cannot be opened: which extra, driver or permission
    driver: str = ""
    isa: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCode:
    """One kernel in an object file, before it is loaded.

    `writes` are the buffer slots that the kernel stores to.
    """

    name: str
    data: bytes
    num_buffers: int
    num_variables: int = 0
    writes: tuple[int, ...] = ()
    scratch_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A loaded kernel; `handle` is its address or the device's handle."""

    name: str
    handle: int
    num_buffers: int
    num_variables: int = 0
    writes: tuple[int, ...] = ()
    scratch_bytes: int = 0


class Program(Protocol):
    """Loaded code.  Its kernels are valid until `close`."""

    kernels: tuple[Kernel, ...]

    def close(self) -> None:
        """Unload; nothing may run or be recorded with its kernels any more."""
        ...


class Timeline(Protocol):
    """A counter that the host and devices see, and that only rises."""

    name: str

    def value(self) -> int:
        """What it has reached."""
        ...

    def advance(self, value: int) -> None:
        """Raise it to `value`."""
        ...


@dataclass(frozen=True, slots=True)
class Launch:
    """Run a kernel.

    `grid` counts its workgroups (CPU: its tasks, one number), `workgroup` the threads in each.
    `grain` and `is_serial` are hints for the CPU (see `runtime.launch`).
    """

    kernel: Kernel
    buffers: tuple[Buffer, ...]
    variables: tuple[int, ...] = ()
    grid: tuple[int, ...] = (1,)
    workgroup: tuple[int, ...] = ()
    grain: int = 0
    is_serial: bool = False


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy all bytes of `source` to `target`, which has the same size and does not overlap it."""

    target: Buffer
    source: Buffer


@dataclass(frozen=True, slots=True)
class Wait:
    """Go on when `timeline` has reached `value`."""

    timeline: Timeline
    value: int


@dataclass(frozen=True, slots=True)
class Signal:
    """Raise `timeline` to `value` when all earlier commands are done."""

    timeline: Timeline
    value: int


Command = Launch | Copy | Wait | Signal


class Recording(Protocol):
    """A list of commands in the device's cheapest form, to be run many times.

    Not thread-safe: one thread at a time changes and runs it.
    """

    def set_buffer(self, command: int, slot: int, buffer: Buffer) -> None:
        """Give launch number `command` another buffer (a copy: slot 0 target, 1 source)."""
        ...

    def set_variable(self, command: int, slot: int, value: int) -> None:
        """Give launch number `command` another value of a variable."""
        ...

    def set_grid(self, command: int, grid: tuple[int, ...]) -> None:
        """Give launch number `command` another grid."""
        ...

    def submit(self) -> int:
        """Start it and return a ticket.  Raises: DeviceError."""
        ...

    def time(self) -> tuple[float, ...]:
        """Run it to its end and return the seconds of each command."""
        ...

    def close(self) -> None:
        """Release it; it must not be running."""
        ...


class Driver(Protocol):
    """One open device.  `testing.conformance` exercises every line of this contract."""

    name: str
    target: TargetSpec

    def allocate(self, size_bytes: int, *, zero: bool = False, spec: BufferSpec = PLAIN) -> Buffer:
        """Return new memory.  Raises: OutOfMemoryError."""
        ...

    def map(self, lease: Lease) -> Buffer:
        """Return a buffer over memory of somebody else.  Raises: MapError, UnsupportedError."""
        ...

    def load(self, kernels: Sequence[KernelCode]) -> Program:
        """Load code, all of a program at once.

        Raises: ModelFileError when it is malformed; UnsupportedError when it is for another
        device or needs more than this one has.
        """
        ...

    def copy_in(self, target: Buffer, source: memoryview) -> None:
        """Copy bytes of the host to the device, after all submitted work; sizes are equal."""
        ...

    def copy_out(self, source: Buffer, target: memoryview) -> None:
        """Copy bytes of the device to the host, after all submitted work; sizes are equal.

        Raises: the fault that a kernel before it has reported.
        """
        ...

    def submit(self, commands: Sequence[Command]) -> int:
        """Start `commands` in order and return a ticket at once.  Raises: DeviceError."""
        ...

    def record(self, commands: Sequence[Command]) -> Recording:
        """Prepare `commands` for many runs.  Raises: UnsupportedError."""
        ...

    def wait(self, ticket: int, limit: WaitLimit) -> None:
        """Block until `ticket` is done, no longer than `limit`.

        Raises: DeviceTimeoutError; the device is then lost.  The fault that a kernel reported,
        once.
        """
        ...

    def time(self, commands: Sequence[Command]) -> tuple[float, ...]:
        """Run `commands` to their end and return the seconds of each."""
        ...

    def memory_used(self) -> Mapping[str, int]:
        """Bytes by pool: `used`, `kept` for reuse, `peak`."""
        ...

    def close(self) -> None:
        """Give everything back; a second call does nothing."""
        ...


def check_commands(target: TargetSpec, device: str, commands: Sequence[Command]) -> None:
    """Refuse commands that break the contract, before any of them starts.

    Raises: AliasError, BoundsError, ShapeError, StaleHandleError or UnsupportedError.
    """
    for command in commands:
        if isinstance(command, Launch):
            _check_launch(target, device, command)
        elif isinstance(command, Copy):
            _check_copy(device, command)


def _check_launch(target: TargetSpec, device: str, launch: Launch) -> None:
    kernel, limits = launch.kernel, target.limits
    if len(launch.buffers) > limits.max_kernel_buffers:
        raise UnsupportedError(
            f"{device}: kernel {kernel.name} has too many buffers",
            got=len(launch.buffers),
            expected=f"at most {limits.max_kernel_buffers}",
        )
    if len(launch.variables) > limits.max_variables:
        raise UnsupportedError(
            f"{device}: kernel {kernel.name} has too many variables",
            got=len(launch.variables),
            expected=f"at most {limits.max_variables}",
        )
    if len(launch.buffers) != kernel.num_buffers or len(launch.variables) != kernel.num_variables:
        raise ShapeError(
            f"{device}: kernel {kernel.name} is called with other arguments than it has",
            got=f"{len(launch.buffers)} buffers, {len(launch.variables)} variables",
            expected=f"{kernel.num_buffers} buffers, {kernel.num_variables} variables",
        )
    if not launch.grid or min(launch.grid) < 0:
        raise BoundsError(f"{device}: kernel {kernel.name} has no such grid", got=launch.grid)
    _check_within(f"{device}: the grid of {kernel.name}", launch.grid, limits.max_grid)
    _check_within(
        f"{device}: the workgroup of {kernel.name}", launch.workgroup, limits.max_workgroup
    )
    for slot, buffer in enumerate(launch.buffers):
        if buffer.memory.is_readonly and slot in kernel.writes:
            raise AliasError(
                f"{device}: kernel {kernel.name} writes to read-only memory",
                got=f"buffer {slot}: {buffer!r}",
                try_="copy it first",
            )


def _check_within(what: str, sizes: tuple[int, ...], limits: tuple[int, ...]) -> None:
    if not limits:
        return
    if len(sizes) > len(limits) or any(s > m for s, m in zip(sizes, limits, strict=False)):
        raise UnsupportedError(f"{what} is too large", got=sizes, expected=f"at most {limits}")


def _check_copy(device: str, copy: Copy) -> None:
    if copy.target.size_bytes != copy.source.size_bytes:
        raise ShapeError(
            f"{device}: a copy between buffers of different sizes",
            got=f"{copy.source.size_bytes} bytes to {copy.target.size_bytes}",
        )
    if copy.target.overlaps(copy.source):
        raise AliasError(f"{device}: a copy onto a part of itself", got=repr(copy.target))
    if copy.target.memory.is_readonly:
        raise AliasError(f"{device}: a copy to read-only memory", got=repr(copy.target))
