"""Statements of a block, whose arithmetic is brought to what the target has as it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.codegen.passes.decompose import decompose
from tilework.codegen.sort.statements import Statements
from tilework.ir.ops.control import ALLOCATE, AllocateAttrs
from tilework.ir.types import Memory

if TYPE_CHECKING:
    from tilework.dtypes import DType
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec


class Writer(Statements):
    """A growing list of statements for one target."""

    def __init__(self, target: TargetSpec) -> None:
        super().__init__()
        self.target = target

    def emit(self, root: Node) -> Node:
        """Add `root` in the target's ops, and what it needs; returns what stands for it."""
        return super().emit(decompose(root, self.target))

    def allocate(self, dtype: DType, count: int, alignment: int = 64) -> Node:
        """TILE memory of the block for `count` elements, from a multiple of `alignment` on."""
        start = -(-self.scratch_bytes // alignment) * alignment
        self.scratch_bytes = start + count * dtype.itemsize
        return ALLOCATE(attrs=AllocateAttrs(dtype, count, Memory.TILE, start))
