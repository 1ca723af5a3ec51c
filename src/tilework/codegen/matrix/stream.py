"""Cascades whose products suit the matrix units: what they are, and how much fits a block.

Attention is one: scores are products, a row's maximum and sums are folds of them, and the last sum
of products has weights as its factor.  A block of threads has a tile of rows and takes the keys
block by block; `Stream` says which array is which, `stream_lower` writes the statements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.records import dataclass, replace
from tilework.codegen.cascade.find import Cascade, find_cascade
from tilework.codegen.cascade.running import Running, find_running
from tilework.codegen.matrix.arrays import Array, array_of, plain_load, whole_rows
from tilework.codegen.matrix.crew import Crew, Load, best_cut, crew_plan, crews_for
from tilework.codegen.plan.extents import ceil_div, size
from tilework.dtypes import float32
from tilework.ir.node import Node, toposort
from tilework.ir.ops import math
from tilework.ir.ops.tensor import REDUCE, Fold

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.codegen.analysis import Kernel
    from tilework.codegen.gpu.plan import GpuPlan
    from tilework.target.spec import TargetSpec

#: Columns of the factors.
_MOST_COLUMNS = 256
_SLOTS = 2


@dataclass(frozen=True, slots=True)
class Stream:
    """A cascade whose products suit the matrix units.

    Attributes:
        cascade, running: What it computes, and how in one pass.
        scores: The sum of products that scores are computed from, over `inner`.
        result: The last sum of products, over the key.
        of_rows: The stores of what folds of a row give, besides that of the result.
        row, key, inner, column: The ranges of a tile's rows, of all folds, of the scores' products,
            and of the results.
        rows, keys, values: The three arrays that are copied.
        crew: Who computes.
        block: Keys of a block.
        slots: Blocks of keys that are on their way at once.
    """

    cascade: Cascade
    running: Running
    scores: Node
    result: Node
    of_rows: tuple[Node, ...]
    row: Node
    key: Node
    inner: Node
    column: Node
    rows: Array
    keys: Array
    values: Array
    crew: Crew
    block: int = 0
    slots: int = 0

    @property
    def columns(self) -> int:
        """Columns of the results, as many as products have."""
        return self.crew.columns(size(self.column))

    @property
    def others(self) -> tuple[Node, ...]:
        """The ranges of rows that are not tiled."""
        return tuple([range_ for range_ in self.cascade.rows if range_ is not self.row])


def find_stream(kernel: Kernel, target: TargetSpec) -> Stream | None:
    """The cascade of a kernel for matrix units; None where it has none that suits them."""
    cascade = find_cascade(kernel)
    running = None if cascade is None else find_running(cascade)
    if cascade is None or running is None or cascade.key is None:
        return None
    found = _factors(cascade, running)
    if found is None:
        return None
    scores, result, q, k, v = found
    of_rows = _stores_of_rows(cascade, result)
    if any(result not in toposort(s) for s in cascade.stores if s not in of_rows):
        return None
    inner, key = scores.src[1], cascade.key
    arrays = [_array(node, cascade, (inner, key)) for node in (q, k, v)]
    rows, keys, values = arrays
    if rows is None or keys is None or values is None:
        return None
    # Heads that share keys and values are rows as well, but only one range is tiled.
    own = [r for r in rows.ranges if r in cascade.rows and r not in keys.ranges]
    own.sort(key=lambda range_: -size(range_))
    columns = [r for r in values.ranges if r not in (key, *cascade.rows)]
    dtypes = {array.dtype for array in (rows, keys, values)}
    if not own or len(columns) != 1 or len(dtypes) != 1:
        return None
    is_fit = (
        rows.ranges[0] is keys.ranges[0] is inner
        and values.ranges[0] is columns[0]
        and all(size(r) % 8 == 0 and size(r) <= _MOST_COLUMNS for r in (inner, columns[0]))
    )
    crews = crews_for(target, rows.dtype)
    if not is_fit or not crews:
        return None
    named = (own[0], key, inner, columns[0], rows, keys, values)
    stream = Stream(cascade, running, scores, result, of_rows, *named, crews[0])
    cut = best_cut(crews, lambda crew, block: _load(stream, crew, block), target, (_SLOTS, _SLOTS))
    return None if cut is None else replace(stream, crew=cut.crew, block=cut.block, slots=cut.slots)


def _load(stream: Stream, crew: Crew, block: int) -> Load:
    """What a crew would have to do: it holds results, scores, and weights on their way."""
    depth, columns = size(stream.inner), crew.columns(size(stream.column))
    lines = whole_rows(depth) + whole_rows(size(stream.column))
    steps = ceil_div(size(stream.key), block)
    held = crew.rows * 2 * whole_rows(depth)
    registers = crew.sums(columns) + crew.sums(block) * 3 // 2
    registers += crew.fragments(max(columns, block))
    widths = (depth, columns)
    return Load(stream.row, stream.others, steps, block, widths, held, block * 2 * lines, registers)


def _factors(cascade: Cascade, running: Running) -> tuple[Node, Node, Node, Node, Node] | None:
    """(scores, result, and the loads of rows, keys and values); None if there are others."""
    key = cascade.key
    score = running.score
    inner = [n for n in toposort(score) if n.op is REDUCE]
    weighted = [fold for fold, (value, _) in running.sums.items() if value is not running.term]
    totals = [fold for fold, (value, _) in running.sums.items() if value is running.term]
    if len(inner) != 1 or len(weighted) != 1 or len(totals) > 1 or len(inner[0].src) != 2:
        return None
    scores, result = inner[0], weighted[0]
    last = running.sums[result][0]
    if scores.attrs.fold is not Fold.ADD or scores.src[0].op is not math.MUL:
        return None
    if scores.type.dtype is not float32 or last.op is not math.MUL:
        return None
    first = [plain_load(factor) for factor in scores.src[0].src]
    others = [f for f in last.src if not any(n is running.term for n in toposort(f))]
    weight = [f for f in last.src if f not in others]
    if None in first or len(others) != 1 or len(weight) != 1 or not _is_rounded(weight[0]):
        return None
    free = cascade.kernel.free
    first.sort(key=lambda node: bool(free.mask[node] & free.bit(key)) if node and key else False)
    value = plain_load(others[0])
    q, k = first
    return None if q is None or k is None or value is None else (scores, result, q, k, value)


def _stores_of_rows(cascade: Cascade, result: Node) -> tuple[Node, ...]:
    """The stores of one value for each row."""
    free = cascade.kernel.free
    rows = sum(free.bit(range_) for range_ in cascade.rows)
    alone = [store for store in cascade.stores if free.mask[store] == rows]
    return tuple([store for store in alone if result not in toposort(store)])


def _is_rounded(weight: Node) -> bool:
    """Does the kernel round weights to 16 bits itself?"""
    while weight.op is math.CAST and weight.type.dtype is float32:
        weight = weight.src[0]
    return weight.op is math.CAST and weight.type.dtype.itemsize == 2


def _array(load: Node, cascade: Cascade, bound: Sequence[Node]) -> Array | None:
    found = array_of(load.src[0], [*cascade.rows, *bound, *cascade.kernel.outputs])
    return None if found is None or not found.is_plain else found


def stream_plan(stream: Stream) -> GpuPlan:
    """The plan, as far as the words of plans say it."""
    return crew_plan(stream.crew, stream.others, stream.row, stream.key, stream.block)
