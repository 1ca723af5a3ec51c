"""What compilers have in common that lower a kernel, render it as text, and have that compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tilework.backends.contract import KernelSource, source_of, tuned_key
from tilework.ir.node import Node
from tilework.toolchain.base import Toolchain

if TYPE_CHECKING:
    from tilework.codegen.plan.kinds import AnyPlan
    from tilework.render.base import Renderer


class TextCompiler:
    """Lower, render and compile kernels for one target.

    Args:
        toolchain: makes the object code.
        make_renderer: called at the first kernel, so that a warm start imports no renderer.
    """

    is_cacheable = True

    def __init__(self, toolchain: Toolchain, make_renderer: Callable[[], Renderer]) -> None:
        self.target = toolchain.target
        self._toolchain = toolchain
        self._make_renderer = make_renderer
        self._renderer: Renderer | None = None

    @property
    def key(self) -> str:
        """The toolchain's key; the renderer goes with it."""
        return self._toolchain.key

    def lower(
        self, kernel: Node, plan: AnyPlan | None = None, *, is_plain: bool = False
    ) -> KernelSource:
        """Plan, lower and render one kernel.

        Args:
            kernel: at the KERNEL stage.
            plan: how to tile it; None takes what tuning has found, or the cost model's choice.
            is_plain: take plain loops.

        Raises: PlanError for a given plan that is not legal.
        """
        if self._renderer is None:
            self._renderer = self._make_renderer()
        # Imported here, since a start with warm caches needs no code generator.
        from tilework.codegen.tuned import lower_as_tuned

        lowered = lower_as_tuned(kernel, self.target, plan, is_plain=is_plain)
        return source_of(lowered, self._renderer.render(lowered))

    def plan_key(self, kernel: Node) -> str:
        """What tuning adds to the key of a kernel's code."""
        return tuned_key(kernel, self.target)

    def lower_plainly(self, kernel: Node) -> KernelSource:
        """Lower without a plan: the reference for kernels that are too long to interpret."""
        return self.lower(kernel, is_plain=True)

    def build(self, source: KernelSource) -> bytes:
        """Compile the text."""
        return self._toolchain.compile(source.text)
