"""Scans of rows that many blocks of threads share, which read and write each element once.

A block takes one tile of a row.  What it needs of the tiles before comes through *words* in memory,
each written once: the total of every tile, and for every group of tiles what the row has up to its
end.  A tile starts from the end of the group before its own, combined with the fold of the totals
of its group before it (Merrill and Garland, "Single-pass parallel prefix scan with decoupled
look-back", 2016, have it look back over as many tiles as are needed; then the order of a sum
depends on who is faster, while here it depends on the sizes alone).

Blocks take tiles in the order in which they start (TASK_IN_ORDER), and wait only for tiles before
their own.  Each of these belongs to a block that runs, since cards do not take a block away that
has started.  The first tile waits for nothing, totals are told before anything is waited for, and
a block that ends a group waits for totals and for the end of the group before.  So by induction all
of them come to their end, in whatever order and however many at a time the card starts them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilework.base.errors import DTypeError, ShapeError
from tilework.base.records import dataclass
from tilework.dtypes import index, uint64
from tilework.ir.node import Attrs, Node, OpDef
from tilework.ir.ops.define import define_op
from tilework.ir.ops.tensor import Fold
from tilework.ir.stage import Stage
from tilework.ir.types import Type, make_type

if TYPE_CHECKING:
    from tilework.dtypes import DType

#: The most tiles of a group; each has a thread that waits for its total.
MOST_IN_GROUP: Final = 128
#: Bits of the values that threads pass on to each other.
SHARED_BITS: Final = (32, 64)
#: A word holds so many bits of a value, and above them a one once it has been written.
WORD_BITS: Final = 32

_STAGES = Stage.TILED | Stage.LOWERED | Stage.LINEAR


@dataclass(frozen=True, slots=True)
class ScanBlocksAttrs(Attrs):
    """How values combine, and how many tiles a row and a group of them have."""

    fold: Fold
    exclusive: bool
    tiles: int
    group: int


def words_of_value(dtype: DType) -> int:
    """How many words a value takes."""
    return -(-dtype.bits // WORD_BITS)


def words_of_row(dtype: DType, tiles: int, group: int) -> int:
    """How many words a row takes: totals of tiles, then ends of groups."""
    return (tiles + -(-tiles // group)) * words_of_value(dtype)


def _infer_scan(src: tuple[Node, ...], attrs: ScanBlocksAttrs) -> Type:
    words, row, tile, *values = src
    if words.type.memory is None or words.type.dtype is not uint64:
        raise DTypeError("scan_blocks: needs words of 64 bits in memory", got=f"{words.type}")
    first = values[0].type
    if any(value.type is not first for value in values) or len(first.shape) > 1:
        got = ", ".join(str(value.type) for value in values)
        raise ShapeError("scan_blocks: needs scalars or vectors of one type", got=got)
    if row.type.dtype is not index or tile.type.dtype is not index:
        raise DTypeError("scan_blocks: row and tile are indices", got=f"{row.type}, {tile.type}")
    count = len(values) * (first.lanes if first.shape else 1)
    return make_type((count,) if count > 1 else (), first.dtype)


SCAN_BLOCKS: OpDef = define_op(
    "scan_blocks",
    operands=("words", "row", "tile", "*values"),
    attrs=ScanBlocksAttrs,
    infer=_infer_scan,
    stages=_STAGES,
    doc=(
        "The running fold over a row whose tiles blocks of threads take; `row` is its first word. "
        "A warp has a part of the tile, in as many steps as there are `values`, and each of its 32 "
        "threads some neighbours of each step. Lanes fold in order, threads by doubling distances, "
        "steps in order, warps by doubling distances, totals of the tiles of a group by halves. "
        "The results of all steps are side by side. All threads of the block come here together."
    ),
)
