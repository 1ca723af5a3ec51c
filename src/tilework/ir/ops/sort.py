"""The sort of one contiguous row inside a kernel: what SORT becomes once it has buffers.

A row that is too long for one block of threads is sorted by several kernels for each digit of its
keys, from the least significant digit on: SORT_COUNT counts the values of the digit in each tile of
the row, SORT_OFFSETS turns the counts into places, SORT_MOVE moves the elements there.
"""

from __future__ import annotations

from typing import Any

from tilework.base.errors import DTypeError
from tilework.base.records import dataclass
from tilework.dtypes import bool_, index, int32, uint32
from tilework.ir.node import Attrs, Node, OpDef
from tilework.ir.ops.define import define_op
from tilework.ir.stage import Stage
from tilework.ir.types import Memory, Type, make_type


@dataclass(frozen=True, slots=True)
class SortRowsAttrs(Attrs):
    """Whether the greatest element comes first; equal ones keep their order either way.

    Of the sorted positions `count` from `first` on are written (-1: all), or with `values` the
    elements there.
    """

    descending: bool
    first: int = 0
    count: int = -1
    values: bool = False


def _infer_sort_rows(src: tuple[Node, ...], attrs: Any) -> Type:
    target, source, size = src
    if target.type.memory is None or source.type.memory is None:
        raise DTypeError("sort_rows: needs two addresses", got=f"{target.type}, {source.type}")
    written = source.type.dtype if attrs.values else index
    if target.type.dtype is not written or size.type.dtype is not index:
        raise DTypeError(
            "sort_rows: positions and the size are int64, values what the elements are",
            got=f"{target.type}, size {size.type}",
            expected=str(written),
        )
    return make_type((), bool_)


SORT_ROWS: OpDef = define_op(
    "sort_rows",
    operands=("target", "source", "size"),
    attrs=SortRowsAttrs,
    infer=_infer_sort_rows,
    stages=Stage.KERNEL | Stage.TILED | Stage.LOWERED,
    doc=(
        "Write to the `size` elements from `target` on the positions, counted from `source`, that "
        "sort the elements there, as SORT does; with a `count` so many of them, from `first` on; "
        "with `values` the elements at these positions. "
        "The rows that the free ranges give do not overlap."
    ),
    pure=False,
)


@dataclass(frozen=True, slots=True)
class SortPassAttrs(Attrs):
    """One pass over long rows, by a digit of their keys, and the tiles that blocks take.

    Attributes:
        descending: The greatest element comes first.
        digit: Bits of a digit; it has 2**digit values.
        number: Which digit this pass is for, 0 for the least significant.
        threads: Threads of a block, a multiple of 32.
        items: Elements of a thread; a tile has threads x items of them.
        reads: "elements", or "words": keys of 32 or 64 bits, and their positions behind all keys.
        writes: What is moved to the target: "elements", "words" or "positions" (the last pass).
        words: How many keys there are before the first position.
        first: Rank of the first element that is written.
        count: How many are written; -1 for all.
    """

    descending: bool
    digit: int
    number: int
    threads: int
    items: int
    reads: str
    writes: str
    words: int
    first: int = 0
    count: int = -1


def _infer_pass(src: tuple[Node, ...], attrs: Any) -> Type:
    *addresses, size = src
    if any(address.type.memory is None for address in addresses) or size.type.dtype is not index:
        types = ", ".join(str(node.type) for node in src)
        raise DTypeError("sort pass: needs addresses and an index as the size", got=types)
    return make_type((), bool_)


_TABLE = "the table of a row has a line of tiles for each value of the digit, and a last one"
SORT_COUNT: OpDef = define_op(
    "sort_count",
    operands=("table", "source", "size"),
    attrs=SortPassAttrs,
    infer=_infer_pass,
    stages=Stage.KERNEL,
    doc=f"Count the values of a digit in each tile of a row: {_TABLE} for the totals.",
    pure=False,
)
SORT_OFFSETS: OpDef = define_op(
    "sort_offsets",
    operands=("table", "size"),
    attrs=SortPassAttrs,
    infer=_infer_pass,
    stages=Stage.KERNEL,
    doc="Turn each line of counts into sums of those before, and write the totals of the lines.",
    pure=False,
)
SORT_MOVE: OpDef = define_op(
    "sort_move",
    operands=("target", "table", "source", "size"),
    attrs=SortPassAttrs,
    infer=_infer_pass,
    stages=Stage.KERNEL,
    doc=(
        "Move the elements of a row to where the table says that their values of a digit begin, "
        "in their order."
    ),
    pure=False,
)
#: The ops of one pass.
SORT_PASSES = frozenset({SORT_COUNT, SORT_OFFSETS, SORT_MOVE})


@dataclass(frozen=True, slots=True)
class RankAttrs(Attrs):
    """How many low bits of a value count; the others are 0."""

    bits: int


def _infer_rank(src: tuple[Node, ...], attrs: Any) -> Type:
    counter, value = src
    if counter.type.memory is None or counter.type.dtype is not int32:
        raise DTypeError("rank_in_warp: needs the address of an int32", got=f"{counter.type}")
    if value.type.dtype is not uint32 or value.type.shape:
        raise DTypeError("rank_in_warp: needs a value of 32 bits", got=f"{value.type}")
    return make_type((), int32)


RANK_IN_WARP: OpDef = define_op(
    "rank_in_warp",
    operands=("counter", "value"),
    attrs=RankAttrs,
    infer=_infer_rank,
    stages=Stage.LINEAR,
    doc=(
        "What `counter` holds, plus the number of threads before this one in its warp that have "
        "the same value; then the counter is raised by all that have it. Threads have one counter "
        "if and only if they have one value. The 32 threads of the warp come here together."
    ),
    pure=False,
)


def _infer_count_up(src: tuple[Node, ...], attrs: Any) -> Type:
    if src[0].type.memory is not Memory.TILE or src[0].type.dtype is not int32:
        raise DTypeError("count_up: needs the address of a shared int32", got=f"{src[0].type}")
    return make_type((), bool_)


COUNT_UP: OpDef = define_op(
    "count_up",
    operands=("counter",),
    infer=_infer_count_up,
    stages=Stage.LINEAR,
    doc=(
        "Raise a counter in shared memory by 1. Threads that do so to one counter, in any order, "
        "need no barrier in between."
    ),
    pure=False,
)
