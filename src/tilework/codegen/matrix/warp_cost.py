"""What a contraction by products of warps takes, as data sheets and estimates have it."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from tilework.codegen.analysis import Kernel, stride
from tilework.codegen.matrix.arrays import ROW_BYTES
from tilework.codegen.matrix.warp_rates import products_per_cycle, resident_blocks, unhidden
from tilework.codegen.matrix.warp_tiles import Filling, WarpTiles
from tilework.codegen.plan.extents import ceil_div, product
from tilework.ir.node import toposort
from tilework.ir.ops.warp_matrix import FRAGMENT_BYTES, FRAGMENT_ROWS, WARP_THREADS

if TYPE_CHECKING:
    from tilework.target.spec import TargetSpec

#: Registers that a thread takes besides its sums.
_OTHER_REGISTERS = 72
#: Cycles of a multiprocessor in which it issues what one warp does to copy a chunk, and in which a
#: thread computes one element, and for each node that computes it.
_COPY_ISSUES, _COMPUTED, _COMPUTED_NODE = 6.0, 60.0, 1.0
#: Warp instructions of one multiprocessor in a cycle.
_ISSUES_PER_CYCLE = 4.0
#: Bytes of TILE memory a cycle; the share of far bandwidth that copies reach.
_TILE_BYTES, _FAR_SHARE = 128.0, 0.85
#: How much of the shorter of work and far reads is not hidden by the longer.
_OVERLAP = 0.1
#: Cycles until the first slot has come, and for each 1024 results of a tile at its end.
_START, _FINISH = 1200.0, 56.0


def tiles_cycles(kernel: Kernel, tiles: WarpTiles, target: TargetSpec) -> float:
    """What the busiest multiprocessor takes, or the far memory if that takes longer."""
    units = max(target.unit("grid").count, 1)
    registers, room = tiles.registers + _OTHER_REGISTERS, tiles.slots * tiles.slot_bytes
    resident = resident_blocks(target, tiles.threads, registers, room)
    blocks = min(resident, ceil_div(tiles.tiles, units))
    waits = unhidden(blocks * prod(tiles.warps))
    far = next(memory for memory in target.memories if memory.name == "global")
    step = _step_cycles(tiles, target) * waits
    if any(factor.filling is not Filling.COMPUTED for factor in (tiles.a, tiles.b)):
        # What comes for a slot has the time of the slots before it, of all blocks.
        step = max(step, far.latency_cycles / ((tiles.slots - 1) * blocks))
    finish = tiles.a.rows * tiles.b.rows / 1024 * _FINISH
    if any(stride(s.src[0].src[1], tiles.contraction.n[-1]) != 1 for s in kernel.stores):
        finish *= 4  # results leave one by one
    rounds = ceil_div(tiles.tiles, units)
    work = _START * ceil_div(rounds, blocks) + rounds * (tiles.steps * step + finish)
    shared = [*tiles.contraction.batch, *tiles.k]
    elements = product([*shared, *tiles.contraction.m]) + product([*shared, *tiles.contraction.n])
    moved = elements * tiles.a.dtype.itemsize / (far.bandwidth_bytes_per_cycle * _FAR_SHARE)
    return max(work, moved) + _OVERLAP * min(work, moved)


def _step_cycles(tiles: WarpTiles, target: TargetSpec) -> float:
    """Cycles of one slot of one tile: the slowest of what goes on side by side."""
    instruction, warps = tiles.instruction, prod(tiles.warps)
    products = tiles.a.rows * tiles.b.rows * tiles.depth
    products += products * sum(tiles.factor_sums) // tiles.sums
    rows = tiles.a.rows + tiles.b.rows
    read = warps * sum(tiles.warp_sides) * ROW_BYTES
    tile = (read + rows * ROW_BYTES) / _TILE_BYTES
    units = max(target.unit("grid").count, 1)
    cache = next(memory for memory in target.memories if memory.name == "L2")
    near = rows * ROW_BYTES / (cache.bandwidth_bytes_per_cycle / units)
    fragments = ROW_BYTES // FRAGMENT_BYTES * sum(tiles.warp_sides) / FRAGMENT_ROWS
    issued = warps * fragments * 2 + products / (instruction.m * instruction.n * instruction.k)
    computed = 0.0
    for factor in (tiles.a, tiles.b):
        if factor.filling is Filling.COMPUTED:
            each = _COMPUTED + _COMPUTED_NODE * len(toposort(factor.value))
            computed += factor.pieces / tiles.threads * each
        else:
            issued += factor.pieces / WARP_THREADS * _COPY_ISSUES
    multiplied = products / products_per_cycle(instruction)
    return max(multiplied, tile, near, issued / _ISSUES_PER_CYCLE) + computed
