"""Which buffers a function has, and which version of which buffer its nodes are.

Every AFTER makes a version of the storage that it writes to; the storage of a value that is not
in memory yet is made for it.  Outputs get a slot of their own unless they are the last version of
an input (an in-place write) or an input itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.errors import InternalError, ScheduleCycleError, UserError
from tilework.ir.node import toposort
from tilework.ir.ops import index, math, memory, multi, tensor
from tilework.ir.symbolic import dims
from tilework.schedule.passes.choice import chosen_axis
from tilework.schedule.passes.kernel_graph import Buffer
from tilework.schedule.passes.movement import MOVEMENT
from tilework.schedule.passes.variation import loaded_axes
from tilework.schedule.schedule import SlotKind, kind_of

if TYPE_CHECKING:
    from tilework.dtypes import DType
    from tilework.ir.node import Node
    from tilework.ir.types import Shape

IDENTITY = frozenset((tensor.DETACH, tensor.CONTIGUOUS))
_ON_WHOLE = {
    tensor.SORT: "its rows are sorted",
    multi.ALLREDUCE: "folded with what other devices have",
}
_LEAVES = frozenset((math.CONST, tensor.IOTA, index.VARIABLE))
_LOOKED_AT = 24
_FREE_LAYOUT = frozenset((tensor.RESHAPE, *IDENTITY))


class Effect:
    """A write that a kernel of its own does: `value` into `target`, a view of `base`.

    A SCATTER has no target; it writes to the buffer by its own rule.
    """

    __slots__ = ("base", "buffer", "node", "target", "value", "version")

    def __init__(self, node: Node, base: Node, value: Node, at: tuple[Buffer, int]) -> None:
        self.node = node
        self.base = base
        self.target: Node | None = None
        self.value = value
        self.buffer, self.version = at


class Layout:
    """The buffers of a function and what its nodes are to them.

    Args:
        function: SINK of outputs over PARAMs.
        inputs: how many slots the function is called with, where it may not read the last ones.
        chosen_on: kinds of devices on which a scatter of one element for each row is a choice.

    Raises:
        ScheduleCycleError: two writes to an input start from the same version of it.
        UserError: an op has operands on different devices.
    """

    def __init__(self, function: Node, inputs: int = 0, chosen_on: tuple[str, ...] = ()) -> None:
        self._chosen_on = chosen_on
        self.order = toposort(function)
        self.inputs = inputs
        self.buffers: list[Buffer] = []
        #: Nodes that are read from memory: the version that they are.
        self.memory: dict[Node, tuple[Buffer, int]] = {}
        #: Values that must be written to a version of a buffer, and why.
        self.forced: dict[Node, tuple[Buffer, int, str]] = {}
        #: Those of them that scans must read: a value without all loops would run on for each.
        self.scanned: set[Node] = set()
        #: Constants and counters that something reads from memory all the same.
        self.stored_leaves: dict[Node, tuple[Buffer, int]] = {}
        #: Nodes whose value is that of another one: AFTERs whose write covers the whole storage.
        self.forwards: dict[Node, Node] = {}
        self.effects: dict[Node, list[Effect]] = {}
        #: Copies into buffers of their own, as roots of kernels.
        self.roots: list[tuple[Node, Buffer, str]] = []
        #: COPYs to other devices: the buffer that is copied is that of the node's source.
        self.device: dict[Node, str] = {}
        self.default_device = ""
        #: SCATTERs that are written into the very tensor that they start from.
        self._in_place = _scatters_in_place(self.order)
        for node in self.order[:-1]:
            self._visit(node)
        self.outputs = [self._output(number, node) for number, node in enumerate(function.src)]

    # --- buffers ---------------------------------------------------------------------------------

    def new_buffer(
        self, shape: Shape, dtype: DType, device: str, kind: SlotKind = SlotKind.ARENA
    ) -> Buffer:
        """A further buffer."""
        buffer = Buffer(len(self.buffers), kind, shape, dtype, device)
        self.buffers.append(buffer)
        return buffer

    def _buffer_like(self, node: Node) -> Buffer:
        return self.new_buffer(node.type.shape, node.type.dtype, self.device[node])

    def strip(self, node: Node) -> Node:
        """The value whose row-major storage `node` shares: reshapes and identities taken off."""
        while node.op in _FREE_LAYOUT:
            node = node.src[0]
        return node

    def in_memory(self, node: Node) -> tuple[Buffer, int] | None:
        """The version of a buffer that holds `node` (stripped), if it is decided."""
        found = self.memory.get(node)
        if found is not None:
            return found
        forced = self.forced.get(node)
        if forced is not None:
            return forced[0], forced[1]
        if node in self.forwards:
            return self.in_memory(self.strip(self.forwards[node]))
        return self.stored_leaves.get(node)

    def force(self, node: Node, reason: str) -> tuple[Buffer, int]:
        """Have `node` (or what it is a row-major reshape of) materialised; says where."""
        node = self.strip(node)
        found = self.in_memory(node)
        if found is None:
            buffer = self._buffer_like(node)
            found = (buffer, 0)
            if node.op in _LEAVES:
                self.roots.append((node, buffer, reason))
                self.stored_leaves[node] = found
            else:
                self.forced[node] = (buffer, 0, reason)
        return found

    # --- nodes -----------------------------------------------------------------------------------

    def _visit(self, node: Node) -> None:
        op = node.op
        self.device[node] = self._device_of(node)
        if op is memory.PARAM:
            attrs = node.attrs
            buffer = self.new_buffer(attrs.shape, attrs.dtype, attrs.device, SlotKind.INPUT)
            self.memory[node] = (buffer, 0)
        elif op is memory.AFTER:
            self._after(node)
        elif self._is_scattered(node):
            at = self._base(node.src[0], may_write_input=False)
            at[0].partial[at[1]] = True
            self.effects[node] = [Effect(node, node.src[0], node.src[1], at)]
            self.memory[node] = at
        elif op is tensor.COPY and self._is_made_anywhere(node.src[0]):
            buffer = self.new_buffer(node.type.shape, node.type.dtype, node.attrs.device)
            self.forced[node] = (buffer, 0, "made on its device")
        elif op is tensor.COPY:
            self.force(node.src[0], "copied to another device")
            self.memory[node] = (
                self.new_buffer(node.type.shape, node.type.dtype, node.attrs.device),
                0,
            )
        elif op is tensor.CONTIGUOUS:
            if not self._is_leaf(self.strip(node)):
                self.force(node, "made contiguous")
        elif op is tensor.SCAN:
            self._scan(node)
        elif op is math.BITCAST and node.src[0].type.dtype.bits != node.type.dtype.bits:
            self.force(node.src[0], "its bytes are read as another dtype")
        elif op in _ON_WHOLE:
            self._on_whole(node)

    def _scan(self, node: Node) -> None:
        self.force(node, "a scan runs along its axis")
        source = node.src[0]
        wide = sum(size != 1 for size in source.type.shape)
        read: list[Node] = []

        def is_read(node: Node) -> bool:
            if self.in_memory(node) is not None:
                read.append(node)
            return self.in_memory(node) is not None

        if len(loaded_axes(source, _LOOKED_AT, is_read)) < wide:
            # A running value must depend on all loops, or it would run on for each of them.
            self.force(source, "repeated along an axis, and scanned")
            read = [self.strip(source)]
        for node in read:
            self.scanned.add(self._written(node))

    def _is_scattered(self, node: Node) -> bool:
        """Is this a SCATTER into memory of its own?"""
        if node.op is not tensor.SCATTER or node in self._in_place:
            return False
        is_choice = kind_of(self.device[node]) in self._chosen_on and chosen_axis(node) is not None
        return not is_choice

    def _on_whole(self, node: Node) -> None:
        """What works on whole buffers has whole buffers to work on."""
        for source in node.src:
            self.force(source, _ON_WHOLE[node.op])
        self.memory[node] = (self._buffer_like(node), 0)

    def _is_made_anywhere(self, node: Node) -> bool:
        """Whether any device can make `node` by itself in one kernel that reads no memory."""
        stack, seen = [node], {node}
        while stack:
            top = stack.pop()
            is_light = top.op.elementwise or top.op in MOVEMENT or top.op in _LEAVES
            if self.device[top] or top in self.memory or top in self.forced or not is_light:
                return False
            for source in top.src:
                if source not in seen:
                    seen.add(source)
                    stack.append(source)
        return True

    def _is_leaf(self, node: Node) -> bool:
        return node.op in _LEAVES or self.in_memory(node) is not None

    def _written(self, node: Node) -> Node:
        """The value that is written where `node` is read."""
        while node in self.forwards and node not in self.memory and node not in self.forced:
            node = self.strip(self.forwards[node])
        return node

    def _device_of(self, node: Node) -> str:
        if node.op is memory.PARAM:
            return str(node.attrs.device)
        if node.op is tensor.COPY or node.op is multi.ALLREDUCE:
            return str(node.attrs.device)
        device = ""
        for source in node.src:
            other = self.device[source]
            if other and device and other != device:
                raise UserError(
                    f"{node.op.name}: operands are on different devices",
                    got=f"{device} and {other}",
                    expected="one device; move a tensor with .to(device)",
                )
            device = device or other
        return device

    # --- writes ----------------------------------------------------------------------------------

    def _after(self, node: Node) -> None:
        base = self._undetached(node.src[0])
        if len(node.src) == 2 and node.src[1].src[1] in self._in_place:
            scatter = node.src[1].src[1]
            place = self.memory[node] = self._base(base)
            place[0].partial[place[1]] = True
            self.effects[node] = [Effect(scatter, base, scatter.src[1], place)]
            return
        effects: list[Effect] = []
        for store in node.src[1:]:
            at = self._next(effects[-1].buffer) if effects else self._base(base)
            covers = len(store.src) == 2 and self._unreshaped(store.src[0]) is base
            at[0].partial[at[1]] = not covers
            effects.append(Effect(store, base, store.src[1], at))
            effects[-1].target = store.src[0]
        if not effects:
            self.forwards[node] = base
            return
        last = effects[-1]
        at = (last.buffer, last.version)
        value = self.strip(last.value)
        if last.buffer.partial[last.version] or self._is_leaf(value):
            self.memory[node] = at
            self.effects[node] = effects
            return
        self.forced[value] = (*at, "assigned to a tensor in place")
        self.forwards[node] = last.value
        # Earlier writes of this node are covered by the last one and do not happen.
        for effect in effects[:-1]:
            effect.buffer.partial[effect.version] = False

    def _undetached(self, node: Node) -> Node:
        while node.op is tensor.DETACH:
            node = node.src[0]
        return node

    def _unreshaped(self, node: Node) -> Node:
        while node.op is tensor.RESHAPE or node.op is tensor.DETACH:
            node = node.src[0]
        return node

    def _next(self, buffer: Buffer) -> tuple[Buffer, int]:
        buffer.latest += 1
        return buffer, buffer.latest

    def _base(self, base: Node, *, may_write_input: bool = True) -> tuple[Buffer, int]:
        """The version that a write to `base` makes, in the storage of `base` where it can."""
        if base in self.memory or base in self.forwards:
            buffer, version = self.in_memory(base) or (None, 0)
            if buffer is None:
                raise InternalError(f"after: {base!r} has no storage")
            is_input = buffer.kind is SlotKind.INPUT
            if buffer.latest == version and (may_write_input or not is_input):
                return self._next(buffer)
            if is_input and may_write_input:
                raise ScheduleCycleError(
                    "schedule: two writes start from the same version of a tensor",
                    path=[f"version {version} of {buffer}", f"version {buffer.latest}"],
                )
        value = self.strip(base)
        if not self._is_leaf(value):
            self.forced[value] = (self._buffer_like(value), 0, "the storage that a write goes to")
        if value in self.forced:
            buffer, version, _ = self.forced[value]
            if buffer.kind is SlotKind.ARENA and version == buffer.latest == 0:
                return self._next(buffer)
        buffer = self._buffer_like(base)
        self.roots.append((base, buffer, "a copy, since the old value is needed as well"))
        return self._next(buffer)

    # --- outputs ---------------------------------------------------------------------------------

    def _output(self, number: int, node: Node) -> Buffer:
        node = self._undetached(node)
        if node in self.memory or node in self.forwards:
            found = self.in_memory(node)
            if found is not None and found[0].latest == found[1]:
                buffer = found[0]
                if buffer.kind is SlotKind.INPUT:
                    return buffer
                if buffer.kind is SlotKind.ARENA:
                    return self._as_output(buffer, number)
        value = self.strip(node)
        found = self.in_memory(value)
        if found is None and value.op not in _LEAVES:
            buffer = self._buffer_like(value)
            self.forced[value] = (buffer, 0, "output of the function")
            return self._as_output(buffer, number)
        if found is not None and value in self.forced:
            buffer, version = found
            if buffer.kind is SlotKind.ARENA and buffer.latest == version:
                return self._as_output(buffer, number)
        buffer = self._buffer_like(node)
        self.roots.append((node, buffer, "output of the function"))
        return self._as_output(buffer, number)

    def _as_output(self, buffer: Buffer, number: int) -> Buffer:
        buffer.kind = SlotKind.OUTPUT
        buffer.output_of = number
        return buffer


def _scatters_in_place(order: list[Node]) -> set[Node]:
    """SCATTERs of a tensor that are assigned to that tensor, and used by nothing else."""
    if not any(node.op is tensor.SCATTER for node in order):
        return set()
    uses: dict[Node, int] = {}
    for node in order:
        for source in node.src:
            uses[source] = uses.get(source, 0) + 1
    found = set()
    for node in order:
        if node.op is not memory.AFTER or len(node.src) != 2:
            continue
        target, value = node.src[1].src[:2]
        is_alone = value.op is tensor.SCATTER and uses[value] == 1 and len(node.src[1].src) == 2
        if is_alone and target is node.src[0] and value.src[0] is target:
            found.add(value)
    return found


def numel(node: Node) -> int:
    """The number of elements of `node`, at its greatest."""
    total = 1
    for size in node.type.shape:
        total *= size if isinstance(size, int) else dims.greatest(size)
    return total
