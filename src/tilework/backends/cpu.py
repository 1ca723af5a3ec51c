"""`CPU`, that is `CPU:LLVM`: this machine's processor through LLVM."""

from __future__ import annotations

from typing import Final

from tilework.backends.contract import Backend, Opened
from tilework.backends.native import (
    has_native_object,
    llvm_compiler,
    open_driver,
)
from tilework.base.errors import DeviceUnavailableError
from tilework.base.records import replace
from tilework.runtime.driver import Probe
from tilework.runtime.drivers import cpu as driver
from tilework.runtime.host import host_spec
from tilework.runtime.registry import DeviceName
from tilework.toolchain.llvm import is_installed

_MISSING: Final = "llvmlite is not installed (`pip install llvmlite`)"


def _probe() -> Probe:
    found = driver.probe()
    if found.is_openable and not is_installed():
        return replace(found, is_openable=False, reason=_MISSING)
    return found


def _open(name: DeviceName) -> Opened:
    found = _probe()
    # Without LLVM there may still be finished code to run: an export, or a cache.
    is_bare = not found.is_openable and found.reason == _MISSING
    if not found.is_openable and not (is_bare and has_native_object(host_spec().isa)):
        raise DeviceUnavailableError(
            f"{name}: this device cannot be opened",
            reason=found.reason,
            try_="pip install llvmlite; the device PYTHON needs nothing",
        )
    compiler = llvm_compiler(name)
    return Opened(open_driver(name, compiler.target), compiler)


BACKEND: Final = Backend(
    driver_api=1,
    kind="CPU",
    renderer="LLVM",
    summary="this machine's processor, through LLVM",
    is_host_memory=True,
    probe=_probe,
    open=_open,
)
