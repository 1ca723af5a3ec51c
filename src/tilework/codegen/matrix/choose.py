"""Tiles, warp groups and depth of a ring for a contraction, by a cost model.

A tile takes as long as the slowest of three: the matrix unit, the reads of TILE memory that it
makes, and the copies from the cache that all share.  Tiles run in waves over the machine's
multiprocessors; a last wave that is not full counts as a full one.  All of it takes as long as the
operands need to come from far memory once.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Generic, TypeVar

from tilework.base import settings
from tilework.base.records import dataclass, replace
from tilework.codegen.analysis import Kernel, stride
from tilework.codegen.gpu.plan import GROUP_THREADS, GpuPlan
from tilework.codegen.matrix.arrays import ROW_BYTES
from tilework.codegen.matrix.exchange import Exchange, Tile, exchange_of
from tilework.codegen.matrix.operands import Operand, is_plain_product, operands_of
from tilework.codegen.plan.contraction import Contraction, orientations
from tilework.codegen.plan.extents import ceil_div, number, product, size
from tilework.codegen.plan.plan import Part, Plan, Split, Staged
from tilework.dtypes import float32, int32
from tilework.ir.node import toposort
from tilework.ir.ops.index import Unit
from tilework.ir.ops.memory import STORE
from tilework.ir.types import Memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilework.dtypes import DType
    from tilework.ir.node import Node
    from tilework.target.spec import MatrixInstruction, TargetSpec

#: A way to cut a contraction: a ring, or tiles of warps.
Cut = TypeVar("Cut")
#: The unit whose products run beside other work and read TILE memory.
_UNIT = "warp_group"
#: Multiply-adds of 16-bit operands in one cycle of a multiprocessor; narrower ones go faster.
_PRODUCTS_PER_CYCLE = 2048
#: Bytes a cycle and multiprocessor from TILE memory, and from the cache that all share; few that
#: read get hardly more than all do.
_TILE_BYTES, _NEAR_BYTES = 128.0, 44.0
#: The share of the far memory's bandwidth that copies reach, and how much of the shorter of work
#: and far reads is not hidden by the longer.
_FAR_SHARE, _OVERLAP = 0.9, 0.1
#: Cycles until the first slot has come, and for each 1024 results of a tile at its end.
_START, _FINISH = 1500.0, 48.0
#: TILE memory that stays free for signals and alignment.
_RESERVED_BYTES = 2048
_MOST_SLOTS = 8
#: Slots that hide what copies of operands take.
_ENOUGH_SLOTS = 3
#: Of tiles whose slots are filled by threads at least so much is no padding.
_LEAST_SHARE = 1 / 16
#: Cycles in which a thread fills one element of a slot, and for each node that computes it.
_FILL, _FILL_NODE = 60.0, 1.0
#: Cycles that a slot takes besides, until its first elements are there (3 x 3 windows of one image
#: of 56 to 7 lines, 64 to 512 channels: 4.75, 6.17, 10.2 and 20.8 us a convolution).
_FILL_WAIT = 150.0
#: Registers of one thread that sums may take.
_SUM_REGISTERS = 128
#: Places of one axis that a box may span.
_MOST_BOX = 256


@dataclass(frozen=True, slots=True)
class Ring:
    """A contraction with its operands cut into slots.

    Attributes:
        contraction: What is computed; its factor `a` gives the rows.
        instruction: The matrix instruction of the target.
        a, b: The operands.
        groups: Warp groups, each with its own rows of a tile.
        slots: Slots of the ring.
        exchange: What moves in boxes besides: results, and what is loaded for each of them; None
            where results leave one by one.
    """

    contraction: Contraction
    instruction: MatrixInstruction
    a: Operand
    b: Operand
    groups: int
    slots: int
    exchange: Exchange | None = None

    @property
    def columns(self) -> int:
        """Columns of a tile."""
        return self.instruction.n

    @property
    def others(self) -> list[Node]:
        """The output ranges of which a tile has one value each."""
        contraction = self.contraction
        tiled = {*self.a.own, *self.b.own}
        ranges = (*contraction.batch, *contraction.m, *contraction.n)
        return [range_ for range_ in ranges if range_ not in tiled]

    @property
    def tiles(self) -> int:
        """How many tiles there are."""
        return product(self.others) * self.a.tiles * self.b.tiles

    @property
    def steps(self) -> int:
        """How many slots one tile takes."""
        inner = ceil_div(size(self.a.inner), self.a.depth)
        return inner * product([r for r in self.contraction.k if r is not self.a.inner])

    @property
    def rows(self) -> int:
        """Rows of a tile."""
        return self.groups * self.instruction.m

    @property
    def is_promoted(self) -> bool:
        """Are sums inside of the matrix unit too short, so that each slot's go to float32?"""
        return self.a.dtype.is_float and self.a.dtype.itemsize == 1

    @property
    def registers(self) -> int:
        """Registers of one thread for sums."""
        return self.instruction.m * self.columns // GROUP_THREADS * (1 + self.is_promoted)

    @property
    def slot_bytes(self) -> int:
        """Bytes of one slot of both operands."""
        a = self.a.slot_elements * self.a.dtype.itemsize
        return a + self.b.slot_elements * self.b.dtype.itemsize

    def results(
        self,
        kernel: Kernel,
        known: Callable[[Node, int], dict[Node, Node]],
        shift: Callable[[int], None] | None = None,
    ) -> Tile:
        """What becomes of a tile's sums, given the nodes that they are the values of."""
        return Tile(
            tuple(kernel.stores),
            tuple(zip(self.a.own, self.a.parts, strict=True)),
            tuple(zip(self.b.own, self.b.parts, strict=True)),
            tuple(self.others),
            self.instruction.m,
            known,
            shift=shift,
        )


def choose_ring_plan(kernel: Kernel, target: TargetSpec) -> GpuPlan | None:
    """The plan with the least estimated time; None where matrix instructions do not apply."""
    found = best_ring(kernel, target)
    return None if found is None else _plan(found.cut, found.swapped)


@dataclass(frozen=True, slots=True)
class Costed(Generic[Cut]):
    """A way to cut a contraction, which orientation of it that is of, and its estimated cycles."""

    cut: Cut
    swapped: bool
    cycles: float


def cheapest(
    kernel: Kernel, cuts_of: Callable[[Contraction], list[Cut]], cycles_of: Callable[[Cut], float]
) -> Costed[Cut] | None:
    """The cut with the least estimated time; None where there is none.

    Args:
        kernel: A kernel.
        cuts_of: The ways to cut one orientation of its contraction.
        cycles_of: What one of them takes.
    """
    if kernel.overwritten or any(effect.op is not STORE for effect in kernel.sink.src):
        return None
    best: Costed[Cut] | None = None
    for swapped, contraction in enumerate(orientations(kernel)):
        for cut in cuts_of(contraction):
            cycles = cycles_of(cut)
            if best is None or cycles < best.cycles:
                best = Costed(cut, bool(swapped), cycles)
    return best


def best_ring(kernel: Kernel, target: TargetSpec) -> Costed[Ring] | None:
    """The ring with the least estimated time; None where matrix instructions do not apply."""
    return cheapest(
        kernel,
        lambda contraction: _rings(kernel, contraction, target),
        lambda ring: ring_cycles(kernel, ring, target),
    )


def all_rings(kernel: Kernel, target: TargetSpec) -> list[tuple[GpuPlan, Ring]]:
    """Every plan that is compared, and the ring that it describes."""
    return [
        (_plan(ring, bool(swapped)), ring)
        for swapped, contraction in enumerate(orientations(kernel))
        for ring in _rings(kernel, contraction, target)
    ]


def ring_of(kernel: Kernel, plan: Plan, target: TargetSpec) -> Ring | None:
    """The ring that a plan describes; None if the kernel or the target has no such ring."""
    found = orientations(kernel)
    if not plan.matrix or len(found) <= int(plan.swapped):
        return None
    for ring in _rings(kernel, found[int(plan.swapped)], target):
        if _plan(ring, plan.swapped) == plan:
            return ring
    return None


def _rings(kernel: Kernel, contraction: Contraction, target: TargetSpec) -> list[Ring]:
    if not is_plain_product(contraction):
        return []
    operands = operands_of(contraction)
    if operands is None:
        return []
    a, b = operands
    found = []
    for instruction in exact_instructions(target, contraction, (a.dtype, b.dtype), _UNIT):
        if instruction.n * b.dtype.itemsize % ROW_BYTES and not b.along_k:
            continue  # rows along n are whole
        depth = ROW_BYTES // a.dtype.itemsize
        for groups in (1, 2):
            first = replace(a, parts=parts_of(a, groups * instruction.m), depth=depth)
            second = replace(b, parts=parts_of(b, instruction.n), depth=depth)
            ring = Ring(contraction, instruction, first, second, groups, 0)
            if 0 in (*first.parts, *second.parts):
                continue
            if ring.registers <= _SUM_REGISTERS and not _is_mostly_padding(ring):
                found.extend(_with_slots(kernel, ring, target))
    return found


def _is_mostly_padding(ring: Ring) -> bool:
    """Would threads fill slots of which next to nothing is used?"""
    if ring.a.array is not None and ring.b.array is not None:
        return False
    pairs = [(ring.a.inner, ring.a.depth)]
    for operand in (ring.a, ring.b):
        pairs += zip(operand.own, operand.parts, strict=True)
    return prod(size(r) / (ceil_div(size(r), tile) * tile) for r, tile in pairs) < _LEAST_SHARE


def parts_of(operand: Operand, rows: int) -> tuple[int, ...]:
    """How many values of each own range make a tile's rows, so that the fewest tiles are cut."""
    if len(operand.own) == 1:
        return (rows,)
    sizes = tuple(size(range_) for range_ in operand.own)
    limits = tuple(_most_of(operand, range_) for range_ in operand.own)
    return _fewest_tiles(rows, sizes, limits)


def _most_of(operand: Operand, range_: Node) -> int:
    """The most values of a range in one box: the copy engine counts the places that it passes."""
    if operand.array is None:
        return _MOST_BOX
    for axis in operand.array.axes:
        if range_ in axis.ranges:
            return _MOST_BOX // axis.steps[axis.ranges.index(range_)]
    return _MOST_BOX


@lru_cache(maxsize=4096)
def _fewest_tiles(rows: int, sizes: tuple[int, ...], limits: tuple[int, ...]) -> tuple[int, ...]:
    """Factors of `rows`, one for each size; of equally good ones those that are even first."""
    most = min(rows, limits[0])
    found: list[tuple[int, tuple[int, ...]]] = []
    for first in range(1, most + 1):
        if rows % first:
            continue
        if len(sizes) == 1:
            rest: tuple[int, ...] = () if first == rows else (0,)
        else:
            rest = _fewest_tiles(rows // first, sizes[1:], limits[1:])
        if 0 in rest:
            continue
        parts = (first, *rest)
        tiles = prod(ceil_div(extent, part) for extent, part in zip(sizes, parts, strict=True))
        found.append((tiles, parts))
    if not found:
        return (0,) * len(sizes)
    # Whole vectors of neighbours are easier to store.
    return min(found, key=lambda each: (each[0], each[1][0] % 8 != 0, -each[1][0]))[1]


def exact_instructions(
    target: TargetSpec, contraction: Contraction, operands: tuple[DType, DType], unit: str
) -> list[MatrixInstruction]:
    """Those of a unit whose sums are what the kernel asks for, or differ as the settings allow."""
    result = contraction.reduce.type.dtype
    shortened = "tf32" if settings.current().allow_tf32 else ""
    names = [shortened if operand is float32 else operand.name for operand in operands]
    if operands[0].is_float:
        accumulator = result.name
    else:
        is_exact = all(_sums_are_exact(contraction, operand) for operand in operands)
        accumulator = "int32" if is_exact else ""
    memory = "shared" if unit == _UNIT else "register"
    return [
        found
        for found in target.matrix_instructions
        if found.unit == unit
        and [found.a_dtype, found.b_dtype] == names
        and found.accumulator_dtype == accumulator
        and found.b_memory == memory
    ]


def _sums_are_exact(contraction: Contraction, operand: DType) -> bool:
    """Is a sum of products in 32 bits, modulo 2**32, what the kernel asks for?"""
    result = contraction.reduce.type.dtype
    if not result.is_integer or result.bits < 2 * operand.bits:
        return False
    most = max(-operand.minimum, operand.maximum) ** 2 * product(contraction.k)
    return result.bits <= int32.bits or most <= int32.maximum


def _with_slots(kernel: Kernel, ring: Ring, target: TargetSpec) -> list[Ring]:
    """The ring with as many slots as fit beside what else moves in boxes.

    What is loaded for each result comes in boxes where enough slots are left.
    """
    reduce = ring.contraction.reduce
    tile = ring.results(kernel, lambda position, half: {reduce: position})
    found = exchange_of(tile)
    choices = [found, None]
    if found is not None and found.operands:
        choices.insert(1, found.without_operands(tile))
    for exchange in choices:
        room = target.limits.shared_memory_bytes - _RESERVED_BYTES
        room -= 0 if exchange is None else ring.groups * exchange.group_bytes
        slots = min(room // ring.slot_bytes, _MOST_SLOTS)
        if slots >= (_ENOUGH_SLOTS if exchange is not None and exchange.operands else 2):
            return [replace(ring, slots=slots, exchange=exchange)]
    return []


def ring_cycles(kernel: Kernel, ring: Ring, target: TargetSpec) -> float:
    """About how many cycles all tiles take; see the module's docstring."""
    contraction = ring.contraction
    units = max(target.unit("grid").count, 1)
    itemsize = ring.a.dtype.itemsize
    compute = ring.rows * ring.columns * ring.a.depth / _PRODUCTS_PER_CYCLE * itemsize / 2
    reads = ring.groups * (ring.instruction.m + ring.columns) * ROW_BYTES / _TILE_BYTES
    near = _copied_bytes(ring) / _NEAR_BYTES
    finish = _START + ring.rows * ring.columns / 1024 * _FINISH
    if any(stride(s.src[0].src[1], ring.b.own[0]) != 1 for s in kernel.stores):
        finish *= 4  # results leave one by one
    waves = ceil_div(ring.tiles, units)
    fill = sum(_fill_cycles(operand) for operand in (ring.a, ring.b))
    work = waves * (ring.steps * max(compute, reads, near, fill) + finish)
    shared = [*contraction.batch, *contraction.k]
    elements = product([*shared, *contraction.m]) + product([*shared, *contraction.n])
    far = next(memory for memory in target.memories if memory.name == "global")
    moved = elements * itemsize / (far.bandwidth_bytes_per_cycle * _FAR_SHARE)
    return max(work, moved) + _OVERLAP * min(work, moved)


def _copied_bytes(ring: Ring) -> float:
    """Bytes of a slot; rows of zeros, outside of the operands, take longer than those inside.

    Seen where 16 rows of 64 are inside: 29 us, and 25 us where no row is outside.
    """
    total = float(ring.slot_bytes)
    for operand in (ring.a, ring.b):
        outside = 1.0 - product(operand.own) / (operand.tiles * operand.rows)
        total += operand.slot_elements * operand.dtype.itemsize * outside
    return total


def _fill_cycles(operand: Operand) -> float:
    """Cycles in which the feeding group fills a slot; 0 where a copy engine does."""
    if operand.array is not None:
        return 0.0
    elements = operand.slot_elements / GROUP_THREADS
    return _FILL_WAIT + elements * (_FILL + _FILL_NODE * len(toposort(operand.value)))


def _plan(ring: Ring, swapped: bool) -> GpuPlan:
    splits = [
        *_splits(ring.a, ring.groups),
        *_splits(ring.b, 1),
        Split(number(ring.a.inner), (Part(Unit.LOOP),), (Part(Unit.UNROLL, ring.a.depth),)),
    ]
    nest = [*ring.others, *ring.a.own, *ring.b.own]
    staged = tuple(
        Staged(operand, Memory.TILE, len(nest) + 1, 16, ring.slots) for operand in (0, 1)
    )
    entries = tuple((number(range_), 0) for range_ in nest)
    name = ring.instruction.name
    return GpuPlan(tuple(splits), entries, len(nest), staged, False, swapped, name)


def _splits(operand: Operand, groups: int) -> list[Split]:
    """A tile's part of each own range; warp groups share the slowest of those that they divide."""
    found = []
    for range_, part in reversed(list(zip(operand.own, operand.parts, strict=True))):
        tile: tuple[Part, ...] = (Part(Unit.UNROLL, part),)
        if groups > 1 and part % groups == 0:
            tile = (Part(Unit.WARP, groups), Part(Unit.UNROLL, part // groups))
            groups = 1
        found.append(Split(number(range_), (Part(Unit.LOOP),), tile))
    return found
