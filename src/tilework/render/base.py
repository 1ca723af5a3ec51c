"""The contract of a renderer, and what all of them share."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

from tilework.base.errors import RenderError

if TYPE_CHECKING:
    from tilework.ir.lowered import LoweredKernel
    from tilework.ir.node import Node


class Renderer(Protocol):
    """Stateless: the same statements give the same text in every process."""

    name: ClassVar[str]

    def render(self, kernel: LoweredKernel) -> str:
        """The source text of a kernel.  Raises RenderError for a node that has no text."""
        ...


def cannot_render(renderer: str, node: Node) -> RenderError:
    """The error for a node that a renderer has no text for."""
    sources = ", ".join(str(source.type) for source in node.src)
    return RenderError(
        f"{renderer} cannot render {node.op.name}",
        got=f"{node.op.name}({sources}) of type {node.type}",
        expected="an op that the target declares native, or a decomposition of it",
    )
