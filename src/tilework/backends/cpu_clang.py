"""`CPU:CLANG`: this machine's processor through the C compiler that is installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilework.backends.contract import Backend, Opened
from tilework.backends.native import NativeCompiler, open_driver, target_of
from tilework.base.errors import DeviceUnavailableError
from tilework.base.records import replace
from tilework.runtime.driver import Probe
from tilework.runtime.drivers import cpu as driver
from tilework.runtime.registry import DeviceName
from tilework.toolchain.clang import ClangToolchain, find_compiler

if TYPE_CHECKING:
    from tilework.render.base import Renderer


def _probe() -> Probe:
    found = replace(driver.probe(), device="CPU:CLANG")
    if found.is_openable and find_compiler() is None:
        return replace(found, is_openable=False, reason="no C compiler is in PATH")
    return found


def _make_renderer() -> Renderer:
    from tilework.render.c_family.clang import ClangRenderer  # only when a kernel is compiled

    return ClangRenderer()


def _open(name: DeviceName) -> Opened:
    found = _probe()
    if not found.is_openable:
        raise DeviceUnavailableError(
            f"{name}: this device cannot be opened",
            reason=found.reason,
            try_="install clang, or use the device CPU, which needs none",
        )
    # Its text has no words for matrix registers.
    target = replace(target_of(name), matrix_instructions=())
    compiler = NativeCompiler(ClangToolchain(target), _make_renderer, None)
    return Opened(open_driver(name, compiler.target), compiler)


BACKEND: Final = Backend(
    driver_api=1,
    kind="CPU",
    renderer="CLANG",
    summary="this machine's processor, through an installed C compiler",
    is_host_memory=True,
    probe=_probe,
    open=_open,
)
