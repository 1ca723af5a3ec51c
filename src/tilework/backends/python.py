"""`PYTHON`: the interpreter of the IR as a device, slow and exact; the judge of the others."""

from __future__ import annotations

from typing import Final

from tilework.backends.contract import Backend, KernelSource, Opened, WorkerToolchain
from tilework.base import settings
from tilework.ir.build import const_index
from tilework.ir.digest import digest
from tilework.ir.node import Node, toposort
from tilework.ir.ops.index import VARIABLE
from tilework.ir.ops.memory import PARAM
from tilework.ir.text import format_node
from tilework.runtime.drivers import python as driver
from tilework.runtime.registry import DeviceName
from tilework.target.spec import TargetSpec


class InterpretedKernels:
    """The compiler's part of an interpreter: it prints the kernel, and compiles nothing."""

    key = "interpreter-1"
    is_cacheable = False  # printing it again is as fast as reading it

    def __init__(self, target: TargetSpec) -> None:
        self.target = target

    def lower(self, kernel: Node) -> KernelSource:
        """Print the kernel."""
        nodes = toposort(kernel)
        variables = {node.attrs.name for node in nodes if node.op is VARIABLE}
        return KernelSource(
            name=f"kernel_{digest(kernel).hex()}",
            text=format_node(kernel),
            tasks=const_index(1),
            variables=tuple(sorted(variables)),
            num_buffers=1 + max((n.attrs.slot for n in nodes if n.op is PARAM), default=-1),
            scratch_bytes=0,
        )

    def build(self, source: KernelSource) -> bytes:
        """The text itself, which the driver parses."""
        return source.text.encode()

    def worker(self) -> WorkerToolchain | None:
        """Nothing to build elsewhere."""
        return None


def _open(name: DeviceName) -> Opened:
    current = settings.current()
    opened = driver.PythonDriver(memory_limit=current.memory_limit, poison=current.poison)
    opened.name = str(name)
    return Opened(opened, InterpretedKernels(opened.target))


BACKEND: Final = Backend(
    driver_api=1,
    kind="PYTHON",
    renderer="INTERPRETER",
    summary="the interpreter of the IR: slow, exact, the judge of the others",
    is_host_memory=True,
    probe=driver.probe,
    open=_open,
)
