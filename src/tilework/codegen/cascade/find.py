"""Cascades: folds along one axis that depend on each other, and what is worth keeping of a row.

Softmax is one (max, then the sum of exp, then the quotients), attention another (scores, max, sum,
and a product with the values).  No function is known by name.  Bound ranges are given common names
first, so that what two loops compute alike becomes one node; then every costly node that several
loops would compute is kept in TILE memory, a row or a tile of rows long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.records import dataclass
from tilework.codegen.analysis import FreeRanges, Kernel, analyse, substitute_ranges
from tilework.codegen.cascade.cost import WORTH_KEEPING, Costs
from tilework.codegen.plan.extents import least_size, number, size
from tilework.ir.node import Node, toposort
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs
from tilework.ir.ops.memory import LOAD, SINK, STORE
from tilework.ir.ops.tensor import REDUCE, SCAN, Fold
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Larger kernels are not looked at, so that the analysis stays cheap.
_MOST_NODES = 2048


@dataclass(frozen=True, slots=True)
class Cascade:
    """What is kept for each row, in the order in which it is computed.

    Attributes:
        kernel: The kernel with common names for its bound ranges.
        rows: The output ranges that folds of a row depend on, outermost first.
        kept: The values that are kept; each depends on rows and perhaps on ranges along them.
        stores: The STOREs that come last.
        key: The one range along which scores are kept and everything is folded; None where a row
            has no scores (sums of products), or several such ranges.
        lasts: The folds over `key` in the stores.
    """

    kernel: Kernel
    rows: tuple[Node, ...]
    kept: tuple[Node, ...]
    stores: tuple[Node, ...]
    key: Node | None
    lasts: tuple[Node, ...]

    def along(self, node: Node) -> list[Node]:
        """The ranges other than rows that a value depends on."""
        return [range_ for range_ in self.kernel.free.of(node) if range_ not in self.rows]


def find_cascade(kernel: Kernel) -> Cascade | None:
    """What a kernel should keep of each row; None if nothing is worth it.

    Args:
        kernel: The kernel with its ranges normalised.
    """
    if not _may_be_one(kernel):
        return None
    sink = with_common_names(kernel)
    free = FreeRanges(toposort(sink))
    rows = _rows_of(sink, free)
    of_scores = not rows
    if of_scores:
        rows = _rows_of_scores(sink, free)
    if not rows:
        return None
    sink = _with_shared_stores(sink, rows)
    kernel = analyse(sink)
    kept = _Keeping(kernel, rows, of_scores=of_scores).kept()
    if not kept:
        return None
    order = tuple([node for node in kernel.order if node in kept])
    key, lasts = _key_of(kernel, rows, order)
    return Cascade(kernel, rows, order, tuple(kernel.stores), key, lasts)


def _key_of(
    kernel: Kernel, rows: tuple[Node, ...], kept: tuple[Node, ...]
) -> tuple[Node | None, tuple[Node, ...]]:
    """The range along which all that is kept of a row runs, and the last folds over it."""
    free = kernel.free
    along: set[Node] = set()
    has_scores = False
    for node in kept:
        own = [range_ for range_ in free.of(node) if range_ not in rows]
        along.update(own or node.src[1:])
        has_scores = has_scores or (bool(own) and node.op is REDUCE)
    if len(along) != 1 or not has_scores:
        return None, ()
    (key,) = along
    if any(free.mask[store] & free.bit(key) for store in kernel.stores):
        return None, ()
    lasts = [node for node in kernel.reduces if node not in kept and node.src[1:] == (key,)]
    return key, tuple(lasts)


def _may_be_one(kernel: Kernel) -> bool:
    return len(kernel.reduces) > 1 and has_plain_stores(kernel)


def has_plain_stores(kernel: Kernel) -> bool:
    """Does a kernel of known sizes only read, and then write without conditions, in any order?"""
    if len(kernel.order) > _MOST_NODES:
        return False
    if kernel.serial or kernel.read_and_written or len(kernel.stores) != len(kernel.sink.src):
        return False
    if any(len(store.src) > 2 for store in kernel.stores):
        return False
    if any(node.op is SCAN for node in kernel.order):
        return False
    return all(least_size(range_) == size(range_) > 0 for range_ in kernel.free.ranges)


# ---- names


def with_common_names(kernel: Kernel) -> Node:
    """Bound ranges of equal size and depth become one, so that equal bodies are one node.

    A fold's ranges must differ from those of the folds inside that depend on them, and from
    nothing else.
    """
    first = max(number(range_) for range_ in kernel.free.ranges) + 1
    names: dict[tuple[int, int, int], Node] = {}
    level_of: dict[Node, int] = {}
    done: dict[Node, Node] = {}
    for node in kernel.order:
        src = tuple([done[source] for source in node.src])
        if node.op is not REDUCE:
            done[node] = node if src == node.src else simplify.rebuild(node, src)
            continue
        bound = node.src[1:]
        level = 1 + _deepest(src[0], bound, level_of)
        fresh: dict[Node, Node] = {}
        for position, range_ in enumerate(bound):
            key = (level, position, size(range_))
            if key not in names:
                names[key] = RANGE(range_.src[0], attrs=RangeAttrs(first + len(names)))
                level_of[names[key]] = level
            fresh[range_] = names[key]
        value = substitute_ranges(src[0], fresh, {})
        done[node] = REDUCE(value, *fresh.values(), attrs=node.attrs)
    return done[kernel.sink]


def _deepest(body: Node, bound: tuple[Node, ...], level_of: dict[Node, int]) -> int:
    """The greatest level of the folds in a body that depend on the ranges `bound`."""
    inside = FreeRanges(toposort(body, *bound))
    mask = sum(inside.bit(range_) for range_ in bound)
    return max(
        (
            level_of[own]
            for node, reads in inside.mask.items()
            if node.op is REDUCE and reads & mask
            for own in node.src[1:]
        ),
        default=0,
    )


def _rows_of(sink: Node, free: FreeRanges) -> tuple[Node, ...]:
    """The output ranges of the folds that other ranges are computed with."""
    outputs = 0
    for store in sink.src:
        outputs |= free.mask[store]
    rows = 0
    for node, mask in free.mask.items():
        if node.op is REDUCE and not mask & ~outputs and mask != outputs:
            rows |= mask
    found = [range_ for i, range_ in enumerate(free.ranges) if rows >> i & 1]
    return tuple(sorted(found, key=number))


def _rows_of_scores(sink: Node, free: FreeRanges) -> tuple[Node, ...]:
    """The output ranges of sums of products that other folds run along; they must agree."""
    outputs = 0
    for store in sink.src:
        outputs |= free.mask[store]
    found: set[int] = set()
    for node, mask in free.mask.items():
        along = mask & ~outputs
        is_score = node.op is REDUCE and bool(along) and not along & (along - 1)
        if is_score and _is_product(node, free, mask & outputs):
            found.add(mask & outputs)
    if len(found) != 1:
        return ()
    (rows,) = found
    return tuple(sorted([r for i, r in enumerate(free.ranges) if rows >> i & 1], key=number))


def _is_product(node: Node, free: FreeRanges, rows: int) -> bool:
    """Is this a sum of products of a factor of rows and one that runs along them?"""
    product_ = node.src[0]
    if node.attrs.fold is not Fold.ADD or product_.op is not math.MUL:
        return False
    x, y = (free.mask[factor] for factor in product_.src)
    return bool((x ^ y) & rows) and bool((x ^ y) & free.mask[node] & ~rows)


def _with_shared_stores(sink: Node, rows: tuple[Node, ...]) -> Node:
    """Stores run over the names of folds where they then compute what those do.

    Those that run over the same ranges do so afterwards too: they stand in the same loops.
    """
    free = FreeRanges(toposort(sink))
    known = [node for node in free.mask if node.op is REDUCE]
    # In an order of their own: sets of nodes have another one in each process.
    bodies = dict.fromkeys(toposort(*(node.src[0] for node in known))) if known else {}
    together: dict[tuple[Node, ...], list[Node]] = {}
    for store in sink.src:
        own = tuple([range_ for range_ in free.of(store) if range_ not in rows])
        together.setdefault(own, []).append(store)
    new: dict[Node, Node] = {}
    for own, stores in together.items():
        new.update(zip(stores, _renamed(stores, own, rows, bodies, free), strict=True))
    return SINK(*[new[store] for store in sink.src])


def _renamed(
    stores: list[Node],
    own: tuple[Node, ...],
    rows: tuple[Node, ...],
    bodies: dict[Node, None],
    free: FreeRanges,
) -> list[Node]:
    """Stores over the ranges `own` over those of a fold that one of them shares a value with."""
    sizes = [size(range_) for range_ in own]
    tried: set[tuple[Node, ...]] = set()
    if not own or any(store.op is not STORE for store in stores):
        return stores
    for node in bodies:
        if not node.op.elementwise or not node.src:
            continue
        along = tuple([range_ for range_ in free.of(node) if range_ not in rows])
        if along in tried or [size(range_) for range_ in along] != sizes:
            continue
        tried.add(along)
        if any(_binds(store, own, along, free) for store in stores):
            continue
        values = dict(zip(own, along, strict=True))
        new = [substitute_ranges(store, values, {}) for store in stores]
        if any(_is_shared(part, along, bodies, free) for part in toposort(*new)):
            return new
    return stores


def _binds(store: Node, own: tuple[Node, ...], along: tuple[Node, ...], free: FreeRanges) -> bool:
    """Does a fold in a store, which depends on its ranges `own`, bind one of `along`?"""
    return any(
        part.op is REDUCE and _reads(free, part, own) and not set(along).isdisjoint(part.src[1:])
        for part in toposort(store)
    )


def _is_shared(
    node: Node, along: tuple[Node, ...], bodies: dict[Node, None], free: FreeRanges
) -> bool:
    """Is a node of a store what a fold computes too?"""
    if node not in bodies or not node.op.elementwise or not node.src:
        return False
    return node.type.dtype.is_float and _reads(free, node, along)


def _reads(free: FreeRanges, node: Node, ranges: Iterable[Node]) -> bool:
    return any(free.mask[node] & free.bit(range_) for range_ in ranges)


# ---- what is kept


class _Keeping:
    """Decides which values of a row are kept in memory."""

    def __init__(self, kernel: Kernel, rows: tuple[Node, ...], *, of_scores: bool) -> None:
        self.kernel = kernel
        self.of_scores = of_scores
        self.rows = sum(kernel.free.bit(range_) for range_ in rows)
        self.outputs = sum(kernel.free.bit(range_) for range_ in kernel.outputs)
        self.costs = Costs(kernel)

    def kept(self) -> set[Node]:
        """The values to keep; empty if no costly one is needed by several loops."""
        roots = {node for node in self.kernel.reduces if self._is_of_row(node)}
        kept = set(roots)
        costly = set[Node]()
        readers: dict[Node, set[Node]] = {}
        for node in reversed(self.kernel.order):
            if node.op is STORE or node in kept or self._is_last(node):
                context = {node}
            else:
                context = readers.get(node, set())
                if len(context) > 1 and self._is_costly(node):
                    kept.add(node)
                    costly.add(node)
                    context = {node}
            for factor in self._factors(node):
                kept.add(factor)
                costly.add(factor)
            sources = node.src[:1] if node.op is REDUCE else node.src
            for source in sources:
                readers.setdefault(source, set()).update(context)
        for node in reversed(self.kernel.order) if self.of_scores else ():
            if node in kept and self._runs_along(node):
                kept.update(self._products_in(node, kept))
        return kept if costly else set()

    def _is_of_row(self, node: Node) -> bool:
        """A fold whose result belongs to a row, read by further loops along it."""
        mask = self.kernel.free.mask[node]
        return not mask & ~self.rows and (mask != self.outputs or self.of_scores)

    def _is_last(self, node: Node) -> bool:
        return node.op is REDUCE and not self.kernel.free.mask[node] & ~self.outputs

    def _runs_along(self, node: Node) -> bool:
        """Has a kept value positions along a row, or is it a fold over them?"""
        return node.op is REDUCE or bool(self.kernel.free.mask[node] & ~self.rows)

    def _products_in(self, node: Node, kept: set[Node]) -> list[Node]:
        """The sums of products along a row that a kept value is computed from: kept as well.

        Each then has a loop, and so a register tile, of its own.
        """
        found: list[Node] = []
        seen: set[Node] = set()
        stack = [node.src[0]] if node.op is REDUCE else list(node.src)
        while stack:
            part = stack.pop()
            if part in seen or part in kept:
                continue
            seen.add(part)
            if part.op is not REDUCE:
                stack.extend(part.src)
            elif self.kernel.free.mask[part] & ~self.rows:
                found.append(part)
        return found

    def _is_costly(self, node: Node) -> bool:
        mask = self.kernel.free.mask[node]
        if not mask & ~self.rows or node.type.dtype.is_integer or node.op is LOAD:
            return False
        return node.op is REDUCE or self.costs.of(node) >= WORTH_KEEPING

    def _factors(self, node: Node) -> list[Node]:
        """The computed factors of a last sum of products that it would compute again and again."""
        if not self._is_last(node) or node.attrs.fold is not Fold.ADD:
            return []
        if self._is_of_row(node) or node.src[0].op is not math.MUL:
            return []
        free = self.kernel.free
        found = []
        for factor, other in (node.src[0].src, node.src[0].src[::-1]):
            own = free.mask[other] & ~free.mask[factor] & self.outputs
            allowed = self.rows | sum(free.bit(range_) for range_ in node.src[1:])
            if own and not free.mask[factor] & ~allowed and self._holds_fold(factor):
                found.append(factor)
        return found

    def _holds_fold(self, factor: Node) -> bool:
        """Is a factor computed from folds, so that computing it again is out of the question?"""
        return factor.op is not LOAD and any(part.op is REDUCE for part in toposort(factor))
