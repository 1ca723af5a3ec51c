"""Names of devices, and the table of the devices that are open.

A name is `[interface+]DEVICE[:renderer[:arch]]`, for example `CPU`, `CPU:LLVM`, `USB+AMD:LLVM` or
`CUDA:1`; a part of digits alone is an index.  It is parsed once, into a `DeviceName`.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from tilework.base.errors import DeviceUnavailableError
from tilework.base.forks import new_outer_lock
from tilework.base.records import dataclass

_WORD: Final = re.compile(r"[A-Z][A-Z0-9_]*\Z")
_ARCH: Final = re.compile(r"[A-Za-z0-9_.+-]+\Z")
_GRAMMAR: Final = "[interface+]DEVICE[:renderer[:arch]], such as CPU, CPU:LLVM or CUDA:1"


@dataclass(frozen=True, slots=True)
class DeviceName:
    """The parts of a device's name; empty ones take the back end's default.

    `str` gives the canonical text, in which parts with their default value are left out.
    """

    kind: str
    index: int = 0
    interface: str = ""
    renderer: str = ""
    arch: str = ""

    def __str__(self) -> str:
        """The canonical text, which `parse_device_name` reads back."""
        parts = [f"{self.interface}+{self.kind}" if self.interface else self.kind]
        if self.index:
            parts.append(str(self.index))
        if self.renderer:
            parts.append(self.renderer)
        if self.arch:
            parts.append(self.arch)
        return ":".join(parts)


def parse_device_name(text: str) -> DeviceName:
    """Read a device's name; letters of any case.

    Raises: DeviceUnavailableError when it does not follow the grammar.

    Example:
        >>> parse_device_name("usb+amd:llvm"), str(parse_device_name("cpu:0"))
        (DeviceName(kind='AMD', index=0, interface='USB', renderer='LLVM', arch=''), 'CPU')
    """
    interface, plus, rest = text.strip().rpartition("+") if "+" in text else ("", "", text.strip())
    kind, *parts = rest.split(":")
    interface, kind = interface.upper(), kind.upper()
    if not _WORD.match(kind) or (plus and not _WORD.match(interface)):
        raise _malformed(text)
    numbers = [part for part in parts if part.isdecimal() and part.isascii()]
    words = [part for part in parts if part not in numbers]
    if len(numbers) > 1 or len(words) > 2:
        raise _malformed(text)
    renderer = words[0].upper() if words else ""
    arch = words[1] if len(words) == 2 else ""
    if (words and not _WORD.match(renderer)) or (len(words) == 2 and not _ARCH.match(arch)):
        raise _malformed(text)
    return DeviceName(kind, int(numbers[0]) if numbers else 0, interface, renderer, arch)


def _malformed(text: str) -> DeviceUnavailableError:
    return DeviceUnavailableError(
        "device: this is not the name of a device", got=repr(text), expected=_GRAMMAR
    )


class Closable(Protocol):
    """What the registry keeps open."""

    def close(self) -> None:
        """Give back everything; a second call does nothing."""
        ...


T = TypeVar("T", bound=Closable)


class Registry(Generic[T]):
    """Devices by canonical name, opened at the first `get`.  Thread-safe.

    A device that could not be opened is tried again at the next `get`.
    """

    def __init__(self, open_device: Callable[[DeviceName], T]) -> None:
        self._open_device = open_device
        self._open: dict[DeviceName, T] = {}
        # A fork must not find another thread at the import of a back end.
        self._lock = new_outer_lock(2)

    def get(self, name: DeviceName) -> T:
        """Return the device called `name`, opened now if it is not open yet."""
        found = self._open.get(name)
        if found is not None:
            return found
        with self._lock:
            found = self._open.get(name)
            if found is None:
                found = self._open[name] = self._open_device(name)
            return found

    def peek(self, name: DeviceName) -> T | None:
        """Return the device called `name` if it is open."""
        return self._open.get(name)

    def items(self) -> tuple[tuple[DeviceName, T], ...]:
        """Return the names of the open devices and those, in the order of opening."""
        return tuple(self._open.items())

    def names(self) -> tuple[DeviceName, ...]:
        """Return the names of the open devices, in the order of opening."""
        return tuple(self._open)

    def forget(self, name: DeviceName) -> None:
        """Take a device that was closed out of the table."""
        with self._lock:
            self._open.pop(name, None)

    def close_all(self) -> None:
        """Close every device, the last opened first; one that fails does not stop the others.

        Raises: the first error, after all were tried.
        """
        with self._lock:
            devices = list(self._open.items())
            self._open.clear()
        first: BaseException | None = None
        for _, device in reversed(devices):
            try:
                device.close()
            except BaseException as error:  # noqa: BLE001  (raised below)
                first = first or error
        if first is not None:
            raise first

    def after_fork(self) -> None:
        """Renew the lock in a forked child: a thread of the parent may have held it."""
        self._lock = threading.RLock()
