"""From steps to the canonical form of a kernel: SINK of STOREs over PARAMs and RANGEs.

PARAMs are numbered stores first, then loads as they are met; a kernel's body does not say which
buffers it is called on, so that equal kernels are one node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base import settings
from tilework.base.errors import InternalError
from tilework.base.records import replace
from tilework.dtypes import bool_, index
from tilework.ir.build import cast, const_bits, const_index
from tilework.ir.faults import in_loops_of_their_own
from tilework.ir.fold import combine, identity_bits
from tilework.ir.node import make, toposort
from tilework.ir.ops import math, memory, tensor
from tilework.ir.ops.index import RANGE, VARIABLE, RangeAttrs
from tilework.ir.ops.program import FAULT_IF, FaultAttrs
from tilework.ir.ops.tensor import Fold
from tilework.ir.rewrite import rewrite
from tilework.ir.rules import SIMPLIFY
from tilework.ir.symbolic import dims, simplify
from tilework.ir.symbolic.bounds import bounds
from tilework.ir.symbolic.simplify import FALSE, TRUE
from tilework.schedule.passes.kernel_graph import leaves_in
from tilework.schedule.passes.layouts import stored_index
from tilework.schedule.passes.movement import MOVEMENT
from tilework.schedule.passes.pitch import pitches, widen_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.dtypes import DType
    from tilework.ir.node import Node, OpDef
    from tilework.ir.types import Dim
    from tilework.schedule.passes.kernel_graph import Buffer, Kernel, Step, Store

_SAFE = 1 << 61


class KernelBody:
    """The body of one call, made of one or several kernels, and the buffers of its PARAMs.

    Args:
        parts: kernels; those after the first get loops of their own unless `share_loops`.
        share_loops: the parts have one index space and run in the same loops.
    """

    def __init__(self, parts: Sequence[Kernel], *, share_loops: bool) -> None:
        self.arguments: list[tuple[Buffer, DType]] = []
        self._slots: dict[tuple[Buffer, DType], Node] = {}
        self._named: dict[Node, Step] = {}
        self._mapping: dict[Node, Node] = {}
        self._memo: dict[Node, Node] = {}
        for kernel in parts:
            for store in kernel.stores:
                self.param(store.buffer, store.buffer.dtype)
        effects: list[Node] = []
        faults: list[Node] = []
        shift = 0
        for kernel in parts:
            stored, found = self._part(kernel)
            if shift and not share_loops:
                stored, found = _renumber(kernel, stored, found, shift)
            shift += kernel.next_range
            effects += stored
            faults += found
        faults = in_loops_of_their_own(effects, list(dict.fromkeys(faults)))
        self.sink = make(memory.SINK, (*effects, *faults), None)
        if share_loops or len(parts) == 1:
            self._follow_layout(parts[0])
        self._drop_unused()
        if not any(kernel.contracts for kernel in parts):
            rows = pitches([buffer for buffer, _ in self.arguments])
            self.sink = widen_rows(self.sink, rows) if rows else self.sink

    def _follow_layout(self, kernel: Kernel) -> None:
        """Nest the loops in the order in which the result is stored."""
        outputs = [at for at in kernel.index if at.op is RANGE]
        ordered = stored_index(kernel)
        mapping = {
            old: make(RANGE, old.src, RangeAttrs(new.attrs.number))
            for old, new in zip(ordered, outputs, strict=True)
            if old is not new
        }
        if mapping:
            (self.sink,) = simplify.substitute([self.sink], mapping)

    def _drop_unused(self) -> None:
        """Leave out arguments whose loads were simplified away."""
        while True:
            used = [node for node in toposort(self.sink) if node.op is memory.PARAM]
            if len(used) == len(self.arguments):
                return
            used.sort(key=lambda node: int(node.attrs.slot))
            self.arguments = [self.arguments[node.attrs.slot] for node in used]
            renumbered = {
                node: make(memory.PARAM, (), replace(node.attrs, slot=slot))
                for slot, node in enumerate(used)
            }
            # This may simplify a choice between equal values, whose condition was an argument.
            (self.sink,) = simplify.substitute([self.sink], renumbered)

    def param(self, buffer: Buffer, dtype: DType) -> Node:
        """The PARAM for a buffer that is read as `dtype`."""
        key = (buffer, dtype)
        found = self._slots.get(key)
        if found is None:
            attrs = memory.ParamAttrs(len(self.arguments), (length(buffer, dtype),), dtype)
            found = self._slots[key] = make(memory.PARAM, (), attrs)
            self.arguments.append(key)
        return found

    # --- one kernel ------------------------------------------------------------------------------

    def _part(self, kernel: Kernel) -> tuple[list[Node], list[Node]]:
        self._named = kernel.named
        self._mapping = {}
        self._memo = {}
        if kernel.named:
            self._by_need(kernel)
        else:
            for step in reversed(kernel.steps):
                step.value = self._value(step)
        stores = [self._store(store) for store in kernel.stores]
        faults: list[Node] = []
        for valid, condition, code in kernel.faults if settings.current().check_index else ():
            outside = _and_not(self._known(valid), self._known(condition))
            if outside is not FALSE:
                faults.append(make(FAULT_IF, (outside,), FaultAttrs(code)))
        return stores, faults

    def _by_need(self, kernel: Kernel) -> None:
        """Build steps so that loaded indices come before what is loaded by them."""
        roots = [store.step for store in kernel.stores]
        roots += [store.gate for store in kernel.stores if store.gate is not None]
        roots += kernel.named.values()
        stack = [root.resolve() for root in reversed(roots)]
        opened: set[Step] = set()
        while stack:
            step = stack[-1]
            if step.value is not None:
                stack.pop()
                continue
            if step in opened:
                stack.pop()
                step.value = self._value(step)
                continue
            opened.add(step)
            needed = [source.resolve() for source in step.src]
            for node in (*step.index, step.valid, step.condition):
                needed += [
                    self._named[leaf].resolve() for leaf in leaves_in(node) if leaf in self._named
                ]
            stack.extend(source for source in reversed(needed) if source.value is None)

    def _known(self, node: Node) -> Node:
        """`node` with the values of loaded indices in the place of their placeholders."""
        if not self._named or (not node.src and node.op is not VARIABLE):
            return node
        for leaf in leaves_in(node):
            if leaf in self._named and leaf not in self._mapping:
                value = self._named[leaf].resolve().value
                if value is None:
                    raise InternalError("schedule: an index is used before it is built")
                self._mapping[leaf] = _cast(value, index)
        return simplify.substitute([node], self._mapping, self._memo)[0]

    def _store(self, store: Store) -> Node:
        value = _built(store.step)
        address = make(
            memory.INDEX,
            (self.param(store.buffer, store.buffer.dtype), self._known(store.offset)),
            None,
        )
        gate = self._known(store.valid)
        if store.gate is not None:
            gate = simplify.both(gate, _built(store.gate))
        if store.fold is not None:
            # As code generation will see them: a number times 0 depends on no loop.
            address, gate = rewrite(address, SIMPLIFY), rewrite(gate, SIMPLIFY)
            value = _repeated(store, value, (address, gate))
            gated = (address,) if gate is TRUE else (address, gate)
            value = combine(store.fold, make(memory.LOAD, gated, None), value)
        src = (address, value) if gate is TRUE else (address, value, gate)
        return make(memory.STORE, src, None)

    # --- one step --------------------------------------------------------------------------------

    def _value(self, step: Step) -> Node:
        node = step.node
        op = node.op
        if step.buffer is not None:
            return self._load(step, step.buffer)
        if op is math.CONST:
            attrs = node.attrs
            return const_bits(attrs.bits, attrs.dtype)
        if op is tensor.IOTA:
            return _cast(self._known(step.index[node.attrs.axis]), node.attrs.dtype)
        if op is VARIABLE:
            return node
        if op is tensor.REDUCE:
            return self._reduce(step)
        if op is tensor.SCAN:
            return self._scan(step)
        if op is tensor.SCATTER:
            return self._choice(step)
        if op in MOVEMENT or op is tensor.GATHER:
            return self._gated(step)
        if not op.elementwise and op is not math.BITCAST:
            return _built(step.src[0])
        return _apply(node, tuple([_built(source) for source in step.src]))

    def _load(self, step: Step, buffer: Buffer) -> Node:
        dtype = step.dtype or buffer.dtype
        offset = self._known(step.flat())
        address = make(memory.INDEX, (self.param(buffer, dtype), offset), None)
        gate = self._known(step.valid)
        if gate is FALSE:
            return const_bits(0, dtype)
        if gate is TRUE or _is_inside(offset, length(buffer, dtype)):
            return make(memory.LOAD, (address,), None)
        return make(memory.LOAD, (address, gate), None)

    def _gated(self, step: Step) -> Node:
        """A movement op or GATHER: its source where there is one, else 0."""
        zero = const_bits(0, step.node.type.dtype)
        if not step.src:
            return zero
        value = _built(step.src[0])
        condition = self._known(step.condition)
        if condition is TRUE or value is zero:
            return value
        if condition is FALSE:
            return zero
        is_gated = value.op is memory.LOAD and len(value.src) > 1
        if is_gated and simplify.implies(value.src[1], condition):
            return value
        return make(math.WHERE, (condition, value, zero), None)

    def _choice(self, step: Step) -> Node:
        """What was there, folded with the new value at the one position that is its own."""
        old, new = (_built(source) for source in step.src)
        fold = step.node.attrs.fold
        folded = new if fold is None else combine(fold, old, new)
        return simplify.choice(self._known(step.condition), folded, old)

    def _reduce(self, step: Step) -> Node:
        attrs = step.node.attrs
        dtype = step.node.type.dtype
        if not step.src:
            return const_bits(identity_bits(attrs.fold, dtype), dtype)
        value = _built(step.src[0])
        if not step.ranges:
            return value
        return make(tensor.REDUCE, (value, *step.ranges), tensor.ReduceAttrs(attrs.fold))

    def _scan(self, step: Step) -> Node:
        attrs = step.node.attrs
        dtype = step.node.type.dtype
        identity = const_bits(identity_bits(attrs.fold, dtype), dtype)
        if not step.src:
            return identity
        value = _built(step.src[0])
        if not step.ranges:
            return combine(attrs.fold, identity, value)
        running = tensor.ScanAttrs(attrs.fold, 0, attrs.exclusive)
        return make(tensor.SCAN, (value, *step.ranges), running)


def length(buffer: Buffer, dtype: DType) -> Dim:
    """How many elements of `dtype` a buffer holds."""
    count = buffer.elements
    if dtype.itemsize == buffer.dtype.itemsize:
        return count
    return dims.floordiv(dims.mul(count, buffer.dtype.itemsize), dtype.itemsize)


def _built(step: Step) -> Node:
    value = step.resolve().value
    if value is None:
        raise InternalError(f"schedule: {step.node!r} is used before it is built")
    return value


def _repeated(store: Store, value: Node, others: tuple[Node, ...]) -> Node:
    """`value` folded over the loops of its kernel that its place does not depend on.

    Each step of such a loop would fold into what the step before it wrote, which neither lanes and
    threads nor a load that is taken out of the loop would see.
    """
    if store.fold is None:
        return value
    used = set(toposort(*others))
    ranges = [at for at in store.step.resolve().kernel.index if at.op is RANGE and at not in used]
    if store.fold is not Fold.ADD and store.fold is not Fold.MUL:
        # Of equal values the greatest and the least are the value.
        used = set(toposort(value))
        ranges = [at for at in ranges if at in used]
    if not ranges:
        return value
    return make(tensor.REDUCE, (value, *ranges), tensor.ReduceAttrs(store.fold))


def _is_inside(offset: Node, count: Dim) -> bool:
    """Is `offset` proven to lie within a buffer of `count` elements?"""
    low, high = bounds(offset)
    if low < 0:
        return False
    if isinstance(count, int):
        return high < count
    return simplify.proven_less(offset, count)


def _and_not(where: Node, inside: Node) -> Node:
    """`where` holds and `inside` does not."""
    if where is FALSE or inside is TRUE:
        return FALSE
    if inside is FALSE:
        return where
    return simplify.both(where, make(math.XOR, (inside, TRUE), None))


def _cast(value: Node, dtype: DType) -> Node:
    """`value` in `dtype`; casts between integers that lose nothing are seen through."""
    if value.type.dtype is dtype:
        return value
    if dtype.is_integer and value.op is math.CAST:
        inner = value.src[0]
        if inner.type.dtype.is_integer and value.type.dtype.is_integer:
            low, high = bounds(inner)
            if _holds(value.type.dtype, low, high):
                return _cast(inner, dtype)
    if value.op is math.CONST and dtype is index and not value.type.dtype.is_float:
        return const_index(bounds(value)[0])
    return cast(value, dtype)


def _holds(dtype: DType, low: int, high: int) -> bool:
    return dtype.minimum <= low and high <= dtype.maximum


_COMPARED = frozenset((math.LT, math.LE, math.EQ, math.NE))
_INDEX_MATH = frozenset(
    (math.ADD, math.SUB, math.MUL, math.IDIV, math.MOD, math.MAXIMUM, math.MINIMUM)
)


def _apply(node: Node, src: tuple[Node, ...]) -> Node:
    """An elementwise op on values; arithmetic on positions stays in the normal form."""
    op = node.op
    if op is math.CAST:
        return _cast(src[0], node.attrs.dtype)
    if op is math.WHERE:
        return simplify.choice(src[0], src[1], src[2])
    if op is math.AND and src[0].type.dtype is bool_:
        return simplify.both(src[0], src[1])
    if not src[0].type.dtype.is_integer:
        return make(op, src, node.attrs)
    if op in _COMPARED:
        plain = tuple([_position(value) for value in src])
        if all(_is_small(value) for value in plain):
            return _compare(op, plain)
    elif op in _INDEX_MATH and src[0].type.dtype is index and all(_is_small(v) for v in src):
        return simplify.rebuild(node, src)
    return make(op, src, node.attrs)


def _position(value: Node) -> Node:
    """The index that an integer value is a lossless cast of, or the value itself."""
    if value.op is math.CAST and value.src[0].type.dtype is index:
        low, high = bounds(value.src[0])
        if _holds(value.type.dtype, low, high):
            return value.src[0]
    if value.op is math.CONST:
        return const_index(bounds(value)[0])
    return value


def _is_small(value: Node) -> bool:
    if value.type.dtype is not index:
        return False
    low, high = bounds(value)
    return low >= -_SAFE and high <= _SAFE


def _compare(op: OpDef, src: tuple[Node, ...]) -> Node:
    x, y = src
    if op is math.LT:
        return simplify.less(x, y)
    if op is math.LE:
        return simplify.at_least(y, x)
    same = simplify.equal(x, y)
    if op is math.EQ:
        return same
    if same.op is math.CONST:
        return FALSE if same is TRUE else TRUE
    return make(math.NE, same.src, None)


def _renumber(
    kernel: Kernel, stores: list[Node], faults: list[Node], shift: int
) -> tuple[list[Node], list[Node]]:
    """The roots of a kernel with `shift` added to the numbers of its ranges."""
    mapping = {
        make(RANGE, (size,), RangeAttrs(number)): make(RANGE, (size,), RangeAttrs(number + shift))
        for number, size in kernel.range_sizes.items()
    }
    moved = simplify.substitute([*stores, *faults], mapping)
    return moved[: len(stores)], moved[len(stores) :]
