"""Folds down the columns of a large array: totals wait in memory while rows pass over them.

An array that is folded along its first axis has the elements of one column far apart.  With a few
vectors of totals in registers, each pass goes down a narrow strip, uses a few lines of each page,
and goes where the machine fetches nothing ahead.  Here a tile is thousands of columns wide: blocks
of a few rows are read from one end to the other, each in order, and added to totals that stay in
the nearest cache.

It is a cascade with one kept value for each fold, and the same phases carry it out: folds begin,
take up block after block of rows, and are stored.  On other machines a tile is what a block of
threads holds, in registers where the totals of a thread fit them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilework.codegen.analysis import analyse, stride
from tilework.codegen.cascade.find import Cascade, has_plain_stores, with_common_names
from tilework.codegen.cascade.tile import Tile
from tilework.codegen.plan.extents import product, size
from tilework.ir.node import toposort
from tilework.ir.ops.memory import LOAD

if TYPE_CHECKING:
    from tilework.codegen.analysis import Kernel
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

#: Rows that are read side by side: as many streams as the machine fetches ahead of gladly.  It
#: decides the order of sums, so it is the same everywhere.
_BLOCK: Final = 8
#: The fewest columns of a tile; narrower rows are read in order by plain loops.
_LEAST_COLUMNS: Final = 512
#: The nearest cache, where it is not known; the totals of a tile may take half of it.
_NEAR_BYTES: Final = 1 << 15
#: An array of fewer second caches is read as fast in any order, and so are fewer rows.
_LARGE: Final = 8
_LEAST_ROWS: Final = 4 * _BLOCK


def find_columns(kernel: Kernel, target: TargetSpec) -> tuple[Cascade, Tile] | None:
    """The folds of a kernel down columns, and its tiles; None if it has others or small ones.

    Args:
        kernel: The kernel with its ranges normalised.
        target: The machine.
    """
    if not target.l2_bytes or not kernel.reduces or not has_plain_stores(kernel):
        return None
    named = analyse(with_common_names(kernel))
    keys = {reduce.src[1:] for reduce in named.reduces}
    if len(keys) != 1 or len(named.reduces[0].src) != 2:
        return None
    key = named.reduces[0].src[1]
    outputs = sum(named.free.bit(range_) for range_ in named.outputs)
    whole = (*named.reduces, *named.stores)
    if not named.outputs or any(named.free.mask[node] != outputs for node in whole):
        return None
    column = named.outputs[-1]
    if size(column) < _LEAST_COLUMNS or size(key) < _LEAST_ROWS:
        return None
    if (
        not _is_down_columns(named, column, key)
        or _bytes_read(named, key) < _LARGE * target.l2_bytes
    ):
        return None
    reduces = tuple(named.reduces)
    cascade = Cascade(named, tuple(named.outputs), reduces, tuple(named.stores), key, ())
    return cascade, _tile(cascade, column, target)


def _loads(kernel: Kernel, key: Node) -> list[Node]:
    """The loads that folds make at each row."""
    bit = kernel.free.bit(key)
    return [load for load in kernel.loads if kernel.free.mask[load] & bit]


def _is_down_columns(kernel: Kernel, column: Node, key: Node) -> bool:
    """Do all loads of a row lie side by side along the columns, and rows at least as far apart?

    Arrays of columns must be read once: a product of matrices reads its second factor again for
    each row of the first, and is tiled for that.
    """
    found = False
    for load in _loads(kernel, key):
        offset = load.src[0].src[1]
        along, down = stride(offset, column), stride(offset, key)
        if len(load.src) > 1 or along not in (0, 1) or down is None:
            return False
        if any(part.op is LOAD for part in toposort(offset)):
            return False
        if along == 1 and not set(kernel.outputs) <= set(kernel.free.of(load)):
            return False
        found = found or (along == 1 and abs(down) >= size(column))
    return found


def _bytes_read(kernel: Kernel, key: Node) -> int:
    """What the folds read."""
    return max(
        product(kernel.free.of(load)) * load.type.dtype.itemsize for load in _loads(kernel, key)
    )


def _tile(cascade: Cascade, column: Node, target: TargetSpec) -> Tile:
    """As many columns as keep their totals near, and leave each core some tiles."""
    near = (target.memory_bytes("L1") or _NEAR_BYTES) // 2
    each = sum(node.type.dtype.itemsize for node in cascade.kept)
    others = product(range_ for range_ in cascade.rows if range_ is not column)
    columns = _LEAST_COLUMNS
    while True:
        wider = 2 * columns
        tiles = -(-size(column) // wider) * others
        if wider > size(column) or wider * each > near or tiles < 2 * target.cores:
            break
        columns = wider
    return Tile(column, columns, -(-size(column) // columns) * others, _BLOCK)
