"""Cascades in one pass: running values, rescaled where a greater maximum comes up.

Where a row's scores do not stay in the cache of a core, every block of the folded axis does all of
its work at once.  With x the scores, m the greatest so far, and sums over positions j so far

    l = sum exp(x_j - m)        o = sum exp(x_j - m) * v_j

a block that raises m to m' multiplies l and o by exp(m - m'), which is exactly 1 where the maximum
stays, and adds its own terms, computed with m'.  Factors of a row (the division by l) are applied
once, at the end.  The order is fixed: blocks one after the other, whatever the number of threads.

How far the result is off: a term of a sum is rescaled once for each later block that raises the
maximum, and each time is off by one rounding and the error of exp, as the terms themselves are; all
terms are divided by a power of 2 not below their number, so a sum overflows only where a mean of
its terms would.  Terms below 2**-149 times that power are lost, as they are beside the largest one.

Special values come out as in separate passes.  Until a score above -inf is seen, terms are taken
against 0 in the place of m, and are 0; a row that has none to its end is NaN, since -inf - -inf is.
A NaN or +inf among the scores makes m' or the terms NaN, and stays.  Where a term's factor v is
infinite and its weight underflows only beside a later maximum, 0 * inf gives NaN as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.records import dataclass
from tilework.codegen.cascade.phases import Group, Phases
from tilework.codegen.plan.extents import size
from tilework.dtypes import float32, float64
from tilework.ir.build import cast, const
from tilework.ir.node import Node, toposort
from tilework.ir.ops import math
from tilework.ir.ops.memory import INDEX, LOAD, SINK, STORE
from tilework.ir.ops.tensor import REDUCE, Fold

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tilework.codegen.cascade.find import Cascade
    from tilework.codegen.cascade.tile import Tile
    from tilework.ir.node import OpDef

#: A factor of a row: FDIV or MUL by a value that does not change along the row.
Outside = tuple["OpDef", Node]


@dataclass(frozen=True, slots=True)
class Running:
    """A cascade that one pass can compute.

    Attributes:
        most: The fold that gives the maximum.
        term: The exponential of a score less the maximum.
        sums: For each other fold what it sums, a product with `term`, and the factors of a row that
            are applied to the sum, the first one first.
        is_guarded: Does the kernel itself take terms against 0 where the maximum is -inf? Then a
            row of such scores has sums of 0, and no NaN.
    """

    most: Node
    term: Node
    sums: Mapping[Node, tuple[Node, tuple[Outside, ...]]]
    is_guarded: bool = False

    @property
    def score(self) -> Node:
        """What the maximum is taken of."""
        return self.most.src[0]


def find_running(cascade: Cascade) -> Running | None:
    """How to compute a cascade in one pass; None if its sums are no products with one exp."""
    key = cascade.key
    if key is None:
        return None
    folds = [n for n in (*cascade.kept, *cascade.lasts) if n.op is REDUCE and key in n.src[1:]]
    most = [fold for fold in folds if fold.attrs.fold is Fold.MAX]
    if len(most) != 1 or any(fold.attrs.fold is not Fold.ADD for fold in folds if fold not in most):
        return None
    others = set(folds)
    if any(part in others for part in toposort(most[0].src[0])):
        return None
    terms = [n for n in cascade.kept if n.op is math.EXP and _is_term(n, most[0])]
    if len(terms) != 1 or terms[0].type.dtype not in (float32, float64):
        return None
    sums = {}
    for fold in folds:
        if fold is most[0]:
            continue
        found = _product_with(fold.src[0], terms[0], cascade, others)
        if found is None:
            return None
        sums[fold] = found
    return Running(most[0], terms[0], sums, terms[0].src[0].src[1] is not most[0])


def _is_term(node: Node, most: Node) -> bool:
    difference = node.src[0]
    if difference.op is not math.SUB or difference.src[0] is not most.src[0]:
        return False
    return difference.src[1] is most or _is_guarded(difference.src[1], most)


def _is_guarded(reference: Node, most: Node) -> bool:
    """Is this 0 where the maximum is -inf, and else the maximum?"""
    dtype = most.type.dtype
    lowest = const(float("-inf"), dtype)
    is_empty = {math.EQ(most, lowest), math.EQ(lowest, most)}
    return (
        reference.op is math.WHERE
        and reference.src[0] in is_empty
        and reference.src[1:] == (const(0.0, dtype), most)
    )


def _product_with(
    value: Node, term: Node, cascade: Cascade, folds: set[Node]
) -> tuple[Node, tuple[Outside, ...]] | None:
    """A value as a product with `term`, without its factors of a row, and those."""
    if value is term:
        return term, ()
    if value.op is math.CAST:
        # Rounding to a narrower float goes before the factors of a row: the same relative error.
        found = _product_with(value.src[0], term, cascade, folds)
        kind = value.type.dtype
        return None if found is None or not kind.is_float else (cast(found[0], kind), found[1])
    if value.op is math.NEG:
        found = _product_with(value.src[0], term, cascade, folds)
        return None if found is None else (math.NEG(found[0]), found[1])
    if value.op is not math.MUL and value.op is not math.FDIV:
        return None
    free, key = cascade.kernel.free, cascade.key
    for position in (0, 1) if value.op is math.MUL else (0,):
        found = _product_with(value.src[position], term, cascade, folds)
        other = value.src[1 - position]
        if found is None:
            continue
        inner, outside = found
        if key is not None and not free.mask[other] & free.bit(key) and _holds(other, folds):
            return inner, (*outside, (value.op, other))
        other, own = _without_rows(other, cascade, folds)
        if value.op is math.FDIV or _holds(other, folds):
            return None
        src = (inner, other) if position == 0 else (other, inner)
        return math.MUL(*src), (*outside, *own)
    return None


def _without_rows(
    value: Node, cascade: Cascade, folds: set[Node]
) -> tuple[Node, tuple[Outside, ...]]:
    """A factor that does not hold the term, without its own factors of a row, and those."""
    free, key = cascade.kernel.free, cascade.key
    outside: list[Outside] = []
    while key is not None and value.op in (math.MUL, math.FDIV):
        inner, factor = value.src
        if value.op is math.MUL and not free.mask[inner] & free.bit(key):
            inner, factor = factor, inner
        if free.mask[factor] & free.bit(key) or not _holds(factor, folds):
            break
        outside.insert(0, (value.op, factor))
        value = inner
    return value, tuple(outside)


def _holds(value: Node, folds: set[Node]) -> bool:
    return any(part in folds for part in toposort(value))


class RunningPhases(Phases):
    """The phases of one pass: for each block scores, maximum, terms, and sums.

    Args:
        cascade: What is kept.
        running: How its sums are made.
        tile: How rows are cut.
        first_slot: The slot of the first memory.
    """

    def __init__(self, cascade: Cascade, running: Running, tile: Tile, first_slot: int) -> None:
        self.running = running
        super().__init__(cascade, tile, first_slot)
        dtype = running.most.type.dtype
        #: The maximum before a block, and what sums are multiplied by.
        self.before = self._memory(tile.rows, dtype)
        self.rescale = self._memory(tile.rows, dtype)
        length = 0 if cascade.key is None else size(cascade.key)
        self.power = 2.0 ** -max(length - 1, 1).bit_length()

    def _keep_all(self) -> None:
        for factor in self._gathered():
            self._keep(factor)
        for node in self.cascade.kept:
            if node.op is REDUCE or node is self.running.term:
                along = self.cascade.along(node) == [self.cascade.key]
                self._keep(node, length=self.tile.block if along else 0)
        for node in self.cascade.lasts:
            self._keep(node, rows_first=True)

    def groups(self) -> list[Group]:
        """The phases in order: what starts sums, blocks, and the stores."""
        most, term = self.running.most, self.running.term
        started, blocks = self._first_group(), Group([])
        for node in self.memories:
            if node is most:
                low = const(float("-inf"), most.type.dtype)
                started.sinks.append(self._placed(self._row_store(self.before, low), {}))
                blocks.sinks += self._raise_maximum()
            elif node is term:
                blocks.sinks.append(self._term())
            elif node in self.running.sums:
                started.sinks.append(self._placed(self._zero(node), {}))
                blocks.sinks.append(self._add(node))
            elif self._runs_along(node):
                blocks.sinks.append(self._map(node))
            else:
                started.sinks.append(self._placed(self._map(node), {}))
        made = [started, *self._in_blocks(blocks)]
        self._local = self._final_values()
        made[-1].sinks += self._last_phases()
        return made

    # ---- phases

    def _row_store(self, param: Node, value: Node) -> Node:
        return SINK(STORE(INDEX(param, self._inside), value))

    def _row(self, param: Node) -> Node:
        return LOAD(INDEX(param, self._inside))

    def _most(self) -> Node:
        return self._value(self.running.most)

    def _reference(self) -> Node:
        """What terms are taken against: the maximum, or 0 while that is -inf."""
        most = self._most()
        zero = const(0.0, most.type.dtype)
        return math.WHERE(math.EQ(most, const(float("-inf"), most.type.dtype)), zero, most)

    def _raise_maximum(self) -> list[Node]:
        node = self.running.most
        memory = self.memories[node]
        raised = math.MAXIMUM(self._row(self.before), self._body(node))
        factor = math.EXP(math.SUB(self._row(self.before), self._reference()))
        return [
            SINK(STORE(INDEX(memory.param, self._offset(memory)), raised)),
            self._row_store(self.rescale, factor),
            self._row_store(self.before, self._most()),
        ]

    def _term(self) -> Node:
        memory = self.memories[self.running.term]
        score = self._value(self.running.score)
        raised = math.EXP(math.SUB(score, self._reference()))
        value = math.MUL(raised, const(self.power, raised.type.dtype))
        return SINK(STORE(INDEX(memory.param, self._offset(memory)), value))

    def _zero(self, node: Node) -> Node:
        memory = self.memories[node]
        zero = const(0.0, node.type.dtype)
        return SINK(STORE(INDEX(memory.param, self._offset(memory)), zero))

    def _add(self, node: Node) -> Node:
        memory = self.memories[node]
        address = INDEX(memory.param, self._offset(memory))
        body = self._value(self.running.sums[node][0])
        block = REDUCE(body, *node.src[1:], attrs=node.attrs)
        rescaled = math.MUL(LOAD(address), self._row(self.rescale))
        return SINK(STORE(address, math.ADD(rescaled, block)))

    # ---- what the stores read

    def _final_values(self) -> dict[Node, Node]:
        """The folds as they are in the end; everything else is computed from these again."""
        most = self._most()
        is_empty = math.EQ(most, const(float("-inf"), most.type.dtype))
        values: dict[Node, Node] = {self.running.most: most}
        for node, (_, outside) in self.running.sums.items():
            memory = self.memories[node]
            dtype = node.type.dtype
            total: Node = LOAD(INDEX(memory.param, self._offset(memory)))
            if self.masked is not None:
                total = math.ADD(total, self._if_any(self._skipped(node, self.masked)))
            if not self.running.is_guarded:
                total = math.WHERE(is_empty, const(float("nan"), dtype), total)
            values[node] = self._with_factors(total, outside, values)
        return values

    def _with_factors(
        self, total: Node, outside: tuple[Outside, ...], values: dict[Node, Node]
    ) -> Node:
        """A sum with the factors of its row; the power of 2 goes into a first division."""
        dtype = total.type.dtype
        if not outside or outside[0][0] is not math.FDIV:
            total = math.MUL(total, const(1 / self.power, dtype))
            scaled = 1.0
        else:
            scaled = self.power
        for op, factor in outside:
            known = self._valued(factor, values)
            total = op(total, math.MUL(known, const(scaled, dtype)) if scaled != 1.0 else known)
            scaled = 1.0
        return total

    def _valued(self, root: Node, values: dict[Node, Node]) -> Node:
        """`root` computed from the final values of folds."""
        done = dict(values)
        for node in toposort(root):
            if node not in done:
                done[node] = self._rebuilt(node, tuple([done[source] for source in node.src]))
        return done[root]
