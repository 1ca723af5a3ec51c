"""What computing a value again costs, against storing and loading it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilework.codegen.plan.choose import OP_COST
from tilework.ir.ops.memory import LOAD
from tilework.ir.ops.tensor import REDUCE

if TYPE_CHECKING:
    from tilework.codegen.analysis import Kernel
    from tilework.ir.node import Node

#: Element operations that a store and a load from the nearest cache are worth.
WORTH_KEEPING: Final = 8


class Costs:
    """Element operations of values, down to loads and folds."""

    def __init__(self, kernel: Kernel) -> None:
        self._own: dict[Node, int] = {}
        for node in kernel.order:
            if node.op is LOAD or node.op is REDUCE or not node.type.dtype.is_float:
                self._own[node] = 0
            elif node.op.elementwise and node.src:
                below = sum(self._own[source] for source in node.src)
                self._own[node] = below + OP_COST.get(node.op.name, 1)
            else:
                self._own[node] = 0

    def of(self, node: Node) -> int:
        """Element operations of `node`; what two of its operands share counts twice."""
        return self._own[node]
