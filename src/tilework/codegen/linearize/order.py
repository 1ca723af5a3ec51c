"""Put the values of a LOWERED kernel in order: every node in the innermost loop that it needs.

Loops form a tree: a range stands inside the nearest range of lower number among those that occur
with it.  A value is placed in the block of its innermost range, so what does not change in a loop
is computed outside of it.  Reductions become accumulators: a variable set before the loop, updated
at the end of each iteration, read after it.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, NamedTuple

from tilework.base.errors import InternalError
from tilework.codegen.analysis import FreeRanges
from tilework.ir.build import const_bits
from tilework.ir.fold import fold_op, identity_bits
from tilework.ir.node import Node, toposort, toposort_above
from tilework.ir.ops import math
from tilework.ir.ops.control import ACCUMULATE, ACCUMULATOR, END, AccumulateAttrs
from tilework.ir.ops.index import RANGE
from tilework.ir.ops.matrix_registers import DOT_MATRIX
from tilework.ir.ops.memory import AFTER, LOAD, SINK, STORE
from tilework.ir.ops.program import LINEAR
from tilework.ir.ops.tensor import REDUCE, SCAN, Fold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


_SUMS_OF_PRODUCTS = frozenset({*math.DOTS, DOT_MATRIX})


def linearise(sink: Node, legalise: Callable[[Node], Node] | None = None) -> Node:
    """LOWERED -> LINEAR: the statements of a kernel in order, as the sources of one node.

    Args:
        sink: The kernel.
        legalise: Replaces the op by which an accumulator is updated where the target lacks it.

    Ensures: every source of a statement that is not a PARAM, CONST or ALLOCATE stands before it;
    RANGE opens a loop that END closes; values are defined in a block around their uses.
    """
    return _Linearisation(sink, legalise or _as_it_is).run()


class _Linearisation:
    def __init__(self, sink: Node, legalise: Callable[[Node], Node]) -> None:
        opened = _Opened(sink, legalise)
        self.sink, self.inside, self.leaves = opened.sink, opened.inside, opened.leaves
        self.context, self.folds = opened.context, opened.folds
        # A fold of a value that its loop does not change names the loop in `inside` alone.
        loops = frozenset[Node]().union(*self.inside.values())
        first = _by_operands(opened.products)
        self.order = toposort(*first, self.sink, *sorted(loops, key=_number))
        self.index = {node: i for i, node in enumerate(self.order)}
        self.free = FreeRanges(())
        self.blocks: dict[Node, Node | None] = {}  # node -> innermost range around it
        self.parents: dict[Node, Node | None] = {}  # range -> range around it
        self.items: dict[Node | None, list[Node]] = {}
        self.depth: dict[Node | None, int] = {None: 0}
        #: What stands for "all these come before all those" and is no statement.
        self.gates: set[Node] = set()

    def run(self) -> Node:
        self._place()
        edges = self._edges()
        statements: list[Node] = []
        self._emit(None, edges, statements)
        return LINEAR(*statements)

    # ---- blocks

    def _place(self) -> None:
        """Find for every node the ranges it needs, and from them its block."""
        needs: dict[Node, frozenset[Node]] = {}
        groups: set[frozenset[Node]] = set()
        for node in self.order:
            required: frozenset[Node] = frozenset()
            if node.op is SINK:
                needs[node] = required  # its stores have loops of their own, side by side
                continue
            for source in node.src:
                required |= needs[source]
            if node.op is RANGE:
                required |= {node}
            required |= self.context.get(node, frozenset())
            required |= self.inside.get(node, frozenset())
            if required:
                groups.add(required)
            required -= self.leaves.get(node, frozenset())
            needs[node] = required
            if required:
                groups.add(required)
        self._nest(groups)
        self._check_nest(self.folds)
        for node in self.order:
            inside = needs[node] - {node} if node.op is RANGE else needs[node]
            self.blocks[node] = max(inside, key=_number) if inside else None
        for range_, parent in self.parents.items():
            self.blocks[range_] = parent
        for node in self.order:
            if node.op is RANGE and node not in self.parents:
                self.parents[node] = None
        for range_ in sorted(self.parents, key=_number):
            parent = self.parents[range_]
            self.depth[range_] = self.depth[parent] + 1

    def _nest(self, groups: set[frozenset[Node]]) -> None:
        for group in groups:
            path = sorted(group, key=_number)
            for outer, inner in zip([None, *path], path, strict=False):
                known = self.parents.get(inner)
                if inner not in self.parents or (
                    outer is not None and (known is None or _number(outer) > _number(known))
                ):
                    self.parents[inner] = outer

    def _check_nest(self, folds: Iterable[tuple[frozenset[Node], frozenset[Node]]]) -> None:
        """Between a fold's accumulator and its update are its own loops and no other.

        In one more loop it would take in its values again each time.
        """
        for loops, around in folds:
            start = max(around, key=_number, default=None)
            block = max(loops, key=_number, default=start)
            while block is not None and block in loops:
                block = self.parents[block]
            if block is not start:
                raise InternalError(
                    "linearise: a fold would stand in a loop that it was not made for",
                    got=sorted(map(_number, loops)),
                    expected=f"inside of {sorted(map(_number, around))}",
                )

    # ---- order

    def _item(self, node: Node, block: Node | None) -> Node:
        """What stands for `node` in `block`: itself, or the loop in `block` that contains it."""
        inner = node if node.op is RANGE else self.blocks[node]
        if node.op is not RANGE and inner is block:
            return node
        while inner is not None and self.parents[inner] is not block:
            inner = self.parents[inner]
        if inner is None:
            raise InternalError("linearise: a node lies outside of the loop that uses it")
        return inner

    def _common(self, a: Node | None, b: Node | None) -> Node | None:
        while a is not b:
            if self.depth[a] >= self.depth[b]:
                a = self.parents[a] if a is not None else None
            else:
                b = self.parents[b] if b is not None else None
        return a

    def _edges(self) -> dict[Node | None, dict[Node, set[Node]]]:
        """For each block: item -> items that must come after it."""
        after: dict[Node | None, dict[Node, set[Node]]] = {None: {}}
        for node in self.order:
            if _is_free(node):
                continue
            if node.op is not RANGE:
                after.setdefault(self.blocks[node], {}).setdefault(node, set())
            else:
                after.setdefault(self.parents[node], {}).setdefault(node, set())
                after.setdefault(node, {})
        blocks = self.blocks
        for source, node in self._dependencies():
            if source.op is not RANGE and node.op is not RANGE:
                block = blocks[source]
                if block is blocks[node]:  # most of all
                    after[block].setdefault(source, set()).add(node)
                    continue
            start = source if source.op is RANGE else self.blocks[source]
            end = node if node.op is RANGE else self.blocks[node]
            if source.op is RANGE and self._inside(node, source):
                continue
            block = self._common(
                self.parents[source] if source.op is RANGE else start,
                self.parents[node] if node.op is RANGE else end,
            )
            first, second = self._item(source, block), self._item(node, block)
            if first is not second:
                after[block].setdefault(first, set()).add(second)
        return after

    def _inside(self, node: Node, range_: Node) -> bool:
        """Does `node` stand inside the loop over `range_`?"""
        block: Node | None = self.parents[node] if node.op is RANGE else self.blocks[node]
        while block is not None:
            if block is range_:
                return True
            block = self.parents[block]
        return False

    def _dependencies(self) -> Iterator[tuple[Node, Node]]:
        stores: dict[Node, list[Node]] = {}
        loads: dict[Node, list[Node]] = {}
        for node in self.order:
            for source in node.src:
                if source.src:  # see `_is_free`
                    yield source, node
            if node.op is STORE:
                stores.setdefault(node.src[0].src[0], []).append(node)
            elif node.op is LOAD:
                loads.setdefault(node.src[0].src[0], []).append(node)
        for buffer, writers in stores.items():
            # A load with more sources says itself which stores come first.
            readers = [load for load in loads.get(buffer, ()) if len(load.src) <= 2]
            yield from self._reads_first(readers, writers)

    def _reads_first(
        self, loads: Sequence[Node], stores: Sequence[Node]
    ) -> Iterator[tuple[Node, Node]]:
        """Each of `loads` before each of `stores`, in far fewer than all pairs.

        Which items of which block are compared depends on the blocks of the two nodes alone.  In
        one block, a gate stands between all that read and all that write.
        """
        by_block: dict[Node | None, tuple[list[Node], list[Node]]] = {}
        for side, nodes in enumerate((loads, stores)):
            for node in nodes:
                by_block.setdefault(self.blocks[node], ([], []))[side].append(node)
        for block, (readers, _) in by_block.items():
            for other, (_, writers) in by_block.items():
                if not readers or not writers:
                    continue
                if block is other:
                    gate = SINK(readers[0], writers[0])
                    self.blocks[gate] = block
                    self.gates.add(gate)
                    yield from ((reader, gate) for reader in readers)
                    yield from ((gate, writer) for writer in writers)
                else:
                    yield from ((reader, writers[0]) for reader in readers)
                    yield from ((readers[0], writer) for writer in writers)

    def _emit(
        self,
        block: Node | None,
        edges: dict[Node | None, dict[Node, set[Node]]],
        statements: list[Node],
    ) -> None:
        """Append the statements of a block, loops inside included, in a stable order."""
        stack: list[tuple[Node | None, list[Node]]] = [(block, self._sorted(edges[block]))]
        while stack:
            current, items = stack[-1]
            if not items:
                stack.pop()
                if current is not None:
                    statements.append(END(current))
                continue
            item = items.pop()
            if item in self.gates:
                continue
            statements.append(item)
            if item.op is RANGE:
                stack.append((item, self._sorted(edges.get(item, {}))))

    def _sorted(self, after: dict[Node, set[Node]]) -> list[Node]:
        """The items of a block in order, last first."""
        waiting = dict.fromkeys(after, 0)
        for followers in after.values():
            for item in followers:
                waiting[item] = waiting.get(item, 0) + 1
        # A gate has no place of its own: it is passed as soon as it opens.
        index = self.index
        ready = [
            (index.get(item, -1), i, item) for i, item in enumerate(waiting) if not waiting[item]
        ]
        heapq.heapify(ready)
        result: list[Node] = []
        serial = len(waiting)
        while ready:
            _, _, item = heapq.heappop(ready)
            result.append(item)
            for follower in after.get(item, ()):
                waiting[follower] -= 1
                if not waiting[follower]:
                    serial += 1
                    heapq.heappush(ready, (index.get(follower, -1), serial, follower))
        if len(result) != len(waiting):
            stuck = [item.op.name for item, count in waiting.items() if count]
            raise InternalError("linearise: statements wait for each other", got=", ".join(stuck))
        return result[::-1]


def _as_it_is(node: Node) -> Node:
    return node


def _number(range_: Node) -> int:
    return int(range_.attrs.number)


def _check_order(loops: frozenset[Node], around: frozenset[Node]) -> None:
    """The loops of a reduction have higher numbers than those around it: they stand inside."""
    if max(map(_number, around)) > min(map(_number, loops)):
        raise InternalError(
            "linearise: a reduction's loop would stand outside of those around it",
            got=sorted(map(_number, loops)),
            expected=f"numbers above {sorted(map(_number, around))}",
        )


def _is_free(node: Node) -> bool:
    """Needs no statement: literals, arguments, addresses (rendered where they are used)."""
    return not node.src and node.op is not RANGE


class _Product(NamedTuple):
    """An accumulator's update by a product, in the loops of its reduction."""

    loops: frozenset[Node]
    x: Node
    y: Node
    update: Node


def _by_operands(products: list[_Product]) -> list[Node]:
    """The updates of a register tile in an order that holds few operands in registers at a time.

    Of a tile's rows and columns, the side with fewer values is held; each value of the other side
    is used for all of them at once, and dropped.
    """
    groups: dict[frozenset[Node], list[_Product]] = {}
    for product in products:
        groups.setdefault(product.loops, []).append(product)
    ordered: list[Node] = []
    for group in groups.values():
        xs = {x: i for i, x in enumerate(dict.fromkeys(product.x for product in group))}
        ys = {y: i for i, y in enumerate(dict.fromkeys(product.y for product in group))}
        places = [(xs[product.x], ys[product.y], product.update) for product in group]
        if len(xs) < len(ys):
            places = [(y, x, update) for x, y, update in places]
        ordered += [update for *_, update in sorted(places, key=lambda place: place[:2])]
    return ordered


class _Opened:
    """The kernel with REDUCE, SCAN and END replaced by accumulators and plain effects.

    `inside` names the ranges in whose loops a node must stand, `leaves` those that are over when
    it is computed, `context` the ranges around an accumulator, for each of whose values it starts
    anew.
    """

    def __init__(self, sink: Node, legalise: Callable[[Node], Node]) -> None:
        self.legalise = legalise
        self.inside: dict[Node, frozenset[Node]] = {}
        self.leaves: dict[Node, frozenset[Node]] = {}
        self.context: dict[Node, frozenset[Node]] = {}
        order = toposort(sink)
        self.free = FreeRanges(order)
        self.around = _around(order, self.free)
        #: The loops of each fold, and those around it.
        self.folds: list[tuple[frozenset[Node], frozenset[Node]]] = []
        self.products: list[_Product] = []
        self.number = 0
        done: dict[Node, Node] = {}
        for node in order:
            src = tuple([done[source] for source in node.src])
            if node.op is REDUCE or node.op is SCAN:
                done[node] = self._accumulate(node, src[0], done)
            elif node.op is END:
                done[node] = self._close(src)
            else:
                done[node] = node if src == node.src else node.op(*src, attrs=node.attrs)
        self.sink = done[sink]

    def _close(self, src: tuple[Node, ...]) -> Node:
        stores = src[0].src if src[0].op is SINK else src[:1]
        loops = frozenset(src[1:])
        for store in stores:
            self.inside[store] = loops
        closed = AFTER(*stores)
        self.leaves[closed] = loops
        return closed

    def _accumulate(self, node: Node, value: Node, done: dict[Node, Node]) -> Node:
        fold = node.attrs.fold
        loops = frozenset(done[r] for r in node.src[1:])
        around = frozenset(done.get(r, r) for r in self.around[node]) - loops
        if node.op is REDUCE and loops and around:
            _check_order(loops, around)
        self.folds.append((loops, around))
        accumulator = self._variable(value, fold, around)
        if node.op is SCAN:
            return self._running(node, value, accumulator, loops | around)
        if fold is Fold.ADD and value.op is math.MUL and value.dtype.is_float:
            updated = math.MULACC(value.src[0], value.src[1], accumulator)
        elif fold is Fold.ADD and _is_plain_dot(value):
            updated = value.op(value.src[0], value.src[1], accumulator, attrs=value.attrs)
        else:
            updated = fold_op(fold, value.dtype)(accumulator, value)
        update = self._update(accumulator, accumulator, updated, loops | around)
        if value.op is math.MUL or value.op in _SUMS_OF_PRODUCTS:
            self.products.append(_Product(loops, value.src[0], value.src[1], update))
        result = AFTER(accumulator, update)
        self.leaves[result] = loops
        return result

    def _variable(self, value: Node, fold: Fold, around: frozenset[Node]) -> Node:
        """An accumulator for values like `value`, which starts from the identity."""
        initial = const_bits(identity_bits(fold, value.dtype), value.dtype, value.shape)
        accumulator = ACCUMULATOR(initial, attrs=AccumulateAttrs(self.number, fold))
        self.number += 1
        self.context[accumulator] = around
        return accumulator

    def _running(self, node: Node, value: Node, total: Node, loops: frozenset[Node]) -> Node:
        """A scan: the accumulator as it is in each iteration."""
        fold = node.attrs.fold
        if not node.attrs.exclusive:
            updated = fold_op(fold, value.dtype)(total, value)
            update = self._update(total, total, updated, loops)
            return AFTER(total, update)
        # What the accumulator held before its update is kept in a second one.
        before = self._variable(value, fold, self.context[total])
        keep = ACCUMULATE(before, total)
        held = AFTER(before, keep)
        updated = fold_op(fold, value.dtype)(held, value)
        update = self._update(total, held, updated, loops)
        result = AFTER(before, update)
        for statement in (keep, held, result):
            self.inside[statement] = loops
        return result

    def _update(self, accumulator: Node, held: Node, updated: Node, loops: frozenset[Node]) -> Node:
        """The ACCUMULATE of what `updated` becomes; all that reads `held` stands inside `loops`."""
        legal = self.legalise(updated)
        changing = {held}
        known = set(updated.src)
        for node in toposort_above([legal], known):
            if node not in known and not changing.isdisjoint(node.src):
                changing.add(node)
                self.inside[node] = loops
        update = ACCUMULATE(accumulator, legal)
        self.inside[update] = loops
        return update


def _around(order: list[Node], free: FreeRanges) -> dict[Node, set[Node]]:
    """The ranges around each fold: those that it depends on, and those around its loops.

    A loop that several folds share stands where the innermost of them must; one that does not
    depend on all ranges around it starts anew there as well.
    """
    folds = [node for node in order if node.op is REDUCE or node.op is SCAN]
    found = {node: set(free.of(node)).difference(node.src[1:]) for node in folds}
    # What is read in each step of a scan stands in its loop, with all loops that this is inside of.
    scanned = {node.src[1] for node in folds if node.op is SCAN}
    of_loop: dict[Node, set[Node]] = {loop: set() for loop in scanned}
    for node in order if scanned else ():
        free_here = free.of(node)
        for loop in scanned.intersection(free_here):
            of_loop[loop].update(r for r in free_here if _number(r) < _number(loop))
    is_growing = True
    while is_growing:
        is_growing = False
        for node in folds:
            shared = found[node]
            for loop in node.src[1:]:
                shared = shared | of_loop.get(loop, set())
            for loop in node.src[1:]:
                if of_loop.get(loop) != shared:
                    of_loop[loop] = shared
                    is_growing = True
            found[node] = shared
    return {node: ranges.difference(node.src[1:]) for node, ranges in found.items()}


def _is_plain_dot(value: Node) -> bool:
    """Whether a value is a sum of products of words to which nothing is added yet."""
    if value.op not in _SUMS_OF_PRODUCTS:
        return False
    added = value.src[2]
    return added.op is math.CONST and not added.attrs.bits
