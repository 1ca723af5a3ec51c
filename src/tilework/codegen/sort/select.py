"""The elements of a row among which those of some ranks are: found by a histogram of keys.

Keys fall into buckets in their order, and how many are in each says where the ranks of each bucket
begin.  So a task that wants a few ranks sorts only what it must: it takes the elements of some
buckets, in order, in one pass over the row.  Tasks that share a row each take some buckets, of
about as many elements; a histogram of a sample is enough for that.

Where the first ranks are few of many, no bucket is needed: the key of some rank in a sample is a
threshold that little of the row is below, and that is what gets sorted.

Where buckets begin and how wide they are follows from a sample of the row.  Whatever lies outside
of the sample goes into the first or the last one, so a poor sample costs time and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tilework.base.records import dataclass
from tilework.codegen.sort.keys import UNSIGNED, key_bits, sorting_key
from tilework.dtypes import index, uint32, uint64
from tilework.ir.build import bitcast, cast, const_bits, const_index
from tilework.ir.ops import math
from tilework.ir.ops.control import BROADCAST, COMPRESS, FOLD_LANES, FoldAttrs
from tilework.ir.ops.index import LANES, LanesAttrs
from tilework.ir.ops.tensor import Fold
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from tilework.codegen.sort.row import Row
    from tilework.codegen.sort.statements import Statements
    from tilework.ir.node import Node

#: The logarithm of how many buckets a row of so many elements has.
_BITS = ((1 << 15, 11), (1 << 12, 10), (0, 8))
#: Elements that say where buckets are, and those that say which of them a part has.
_SAMPLES, _PART_SAMPLES = 128, 1024
#: The first ranks are few if there are so many times as many elements.
_FEW = 8
#: Elements of a sample by which a threshold lies further than it should.
_SPARE = 4
#: The bytes of a vector that is compared with a threshold.
_LANE_BYTES = 64
#: The most elements of a sample that gives a threshold.
_MOST_SAMPLES = 512
#: The most lanes whose numbers are moved together.
_MOST_COMPRESSED = 16
_ALL = (1 << 64) - 1

KeyAt = Callable[["Node"], "Node"]
"""Gives the key at a position."""
Take = Callable[["Node", "Node", "Node"], None]
"""Writes the element of a key and a position to a place."""


@dataclass(frozen=True, slots=True)
class Selected:
    """How many elements were taken, the rank of the first one, the bits in which keys differ."""

    size: Node
    begin: Node
    varying: Node


@dataclass(frozen=True, slots=True)
class Share:
    """The keys that a task takes of a row that several share; none unless it `exists`."""

    least: Node
    most: Node
    exists: Node


@dataclass(frozen=True, slots=True)
class _Buckets:
    """Which bucket a key is in: the one of `base` and less is number 0; no key is above `most`."""

    base: Node
    shift: Node
    last: int
    most: int

    def of(self, out: Statements, key: Node) -> Node:
        above = math.SUB(math.MAXIMUM(key, self.base), self.base)
        bucket = math.MINIMUM(math.SHR(above, self.shift), _word(self.last))
        return out.emit(bitcast(bucket, index))

    def greatest(self, out: Statements, bucket: Node) -> Node:
        """The greatest key of a bucket that has one; it has no more bits than keys have."""
        inside = math.SUB(math.SHL(_word(1), self.shift), _word(1))
        above = math.OR(math.SHL(bitcast(bucket, uint64), self.shift), inside)
        most = _word(self.most)
        edge = math.ADD(self.base, math.MINIMUM(above, math.SUB(most, self.base)))
        is_last = math.LE(const_index(self.last), bucket)
        return out.emit(math.WHERE(is_last, most, edge))


def select(
    out: Statements,
    row: Row,
    key_at: KeyAt,
    take: Take,
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
    if row.count < 0 or row.size.op is not math.CONST or not _is_few(row):
        return _by_histogram(out, row, bits, key_at, take, is_wide=is_wide)
    return _by_threshold(out, row, bits, key_at, take, is_wide=is_wide)


def share_of(out: Statements, row: Row) -> Share:
    """The keys, of 64 bits, that a task takes: about as many elements as the others."""

    def key_at(position: Node) -> Node:
        element = row.element(out, position)
        return cast(sorting_key(element, descending=row.descending), uint64)

    bits = next(bits for least, bits in _BITS if row.limit >= least)
    table = _Table.sampled(out, row, key_at, bits)
    table.count(_PART_SAMPLES, lambda i: key_at(_sample_position(out, row, i, _PART_SAMPLES)))
    low, high = _wanted_ranks(row)
    ranks = (out.emit(low), out.emit(high))
    lowest, highest, _ = _bounds(out, table.counts, bits, ranks, True)
    most = table.buckets.greatest(out, highest)
    before = table.buckets.greatest(out, out.emit(math.SUB(lowest, const_index(1))))
    is_first = math.EQ(lowest, const_index(0))
    least = math.WHERE(is_first, _word(0), math.ADD(before, _word(1)))
    # A bucket that begins beyond the greatest key has nothing.
    is_some = math.OR(is_first, math.LT(before, _word(table.buckets.most)))
    exists = math.AND(math.LE(lowest, highest), is_some)
    return Share(out.emit(least), most, out.emit(exists))


def _by_histogram(
    out: Statements, row: Row, bits: int, key_at: KeyAt, take: Take, *, is_wide: bool
) -> Selected:
    """What the buckets of the wanted ranks hold, in one pass over the row."""
    is_part = row.count < 0
    table = _Table.sampled(out, row, key_at, bits)
    if is_part:
        table.count(_PART_SAMPLES, lambda i: key_at(_sample_position(out, row, i, _PART_SAMPLES)))
    else:
        table.count(row.size, key_at)
    low, high = _wanted_ranks(row)
    lowest, highest, begin = _bounds(
        out, table.counts, bits, (out.emit(low), out.emit(high)), is_part
    )
    taker = _Taker(out, take, is_wide=is_wide)
    before = out.variable(begin)
    with out.loop(row.size) as i:
        key = out.emit(key_at(i))
        bucket = table.buckets.of(out, key)
        taker.take(key, i, math.AND(math.LE(lowest, bucket), math.LE(bucket, highest)))
        if is_part:
            out.assign(before, math.ADD(before, cast(math.LT(bucket, lowest), index)))
    return Selected(taker.place, before, taker.varying())


def _is_few(row: Row) -> bool:
    """Whether the wanted ranks are the first ones, and few of many."""
    return row.first == 0 and _FEW * row.count <= row.limit


def _by_threshold(
    out: Statements, row: Row, bits: int, key_at: KeyAt, take: Take, *, is_wide: bool
) -> Selected:
    """What is not above some element of a sample, where that is enough: most vectors have none.

    A sample of so many elements says below which key some multiple of the wanted ranks should be.
    Where it has misled, the histogram of the whole row decides.
    """
    lanes = _LANE_BYTES // row.source.dtype.itemsize
    kind = UNSIGNED[key_bits(row.source.dtype)]
    samples = min(_MOST_SAMPLES, row.limit // 8)
    rank = 3 * row.count * samples // (2 * row.limit) + _SPARE
    threshold = _key_of_rank(out, row, key_at, samples, rank)
    taker = _Taker(out, take, is_wide=is_wide)
    limit = out.emit(BROADCAST(cast(threshold, kind), attrs=LanesAttrs(lanes)))
    whole = row.limit // lanes
    with out.loop(whole) as block:
        start = out.emit(simplify.scale(block, lanes))
        vector = out.load(row.source, simplify.add(row.source_start, start), lanes)
        keys = sorting_key(vector, descending=row.descending)
        found = out.emit(math.LE(keys, limit))
        with out.when(FOLD_LANES(found, attrs=FoldAttrs(Fold.MAX))):
            taker.take_lanes(start, found, threshold, key_at)
    with out.loop(row.limit - whole * lanes) as i:
        at = out.emit(simplify.add(i, const_index(whole * lanes)))
        key = out.emit(key_at(at))
        taker.take(key, at, math.LE(key, threshold))
    size, begin = out.variable(taker.place), out.variable(const_index(0))
    varying = out.variable(taker.varying())
    with out.when(math.LT(taker.place, const_index(row.count))):
        chosen = _by_histogram(out, row, bits, key_at, take, is_wide=is_wide)
        out.assign(size, chosen.size)
        out.assign(begin, chosen.begin)
        out.assign(varying, chosen.varying)
    return Selected(size, begin, varying)


def _key_of_rank(out: Statements, row: Row, key_at: KeyAt, samples: int, rank: int) -> Node:
    """The key of a rank in a sample of a row, bit by bit: below it are at most `rank` keys."""
    bits = key_bits(row.source.dtype)
    kind = UNSIGNED[bits]
    lanes = _LANE_BYTES // kind.itemsize
    blocks = -(-samples // lanes)
    keys = out.allocate(kind, blocks * lanes)
    with out.loop(samples) as i:
        key = key_at(_sample_position(out, row, i, samples))
        out.store(keys, i, cast(key, kind))
    with out.loop(blocks * lanes - samples) as i:
        out.store(keys, simplify.add(i, const_index(samples)), const_bits((1 << bits) - 1, kind))
    found = out.variable(_word(0))
    with out.loop(bits) as step:
        place = bitcast(simplify.sub(const_index(bits - 1), step), uint64)
        trial = out.emit(math.OR(found, math.SHL(_word(1), place)))
        limit = out.emit(BROADCAST(cast(trial, kind), attrs=LanesAttrs(lanes)))
        below = out.variable(const_index(0))
        with out.loop(blocks) as block:
            mask = math.LT(out.load(keys, simplify.scale(block, lanes), lanes), limit)
            count = FOLD_LANES(cast(mask, index), attrs=FoldAttrs(Fold.ADD))
            out.assign(below, math.ADD(below, count))
        is_fine = math.LE(below, const_index(rank))
        out.assign(found, math.WHERE(is_fine, trial, found))
    return found


class _Taker:
    """Writes what is wanted, one element behind the other."""

    def __init__(self, out: Statements, take: Take, *, is_wide: bool) -> None:
        self._out = out
        self._take = take
        self._is_wide = is_wide
        self.place = out.variable(const_index(0))
        self._united, self._common = out.variable(_word(0)), out.variable(_word(_ALL))

    def take(self, key: Node, position: Node, condition: Node) -> None:
        out = self._out
        wanted = out.emit(condition)
        # No branch: what is not wanted is written too, and then over.
        self._take(self.place, key, bitcast(position, uint64))
        out.assign(self.place, math.ADD(self.place, cast(wanted, index)))
        if self._is_wide:
            united = math.OR(self._united, math.WHERE(wanted, key, _word(0)))
            out.assign(self._united, united)
            common = math.AND(self._common, math.WHERE(wanted, key, _word(_ALL)))
            out.assign(self._common, common)

    def take_lanes(self, start: Node, chosen: Node, threshold: Node, key_at: KeyAt) -> None:
        """Write the elements from a position on that a mask chooses: keys up to a threshold."""
        out, lanes = self._out, chosen.type.lanes
        if not out.compresses or lanes > _MOST_COMPRESSED:
            with out.loop(lanes) as i:
                at = out.emit(simplify.add(start, i))
                key = out.emit(key_at(at))
                self.take(key, at, math.LE(key, threshold))
            return
        numbers = cast(LANES(attrs=LanesAttrs(lanes)), uint32)
        kept = out.allocate(uint32, lanes)
        out.store(kept, const_index(0), COMPRESS(numbers, chosen))
        count = FOLD_LANES(cast(chosen, index), attrs=FoldAttrs(Fold.ADD))
        with out.loop(out.emit(count)) as i:
            at = out.emit(simplify.add(start, cast(out.load(kept, i), index)))
            self.take(out.emit(key_at(at)), at, simplify.TRUE)

    def varying(self) -> Node:
        """The bits in which keys differ."""
        return self._out.emit(math.XOR(self._united, self._common))


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


class _Table:
    """Counters, one a bucket."""

    def __init__(self, out: Statements, buckets: _Buckets) -> None:
        self._out = out
        self.buckets = buckets
        self._size = buckets.last + 1
        self.counts = out.allocate(uint32, self._size)

    @classmethod
    def sampled(cls, out: Statements, row: Row, key_at: KeyAt, bits: int) -> _Table:
        """Buckets as wide as what lies between the least and the greatest of a sample."""
        least, most = out.variable(_word(_ALL)), out.variable(_word(0))
        samples = min(_SAMPLES, max(row.limit // 16, 16))
        with out.loop(samples) as i:
            key = out.emit(key_at(_sample_position(out, row, i, samples)))
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
        most_key = (1 << key_bits(row.source.dtype)) - 1
        return cls(out, _Buckets(base, shift, (1 << bits) - 1, most_key))

    def count(self, total: Node | int, key_at: KeyAt) -> None:
        """Count keys."""
        out = self._out
        with out.loop(self._size) as bucket:
            out.store(self.counts, bucket, const_bits(0, uint32))
        with out.loop(total) as i:
            at = self.buckets.of(out, key_at(i))
            known = out.load(self.counts, at)
            out.store(self.counts, at, math.ADD(known, const_bits(1, uint32)))


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
