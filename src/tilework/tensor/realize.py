"""Bringing versions into memory: what must be computed, and what must be kept from a write.

A write to a storage in memory happens in place.  Whoever still needs the old contents is found by
counting references: a version that something outside of this computation refers to, and that
depends on contents about to be overwritten, is computed now too; the old contents themselves are
kept by a copy if they are referred to.

A scalar that was differentiated is computed with the writes that its gradients lead to: it needs
the same forward pass, of which something large would have to be kept for it otherwise.
"""

from __future__ import annotations

import sys
import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING, Final

from tilework.base.collection import no_collection
from tilework.base.errors import UserError
from tilework.base.forks import new_outer_lock
from tilework.engine import execute
from tilework.engine.sharing import check_can_share, end_all
from tilework.engine.stale import ruined
from tilework.engine.world import is_of_the_world
from tilework.ir.node import make, sweep, toposort
from tilework.ir.ops.memory import AFTER, PARAM
from tilework.ir.ops.multi import RESHARD
from tilework.ir.ops.tensor import CONTIGUOUS, GATHER, SCATTER
from tilework.runtime.group import BufferGroup, is_group, parts_of, split_name
from tilework.tensor import observe
from tilework.tensor.version import (
    Chain,
    Storage,
    Version,
    epoch,
    next_epoch,
    shows_memory,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.ir.node import Node
    from tilework.runtime.buffer import Buffer

_lock = new_outer_lock(1)
#: Storages that every use advances (random counters): their writes run with the reads before them.
_states: list[Storage] = []
#: Scalars that were differentiated, and may be asked for.
_differentiated: weakref.WeakSet[Version] = weakref.WeakSet()
#: References to a version while it is counted: a list of ours, the loop's name, the argument.
_OWN_REFERENCES: Final = 3


def realize(versions: Sequence[Version]) -> None:
    """Compute all `versions` that are not in memory.  Thread-safe."""
    with _lock:
        for group in _groups([version for version in versions if version.buffer is None]):
            _realize_group(group)


def exclusive() -> threading.RLock:
    """The lock under which memory of tensors is written; a context manager."""
    return _lock


def add_state(storage: Storage) -> None:
    """Note that `storage` is advanced by a write with each use of its contents."""
    storage.version.is_state = True
    _states.append(storage)


def add_differentiated(version: Version) -> None:
    """Note that gradients of a scalar were taken."""
    with _lock:
        _differentiated.add(version)


def mark_leaf(version: Version, chain: Chain, owner: object, wanted: bool) -> None:
    """Note that `owner`, which sees `version` through `chain`, wants its gradient (or not)."""
    leaves = [
        (place, reference)
        for place, reference in version.leaves or ()
        if reference() is not None and reference() is not owner
    ]
    if wanted:
        leaves.append((chain, weakref.ref(owner)))
        version.needs_gradient = True
    elif version.leaves:
        version.needs_gradient = bool(leaves) or any(
            source.needs_gradient for source in version.sources
        )
    version.leaves = leaves or None


def _groups(roots: list[Version]) -> list[list[Version]]:
    """The roots by values of their variables: one run has one value for each."""
    if not any(root.bindings for root in roots):
        return [roots] if roots else []
    groups: list[tuple[dict[str, int], list[Version]]] = []
    for root in roots:
        wanted = root.bindings or {}
        for values, group in groups:
            if all(values.get(name, value) == value for name, value in wanted.items()):
                values.update(wanted)
                group.append(root)
                break
        else:
            groups.append((dict(wanted), [root]))
    return [group for _, group in groups]


def _realize_group(roots: list[Version]) -> None:
    roots = list(dict.fromkeys([root for root in roots if root.buffer is None]))
    if not roots:
        return
    with no_collection():
        roots, order, leaves = _with_what_goes_along(roots)
        plan = _Plan(roots, order, leaves)
        plan.make()
    values: dict[str, int] = {}
    for version in order:
        values.update(version.bindings or {})
    for version in leaves:
        values.update(version.bindings or {})
    groups = dict.fromkeys(
        [
            each.device
            for each in (*order, *leaves)
            if is_group(each.device) or is_of_the_world(each.device)
        ]
    )
    for name in groups:
        check_can_share(split_name(name))
    try:
        results = _grouped(plan, _run(plan, leaves, values))
    except BaseException:
        for name in groups:
            end_all(split_name(name))
        raise
    next_epoch()
    if observe.active:
        observe.run_ended(leaves, [version for version, _ in plan.outputs])
    for (version, _), buffer in zip(plan.outputs, results, strict=True):
        if version.buffer is None:
            version.bind(buffer)
        else:
            version.move_to(buffer)
    sweep()


def _with_what_goes_along(
    roots: list[Version],
) -> tuple[list[Version], list[Version], list[Version]]:
    """The roots with what is computed together with them; what lies below, as `_walk` says."""
    order, leaves = _walk(roots)
    if any(version.is_state for version in leaves):
        pending = [state.version for state in _states if state.version.buffer is None]
        if any(version not in order for version in pending):
            roots = list(dict.fromkeys(roots + pending))
            order, leaves = _walk(roots)
        del pending
    together = _differentiated_with(order)
    if together:
        roots = roots + together
        order, leaves = _walk(roots)
    return roots, order, leaves


def _differentiated_with(order: Sequence[Version]) -> list[Version]:
    """Scalars whose forward pass is computed here, before something that it reads is written.

    States do not count: drawing random numbers must not compute a loss that drew some.
    """
    if not _differentiated:
        return []
    if not any(version.op is AFTER and not version.is_state for version in order):
        return []
    here = {id(version) for version in order}
    device = order[-1].device
    found: list[Version] = []
    for version in sorted(_differentiated, key=lambda each: each.serial):
        if version.buffer is not None or version.is_freed:
            _differentiated.discard(version)
        elif id(version) not in here and version.device == device and not version.bindings:
            below, _ = _walk([version])
            if any(id(each) in here for each in below):
                found.append(version)
    return found


def _run(plan: _Plan, leaves: Sequence[Version], values: dict[str, int]) -> list[Buffer]:
    """Compute what the plan says; over several devices a buffer for each part."""
    buffers = _buffers_of(leaves)

    def find(node: Node) -> Buffer:
        found = buffers[node]
        assert found is not None
        return found

    device = split_name(plan.outputs[0][0].device)[0]
    nodes = [_spread(version, node) for version, node in plan.outputs]
    return execute.run(nodes, find, values, device, partial(_settle, plan, leaves))


def nodes_of(versions: Sequence[Version]) -> tuple[list[Node], str]:
    """The expressions that realizing `versions` would compute, and where what is free is made."""
    with _lock:
        roots = list(dict.fromkeys([version for version in versions if version.buffer is None]))
        _walk(roots)
        device = split_name(roots[0].device)[0] if roots else ""
        return [_spread(version, version.node) for version in roots], device


def _buffers_of(leaves: Sequence[Version]) -> dict[Node, Buffer | None]:
    """The buffer of each BUFFER that versions in memory are."""
    found: dict[Node, Buffer | None] = {}
    for version in leaves:
        buffer = version.buffer
        if isinstance(buffer, BufferGroup):
            found.update(zip(version.node.src, buffer.parts, strict=True))
        elif is_group(version.device):  # one that is lost, and says so when it is used
            found.update(dict.fromkeys(version.node.src, buffer))
        else:
            found[version.node] = buffer
    return found


def _spread(version: Version, node: Node) -> Node:
    """What a run has to make for a version: over several devices in its layout."""
    return make(RESHARD, (node,), version.settled_layout()) if is_group(version.device) else node


def _grouped(plan: _Plan, made: Sequence[Buffer]) -> list[Buffer]:
    """What a run made, one buffer or group of buffers for each output of the plan."""
    if len(made) == len(plan.outputs):
        return list(made)
    rest = iter(made)
    found: list[Buffer] = []
    for version, _ in plan.outputs:
        parts = [next(rest) for _ in split_name(version.device)]
        found.append(parts[0] if len(parts) == 1 else BufferGroup(parts))
    return found


def _memories(buffer: Buffer) -> set[int]:
    return {id(part.memory) for part in parts_of(buffer)}


def _settle(
    plan: _Plan,
    leaves: Sequence[Version],
    results: Sequence[Buffer],
    written: Sequence[Buffer],
    is_complete: bool,
) -> None:
    """A run has failed: keep the writes in place that are whole, and let nobody read the others.

    A write that was made must not be made again by whoever asks next.
    """
    lost = {id(buffer.memory) for buffer in written}
    if is_complete:
        grouped = _grouped(plan, results)
        for (version, node), buffer in zip(plan.outputs, grouped, strict=True):
            if version.buffer is not None:
                version.move_to(buffer)
            elif _memories(buffer) & lost and not _depends_on_an_index(node):
                lost -= _memories(buffer)
                version.bind(buffer)
    for version in leaves:
        buffer_now = version.buffer
        # A counter of random numbers is right with the old and with the new value.
        if buffer_now is None or version.is_state or not _memories(buffer_now) & lost:
            continue
        version.buffer = ruined(buffer_now)
    next_epoch()


def _depends_on_an_index(node: Node) -> bool:
    """Whether an index that a device computes is read anywhere below."""
    return any(each.op is GATHER or each.op is SCATTER for each in toposort(node))


def _walk(roots: Sequence[Version]) -> tuple[list[Version], list[Version]]:
    """The lazy versions below `roots`, sources first, nodes up to date; and those in memory."""
    order: list[Version] = []
    leaves: list[Version] = []
    seen: set[int] = set()
    now = epoch()
    stack: list[tuple[Version, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        version, is_done = stack.pop()
        if is_done:
            if version.epoch != now:
                version.rebuild()
                version.epoch = now
            order.append(version)
            continue
        if id(version) in seen:
            continue
        seen.add(id(version))
        if version.buffer is not None:
            leaves.append(version)
            continue
        if version.node.op is PARAM:
            raise _asked_for_row(version)
        stack.append((version, True))
        stack.extend([(each, False) for each in reversed(version.sources) if id(each) not in seen])
    return order, leaves


def depends_on_row(roots: Sequence[Version]) -> bool:
    """Whether what a mapped function is called with is below: there are no values to compute."""
    seen: set[int] = set()
    stack = list(roots)
    while stack:
        version = stack.pop()
        if id(version) in seen or version.buffer is not None:
            continue
        seen.add(id(version))
        if version.node.op is PARAM:
            return True
        stack.extend(version.sources)
    return False


def check_size_of_rows(version: Version, what: str, try_: str) -> None:
    """See that the size of a result is not asked of a row of `vmap`.

    Args:
        version: what the size depends on.
        what: the operation.
        try_: what can be done instead.

    Raises:
        UserError: it is: each row has a result of another size.
    """
    if depends_on_row([version]):
        raise UserError(
            f"vmap: {what} has a result of another size for each row",
            got=f"a value computed from a row, {version.node.type.dtype.name} of the shape "
            f"{version.node.type.shape}",
            expected="results of one size",
            try_=try_,
        )


def _asked_for_row(version: Version) -> UserError:
    return UserError(
        "vmap: a value is asked for that each row has another one of",
        got=f"a value computed from a row, {version.node.type.dtype.name} of the shape "
        f"{version.node.type.shape}",
        try_="in the mapped function where in place of item(), bool() or realize(), and nothing "
        "written into tensors of the outside",
    )


class _Plan:
    """What one run has to give: `outputs`, each with the node that makes it."""

    def __init__(self, roots: list[Version], order: list[Version], leaves: list[Version]) -> None:
        self.roots = roots
        self.order = order
        self.leaves = leaves
        self.outputs: list[tuple[Version, Node]] = []
        self._taken: set[Node] = set()

    def make(self) -> None:
        writes = self._writes_in_place()
        if not writes:
            for root in self.roots:
                self._add(root, root.node)
            return
        if observe.active:
            observe.forget_locals()
        superseded = set(writes.values())
        wanted = self._wanted(writes, superseded)
        for version in self.order:
            if id(version) in wanted:
                node = version.node
                if id(version) in superseded and id(version) in writes:
                    node = make(CONTIGUOUS, (node,), None)
                self._add(version, node)
        self._keep_old(superseded)

    def _add(self, version: Version, node: Node) -> None:
        if shows_memory(node):
            node = make(CONTIGUOUS, (node,), None)  # memory of its own
        # Two values of one expression must not share memory.
        while node in self._taken:
            node = make(CONTIGUOUS, (node,), None)
        self._taken.add(node)
        self.outputs.append((version, node))

    def _writes_in_place(self) -> dict[int, int]:
        """The writes to memory that exists, by identity, each with what it replaces."""
        found: dict[int, int] = {}
        claimed: set[int] = set()
        is_stale = False
        for version in self.order:
            if is_stale:
                version.rebuild()
            if version.op is not AFTER or version.is_private:
                continue
            old = version.sources[0]
            if old.buffer is not None:
                is_place = not old.buffer.memory.is_readonly
            else:
                is_place = id(old) in found
            if not is_place:
                continue
            if id(old) in claimed:
                # Another storage writes the same old contents: only one can have the memory.
                version.is_private = is_stale = True
                version.rebuild()
                continue
            claimed.add(id(old))
            found[id(version)] = id(old)
        return found

    def _wanted(self, writes: dict[int, int], superseded: set[int]) -> set[int]:
        """Lazy versions to compute: roots, last writes, and whoever needs old contents later."""
        wanted = {id(root) for root in self.roots}
        inside = self._references_inside()
        needs_old = set(superseded)
        for version in self.order:
            # `needs_old` already holds superseded writes.
            number = id(version)
            if any(id(source) in needs_old for source in version.sources):
                needs_old.add(number)
            if number in writes and number not in superseded:
                wanted.add(number)
            elif number in needs_old and number not in wanted:
                references = sys.getrefcount(version) - _OWN_REFERENCES
                if references > inside.get(number, 0):
                    wanted.add(number)
            if number in wanted and number not in superseded:
                needs_old.discard(number)
        return wanted

    def _references_inside(self) -> dict[int, int]:
        """How often each version is a source within this run."""
        inside: dict[int, int] = {}
        for version in self.order:
            for source in version.sources:
                inside[id(source)] = inside.get(id(source), 0) + 1
        return inside

    def _keep_old(self, superseded: set[int]) -> None:
        """Copy old contents that something outside still refers to."""
        inside = self._references_inside()
        for version in self.leaves:
            if id(version) not in superseded:
                continue
            references = sys.getrefcount(version) - _OWN_REFERENCES
            if references > inside.get(id(version), 0):
                self._add(version, make(CONTIGUOUS, (version.node,), None))
