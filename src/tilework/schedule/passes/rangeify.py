"""From nodes to steps of kernels: indices flow from results to sources, decisions with them.

Nodes are visited once, consumers first, so at each node all indices at which it is needed are
known.  It is then computed at each of them, or stored by a kernel of its own (or by a kernel that
computes it anyway) and loaded by the others.  Nothing recurses, and each node has a bounded number
of steps, so the cost is linear in the number of nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.errors import AliasError, InternalError
from tilework.ir.node import make
from tilework.ir.ops import math, memory, tensor
from tilework.ir.ops.index import RANGE, VARIABLE, VariableAttrs
from tilework.ir.symbolic import dims, simplify
from tilework.ir.symbolic.simplify import FALSE, TRUE
from tilework.schedule.passes.cost import Costs, cost_of
from tilework.schedule.passes.decide import reason_to_store
from tilework.schedule.passes.kernel_graph import Kernel, Step, Store, leaves_in
from tilework.schedule.passes.movement import MOVEMENT, ZERO, flatten, reshape_index, source_index
from tilework.schedule.passes.prepare import IDENTITY, numel
from tilework.schedule.passes.spaces import choose_space
from tilework.schedule.passes.value_bounds import value_bounds

if TYPE_CHECKING:
    from tilework.ir.node import Node
    from tilework.ir.types import Dim, Shape
    from tilework.schedule.passes.kernel_graph import Buffer
    from tilework.schedule.passes.movement import Index
    from tilework.schedule.passes.prepare import Effect, Layout
    from tilework.schedule.schedule import Limits

_VALUES = frozenset((math.CONST, tensor.IOTA, VARIABLE))
#: Ops done on whole buffers, and why their result is stored.
_FROM_MEMORY = {
    tensor.COPY: "copied from another device",
    tensor.SORT: "positions that sort rows",
}
_NO_VALUE = frozenset((memory.STORE, memory.SINK))
_FAR = 1 << 62
_Key = tuple[Kernel, "Index", "Node"]
#: How many kernels are looked at to prove that two kernels do not depend on each other.
_SEARCH = 64


class Rangeify:
    """The kernels of a function.

    Args:
        layout: the function's buffers.
        limits: where kernels are cut.
    """

    def __init__(self, layout: Layout, limits: Limits) -> None:
        self.layout = layout
        self.limits = limits
        self.costs = Costs(layout)
        self.kernels: list[Kernel] = []
        self.requests: dict[Node, dict[_Key, Step]] = {}
        self.names = 0
        self.position = len(layout.order)
        for node, buffer, reason in layout.roots:
            self._root(node, buffer, 0, reason)
        for node in reversed(layout.order):
            self.position -= 1
            if node.op not in _NO_VALUE:
                self._visit(node)
        self.kernels = [kernel for kernel in self.kernels if kernel.parent is None]

    # --- kernels and steps -----------------------------------------------------------------------

    def new_kernel(self, space: Shape, device: str) -> Kernel:
        """A further kernel over an index space."""
        kernel = Kernel(self.position, space, device)
        self.kernels.append(kernel)
        return kernel

    def request(self, kernel: Kernel, node: Node, index: Index, valid: Node) -> Step:
        """The step of `kernel` that gives `node` at `index`."""
        wanted = self.requests.get(node)
        if wanted is None:
            wanted = self.requests[node] = {}
        key = (kernel, index, valid)
        step = wanted.get(key)
        if step is None:
            step = wanted[key] = Step(kernel, node, index, valid)
            if node.op not in _VALUES:
                kernel.pending += 1
        return step

    def _root(self, node: Node, buffer: Buffer, version: int, reason: str) -> Kernel | None:
        """A kernel that writes `node` to a whole buffer."""
        if numel(node) == 0:
            return None
        kernel = self.new_kernel(choose_space(node), self.layout.device[node] or buffer.device)
        kernel.work = self._work(node)
        index = kernel.index_for(node.type.shape)
        if index is None:
            raise InternalError("an index space has another number of elements")
        step = self.request(kernel, node, index, TRUE)
        self._store(kernel, buffer, version, flatten(kernel.index, kernel.space), step, reason)
        return kernel

    def _work(self, node: Node) -> float:
        cost = cost_of(node, self.costs.seen)
        return numel(node) * (cost.work + cost.loads)

    def _store(
        self, kernel: Kernel, buffer: Buffer, version: int, offset: Node, step: Step, reason: str
    ) -> Store:
        store = Store(buffer, version, offset, step, _describe(step.node), reason)
        kernel.stores.append(store)
        kernel.seen_buffers.add(buffer)
        buffer.writers[version] = kernel
        return store

    # --- nodes -----------------------------------------------------------------------------------

    def _visit(self, node: Node) -> None:
        layout = self.layout
        wanted = self.requests.pop(node, None)
        steps = self._unified(wanted) if wanted else []
        place = layout.memory.get(node)
        if place is not None:
            for step in steps:
                self._load(step, *place)
            for effect in reversed(layout.effects.get(node, ())):
                self._write(effect)
            if node.op in _FROM_MEMORY and (steps or place[0].output_of is not None):
                self._from_memory(node, place[0])
            return
        if node in layout.forwards:
            self._forward(node, steps)
            return
        if node.op in _VALUES:
            for step in steps:
                step.kernel.steps.append(step)
            return
        forced = layout.forced.get(node)
        if steps or forced is not None:
            self._decide(node, steps, forced)

    def _unified(self, wanted: dict[_Key, Step]) -> list[Step]:
        """The steps at different indices, now that kernels may have been joined."""
        found: dict[_Key, Step] = {}
        for (kernel, index, valid), step in wanted.items():
            owner = kernel.find()
            step.kernel = owner
            first = found.setdefault((owner, index, valid), step)
            if first is not step:
                step.alias = first
                if step.node.op not in _VALUES:
                    owner.pending -= 1
        return list(found.values())

    def _forward(self, node: Node, steps: list[Step]) -> None:
        """An AFTER whose write covers everything has the value that was written."""
        value = self.layout.forwards[node]
        for step in steps:
            index = reshape_index(step.index, node.type.shape, value.type.shape)
            self._pass_on(step, value, index, step.valid)

    def _pass_on(self, step: Step, source: Node, index: Index, valid: Node) -> None:
        step.kernel.pending -= 1
        step.src = [self.request(step.kernel, source, index, valid)]
        step.kernel.steps.append(step)

    def _load(self, step: Step, buffer: Buffer, version: int) -> None:
        kernel = step.kernel
        step.buffer, step.version = buffer, version
        if step.dtype is None:
            step.dtype = step.node.type.dtype
        kernel.pending -= 1
        kernel.seen_buffers.add(buffer)
        kernel.steps.append(step)
        if (buffer, version) not in kernel.reads:
            kernel.reads[buffer, version] = None
            buffer.readers.setdefault(version, []).append(kernel)

    # --- decisions -------------------------------------------------------------------------------

    def _decide(
        self, node: Node, steps: list[Step], forced: tuple[Buffer, int, str] | None
    ) -> None:
        if len(steps) > 1:
            steps = self._join(node, steps)
        must_store = node.op is tensor.SCAN or not steps
        if forced is not None and (must_store or self._is_needed(forced[0], forced[1])):
            self._store_node(node, steps, *forced)
            return
        reason = self._full(node, steps) or reason_to_store(
            node, steps, self.costs, self.limits, self._is_wanted
        )
        if reason is None:
            for step in steps:
                self._expand(step)
            return
        if forced is None:
            device = self.layout.device[node] or steps[0].kernel.device
            buffer = self.layout.new_buffer(node.type.shape, node.type.dtype, device)
            forced = (buffer, 0, reason)
        self._store_node(node, steps, *forced)

    def _is_wanted(self, node: Node, step: Step) -> bool:
        """Does something need `node` in the kernel of `step`, at the same index?"""
        wanted = self.requests.get(node)
        if wanted is None:
            return False
        here = (step.kernel, step.index, step.valid)
        return here in wanted or any(
            kernel.find() is step.kernel and index == step.index for kernel, index, _ in wanted
        )

    def _full(self, node: Node, steps: list[Step]) -> str | None:
        """Why some kernel that needs `node` cannot take in its sources."""
        more = len(node.src) - 1
        if node.op in MOVEMENT or node.op in IDENTITY:
            return None
        for step in steps:
            kernel = step.kernel
            if kernel.size >= self.limits.nodes:
                return f"its kernel has {self.limits.nodes} nodes"
            if more > 0 and kernel.pending + len(kernel.seen_buffers) + more > self.limits.buffers:
                return f"its kernel has {self.limits.buffers} buffers"
        return None

    def _join(self, node: Node, steps: list[Step]) -> list[Step]:
        """Make one kernel of those that need `node` at their own output index, where it can be."""
        if node.op in MOVEMENT or node.op in IDENTITY:
            return steps
        host: Kernel | None = None
        joined = False
        for step in steps:
            kernel = step.kernel.find()
            if kernel is host or kernel.fixed or not self._is_aligned(step):
                continue
            if host is None:
                host = kernel
            elif self._can_join(host, kernel):
                self._absorb(host, kernel)
                joined = True
        if not joined:
            return steps
        return self._unified({(s.kernel, s.index, s.valid): s for s in steps})

    def _is_aligned(self, step: Step) -> bool:
        kernel = step.kernel.find()
        return step.valid is TRUE and step.index == kernel.index_for(step.node.type.shape)

    def _can_join(self, host: Kernel, other: Kernel) -> bool:
        limits = self.limits
        if host.space != other.space or host.device != other.device:
            return False
        if host.size + other.size > limits.nodes:
            return False
        buffers = len(host.seen_buffers | other.seen_buffers)
        if buffers + host.pending + other.pending > limits.buffers:
            return False
        written = {store.buffer for store in host.stores}
        if any(store.buffer in written for store in other.stores):
            return False
        if not host.loops_agree(other):
            return False
        return not self._reaches(host, other) and not self._reaches(other, host)

    def _reaches(self, kernel: Kernel, goal: Kernel) -> bool:
        """Does `goal` need what `kernel` writes, directly or not?  True if that is not clear."""
        seen = {kernel}
        stack = [kernel]
        while stack:
            for reader in _consumers(stack.pop()):
                if reader is goal or len(seen) > _SEARCH:
                    return True
                if reader not in seen:
                    seen.add(reader)
                    stack.append(reader)
        return False

    def _absorb(self, host: Kernel, other: Kernel) -> None:
        """Make `other` a part of `host`."""
        other.parent = host
        host.stores += other.stores
        host.steps += other.steps
        host.reads.update(other.reads)
        host.seen_buffers |= other.seen_buffers
        host.size += other.size
        host.pending += other.pending
        host.work += other.work
        host.reduces += other.reduces
        host.contracts = host.contracts or other.contracts
        host.next_range = max(host.next_range, other.next_range)
        host.range_sizes.update(other.range_sizes)
        host.before.update(other.before)
        host.names.update(other.names)
        host.named.update(other.named)
        host.faults += other.faults
        host.checked |= other.checked

    def _store_node(
        self, node: Node, steps: list[Step], buffer: Buffer, version: int, reason: str
    ) -> None:
        """Have `node` written by a kernel that computes it anyway, or by one of its own."""
        host = self._host(node, steps, buffer, version)
        others = []
        own: Step | None = None
        for step in steps:
            if step.kernel is host:
                own = step
            else:
                others.append(step)
        for step in others:
            self._load(step, buffer, version)
        if not others and not self._is_needed(buffer, version):
            if own is not None:
                self._expand(own)
            return
        if host is not None and own is not None:
            offset = flatten(host.index, host.space)
            self._store(host, buffer, version, offset, own, reason)
            self._expand(own)
            return
        kernel = self._root(node, buffer, version, reason)
        if kernel is None:
            return
        kernel.fixed = node.op is tensor.SCAN
        for step in self._unified(self.requests.pop(node)):
            self._expand(step)

    def _host(self, node: Node, steps: list[Step], buffer: Buffer, version: int) -> Kernel | None:
        """A kernel that computes `node` at its output index, and that no other user precedes."""
        if node.op is tensor.SCAN or node.op in MOVEMENT or self._full(node, steps):
            return None
        counts: dict[Kernel, int] = {}
        for step in steps:
            counts[step.kernel] = counts.get(step.kernel, 0) + 1
        later = buffer.users_of(version)
        for step in steps:
            kernel = step.kernel
            if kernel.fixed or kernel in later or counts[kernel] > 1 or not self._is_aligned(step):
                continue
            if kernel.contracts and node in self.costs.contractions:
                continue
            if any(store.buffer is buffer for store in kernel.stores):
                continue
            if any(
                other is not kernel and self._reaches(other, kernel) for other in (*counts, *later)
            ):
                continue
            return kernel
        return None

    def _is_needed(self, buffer: Buffer, version: int) -> bool:
        """Is a version needed, as the last one, by a partial write to it, by BITCAST or COPY?"""
        if version == buffer.latest or buffer.readers.get(version):
            return True
        return buffer.partial.get(version + 1, True)

    # --- sources ---------------------------------------------------------------------------------

    def _expand(self, step: Step) -> None:
        """Request what `step` is computed from."""
        node, kernel = step.node, step.kernel
        op = node.op
        kernel.pending -= 1
        kernel.steps.append(step)
        if op in MOVEMENT:
            index, condition = source_index(node, step.index)
            step.condition = condition
            if condition is not FALSE and numel(node.src[0]):
                valid = simplify.both(step.valid, condition)
                step.src = [self.request(kernel, node.src[0], index, valid)]
            return
        kernel.size += 1
        if op is tensor.REDUCE:
            self._expand_reduce(step)
        elif op is tensor.GATHER:
            self._expand_gather(step)
        elif op is tensor.SCAN:
            self._expand_scan(step)
        elif op is math.BITCAST and node.src[0].type.dtype.bits != node.type.dtype.bits:
            self._expand_bitcast(step)
        else:
            index, valid = step.index, step.valid
            step.src = [self.request(kernel, source, index, valid) for source in node.src]

    def _expand_reduce(self, step: Step) -> None:
        node, kernel = step.node, step.kernel
        source = node.src[0]
        if not node.attrs.axes:
            step.src = [self.request(kernel, source, step.index, step.valid)]
            return
        shape = source.type.shape
        sizes = tuple([shape[axis] for axis in node.attrs.axes])
        if 0 in sizes:
            return
        ranges = kernel.new_ranges(sizes, kernel.span(step.index)[0])
        kernel.reduces += 1
        kernel.contracts = kernel.contracts or node in self.costs.contractions
        step.ranges = tuple([at for at in ranges if at is not ZERO])
        kept = iter(step.index)
        reduced = dict(zip(node.attrs.axes, ranges, strict=True))
        index = tuple(
            [reduced[axis] if axis in reduced else next(kept) for axis in range(len(shape))]
        )
        step.src = [self.request(kernel, source, index, step.valid)]

    def loaded_index(
        self, kernel: Kernel, node: Node, index: Index, valid: Node, size: Dim
    ) -> tuple[Node, Node]:
        """The value of an index tensor, which is known only later, as a placeholder.

        Returns:
            A variable within the bounds of an axis of `size`, and the condition that the value is
            within them.
        """
        source = self.request(kernel, node, index, valid)
        depends = kernel.span(index)[0]
        self.names += 1
        low, high = value_bounds(node)
        low, high = max(low, -_FAR), min(high, _FAR)
        most = max(dims.greatest(size) - 1, 0)
        raw = make(VARIABLE, (), VariableAttrs(f"%{self.names}raw", low, high))
        safe = make(VARIABLE, (), VariableAttrs(f"%{self.names}", 0, most))
        for name in (raw, safe):
            kernel.names[name] = depends
            kernel.named[name] = source
        condition = simplify.both(
            simplify.at_least(raw, ZERO), simplify.less(raw, dims.as_node(size))
        )
        self._check(kernel, node, index, valid, condition)
        return safe, condition

    def _check(
        self, kernel: Kernel, node: Node, index: Index, valid: Node, condition: Node
    ) -> None:
        """Report indices that are outside, in loops of their own where a reduction uses them."""
        if condition is TRUE:
            return
        outputs = frozenset(at for at in kernel.index if at.op is RANGE)
        used = set(kernel.span(index)[0])
        used |= kernel.span((valid,))[0]
        if used <= outputs:
            kernel.faults.append((valid, condition))
            return
        if node in kernel.checked:
            return
        kernel.checked.add(node)
        fresh = kernel.new_ranges(node.type.shape, frozenset())
        raw = next(leaf for leaf in leaves_in(condition) if leaf in kernel.names)
        self.names += 1
        attrs = raw.attrs
        again = make(VARIABLE, (), VariableAttrs(f"%{self.names}raw", attrs.minimum, attrs.maximum))
        kernel.names[again] = frozenset(at for at in fresh if at is not ZERO)
        kernel.named[again] = self.request(kernel, node, fresh, TRUE)
        kernel.faults.append((TRUE, simplify.substitute([condition], {raw: again})[0]))

    def _expand_gather(self, step: Step) -> None:
        node, kernel = step.node, step.kernel
        x, indices = node.src[0], node.src[1:]
        axis = node.attrs.axis
        rank = len(indices[0].type.shape)
        at = step.index[axis : axis + rank]
        placed: list[Node] = []
        valid = step.valid
        for position, indexed in enumerate(indices):
            size = x.type.shape[axis + position]
            safe, condition = self.loaded_index(kernel, indexed, at, step.valid, size)
            placed.append(safe)
            step.condition = simplify.both(step.condition, condition)
        valid = simplify.both(valid, step.condition)
        index = (*step.index[:axis], *placed, *step.index[axis + rank :])
        if numel(x):
            step.src = [self.request(kernel, x, index, valid)]

    def _expand_scan(self, step: Step) -> None:
        attrs = step.node.attrs
        at = step.index[attrs.axis]
        index = step.index
        if attrs.reverse and at is not ZERO:
            last = dims.sub(step.node.type.shape[attrs.axis], 1)
            mirrored = simplify.sub(dims.as_node(last), at)
            index = (*index[: attrs.axis], mirrored, *index[attrs.axis + 1 :])
            store = step.kernel.stores[0]
            store.offset = flatten(index, step.node.type.shape)
        if at is ZERO and attrs.exclusive:
            return  # the identity alone
        step.ranges = (at,) if at is not ZERO else ()
        source = step.node.src[0]
        place = self.layout.stored_leaves.get(self.layout.strip(source))
        if place is None:
            step.src = [self.request(step.kernel, source, index, step.valid)]
            return
        step.kernel.pending += 1
        step.src = [Step(step.kernel, source, index, step.valid)]
        self._load(step.src[0], *place)

    def _expand_bitcast(self, step: Step) -> None:
        node, kernel = step.node, step.kernel
        place = self.layout.in_memory(self.layout.strip(node.src[0]))
        if place is None:
            raise InternalError("the source of a bitcast is not in memory")
        kernel.steps.pop()
        kernel.pending += 1
        step.dtype = node.type.dtype
        self._load(step, *place)

    # --- writes ----------------------------------------------------------------------------------

    def _from_memory(self, node: Node, buffer: Buffer) -> None:
        """A kernel of its own for a COPY or SORT, which work on whole buffers."""
        place = self.layout.in_memory(self.layout.strip(node.src[0]))
        if place is None or numel(node) == 0:
            return
        kernel = self.new_kernel((), self.layout.device[node])
        kernel.fixed = True
        kernel.copied_from = place
        kernel.reads[place] = None
        place[0].readers.setdefault(place[1], []).append(kernel)
        step = Step(kernel, node, (), TRUE)
        self._store(kernel, buffer, 0, ZERO, step, _FROM_MEMORY[node.op])

    def _write(self, effect: Effect) -> None:
        if effect.target is None:
            self._scatter(effect)
            return
        value = effect.value
        if numel(value) == 0:
            return
        node = effect.node
        device = effect.buffer.device or self.layout.device[value]
        kernel = self.new_kernel(choose_space(value), device)
        kernel.work = self._work(value)
        index = kernel.index_for(value.type.shape)
        if index is None:
            raise InternalError("an index space has another number of elements")
        step = self.request(kernel, value, index, TRUE)
        at, target = index, effect.target
        while target is not effect.base:
            if target.op in MOVEMENT:
                at, _ = source_index(target, at)
            elif target.op not in IDENTITY:
                raise AliasError(
                    "store: what is written to is no view of the stored value", got=repr(target)
                )
            target = target.src[0]
        offset = flatten(at, target.type.shape)
        store = self._store(
            kernel, effect.buffer, effect.version, offset, step, "written into part of a tensor"
        )
        if len(node.src) > 2:
            store.gate = self.request(kernel, node.src[2], index, TRUE)

    def _scatter(self, effect: Effect) -> None:
        node = effect.node
        updates, indices = node.src[1], node.src[2:]
        shape = node.type.shape
        if numel(updates) == 0 or numel(node) == 0:
            return
        axis = node.attrs.axis
        rank = len(indices[0].type.shape)
        kernel = self.new_kernel(updates.type.shape, effect.buffer.device)
        kernel.fixed = True
        at = kernel.index[axis : axis + rank]
        valid = TRUE
        placed = []
        for position, indexed in enumerate(indices):
            size = shape[axis + position]
            safe, condition = self.loaded_index(kernel, indexed, at, TRUE, size)
            placed.append(safe)
            valid = simplify.both(valid, condition)
        offset = flatten((*kernel.index[:axis], *placed, *kernel.index[axis + rank :]), shape)
        step = self.request(kernel, updates, kernel.index, valid)
        store = self._store(
            kernel, effect.buffer, effect.version, offset, step, "scattered by index"
        )
        store.valid = valid
        store.fold = node.attrs.fold


def _consumers(kernel: Kernel) -> list[Kernel]:
    """The kernels that need what `kernel` writes."""
    found = []
    for store in kernel.stores:
        found += store.buffer.users_of(store.version)
    return [reader for reader in found if reader is not kernel]


def _describe(node: Node) -> str:
    return f"{node.op.name} {node.type}"
