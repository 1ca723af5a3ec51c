"""How fast warps multiply and how many a multiprocessor holds: parts of estimated times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tilework.target.spec import MatrixInstruction, TargetSpec

#: Multiply-adds of a multiprocessor in one cycle where nothing says how fast its matrix unit is.
_PRODUCTS_PER_CYCLE: Final = 512.0
#: Warps of a multiprocessor that hide each other's waits, and how much it costs to have few.
_HIDING_WARPS, _UNHIDDEN = 8, 0.5


def products_per_cycle(instruction: MatrixInstruction) -> float:
    """Multiply-adds of a multiprocessor in one cycle."""
    if not instruction.cycles:
        return _PRODUCTS_PER_CYCLE
    return instruction.m * instruction.n * instruction.k / instruction.cycles


def unhidden(warps: int) -> float:
    """By how much so many warps of a multiprocessor take longer, as their waits are not hidden."""
    return 1.0 + _UNHIDDEN * max(_HIDING_WARPS - warps, 0) / _HIDING_WARPS


def resident_blocks(target: TargetSpec, threads: int, registers: int, tile_bytes: int) -> int:
    """Blocks that a multiprocessor holds at once; one at least.

    Args:
        target: The machine.
        threads: Threads of a block.
        registers: Registers of a thread.
        tile_bytes: TILE memory of a block.
    """
    shared = next(memory for memory in target.memories if memory.name == "shared")
    found = min(
        shared.size_bytes // tile_bytes,
        target.limits.registers // (threads * registers),
        target.unit("block").count * target.limits.max_workgroup_threads // threads,
    )
    return max(found, 1)
