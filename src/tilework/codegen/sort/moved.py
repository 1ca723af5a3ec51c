"""A radix sort of keys without positions, from the least significant digit on.

Digits are those of what keys exceed the least one by, without the bits that all keys share below:
where keys lie close together there are few.  One digit is counted, and each key written as often.
Of keys of 64 bits that lie far apart only the upper digits are sorted by, if few keys should agree
in all of them; then what is not in order yet is moved a few places.  Where that does not do, all
digits are sorted by.  The last pass turns keys into elements.

Tasks that share a row each take the keys of some buckets, in vectors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.codegen.sort.digits import TABLES, begin_digit, count_by_turns, take_place
from tilework.codegen.sort.elements import ElementSort
from tilework.codegen.sort.extent import Extent
from tilework.codegen.sort.select import share_of
from tilework.dtypes import float64, index, uint32, uint64
from tilework.ir.build import bitcast, cast, const, const_bits, const_index
from tilework.ir.ops import math
from tilework.ir.ops.control import BROADCAST, COMPRESS, FOLD_LANES, FoldAttrs
from tilework.ir.ops.index import LanesAttrs
from tilework.ir.ops.tensor import Fold
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from tilework.codegen.sort.elements import Differences
    from tilework.codegen.sort.row import Row
    from tilework.codegen.sort.statements import Statements
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

#: The bits of lanes that vectors are compressed by.
_COMPRESSED = (32, 64)
#: So many upper bits of wide keys are sorted by first.
_UPPER_BITS = 33
#: How many places a key is moved at the end, at most, and one key of how many.
_PLACES, _MOVED_OF = 16, 8


class MovedSort(ElementSort):
    """The statements that sort the elements of one row by digits."""

    def __init__(self, out: Statements, row: Row, target: TargetSpec, digit: int) -> None:
        super().__init__(out, row, target)
        self.digit, self.values = digit, 1 << digit
        #: Digits that are counted and sorted by at first; those of narrow keys are all.
        self.digits = -(-min(self.bits, _UPPER_BITS) // digit)
        #: Vectors are written beyond the last word.
        self.half = row.limit + self.lanes
        self.words = out.allocate(self.kind, 2 * self.half)
        self.counts = out.allocate(uint32, max(self.digits, TABLES) * self.values)
        self.size = row.size
        self.begin: Node = const_index(0)

    @property
    def may_lack_digits(self) -> bool:
        """Whether keys may have more digits than are sorted by at first."""
        return self.digits * self.digit < self.bits

    def write(self) -> None:
        """Add the statements."""
        out, row = self.out, self.row
        difference, extent = self.differences(), Extent(self)
        if row.parts == 1:
            self._take_all(difference, extent)
            self._sort(extent)
            self.write_shared(difference, None)
            return
        share = share_of(out, row)
        self.size, self.begin = out.variable(const_index(0)), out.variable(const_index(0))
        least, most = (out.emit(cast(key, self.kind)) for key in (share.least, share.most))
        self._take_share(difference, extent, (least, most))
        with out.when(math.AND(share.exists, math.LT(const_index(0), self.size))):
            self._sort(extent)
        self.write_shared(
            difference,
            lambda key: math.AND(share.exists, math.AND(math.LE(least, key), math.LE(key, most))),
        )

    def _take_all(self, difference: Differences, extent: Extent) -> None:
        """Write the keys of all elements."""

        def visit(start: Node, element: Node) -> None:
            key = self.out.emit(self.key(element))
            self.out.store(self.words, start, key)
            extent.look_at(key, None)
            difference.look_at(element, key)

        self.walk(visit)

    def _take_share(
        self, difference: Differences, extent: Extent, limits: tuple[Node, Node]
    ) -> None:
        """Write the keys from the least to the most, and count the others that are less."""
        out = self.out
        if "compress" not in self.target.native_ops or self.bits not in _COMPRESSED:
            self.lanes = 1
        spread = LanesAttrs(self.lanes)
        wide = [out.emit(BROADCAST(key, attrs=spread)) for key in limits] if self.lanes > 1 else []

        def visit(_: Node, element: Node) -> None:
            key = out.emit(self.key(element))
            is_vector = bool(element.type.shape)
            least, most = wide if is_vector else limits
            below = math.LT(key, least)
            chosen = out.emit(math.AND(math.LE(least, key), math.LE(key, most)))
            if is_vector:
                out.store(self.words, self.size, COMPRESS(key, chosen))
            else:
                out.store(self.words, self.size, key)  # and over it, if it is not wanted
            for count, mask in ((self.size, chosen), (self.begin, below)):
                number = cast(mask, index)
                if is_vector:
                    number = FOLD_LANES(number, attrs=FoldAttrs(Fold.ADD))
                out.assign(count, math.ADD(count, number))
            extent.look_at(key, chosen)
            difference.look_at(element, key)

        self.walk(visit)

    def _sort(self, extent: Extent) -> None:
        """Sort the words that are there, and write the elements from the rank `begin` on."""
        out = self.out
        spread = extent.found()
        self.least = spread.least
        rounded = math.ADD(spread.bits, const_index(self.digit - 1))
        digits = out.emit(math.CDIV(rounded, const_index(self.digit)))
        with out.when(math.LE(digits, const_index(1))):
            self._write_counted(spread.low, spread.width)
        one_by_one = math.AND(
            math.LT(const_index(1), digits), math.LT(digits, const_index(self.digits))
        )
        if not self.may_lack_digits:
            if self.digits > 1:
                with out.when(math.EQ(digits, const_index(self.digits))):
                    self._count_together(spread.low)
                    self._move_together(spread.low)
            if self.digits > 2:
                with out.when(one_by_one):
                    self._sort_one_by_one(spread.low, digits)
            return
        is_left = out.variable(cast(one_by_one, index))
        with out.when(math.LE(const_index(self.digits), digits)):
            covered = const_index(self.digits * self.digit)
            lacking = math.MAXIMUM(math.SUB(spread.bits, covered), const_index(0))
            lacking = out.emit(lacking)
            low = out.emit(math.ADD(spread.low, lacking))
            self._count_together(low)
            is_enough = math.OR(math.EQ(lacking, const_index(0)), self._are_few_equal())
            out.assign(is_left, math.SUB(const_index(1), cast(is_enough, index)))
            with out.when(math.EQ(is_left, const_index(0))):
                self._move_together(low)
                with out.when(math.LT(const_index(0), lacking)):
                    self._settle(is_left)
        with out.when(math.NE(is_left, const_index(0))):
            self._sort_one_by_one(spread.low, digits)

    # ---- one digit

    def _write_counted(self, low: Node, width: Node) -> None:
        """Write each key as often as it occurs: they differ in one digit."""
        out = self.out
        self._count(low, const_index(0))
        rank = out.variable(self.begin)
        with out.loop(out.emit(math.ADD(width, const_index(1)))) as value:
            number = out.emit(cast(out.load(self.counts, value), index))
            above = math.SHL(self._as_key(value), self._as_key(low))
            element = out.emit(self.element(math.ADD(self.least, above)))
            with out.loop(number) as i:
                self.put(simplify.add(rank, i), element)
            out.assign(rank, math.ADD(rank, number))

    # ---- all digits at once

    def _count_together(self, low: Node) -> None:
        """Count all digits that are sorted by at first, from bit `low` on."""
        out = self.out
        self._clear(self.digits)
        with out.loop(self.size) as i:
            above = out.emit(self._above(out.load(self.words, i), low))
            for number in range(self.digits):
                place = self.number(number * self.digit)
                digit = self._digit(math.SHR(above, place) if number else above)
                self._add_one(math.ADD(digit, const_index(number * self.values)))

    def _move_together(self, low: Node) -> None:
        """Sort by all digits that have been counted."""
        out = self.out
        for number in range(self.digits):
            shift = out.emit(math.ADD(low, const_index(number * self.digit)))
            current = const_index(self.half * (number % 2))
            if number < self.digits - 1:
                self._pass(const_index(number), shift, current)
            else:
                self._last_pass(const_index(number), shift, current)

    def _are_few_equal(self) -> Node:
        """Should few keys agree in all digits that were counted, were these independent?"""
        out = self.out
        size = out.emit(cast(self.size, float64))
        share = const(float(_MOVED_OF), float64)
        for number in range(self.digits):
            pairs = out.variable(const(0.0, float64))
            with out.loop(self.values) as value:
                entry = simplify.add(const_index(number * self.values), value)
                count = cast(out.load(self.counts, out.emit(entry)), float64)
                out.assign(pairs, math.ADD(pairs, math.MUL(count, count)))
            share = math.MUL(share, math.FDIV(pairs, math.MUL(size, size)))
        return out.emit(math.LE(math.MUL(share, size), const(1.0, float64)))

    def _settle(self, is_left: Node) -> None:
        """Move back what is less than what stands before it; `is_left` gets 1 if it is too much."""
        out = self.out
        moved, failed = out.variable(const_index(0)), out.variable(const_index(0))
        last = out.emit(simplify.sub(self.size, const_index(1)))
        most = out.emit(math.CDIV(self.size, const_index(_MOVED_OF)))

        blocks = math.CDIV(math.ADD(last, const_index(self.lanes - 1)), const_index(self.lanes))
        with out.loop(out.emit(blocks)) as block:
            start = out.emit(simplify.add(simplify.scale(block, self.lanes), const_index(1)))
            is_met = out.variable(const_index(1))
            if self.lanes > 1:  # what is left at the end is looked at one by one
                with out.when(math.LE(simplify.add(start, const_index(self.lanes)), self.size)):
                    is_less = self._is_less(start, self.lanes)
                    any_less = FOLD_LANES(is_less, attrs=FoldAttrs(Fold.MAX))
                    out.assign(is_met, cast(any_less, index))
            with out.when(math.NE(is_met, const_index(0))), out.loop(self.lanes) as lane:
                at = out.emit(math.MINIMUM(simplify.add(start, lane), last))
                is_open = math.AND(math.EQ(failed, const_index(0)), math.LE(moved, most))
                with out.when(math.AND(self._is_less(at, 1), is_open)):
                    with out.loop(_PLACES) as step:
                        self._order(out.emit(math.MAXIMUM(math.SUB(at, step), const_index(1))))
                    out.assign(moved, math.ADD(moved, const_index(1)))
                    end = math.MAXIMUM(math.SUB(at, const_index(_PLACES)), const_index(1))
                    out.assign(failed, cast(self._is_less(out.emit(end), 1), index))
        is_too_much = math.OR(math.LT(most, moved), math.NE(failed, const_index(0)))
        out.assign(is_left, cast(is_too_much, index))

    def _written(self, rank: Node, lanes: int = 1) -> Node:
        start = simplify.add(self.row.target_start, self.begin)
        return self.out.load(self.row.target, simplify.add(start, rank), lanes)

    def _is_less(self, at: Node, lanes: int) -> Node:
        """Are the elements from a rank on less than those before them?"""
        before = self._written(simplify.sub(at, const_index(1)), lanes)
        return self.out.emit(math.LT(self.key(self._written(at, lanes)), self.key(before)))

    def _order(self, at: Node) -> None:
        """Exchange the element of a rank with the one before it, if it is less."""
        before = self.out.emit(simplify.sub(at, const_index(1)))
        lower, upper = self._written(before), self._written(at)
        is_less = self.out.emit(math.LT(self.key(upper), self.key(lower)))
        for rank, other, own in ((before, upper, lower), (at, lower, upper)):
            self.put(simplify.add(self.begin, rank), math.WHERE(is_less, other, own))

    # ---- one digit after the other

    def _sort_one_by_one(self, low: Node, digits: Node) -> None:
        """Sort by so many digits from bit `low` on, each counted before it is sorted by."""
        out = self.out
        current = out.variable(const_index(0))
        with out.loop(digits) as number:
            shift = out.emit(math.ADD(low, simplify.scale(number, self.digit)))
            self._count(shift, current)
            is_last = math.LE(math.SUB(digits, const_index(1)), number)
            first = self._digit(self._above(out.load(self.words, current), shift))
            differs = math.NE(cast(out.load(self.counts, out.emit(first)), index), self.size)
            is_moved = math.AND(differs, math.LT(number, math.SUB(digits, const_index(1))))
            with out.when(is_last):
                self._last_pass(const_index(0), shift, current)
            with out.when(is_moved):
                self._pass(const_index(0), shift, current)
                out.assign(current, simplify.sub(const_index(self.half), current))

    def _count(self, shift: Node, current: Node) -> None:
        """Count one digit into the first table."""
        out = self.out

        def count(table: int, at: Node) -> None:
            self._count_word(simplify.add(current, at), shift, table)

        self._clear(TABLES)
        count_by_turns(out, self.size, count)
        with out.loop(self.values) as value:
            total = out.load(self.counts, value)
            for table in range(1, TABLES):
                entry = out.emit(simplify.add(const_index(table * self.values), value))
                total = math.ADD(total, out.load(self.counts, entry))
            out.store(self.counts, value, total)

    def _count_word(self, at: Node, shift: Node, table: int) -> None:
        digit = self._digit(self._above(self.out.load(self.words, self.out.emit(at)), shift))
        self._add_one(math.ADD(digit, const_index(table * self.values)))

    # ---- parts

    def _clear(self, tables: int) -> None:
        with self.out.loop(tables * self.values) as i:
            self.out.store(self.counts, i, const_bits(0, uint32))

    def _add_one(self, entry: Node) -> None:
        known = self.out.load(self.counts, self.out.emit(entry))
        self.out.store(self.counts, entry, math.ADD(known, const_bits(1, uint32)))

    def _as_key(self, number: Node) -> Node:
        return cast(bitcast(number, uint64), self.kind)

    def _above(self, word: Node, shift: Node) -> Node:
        """What a key exceeds the least one by, from a bit on."""
        return math.SHR(math.SUB(word, self.least), self._as_key(shift))

    def _digit(self, shifted: Node) -> Node:
        digit = math.AND(shifted, self.number(self.values - 1))
        return bitcast(cast(digit, uint64), index)

    def _place(self, table: Node, word: Node, shift: Node) -> Node:
        """Where a word goes by its digit; the next one goes behind it."""
        return take_place(self.out, self.counts, table, self._digit(self._above(word, shift)))

    def _pass(self, number: Node, shift: Node, current: Node) -> None:
        """Move the words from the half that begins at `current` to the other one."""
        out = self.out
        other = out.emit(simplify.sub(const_index(self.half), current))
        table = begin_digit(out, self.counts, number, self.values, cast(other, uint32))
        with out.loop(self.size) as i:
            word = out.load(self.words, simplify.add(current, i))
            out.store(self.words, self._place(table, word, shift), word)

    def _last_pass(self, number: Node, shift: Node, current: Node) -> None:
        """From words to elements."""
        out = self.out
        table = begin_digit(out, self.counts, number, self.values, const_bits(0, uint32))
        with out.loop(self.size) as i:
            word = out.load(self.words, simplify.add(current, i))
            rank = simplify.add(self.begin, self._place(table, word, shift))
            self.put(rank, self.element(word))
