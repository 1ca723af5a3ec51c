"""`NULL`: compiles for this machine, checks every contract, runs nothing."""

from __future__ import annotations

from typing import Final

from tilework.backends.contract import Backend, Opened
from tilework.backends.native import llvm_compiler
from tilework.base import settings
from tilework.runtime.drivers import null as driver
from tilework.runtime.registry import DeviceName


def _open(name: DeviceName) -> Opened:
    compiler = llvm_compiler(name)
    opened = driver.NullDriver(compiler.target, memory_limit=settings.current().memory_limit)
    opened.name = str(name)
    return Opened(opened, compiler)


BACKEND: Final = Backend(
    driver_api=1,
    kind="NULL",
    renderer="LLVM",
    summary="compiles for this machine's processor and runs nothing",
    is_host_memory=False,
    probe=driver.probe,
    open=_open,
)
