"""Long rows: a radix sort that takes digits from the least significant one on.

A pair of key and position is one 64-bit word: 32 bits of the key above, the position below.
Each pass counts, for all values of a digit, how many words have it, and moves the words in order
to where those of their digit begin.  Digits that all keys share are left out.  Keys of 64 bits are
sorted by their lower halves first, then by the upper ones, if these differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.codegen.sort.keys import key_bits, sorting_key
from tilework.dtypes import index, uint32, uint64
from tilework.ir.build import bitcast, cast, const_bits, const_index
from tilework.ir.ops import math
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from tilework.codegen.sort.row import Row
    from tilework.codegen.sort.statements import Statements
    from tilework.ir.node import Node

#: From this many elements on, fewer passes are worth the larger tables of wider digits.
WIDE_FROM = 4096
_HALF = 32
_LOW = (1 << _HALF) - 1


def sort_by_digits(out: Statements, row: Row) -> None:
    """Sort one row of any length."""
    _RadixSort(out, row).write()


class _RadixSort:
    def __init__(self, out: Statements, row: Row) -> None:
        self.out, self.row = out, row
        self.bits = key_bits(row.source.dtype)
        self.width = min(self.bits, _HALF)
        self.digit = 11 if row.limit >= WIDE_FROM and self.width == _HALF else 8
        self.digits = -(-self.width // self.digit)
        self.values = 1 << self.digit
        # The words, twice: each pass moves them from one half to the other.
        self.words = out.allocate(uint64, 2 * row.limit)
        self.counts = out.allocate(uint32, self.digits * self.values)

    def write(self) -> None:
        out, row = self.out, self.row
        first = out.emit(self._key(const_index(0)))
        current = out.variable(const_index(0))
        varying = out.variable(_word(0))
        self._clear()
        with out.loop(row.size) as i:
            key = self._key(i)
            out.assign(varying, math.OR(varying, math.XOR(key, first)))
            self._place(i, math.AND(key, _word(_LOW)), bitcast(i, uint64))
        self._passes(current, varying)
        if self.bits > _HALF:
            rest = out.emit(math.SHR(varying, _word(_HALF)))
            with out.when(math.NE(rest, _word(0))):
                # A variable of its own, so that no statement stands twice.
                upper = out.variable(current)
                self._take_upper_halves(upper)
                self._passes(upper, rest)
                out.assign(current, upper)
        with out.loop(row.size) as i:
            word = out.load(self.words, simplify.add(current, i))
            position = bitcast(math.AND(word, _word(_LOW)), index)
            out.store(row.target, simplify.add(row.target_start, i), position)

    def _key(self, position: Node) -> Node:
        element = self.row.element(self.out, position)
        return cast(sorting_key(element, descending=self.row.descending), uint64)

    def _clear(self) -> None:
        with self.out.loop(self.digits * self.values) as i:
            self.out.store(self.counts, i, const_bits(0, uint32))

    def _place(self, at: Node, key: Node, position: Node) -> None:
        """Write a word and count its digits."""
        out = self.out
        out.store(self.words, at, math.OR(math.SHL(key, _word(_HALF)), position))
        for number in range(self.digits):
            shifted = math.SHR(key, _word(number * self.digit)) if number else key
            digit = bitcast(math.AND(shifted, _word(self.values - 1)), index)
            entry = simplify.add(digit, const_index(number * self.values))
            known = out.load(self.counts, entry)
            out.store(self.counts, entry, math.ADD(known, const_bits(1, uint32)))

    def _take_upper_halves(self, current: Node) -> None:
        out = self.out
        self._clear()
        with out.loop(self.row.size) as i:
            at = out.emit(simplify.add(current, i))
            position = math.AND(out.load(self.words, at), _word(_LOW))
            key = self._key(bitcast(position, index))
            self._place(at, math.SHR(key, _word(_HALF)), position)

    def _passes(self, current: Node, varying: Node) -> None:
        out, row = self.out, self.row
        with out.loop(self.digits) as number:
            shift = bitcast(simplify.scale(number, self.digit), uint64)
            differs = math.AND(math.SHR(varying, shift), _word(self.values - 1))
            with out.when(math.NE(differs, _word(0))):
                table = simplify.scale(number, self.values)
                other = out.emit(simplify.sub(row.size, current))
                self._begin(table, other)
                place = out.emit(math.ADD(shift, _word(_HALF)))
                with out.loop(row.size) as i:
                    word = out.load(self.words, simplify.add(current, i))
                    digit = math.AND(math.SHR(word, place), _word(self.values - 1))
                    entry = out.emit(simplify.add(table, bitcast(digit, index)))
                    at = out.load(self.counts, entry)
                    out.store(self.words, cast(at, index), word)
                    out.store(self.counts, entry, math.ADD(at, const_bits(1, uint32)))
                out.assign(current, other)

    def _begin(self, table: Node, other: Node) -> None:
        """Turn the counts of a digit into where the words of each of its values begin."""
        out = self.out
        total = out.variable(cast(other, uint32))
        with out.loop(self.values) as value:
            entry = out.emit(simplify.add(table, value))
            count = out.load(self.counts, entry)
            out.store(self.counts, entry, total)
            out.assign(total, math.ADD(total, count))


def _word(value: int) -> Node:
    return const_bits(value, uint64)
