"""Names of kernels that a person can read in a profile: what is computed, over which sizes.

A name is made of words and numbers of ours and of a digest, never of text from a user or a file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.codegen.plan.contraction import orientations
from tilework.ir.digest import digest
from tilework.ir.node import toposort
from tilework.ir.ops.memory import LOAD
from tilework.ir.ops.tensor import SCAN
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.codegen.analysis import Kernel
    from tilework.ir.node import Node

#: Elementary functions by which a kernel is recognised.
_TELLING = frozenset(
    (
        "exp", "exp2", "expm1", "log", "log2", "log1p", "sin", "cos", "tan", "tanh", "sinh", "cosh",
        "erf", "pow", "sqrt", "atan2",
    )
)  # fmt: skip
_MOST_SIZES = 6


def kernel_name(sink: Node, kernel: Kernel | None) -> str:
    """A name such as `contraction_64x3136_over_576_0f3a…`, unique to the kernel.

    Args:
        sink: The kernel as it came, whose digest ends the name.
        kernel: The facts about it; None for a sort.
    """
    mark = digest(sink).hex()[:16]
    if kernel is None:
        return f"sort_{mark}"
    parts = [_kind(kernel), _sizes(kernel.outputs)]
    if kernel.reduces:
        parts += ["over", _sizes(kernel.reduces[0].src[1:])]
    told = {node.op.name for node in kernel.order} & _TELLING
    parts += sorted(told)[:2]
    return "_".join([part for part in parts if part] + [mark])


def _kind(kernel: Kernel) -> str:
    if orientations(kernel):
        return "contraction"
    if kernel.reduces:
        return "reduction"
    if any(node.op is SCAN for node in kernel.order):
        return "scan"
    if any(n.op is LOAD for store in kernel.stores for n in toposort(store.src[0].src[1])):
        return "scatter"
    return "elementwise"


def _sizes(ranges: Sequence[Node]) -> str:
    """Sizes as 64x3136; n for one that is known at run time only."""
    found = [simplify.value_of(range_.src[0]) for range_ in ranges[:_MOST_SIZES]]
    return "x".join("n" if size is None else str(size) for size in found)
