"""The elements of a row among which those of some ranks are: found by a histogram of keys.

Keys fall into buckets in their order, and how many are in each says where the ranks of each bucket
begin.  So a task that wants a few ranks sorts only what it must: it takes the elements of some
buckets, in order, in one pass over the row.  Tasks that share a row each take some buckets, of
about as many elements; a histogram of a sample is enough for that.

Where buckets begin and how wide they are follows from a sample of the row.  Whatever lies outside
of the sample goes into the first or the last one, so a poor sample costs time and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilework.dtypes import index, uint32, uint64
from tilework.ir.build import bitcast, cast, const_bits, const_index
from tilework.ir.ops import math
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilework.codegen.sort.row import Row
    from tilework.codegen.sort.statements import Statements
    from tilework.ir.node import Node

#: The logarithm of how many buckets a row of so many elements has.
_BITS = ((1 << 15, 11), (1 << 12, 10), (0, 8))
#: Elements that say where buckets are, and those that say which of them a part has.
_SAMPLES, _PART_SAMPLES = 128, 1024
_ALL = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Selected:
    """How many elements were taken, the rank of the first one, the bits in which keys differ."""

    size: Node
    begin: Node
    varying: Node


@dataclass(frozen=True, slots=True)
class _Buckets:
    """Which bucket a key is in: the one of `base` and less is number 0."""

    base: Node
    shift: Node
    last: int

    def of(self, out: Statements, key: Node) -> Node:
        above = math.SUB(math.MAXIMUM(key, self.base), self.base)
        bucket = math.MINIMUM(math.SHR(above, self.shift), _word(self.last))
        return out.emit(bitcast(bucket, index))


def select(
    out: Statements,
    row: Row,
    key_at: Callable[[Node], Node],
    take: Callable[[Node, Node, Node], None],
    *,
    is_wide: bool,
) -> Selected:
    """Take the elements of the ranks that a task wants.

    Args:
        out: Gets the statements.
        row: The row, and which ranks are wanted.
        key_at: Gives the key at a position, of 64 bits.
        take: Writes the element of a key and a position to a place; the last one written there
            counts.
        is_wide: Whether keys have more bits than `take` writes, so that `varying` is asked for.
    """
    bits = next(bits for least, bits in _BITS if row.limit >= least)
    is_part = row.count < 0
    buckets = _sampled(out, row, key_at, bits)
    table = out.allocate(uint32, 1 << bits)
    with out.loop(1 << bits) as bucket:
        out.store(table, bucket, const_bits(0, uint32))
    counted = const_index(_PART_SAMPLES) if is_part else row.size
    with out.loop(counted) as i:
        at = buckets.of(out, key_at(_sample_position(out, row, i, _PART_SAMPLES) if is_part else i))
        out.store(table, at, math.ADD(out.load(table, at), const_bits(1, uint32)))
    low, high = _wanted_ranks(row)
    lowest, highest, begin = _bounds(out, table, bits, (out.emit(low), out.emit(high)), is_part)
    place, before = out.variable(const_index(0)), out.variable(begin)
    united, common = out.variable(_word(0)), out.variable(_word(_ALL))
    with out.loop(row.size) as i:
        key = out.emit(key_at(i))
        bucket = buckets.of(out, key)
        wanted = out.emit(math.AND(math.LE(lowest, bucket), math.LE(bucket, highest)))
        # No branch: what is not wanted is written too, and then over.
        take(place, key, bitcast(i, uint64))
        out.assign(place, math.ADD(place, cast(wanted, index)))
        if is_part:
            out.assign(before, math.ADD(before, cast(math.LT(bucket, lowest), index)))
        if is_wide:
            out.assign(united, math.OR(united, math.WHERE(wanted, key, _word(0))))
            out.assign(common, math.AND(common, math.WHERE(wanted, key, _word(_ALL))))
    return Selected(place, before, out.emit(math.XOR(united, common)))


def _bounds(
    out: Statements, table: Node, bits: int, ranks: tuple[Node, Node], is_part: bool
) -> tuple[Node, Node, Node]:
    """The first and the last bucket that is wanted, and how many elements are below it."""
    low, high = ranks
    total, begin = out.variable(const_index(0)), out.variable(const_index(0))
    lowest, highest = out.variable(const_index(1 << bits)), out.variable(const_index(-1))
    with out.loop(1 << bits) as bucket:
        end = out.emit(math.ADD(total, cast(out.load(table, bucket), index)))
        # A part has the buckets whose ranks begin in it; some ranks have all that overlap them.
        after = math.LE(low, total) if is_part else math.LT(low, end)
        with out.when(math.AND(math.LT(total, high), after)):
            if not is_part:
                with out.when(math.LT(highest, const_index(0))):
                    out.assign(begin, total)
            out.assign(lowest, math.MINIMUM(lowest, bucket))
            out.assign(highest, bucket)
        out.assign(total, end)
    return lowest, highest, begin


def _sampled(out: Statements, row: Row, key_at: Callable[[Node], Node], bits: int) -> _Buckets:
    """Buckets that are as wide as what lies between the least and the greatest of a sample."""
    least, most = out.variable(_word(_ALL)), out.variable(_word(0))
    with out.loop(_SAMPLES) as i:
        key = out.emit(key_at(_sample_position(out, row, i, _SAMPLES)))
        out.assign(least, math.MINIMUM(least, key))
        out.assign(most, math.MAXIMUM(most, key))
    # The first and the last bucket are for what lies outside.
    width = out.variable(math.SUB(most, least))
    shift = out.variable(_word(0))
    with out.loop(64), out.when(math.LT(_word((1 << bits) - 3), width)):
        out.assign(width, math.SHR(width, _word(1)))
        out.assign(shift, math.ADD(shift, _word(1)))
    one = math.SHL(_word(1), shift)
    base = out.emit(math.SUB(math.MAXIMUM(least, one), one))
    return _Buckets(base, shift, (1 << bits) - 1)


def _sample_position(out: Statements, row: Row, number: Node, count: int) -> Node:
    """Where sample `number` of `count` is; the last element stands in for what is beyond it."""
    step = math.MAXIMUM(math.CDIV(row.size, const_index(count)), const_index(1))
    last = simplify.sub(row.size, const_index(1))
    return out.emit(math.MINIMUM(simplify.mul(number, step), last))


def _wanted_ranks(row: Row) -> tuple[Node, Node]:
    if row.count >= 0:
        return const_index(row.first), const_index(row.first + row.count)
    part = row.part if row.part is not None else const_index(0)
    parts = const_index(row.parts)
    following = simplify.add(part, const_index(1))
    size = const_index(_PART_SAMPLES)
    low, high = (math.CDIV(simplify.mul(size, number), parts) for number in (part, following))
    # The last part also has the buckets beyond the greatest of the sample.
    return low, math.ADD(high, math.CDIV(following, parts))


def _word(value: int) -> Node:
    return const_bits(value, uint64)
