"""How the rows of a cascade are cut into tiles, and the folded axis into blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.errors import PlanError
from tilework.base.records import dataclass, replace
from tilework.codegen.analysis import stride
from tilework.codegen.plan.extents import product, size
from tilework.ir.ops.tensor import REDUCE

if TYPE_CHECKING:
    from tilework.codegen.cascade.find import Cascade
    from tilework.codegen.plan.kinds import CascadePlan
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

#: Vectors of rows in a tile, the most first.
_VECTORS = (4, 3, 2, 1)
#: What a block and what it is multiplied with may take of the nearest cache.
_NEAR_BYTES = 1 << 15
_LEAST_BLOCK = 16


@dataclass(frozen=True, slots=True)
class Tile:
    """How the rows of a cascade are cut.

    Attributes:
        row: The range of which a tile holds several values; None for one row at a time.
        rows: Rows in a tile.
        count: Tiles in all.
        block: How many positions of the folded axis a block has; 0 where it is not cut.
        is_long: Rows do not stay in the cache.
    """

    row: Node | None
    rows: int
    count: int
    block: int = 0
    is_long: bool = False


def choose_tile(cascade: Cascade, target: TargetSpec, *, may_run: bool = False) -> Tile:
    """Vectors run along the rows where memory, or a sum of products, has them side by side.

    Args:
        cascade: What is kept.
        target: The machine.
        may_run: Running values may stand for rows that are too long.
    """
    row = _row_range(cascade)
    if row is None:
        return Tile(None, 1, product(cascade.rows))
    others = product(range_ for range_ in cascade.rows if range_ is not row)
    lanes = max(target.vector_bits // 32, 1)
    limit = (target.l2_bytes or 1 << 19) // 2
    per_row = sum(product(cascade.along(node)) * node.type.dtype.itemsize for node in cascade.kept)
    candidates = [min(vectors * lanes, size(row)) for vectors in _VECTORS]
    is_long = may_run and candidates[-1] * per_row > limit
    rows = candidates[-1]
    for rows in candidates:
        tiles = -(-size(row) // rows) * others
        if (is_long or rows * per_row <= limit) and tiles >= 4 * target.cores:
            break
    # The block decides the order of sums, so it must not depend on the number of cores.
    block = 0 if cascade.key is None else _block(cascade, candidates[0], target)
    return Tile(row, rows, -(-size(row) // rows) * others, block, is_long)


def planned_tile(cascade: Cascade, chosen: Tile, plan: CascadePlan) -> Tile:
    """The tile that a plan asks for, along the range that was chosen.

    Raises:
        PlanError: The rows or the block do not fit the kernel.
    """
    most_rows = 1 if chosen.row is None else size(chosen.row)
    most_block = size(cascade.key) if chosen.block and cascade.key is not None else 0
    if not 1 <= plan.rows <= most_rows:
        raise PlanError(
            "plan: a tile has more rows than there are",
            got=str(plan.rows),
            expected=f"1 .. {most_rows}",
        )
    if not min(most_block, 1) <= plan.block <= most_block:
        raise PlanError(
            "plan: a block of another length than the folded axis allows",
            got=str(plan.block),
            expected=f"{min(most_block, 1)} .. {most_block}",
        )
    others = product(range_ for range_ in cascade.rows if range_ is not chosen.row)
    tiles = 1 if chosen.row is None else -(-size(chosen.row) // plan.rows)
    count = tiles * others
    if not 1 <= plan.batch <= count:
        raise PlanError(
            "plan: a task takes more tiles than there are",
            got=str(plan.batch),
            expected=f"1 .. {count}",
        )
    return replace(chosen, rows=plan.rows, count=count, block=plan.block)


def _block(cascade: Cascade, rows: int, target: TargetSpec) -> int:
    """As many positions as keep a block near, preferably a divisor of the axis."""
    length = product([cascade.key]) if cascade.key is not None else 0
    widest = rows
    for last in cascade.lasts:
        widest = max(widest, rows + product(r for r in cascade.along(last)))
    near = min(target.memory_bytes("L1") or _NEAR_BYTES, _NEAR_BYTES)
    most = max(near // (4 * widest), _LEAST_BLOCK)
    if length <= most:
        return length
    divisors = [d for d in range(most // 2, most + 1) if length % d == 0]
    even = -(-length // -(-length // most))
    return max(divisors, default=even)


def _row_range(cascade: Cascade) -> Node | None:
    """The range of rows along which a tile is cut."""
    free = cascade.kernel.free
    for node in cascade.kept:
        if node.op is not REDUCE or not cascade.along(node) or len(node.src[0].src) != 2:
            continue
        a, b = node.src[0].src
        apart = free.mask[a] ^ free.mask[b]
        own = [range_ for range_ in cascade.rows if apart & free.bit(range_)]
        if own:
            return own[-1]
    for range_ in cascade.rows:
        for load in cascade.kernel.loads:
            if stride(load.src[0].src[1], range_) == 1 and cascade.along(load):
                return range_
    return None
