"""Versions and storages: what a tensor holds, now and before each write.

A `Version` is one immutable value: how it is made (an op over other versions) until it is
realized, then also the buffer that holds it.  A `Storage` is the mutable cell that tensors share:
it refers to its current version, and a write puts a new one there.  Readers keep the version that
they were built from, so a later write can't reach them.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from tilework.base.errors import UserError
from tilework.base.records import dataclass
from tilework.ir.node import Attrs, make, sweep
from tilework.ir.ops import tensor
from tilework.ir.ops.index import VARIABLE
from tilework.ir.ops.memory import AFTER, BUFFER, STORE, BufferAttrs
from tilework.ir.ops.multi import UNSHARD, Layout
from tilework.ir.ops.tensor import CONTIGUOUS
from tilework.runtime.group import is_group, join_names, split_name
from tilework.schedule.shard import spec
from tilework.schedule.shard.propagate import layout_after
from tilework.tensor import observe

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tilework.dtypes import DType
    from tilework.ir.node import Node, OpDef
    from tilework.ir.types import Shape
    from tilework.runtime.buffer import Buffer

#: Movement ops, outermost last, each with its attributes.
Chain = tuple[tuple["OpDef", "Attrs | None"], ...]
NO_VIEW: Final[Chain] = ()

_buffer_numbers = itertools.count(1)
_BUFFERS_BETWEEN_SWEEPS: Final = 4096
_serials = itertools.count(1)
_MOST_ORIGINS: Final = 256
_MANY_HOLDERS: Final = 16
_weak: Final = weakref.ref
#: The origins of a version that came from too many others to list.
ANYTHING: Final = frozenset({-1})
#: See `records_history`.
keeps_history: Final[ContextVar[bool]] = ContextVar("tilework_records_history", default=True)


def apply_chain(node: Node, chain: Chain) -> Node:
    """`node` seen through `chain`."""
    for op, attrs in chain:
        node = make(op, (node,), attrs)
    return node


def records_history() -> bool:
    """Whether values made here can be differentiated."""
    return keeps_history.get()


@contextmanager
def history(enabled: bool) -> Iterator[None]:
    """Turn the recording of history for gradients on or off while the block runs."""
    token = keeps_history.set(enabled)
    try:
        yield
    finally:
        keeps_history.reset(token)


@dataclass(frozen=True, slots=True)
class CustomGradient(Attrs):
    """Stands for the gradient of a whole computation, where a better one is known than op by op.

    It is the attribute of a version without an op, over (the value, *sources); `rule` takes the
    sources and the gradient of the value, and gives the gradients of the sources.
    """

    rule: Callable[[tuple[Any, ...], Any], tuple[Any, ...]]


class Version:
    """One immutable value of a storage.

    `op` (None: the first source seen through its chain) over `sources`, each seen through its
    entry of `chains` (None: all as they are), makes the value; a write is AFTER over (old, value),
    whose first chain is the place written to.  `node` is the expression, or the BUFFER once
    `buffer` holds it.  `bindings` are the values of the variables inside.  Over several devices,
    `layout` says which part each holds, or None if each can make all of it by itself.
    """

    __slots__ = (
        "__weakref__", "attrs", "bindings", "buffer", "chains", "device", "epoch", "holders",
        "is_consumed", "is_freed", "is_private", "is_state", "is_tracked", "layout", "leaves",
        "needs_gradient", "node", "op", "origins", "owner", "serial", "sources",
    )  # fmt: skip

    def __init__(
        self,
        node: Node,
        device: str,
        op: OpDef | None = None,
        attrs: Attrs | None = None,
        sources: tuple[Version, ...] = (),
        chains: tuple[Chain, ...] | None = None,
        bindings: Mapping[str, int] | None = None,
    ) -> None:
        self.node = node
        self.device = device
        self.op = op
        self.attrs = attrs
        self.sources = sources
        self.chains = chains
        self.bindings = bindings
        self.layout: Layout | None = None
        self.buffer: Buffer | None = None
        self.epoch = epoch()
        # Tensors whose gradient is wanted: where they look at this version, and themselves.
        self.leaves: list[tuple[Chain, weakref.ref[object]]] | None = None
        # The tensor that a constructor made with this version: what users call a leaf.
        self.owner: weakref.ref[object] | None = None
        # Storages that this version was put into; some may be gone, or hold another one by now.
        self.holders: list[weakref.ref[Storage]] = []
        self.is_tracked = True
        self.needs_gradient = False
        self.is_consumed = False
        self.is_freed = False
        self.is_state = False
        self.is_private = False  # a write that must not touch the memory of the old version
        self.serial = next(_serials)
        self.origins: frozenset[int] | None = None  # what a freed history came from
        if observe.active:
            observe.version_born(self)
        if sources:
            for source in sources:
                if source.buffer is None and source.epoch != self.epoch:
                    self.epoch = -1  # built from a node that is out of date itself
                    break
            self.is_tracked = keeps_history.get()
            if self.is_tracked and node.type.dtype.is_float:
                for source in sources:
                    if source.needs_gradient:
                        self.needs_gradient = True
                        break

    def rebuild(self) -> None:
        """Bring `node` up to date after a source was realized."""
        sources = self.sources
        if not sources:
            return
        chains = self.chains
        if self.op is AFTER and chains is not None:
            value = apply_chain(sources[1].node, chains[1])
            self.node = write_node(sources[0], chains[0], value, self.is_private)
            return
        nodes = [source.node for source in sources]
        if chains is not None:
            nodes = [apply_chain(node, chain) for node, chain in zip(nodes, chains, strict=True)]
        self.node = nodes[0] if self.op is None else make(self.op, tuple(nodes), self.attrs)

    def bind(self, buffer: Buffer) -> None:
        """Note that `buffer` holds this value; forget how it was made unless gradients need it."""
        kind = self.node.type
        self.node = self._memory_node(kind.shape, kind.dtype)
        self.buffer = buffer
        is_wanted = any(source.needs_gradient for source in self.sources)
        is_needed = self.is_tracked and self.needs_gradient and is_wanted
        if self.is_consumed or not is_needed:
            self.forget()
        if self.bindings and not self.sources:
            # Values that went into the elements are spent; those of the shape are still needed.
            names = variable_names(kind.shape)
            kept = {name: value for name, value in self.bindings.items() if name in names}
            self.bindings = kept or None

    def move_to(self, buffer: Buffer) -> None:
        """Note that the contents were copied to `buffer`, since the old memory is overwritten."""
        kind = self.node.type
        self.node = self._memory_node(kind.shape, kind.dtype)
        self.buffer = buffer

    def _memory_node(self, shape: Shape, dtype: DType) -> Node:
        if not is_group(self.device):
            return new_buffer_node(self.device, shape, dtype)
        self.layout = self.settled_layout()
        return new_group_node(self.layout, shape, dtype)

    def settled_layout(self) -> Layout:
        """The layout that it has in memory."""
        if self.layout is not None:
            return self.layout
        return spec.replicated(split_name(self.device), len(self.node.type.shape))

    def forget(self) -> None:
        """Drop the history; a gradient that would need it is an error from now on."""
        if not self.sources:
            return
        if self.is_tracked and self.node.type.dtype.is_float:
            self.is_freed = True
            self.origins = _origins(self)
        self.op = None
        self.attrs = None
        self.sources = ()
        self.chains = None

    def storages(self) -> list[Storage]:
        """The storages whose current version this is."""
        alive = [holder() for holder in list(self.holders)]
        return [each for each in alive if each is not None and each.version is self]

    def drop_dead_holders(self) -> None:
        """Forget the storages that are gone, each time that as many more have come."""
        count = len(self.holders)
        if count < _MANY_HOLDERS or count & (count - 1):
            return
        for holder in list(self.holders):  # other threads may add some meanwhile
            if holder() is None:
                self.holders.remove(holder)

    def __repr__(self) -> str:
        """What it holds and whether it is there."""
        state = "realized" if self.buffer is not None else "lazy"
        return f"Version({self.node.type}, {state})"


def variable_names(shape: Shape) -> set[str]:
    """The names of the variables in a shape."""
    found: set[str] = set()
    stack = [size for size in shape if not isinstance(size, int)]
    while stack:
        top = stack.pop()
        if top.op is VARIABLE:
            found.add(top.attrs.name)
        stack.extend(top.src)
    return found


def _origins(version: Version) -> frozenset[int]:
    """Serial numbers of the versions that the value of `version` came from."""
    found: set[int] = set()
    stack = list(version.sources)
    while stack:
        source = stack.pop()
        if source.serial in found or not source.is_tracked:
            continue
        found.add(source.serial)
        if source.origins is not None:
            found |= source.origins
        if len(found) > _MOST_ORIGINS or source.origins is ANYTHING:
            return ANYTHING
        stack.extend(source.sources)
    return frozenset(found)


def shows_memory(node: Node) -> bool:
    """Whether `node` is a BUFFER seen through movement ops alone."""
    while node.op in _MOVEMENT:
        node = node.src[0]
    return node.op is BUFFER or node.op is UNSHARD


_MOVEMENT: Final = frozenset(
    {
        tensor.RESHAPE, tensor.PERMUTE, tensor.EXPAND, tensor.SHRINK, tensor.FLIP, tensor.WINDOW,
        tensor.DETACH,
    }
)  # fmt: skip


def write_node(old: Version, place: Chain, value: Node, is_private: bool = False) -> Node:
    """The next state of `old` after `value` was written to the part that `place` shows."""
    base = old.node
    if old.buffer is not None:
        is_private = is_private or old.buffer.memory.is_readonly
    elif shows_memory(base):
        is_private = True  # what it shows belongs to another storage
    if is_private:
        base = make(CONTIGUOUS, (base,), None)
    return make(AFTER, (base, make(STORE, (apply_chain(base, place), value), None)), None)


class Storage:
    """The cell that a tensor and its views share.

    A version knows the storages that hold it, so that a capture finds those that it has read.
    """

    __slots__ = ("__weakref__", "version")

    version: Version

    def __init__(self, version: Version) -> None:
        self.version = version
        holders = version.holders
        holders.append(_weak(self))
        if len(holders) >= _MANY_HOLDERS:
            version.drop_dead_holders()
        if observe.active:
            observe.storage_born(self)

    def hold(self, version: Version) -> None:
        """Make `version` the current one."""
        self.version = version
        version.holders.append(_weak(self))
        version.drop_dead_holders()


class _Epoch:
    """Counts realizations: nodes built in the current epoch are up to date."""

    now = 0


def epoch() -> int:
    """The number of realizations so far."""
    return _Epoch.now


def next_epoch() -> None:
    """Note that some versions were realized."""
    _Epoch.now += 1


def new_buffer_node(device: str, shape: Shape, dtype: DType) -> Node:
    """A BUFFER with a number of its own."""
    number = next(_buffer_numbers)
    if number % _BUFFERS_BETWEEN_SWEEPS == 0:
        sweep()  # programs that only replay captures realize nothing, which sweeps otherwise
    return make(BUFFER, (), BufferAttrs(number, shape, dtype, device))


def new_group_node(layout: Layout, shape: Shape, dtype: DType) -> Node:
    """A BUFFER for the part of each device, and what they are together."""
    parts = [
        new_buffer_node(device, spec.local_shape(box, shape), dtype)
        for device, box in zip(layout.devices, layout.boxes, strict=True)
    ]
    return make(UNSHARD, tuple(parts), layout)


def from_buffer(buffer: Buffer, device: str, shape: Shape, dtype: DType) -> Version:
    """The version that `buffer` holds; over several devices each holds all of it."""
    if is_group(device):
        return from_parts(buffer, spec.replicated(split_name(device), len(shape)), shape, dtype)
    version = Version(new_buffer_node(device, shape, dtype), device)
    version.buffer = buffer
    return version


def from_parts(buffer: Buffer, layout: Layout, shape: Shape, dtype: DType) -> Version:
    """The version of which `buffer` holds a part on each device."""
    version = Version(new_group_node(layout, shape, dtype), join_names(layout.devices))
    version.layout = layout
    version.buffer = buffer
    return version


def layout_through(layout: Layout | None, base: Node, chain: Chain) -> Layout | None:
    """The layout of `base`, which has `layout`, as it is seen through `chain`."""
    node = base
    for op, attrs in chain:
        node = make(op, (node,), attrs)
        layout = layout_after(node, (layout,))
    return layout


def merge_bindings(
    found: Sequence[Mapping[str, int] | None], what: str
) -> Mapping[str, int] | None:
    """The values of all variables together.

    Raises:
        UserError: one variable has two values.
    """
    merged: dict[str, int] | None = None
    for bindings in found:
        if not bindings:
            continue
        if merged is None:
            merged = dict(bindings)
            continue
        for name, value in bindings.items():
            if merged.setdefault(name, value) != value:
                raise UserError(
                    f"{what}: the variable {name} has two values",
                    got=f"{merged[name]} and {value}",
                    expected="one value in one expression",
                    try_="use variables of different names, or realize one operand first",
                )
    return merged


def can_merge(found: Sequence[Mapping[str, int] | None]) -> bool:
    """Whether each variable has one value in all of these."""
    merged: dict[str, int] = {}
    return all(
        merged.setdefault(name, value) == value
        for bindings in found
        for name, value in (bindings or {}).items()
    )
