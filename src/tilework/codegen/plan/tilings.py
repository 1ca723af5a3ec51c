"""All ways to tile a contraction, by vectors and by matrix registers, and the cheapest of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilework.base import settings
from tilework.codegen.plan.contraction import Contraction, orientations
from tilework.codegen.plan.extents import least_size, size
from tilework.codegen.plan.matrix_tiling import (
    MatrixTiling,
    has_stores_alone,
    instruction_for,
    matrix_shapes,
)
from tilework.codegen.plan.tile_contraction import Tiling
from tilework.ir.ops import math

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tilework.codegen.analysis import Kernel
    from tilework.codegen.plan.plan import Plan
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

#: The longest range that a tile holds whole beside its rows.
_LONGEST_GROUP: Final = 7
#: How much longer a sum of products in words takes where no instruction of vectors adds it up.
_WRITTEN_OUT: Final = 12.0
#: The best tilings of the kernels before: a kernel whose factors may be packed is asked about first
#: with and without that, and once more when it is lowered.
_known: Final[dict[tuple[Node, TargetSpec, object], tuple[tuple[float, Plan] | None]]] = {}
_MOST_KNOWN: Final = 16


def choose_contraction_plan(kernel: Kernel, target: TargetSpec) -> Plan | None:
    """The cheapest tiling of the kernel's contraction; None if it has none that can be tiled."""
    best = cheapest(kernel, target)
    return None if best is None else best[1]


def cheapest(kernel: Kernel, target: TargetSpec) -> tuple[float, Plan] | None:
    """The estimated cycles of the best tiling, and its plan."""
    key = (kernel.sink, target, settings.current().key(settings.Affects.CODE))
    known = _known.get(key)
    if known is None:
        best = min(tilings(kernel, target), key=lambda candidate: candidate[0], default=None)
        known = (best,)
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[key] = known
    return known[0]


def tilings(kernel: Kernel, target: TargetSpec) -> Iterator[tuple[float, Plan]]:
    """All tilings that are compared, each with its estimated cycles."""
    if any(least_size(r) != size(r) or size(r) < 1 for r in kernel.free.ranges):
        return  # sizes known at run time only: plain loops
    for swapped, contraction in enumerate(orientations(kernel)):
        product = contraction.reduce.src[0]
        is_native = product.op is math.MUL or product.op.name in target.native_ops
        factor = 1.0 if is_native else _WRITTEN_OUT
        for lane in contraction.n:
            if size(lane) < 2:
                continue
            for rows in _row_ranges(contraction):
                tiling = Tiling(kernel, contraction, lane, rows, target, bool(swapped))
                for cycles, plan in tiling.candidates():
                    yield factor * cycles, plan
            yield from _matrix_tilings(kernel, contraction, lane, target, bool(swapped))


def _matrix_tilings(
    kernel: Kernel, contraction: Contraction, lane: Node, target: TargetSpec, swapped: bool
) -> Iterator[tuple[float, Plan]]:
    """Tilings by the target's matrix instruction for the factors, if it has one."""
    instruction = instruction_for(contraction, target)
    if instruction is None or contraction.corrections or not has_stores_alone(kernel):
        return
    for row in [row for row in contraction.m if size(row) > 1]:
        for shape in matrix_shapes(instruction):
            tiling = MatrixTiling(
                kernel, contraction, lane, row, target, swapped, instruction, shape
            )
            yield from tiling.candidates()


def _row_ranges(contraction: Contraction) -> list[tuple[Node, Node | None]]:
    """Ranges for the rows of a tile: the last of m, or another with a short last one in a group."""
    *rest, last = contraction.m
    found: list[tuple[Node, Node | None]] = [(last, None)]
    if rest and 1 < size(last) <= _LONGEST_GROUP:
        found += [(row, last) for row in rest[-2:] if size(row) > 1]
    return found
