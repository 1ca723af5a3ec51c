"""Chains: sums of products whose factors are computed from other products, for matrix units.

The gradients of attention are some: scores and what arrives at the weights are products; what is
computed from both, element by element, is a factor of the next products, summed over keys or over
queries.  Its folds of rows lie in memory, or the kernel folds rows of such products and no more.

A block of threads has a tile of rows, of which it holds the arrays in TILE memory; those that run
along the key come block by block.  `Chain` says which is which, and in which order things are
computed: after each product one value of each of its elements stays in its registers, from which
all that comes later is computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.records import dataclass, replace
from tilework.codegen.cascade.find import find_cascade
from tilework.codegen.cascade.live import find_zeroing
from tilework.codegen.cascade.running import find_running
from tilework.codegen.matrix.arrays import Array, array_of, place_of, plain_load, whole_rows
from tilework.codegen.matrix.chain_values import ChainValues
from tilework.codegen.matrix.crew import Crew, Load, best_cut, crew_plan, crews_for
from tilework.codegen.plan.extents import ceil_div, number, size
from tilework.dtypes import float32
from tilework.ir.node import Node, toposort
from tilework.ir.ops import math
from tilework.ir.ops.tensor import REDUCE, Fold

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.codegen.analysis import Kernel
    from tilework.codegen.cascade.find import Cascade
    from tilework.codegen.cascade.running import Running
    from tilework.codegen.gpu.plan import GpuPlan
    from tilework.target.spec import TargetSpec

_MOST_COLUMNS = 256
_SLOTS = (2, 4)


@dataclass(frozen=True, slots=True)
class Product:
    """A sum of products over `inner`, of one array that the tile holds and one that moves."""

    node: Node
    row: Array
    key: Array

    @property
    def inner(self) -> Node:
        """The range that is summed."""
        return self.node.src[1]


@dataclass(frozen=True, slots=True)
class Sum:
    """A sum over the key of a factor that is computed, and an array that moves.

    Attributes:
        node: The REDUCE.
        factor: The factor, before it is rounded to 16 bits.
        values: The array.
        column: The range of the results besides the rows.
        stage: The last product that the factor needs.
    """

    node: Node
    factor: Node
    values: Array
    column: Node
    stage: int

    @property
    def columns(self) -> int:
        """Columns of the results."""
        return size(self.column)


@dataclass(frozen=True, slots=True)
class Chain:
    """A kernel of products of products.

    Attributes:
        cascade: What it computes.
        running: Its folds of rows, in one pass; None if it has none.
        row, key: The range of a tile's rows, and that along which blocks come.
        products: In the order in which they are needed.
        stays: For each product what is kept in its registers.
        sums: The last sums.
        mask: A choice, elsewhere than whose condition nothing counts.
        crew: Who computes.
        block: Positions of a block.
        slots: Blocks that are on their way at once.
        settles: A block ends when its sums are there: their factors would otherwise take registers
            beside the next block's products.
    """

    cascade: Cascade
    running: Running | None
    row: Node
    key: Node
    products: tuple[Product, ...]
    stays: tuple[Node, ...]
    sums: tuple[Sum, ...]
    mask: Node | None
    crew: Crew
    block: int = 0
    slots: int = 0
    settles: bool = False

    @property
    def others(self) -> tuple[Node, ...]:
        """The ranges of rows that are not tiled."""
        return tuple([range_ for range_ in self.cascade.rows if range_ is not self.row])

    @property
    def held(self) -> list[Array]:
        """The arrays that a tile holds, each once."""
        return _distinct([product.row for product in self.products], self.row)

    @property
    def moving(self) -> list[Array]:
        """The arrays that come block by block, each once."""
        arrays = [product.key for product in self.products]
        return _distinct([*arrays, *(each.values for each in self.sums)], self.key)


def _distinct(arrays: Sequence[Array], lines: Node) -> list[Array]:
    return list({place_of(array, lines): array for array in reversed(arrays)}.values())[::-1]


def find_chain(kernel: Kernel, target: TargetSpec) -> Chain | None:
    """The chain of a kernel for matrix units; None where it has none that suits them."""
    cascade = find_cascade(kernel)
    if cascade is None or cascade.key is None:
        return None
    running = find_running(cascade)
    folds = [n for n in cascade.kept if n.op is REDUCE and cascade.key in n.src[1:]]
    if bool(folds) == bool(cascade.lasts) or bool(folds) != (running is not None):
        return None
    parts = _Finding(cascade, running, target).chain()
    if parts is None:
        return None
    found, crews = parts
    staged = len(ChainValues(found).of_positions) * float32.itemsize

    def load_of(crew: Crew, block: int) -> Load:
        return _load(found, crew, block, staged)

    cut = best_cut(crews, load_of, target, _SLOTS)
    if cut is None:
        return None
    beside = _registers(found, cut.crew, cut.block, settles=False)
    settles = cut.crew.is_warps or not cut.crew.has_room(beside)
    return replace(found, crew=cut.crew, block=cut.block, slots=cut.slots, settles=settles)


def _load(chain: Chain, crew: Crew, block: int, staged_bytes: int) -> Load:
    """What a crew would have to do, at the least of registers."""
    held = sum(crew.rows * _row_bytes(array) for array in chain.held)
    slot = block * (sum(_row_bytes(array) for array in chain.moving) + staged_bytes)
    steps = ceil_div(size(chain.key), block)
    widths = [size(each.inner) for each in chain.products]
    widths += [crew.columns(each.columns) for each in chain.sums]
    registers = _registers(chain, crew, block, settles=True)
    if crew.is_warps:
        registers += crew.fragments(max(block, *(crew.columns(s.columns) for s in chain.sums), 0))
    return Load(chain.row, chain.others, steps, block, widths, held, slot, registers)


def _row_bytes(array: Array) -> int:
    """Bytes of a line of a slot."""
    return whole_rows(array.axes[0].size) * array.dtype.itemsize


def _registers(chain: Chain, crew: Crew, block: int, *, settles: bool) -> int:
    """Registers of a thread for sums, products, and factors on their way."""
    sums = sum(crew.sums(crew.columns(each.columns)) for each in chain.sums)
    # The first factor takes the place of what it is computed from.
    factors = max(len(chain.sums) - int(settles), 0) * crew.sums(block) // 2
    return sums + len(chain.products) * crew.sums(block) + factors


class _Finding:
    """Looks for the parts of a chain."""

    def __init__(self, cascade: Cascade, running: Running | None, target: TargetSpec) -> None:
        self.target = target
        self.cascade = cascade
        self.running = running
        self.free = cascade.kernel.free
        self.key = cascade.key
        self.scores = [n for n in cascade.kept if n.op is REDUCE and cascade.along(n)]

    def chain(self) -> tuple[Chain, list[Crew]] | None:
        """The chain without the size of its blocks, and who may compute it."""
        if self.key is None or not self.scores:
            return None
        needed = self._wanted()
        if needed is None:
            return None
        # What most values need comes first, and what exponentials are taken of: they take longest.
        raised = {
            part for n in self.cascade.kernel.order if n.op is math.EXP for part in toposort(n)
        }
        order = sorted(
            self.scores, key=lambda n: (-sum(n in each for each in needed), n not in raised)
        )
        products = [self._product(node) for node in order]
        rows = {self._row_of(each) for each in products if each is not None}
        known = [each for each in products if each is not None]
        if len(known) != len(products) or len(rows) != 1:
            return None
        (row,) = rows
        if row is None:
            return None
        sums = [self._sum(node, order) for node in self.cascade.lasts]
        made = sorted((each for each in sums if each is not None), key=lambda each: each.stage)
        stays = self._stays(order, made)
        if len(made) != len(sums) or stays is None:
            return None
        values = [each.factor for each in made]
        if self.running is not None:
            values = [self.running.term]
        mask = find_zeroing(self.cascade, values)
        arrays = [a for each in known for a in (each.row, each.key)]
        dtypes = {array.dtype for array in (*arrays, *(each.values for each in made))}
        crews = crews_for(self.target, dtypes.pop()) if len(dtypes) == 1 else []
        if not crews:
            return None
        parts = (row, self.key, tuple(known), stays, tuple(made), mask)
        return Chain(self.cascade, self.running, *parts, crews[0]), crews

    def _wanted(self) -> list[set[Node]] | None:
        """For each value that the products are for, those that it is computed from."""
        if self.running is None:
            roots = [node.src[0] for node in self.cascade.lasts]
        else:
            roots = [self.running.term, *(value for value, _ in self.running.sums.values())]
        found = [set(toposort(root)) & set(self.scores) for root in roots]
        return found if all(found) else None

    def _product(self, node: Node) -> Product | None:
        if node.attrs.fold is not Fold.ADD or node.src[0].op is not math.MUL or len(node.src) != 2:
            return None
        if node.type.dtype is not float32 or self.key is None:
            return None
        loads = [plain_load(factor) for factor in node.src[0].src]
        arrays = [None if load is None else self._array(load, node.src[1]) for load in loads]
        a, b = arrays
        if a is None or b is None:
            return None
        if self.key in a.ranges:
            a, b = b, a
        if self.key in a.ranges or self.key not in b.ranges:
            return None
        inner = node.src[1]
        is_fit = a.ranges[0] is b.ranges[0] is inner and _is_wide(size(inner))
        return Product(node, a, b) if is_fit else None

    def _row_of(self, product: Product | None) -> Node | None:
        """The range that runs along the rows of a product."""
        if product is None:
            return None
        own = [r for r in product.row.ranges if r in self.cascade.rows]
        own = [range_ for range_ in own if range_ not in product.key.ranges]
        # Heads that share what moves are rows as well, but only one range is tiled.
        return max(own, key=lambda range_: (size(range_), -number(range_)), default=None)

    def _sum(self, node: Node, order: Sequence[Node]) -> Sum | None:
        body = node.src[0]
        if node.attrs.fold is not Fold.ADD or body.op is not math.MUL or self.key is None:
            return None
        if node.type.dtype is not float32:
            return None
        own = [any(part in order for part in toposort(factor)) for factor in body.src]
        if own.count(True) != 1:
            return None
        factor, other = body.src if own[0] else body.src[::-1]
        load = plain_load(other)
        values = None if load is None else self._array(load, self.key)
        rounded = _rounded(factor)
        if values is None or rounded is None or self.key not in values.ranges:
            return None
        if rounded.type.dtype is not values.dtype:
            return None
        column = values.ranges[0]
        is_column = column is not self.key and column not in self.cascade.rows
        if not is_column or not _is_wide(size(column)):
            return None
        inside = set(toposort(rounded))
        stage = max(position for position, score in enumerate(order) if score in inside)
        return Sum(node, rounded.src[0], values, column, stage)

    def _array(self, load: Node, bound: Node) -> Array | None:
        allowed = [*self.cascade.rows, bound, *self.cascade.kernel.outputs]
        if self.key is not None:
            allowed.append(self.key)
        found = array_of(load.src[0], allowed)
        return None if found is None or not found.is_plain else found

    def _stays(self, order: Sequence[Node], sums: Sequence[Sum]) -> tuple[Node, ...] | None:
        """For each product the one value through which all later ones use it."""
        if self.running is not None:
            return ()
        found: list[Node] = []
        for stage, score in enumerate(order):
            value = self._frontier(stage, score, order, sums, found)
            if value is None:
                return None
            found.append(value)
        return tuple(found)

    def _frontier(
        self,
        stage: int,
        score: Node,
        order: Sequence[Node],
        sums: Sequence[Sum],
        before: Sequence[Node],
    ) -> Node | None:
        """The value that everything which needs a product is computed from.

        It must need no later product, and no choice by positions may come after it.
        """
        roots = [each.factor for each in sums]
        candidates = []
        for node in toposort(*roots):
            inside = set(toposort(node))
            needs = [i for i, each in enumerate(order) if each in inside]
            if score not in inside or max(needs) > stage or node.type.dtype is not float32:
                continue
            if all(self._goes_through(root, score, node, before) for root in roots):
                candidates.append(node)
        own = [each.factor for each in sums if each.stage == stage]
        last = [node for node in candidates if node in own] if len(own) == 1 else []
        chosen = last or candidates
        return chosen[-1] if chosen else None

    def _goes_through(self, root: Node, score: Node, value: Node, before: Sequence[Node]) -> bool:
        """Does `root` use `score` through `value` alone, and choose by no position above it?"""
        stack = [root]
        seen: set[Node] = set()
        while stack:
            node = stack.pop()
            if node is value or node in seen or node in before:
                continue
            seen.add(node)
            if node is score:
                return False
            stack.extend(node.src)
        return True


def _rounded(factor: Node) -> Node | None:
    """The cast by which a factor is rounded to 16 bits."""
    while factor.op is math.CAST and factor.type.dtype is float32:
        factor = factor.src[0]
    is_narrow = factor.op is math.CAST and factor.type.dtype.itemsize == 2
    return factor if is_narrow and factor.src[0].type.dtype is float32 else None


def _is_wide(columns: int) -> bool:
    return columns % 8 == 0 and columns <= _MOST_COLUMNS


def chain_plan(chain: Chain) -> GpuPlan:
    """The plan, as far as the words of plans say it."""
    return crew_plan(chain.crew, chain.others, chain.row, chain.key, chain.block)
