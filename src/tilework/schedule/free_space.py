"""Free parts of a growing range of bytes, found and merged in a bounded number of steps.

    space = FreeSpace()
    start = space.take(512)                  # the smallest part that fits; of several the first
    space.give_back(start, 512)              # merges with what is free beside it

Free parts are found by their ends, which needs no search, and by their length through
`OrderedIntegers`: sets of integers as a tree of bitmaps of a fixed depth.  So neither operation
looks at more places when more parts are free.
"""

from __future__ import annotations

from typing import Final

from tilework.base.errors import InternalError

#: Parts begin and end at multiples of this.
BLOCK: Final = 256
_LEVEL_BITS: Final = 10
_LEVELS: Final = 4
_MASK: Final = (1 << _LEVEL_BITS) - 1
#: Blocks beyond this are never asked for: 2^40 blocks are 256 TiB.
_MOST_BLOCKS: Final = 1 << _LEVEL_BITS * _LEVELS


class OrderedIntegers:
    """A set of integers of [0, 2^40) that finds the next one in a fixed number of steps.

    A row of level 0 is a bitmap of 1024 numbers that differ in their last ten bits; one of a level
    above tells which rows below are not empty.

    Example:
        >>> numbers = OrderedIntegers()
        >>> numbers.add(5)
        >>> numbers.add(70_000)
        >>> numbers.next(5), numbers.next(6), numbers.next(70_001)
        (5, 70000, None)
    """

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: tuple[dict[int, int], ...] = tuple({} for _ in range(_LEVELS))

    def __bool__(self) -> bool:
        """Whether there is any number."""
        return bool(self._rows[-1])

    def add(self, number: int) -> None:
        """Add a number."""
        for rows in self._rows:
            above = number >> _LEVEL_BITS
            found = rows.get(above, 0)
            rows[above] = found | 1 << (number & _MASK)
            if found:
                return
            number = above

    def remove(self, number: int) -> None:
        """Remove a number that is there."""
        for rows in self._rows:
            above = number >> _LEVEL_BITS
            left = rows[above] & ~(1 << (number & _MASK))
            if left:
                rows[above] = left
                return
            del rows[above]
            number = above

    def next(self, number: int) -> int | None:
        """Return the least number that is not below `number`, or None."""
        for level, rows in enumerate(self._rows):
            above = number >> _LEVEL_BITS
            found = rows.get(above, 0) >> (number & _MASK)
            if found:
                number += _lowest(found)
                for below in reversed(self._rows[:level]):
                    number = number << _LEVEL_BITS | _lowest(below[number])
                return number
            number = above + 1
        return None


def _lowest(bitmap: int) -> int:
    return (bitmap & -bitmap).bit_length() - 1


class FreeSpace:
    """A growing range of bytes: the smallest free part that fits is taken, neighbours merge."""

    def __init__(self) -> None:
        self._blocks = 0
        self._end_of: dict[int, int] = {}  # of free parts, in blocks
        self._start_of: dict[int, int] = {}
        self._lengths = OrderedIntegers()
        self._starts: dict[int, OrderedIntegers] = {}  # of free parts by their length
        self._taken: dict[int, int] = {}

    @property
    def size_bytes(self) -> int:
        """Bytes from the start to the end of the last part that was ever taken."""
        return self._blocks * BLOCK

    def take(self, size_bytes: int) -> int:
        """Return the offset of `size_bytes` free bytes, a multiple of `BLOCK`.

        Raises:
            InternalError: there are no so large numbers.
        """
        blocks = max(-(-size_bytes // BLOCK), 1)
        if self._blocks + blocks >= _MOST_BLOCKS:
            raise InternalError("memory plan: an arena is too large", got=f"{size_bytes} bytes")
        length = self._lengths.next(blocks)
        if length is not None:
            start = self._starts[length].next(0)
            if start is None:
                raise InternalError("memory plan: a length without a free part", got=length)
            self._remove(start, start + length)
            if length > blocks:
                self._insert(start + blocks, start + length)
        elif self._blocks in self._start_of:
            # The free part at the end grows.
            start = self._start_of[self._blocks]
            self._remove(start, self._blocks)
            self._blocks = start + blocks
        else:
            start = self._blocks
            self._blocks += blocks
        self._taken[start * BLOCK] = size_bytes
        return start * BLOCK

    def give_back(self, start: int, size_bytes: int) -> None:
        """Free what `take` gave.

        Raises:
            InternalError: it is not taken, or has another size.
        """
        if self._taken.get(start) != size_bytes:
            raise InternalError(
                "memory plan: bytes are given back that were not taken",
                got=f"{size_bytes} bytes at {start}",
            )
        del self._taken[start]
        first = start // BLOCK
        end = first + max(-(-size_bytes // BLOCK), 1)
        if end in self._end_of:
            following = self._end_of[end]
            self._remove(end, following)
            end = following
        if first in self._start_of:
            before = self._start_of[first]
            self._remove(before, first)
            first = before
        self._insert(first, end)

    def _insert(self, start: int, end: int) -> None:
        self._end_of[start] = end
        self._start_of[end] = start
        starts = self._starts.get(end - start)
        if starts is None:
            starts = self._starts[end - start] = OrderedIntegers()
            self._lengths.add(end - start)
        starts.add(start)

    def _remove(self, start: int, end: int) -> None:
        del self._end_of[start]
        del self._start_of[end]
        starts = self._starts[end - start]
        starts.remove(start)
        if not starts:
            del self._starts[end - start]
            self._lengths.remove(end - start)
