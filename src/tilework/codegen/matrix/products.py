"""The best way to compute a kernel's product on matrix units, whichever unit issues them.

What is asked before a kernel is divided: how long it takes, in how many tiles and steps, and
whether its factors are moved as they lie or computed element by element.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.records import dataclass
from tilework.codegen.matrix.choose import best_ring
from tilework.codegen.matrix.warps import Filling, applies, best_tiles

if TYPE_CHECKING:
    from tilework.codegen.analysis import Kernel
    from tilework.codegen.plan.contraction import Contraction
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

_GROUP, _WARP = "warp_group", "warp"


@dataclass(frozen=True, slots=True)
class Product:
    """What a plan for matrix units comes to.

    Attributes:
        contraction: What is computed.
        cycles: The estimated time.
        tiles, steps: How many tiles there are, and slots of k that each takes.
        inner, depth: The range of k that is cut into slots, and how much of it one has.
        is_moved: Are both factors moved as they lie in memory, several elements at once?
    """

    contraction: Contraction
    cycles: float
    tiles: int
    steps: int
    inner: Node
    depth: int
    is_moved: bool


def unit_of(target: TargetSpec) -> str:
    """The unit whose matrix instructions are taken; empty where there are none."""
    if any(found.unit == _GROUP for found in target.matrix_instructions):
        return _GROUP
    return _WARP if applies(target) else ""


def best_product(kernel: Kernel, target: TargetSpec) -> Product | None:
    """The plan with the least estimated time; None where matrix instructions do not apply."""
    found = best_ring(kernel, target)
    if found is not None:
        ring = found.cut
        is_moved = ring.a.array is not None and ring.b.array is not None
        return Product(
            ring.contraction,
            found.cycles,
            ring.tiles,
            ring.steps,
            ring.a.inner,
            ring.a.depth,
            is_moved,
        )
    other = best_tiles(kernel, target)
    if other is None:
        return None
    tiles = other.cut
    is_moved = Filling.COMPUTED not in (tiles.a.filling, tiles.b.filling)
    return Product(
        tiles.contraction,
        other.cycles,
        tiles.tiles,
        tiles.steps,
        tiles.k[-1],
        tiles.depth,
        is_moved,
    )
