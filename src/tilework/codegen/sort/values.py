"""Long rows of which the elements are wanted, and not their positions: only keys are moved.

A word is a key, half as wide as one with a position.  Keys of 8 bits are counted, and written as
often.  All others go through a radix sort from the least significant digit on; its last pass turns
keys into elements.  Tasks that share a row each take the keys of some buckets, in vectors.

The zeros have one key, and so have the NaNs.  Where a row has others than those that keys are
turned into, they are written once more, in the order in which they are in the row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.codegen.sort.digits import begin_digit, take_place
from tilework.codegen.sort.keys import (
    UNSIGNED,
    key_bits,
    shared_keys,
    sorted_element,
    sorting_key,
)
from tilework.codegen.sort.select import share_of
from tilework.dtypes import bool_, index, uint32, uint64
from tilework.ir.build import bitcast, cast, const_bits, const_index
from tilework.ir.ops import math
from tilework.ir.ops.control import BROADCAST, COMPRESS, FOLD_LANES, FoldAttrs
from tilework.ir.ops.index import LanesAttrs
from tilework.ir.ops.tensor import Fold
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilework.codegen.sort.row import Row
    from tilework.codegen.sort.statements import Statements
    from tilework.dtypes import DType
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

#: Keys of so many bits are counted, and not moved.
_COUNTED_BITS = 8
#: Into how many tables they are counted.
_TABLES = 4
#: The bits of lanes that vectors are compressed by.
_COMPRESSED = (32, 64)


def is_counted(dtype: DType) -> bool:
    """Whether elements of this dtype are counted, and not moved."""
    return key_bits(dtype) <= _COUNTED_BITS


def sort_values(out: Statements, row: Row, digit: int, target: TargetSpec) -> None:
    """Write the elements of one row in order, by digits of so many bits."""
    if is_counted(row.source.dtype):
        _Counted(out, row, target).write()
    else:
        _Digits(out, row, target, digit).write()


class _Values:
    """What both ways share: keys, elements, and a walk over the row in vectors."""

    def __init__(self, out: Statements, row: Row, target: TargetSpec) -> None:
        self.out, self.row, self.target = out, row, target
        self.bits = key_bits(row.source.dtype)
        self.kind = UNSIGNED[self.bits]
        self.lanes = max(target.vector_bits // self.bits, 1)
        self.shared = shared_keys(row.source.dtype, descending=row.descending)

    def number(self, value: int, lanes: int = 1) -> Node:
        return const_bits(value, self.kind, (lanes,) if lanes > 1 else ())

    def key(self, element: Node) -> Node:
        return sorting_key(element, descending=self.row.descending)

    def element(self, key: Node) -> Node:
        return sorted_element(key, self.row.source.dtype, descending=self.row.descending)

    def put(self, rank: Node, element: Node) -> None:
        """Write the element of a rank."""
        start = self.row.target_start
        self.out.store(self.row.target, simplify.add(start, rank), element)

    def walk(self, visit: Callable[[Node, Node], None]) -> None:
        """Call `visit` with where each vector of the row begins and its elements.

        What is left at the end comes one by one.
        """
        out, row, lanes = self.out, self.row, self.lanes
        whole = const_index(0)
        if lanes > 1:
            blocks = simplify.idiv(row.size, const_index(lanes))
            if blocks.op is math.IDIV:  # of a size known at run time; it is not negative
                blocks = math.CDIV(row.size, const_index(lanes))
            blocks = out.emit(blocks)
            with out.loop(blocks) as block:
                start = out.emit(simplify.scale(block, lanes))
                visit(start, out.load(row.source, simplify.add(row.source_start, start), lanes))
            whole = out.emit(simplify.scale(blocks, lanes))
        with out.loop(out.emit(simplify.sub(row.size, whole))) as i:
            at = out.emit(simplify.add(whole, i))
            visit(at, row.element(out, at))

    def differences(self) -> _Differences:
        """Find out whether elements differ from those that their keys are turned into."""
        return _Differences(self)

    def write_shared(self, difference: _Differences, mine: Callable[[Node], Node] | None) -> None:
        """Write what shares a key once more, in the order of the row, if it differs.

        Args:
            difference: What has looked at all elements.
            mine: Whether this task has a key; None: it has all.
        """
        out, row = self.out, self.row
        for shared in self.shared:
            key = self.number(shared)
            found = difference.found()
            with out.when(found if mine is None else math.AND(found, mine(key))):
                below = out.variable(const_index(0))
                with out.loop(row.size) as i:
                    is_below = math.LT(self.key(row.element(out, i)), key)
                    out.assign(below, math.ADD(below, cast(is_below, index)))
                with out.loop(row.size) as i:
                    element = row.element(out, i)
                    with out.when(math.EQ(self.key(element), key)):
                        self.put(below, element)
                        out.assign(below, math.ADD(below, const_index(1)))


class _Differences:
    """Whether any element has other bits than the one that its key is turned into."""

    def __init__(self, values: _Values) -> None:
        self._values = values
        self._vector: Node | None = None
        self._scalar: Node | None = None
        if values.shared:
            self._scalar = values.out.variable(values.number(0))
            if values.lanes > 1:
                self._vector = values.out.variable(values.number(0, values.lanes))

    def look_at(self, element: Node, key: Node) -> None:
        united = self._vector if element.type.shape else self._scalar
        if united is None:
            return
        values = self._values
        other = math.XOR(bitcast(element, values.kind), bitcast(values.element(key), values.kind))
        values.out.assign(united, math.OR(united, other))

    def found(self) -> Node:
        values = self._values
        if self._scalar is None:
            return const_bits(0, bool_)
        united = self._scalar
        if self._vector is not None:
            vector = FOLD_LANES(self._vector, attrs=FoldAttrs(Fold.MAX))
            united = math.OR(united, vector)
        return values.out.emit(math.NE(united, values.number(0)))


class _Counted(_Values):
    """Keys of few bits: each is written as often as it was counted."""

    def write(self) -> None:
        out, row = self.out, self.row
        size, tables = 1 << self.bits, _TABLES
        counts = out.allocate(uint32, tables * size)
        with out.loop(tables * size) as i:
            out.store(counts, i, const_bits(0, uint32))
        groups = simplify.idiv(row.size, const_index(tables))
        if groups.op is math.IDIV:
            groups = math.CDIV(row.size, const_index(tables))
        groups = out.emit(groups)
        with out.loop(groups) as group:
            # Equal neighbours do not wait for each other's counters.
            for table in range(tables):
                at = simplify.add(simplify.scale(group, tables), const_index(table))
                self._count(counts, table, row.element(out, out.emit(at)))
        rest = out.emit(simplify.scale(groups, tables))
        with out.loop(out.emit(simplify.sub(row.size, rest))) as i:
            self._count(counts, 0, row.element(out, out.emit(simplify.add(rest, i))))
        begin = out.variable(const_index(0))
        with out.loop(size) as value:
            count = out.variable(const_bits(0, uint32))
            with out.loop(tables) as table_:
                entry = simplify.add(simplify.scale(table_, size), value)
                out.assign(count, math.ADD(count, out.load(counts, out.emit(entry))))
            element = out.emit(self.element(cast(bitcast(value, uint64), self.kind)))
            number = out.emit(cast(count, index))
            with out.loop(number) as i:
                self.put(simplify.add(begin, i), element)
            out.assign(begin, math.ADD(begin, number))
        if self.shared:
            difference = self.differences()
            self.walk(lambda _, element: difference.look_at(element, self.key(element)))
            self.write_shared(difference, None)

    def _count(self, counts: Node, table: int, element: Node) -> None:
        out = self.out
        key = bitcast(cast(self.key(element), uint64), index)
        entry = out.emit(simplify.add(key, const_index(table << self.bits)))
        out.store(counts, entry, math.ADD(out.load(counts, entry), const_bits(1, uint32)))


class _Digits(_Values):
    """Keys that are moved, digit by digit."""

    def __init__(self, out: Statements, row: Row, target: TargetSpec, digit: int) -> None:
        super().__init__(out, row, target)
        self.digit, self.values = digit, 1 << digit
        self.digits = -(-self.bits // digit)
        #: Vectors are written beyond the last word.
        self.half = row.limit + self.lanes
        self.words = out.allocate(self.kind, 2 * self.half)
        self.counts = out.allocate(uint32, self.digits * self.values)

    def write(self) -> None:
        out, row = self.out, self.row
        difference = self.differences()
        if row.parts == 1:
            self._take_all(difference)
            self._sort(row.size, const_index(0))
            self.write_shared(difference, None)
            return
        share = share_of(out, row)
        size, begin = out.variable(const_index(0)), out.variable(const_index(0))
        least, most = (out.emit(cast(key, self.kind)) for key in (share.least, share.most))
        self._take_share(difference, (least, most), size, begin)
        with out.when(math.AND(share.exists, math.LT(const_index(0), size))):
            self._sort(size, begin)
        self.write_shared(
            difference,
            lambda key: math.AND(share.exists, math.AND(math.LE(least, key), math.LE(key, most))),
        )

    def _take_all(self, difference: _Differences) -> None:
        """Write the keys of all elements."""

        def visit(start: Node, element: Node) -> None:
            key = self.out.emit(self.key(element))
            self.out.store(self.words, start, key)
            difference.look_at(element, key)

        self.walk(visit)

    def _take_share(
        self, difference: _Differences, limits: tuple[Node, Node], size: Node, begin: Node
    ) -> None:
        """Write the keys from the least to the most, and count the others that are less."""
        out = self.out
        one_by_one = {"compress"} - self.target.native_ops or self.bits not in _COMPRESSED
        if one_by_one:
            self.lanes = 1
        spread = LanesAttrs(self.lanes)
        wide = [out.emit(BROADCAST(key, attrs=spread)) for key in limits] if self.lanes > 1 else []

        def visit(_: Node, element: Node) -> None:
            key = out.emit(self.key(element))
            is_vector = bool(element.type.shape)
            least, most = wide if is_vector else limits
            below = math.LT(key, least)
            chosen = math.AND(math.LE(least, key), math.LE(key, most))
            if is_vector:
                out.store(self.words, size, COMPRESS(key, chosen))
            else:
                out.store(self.words, size, key)  # and over it, if it is not wanted
            for count, mask in ((size, chosen), (begin, below)):
                number = cast(mask, index)
                if is_vector:
                    number = FOLD_LANES(number, attrs=FoldAttrs(Fold.ADD))
                out.assign(count, math.ADD(count, number))
            difference.look_at(element, key)

        self.walk(visit)

    def _sort(self, size: Node, begin: Node) -> None:
        """Sort the words that are there, and write the elements from the rank `begin` on."""
        out = self.out
        with out.loop(self.digits * self.values) as i:
            out.store(self.counts, i, const_bits(0, uint32))
        with out.loop(size) as i:
            word = out.load(self.words, i)
            for number in range(self.digits):
                place = self.number(number * self.digit)
                digit = math.SHR(word, place) if number else word
                at = simplify.add(self._digit(digit), const_index(number * self.values))
                known = out.load(self.counts, out.emit(at))
                out.store(self.counts, at, math.ADD(known, const_bits(1, uint32)))
        first = out.emit(out.load(self.words, const_index(0)))
        most = out.variable(const_index(-1))
        with out.loop(self.digits) as place, out.when(self._differs(first, place, size)):
            out.assign(most, place)
        with out.when(math.LT(most, const_index(0))), out.loop(size) as i:
            self.put(simplify.add(begin, i), self.element(first))
        with out.when(math.LE(const_index(0), most)):
            current = out.variable(const_index(0))
            with out.loop(self.digits) as at, out.when(math.LT(at, most)):
                self._pass_if_needed(at, first, current, size)
            self._last_pass(most, current, size, begin)

    def _digit(self, shifted: Node) -> Node:
        digit = math.AND(shifted, self.number(self.values - 1))
        return bitcast(cast(digit, uint64), index)

    def _shift(self, number: Node) -> Node:
        place = bitcast(simplify.scale(number, self.digit), uint64)
        return self.out.emit(cast(place, self.kind))

    def _differs(self, first: Node, number: Node, size: Node) -> Node:
        """Do the keys differ in a digit?  They don't where all have that of the first."""
        digit = self._digit(math.SHR(first, self._shift(number)))
        at = simplify.add(simplify.scale(number, self.values), digit)
        return math.NE(cast(self.out.load(self.counts, self.out.emit(at)), index), size)

    def _begin(self, number: Node, start: Node) -> Node:
        return begin_digit(self.out, self.counts, number, self.values, start)

    def _place(self, table: Node, word: Node, shift: Node) -> Node:
        """Where a word goes by its digit; the next one goes behind it."""
        digit = self._digit(math.SHR(word, shift))
        return take_place(self.out, self.counts, table, digit)

    def _pass_if_needed(self, number: Node, first: Node, current: Node, size: Node) -> None:
        with self.out.when(self._differs(first, number, size)):
            self._pass(number, current, size)

    def _pass(self, number: Node, current: Node, size: Node) -> None:
        """Move the words from the half that begins at `current` to the other one."""
        out = self.out
        other = out.emit(simplify.sub(const_index(self.half), current))
        table = self._begin(number, cast(other, uint32))
        shift = self._shift(number)
        with out.loop(size) as i:
            word = out.load(self.words, simplify.add(current, i))
            out.store(self.words, self._place(table, word, shift), word)
        out.assign(current, other)

    def _last_pass(self, number: Node, current: Node, size: Node, begin: Node) -> None:
        """From words to elements."""
        out = self.out
        table = self._begin(number, const_bits(0, uint32))
        shift = self._shift(number)
        with out.loop(size) as i:
            word = out.load(self.words, simplify.add(current, i))
            rank = simplify.add(begin, self._place(table, word, shift))
            self.put(rank, self.element(word))
