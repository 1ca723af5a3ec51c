"""`CPU`, that is `CPU:LLVM`: this machine's processor through LLVM."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from tilework.backends.contract import Backend, Opened
from tilework.backends.native import (
    NativeCompiler,
    has_native_object,
    open_driver,
    target_of,
)
from tilework.base.errors import DeviceUnavailableError
from tilework.runtime.driver import Probe
from tilework.runtime.drivers import cpu as driver
from tilework.runtime.host import host_spec
from tilework.runtime.registry import DeviceName
from tilework.toolchain.llvm import LlvmToolchain, is_installed

_MISSING: Final = "llvmlite is not installed (`pip install llvmlite`)"


def _probe() -> Probe:
    found = driver.probe()
    if found.is_openable and not is_installed():
        return replace(found, is_openable=False, reason=_MISSING)
    return found


def make_renderer() -> Any:
    """The renderer of LLVM IR."""
    from tilework.render.llvm_ir import LlvmRenderer  # only when a kernel is compiled

    return LlvmRenderer()


def make_compiler(name: DeviceName) -> NativeCompiler:
    """The compiler of this back end for the machine that `name` asks for."""
    return NativeCompiler(LlvmToolchain(target_of(name)), make_renderer, "llvm")


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
    compiler = make_compiler(name)
    return Opened(open_driver(name, compiler.target), compiler)


BACKEND: Final = Backend(
    kind="CPU",
    renderer="LLVM",
    summary="this machine's processor, through LLVM",
    is_host_memory=True,
    probe=_probe,
    open=_open,
)
