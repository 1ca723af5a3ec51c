"""`WORLD+CPU:1`: the device that rank 1 of a group of processes has; its own, or another's.

A device of another process has addresses without memory and takes kernels without running them, so
that each process plans and runs one and the same program, of which it does its own part.  Copies
from and to such devices are `engine.world`'s.
"""

from __future__ import annotations

from functools import partial

from tilework.backends.contract import Backend, KernelSource, Opened, WorkerToolchain
from tilework.base.errors import DeviceUnavailableError
from tilework.base.records import replace
from tilework.ir.build import const_index
from tilework.ir.digest import digest
from tilework.ir.node import Node, toposort
from tilework.ir.ops.index import VARIABLE
from tilework.ir.ops.memory import PARAM
from tilework.runtime.drivers.null import NullDriver
from tilework.runtime.links import current_links
from tilework.runtime.registry import DeviceName
from tilework.target.spec import TargetSpec


class KernelsElsewhere:
    """Takes kernels that another process compiles and runs: what launches say of them is all."""

    key = "elsewhere"
    is_cacheable = False  # there is nothing to keep

    def __init__(self, target: TargetSpec) -> None:
        self.target = target

    def lower(self, kernel: Node) -> KernelSource:
        """Name the kernel, its buffers and its variables."""
        nodes = toposort(kernel)
        return KernelSource(
            name=f"elsewhere_{digest(kernel).hex()}",
            text="",
            tasks=const_index(1),
            variables=tuple(sorted({node.attrs.name for node in nodes if node.op is VARIABLE})),
            num_buffers=1 + max((n.attrs.slot for n in nodes if n.op is PARAM), default=-1),
            scratch_bytes=0,
        )

    def build(self, source: KernelSource) -> bytes:
        """No code."""
        return b""

    def worker(self) -> WorkerToolchain | None:
        """Nothing to build."""
        return None


class WorldDevices:
    """Opens the devices of all ranks.

    Args:
        index: which device of this host is this process's own.
        target: what that device is; those of the others are of the same kind.
    """

    def __init__(self, index: int, target: TargetSpec) -> None:
        self._index = index
        self._target = target

    def find(self, name: DeviceName, own: Backend) -> Backend:
        """The back end of a rank's device.

        Raises: DeviceUnavailableError when there is no such rank.
        """
        links = current_links()
        if name.index >= links.size:
            raise DeviceUnavailableError(
                f"{name}: there is no such rank", reason=f"{links.size} processes", got=name.index
            )
        if name.index == links.rank:
            return replace(own, open=partial(self._open_own, own))
        return replace(own, is_host_memory=False, open=self._open_other)

    def _open_own(self, own: Backend, name: DeviceName) -> Opened:
        opened = own.open(replace(name, interface="", index=self._index))
        opened.driver.name = str(name)
        return opened

    def _open_other(self, name: DeviceName) -> Opened:
        driver = NullDriver(self._target)
        driver.name = str(name)
        return Opened(driver, KernelsElsewhere(self._target))
