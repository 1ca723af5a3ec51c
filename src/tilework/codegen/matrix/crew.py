"""Who multiplies in a block of threads that takes a cascade or a chain in one pass.

A crew is some groups of equal size, each of which has its own rows of a tile: warp groups of 64
rows, which read TILE memory as they multiply, or single warps of 16 rows, which load fragments
first.  A row is held by four threads either way, and sums are laid out alike, so that everything
between products is written once (`stream_group`, `chain_group`).
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from tilework.base.records import dataclass
from tilework.codegen.gpu.plan import GROUP_THREADS, GpuPlan
from tilework.codegen.matrix.arrays import ROW_BYTES, whole_rows
from tilework.codegen.matrix.warp_rates import products_per_cycle, resident_blocks, unhidden
from tilework.codegen.matrix.warps import applies
from tilework.codegen.plan.extents import ceil_div, number, size
from tilework.codegen.plan.plan import Part, Split
from tilework.dtypes import float32
from tilework.ir.ops.index import Unit
from tilework.ir.ops.warp_matrix import FRAGMENT_ROWS, FRAGMENT_WORDS, WARP_THREADS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tilework.dtypes import DType
    from tilework.ir.node import Node
    from tilework.target.spec import MatrixInstruction, TargetSpec

_GROUPS, _GROUP_ROWS = 2, 64
_WARPS = (8, 4, 2, 1)
#: Positions of a block, for warp groups and for warps.
_BLOCKS = {False: (128, 64), True: (64, 32, 16)}
#: TILE memory that stays free for signals and alignment.
_RESERVED_BYTES = 2048
#: Registers of a thread for sums, products and factors on their way; what the rest of it takes.
_MOST_REGISTERS, _OTHER_REGISTERS = 208, 64
#: Instructions for one element between products, and lanes that work on them in one cycle.
_ELEMENT_WORK, _LANES = 14.0, 128.0
#: Bytes of one copy, and cycles in which a multiprocessor issues what one warp does for it.
_PIECE_BYTES, _COPY_ISSUES = 16, 2.0
#: Cycles of a barrier and what stands around it, and until a tile's first block has come.
_BARRIER, _START = 80.0, 2000.0


@dataclass(frozen=True, slots=True)
class Crew:
    """Groups of threads that multiply.

    Attributes:
        instruction: The matrix instruction of one group.
        groups: How many there are, one below the other.
    """

    instruction: MatrixInstruction
    groups: int

    @property
    def is_warps(self) -> bool:
        """Are groups single warps, which fill slots themselves?"""
        return self.instruction.unit == "warp"

    @property
    def group_rows(self) -> int:
        """Rows of a group."""
        return FRAGMENT_ROWS if self.is_warps else _GROUP_ROWS

    @property
    def group_threads(self) -> int:
        """Threads of a group."""
        return WARP_THREADS if self.is_warps else GROUP_THREADS

    @property
    def rows(self) -> int:
        """Rows of a tile."""
        return self.groups * self.group_rows

    @property
    def outgoing_bytes(self) -> int:
        """TILE memory for results on their way: warps store theirs from registers."""
        return 0 if self.is_warps else self.groups * 2 * self.group_rows * ROW_BYTES

    def columns(self, count: int) -> int:
        """So many columns of results as products have them."""
        if self.is_warps:
            return ceil_div(count, FRAGMENT_ROWS) * FRAGMENT_ROWS
        return whole_rows(count)

    def sums(self, columns: int) -> int:
        """Sums that one thread holds of so many columns."""
        return self.group_rows * columns // self.group_threads

    def has_room(self, registers: int) -> bool:
        """Has a thread so many registers for sums, products and factors on their way?"""
        return registers <= _MOST_REGISTERS

    def fragments(self, columns: int) -> int:
        """Registers of a thread for what it multiplies at once with factors of so many columns."""
        return columns // FRAGMENT_ROWS * FRAGMENT_WORDS if self.is_warps else 0


@dataclass(frozen=True, slots=True)
class Load:
    """What a crew would have to do for one way to cut a kernel.

    Attributes:
        rows, others: The range of a tile's rows, and the ranges that are not tiled.
        steps: Blocks that one tile takes.
        block: Positions of a block.
        widths: For each product, its depth or columns besides the rows and the block.
        held_bytes, slot_bytes: TILE memory of what a tile holds, and of one slot.
        registers: Registers of a thread.
    """

    rows: Node
    others: Sequence[Node]
    steps: int
    block: int
    widths: Sequence[int]
    held_bytes: int
    slot_bytes: int
    registers: int


def crews_for(target: TargetSpec, dtype: DType) -> list[Crew]:
    """The crews that a machine may have for products of 16 bits; none where it has no unit."""
    found = [
        each
        for each in target.matrix_instructions
        if each.a_dtype == each.b_dtype == dtype.name
        and each.accumulator_dtype == float32.name
        and dtype.itemsize == 2
    ]
    if applies(target):
        warps = [each for each in found if each.unit == "warp"]
        return [Crew(each, groups) for each in warps for groups in _WARPS]
    return [Crew(each, _GROUPS) for each in found if each.unit == "warp_group"][:1]


@dataclass(frozen=True, slots=True)
class Cut:
    """A way to cut a kernel: by whom, in blocks of how many positions, through how many slots."""

    crew: Crew
    block: int
    slots: int


def best_cut(
    crews: Sequence[Crew],
    load_of: Callable[[Crew, int], Load],
    target: TargetSpec,
    slots: tuple[int, int],
) -> Cut | None:
    """The cut with the least estimated time; of warp groups that with the longest blocks.

    Args:
        crews: Who may do it.
        load_of: What a crew would have to do, with blocks of so many positions.
        target: The machine.
        slots: At least and at most so many.
    """
    best: tuple[float, Cut] | None = None
    for crew in crews:
        for block in _BLOCKS[crew.is_warps]:
            load = load_of(crew, block)
            found = _slots_that_fit(crew, load, target, slots[1])
            if found < slots[0]:
                continue
            cut = Cut(crew, block, found)
            if not crew.is_warps:
                return cut
            cycles = _cycles(crew, load, found, target)
            if best is None or cycles < best[0]:
                best = (cycles, cut)
    return None if best is None else best[1]


def _slots_that_fit(crew: Crew, load: Load, target: TargetSpec, most: int) -> int:
    """How many slots there is memory for, at most so many; 0 where registers do not suffice."""
    if not crew.has_room(load.registers):
        return 0
    room = target.limits.shared_memory_bytes - _RESERVED_BYTES
    room -= load.held_bytes + crew.outgoing_bytes
    return min(max(room, 0) // load.slot_bytes, most)


def _cycles(crew: Crew, load: Load, slots: int, target: TargetSpec) -> float:
    """What the busiest multiprocessor takes with a crew of warps."""
    units = max(target.unit("grid").count, 1)
    tiles = prod(size(range_) for range_ in load.others) * ceil_div(size(load.rows), crew.rows)
    threads = crew.groups * crew.group_threads
    shared = next(memory for memory in target.memories if memory.name == "shared")
    room = load.held_bytes + slots * load.slot_bytes + _RESERVED_BYTES
    resident = resident_blocks(target, threads, load.registers + _OTHER_REGISTERS, room)
    blocks = min(resident, max(ceil_div(tiles, units), 1))
    waits = unhidden(blocks * crew.groups)
    elements = crew.rows * load.block
    products = elements * sum(load.widths) / products_per_cycle(crew.instruction)
    read = crew.groups * (crew.group_rows + load.block) * sum(load.widths) * 2
    moved = (read + load.slot_bytes) / shared.bandwidth_bytes_per_cycle
    moved += load.slot_bytes / _PIECE_BYTES / WARP_THREADS * _COPY_ISSUES
    between = elements * _ELEMENT_WORK * max(len(load.widths) - 1, 1) / _LANES
    step = (max(products, moved) + between) * waits + _BARRIER / blocks
    rounds = ceil_div(tiles, units)
    return rounds * load.steps * step + _START * ceil_div(rounds, blocks)


def crew_plan(crew: Crew, others: Sequence[Node], row: Node, key: Node, block: int) -> GpuPlan:
    """The plan, as far as the words of plans say it: rows by groups, positions in blocks."""
    tile = (Part(Unit.WARP, crew.groups), Part(Unit.UNROLL, crew.group_rows))
    blocks = Split(number(key), (Part(Unit.LOOP),), (Part(Unit.UNROLL, block),))
    nest = tuple((number(range_), 0) for range_ in (*others, row))
    if crew.is_warps:
        name = crew.instruction.name
        return GpuPlan(
            (blocks,), nest, len(nest), (), False, False, name, rows=tile, depth=block
        )  # fmt: skip
    splits = (Split(number(row), (Part(Unit.LOOP),), tile), blocks)
    name = f"wgmma_m64n{block}k16_{crew.instruction.a_dtype}"
    return GpuPlan(splits, nest, len(nest), (), False, False, name)
