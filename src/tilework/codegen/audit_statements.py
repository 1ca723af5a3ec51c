"""Proofs that every access of a buffer by the statements of a kernel lies inside of it.

`unproven_statements(linear)` judges what `audit.unproven` judges, in the last form of a kernel:
statements in order, among them those that are written by hand (sorts, and products on matrix units
of cards), which never were expressions of loops.  A proof may use gates, the conditions of the IFs
around an access, the extents of loops, and what the writer of the statements says must be so by
what they compute: that a rank lies in its row.

Statements change variables and memory, so that one node may have several values over time.  Each
is followed as an expression of atoms that never change: whatever is read from memory, or from a
variable after a loop or a branch that writes it, becomes a new atom, of which only its dtype is
known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilework.codegen import audit
from tilework.codegen.audit import Sum, Unproven
from tilework.ir.build import cast, const_bits
from tilework.ir.node import Node, make, toposort
from tilework.ir.ops import control, math, matrix, warp_matrix
from tilework.ir.ops import index as index_ops
from tilework.ir.ops import matrix_registers as registers
from tilework.ir.ops.memory import AFTER, FETCH, INDEX, LOAD, PARAM, STORE
from tilework.ir.symbolic import dims
from tilework.ir.symbolic.bounds import bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Facts = list[Sum]
#: Ops besides elementwise ones whose value follows from that of their operands.
_KEPT: Final = (
    INDEX, control.BROADCAST, control.EXTRACT, control.STACK, index_ops.RANGE, matrix.BOXED,
)  # fmt: skip
#: Ops that take an address and do nothing to memory.
_HARMLESS: Final = (FETCH, INDEX, matrix.BOXED)


def unproven_statements(linear: Node) -> list[Unproven]:
    """The accesses of buffers by statements that are not proven to lie inside.

    Args:
        linear: A kernel at the LINEAR stage.
    """
    return [fault for faults in unproven_at(linear).values() for fault in faults]


def unproven_at(linear: Node) -> dict[int, list[Unproven]]:
    """`unproven_statements`, by the numbers of the statements."""
    walk = _Walk(linear.src)
    for number in range(len(linear.src)):
        walk.step(number)
    return walk.found


def check_statements(linear: Node, *, trusts_data: bool = True) -> None:
    """Refuse statements with an access that is not proven to lie inside of its buffer.

    Args:
        linear: A kernel at the LINEAR stage.
        trusts_data: Take places that depend on what memory holds on trust.

    Raises:
        VerifyError: Names the first such access.
    """
    faults = unproven_statements(linear)
    audit.refuse([fault for fault in faults if not (trusts_data and fault.from_data)])


class _Walk:
    """One pass over statements."""

    def __init__(self, statements: Sequence[Node]) -> None:
        self.found: dict[int, list[Unproven]] = {}
        self._statements = statements
        self._values: dict[Node, Node] = {}
        self._atoms = 0
        #: What each open loop or branch has brought: how many facts there were, what it writes.
        self._scopes: list[tuple[int, tuple[Node, ...]]] = []
        self._facts: Facts = []
        self._written = _written_in(statements)

    def step(self, number: int) -> None:
        node = self._statements[number]
        op = node.op
        if op is index_ops.RANGE or op is control.IF:
            self._open(number, node)
        elif op is control.ENDIF or (op is control.END and node.src[0].op is index_ops.RANGE):
            self._close()
        elif op is control.ACCUMULATE:
            self._values[node] = self._values[node.src[0]] = self._value(node.src[1])
        elif op is control.ACCUMULATOR or (op is AFTER and node.src[0].op is control.ACCUMULATOR):
            self._values[node] = self._value(node.src[0])
        else:
            self._judge(number, node)
            self._values[node] = self._computed(node)

    def _open(self, number: int, node: Node) -> None:
        written = self._written[number]
        self._scopes.append((len(self._facts), written))
        if node.op is control.IF:
            self._facts.extend(audit.facts_of_condition(self._value(node.src[0])))
            return
        self._forget(written)
        self._values[node] = self._computed(node)
        # What is in a loop runs only if there is a first time; of none nothing is to be proven.
        self._facts.append(Sum(1).plus(audit.sum_of(self._of(node.src[0])), -1))

    def _close(self) -> None:
        known, written = self._scopes.pop()
        del self._facts[known:]
        self._forget(written)

    def _forget(self, written: tuple[Node, ...]) -> None:
        """Variables that a loop or a branch writes have some value before and after it."""
        for variable in written:
            self._values[variable] = self._atom(variable)

    def _atom(self, node: Node) -> Node:
        """Something of the type of a node, of which nothing else is known."""
        self._atoms += 1
        number = index_ops.VARIABLE(attrs=index_ops.VariableAttrs(f"@{self._atoms}", 0, 0))
        return AFTER(node, number)

    def _value(self, root: Node) -> Node:
        """The value that a node has now."""
        waiting = [root]
        while waiting:
            node = waiting[-1]
            if node in self._values or not node.src:
                waiting.pop()
                continue
            unknown = [each for each in node.src if each.src and each not in self._values]
            if unknown:
                waiting.extend(unknown)
                continue
            waiting.pop()
            if node is not root or node.op not in (control.ACCUMULATOR, LOAD):
                self._values[node] = self._computed(node)
        return self._values.get(root, root)

    def _computed(self, node: Node) -> Node:
        op = node.op
        if op is control.ACCUMULATOR or not (op.elementwise or op in _KEPT):
            if op is matrix.SAME_IN_WARP:
                return self._of(node.src[0])
            return self._atom(node)
        source = tuple([self._of(each) for each in node.src])
        if op is math.BITCAST and _is_kept_by_bits(source[0], node):
            return cast(source[0], node.dtype)
        if op is math.SHR and (quotient := _divided(source)) is not None:
            return quotient
        return node if source == node.src else make(op, source, node.attrs)

    def _of(self, node: Node) -> Node:
        return self._values.get(node, node)

    # ---- accesses

    def _judge(self, number: int, node: Node) -> None:
        judge = _JUDGES.get(node.op)
        faults: list[Unproven] = []
        if judge is not None:
            faults = judge(self, node)
        elif node.op not in _HARMLESS and any(_is_in_buffer(each) for each in node.src):
            faults = [Unproven(node, "nothing is known of such an access", False)]
        if faults:
            self.found[number] = faults

    def access(self, node: Node) -> list[Unproven]:
        """A LOAD or STORE."""
        address, *others = node.src
        if not _is_in_buffer(address):
            return []
        after = 2 if node.op is LOAD else 3
        sources = [self._mapped(address), *(self._of(each) for each in others[: after - 1])]
        mapped = make(node.op, tuple(sources), node.attrs)
        return [
            Unproven(node, fault.what, _is_from_data(sources[0]))
            for fault in audit.unproven_parts(mapped, self._facts)
        ]

    def copy(self, node: Node) -> list[Unproven]:
        """A COPY_CHUNK: the first of some elements, if there is one."""
        _, address, inside = node.src
        if not _is_in_buffer(address):
            return []
        address = self._mapped(address)
        number, facts = self._of(inside), list(self._facts)
        while number.op is math.WHERE and bounds(number.src[2])[1] <= 0:  # else nothing is read
            facts.extend(audit.facts_of_condition(number.src[0]))
            number = number.src[1]
        count = audit.sum_of(number)
        facts.append(Sum(1).plus(count, -1))
        parts = audit.unproven_span(address, (count, Sum(node.attrs.count)), facts)
        return [Unproven(node, what, _is_from_data(address)) for what in parts]

    def boxes(self, node: Node) -> list[Unproven]:
        """A copy of a box: the machine leaves out what is outside of the array."""
        boxed = node.src[1 if node.op is matrix.COPY_BOX else 0]
        attrs: matrix.BoxedAttrs = boxed.attrs
        size = audit.sum_of(dims.as_node(dims.product(boxed.src[0].attrs.shape)))
        steps = [
            (extent - 1) * stride for extent, stride in zip(attrs.sizes, attrs.strides, strict=True)
        ]
        last = attrs.start + sum(step for step in steps if step > 0)
        is_inside = attrs.start + sum(step for step in steps if step < 0) >= 0
        if is_inside and audit.proves(Sum(last + 1).plus(size, -1), ()):
            return []
        return [Unproven(node, "its array may reach beyond the buffer", False)]

    def rows(self, node: Node) -> list[Unproven]:
        """A matrix of a processor's own unit: rows that lie some elements apart."""
        address = node.src[0]
        if not _is_in_buffer(address):
            return []
        return audit.unproven_rows(node, self._mapped(address), self._facts)

    def _mapped(self, address: Node) -> Node:
        return INDEX(address.src[0], self._of(address.src[1]))


_JUDGES: Final[Mapping[object, Callable[[_Walk, Node], list[Unproven]]]] = {
    LOAD: _Walk.access,
    STORE: _Walk.access,
    warp_matrix.COPY_CHUNK: _Walk.copy,
    matrix.COPY_BOX: _Walk.boxes,
    matrix.STORE_BOX: _Walk.boxes,
    registers.LOAD_MATRIX: _Walk.rows,
    registers.STORE_MATRIX: _Walk.rows,
}


def _is_in_buffer(node: Node) -> bool:
    return node.op is INDEX and node.src[0].op is PARAM


def _is_from_data(address: Node) -> bool:
    """Whether a place depends on what memory or a variable holds."""
    return any(node.op is AFTER for node in toposort(address))


def _is_kept_by_bits(source: Node, node: Node) -> bool:
    """Whether the same bits are the same integer."""
    before, after = source.dtype, node.dtype
    if not before.is_integer or not after.is_integer or before.bits != after.bits:
        return False
    low, high = bounds(source)
    return low >= 0 and high <= min(before.maximum, after.maximum)


def _divided(source: tuple[Node, ...]) -> Node | None:
    """x // d, where that is what a product of x shifted to the right is."""
    product, (places, last) = source[0], bounds(source[1])
    if product.op is not math.MUL or places != last or product.type.shape:
        return None
    x, (factor, other) = product.src[0], bounds(product.src[1])
    low, high = bounds(x)
    whole = 1 << places
    if factor != other or factor <= 0 or low < 0 or high * factor > product.dtype.maximum:
        return None
    divisor = -(-whole // factor)
    # factor * divisor is a little more than whole: too little for x to notice.
    if divisor < 2 or (factor * divisor - whole) * high >= whole:
        return None
    return math.CDIV(x, const_bits(divisor, x.dtype))


def _written_in(statements: Sequence[Node]) -> dict[int, tuple[Node, ...]]:
    """For each loop and branch, by the number of its first statement, the variables it writes."""
    found: dict[int, tuple[Node, ...]] = {}
    opened: list[tuple[int, dict[Node, None]]] = []
    for number, node in enumerate(statements):
        if node.op is index_ops.RANGE or node.op is control.IF:
            opened.append((number, {}))
        elif node.op is control.ENDIF or (
            node.op is control.END and node.src[0].op is index_ops.RANGE
        ):
            start, written = opened.pop()
            found[start] = tuple(written)
            if opened:
                opened[-1][1].update(written)
        elif node.op in (control.ACCUMULATE, matrix.PUT, matrix.MATRIX) and opened:
            opened[-1][1][node.src[0]] = None
    return found
