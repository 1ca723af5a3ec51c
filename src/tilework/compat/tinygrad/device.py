"""What `from tinygrad.device import ...` gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tilework import Device as _devices
from tilework import errors


def _name_if_there(name: str) -> str | None:
    """The name of a device that can be opened, or None."""
    try:
        return _devices[name].name
    except errors.TileworkError:
        return None


class _Device:
    """`Device`: devices by name."""

    def __getitem__(self, ix: str) -> Any:
        return _devices[ix]

    def canonicalize(self, device: str | None) -> str:
        """The one name of a device; None is the default one."""
        return _devices.canonicalize(device)

    @property
    def DEFAULT(self) -> str:
        """The name of the default device."""
        return _devices.DEFAULT

    @DEFAULT.setter
    def DEFAULT(self, name: str) -> None:
        _devices.DEFAULT = name

    @property
    def default(self) -> Any:
        """The default device."""
        return _devices[_devices.DEFAULT]

    def get_available_devices(self) -> Iterator[str]:
        """The names of devices that can be opened here."""
        found = [_name_if_there(name) for name in ("CUDA", "CPU", "PYTHON")]
        yield from [name for name in found if name is not None]


Device: Final = _Device()


def canonicalize_device(device: str | tuple[str, ...] | list[str] | None) -> Any:
    """The one name of a device, or those of several."""
    if isinstance(device, list | tuple):
        return tuple([_devices.canonicalize(each) for each in device])
    return _devices.canonicalize(device)


__all__ = ["Device", "canonicalize_device"]
