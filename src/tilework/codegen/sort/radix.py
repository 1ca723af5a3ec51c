"""Long rows: a radix sort that takes digits from the least significant one on.

A pair of key and position is one 64-bit word: 32 bits of the key above, the position below.
Each pass moves the words in order to where those of their digit begin, which follows from how many
have each value of it.  Digits that all keys share are left out.  The first pass makes the words
from the elements and the last one leaves only positions, so nothing is moved for its own sake.
Keys of 64 bits whose upper halves differ are sorted by their lower halves first.  Keys of integers
are what they exceed the least one by: numbers on both sides of zero differ in few digits then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.codegen.sort.digits import begin_digit, take_place
from tilework.codegen.sort.elements import ElementSort
from tilework.codegen.sort.keys import key_bits, sorting_key
from tilework.codegen.sort.select import select
from tilework.dtypes import index, uint32, uint64
from tilework.ir.build import bitcast, cast, const_bits, const_index
from tilework.ir.ops import math
from tilework.ir.ops.control import BROADCAST, FOLD_LANES, FoldAttrs
from tilework.ir.ops.index import LanesAttrs
from tilework.ir.ops.tensor import Fold
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from tilework.codegen.sort.row import Row
    from tilework.codegen.sort.statements import Statements
    from tilework.dtypes import DType
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

#: From this many elements on, fewer passes are worth the larger tables of wider digits.
WIDE_FROM = 4096
_HALF = 32
_LOW = (1 << _HALF) - 1
#: Up to so many words are ranked by comparing all with all, in vectors of so many.
_FEW, _LANES = 128, 8


def digit_of(dtype: DType, limit: int) -> int:
    """The bits of a digit for rows of at most `limit` elements."""
    return 11 if limit >= WIDE_FROM and key_bits(dtype) >= _HALF else 8


def sort_by_digits(out: Statements, row: Row, digit: int, target: TargetSpec) -> None:
    """Sort one row of any length but 0 by digits of so many bits."""
    _RadixSort(out, row, digit, target).write()


class _RadixSort:
    def __init__(self, out: Statements, row: Row, digit: int, target: TargetSpec) -> None:
        self.out, self.row = out, row
        self.bits = key_bits(row.source.dtype)
        width = min(self.bits, _HALF)
        self.digit = digit
        self.digits = -(-width // self.digit)
        self.values = 1 << self.digit
        # The words, twice: each pass moves them from one half to the other.
        self.words = out.allocate(uint64, 2 * row.limit + _LANES)
        self.counts = out.allocate(uint32, self.digits * self.values)
        #: How many elements are sorted, and the rank of the first of them.
        self.size: Node = row.size
        self.begin: Node | None = None
        #: The least key of integers of more than one digit; keys count from there.
        self.least = self._least_key(target) if self._counts_from_least() else None

    def _counts_from_least(self) -> bool:
        return self.row.source.dtype.is_integer and self.bits > self.digit and self.row.count < 0

    def _least_key(self, target: TargetSpec) -> Node:
        """The least key of the row, found in vectors."""
        walker = ElementSort(self.out, self.row, target)
        most = (1 << walker.bits) - 1
        found = {
            count: self.out.variable(walker.number(most, count)) for count in {1, walker.lanes}
        }

        def visit(_: Node, element: Node) -> None:
            least = found[element.type.lanes if element.type.shape else 1]
            self.out.assign(least, math.MINIMUM(least, walker.key(element)))

        walker.walk(visit)
        least = found[1]
        if walker.lanes > 1:
            lane = FOLD_LANES(found[walker.lanes], attrs=FoldAttrs(Fold.MIN))
            least = math.MINIMUM(least, lane)
        return self.out.emit(cast(math.ADD(least, walker.number(0)), uint64))

    def write(self) -> None:
        out, row = self.out, self.row
        if not row.is_whole:
            self._write_selected()
            return
        first = out.emit(self._key(const_index(0)))
        varying = out.variable(_word(0))
        self._clear()
        with out.loop(row.size) as i:
            key = self._key(i)
            out.assign(varying, math.OR(varying, math.XOR(key, first)))
            self._count(math.AND(key, _word(_LOW)))
        if self.bits <= _HALF:
            self._sort_halves(varying)
            return
        upper = out.emit(math.SHR(varying, _word(_HALF)))
        with out.when(math.EQ(upper, _word(0))):
            self._sort_halves(varying)
        with out.when(math.NE(upper, _word(0))):
            self._sort_whole(varying, upper)

    def _write_selected(self) -> None:
        """Sort only the elements among which the wanted ranks are."""
        out = self.out
        is_wide = self.bits > _HALF
        chosen = select(out, self.row, self._key, self._place_low, is_wide=is_wide)
        self.size, self.begin = chosen.size, chosen.begin
        if not is_wide:
            with out.when(math.LE(self.size, const_index(_FEW))):
                self._rank_words()
        with out.when(math.LT(const_index(0 if is_wide else _FEW), self.size)):
            self._clear()
            first = out.emit(out.load(self.words, const_index(0)))
            varying = out.variable(_word(0))
            with out.loop(self.size) as i:
                word = out.load(self.words, i)
                out.assign(varying, math.OR(varying, math.XOR(word, first)))
                self._count(math.SHR(word, _word(_HALF)))
            if not is_wide:
                self._sort_words(out.emit(math.SHR(varying, _word(_HALF))))
                return
            upper = out.emit(math.SHR(chosen.varying, _word(_HALF)))
            with out.when(math.EQ(upper, _word(0))):
                self._sort_words(chosen.varying)
            with out.when(math.NE(upper, _word(0))):
                self._sort_by_both(chosen.varying, upper, out.variable(const_index(0)), -1)

    def _rank_words(self) -> None:
        """Put a few words in order: the place of each is the number of those below it."""
        out = self.out
        with out.loop(_LANES) as i:
            # Not below any word.
            out.store(self.words, simplify.add(self.size, i), _word((1 << 64) - 1))
        blocks = math.CDIV(math.ADD(self.size, const_index(_LANES - 1)), const_index(_LANES))
        blocks = out.emit(blocks)
        spread = LanesAttrs(_LANES)
        with out.loop(self.size) as i:
            own = out.load(self.words, i)
            all_ = out.emit(BROADCAST(own, attrs=spread))
            count = out.variable(const_bits(0, index, (_LANES,)))
            with out.loop(blocks) as block:
                others = out.load(self.words, simplify.scale(block, _LANES), _LANES)
                update = out.assign(count, math.ADD(count, cast(math.LT(others, all_), index)))
            rank = FOLD_LANES(out.read(count, update), attrs=FoldAttrs(Fold.ADD))
            self._put(out.emit(rank), bitcast(math.AND(own, _word(_LOW)), index))

    def _sort_words(self, varying: Node) -> None:
        """Sort words that are there, by the keys in their upper halves."""
        out = self.out
        _, most = self._differing(varying)
        with out.when(math.LT(most, const_index(0))), out.loop(self.size) as i:
            word = out.load(self.words, i)
            self._put(i, bitcast(math.AND(word, _word(_LOW)), index))
        with out.when(math.LE(const_index(0), most)):
            current = out.variable(const_index(0))
            with out.loop(self.digits) as number:
                is_wanted = math.AND(self._differs(varying, number), math.LT(number, most))
                with out.when(is_wanted):
                    self._pass(number, current)
            self._last_pass(most, current)

    # ---- keys of 32 bits

    def _sort_halves(self, varying: Node) -> None:
        """Sort by the lower 32 bits of the keys, whose digits are counted."""
        out, row = self.out, self.row
        least, most = self._differing(varying)
        with out.when(math.LT(most, const_index(0))), out.loop(row.size) as i:
            self._put(i, i)
        with out.when(math.EQ(least, most)):
            self._only_pass(least)
        with out.when(math.LT(least, most)):
            self._first_pass(least)
            current = out.variable(const_index(0))
            with out.loop(self.digits) as number:
                between = math.AND(math.LT(least, number), math.LT(number, most))
                is_wanted = math.AND(self._differs(varying, number), between)
                with out.when(is_wanted):
                    self._pass(number, current)
            self._last_pass(most, current)

    def _only_pass(self, number: Node) -> None:
        """From elements to positions."""
        out = self.out
        table = self._begin(number, const_bits(0, uint32))
        shift = self._shift(number)
        with out.loop(self.row.size) as i:
            self._put(self._take(table, self._low_key(i), shift), i)

    def _first_pass(self, number: Node) -> None:
        """From elements to words."""
        out = self.out
        table = self._begin(number, const_bits(0, uint32))
        shift = self._shift(number)
        with out.loop(self.row.size) as i:
            key = self._low_key(i)
            self._place(self._take(table, key, shift), key, bitcast(i, uint64))

    def _last_pass(self, number: Node, current: Node) -> None:
        """From words to positions."""
        out = self.out
        table = self._begin(number, const_bits(0, uint32))
        place = out.emit(math.ADD(self._shift(number), _word(_HALF)))
        with out.loop(self.size) as i:
            word = out.load(self.words, simplify.add(current, i))
            at = self._take(table, word, place)
            self._put(at, bitcast(math.AND(word, _word(_LOW)), index))

    # ---- keys of 64 bits

    def _sort_whole(self, varying: Node, upper: Node) -> None:
        out, row = self.out, self.row
        least, _ = self._differing(math.AND(varying, _word(_LOW)))
        current = out.variable(const_index(0))
        with out.when(math.EQ(least, const_index(self.digits))), out.loop(row.size) as i:
            self._place(i, self._key(i), bitcast(i, uint64))
        with out.when(math.LT(least, const_index(self.digits))):
            self._first_pass(least)
        self._sort_by_both(varying, upper, current, least)

    def _sort_by_both(self, varying: Node, upper: Node, current: Node, least: Node | int) -> None:
        """Sort words by the lower halves of keys, by digits above `least`, then by the upper."""
        out = self.out
        least = const_index(least) if isinstance(least, int) else least
        with out.loop(self.digits) as number:
            is_wanted = math.AND(self._differs(varying, number), math.LT(least, number))
            with out.when(is_wanted):
                self._pass(number, current)
        self._take_upper_halves(current)
        _, most = self._differing(upper)
        # A variable of its own, so that no statement stands twice.
        moved = out.variable(current)
        with out.loop(self.digits) as number:
            is_wanted = math.AND(self._differs(upper, number), math.LT(number, most))
            with out.when(is_wanted):
                self._pass(number, moved)
        self._last_pass(most, moved)

    def _take_upper_halves(self, current: Node) -> None:
        """Put the upper halves of the keys into the words, and count their digits."""
        out = self.out
        self._clear()
        with out.loop(self.size) as i:
            at = out.emit(simplify.add(current, i))
            position = math.AND(out.load(self.words, at), _word(_LOW))
            key = math.SHR(self._key(bitcast(position, index)), _word(_HALF))
            self._place(at, key, position)
            self._count(key)

    # ---- parts

    def _key(self, position: Node) -> Node:
        element = self.row.element(self.out, position)
        key = cast(sorting_key(element, descending=self.row.descending), uint64)
        return key if self.least is None else math.SUB(key, self.least)

    def _low_key(self, position: Node) -> Node:
        """The lower half of a key: the last of its digits ends where it does."""
        key = self._key(position)
        return key if self.bits <= _HALF else math.AND(key, _word(_LOW))

    def _clear(self) -> None:
        with self.out.loop(self.digits * self.values) as i:
            self.out.store(self.counts, i, const_bits(0, uint32))

    def _count(self, key: Node) -> None:
        """Count the digits of a key of 32 bits."""
        out = self.out
        for number in range(self.digits):
            shifted = math.SHR(key, _word(number * self.digit)) if number else key
            digit = bitcast(math.AND(shifted, _word(self.values - 1)), index)
            entry = simplify.add(digit, const_index(number * self.values))
            known = out.load(self.counts, entry)
            out.store(self.counts, entry, math.ADD(known, const_bits(1, uint32)))

    def _place_low(self, at: Node, key: Node, position: Node) -> None:
        """Write the word of the lower half of a key."""
        self._place(at, key if self.bits <= _HALF else math.AND(key, _word(_LOW)), position)

    def _place(self, at: Node, key: Node, position: Node) -> None:
        """Write the word of the lower 32 bits of a key."""
        word = math.OR(math.SHL(key, _word(_HALF)), position)
        self.out.store(self.words, at, word)

    def _put(self, at: Node, position: Node) -> None:
        """Write an element of the result."""
        rank = at if self.begin is None else simplify.add(self.begin, at)
        self.row.put(self.out, rank, position)

    def _shift(self, number: Node) -> Node:
        return self.out.emit(bitcast(simplify.scale(number, self.digit), uint64))

    def _differs(self, varying: Node, number: Node) -> Node:
        """Do keys differ in a digit?"""
        digit = math.AND(math.SHR(varying, self._shift(number)), _word(self.values - 1))
        return math.NE(digit, _word(0))

    def _differing(self, varying: Node) -> tuple[Node, Node]:
        """The first and the last digit in which keys differ; `digits` and -1 if there is none."""
        out = self.out
        least = out.variable(const_index(self.digits))
        most = out.variable(const_index(-1))
        with out.loop(self.digits) as number, out.when(self._differs(varying, number)):
            out.assign(least, math.MINIMUM(least, number))
            out.assign(most, number)
        return least, most

    def _begin(self, number: Node, start: Node) -> Node:
        return begin_digit(self.out, self.counts, number, self.values, start)

    def _take(self, table: Node, word: Node, place: Node) -> Node:
        """Where a word goes by its digit from bit `place` on; the next one goes behind it."""
        digit = math.AND(math.SHR(word, place), _word(self.values - 1))
        return take_place(self.out, self.counts, table, bitcast(digit, index))

    def _pass(self, number: Node, current: Node) -> None:
        """Move the words from the half that begins at `current` to the other one."""
        out = self.out
        other = out.emit(simplify.sub(self.size, current))
        table = self._begin(number, cast(other, uint32))
        place = out.emit(math.ADD(self._shift(number), _word(_HALF)))
        with out.loop(self.size) as i:
            word = out.load(self.words, simplify.add(current, i))
            out.store(self.words, self._take(table, word, place), word)
        out.assign(current, other)


def _word(value: int) -> Node:
    return const_bits(value, uint64)
