"""What a back end is: a probe, and a way to open a driver and the compiler for it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from tilework.base import settings
from tilework.base.records import dataclass
from tilework.ir.node import Node
from tilework.runtime.driver import Driver, Probe
from tilework.runtime.registry import DeviceName
from tilework.target.spec import TargetSpec

if TYPE_CHECKING:
    from tilework.ir.lowered import LoweredKernel


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSource:
    """One kernel as text for a toolchain, with what a launch must know.

    `name` is the entry point; `tasks` the trip count of the parallel loop, an expression over
    VARIABLEs; `variables` the names of the kernel's variables in the order of its arguments.
    """

    name: str
    text: str
    tasks: Node
    variables: tuple[str, ...]
    num_buffers: int
    scratch_bytes: int


def source_of(lowered: LoweredKernel, text: str) -> KernelSource:
    """A lowered kernel as its text for a toolchain."""
    return KernelSource(
        name=lowered.name,
        text=text,
        tasks=lowered.tasks,
        variables=lowered.variables,
        num_buffers=lowered.parameters,
        scratch_bytes=lowered.scratch_bytes,
    )


@dataclass(frozen=True, slots=True)
class WorkerToolchain:
    """How a worker process makes the same toolchain: a key of `toolchain.worker` and plain data.

    A process is worth its start from `kernels_each` kernels on; 0 leaves that to the engine.
    """

    kind: str
    isa: str
    features: tuple[str, ...]
    key: str
    kernels_each: int = 0


class Compiler(Protocol):
    """Kernels -> code for one target.  `lower` belongs to one thread at a time.

    `is_cacheable` says that code means the same in another process.
    """

    target: TargetSpec
    is_cacheable: bool

    @property
    def key(self) -> str:
        """Everything besides kernel, target and settings that changes the code."""
        ...

    def lower(self, kernel: Node) -> KernelSource:
        """Plan, lower and render one kernel."""
        ...

    def build(self, source: KernelSource) -> bytes:
        """Turn the text into object code.  Any thread.  Raises: CompileError, ToolchainError."""
        ...

    def worker(self) -> WorkerToolchain | None:
        """How other processes may `build`; None where only this process can."""
        ...


@dataclass(frozen=True, slots=True)
class Opened:
    """An open device and the compiler for it."""

    driver: Driver
    compiler: Compiler


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """One row of `tilework devices`.

    `driver_api` is the number of the driver contract that it was written for, as a literal: a back
    end of another package that was written for another one is refused, not misunderstood.
    `is_host_memory` says that buffers are plain memory of this process.  `probe` changes nothing;
    `open` raises DeviceUnavailableError with the reason and the missing extra or driver.
    """

    driver_api: int
    kind: str
    renderer: str
    summary: str
    is_host_memory: bool
    probe: Callable[[], Probe]
    open: Callable[[DeviceName], Opened]


def tuned_key(kernel: Node, target: TargetSpec) -> str:
    """What tuning adds to the key of a kernel's code; empty where nothing was ever tuned."""
    if not _may_be_tuned():
        return ""
    from tilework.codegen.plan.database import record_key

    return record_key(kernel, target)


def _may_be_tuned() -> bool:
    """Are there tuned plans, on disk or in this process?  Asked without loading what reads them."""
    folder = settings.current().cache_dir
    is_loaded = "tilework.codegen.plan.database" in sys.modules
    return is_loaded or (folder is not None and (folder / "plans").is_dir())
