"""Checks at run time of statements whose places are not proven to lie inside of their buffer.

    linear = with_statement_checks(linear, mark)     # of kernels that are written as statements

What `runtime_checks` does to expressions before a plan is chosen is done here to statements: an
access gets a gate that keeps it inside, and a FAULT_IF before it whose code names the buffer and
the kernel.
"""

from __future__ import annotations

from typing import Final

from tilework.codegen.audit_statements import unproven_at
from tilework.ir.build import const, const_index
from tilework.ir.faults import AccessFault
from tilework.ir.node import Node, make, toposort
from tilework.ir.ops import control, math
from tilework.ir.ops.index import RANGE, LanesAttrs
from tilework.ir.ops.memory import LOAD, STORE
from tilework.ir.ops.program import FAULT_IF, LINEAR, FaultAttrs
from tilework.ir.symbolic import dims

_CHECKED: Final = (LOAD, STORE)


def with_statement_checks(linear: Node, mark: str) -> Node:
    """Return statements whose loads and stores all are proven, or gated and reported.

    Args:
        linear: a kernel at the LINEAR stage.
        mark: the first digits of its digest, by which the engine finds its name.
    """
    wanted = {number for number in unproven_at(linear) if linear.src[number].op in _CHECKED}
    if not wanted:
        return linear
    writer = _Writer(mark)
    for number, node in enumerate(linear.src):
        writer.copy(node, is_checked=number in wanted)
    return LINEAR(*writer.statements)


class _Writer:
    """Statements anew, with those that checks need before them."""

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self.statements: list[Node] = []
        self._done: dict[Node, Node] = {}
        self._scopes: list[set[Node]] = [set()]

    def copy(self, node: Node, *, is_checked: bool) -> None:
        """Add a statement, whose sources stand before it."""
        source = tuple([self._done.get(each, each) for each in node.src])
        if is_checked:
            source = self._checked(node, source)
        made = node if source == node.src else make(node.op, source, node.attrs)
        self._done[node] = made
        ends = node.op is control.ENDIF or (node.op is control.END and node.src[0].op is RANGE)
        if ends:
            self._scopes.pop()
        self.statements.append(made)
        if node.op is RANGE or node.op is control.IF:
            self._scopes.append(set())
        self._scopes[-1].add(made)

    def _checked(self, node: Node, source: tuple[Node, ...]) -> tuple[Node, ...]:
        """The sources of an access with a gate, after a report of what the gate leaves out."""
        place = 1 if node.op is LOAD else 2
        kind = node.type if node.op is LOAD else node.src[1].type
        inside = self._inside(source[0], kind.lanes if kind.shape else 1)
        gate = source[place] if len(source) > place else None
        outside = self._emit(math.XOR(inside, const(True, inside.dtype)))
        if gate is not None and not gate.type.shape:
            outside = self._emit(math.AND(gate, outside))
        code = AccessFault(node.src[0].src[0].attrs.slot, self._mark).code
        self._emit(FAULT_IF(outside, attrs=FaultAttrs(code)))
        if gate is not None:
            if gate.type.shape:
                lanes = LanesAttrs(gate.type.lanes)
                inside = self._emit(control.BROADCAST(inside, attrs=lanes))
            inside = self._emit(math.AND(gate, inside))
        return (*source[:place], inside, *source[place + 1 :])

    def _inside(self, address: Node, lanes: int) -> Node:
        """The condition that so many elements from an INDEX on lie inside of its buffer."""
        offset = address.src[1]
        size = dims.product(address.src[0].attrs.shape)
        end = self._emit_all(dims.as_node(dims.add(size, 1 - lanes)))
        low = self._emit(math.LE(const_index(0), offset))
        high = self._emit(math.LT(offset, end))
        return self._emit(math.AND(low, high))

    def _emit(self, node: Node) -> Node:
        if not any(node in scope for scope in self._scopes):
            self.statements.append(node)
            self._scopes[-1].add(node)
        return node

    def _emit_all(self, root: Node) -> Node:
        """Add an expression over arguments."""
        for node in toposort(root):
            if node.src:
                self._emit(node)
        return root
