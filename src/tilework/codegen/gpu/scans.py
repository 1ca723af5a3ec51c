"""Scans of rows that no block of threads holds: tiles of them, read and written once.

`ir/ops/scan.py` says how the blocks of one row tell each other what they need, and why all of them
come to their end.  The words for it are memory of the kernel's own, cleared by one before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilework.codegen.analysis import analyse
from tilework.codegen.gpu.copies import with_slots
from tilework.codegen.gpu.plan import GpuPlan
from tilework.codegen.passes.normalise import normalise_ranges
from tilework.codegen.plan.extents import ceil_div, number, product
from tilework.codegen.plan.plan import Part, Split
from tilework.codegen.plan.prepack import Pack, Prepacked
from tilework.dtypes import uint64
from tilework.ir.build import const_bits, const_index
from tilework.ir.node import toposort
from tilework.ir.ops.index import RANGE, RangeAttrs, Unit
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, SINK, STORE, ParamAttrs
from tilework.ir.ops.scan import MOST_IN_GROUP, SHARED_BITS, words_of_row
from tilework.ir.ops.tensor import SCAN
from tilework.ir.ops.warp_matrix import WARP_THREADS
from tilework.ir.rewrite import rewrite
from tilework.ir.rules import SIMPLIFY
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from tilework.codegen.analysis import Kernel
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

#: Threads of a block, and bytes that each of them holds of a tile: 128 in flight hide the waiting.
THREADS: Final = 256
_HELD_BYTES: Final = 128
#: Blocks on a multiprocessor where a thread holds little but its elements, by their bits.
_RESIDENT: Final = {32: 5, 64: 4}
#: Cycles that a block spends on a tile of which little is used, and a thread on one element of a
#: row that it scans by itself; threads of a multiprocessor that do so at a time.
_TILE_CYCLES, _STEP_CYCLES, _BUSY = 8000, 500, 2048


def scan_of(kernel: Kernel) -> Node | None:
    """The one scan of a kernel whose rows blocks of threads may share."""
    scans = [node for node in kernel.order if node.op is SCAN]
    if len(scans) != 1 or kernel.reduces or kernel.read_and_written:
        return None
    (scan,) = scans
    along = scan.src[1]
    if (
        along not in kernel.outputs
        or kernel.serial - {along}
        or scan.type.dtype.bits not in SHARED_BITS
    ):
        return None
    sizes = [simplify.value_of(range_.src[0]) for range_ in kernel.outputs]
    return (
        None if None in sizes or any(effect.op is not STORE for effect in kernel.sink.src) else scan
    )


def is_in_tiles(sink: Node) -> bool:
    """Does a kernel have a scan with words, which has to find them cleared?"""
    return any(node.op is SCAN and len(node.src) > 2 for node in toposort(sink))


def tile_of(scan: Node) -> int:
    """Elements of a tile."""
    return THREADS * _HELD_BYTES * 8 // int(scan.type.dtype.bits)


def group_of() -> int:
    """Tiles of a group."""
    return min(MOST_IN_GROUP, THREADS)


def scan_in_tiles(sink: Node) -> Prepacked | None:
    """A scan with words for its blocks, behind the kernel that clears them; None for others."""
    kernel = analyse(normalise_ranges(rewrite(sink, SIMPLIFY)))
    scan = scan_of(kernel)
    if scan is None or len(scan.src) > 2:
        return None
    rows = 1
    for range_ in kernel.outputs:
        rows *= (simplify.value_of(range_.src[0]) or 1) if range_ is not scan.src[1] else 1
    tiles = ceil_div(simplify.value_of(scan.src[1].src[0]) or 1, tile_of(scan))
    count = 1 + rows * words_of_row(scan.type.dtype, tiles, group_of())
    slot = 1 + max(int(node.attrs.slot) for node in kernel.order if node.op is PARAM)
    words = PARAM(attrs=ParamAttrs(slot, (count,), uint64))
    shared = SCAN(*scan.src, words, attrs=scan.attrs)
    (whole,) = simplify.substitute([kernel.sink], {scan: shared})
    place = RANGE(const_index(count), attrs=RangeAttrs(0))
    cleared = SINK(STORE(INDEX(words, place), const_bits(0, uint64)))
    size_bytes = count * uint64.itemsize
    pack = Pack(with_slots(cleared, {slot: 0}), (), slot, size_bytes, False, 0.0)
    return Prepacked(whole, (pack,))


def pays_in_tiles(kernel: Kernel, target: TargetSpec) -> bool:
    """Are tiles of a scan's rows done before threads that scan a row each, one after the other?

    Many short rows leave most of a tile empty, and give all threads a row.
    """
    scan = scan_of(kernel)
    if scan is None:
        return False
    length = simplify.value_of(scan.src[1].src[0]) or 1
    rows = product([range_ for range_ in kernel.outputs if range_ is not scan.src[1]])
    units = max(target.unit("grid").count, 1)
    tiles = rows * ceil_div(length, tile_of(scan))
    in_tiles = ceil_div(tiles, units * _RESIDENT[scan.type.dtype.bits]) * _TILE_CYCLES
    by_threads = ceil_div(rows, units * _BUSY) * length * _STEP_CYCLES
    return in_tiles < by_threads


def tiled_scan_plan(kernel: Kernel, lanes: int) -> GpuPlan | None:
    """Blocks for the tiles of rows, where a scan has words for them.

    Args:
        kernel: A kernel.
        lanes: Elements along the scan that a thread may move at once.
    """
    scan = scan_of(kernel)
    if scan is None or len(scan.src) < 3:
        return None
    along = scan.src[1]
    held = tile_of(scan) // THREADS
    lanes = min(lanes, held)
    tile = [Part(Unit.WARP, THREADS // WARP_THREADS), Part(Unit.UNROLL, held // lanes)]
    tile.append(Part(Unit.LOCAL, WARP_THREADS))
    if lanes > 1:
        tile.append(Part(Unit.LANE, lanes))
    nest = [*(range_ for range_ in kernel.outputs if range_ is not along), along]
    return GpuPlan(
        (Split(number(along), (Part(Unit.LOOP),), tuple(tile)),),
        tuple((number(range_), 0) for range_ in nest),
        len(nest),
        (),
        overlap=False,
        resident=_RESIDENT[scan.type.dtype.bits] if scan.src[0].op is LOAD else 0,
    )
