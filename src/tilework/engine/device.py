"""`Device`: devices by name, opened when they are first used.

    device = Device["CPU"]              # also "CPU:LLVM", "cpu:0": one and the same device
    Device.DEFAULT = "PYTHON"           # where new tensors live, unless told otherwise
    device.close()                      # the next use opens it again

Which back end opens a name is a matter of the name alone: nothing falls back to another renderer
or to an emulator.
"""

from __future__ import annotations

import atexit
import contextvars
import os
from typing import TYPE_CHECKING, Any, Final

from tilework.backends import registry as backends
from tilework.backends.contract import Backend, Compiler
from tilework.base import settings, trace
from tilework.base.clock import WaitLimit
from tilework.base.errors import StaleHandleError, TileworkError, UnsupportedError, UserError
from tilework.base.forks import new_rlock
from tilework.base.generation import Generation
from tilework.base.records import dataclass, replace
from tilework.engine.faults import describe_fault
from tilework.runtime.group import SEPARATOR, is_group, join_names
from tilework.runtime.registry import DeviceName, Registry, parse_device_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tilework.runtime.buffer import Buffer
    from tilework.runtime.driver import Driver, Probe
    from tilework.runtime.lease import Lease
    from tilework.target.spec import TargetSpec

WAIT_SECONDS: Final = 600.0
_MOST_NAMES: Final = 256


@dataclass(frozen=True, slots=True)
class DeviceOpened(trace.Event):
    """A device was opened, by which back end, and for which target."""

    name: str
    backend: str
    target: str


#: Called when a device is being closed: whoever keeps loaded code lets go of it.
on_close: Final[list[Callable[[], None]]] = []


class OpenDevice:
    """An open device: its driver, its compiler, and what was loaded on it.  Thread-safe."""

    def __init__(self, name: DeviceName, backend: Backend) -> None:
        opened = backend.open(name)
        self.name: Final = str(name)
        self.backend: Final = backend
        self.driver: Final[Driver] = opened.driver
        self.compiler: Final[Compiler] = opened.compiler
        self.spec: Final[TargetSpec] = opened.compiler.target
        self.generation = Generation(self.name)
        self.last_ticket = 0
        self.lock = new_rlock()
        #: Loaded kernels and linked schedules, owned by engine.link; they go with the device.
        self.caches: dict[str, Any] = {}
        self.is_closed = False
        self.wait_seconds = WAIT_SECONDS
        #: Does what waiting does where work is done when it was submitted.
        self._settle: Callable[[], None] | None = getattr(self.driver, "settle", None)
        if hasattr(self.driver, "describe_fault"):
            self.driver.describe_fault = lambda code: describe_fault(code, self.name)
        if trace.enabled():
            trace.emit(
                DeviceOpened(self.name, f"{backend.kind}:{backend.renderer}", self.spec.name)
            )

    def __repr__(self) -> str:
        """Name and target."""
        state = ", closed" if self.is_closed else ""
        return f"<device {self.name}: {self.spec.name}{state}>"

    @property
    def wait_seconds(self) -> float:
        """How long a wait may take before the device counts as lost."""
        return self._wait_seconds

    @wait_seconds.setter
    def wait_seconds(self, seconds: float) -> None:
        self._wait_seconds = seconds
        if hasattr(self.driver, "wait_seconds"):
            self.driver.wait_seconds = seconds

    @property
    def is_host_memory(self) -> bool:
        """Whether buffers are plain memory of this process."""
        return self.backend.is_host_memory

    def allocate(self, size_bytes: int, *, zero: bool = False) -> Buffer:
        """Return new memory.  Raises: OutOfMemoryError; StaleHandleError after `close`."""
        self.check_open()
        return self.driver.allocate(size_bytes, zero=zero)

    def map(self, lease: Lease) -> Buffer:
        """Return a buffer over memory on loan.  Raises: MapError, UnsupportedError."""
        self.check_open()
        return self.driver.map(lease)

    def copy_in(self, target: Buffer, source: memoryview) -> None:
        """Copy bytes of the host to the device; sizes are equal."""
        self.driver.copy_in(target, source)
        target.memory.changes += 1

    def copy_out(self, source: Buffer, target: memoryview) -> None:
        """Copy bytes of the device to the host.  Raises what a kernel before it reported."""
        self.driver.copy_out(source, target)

    def view(self, buffer: Buffer) -> memoryview:
        """Return the bytes of `buffer` themselves, after all submitted work.

        Raises: UnsupportedError where the host cannot address the memory of this device.
        """
        if not self.is_host_memory:
            raise UnsupportedError(
                f"{self.name}: the host cannot see the memory of this device",
                try_="copy it to the host",
            )
        self.synchronize()
        return buffer.as_memoryview()

    def synchronize(self, timeout_seconds: float | None = None) -> None:
        """Wait for all work of this device, no longer than `wait_seconds` unless told otherwise.

        Raises what a kernel reported, once; DeviceTimeoutError.
        """
        if self._settle is not None:
            self._settle()
            return
        seconds = self.wait_seconds if timeout_seconds is None else timeout_seconds
        self.driver.wait(self.last_ticket, WaitLimit.of(seconds))

    def memory_used(self) -> Mapping[str, int]:
        """Bytes by pool: `used`, `kept` for reuse, `peak`."""
        return self.driver.memory_used()

    def restart_peak(self) -> int:
        """Count the peak from now on, where the driver can, and return the bytes in use."""
        used = self.driver.memory_used()["used"]
        restart = getattr(self.driver, "restart_peak", None)
        if restart is not None:
            restart()
        return used

    def check_open(self) -> None:
        """Refuse a closed device.  Raises: StaleHandleError."""
        if self.is_closed:
            raise StaleHandleError(
                f"{self.name}: the device was closed", try_=f'open it again: Device["{self.name}"]'
            )

    def close(self) -> None:
        """Give back everything; buffers that somebody holds stay valid.  Idempotent."""
        with self.lock:
            if self.is_closed:
                return
            self.is_closed = True
            self.generation.advance()
            try:
                self.caches.clear()
                for forget in on_close:
                    forget()
            finally:
                try:
                    self.driver.close()
                finally:  # one that fails to close must not be found again either
                    _registry.forget(parse_device_name(self.name))


def _open(name: DeviceName) -> OpenDevice:
    return OpenDevice(name, backends.find_backend(name))


_registry: Registry[OpenDevice] = Registry(_open)


class Devices:
    """The devices of this process by name; `Device` is the only instance."""

    def __init__(self) -> None:
        self._canonical: dict[str, str] = {}
        self._opened: dict[str, OpenDevice] = {}  # by any of their names, to find them fast

    def __getitem__(self, name: str) -> OpenDevice:
        """Return the device called `name`, opened now if it is not open.

        Raises: DeviceUnavailableError with the reason and what is missing.
        """
        found = self._opened.get(name)
        if found is None or found.is_closed:
            if is_group(name):
                raise UnsupportedError(
                    "device: this takes one device, and not several",
                    got=name,
                    try_="move the tensor to one of them: tensor.to(device)",
                )
            found = _registry.get(parse_device_name(self.canonicalize(name)))
            if len(self._opened) > _MOST_NAMES:
                self._opened.clear()
            self._opened[name] = found
        return found

    def opened_as(self, name: str) -> OpenDevice | None:
        """Return the device called `name` if it is open; opens nothing."""
        return _registry.peek(parse_device_name(self.canonicalize(name)))

    def canonicalize(self, name: str | Sequence[str] | None = None) -> str:
        """Return the one name of the device `name` (None: the default device); opens nothing.

        A sequence of names is a group of devices, which has a name as well.

        Raises: DeviceUnavailableError when the name is malformed or no back end has it; UserError
            when a group names a device twice.
        """
        if name is None:
            name = settings.current().dev
        if not isinstance(name, str) or SEPARATOR in name:
            return self._group(name)
        found = self._canonical.get(name)
        if found is None:
            found = str(backends.canonical(parse_device_name(name)))
            if len(self._canonical) > _MOST_NAMES:
                self._canonical.clear()
            self._canonical[name] = found
        return found

    def _group(self, names: str | Sequence[str]) -> str:
        parts = names.split(SEPARATOR) if isinstance(names, str) else names
        found = [self.canonicalize(part) for part in parts]
        if not found or len(set(found)) != len(found):
            raise UserError(
                "device: a group names each of its devices once", got=", ".join(found) or "none"
            )
        return join_names(found)

    @property
    def DEFAULT(self) -> str:
        """The canonical name of the default device: the setting `dev`."""
        return self.canonicalize()

    @DEFAULT.setter
    def DEFAULT(self, name: str) -> None:
        canonical = self.canonicalize(name)
        # A setting of the process; an `override(dev=...)` in force goes before it.
        process = contextvars.Context().run(settings.current)
        settings.install(replace(process, dev=canonical))

    def opened(self) -> tuple[str, ...]:
        """Return the names of the open devices."""
        return tuple(str(name) for name in _registry.names())

    def specs(self) -> list[tuple[str, TargetSpec]]:
        """Return the kind of each open device, and what its compiler knows of the machine."""
        return [(name.kind, device.spec) for name, device in _registry.items()]

    def probe(self) -> tuple[tuple[Backend, Probe], ...]:
        """Return every back end and what is known of its device; opens and changes nothing."""
        return tuple((backend, backend.probe()) for backend in backends.backends())

    def close_all(self) -> None:
        """Close every device; one that fails does not stop the others.  Raises the first error."""
        _registry.close_all()


Device: Final = Devices()


def _close_at_exit() -> None:
    try:
        Device.close_all()
    except TileworkError as error:
        trace.warn("device", f"closing at exit: {error}")


atexit.register(_close_at_exit)
os.register_at_fork(after_in_child=_registry.after_fork)
