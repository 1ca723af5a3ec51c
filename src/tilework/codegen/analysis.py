"""Facts about a kernel that several passes read: its ranges, who depends on them, its memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.records import dataclass, field
from tilework.ir.node import Node, toposort
from tilework.ir.ops import math
from tilework.ir.ops.control import END, STAGE
from tilework.ir.ops.index import RANGE
from tilework.ir.ops.memory import LOAD, PARAM, STORE
from tilework.ir.ops.program import FAULT_IF
from tilework.ir.ops.tensor import REDUCE, SCAN
from tilework.ir.symbolic import simplify
from tilework.ir.symbolic.bounds import bounds

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

#: Ops whose sources after the first are ranges that they bind.
BINDERS = frozenset({REDUCE, STAGE, END})
#: A loaded term whose values may lie further apart than this is not bounded.
_MOST_APART = 1 << 48


class FreeRanges:
    """Which RANGEs each node depends on, as bit masks; ranges bound inside do not count.

    A mask's bit for a range is `1 << position[range]`; positions follow first occurrence.
    """

    def __init__(self, order: Sequence[Node]) -> None:
        self.position: dict[Node, int] = {}
        self.ranges: list[Node] = []
        self.mask: dict[Node, int] = {}
        self.extend(order)

    def extend(self, order: Iterable[Node]) -> None:
        """Take in more nodes, sources first."""
        mask = self.mask
        for node in order:
            if node in mask:
                continue
            total = 0
            for source in node.src:
                total |= mask[source]
            if node.op is RANGE:
                self.position[node] = len(self.ranges)
                total |= 1 << len(self.ranges)
                self.ranges.append(node)
            elif node.op in BINDERS:
                bound = 0
                for source in node.src[1:]:
                    bound |= 1 << self.position[source]
                total &= ~bound
            mask[node] = total

    def bit(self, node: Node) -> int:
        """The mask of one RANGE alone."""
        return 1 << self.position[node]

    def of(self, node: Node) -> list[Node]:
        """The RANGEs that `node` depends on, by number (outermost first)."""
        mask = self.mask[node]
        found = [r for i, r in enumerate(self.ranges) if mask >> i & 1]
        return sorted(found, key=lambda r: int(r.attrs.number))


@dataclass
class Kernel:
    """A kernel body with the facts that planning needs.

    `outputs` are the unbound ranges, outermost first; `serial` those that must run in order.
    `read_and_written` says that memory is read and written, `overwritten` that an element may be
    read by another iteration than the one that writes it, or inside of a reduction.  `meeting` are
    those of `serial` of which two iterations may really write one place: where a store's condition
    bounds an index that is loaded, rows that are further apart than that are not among them.
    """

    sink: Node
    order: list[Node]
    free: FreeRanges
    outputs: list[Node]
    reduces: list[Node]
    loads: list[Node]
    stores: list[Node]
    serial: set[Node] = field(default_factory=set)
    read_and_written: bool = False
    overwritten: bool = False
    meeting: set[Node] = field(default_factory=set)

    @property
    def ordered(self) -> set[Node]:
        """The ranges whose iterations may not run at once."""
        return self.serial if self.overwritten else self.meeting


def analyse(sink: Node) -> Kernel:
    """Collect the facts about a KERNEL or TILED body."""
    order = toposort(sink)
    free = FreeRanges(order)
    stores = [node for node in sink.src if node.op is STORE]
    effects = [node for node in sink.src if node.op in (STORE, FAULT_IF)]
    unbound = 0
    for effect in effects:
        unbound |= free.mask[effect]
    outputs = [r for i, r in enumerate(free.ranges) if unbound >> i & 1]
    outputs.sort(key=lambda r: int(r.attrs.number))
    kernel = Kernel(
        sink,
        order,
        free,
        outputs,
        [node for node in order if node.op is REDUCE],
        [node for node in order if node.op is LOAD],
        stores,
    )
    written = {store.src[0].src[0] for store in stores}
    read = {load.src[0].src[0] for load in kernel.loads}
    kernel.read_and_written = any(buffer.op is PARAM for buffer in written & read)
    kernel.overwritten = kernel.read_and_written and _is_overwritten(kernel, written)
    kernel.serial = _serial_ranges(kernel)
    kernel.meeting = _serial_ranges(kernel, bounded=True) if kernel.serial else set()
    return kernel


def _is_overwritten(kernel: Kernel, written: set[Node]) -> bool:
    """Is an element of written memory read otherwise than once, where it is written?"""
    places = {store.src[0] for store in kernel.stores}
    if len({place.src[0] for place in places}) < len(kernel.stores):
        return True  # a buffer with two stores
    inside = {node for reduce in kernel.reduces for node in toposort(reduce.src[0])}
    return any(
        load in inside or load.src[0] not in places
        for load in kernel.loads
        if load.src[0].src[0] in written
    )


def _serial_ranges(kernel: Kernel, *, bounded: bool = False) -> set[Node]:
    """Ranges whose order matters: those by which two stores may meet, and those of a scan.

    A range that a reduction inside of the store's index binds is none of them.  With `bounded`
    what is loaded counts as far as the store's condition lets it go.
    """
    serial: set[Node] = set()
    unbound = set(kernel.outputs)
    for store in kernel.stores:
        offset = store.src[0].src[1]
        extents = loaded_extents(offset, store) if bounded else {}
        for node in [] if extents else toposort(offset):
            if node.op is LOAD:
                serial.update(unbound.intersection(kernel.free.of(node)))
        serial.update(_meeting_ranges(kernel, offset, extents) - serial)
        if not serial or bounded:
            # An output range that does not move the store would write one place many times.
            missing = kernel.free.mask[store] & ~kernel.free.mask[store.src[0]]
            classes = _classes(store, extents)
            serial.update(
                r for i, r in enumerate(kernel.free.ranges) if missing >> i & 1 and r not in classes
            )
    for node in kernel.order:
        if node.op is SCAN:
            serial.add(node.src[1])
    return serial


def loaded_extents(offset: Node, store: Node) -> dict[Node, int]:
    """How many values each loaded term of an offset has at the most; {} where one is not bounded.

    The condition under which a store is done bounds what it loads its index from, and so do what
    it is computed by and its dtype.
    """
    found: dict[Node, int] = {}
    gates = simplify.conjuncts(store.src[2]) if len(store.src) > 2 else []
    for term in simplify.terms(offset)[1]:
        if all(node.op is not LOAD for node in toposort(term)):
            continue
        low, high = bounds(term)
        for gate in gates:
            if gate.op is not math.LT:
                continue
            constant, total = simplify.terms(simplify.sub(gate.src[0], gate.src[1]))
            if total == {term: 1}:
                high = min(high, -constant - 1)
            elif total == {term: -1}:
                low = max(low, constant + 1)
        if high - low > _MOST_APART:
            return {}
        found[term] = max(high - low + 1, 1)
    return found


def _classes(store: Node, extents: Mapping[Node, int]) -> set[Node]:
    """The ranges each value of which writes where a loaded place falls into a class of its own."""
    found: set[Node] = set()
    gates = simplify.conjuncts(store.src[2]) if len(store.src) > 2 else []
    for gate in gates if extents else []:
        if gate.op is not math.EQ or not gate.src[0].type.dtype.is_integer:
            continue
        constant, total = simplify.terms(simplify.sub(*gate.src))
        ranges = [term for term in total if term.op is RANGE]
        rests = [term for term in total if term.op is math.MOD and term.src[0] in extents]
        if constant or len(total) != 2 or len(ranges) != 1 or len(rests) != 1:
            continue
        if sorted(total.values()) == [-1, 1]:
            found.add(ranges[0])
    return found


def _meeting_ranges(kernel: Kernel, offset: Node, extents: Mapping[Node, int]) -> set[Node]:
    """The output ranges two values of which may give a store the same place.

    Places are distinct where each range moves the offset further than all smaller steps together;
    terms that are no range times a number are not known to be distinct, unless `extents` says how
    many values they have: two iterations may give those the same one.
    """
    unbound = set(kernel.outputs)
    found: set[Node] = set()
    steps: list[tuple[int, Node]] = []
    _, total = simplify.terms(offset)
    for term, factor in total.items():
        if term in unbound or term in extents:
            steps.append((abs(factor), term))
        else:
            found.update(unbound.intersection(kernel.free.of(term)))
    steps.sort(key=lambda step: (step[0], int(step[1].attrs.number) if step[1] in unbound else -1))
    reach, near = 0, list[Node]()
    for step, term in steps:
        size = extents[term] if term in extents else max(bounds(term.src[0])[1], 1)
        if size == 1:
            continue
        near.append(term)
        if step <= reach:
            found.update(near)
        reach += step * (size - 1)
    loaded = {r for term in extents for r in kernel.free.of(term) if r in unbound}
    # Ranges that move nothing but a loaded term may give it the same value twice.
    own = {term for _, term in steps}
    return (found & unbound) | (loaded - own)


def stride(offset: Node, range_: Node) -> int | None:
    """By how many elements `offset` moves with `range_`; None where it is not a fixed number."""
    _, total = simplify.terms(offset)
    result = 0
    for term, factor in total.items():
        if term is range_:
            result = factor
        elif depends_on(term, range_):
            return None
    return result


def depends_on(node: Node, range_: Node) -> bool:
    """Does `range_` occur in the index expression `node`?"""
    if node.op is RANGE and node.src[0].op is math.CONST:
        return node is range_
    seen: set[Node] = set()
    stack = [node]
    while stack:
        top = stack.pop()
        if top is range_:
            return True
        if top not in seen:
            seen.add(top)
            stack.extend(top.src)
    return False


def substitute_ranges(
    root: Node,
    values: Mapping[Node, Node],
    binders: Mapping[Node, tuple[Node, ...]],
    memo: dict[Node, Node] | None = None,
) -> Node:
    """Replace RANGEs by expressions, and in what binds them by the ranges of the expression.

    Args:
        root: Where to start.
        values: What each RANGE becomes in expressions.
        binders: The ranges that a REDUCE, STAGE or END binds instead of each replaced one.
        memo: Shared between calls with the same mappings.
    """
    done: dict[Node, Node] = {} if memo is None else memo
    # A node below a None has had its sources replaced.
    stack: list[Node | None] = [root]
    pop = stack.pop
    while stack:
        node = pop()
        if node is None:
            above = pop()
            if above is not None:
                done[above] = _with_sources(above, done, binders)
        elif node not in done:
            if node in values:
                done[node] = values[node]
            elif node.src:
                stack.append(node)
                stack.append(None)
                stack.extend(node.src)
            else:
                done[node] = node
    return done[root]


def _with_sources(
    node: Node, done: Mapping[Node, Node], binders: Mapping[Node, tuple[Node, ...]]
) -> Node:
    """A node of what its sources have become."""
    if node.op in BINDERS:
        src = [done[node.src[0]]]
        for bound in node.src[1:]:
            src.extend(binders.get(bound, (done[bound],)))
        return node.op(*src, attrs=node.attrs)
    sources = tuple([done[source] for source in node.src])
    return node if sources == node.src else simplify.rebuild(node, sources)
