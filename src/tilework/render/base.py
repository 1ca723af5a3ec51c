"""The contract of a renderer, and what all of them share."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, Protocol

from tilework.base.errors import RenderError, VerifyError
from tilework.ir.ops.index import VARIABLE
from tilework.ir.ops.memory import FAR_BYTES, LOAD, PARAM, STORE
from tilework.ir.stage import Stage
from tilework.ir.symbolic.simplify import TRUE
from tilework.ir.verify import verify

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.ir.lowered import LoweredKernel
    from tilework.ir.node import Node


class Renderer(Protocol):
    """Stateless: the same statements give the same text in every process."""

    name: ClassVar[str]

    def render(self, kernel: LoweredKernel) -> str:
        """The source text of a kernel.

        Raises: VerifyError for statements that are not legal; RenderError for a node without text.
        """
        ...


def check_input(kernel: LoweredKernel) -> None:
    """Check what a renderer is given, whatever the setting `verify` says: it trusts no pass.

    Raises:
        VerifyError: The statements are not legal, or name an argument that the kernel has not.
    """
    verify(kernel.linear, Stage.LINEAR, after="linearise")
    for statement in kernel.linear.src:
        for node in statement.src:
            if node.op is PARAM and not 0 <= node.attrs.slot < kernel.parameters:
                raise VerifyError(
                    "verify: the kernel has no such buffer",
                    node=node,
                    got=node.attrs.slot,
                    expected=f"a slot below {kernel.parameters}",
                )
            if node.op is VARIABLE and node.attrs.name not in kernel.variables:
                raise VerifyError(
                    "verify: the kernel has no such variable", node=node, got=node.attrs.name
                )


def locality(ahead: int) -> int:
    """How near the processor a prefetch of memory `ahead` bytes further puts it: 3 is nearest."""
    return 3 if ahead < FAR_BYTES else 2


def gate_of(statement: Node) -> Node | None:
    """The gate of a LOAD or STORE; None where it has none, or one that always holds."""
    if statement.op is LOAD:
        gates = statement.src[1:]
    elif statement.op is STORE:
        gates = statement.src[2:]
    else:
        return None
    return gates[0] if gates and gates[0] is not TRUE else None


def check_gate(renderer: str, statement: Node, gate: str, lines: Sequence[str]) -> None:
    """Check that the text of a gated access names its gate; `gate` is the gate's text.

    Raises:
        RenderError: The gate was lost on the way to text.
    """
    if not any(re.search(rf"(?<![\w%.]){re.escape(gate)}(?![\w.])", line) for line in lines):
        raise RenderError(
            f"{renderer}: the text of a gated {statement.op.name} does not test its gate",
            got=" ".join(line.strip() for line in lines),
            expected=f"a test of {gate}",
        )


def cannot_render(renderer: str, node: Node) -> RenderError:
    """The error for a node that a renderer has no text for."""
    sources = ", ".join(str(source.type) for source in node.src)
    return RenderError(
        f"{renderer} cannot render {node.op.name}",
        got=f"{node.op.name}({sources}) of type {node.type}",
        expected="an op that the target declares native, or a decomposition of it",
    )
