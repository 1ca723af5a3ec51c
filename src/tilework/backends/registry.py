"""The table of back ends: those of this package by name, those of others by entry point."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Final

from tilework.backends.contract import Backend
from tilework.base.errors import DeviceUnavailableError, InternalError
from tilework.base.text import nearest
from tilework.runtime.driver import DRIVER_API_VERSION
from tilework.runtime.registry import DeviceName

ENTRY_POINT_GROUP: Final = "tilework.backends"

# (kind, renderer) -> module with a `BACKEND`; the first renderer of a kind is its default.
_OWN: Final[dict[tuple[str, str], str]] = {
    ("CPU", "LLVM"): "tilework.backends.cpu",
    ("CPU", "CLANG"): "tilework.backends.cpu_clang",
    ("CUDA", "NVRTC"): "tilework.backends.cuda",
    ("PYTHON", "INTERPRETER"): "tilework.backends.python",
    ("NULL", "LLVM"): "tilework.backends.null",
}

#: Before the names of the devices of all processes that work together: WORLD+CPU:1.
WORLD: Final = "WORLD"
#: Gives the back end of a device behind an interface, beside what its kind has here.
Interface = Callable[[DeviceName, Backend], Backend]
_INTERFACES: Final[dict[str, Interface]] = {}


@cache
def _foreign() -> dict[tuple[str, str], str]:
    """Entry points as `KIND` or `KIND:RENDERER` -> where the `Backend` is; read once."""
    from importlib.metadata import entry_points  # slow, and only needed for unknown names

    found: dict[tuple[str, str], str] = {}
    for point in entry_points(group=ENTRY_POINT_GROUP):
        kind, _, renderer = point.name.upper().partition(":")
        found.setdefault((kind, renderer), point.value)
    return found


def canonical(name: DeviceName) -> DeviceName:
    """Return `name` with its default renderer left out.

    Raises: DeviceUnavailableError when there is no back end of that kind or renderer.
    """
    kind, renderer = _key_of(name)
    if renderer == renderers(kind)[0]:
        return DeviceName(name.kind, name.index, name.interface, "" if not name.arch else renderer,
                          name.arch)  # fmt: skip
    return name


def find_backend(name: DeviceName) -> Backend:
    """Return the back end that opens `name`.

    Raises: DeviceUnavailableError when there is none.
    """
    own = _load(_key_of(name))
    if not name.interface:
        return own
    through = _INTERFACES.get(name.interface)
    if through is None:
        raise DeviceUnavailableError(
            f"device: {name} is reached through {name.interface}, which is not there",
            reason="nothing has set it up",
            got=name.interface,
            try_="distributed.init()" if name.interface == WORLD else None,
        )
    return through(name, own)


def interfaces() -> tuple[str, ...]:
    """The interfaces that are set up."""
    return tuple(_INTERFACES)


def set_interface(interface: str, opener: Interface | None) -> None:
    """Let devices behind an interface be opened by a function, or by nobody any more."""
    if opener is None:
        _INTERFACES.pop(interface, None)
    else:
        _INTERFACES[interface] = opener


def backends() -> tuple[Backend, ...]:
    """Return every back end, of this package first."""
    rows = dict.fromkeys([*_OWN, *_foreign()])
    return tuple(_load(key) for key in rows)


def renderers(kind: str) -> list[str]:
    """Return the names of the renderers that back ends of this kind have, the default first."""
    own = [renderer for other, renderer in _OWN if other == kind]
    return own or [renderer for other, renderer in _foreign() if other == kind]


def _key_of(name: DeviceName) -> tuple[str, str]:
    key = (name.kind, name.renderer or "")
    if key in _OWN:
        return key
    known = renderers(name.kind)
    if not known:
        kinds = sorted({kind for kind, _ in (*_OWN, *_foreign())})
        close = nearest(name.kind, kinds)
        raise DeviceUnavailableError(
            f"device: there is no back end {name.kind}",
            reason="not part of this version, and no installed package adds it",
            got=str(name),
            expected=f"one of {', '.join(kinds)}",
            try_=None if close is None else f"`{close}`",
        )
    if not name.renderer:
        return name.kind, known[0]
    if name.renderer in known or (name.kind, name.renderer) in _foreign():
        return name.kind, name.renderer
    raise DeviceUnavailableError(
        f"device: {name.kind} has no renderer {name.renderer}",
        reason="unknown renderer",
        got=str(name),
        expected=f"one of {', '.join(known)}",
    )


def _load(key: tuple[str, str]) -> Backend:
    own = _OWN.get(key)
    if own is not None:
        backend = import_module(own).BACKEND
    else:
        module, _, attribute = _foreign()[key].partition(":")
        backend = getattr(import_module(module), attribute or "BACKEND")
    if not isinstance(backend, Backend):
        raise InternalError(
            f"device: the registration of {':'.join(key)} is not a Backend",
            got=type(backend).__name__,
        )
    if backend.driver_api != DRIVER_API_VERSION:
        name = ":".join(key)
        raise DeviceUnavailableError(
            f"device: the back end of {name} is for another version of the driver contract",
            reason="its package and tilework do not fit",
            got=backend.driver_api,
            expected=DRIVER_API_VERSION,
            try_=f"install a version of the package of {name} that fits",
        )
    return backend
