"""Contractions by products of single warps: what each thread copies, tiles, and their cost.

All ranges of m count as one, so do those of n and of k, as in tiles without matrix instructions: a
row of a convolution's factor may lie anywhere, since threads copy it piece by piece.  A slot holds
rows of 128 bytes whose chunks of 16 bytes are permuted, as in a ring that a copy engine fills:
along k, or along the factor's own ranges where those lie side by side and the elements can be
turned as they are loaded.

    copied      by asynchronous copies of 4 to 16 bytes, slots ahead of their use
    held        by loads into registers before the products, stored after them (Turing)
    computed    element by element: gathers, casts, dequantised and activated factors
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from tilework.base.records import replace
from tilework.codegen.analysis import Kernel, stride
from tilework.codegen.gpu.plan import GpuPlan
from tilework.codegen.matrix.arrays import loaded_by
from tilework.codegen.matrix.choose import cheapest, exact_instructions
from tilework.codegen.matrix.operands import is_plain_product, narrowed, of_one_dtype
from tilework.codegen.matrix.warp_cost import tiles_cycles
from tilework.codegen.matrix.warp_tiles import Factor, Filling, WarpTiles
from tilework.codegen.plan.contraction import Contraction, orientations
from tilework.codegen.plan.extents import ceil_div, number, product, size
from tilework.codegen.plan.offset_factors import OffsetFactor, offset_factor
from tilework.codegen.plan.plan import Part, Plan, Staged
from tilework.dtypes import int32, int64, uint32
from tilework.ir.node import toposort
from tilework.ir.ops.index import Unit
from tilework.ir.ops.memory import LOAD, PARAM
from tilework.ir.ops.tensor import REDUCE
from tilework.ir.symbolic import simplify
from tilework.ir.types import Memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.codegen.matrix.choose import Costed
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

#: Rows and columns of one warp, and warps along both.
_WARP_SIDES = (64, 32, 16)
_WARPS = (1, 2, 4)
_MOST_WARPS = 8
#: Registers of a thread that sums may take.
_SUM_REGISTERS = 128
#: Slots that are worth their memory, where copies run beside the threads and where threads hold.
_MOST_SLOTS, _HELD_SLOTS = 4, 2
#: Of tiles at least so much is no padding.
_LEAST_SHARE = 1 / 8
#: The least bytes of one copy; threads move the elements of shorter ones.
_LEAST_COPY_BYTES = 4


def choose_warp_plan(kernel: Kernel, target: TargetSpec) -> GpuPlan | None:
    """The plan with the least estimated time; None where such instructions do not apply."""
    found = best_tiles(kernel, target)
    return None if found is None else _plan(kernel, found.cut, swapped=found.swapped)


def best_tiles(kernel: Kernel, target: TargetSpec) -> Costed[WarpTiles] | None:
    """The tiles with the least estimated time; None where such instructions do not apply."""
    return cheapest(
        kernel,
        lambda contraction: _candidates(kernel, contraction, target),
        lambda tiles: tiles_cycles(kernel, tiles, target),
    )


def all_tiles(kernel: Kernel, target: TargetSpec) -> list[tuple[GpuPlan, WarpTiles]]:
    """Every plan that is tried, and the tiles that it describes."""
    return [
        (_plan(kernel, tiles, swapped=bool(swapped)), tiles)
        for swapped, contraction in enumerate(orientations(kernel))
        for tiles in _candidates(kernel, contraction, target)
    ]


def tiles_of(kernel: Kernel, plan: Plan, target: TargetSpec) -> WarpTiles | None:
    """The tiles that a plan describes; None if the kernel or the target has no such tiles."""
    return next((tiles for known, tiles in all_tiles(kernel, target) if known == plan), None)


def applies(target: TargetSpec) -> bool:
    """Has the machine products of warps, and none of warp groups, which go faster?"""
    units = {found.unit for found in target.matrix_instructions}
    return "warp" in units and "warp_group" not in units


# ---- factors


def _factors(
    kernel: Kernel, contraction: Contraction, target: TargetSpec
) -> tuple[Factor, Factor, tuple[Node, ...]] | None:
    """Both factors and the order of k; None where they are of two dtypes, or no loads."""
    offsets = _with_offsets(kernel, contraction)
    values = of_one_dtype(narrowed(contraction.a), narrowed(contraction.b))
    if offsets is not None:
        values = (offsets[0].narrow, offsets[1].narrow)
    if values is None or any(not _is_loaded(value) for value in values):
        return None
    k = _ordered(contraction.k, values, target)
    owns = (contraction.m, contraction.n)
    a, b = (_factor(value, own, k, target) for value, own in zip(values, owns, strict=True))
    if offsets is not None:
        a, b = (
            replace(factor, offset=found if found.has_offset else None)
            for factor, found in zip((a, b), offsets, strict=True)
        )
    return a, b, k


def _with_offsets(
    kernel: Kernel, contraction: Contraction
) -> tuple[OffsetFactor, OffsetFactor] | None:
    """Both factors as bytes and what is added to them, modulo 2**32; None where they are others.

    A sum in 64 bits is one of 32 where that is known to hold it.
    """
    result = contraction.reduce.type.dtype
    if result not in (int32, uint32, int64):
        return None
    a, b = (offset_factor(kernel, contraction.k, f) for f in (contraction.a, contraction.b))
    if a is None or b is None or not (a.is_bytes and b.is_bytes):
        return None
    if result is int64:
        intervals = a.interval(), b.interval()
        if None in intervals:
            return None
        tops = [max(map(abs, found)) for found in intervals if found is not None]
        if prod(tops) * product(contraction.k) > int32.maximum:
            return None
    return a, b


def _is_loaded(value: Node) -> bool:
    nodes = toposort(value)
    if value.type.shape or any(node.op is REDUCE for node in nodes):
        return False
    return any(node.op is LOAD for node in nodes)


def _ordered(k: Sequence[Node], values: Sequence[Node], target: TargetSpec) -> tuple[Node, ...]:
    """The ranges of k, the one along which most is moved at once last."""

    def rank(range_: Node) -> tuple[int, int]:
        order = [*(other for other in k if other is not range_), range_]
        return sum(_lanes(value, order, target) for value in values), size(range_)

    last = max(reversed(k), key=rank)
    return (*(range_ for range_ in k if range_ is not last), last)


def _factor(value: Node, own: tuple[Node, ...], k: tuple[Node, ...], target: TargetSpec) -> Factor:
    itemsize = value.type.dtype.itemsize
    along, across = _lanes(value, k, target), _lanes(value, own, target)
    # Elements of one byte cannot be turned.
    along_k = itemsize == 1 or along >= across
    lanes = along if along_k else across
    if lanes * itemsize < _LEAST_COPY_BYTES or lanes < 2 <= _LEAST_COPY_BYTES // itemsize:
        return Factor(value, own, along_k, Filling.COMPUTED, 1)
    return Factor(value, own, along_k, _engine(target, lanes * itemsize), lanes)


def _engine(target: TargetSpec, size_bytes: int) -> Filling:
    """Whether a copy engine moves so many bytes, from any place that is a multiple of them."""
    for engine in target.copy_engines:
        is_between = (engine.source_memory, engine.target_memory) == ("global", "shared")
        if is_between and max(engine.granularity_bytes, engine.alignment_bytes) <= size_bytes:
            return Filling.COPIED
    return Filling.HELD


def _lanes(value: Node, ranges: Sequence[Node], target: TargetSpec) -> int:
    """How many neighbours along the last of ranges that count as one are moved at once.

    They lie side by side, start at multiples of their size in the buffer, and are read or not as
    one, but for the end of a range that has no other beside it: a copy may have fewer elements.
    """
    range_ = ranges[-1]
    loaded = loaded_by(value)
    if loaded is None:
        return 1
    load, gates = loaded
    if load.src[0].src[0].op is not PARAM or stride(load.src[0].src[1], range_) != 1:
        return 1
    if any(range_ in toposort(gate) for gate in gates):
        return 1
    constant, total = simplify.terms(load.src[0].src[1])
    others = {term: step for term, step in total.items() if term is not range_}
    if any(range_ in toposort(term) for term in others):
        return 1
    itemsize = load.type.dtype.itemsize
    lanes = max(16 // itemsize, 1)
    while lanes > 1 and any(step % lanes for step in (constant, *others.values())):
        lanes //= 2
    may_end = product(ranges) == size(range_) and size(range_) >= lanes
    if may_end and _engine(target, lanes * itemsize) is Filling.COPIED:
        return lanes
    while lanes > 1 and size(range_) % lanes:
        lanes //= 2
    return lanes


# ---- tiles


def _candidates(kernel: Kernel, contraction: Contraction, target: TargetSpec) -> list[WarpTiles]:
    if not is_plain_product(contraction):
        return []
    found = _factors(kernel, contraction, target)
    if found is None:
        return []
    a, b, k = found
    if not applies(target) and not (a.dtype.is_integer and a.dtype.itemsize == 1):
        return []  # warp groups go faster; they take no offsets, nor bytes of two kinds
    instructions = exact_instructions(target, contraction, (a.dtype, b.dtype), "warp")
    return [
        tiles
        for instruction in instructions
        for warp_rows in _WARP_SIDES
        for warp_columns in _WARP_SIDES
        for down in _WARPS
        for across in _WARPS
        for tiles in _with_slots(
            WarpTiles(
                contraction,
                instruction,
                replace(a, rows=warp_rows * down),
                replace(b, rows=warp_columns * across),
                k,
                (down, across),
                0,
            ),
            target,
        )
    ]


def _with_slots(tiles: WarpTiles, target: TargetSpec) -> list[WarpTiles]:
    """The tiles with as many slots as fit and are of use; none where a limit is broken."""
    if prod(tiles.warps) > _MOST_WARPS or tiles.registers > _SUM_REGISTERS:
        return []
    shares = [
        product(ranges) / (ceil_div(product(ranges), side) * side)
        for ranges, side in (
            (tiles.contraction.m, tiles.a.rows),
            (tiles.contraction.n, tiles.b.rows),
        )
    ]
    if prod(shares) < _LEAST_SHARE:
        return []
    is_copied = any(factor.filling is Filling.COPIED for factor in (tiles.a, tiles.b))
    most = min(_MOST_SLOTS if is_copied else _HELD_SLOTS, max(tiles.steps, 2))
    fitting = target.limits.shared_memory_bytes // tiles.slot_bytes
    # More slots first: of plans that cost the same the first one is taken.
    return [replace(tiles, slots=slots) for slots in range(min(most, fitting), 1, -1)]


def _plan(kernel: Kernel, tiles: WarpTiles, *, swapped: bool) -> GpuPlan:
    nest = tuple((number(range_), 0) for range_ in kernel.outputs)
    sides = [
        (Part(Unit.WARP, warps), Part(Unit.UNROLL, rows))
        for warps, rows in zip(tiles.warps, tiles.warp_sides, strict=True)
    ]
    staged = tuple(
        Staged(operand, Memory.TILE, len(nest), factor.lanes, tiles.slots)
        for operand, factor in enumerate((tiles.a, tiles.b))
    )
    return GpuPlan(
        (), nest, len(nest), staged, False, swapped, tiles.instruction.name,
        rows=sides[0], columns=sides[1], depth=tiles.depth,
    )  # fmt: skip


__all__ = [
    "Factor",
    "Filling",
    "WarpTiles",
    "all_tiles",
    "applies",
    "best_tiles",
    "choose_warp_plan",
    "tiles_of",
]
