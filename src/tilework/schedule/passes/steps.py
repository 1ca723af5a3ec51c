"""Steps and what they request: the sources of a node at the index where they are needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.errors import AliasError, InternalError
from tilework.ir.node import make
from tilework.ir.ops import math, multi, tensor
from tilework.ir.ops.index import RANGE, VARIABLE, VariableAttrs
from tilework.ir.symbolic import dims, simplify
from tilework.ir.symbolic.simplify import FALSE, TRUE
from tilework.schedule.passes.choice import chosen_axis
from tilework.schedule.passes.cost import Costs, cost_of
from tilework.schedule.passes.kernel_graph import Kernel, Step, Store, leaves_in
from tilework.schedule.passes.movement import MOVEMENT, ZERO, flatten, source_index
from tilework.schedule.passes.prepare import IDENTITY, numel
from tilework.schedule.passes.spaces import choose_space
from tilework.schedule.passes.value_bounds import value_bounds
from tilework.schedule.schedule import index_fault

if TYPE_CHECKING:
    from tilework.ir.node import Node
    from tilework.ir.types import Dim, Shape
    from tilework.schedule.passes.kernel_graph import Buffer
    from tilework.schedule.passes.movement import Index
    from tilework.schedule.passes.prepare import Effect, Layout
    from tilework.schedule.schedule import Limits

Key = tuple[Kernel, "Index", "Node"]
VALUES = frozenset((math.CONST, tensor.IOTA, VARIABLE))
#: Ops done on whole buffers, and why their result is stored.
FROM_MEMORY = {
    tensor.COPY: "copied from another device",
    tensor.SORT: "rows that are sorted",
    multi.ALLREDUCE: "folded with what other devices have",
}
_FAR = 1 << 62


class StepMaker:
    """Kernels, the steps that are requested of them, and what each step requests in turn.

    Args:
        layout: the function's buffers.
        limits: where kernels are cut.
    """

    def __init__(self, layout: Layout, limits: Limits) -> None:
        self.layout = layout
        self.limits = limits
        self.costs = Costs(layout)
        self.kernels: list[Kernel] = []
        self.requests: dict[Node, dict[Key, Step]] = {}
        self.names = 0
        self._folds: dict[tuple[tensor.Fold, tuple[Node, ...]], Kernel] = {}
        self.position = len(layout.order)

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
            if node in self.costs.follows:
                kernel.products.add(node)
            if node.op not in VALUES:
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
        if self.position < len(self.layout.order):
            store.position = self.position
        kernel.stores.append(store)
        kernel.seen_buffers.add(buffer)
        buffer.writers[version] = kernel
        return store

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
        elif op is tensor.SCATTER:
            self._expand_choice(step)
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
        self._check(kernel, node, index, valid, condition, index_fault(size))
        return safe, condition

    def _check(
        self, kernel: Kernel, node: Node, index: Index, valid: Node, condition: Node, code: int
    ) -> None:
        """Report indices that are outside, in loops of their own where a reduction uses them."""
        if condition is TRUE:
            return
        outputs = frozenset(at for at in kernel.index if at.op is RANGE)
        used = set(kernel.span(index)[0])
        used |= kernel.span((valid,))[0]
        if used <= outputs:
            kernel.faults.append((valid, condition, code))
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
        kernel.faults.append((TRUE, simplify.substitute([condition], {raw: again})[0], code))

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

    def _expand_choice(self, step: Step) -> None:
        """A SCATTER of one element for each row: that element where the position is its own."""
        node, kernel = step.node, step.kernel
        axis = chosen_axis(node)
        if axis is None:
            raise InternalError("a scatter that is no choice has no value of its own")
        first = node.attrs.axis
        rank = len(node.src) - 2
        row = (*step.index[:axis], ZERO, *step.index[axis + 1 :])
        safe, condition = self.loaded_index(
            kernel,
            node.src[2 + axis - first],
            row[first : first + rank],
            step.valid,
            node.type.shape[axis],
        )
        step.condition = simplify.both(condition, simplify.equal(safe, step.index[axis]))
        step.src = [
            self.request(kernel, node.src[0], step.index, step.valid),
            self.request(kernel, node.src[1], row, step.valid),
        ]

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
        """A kernel of its own for what works on whole buffers; one for all results of a fold."""
        found = [self.layout.in_memory(self.layout.strip(source)) for source in node.src]
        places = [place for place in found if place is not None]
        if len(places) < len(found) or numel(node) == 0:
            return
        is_fold = node.op is multi.ALLREDUCE
        key = (node.attrs.fold, node.src) if is_fold else None
        kernel = self._folds.get(key) if key is not None else None
        if kernel is None:
            kernel = self.new_kernel((), self.layout.device[node])
            kernel.fixed = True
            kernel.copied_from = places
            for place in places:
                kernel.reads[place] = None
                place[0].readers.setdefault(place[1], []).append(kernel)
            if key is not None:
                self._folds[key] = kernel
        step = Step(kernel, node, (), TRUE)
        self._store(kernel, buffer, 0, ZERO, step, FROM_MEMORY[node.op])

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


def _describe(node: Node) -> str:
    return f"{node.op.name} {node.type}"
