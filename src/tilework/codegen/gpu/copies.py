"""Copies of the factors of a product, in arrays that a copy engine takes, and what they cost.

A factor that is loaded is copied as it lies, each element once; one that is computed or gathered is
stored with a value for each of its ranges.  Either has the elements of one range side by side, and
rows that start at multiples of 16 bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.codegen.analysis import Kernel, stride, substitute_ranges
from tilework.codegen.matrix.arrays import ROW_BYTES, Array, any_array_of, loaded_by
from tilework.codegen.matrix.operands import narrowed
from tilework.codegen.passes.normalise import renumber
from tilework.codegen.plan.contraction import Contraction, orientations
from tilework.codegen.plan.extents import ceil_div, least_size, product, size
from tilework.codegen.plan.prepack import Pack
from tilework.ir.build import cast, const_index
from tilework.ir.node import Node, toposort
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.tensor import REDUCE
from tilework.ir.symbolic import dims, simplify

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tilework.target.spec import TargetSpec

#: Rows of a copy start at multiples of so many bytes.
_ALIGNMENT_BYTES = 16
#: Cycles that one more kernel costs, and the share of the memory's bandwidth that copies reach:
#: those that keep the order of their source, and those that turn it.
LAUNCH = 5000.0
STRAIGHT, TURNED = 0.5, 0.35
#: Operations of a multiprocessor in a cycle.
OPERATIONS = 100.0
#: Bytes of a row along k that are worth a slot's row.
LEAST_ROW = ROW_BYTES // 2


def cycles_for(size_bytes: float, share: float, target: TargetSpec) -> float:
    """What it costs to move bytes from and to the memory that all share, in a kernel."""
    far = next(memory for memory in target.memories if memory.name == "global")
    return LAUNCH + size_bytes / (far.bandwidth_bytes_per_cycle * share)


def with_one_k(kernel: Kernel) -> Node | None:
    """The kernel with one range for all of k, where each is too short for a slot's row."""
    found = orientations(kernel)
    if not found or len(found[0].k) < 2:
        return None
    contraction = found[0]
    value = narrowed(contraction.a)
    if any(size(r) * value.type.dtype.itemsize >= LEAST_ROW for r in contraction.k):
        return None
    if any(least_size(r) != size(r) for r in contraction.k):
        return None
    last = contraction.k[-1]
    whole = RANGE(const_index(product(contraction.k)), attrs=last.attrs)
    values: dict[Node, Node] = {}
    binders: dict[Node, tuple[Node, ...]] = {}
    step = 1
    for range_ in reversed(contraction.k):
        place = simplify.idiv(whole, const_index(step))
        values[range_] = simplify.mod(place, const_index(size(range_)))
        binders[range_] = (whole,) if range_ is last else ()
        step *= size(range_)
    return substitute_ranges(kernel.sink, values, binders)


class Filled:
    """A factor's values, stored: one for each value of its ranges, those of one side by side."""

    def __init__(self, factor: Node, value: Node, fast: Node, ranges: Sequence[Node]) -> None:
        self.factor = factor
        self.value = value
        self.ranges = [fast, *(range_ for range_ in reversed(ranges) if range_ is not fast)]
        self.loads = [node for node in toposort(value) if node.op is LOAD]
        width = _ALIGNMENT_BYTES // value.type.dtype.itemsize
        self.strides = [1]
        step = ceil_div(size(fast), width) * width
        for range_ in self.ranges[1:]:
            self.strides.append(step)
            step *= size(range_)
        self.count = step

    @property
    def size_bytes(self) -> int:
        """Bytes of the values."""
        return self.count * int(self.value.type.dtype.itemsize)

    def cycles(self, target: TargetSpec) -> float:
        """What it costs to store them."""
        read, is_turned = 0, False
        for load in self.loads:
            held = dims.greatest(dims.product(load.src[0].src[0].attrs.shape))
            elements = min(self.count, held)
            read += elements * int(load.type.dtype.itemsize)
            step = stride(load.src[0].src[1], self.ranges[0])
            is_turned = is_turned or step not in (0, 1)
        moved = read + self.size_bytes
        work = self.count * len(toposort(self.value)) / OPERATIONS
        units = max(target.unit("grid").count, 1)
        share = TURNED if is_turned else STRAIGHT
        return max(cycles_for(moved, share, target), LAUNCH + work / units)

    def pack(self, slot: int) -> Pack:
        """The kernel that stores them, for the slot in which they are read."""
        target = PARAM(attrs=ParamAttrs(-1, (self.count,), self.value.type.dtype))
        stored = SINK(STORE(INDEX(target, self._offset()), self.value))
        ordered = renumber(stored, list(reversed(self.ranges)))
        sources = tuple(sorted({n.attrs.slot for n in toposort(self.value) if n.op is PARAM}))
        slots = {-1: 0} | {source: place + 1 for place, source in enumerate(sources)}
        return Pack(with_slots(ordered, slots), sources, slot, self.size_bytes, False, 0.0)

    def loaded(self, slot: int) -> Node:
        """The factor, read from its values in a slot of the kernel."""
        packed = PARAM(attrs=ParamAttrs(slot, (self.count,), self.value.type.dtype))
        return cast(LOAD(INDEX(packed, self._offset())), self.factor.type.dtype)

    def _offset(self) -> Node:
        found = const_index(0)
        for range_, stride_ in zip(self.ranges, self.strides, strict=True):
            found = simplify.add(found, simplify.scale(range_, stride_))
        return found


def filled(kernel: Kernel, factor: Node, value: Node, own: Sequence[Node]) -> list[Filled]:
    """Ways to store the values of a factor that no engine could copy as it is."""
    (reduce,) = [node for node in kernel.reduces if factor in node.src[0].src]
    k = [range_ for range_ in reduce.src[1:] if size(range_) > 1]
    ranges = kernel.free.of(factor)
    nodes = toposort(value)
    if any(node.op is REDUCE for node in nodes) or not any(node.op is LOAD for node in nodes):
        return []
    if any(least_size(range_) != size(range_) for range_ in ranges) or not set(k) <= set(ranges):
        return []
    itemsize = value.type.dtype.itemsize
    fast = [range_ for range_ in k if size(range_) * itemsize >= LEAST_ROW]
    if itemsize == 2 and own[-1] in ranges:
        fast.append(own[-1])
    return [Filled(factor, value, range_, ranges) for range_ in fast]


class Copied:
    """A factor's array, stored anew with the elements of one axis side by side."""

    def __init__(self, factor: Node, load: Node, array: Array, fast: int) -> None:
        self.factor = factor
        self.load = load
        self.array = array
        axes = list(array.axes)
        self.is_turned = fast != 0
        self.axes = [axes.pop(fast), *axes]
        width = _ALIGNMENT_BYTES // array.dtype.itemsize
        self.strides = [1]
        step = ceil_div(self.axes[0].size, width) * width
        for axis in self.axes[1:]:
            self.strides.append(step)
            step *= axis.size
        self.count = step

    @property
    def size_bytes(self) -> int:
        """Bytes of the copy."""
        return self.count * self.array.dtype.itemsize

    def cycles(self, target: TargetSpec) -> float:
        """What it costs to make it."""
        return cycles_for(2 * self.size_bytes, TURNED if self.is_turned else STRAIGHT, target)

    def pack(self, slot: int) -> Pack:
        """The kernel that makes it, for the slot in which it is read."""
        source = self.array.param.attrs.slot
        return Pack(self.kernel(), (source,), slot, self.size_bytes, False, 0.0)

    def offset(self, places: Mapping[int, Node]) -> Node:
        """Where an element is, by its place on each axis."""
        found = const_index(0)
        for number, step in enumerate(self.strides):
            found = simplify.add(found, simplify.scale(places[number], step))
        return found

    def kernel(self) -> Node:
        """The kernel that makes it: PARAM 0 from PARAM 1."""
        places, source = {}, const_index(self.array.start)
        # Loops as the copy is stored: the last moves by one element.
        for number in reversed(range(len(self.axes))):
            axis = self.axes[number]
            attrs = RangeAttrs(len(self.axes) - 1 - number)
            places[number] = RANGE(const_index(axis.size), attrs=attrs)
            source = simplify.add(source, simplify.scale(places[number], axis.stride))
        dtype = self.array.dtype
        shape = self.array.param.attrs.shape
        target = PARAM(attrs=ParamAttrs(0, (self.count,), dtype))
        value = LOAD(INDEX(PARAM(attrs=ParamAttrs(1, shape, dtype)), source))
        return SINK(STORE(INDEX(target, self.offset(places)), value))

    def loaded(self, slot: int) -> Node:
        """The factor, read from the copy in a slot of the kernel."""
        packed = PARAM(attrs=ParamAttrs(slot, (self.count,), self.array.dtype))
        values = {range_: range_ for range_ in self.array.ranges}
        places = {number: axis.place(values) for number, axis in enumerate(self.axes)}
        load = LOAD(INDEX(packed, self.offset(places)), *self.load.src[1:])
        (found,) = simplify.substitute([self.factor], {self.load: load})
        return found


def copies_of(factor: Node, own: Sequence[Node], contraction: Contraction) -> list[Copied | None]:
    """Ways to store a factor anew; None stands for leaving it."""
    found: list[Copied | None] = [None]
    narrow = narrowed(factor)
    loaded = loaded_by(narrow)
    if loaded is None:
        return found
    load, gates = loaded
    array = any_array_of(load.src[0], [*own, *contraction.k, *contraction.batch], gates)
    if array is None:
        return found
    for number, axis in enumerate(array.axes):
        is_own = axis.ranges == (own[-1],) and array.dtype.itemsize == 2
        is_inner = len(axis.ranges) == 1 and axis.ranges[0] in contraction.k
        is_inner = is_inner and axis.size * array.dtype.itemsize >= LEAST_ROW
        if is_own or is_inner:
            found.append(Copied(factor, load, array, number))
    return found


def with_slots(sink: Node, slots: Mapping[int, int]) -> Node:
    """A kernel whose buffers have other slots."""
    mapping: dict[Node, Node] = {}
    for node in toposort(sink):
        if node.op is PARAM:
            old = node.attrs
            attrs = ParamAttrs(slots[old.slot], old.shape, old.dtype, old.device)
            mapping[node] = PARAM(attrs=attrs)
    (found,) = simplify.substitute([sink], mapping)
    return found
