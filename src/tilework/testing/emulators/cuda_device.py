"""The back end CUDA on a card in software: everything but NVIDIA's compiler and driver is real."""

from __future__ import annotations

import json

from tilework.backends.contract import Backend, KernelSource, Opened, WorkerToolchain, source_of
from tilework.backends.cuda import BACKEND, CudaCompiler, open_with
from tilework.base.records import replace
from tilework.codegen.plan.kinds import AnyPlan
from tilework.codegen.tuned import lower_as_tuned
from tilework.ir.node import Node
from tilework.ir.text import format_node
from tilework.render.c_family.cuda import CudaRenderer
from tilework.runtime.driver import Probe
from tilework.runtime.registry import DeviceName
from tilework.target.cuda_code import SOURCE_HEAD, CudaHead, box_from, pack_code
from tilework.target.spec import TargetSpec
from tilework.testing.emulators.cuda import EmulatedCuda


class EmulatedCompiler(CudaCompiler):
    """Plans, lowers and renders as for a card; the code is the text of the statements."""

    is_cacheable = False

    def __init__(self, target: TargetSpec) -> None:
        super().__init__(target)
        self.renderer = CudaRenderer(target.limits.shared_memory_bytes)

    @property
    def key(self) -> str:
        """Statements are the same in every process."""
        return "emulated"

    def lower(
        self, kernel: Node, plan: AnyPlan | None = None, *, is_plain: bool = False
    ) -> KernelSource:
        """The head of the rendered source, then the statements."""
        lowered = lower_as_tuned(kernel, self.target, plan, is_plain=is_plain)
        head = self.renderer.render(lowered).partition("\n")[0]
        return source_of(lowered, f"{head}\n{format_node(lowered.linear)}")

    def build(self, source: KernelSource) -> bytes:
        """The head and the statements as code."""
        line, _, statements = source.text.partition("\n")
        head = json.loads(line.removeprefix(SOURCE_HEAD))
        head["boxes"] = tuple(map(box_from, head["boxes"]))
        return pack_code(CudaHead(arch=self.target.cpu_name, **head), statements.encode())

    def worker(self) -> WorkerToolchain | None:
        """Nothing to build elsewhere."""
        return None


def emulated_backend(library: EmulatedCuda) -> Backend:
    """The row of the table of back ends that opens cards of `library`."""

    def probe() -> Probe:
        return Probe(device="CUDA", is_present=True, is_openable=True, driver="emulated")

    def open_card(name: DeviceName) -> Opened:
        opened = open_with(name, library)
        return Opened(opened.driver, EmulatedCompiler(opened.driver.target))

    return replace(BACKEND, summary="a card in software", probe=probe, open=open_card)
