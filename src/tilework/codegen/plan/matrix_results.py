"""A contraction whose tile is computed in matrix registers: KERNEL with staged factors -> TILED.

    sum over k of dot(a[m, k], b[k, n])  ->  LOAD(STAGE(sum over blocks of k of DOT_MATRIX))

A tile of a plan is some registers along m and some along n, of which each is a part of its own
(`Unit.MATRIX`).  The sums go through TILE memory, register by register, so that what follows runs
over them by vectors along n.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.errors import PlanError
from tilework.base.records import dataclass
from tilework.codegen.analysis import depends_on, substitute_ranges
from tilework.codegen.plan.extents import number, size
from tilework.codegen.plan.matrix_tiling import parts_of_words
from tilework.dtypes import int32
from tilework.ir.build import const_bits, const_index
from tilework.ir.node import toposort
from tilework.ir.ops.control import STAGE, StageAttrs
from tilework.ir.ops.index import Unit
from tilework.ir.ops.matrix_registers import (
    DOT_MATRIX,
    LOAD_MATRIX,
    DotMatrixAttrs,
    MatrixRowsAttrs,
)
from tilework.ir.ops.memory import INDEX, LOAD
from tilework.ir.ops.tensor import REDUCE
from tilework.ir.symbolic import simplify
from tilework.ir.types import Memory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tilework.codegen.plan.apply import Application
    from tilework.codegen.plan.contraction import Contraction
    from tilework.ir.node import Node


@dataclass(frozen=True, slots=True)
class _Steps:
    """The range of k that fills matrix registers: its blocks, and what runs inside of one."""

    range_: Node
    blocks: Node
    inside: Node

    @property
    def value(self) -> Node:
        """The range as its two parts."""
        return simplify.add(simplify.mul(self.blocks, self.inside.src[0]), self.inside)


def in_matrices(
    application: Application, contraction: Contraction, factors: Mapping[Node, Node], sink: Node
) -> Node:
    """The sink with the sum of its contraction in matrix registers, then in TILE memory.

    Args:
        application: The plan at work.
        contraction: What is summed.
        factors: What staged factors have become.
        sink: The kernel with those in place.

    Raises:
        PlanError: A factor does not lie in rows as the instruction wants them.
    """
    (reduce,) = [node for node in toposort(sink) if node.op is REDUCE]
    rows, columns = _inside(application, contraction.m), _inside(application, contraction.n)
    steps = _steps(application, contraction)
    values = {**application.values, steps.range_: steps.value}
    a, b = (
        substitute_ranges(factors.get(factor, factor), values, {})
        for factor in (contraction.a, contraction.b)
    )
    zero = const_bits(0, reduce.dtype, (size(rows), size(columns)))
    value = DOT_MATRIX(
        _loaded(a, rows, steps.inside),
        _loaded(b, steps.inside, columns),
        zero,
        attrs=DotMatrixAttrs(*parts_of_words(contraction)),
    )
    loops = [steps.blocks if range_ is steps.range_ else range_ for range_ in reduce.src[1:]]
    total = REDUCE(value, *loops, attrs=reduce.attrs)
    tiles = [application.tile_parts[number(r)] for r in (*contraction.m, *contraction.n)]
    parts = [part for tile in tiles for part in tile]
    return _through_memory(application, sink, reduce, total, parts, columns)


def _inside(application: Application, own: tuple[Node, ...]) -> Node:
    """The part of a factor's ranges that runs inside of one register."""
    parts = [part for range_ in own for part in application.tile_parts[number(range_)]]
    (found,) = [part for part in parts if part.attrs.unit is Unit.MATRIX]
    return found


def _steps(application: Application, contraction: Contraction) -> _Steps:
    (range_,) = [r for r in contraction.k if application.plan.split_of(number(r)).tile]
    width = application.plan.split_of(number(range_)).tile_size
    blocks = application.numbers.range(size(range_) // width, Unit.LOOP)
    return _Steps(range_, blocks, application.numbers.range(width, Unit.MATRIX))


def _loaded(factor: Node, rows: Node, columns: Node) -> Node:
    """A factor as one matrix: `rows` moves to other rows of memory, `columns` along them."""
    place = _matrix_place(factor, rows, columns)
    if place is None:
        raise PlanError(
            "plan: a factor does not lie in rows of words, and is not copied", got=repr(factor)
        )
    start, stride = place
    attrs = MatrixRowsAttrs(size(rows), size(columns), stride)
    return LOAD_MATRIX(INDEX(factor.src[0].src[0], start), attrs=attrs)


def _matrix_place(factor: Node, rows: Node, columns: Node) -> tuple[Node, int] | None:
    """Where the first row of a factor starts, and how far apart rows are; None if it has none."""
    if factor.op is not LOAD or len(factor.src) > 1 or factor.dtype is not int32:
        return None
    start, total = simplify.terms(factor.src[0].src[1])
    rest = {term: times for term, times in total.items() if term not in (rows, columns)}
    if any(depends_on(term, inside) for term in rest for inside in (rows, columns)):
        return None
    stride = total.get(rows, 0)
    if total.get(columns, 0) != 1 or stride < 0:
        return None
    return simplify.plus(simplify.from_terms(0, rest), start), stride


def _through_memory(
    application: Application,
    sink: Node,
    reduce: Node,
    total: Node,
    parts: list[Node],
    columns: Node,
) -> Node:
    """The sink with `reduce` read from TILE memory, which holds the tile register by register.

    Args:
        application: The plan at work.
        sink: The kernel.
        reduce: Its sum.
        total: The sum in matrix registers.
        parts: The parts of the tile, rows first: what follows goes through them in that order.
        columns: The one of them that runs along a row of a register.
    """
    fresh = {
        part: application.numbers.range(part.src[0], Unit.LANE if part is columns else Unit.LOOP)
        for part in parts
    }
    registers = [part for part in parts if part.attrs.unit is not Unit.MATRIX]
    inside = [part for part in parts if part.attrs.unit is Unit.MATRIX]
    attrs = StageAttrs(Memory.TILE, len(application.plan.staged))
    stage = STAGE(total, *registers, attrs=attrs)
    position = const_index(0)
    for part in (*registers, *inside):
        position = simplify.add(simplify.mul(position, part.src[0]), fresh[part])
    values = {
        range_: substitute_ranges(value, fresh, {}) for range_, value in application.values.items()
    }
    # What the reduction was stands for its result until the ranges around it are replaced.
    done = {reduce: LOAD(INDEX(stage, position))}
    return substitute_ranges(sink, values, {}, done)
