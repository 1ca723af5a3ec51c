"""Writing of LINEAR statements by hand: loops, conditions, variables and memory.

A value is emitted where it is first used, and again in each block that cannot see it.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tilework.base.errors import InternalError
from tilework.ir.build import const_index
from tilework.ir.ops.control import (
    ACCUMULATE,
    ACCUMULATOR,
    ALLOCATE,
    END,
    ENDIF,
    IF,
    AccumulateAttrs,
    AllocateAttrs,
)
from tilework.ir.ops.index import RANGE, RangeAttrs, Unit
from tilework.ir.ops.memory import AFTER, INDEX, LOAD, STORE, LoadAttrs
from tilework.ir.ops.program import LINEAR
from tilework.ir.ops.tensor import Fold
from tilework.ir.types import Memory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tilework.dtypes import DType
    from tilework.ir.node import Node

_ALIGNMENT = 64


class Statements:
    """A growing list of statements.

    A LOAD is a node like any other: within one block, two loads of one address node are one load.

    Args:
        compresses: Whether the target moves chosen lanes together.
    """

    def __init__(self, *, compresses: bool = False) -> None:
        self.compresses = compresses
        self.items: list[Node] = []
        self.scopes: list[set[Node]] = [set()]
        self.effects: set[Node] = set()
        self.ranges = 0
        self.variables = 0
        self.scratch_bytes = 0

    def linear(self) -> Node:
        """All statements as one node."""
        return LINEAR(*self.items)

    def emit(self, root: Node) -> Node:
        """Add `root`, and what it needs and no open block has yet."""
        if not root.op.pure and root in self.effects:
            raise InternalError("sort: a statement stands twice", got=repr(root))
        stack = [(root, False)]
        while stack:
            node, ready = stack.pop()
            if not node.src or any(node in scope for scope in self.scopes):
                continue  # literals, arguments and memory need no statement
            if ready:
                self._add(node)
                continue
            stack.append((node, True))
            stack.extend([(source, False) for source in reversed(node.src)])
        return root

    def _add(self, node: Node) -> Node:
        if not node.op.pure:
            if node in self.effects:
                raise InternalError("sort: a statement stands twice", got=repr(node))
            self.effects.add(node)
        self.items.append(node)
        self.scopes[-1].add(node)
        return node

    @contextmanager
    def loop(self, size: Node | int, unit: Unit = Unit.LOOP) -> Iterator[Node]:
        """A loop around the statements added inside; gives its counter."""
        extent = const_index(size) if isinstance(size, int) else self.emit(size)
        counter = RANGE(extent, attrs=RangeAttrs(self.ranges, unit))
        self.ranges += 1
        self.items.append(counter)
        self.scopes.append({counter})
        yield counter
        self.scopes.pop()
        self.items.append(END(counter))

    @contextmanager
    def when(self, condition: Node) -> Iterator[None]:
        """The statements added inside run only where `condition` holds."""
        opened = IF(self.emit(condition))
        self.items.append(opened)
        self.scopes.append(set())
        yield
        self.scopes.pop()
        self.items.append(ENDIF(opened))

    def allocate(self, dtype: DType, count: int) -> Node:
        """Memory of the task for `count` elements."""
        node = ALLOCATE(attrs=AllocateAttrs(dtype, count, Memory.TILE, self.scratch_bytes))
        size = count * dtype.itemsize
        self.scratch_bytes += (size + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT
        return node

    def variable(self, initial: Node) -> Node:
        """A variable; using it reads what it holds then."""
        node = ACCUMULATOR(initial, attrs=AccumulateAttrs(self.variables, Fold.ADD))
        self.variables += 1
        return self.emit(node)

    def assign(self, variable: Node, value: Node) -> Node:
        """Give a variable another value; returns the assignment, for `read`."""
        return self._add(ACCUMULATE(variable, self.emit(value)))

    def read(self, variable: Node, assignment: Node) -> Node:
        """What a variable holds after the loop that assigns to it."""
        return self._add(AFTER(variable, assignment))

    def load(self, buffer: Node, offset: Node, lanes: int = 1) -> Node:
        """The element, or `lanes` of them, at an offset."""
        attrs = LoadAttrs(lanes) if lanes > 1 else None
        return self.emit(LOAD(INDEX(buffer, offset), attrs=attrs))

    def store(self, buffer: Node, offset: Node, value: Node) -> None:
        """Write a value at an offset."""
        self.emit(STORE(INDEX(buffer, offset), value))
