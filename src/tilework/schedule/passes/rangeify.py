"""From nodes to steps of kernels: indices flow from results to sources, decisions with them.

Nodes are visited once, consumers first, so at each node all indices at which it is needed are
known.  It is then computed at each of them, or stored by a kernel of its own (or by a kernel that
computes it anyway) and loaded by the others.  Nothing recurses, and each node has a bounded number
of steps, so the cost is linear in the number of nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.ir.ops import memory, tensor
from tilework.ir.ops.index import RANGE
from tilework.ir.symbolic import dims
from tilework.ir.symbolic.simplify import TRUE
from tilework.schedule.passes.cascade import find_cascades
from tilework.schedule.passes.decide import gathers_apart, reason_to_store
from tilework.schedule.passes.movement import MOVEMENT, flatten, reshape_index
from tilework.schedule.passes.operands import store_operands
from tilework.schedule.passes.prepare import IDENTITY, numel
from tilework.schedule.passes.recompute import find_recomputed
from tilework.schedule.passes.steps import FROM_MEMORY, VALUES, StepMaker
from tilework.schedule.schedule import kind_of

if TYPE_CHECKING:
    from tilework.ir.node import Node
    from tilework.schedule.passes.kernel_graph import Buffer, Kernel, Step, Store
    from tilework.schedule.passes.movement import Index
    from tilework.schedule.passes.prepare import Layout
    from tilework.schedule.passes.steps import Key
    from tilework.schedule.schedule import Limits

_NO_VALUE = frozenset((memory.STORE, memory.SINK))
#: How many kernels are looked at to prove that two kernels do not depend on each other.
_SEARCH = 1024
#: How many values are looked at to find what a reduction is computed from.
_UPSTREAM = 256
#: A result of a reduction is small if the kernel that needs it has this many times its elements.
_FEW = 8
#: How many times the elements that are folded may be those of the kernel around, or the other way.
_ALIKE = 4


class Rangeify(StepMaker):
    """The kernels of a function.

    Args:
        layout: the function's buffers.
        limits: where kernels are cut.
    """

    def __init__(self, layout: Layout, limits: Limits) -> None:
        super().__init__(layout, limits)
        self.again = find_recomputed(layout, limits)
        self.cascades = find_cascades(layout, limits, self.again.ends)
        store_operands(layout, limits.matrix_units_on, self.again.values | set(self.cascades))
        roots = {node for node, _, _ in layout.roots}
        self._places = {node: at for at, node in enumerate(layout.order) if node in roots}
        #: Kernels with several results, or with one that anybody may read.
        self._hosts: dict[Kernel, None] = {}
        #: From where to where those lead, in order; None where it has to be found again.
        self._spans: list[tuple[int, int]] | None = None
        #: What is read by kernels whose places say nothing.
        self._outputs: set[Buffer] = set()
        #: The kernels that compute the last fold of each cascade.
        self.ends: dict[Node, list[Kernel]] = {last: [] for last in self.cascades.values()}
        for node, buffer, reason in layout.roots:
            self._root(node, buffer, 0, reason)
        for node in reversed(layout.order):
            self.position -= 1
            if node.op not in _NO_VALUE:
                self._visit(node)
        self.kernels = [kernel for kernel in self.kernels if kernel.parent is None]

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
            if node.op in FROM_MEMORY and (steps or self._is_read_whole(*place)):
                self._from_memory(node, place[0])
            return
        if node in layout.forwards:
            self._forward(node, steps)
            return
        if node.op in VALUES:
            for step in steps:
                step.kernel.steps.append(step)
            return
        forced = layout.forced.get(node)
        if steps or forced is not None:
            self._decide(node, steps, forced)

    def _unified(self, wanted: dict[Key, Step]) -> list[Step]:
        """The steps at different indices, now that kernels may have been joined."""
        found: dict[Key, Step] = {}
        for (kernel, index, valid), step in wanted.items():
            owner = kernel.find()
            step.kernel = owner
            first = found.setdefault((owner, index, valid), step)
            if first is not step:
                step.alias = first
                if step.node.op not in VALUES:
                    owner.pending -= 1
        return list(found.values())

    def _forward(self, node: Node, steps: list[Step]) -> None:
        """An AFTER whose write covers everything has the value that was written."""
        value = self.layout.forwards[node]
        for step in steps:
            index = reshape_index(step.index, node.type.shape, value.type.shape)
            self._pass_on(step, value, index, step.valid)

    # --- decisions -------------------------------------------------------------------------------

    def _decide(
        self, node: Node, steps: list[Step], forced: tuple[Buffer, int, str] | None
    ) -> None:
        if node in self.again.values:
            for step in self._join_readers(steps):
                self._expand(step)
            return
        if len(steps) > 1:
            steps = self._join(node, steps)
        if node in self.again.folds:
            self._store_fold(node, steps)
            return
        must_store = node.op is tensor.SCAN or node in self.layout.scanned or not steps
        if forced is not None and (must_store or self._is_needed(forced[0], forced[1])):
            self._store_node(node, steps, *forced)
            return
        reason = self._full(node, steps)
        if reason is None and not self._is_in_cascade(node, steps):
            reason = self._beside_contraction(node, steps) or reason_to_store(
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

    def _join_readers(self, steps: list[Step]) -> list[Step]:
        """Make one kernel of those that compute a value again in the same loops."""
        hosts: dict[tuple[Index, Node], Kernel] = {}
        for step in steps:
            kernel = step.kernel.find()
            host = hosts.setdefault((step.index, step.valid), kernel)
            if host.find() is not kernel and self._can_join(host.find(), kernel):
                self._absorb(host.find(), kernel)
        return self._unified({(s.kernel, s.index, s.valid): s for s in steps})

    def _store_fold(self, node: Node, steps: list[Step]) -> None:
        """Store a fold for all kernels but its cascade, whose kernel does so if it may."""
        inside = [step for step in steps if self._is_in_cascade(node, [step])]
        others = [step for step in steps if step not in inside]
        if not others:
            for step in inside:
                self._expand(step)
            return
        device = self.layout.device[node] or others[0].kernel.device
        buffer = self.layout.new_buffer(node.type.shape, node.type.dtype, device)
        reason = "a fold of a row whose products several kernels compute again"
        if self._may_leave(node, inside, others):
            (own,) = inside
            for step in others:
                self._load(step, buffer, 0)
            place = flatten(own.index, node.type.shape)
            self._store(own.kernel, buffer, 0, place, own, reason)
            self._expand(own)
            return
        for step in inside:
            self._expand(step)
        self._store_node(node, others, buffer, 0, reason)

    def _may_leave(self, node: Node, inside: list[Step], others: list[Step]) -> bool:
        """May the kernel of a cascade store a fold of its rows, each once, that others read?"""
        if len(inside) != 1 or inside[0].valid is not TRUE or self._full(node, inside):
            return False
        (own,) = inside
        kernel = own.kernel
        rows = kernel.span(own.index)[0]
        sizes = [dims.as_dim(at.src[0]) for at in rows]
        if kernel.fixed or dims.product(tuple(sizes)) != numel(node):
            return False
        users = {step.kernel for step in others}
        return not any(self._reaches(user, kernel) for user in users)

    def _is_wanted(self, node: Node, step: Step) -> bool:
        """Does something need `node` in the kernel of `step`, at the same index?"""
        wanted = self.requests.get(node)
        if wanted is None:
            return False
        here = (step.kernel, step.index, step.valid)
        return here in wanted or any(
            kernel.find() is step.kernel and index == step.index for kernel, index, _ in wanted
        )

    def _is_in_cascade(self, node: Node, steps: list[Step]) -> bool:
        """Is `node` needed in the kernel of the cascade that it belongs to, and only there?"""
        last = self.cascades.get(node)
        ends = self.ends.get(last, ()) if last is not None else ()
        return len(ends) == 1 and all(step.kernel is ends[0].find() for step in steps)

    def _beside_contraction(self, node: Node, steps: list[Step]) -> str | None:
        """Why a small reduction is stored although it could be computed where it is needed.

        A contraction gets a register tile where it is the only reduction of its kernel.
        """
        if node.op is not tensor.REDUCE or node in self.costs.contractions:
            return None
        few = max(numel(node), 1) * _FEW
        for step in steps:
            kernel = step.kernel
            if kernel.size_of_space() >= few and self._has_contraction_besides(kernel, node):
                return "a reduction in the kernel of a contraction, which has its tile for itself"
        return None

    def _has_contraction_besides(self, kernel: Kernel, node: Node) -> bool:
        """Does a kernel need a contraction that `node` is not computed from?"""
        if kernel.contracts:
            return True
        follows = self.costs.follows
        wanted = {follows[result] for result in kernel.products if result in self.requests}
        stack, seen = [node], {node}
        while wanted and stack and len(seen) < _UPSTREAM:
            for source in stack.pop().src:
                wanted.discard(source)
                if source not in seen:
                    seen.add(source)
                    stack.append(source)
        return bool(wanted)

    def _expand(self, step: Step) -> None:
        if step.node in self.ends:
            self.ends[step.node].append(step.kernel)
        super()._expand(step)

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
        if not goal.reads and all(not store.version for store in goal.stores):
            return False  # it needs nothing that any kernel writes
        latest = self._latest_before(goal)
        seen = {kernel}
        stack = [kernel]
        while stack:
            for reader in _consumers(stack.pop(), latest):
                if reader is goal or len(seen) > _SEARCH:
                    return True
                if reader not in seen:
                    seen.add(reader)
                    stack.append(reader)
        return False

    def _latest_before(self, goal: Kernel) -> int:
        """The last position of a value that may be needed for `goal`.

        What is read stands before its readers.  A kernel with several results needs what stands
        before the last of them for the first one too.
        """
        latest = max(map(self._place, goal.stores), default=len(self.layout.order))
        if self._spans is None:
            self._hosts = dict.fromkeys([kernel.find() for kernel in self._hosts])
            self._spans = sorted(filter(None, map(self._span, self._hosts)))
        for first, last in self._spans:
            if first > latest:
                break
            latest = max(latest, last)
        return latest

    def _span(self, kernel: Kernel) -> tuple[int, int] | None:
        """Where the first and the last of a kernel's results stand; None if nobody reads any.

        Whoever reads one whose place is unknown, an output of the function, may stand anywhere.
        """
        first = [store.position for store in kernel.stores if store.position is not None]
        unknown = [store for store in kernel.stores if store.position is None]
        if any(set(s.buffer.users_of(s.version)) - {kernel} for s in unknown):
            first.append(-1)
        return (min(first), max(map(self._place, kernel.stores))) if first else None

    def _place(self, store: Store) -> int:
        """Where the node stands that is stored, behind all that it is computed from."""
        if store.position is not None:
            return store.position
        return self._places.get(store.step.node, len(self.layout.order))

    def _load(self, step: Step, buffer: Buffer, version: int) -> None:
        if buffer in self._outputs:
            self._spans = None
        super()._load(step, buffer, version)

    def _store(
        self, kernel: Kernel, buffer: Buffer, version: int, offset: Node, step: Step, reason: str
    ) -> Store:
        store = super()._store(kernel, buffer, version, offset, step, reason)
        if store.position is None:
            self._outputs.add(buffer)
        if store.position is None or len(kernel.stores) > 1 or buffer in self._outputs:
            self._hosts[kernel] = None
            self._spans = None
        return store

    def _absorb(self, host: Kernel, other: Kernel) -> None:
        """Make `other` a part of `host`."""
        self._hosts[host] = None
        self._spans = None
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
        host.products |= other.products
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
            self._store(host, buffer, version, flatten(own.index, node.type.shape), own, reason)
            self._expand(own)
            return
        kernel = self._root(node, buffer, version, reason)
        if kernel is None:
            return
        kernel.fixed = node.op is tensor.SCAN
        for step in self._unified(self.requests.pop(node)):
            self._expand(step)

    def _host(self, node: Node, steps: list[Step], buffer: Buffer, version: int) -> Kernel | None:
        """A kernel that computes `node` for all of its users, and that none of them precedes.

        One that has it at its output index is best; else one that runs through the rows that it is
        a fold of, which are then read once.
        """
        if node.op is tensor.SCAN or node.op in MOVEMENT or self._full(node, steps):
            return None
        counts: dict[Kernel, int] = {}
        for step in steps:
            counts[step.kernel] = counts.get(step.kernel, 0) + 1
        later = buffer.users_of(version)
        if any(_is_awaited_by(user, buffer) for user in later):
            return None  # another device waits for it, and perhaps the user here for that device
        aligned = [step for step in steps if self._is_own_result(node, step)]
        folding = [step for step in steps if self._runs_through_rows(node, step, version)]
        for step in (*aligned, *folding):
            kernel = step.kernel
            if kernel.fixed or kernel in later or counts[kernel] > 1:
                continue
            if any(store.buffer is buffer for store in kernel.stores):
                continue
            if any(
                other is not kernel and self._reaches(other, kernel) for other in (*counts, *later)
            ):
                continue
            return kernel
        return None

    def _is_own_result(self, node: Node, step: Step) -> bool:
        """Does a kernel need a value at its output index, and may it be a result there?"""
        if not self._is_aligned(step):
            return False
        return not step.kernel.contracts or not (
            node in self.costs.contractions or gathers_apart(node, [step], self.costs, self.limits)
        )

    def _runs_through_rows(self, node: Node, step: Step, version: int) -> bool:
        """Does a kernel need a fold once for each of its rows, and compute about what it folds?

        What is written in place keeps a kernel of its own: what else that writes would be copied.
        """
        kernel, costs = step.kernel, self.costs
        if version or kernel.contracts or step.valid is not TRUE:
            return False
        if kind_of(kernel.device) not in self.limits.computed_again_on:
            return False
        is_fold = node.op is tensor.REDUCE or node.op.elementwise
        if not is_fold or node in costs.contractions or node in costs.follows:
            return False
        if self._has_contraction_besides(kernel, node):
            return False  # which has its tile for itself
        rows = [at for at in kernel.index if at in kernel.span(step.index)[0]]
        if rows != [at for at in kernel.index if at.op is RANGE][: len(rows)]:
            return False  # other loops are outside of those of the rows
        sizes = tuple([dims.as_dim(at.src[0]) for at in rows])
        place = flatten(step.index, node.type.shape)
        if dims.product(sizes) != numel(node) or flatten(tuple(rows), sizes) is not place:
            return False
        space, read = kernel.size_of_space(), numel(node) * costs.own[node].loads
        return space <= _ALIKE * read and read <= _ALIKE * space

    def _is_read_whole(self, buffer: Buffer, version: int) -> bool:
        """Is what a COPY or SORT gives an output, copied on, or the start of a partial write?"""
        if buffer.output_of is not None or buffer.readers.get(version):
            return True
        return buffer.latest > version and buffer.partial.get(version + 1, True)

    def _is_needed(self, buffer: Buffer, version: int) -> bool:
        """Is a version needed, as the last one, by a partial write to it, by BITCAST or COPY?"""
        if version == buffer.latest or buffer.readers.get(version):
            return True
        return buffer.partial.get(version + 1, True)


def _is_awaited_by(user: Kernel, buffer: Buffer) -> bool:
    """Whether another device gets what is in a buffer from a copy or fold of whole buffers."""
    places = user.copied_from
    return bool(places) and (user.device != buffer.device or len(places) > 1)


def _consumers(kernel: Kernel, latest: int) -> list[Kernel]:
    """The kernels that need what `kernel` writes, as far as they stand before `latest`.

    See `_latest_before`: nothing from there on leads back.  Who writes a later version of the same
    buffer comes later as well.
    """
    found = []
    for store in kernel.stores:
        if store.position is None or store.position <= latest:
            found += store.buffer.users_of(store.version)
            if store.buffer.latest > store.version:
                writers = store.buffer.writers.items()
                found += [other.find() for version, other in writers if version > store.version]
    return [reader for reader in found if reader is not kernel]
