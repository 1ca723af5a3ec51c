"""`CUDA`, that is `CUDA:NVRTC`: NVIDIA GPUs through NVIDIA's driver and run-time compiler."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from tilework.backends.contract import Backend, Opened, WorkerToolchain
from tilework.backends.text_compiler import TextCompiler
from tilework.base import settings
from tilework.base.errors import DeviceUnavailableError
from tilework.base.records import replace
from tilework.ir.node import Node
from tilework.runtime.bus.cuda import CudaLibrary, open_library
from tilework.runtime.driver import Probe
from tilework.runtime.drivers import cuda as driver
from tilework.runtime.registry import DeviceName
from tilework.target.spec import TargetSpec
from tilework.toolchain.nvrtc import EXTRA, MISSING, NvrtcToolchain, is_installed

if TYPE_CHECKING:
    from tilework.codegen.plan.prepack import Prepacked
    from tilework.render.c_family.cuda import CudaRenderer

#: A process starts in the time of one kernel.
_KERNELS_A_WORKER: Final = 2


class CudaCompiler(TextCompiler):
    """Lower, render and compile kernels for one kind of card."""

    def __init__(self, target: TargetSpec) -> None:
        super().__init__(NvrtcToolchain(target), partial(_make_renderer, target))

    def divide(self, kernel: Node, given: frozenset[int]) -> Prepacked | None:
        """The kernels that do what one does in less time; None where it is best as it is.

        Args:
            kernel: at the KERNEL stage.
            given: the slots of what comes from outside of the schedule, and is not written in it.
        """
        from tilework.codegen.gpu.divide import divide

        return divide(kernel, self.target, given)

    def worker(self) -> WorkerToolchain | None:
        """The same toolchain for a worker process: in one process, kernels wait for each other."""
        return WorkerToolchain(
            kind="nvrtc",
            isa=self.target.isa,
            features=(self.target.cpu_name,),
            key=self._toolchain.key,
            kernels_each=_KERNELS_A_WORKER,
        )


def _make_renderer(target: TargetSpec) -> CudaRenderer:
    from tilework.render.c_family.cuda import CudaRenderer

    return CudaRenderer(target.limits.shared_memory_bytes)


def _probe() -> Probe:
    found = driver.probe()
    if found.is_openable and not is_installed():
        return replace(found, is_openable=False, reason=MISSING)
    return found


def open_with(name: DeviceName, library: CudaLibrary | None = None) -> Opened:
    """Open a card, through NVIDIA's driver or what a test puts in its place.

    Raises: DeviceUnavailableError when there is no such card.
    """
    found = library or open_library()
    count = found.device_count()
    if name.index >= count:
        raise DeviceUnavailableError(
            f"{name}: there is no such card", reason=f"the driver sees {count}", got=name.index
        )
    current = settings.current()
    opened = driver.CudaDriver(
        name.index, library=found, memory_limit=current.memory_limit, poison=current.poison
    )
    if name.arch and name.arch != opened.target.cpu_name:
        opened.close()
        raise DeviceUnavailableError(
            f"{name}: the card runs other code", reason=opened.target.cpu_name, got=name.arch
        )
    opened.name = str(name)
    return Opened(opened, CudaCompiler(opened.target))


def _open(name: DeviceName) -> Opened:
    found = _probe()
    if not found.is_openable:
        raise DeviceUnavailableError(
            f"{name}: this device cannot be opened", reason=found.reason, try_=EXTRA
        )
    return open_with(name)


BACKEND: Final = Backend(
    driver_api=1,
    kind="CUDA",
    renderer="NVRTC",
    summary="NVIDIA GPUs, through NVIDIA's driver",
    is_host_memory=False,
    probe=_probe,
    open=_open,
)
