"""The graph that scheduling works on: buffers with versions, kernels, and the steps of kernels.

A *step* is the evaluation of one TENSOR node at one index inside one kernel.  Steps are made from
results towards sources (indices flow that way), and built into values the other way round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.ir.node import make
from tilework.ir.ops.index import RANGE, VARIABLE, RangeAttrs
from tilework.ir.symbolic import dims
from tilework.ir.symbolic.simplify import TRUE
from tilework.schedule.passes.movement import ZERO, flatten, reshape_index
from tilework.schedule.schedule import SlotKind

if TYPE_CHECKING:
    from tilework.dtypes import DType
    from tilework.ir.node import Node
    from tilework.ir.ops.tensor import Fold
    from tilework.ir.types import Dim, Shape
    from tilework.schedule.passes.movement import Index
    from tilework.schedule.passes.stored import Stored


class Buffer:
    """Memory of one storage.  Writes in place give it further versions; version 0 is the first.

    `writers[v]` is the kernel that makes version v (none for version 0 of an input), `readers[v]`
    the kernels that load it, `partial[v]` whether v keeps elements of the version before.
    """

    __slots__ = (
        "device", "dtype", "kind", "latest", "number", "output_of", "partial", "readers", "shape",
        "stored", "writers",
    )  # fmt: skip

    def __init__(
        self, number: int, kind: SlotKind, shape: Shape, dtype: DType, device: str
    ) -> None:
        self.number = number
        self.kind = kind
        self.shape = shape
        self.dtype = dtype
        self.device = device
        self.latest = 0
        self.output_of: int | None = None
        #: How its elements lie in memory; None: row by row.
        self.stored: Stored | None = None
        self.partial: dict[int, bool] = {}
        self.writers: dict[int, Kernel] = {}
        self.readers: dict[int, list[Kernel]] = {}

    @property
    def size_bytes(self) -> int:
        """Bytes of the buffer, at its greatest size."""
        return dims.greatest(self.elements) * self.dtype.itemsize

    @property
    def elements(self) -> Dim:
        """Elements in memory, with those between rows."""
        return dims.product(self.shape if self.stored is None else self.stored.extents(self.shape))

    def writer_of(self, version: int) -> Kernel | None:
        """The kernel after which the buffer holds `version` (the last one that writes at all)."""
        for number in range(version, -1, -1):
            writer = self.writers.get(number)
            if writer is not None:
                return writer.find()
        return None

    def users_of(self, version: int) -> list[Kernel]:
        """The kernels that need what was written as `version`: readers, and a partial write."""
        found: list[Kernel] = []
        for number in range(version, self.latest + 1):
            if number > version and number in self.writers:
                if self.partial.get(number, True):
                    found.append(self.writers[number].find())
                break
            readers = self.readers.get(number)
            if readers is not None:
                found += _living(readers)
        return found

    def __repr__(self) -> str:
        return f"{self.kind.value} {self.number}"


class Step:
    """One node at one index of one kernel; `alias` is the step that took its place, if any."""

    __slots__ = (
        "alias", "buffer", "condition", "dtype", "index", "kernel", "node", "ranges", "shape",
        "src", "valid", "value", "version",
    )  # fmt: skip

    def __init__(self, kernel: Kernel, node: Node, index: Index, valid: Node) -> None:
        self.kernel = kernel
        self.node = node
        self.index = index
        self.valid = valid
        self.src: list[Step] = []
        self.alias: Step | None = None
        self.condition: Node = TRUE
        self.ranges: tuple[Node, ...] = ()
        #: A load: from this version of this buffer, read as this dtype.
        self.buffer: Buffer | None = None
        self.version = 0
        self.dtype: DType | None = None
        self.shape: Shape = node.type.shape
        self.value: Node | None = None

    def resolve(self) -> Step:
        """The step that stands for this one."""
        step = self
        while step.alias is not None:
            step = step.alias
        return step

    def flat(self) -> Node:
        """The offset of a load."""
        if self.buffer is not None and self.buffer.stored is not None:
            return self.buffer.stored.offset(self.index, self.shape)
        return flatten(self.index, self.shape)


class Store:
    """What a kernel writes: a step's value into a version of a buffer at an offset."""

    __slots__ = (
        "buffer", "fold", "gate", "offset", "position", "reason", "step", "valid", "version",
        "what",
    )  # fmt: skip

    def __init__(
        self, buffer: Buffer, version: int, offset: Node, step: Step, what: str, reason: str
    ) -> None:
        self.buffer = buffer
        self.version = version
        self.offset = offset
        self.step = step
        self.what = what
        self.reason = reason
        self.gate: Step | None = None
        self.valid: Node = TRUE
        self.fold: Fold | None = None
        #: Where the node stands in the order of nodes, if all that read it stand behind it.
        self.position: int | None = None


class Kernel:
    """Values computed over one index space, and where they are stored.

    `space` are the sizes of the output ranges.  `before` says for each range which ranges the loop
    nest has outside of it.  A `fixed` kernel is never joined with others.
    """

    __slots__ = (
        "before", "checked", "contracts", "copied_from", "device", "faults", "fixed", "index",
        "indices", "named", "names", "next_range", "parent", "pending", "position", "products",
        "range_sizes", "reads", "reduces", "seen_buffers", "size", "space", "spans", "steps",
        "stores", "work",
    )  # fmt: skip

    def __init__(self, position: int, space: Shape, device: str) -> None:
        self.position = position
        self.space = space
        self.device = device
        self.parent: Kernel | None = None
        self.fixed = False
        self.stores: list[Store] = []
        self.steps: list[Step] = []
        #: COPY, SORT and ALLREDUCE: the buffer versions that are copied, sorted or folded.
        self.copied_from: list[tuple[Buffer, int]] = []
        #: Versions that this kernel loads.
        self.reads: dict[tuple[Buffer, int], None] = {}
        self.seen_buffers: set[Buffer] = set()
        self.size = 0
        self.pending = 0
        self.work = 0.0
        self.reduces = 0
        self.contracts = False
        #: Contractions, and what is computed from one of them, that were asked for.
        self.products: set[Node] = set()
        self.index = ranges_of(space)
        self.next_range = sum(node.op is RANGE for node in self.index)
        self.range_sizes: dict[int, Node] = {}
        self.before: dict[Node, frozenset[Node]] = {}
        #: Placeholders for loaded indices, and the ranges that these depend on.
        self.names: dict[Node, frozenset[Node]] = {}
        self.named: dict[Node, Step] = {}
        #: Where an index must be within its axis: (where that matters, condition, code).
        self.faults: list[tuple[Node, Node, int]] = []
        self.checked: set[Node] = set()
        outer: frozenset[Node] = frozenset()
        for node in self.index:
            if node.op is RANGE:
                self.before[node] = outer
                self.range_sizes[node.attrs.number] = node.src[0]
                outer |= {node}
        self.spans: dict[Index, tuple[frozenset[Node], int]] = {}
        self.indices: dict[Shape, Index | None] = {}

    def find(self) -> Kernel:
        """The kernel that this one has become part of."""
        kernel = self.parent
        if kernel is None:
            return self
        while kernel.parent is not None:
            kernel = kernel.parent
        at = self
        while at.parent is not None and at.parent is not kernel:  # what was long is short from now
            at.parent, at = kernel, at.parent
        return kernel

    def size_of_space(self) -> int:
        """How many points the index space has, at the most."""
        return dims.greatest(dims.product(self.space))

    def index_for(self, shape: Shape) -> Index | None:
        """The output ranges as the index of an array of `shape` with as many elements, if so."""
        if shape in self.indices:
            return self.indices[shape]
        found = None
        if shape == self.space:
            found = self.index
        elif dims.product(shape) == dims.product(self.space):
            found = reshape_index(self.index, self.space, shape)
        self.indices[shape] = found
        return found

    def new_ranges(self, sizes: tuple[Dim, ...], outside: frozenset[Node]) -> tuple[Node, ...]:
        """Ranges for a REDUCE that depends on the ranges `outside`; ZERO for sizes of 1."""
        made = []
        for size in sizes:
            if size == 1:
                made.append(ZERO)
                continue
            node = make(RANGE, (dims.as_node(size),), RangeAttrs(self.next_range))
            self.range_sizes[self.next_range] = node.src[0]
            self.next_range += 1
            self.before[node] = outside
            outside |= {node}
            made.append(node)
        return tuple(made)

    def span(self, index: Index) -> tuple[frozenset[Node], int]:
        """The ranges that `index` depends on, and how often a value at it is computed.

        A value is computed at the loop level of its innermost range, so once for each value of
        all ranges outside of that one.
        """
        found = self.spans.get(index)
        if found is not None:
            return found
        ranges: set[Node] = set()
        for node in index:
            for leaf in leaves_in(node):
                if leaf.op is RANGE:
                    ranges.add(leaf)
                else:
                    ranges |= self.names.get(leaf, frozenset())
        nest = set(ranges)
        for node in ranges:
            nest |= self.before.get(node, frozenset())
        count = 1
        for node in nest:
            count *= dims.greatest(dims.as_dim(node.src[0]))
        result = (frozenset(ranges), count)
        self.spans[index] = result
        return result

    def loops_agree(self, other: Kernel) -> bool:
        """Do loops of one number have one size and one place in the nest, in both kernels?"""
        sizes, before = other.range_sizes, other.before
        return all(
            sizes.get(number, size) is size for number, size in self.range_sizes.items()
        ) and all(before.get(node, outside) == outside for node, outside in self.before.items())

    def is_nested(self, ranges: frozenset[Node]) -> bool:
        """Does a loop level see exactly these ranges (with each, all that are outside of it)?"""
        return all(self.before.get(node, frozenset()) <= ranges for node in ranges)


def _living(kernels: list[Kernel]) -> list[Kernel]:
    """What has become of `kernels`, each once.  They are replaced by it, to be short next time."""
    if any(kernel.parent is not None for kernel in kernels):
        kernels[:] = dict.fromkeys([kernel.find() for kernel in kernels])
    return kernels


def ranges_of(space: Shape) -> Index:
    """Output ranges 0, 1, ... over `space`, outermost first; ZERO for sizes of 1."""
    index = []
    number = 0
    for size in space:
        if size == 1:
            index.append(ZERO)
            continue
        index.append(make(RANGE, (dims.as_node(size),), RangeAttrs(number)))
        number += 1
    return tuple(index)


def leaves_in(node: Node) -> list[Node]:
    """The RANGEs and VARIABLEs of a (small) index expression."""
    if node.op is RANGE:
        return [node]
    found = []
    stack = [node]
    seen = set()
    while stack:
        top = stack.pop()
        if top in seen:
            continue
        seen.add(top)
        if top.op is RANGE or top.op is VARIABLE:
            found.append(top)
        else:
            stack.extend(top.src)
    return found
