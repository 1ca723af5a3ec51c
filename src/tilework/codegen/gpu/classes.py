"""Writes at places that are loaded, shared out by their places.

Rows that add to rows chosen by an index (the gradient of an embedding) must run in order, since two
of them may choose the same one.  Two that choose different ones need no order: each of many classes
of places has threads of its own, which go through all rows and do those whose place falls into
their class.  Each place gets what it gets in the same order as before, so no bit changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.codegen.analysis import Kernel, loaded_extents, substitute_ranges
from tilework.codegen.gpu.copies import with_slots
from tilework.codegen.passes.normalise import renumber
from tilework.codegen.plan.extents import least_size, product, size
from tilework.codegen.plan.prepack import Pack, Prepacked
from tilework.dtypes import uint32
from tilework.ir.build import cast, const, const_index
from tilework.ir.node import toposort
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.program import FAULT_IF
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

#: Rows from which on classes are worth that each looks at all of them.
_LEAST_ROWS = 256
#: Threads of a multiprocessor that the classes should give work to; and the most classes.
_THREADS, _MOST_CLASSES = 2048, 256
#: Rows that one word marks, and fewer than are worth it.
_MARK_BITS, _LEAST_BITS = 32, 8


def by_classes(kernel: Kernel, target: TargetSpec) -> Prepacked | None:
    """The kernel with its places in classes; None where its rows need no order, or are few.

    Where rows can be told from their indices alone, a kernel before it marks those of each class, a
    bit for each of some rows, so that a thread passes over those of others.
    """
    if len(kernel.stores) != 1 or not kernel.meeting or kernel.reduces or kernel.overwritten:
        return None
    (store,) = kernel.stores
    if len(store.src) < 3 or any(least_size(r) != size(r) for r in kernel.outputs):
        return None
    offset, condition = store.src[0].src[1], store.src[2]
    extents = loaded_extents(offset, store)
    if len(extents) != 1:
        return None
    ((place, extent),) = extents.items()
    others = [r for r in kernel.outputs if r not in kernel.meeting]
    wanted = _THREADS * max(target.unit("grid").count, 1) // max(product(others), 1)
    count = 1
    while 2 * count <= min(wanted, extent, _MOST_CLASSES):
        count *= 2
    if count < 2 or product(kernel.meeting) < _LEAST_ROWS or not _is_apart(offset, place):
        return None
    last = max(int(range_.attrs.number) for range_ in kernel.free.ranges)
    class_ = RANGE(const_index(count), attrs=RangeAttrs(last + 2))
    own = simplify.equal(simplify.mod(place, const_index(count)), class_)
    shared = _only_where(kernel, own)
    marks = _marks(kernel, simplify.both(condition, own), class_)
    if marks is None:
        return Prepacked(shared, ())
    pack, mark = marks
    return Prepacked(_in_words(shared.src[0], kernel, mark), (pack,))


def _only_where(kernel: Kernel, own: Node) -> Node:
    """The kernel that stores where `own` holds, and loads there alone what only the value needs."""
    (store,) = kernel.stores
    address, value, condition = store.src
    needed = {node for root in (address.src[1], condition) for node in toposort(root)}
    loads: dict[Node, Node] = {}
    for node in toposort(value):
        if node.op is LOAD and node not in needed:
            gate = simplify.both(node.src[1], own) if len(node.src) > 1 else own
            loads[node] = LOAD(node.src[0], gate)
    (value,) = simplify.substitute([value], loads)
    rest = [effect for effect in kernel.sink.src if effect is not store]
    return SINK(STORE(address, value, simplify.both(condition, own)), *rest)


def _in_words(store: Node, kernel: Kernel, mark: Node) -> Node:
    """The kernel whose rows count where they are marked; faults are found where marks are made."""
    inner = max(kernel.meeting, key=lambda range_: int(range_.attrs.number))
    numbers = {int(range_.attrs.number): range_ for range_ in _ranges(mark)}
    word, bit = (numbers[int(inner.attrs.number) + more] for more in (0, 1))
    row = simplify.add(simplify.scale(word, size(bit)), bit)
    address, value, gate = substitute_ranges(store, {inner: row}, {}).src
    return SINK(STORE(address, value, simplify.both(gate, mark)))


def _marks(kernel: Kernel, own: Node, class_: Node) -> tuple[Pack, Node] | None:
    """What marks the rows of each class, and whether one is marked; None where that takes more.

    Faults are looked for in the kernel that marks, once for each row.
    """
    rows = sorted(kernel.meeting, key=lambda range_: int(range_.attrs.number))
    faults = [effect for effect in kernel.sink.src if effect.op is FAULT_IF]
    if not {*kernel.free.of(kernel.stores[0].src[2]), *_ranges(own, *faults)} <= {*rows, class_}:
        return None
    inner = rows[-1]
    width = max(w for w in range(1, _MARK_BITS + 1) if size(inner) % w == 0)
    if width < _LEAST_BITS or _reads_written(kernel, own, *faults):
        return None
    number = int(inner.attrs.number)
    word = RANGE(const_index(size(inner) // width), attrs=RangeAttrs(number))
    bit = RANGE(const_index(width), attrs=RangeAttrs(number + 1))
    place: Node = const_index(0)
    for range_ in (*rows[:-1], word, class_):
        place = simplify.add(simplify.scale(place, size(range_)), range_)
    count = product([*rows[:-1], word, class_])
    slot = 1 + max(int(node.attrs.slot) for node in kernel.order if node.op is PARAM)
    pack = _marking(kernel, own, (place, count, slot), (inner, word, width))
    found = LOAD(INDEX(PARAM(attrs=ParamAttrs(slot, (count,), uint32)), place))
    one = const(1, uint32)
    is_marked = math.NE(math.AND(math.SHR(found, cast(bit, uint32)), one), const(0, uint32))
    mark = math.AND(math.NE(found, const(0, uint32)), is_marked)
    return pack, mark


def _marking(
    kernel: Kernel, own: Node, marks: tuple[Node, int, int], cut: tuple[Node, Node, int]
) -> Pack:
    """The kernel that marks: a bit for each of some rows, for each class."""
    (place, count, slot), (inner, word, width) = marks, cut
    faults = [effect for effect in kernel.sink.src if effect.op is FAULT_IF]
    value: Node = const(0, uint32)
    wrong: dict[Node, Node] = {}
    for position in range(width):
        row = simplify.add(simplify.scale(word, width), const_index(position))
        is_own = substitute_ranges(own, {inner: row}, {})
        bit = math.WHERE(is_own, const(1 << position, uint32), const(0, uint32))
        value = math.OR(value, bit)
        for fault in faults:
            condition = substitute_ranges(fault.src[0], {inner: row}, {})
            wrong[fault] = math.OR(wrong[fault], condition) if fault in wrong else condition
    target = PARAM(attrs=ParamAttrs(-1, (count,), uint32))
    effects = [FAULT_IF(wrong[fault], attrs=fault.attrs) for fault in faults]
    sink = SINK(STORE(INDEX(target, place), value), *effects)
    nodes = toposort(sink)
    sources = tuple(sorted({n.attrs.slot for n in nodes if n.op is PARAM and n is not target}))
    slots = {-1: 0} | {source: number + 1 for number, source in enumerate(sources)}
    ranges = sorted(_ranges(sink), key=lambda range_: int(range_.attrs.number))
    stored = with_slots(renumber(sink, ranges), slots)
    return Pack(stored, sources, slot, count * uint32.itemsize, False, 0.0)


def _ranges(*roots: Node) -> set[Node]:
    return {node for root in roots for node in toposort(root) if node.op is RANGE}


def _reads_written(kernel: Kernel, *roots: Node) -> bool:
    """Does one of them depend on what the kernel writes?"""
    written = {store.src[0].src[0] for store in kernel.stores}
    return any(node in written for root in roots for node in toposort(root))


def _is_apart(offset: Node, place: Node) -> bool:
    """Do two values of the loaded place always give two places in memory?"""
    _, total = simplify.terms(offset)
    reach = sum(
        factor * (size(term) - 1)
        for term, factor in total.items()
        if term is not place and term.op is RANGE and factor > 0
    )
    plain = all(term is place or (term.op is RANGE and f > 0) for term, f in total.items())
    return plain and reach < total[place]
