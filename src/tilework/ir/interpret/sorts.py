"""What the kernels of one pass over long rows mean: counts, their sums, and moves by a digit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tilework.dtypes import Kind, uint8, uint16, uint32, uint64
from tilework.ir.interpret.scalars import bitcast_scalars
from tilework.ir.ops import sort

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilework.dtypes import DType
    from tilework.ir.node import Node, OpDef

_UNSIGNED: Final = {1: uint8, 2: uint16, 4: uint32, 8: uint64}


def sorting_number(element: Any, dtype: DType, *, descending: bool) -> int:
    """An unsigned integer of the element's width that compares as the element is to be sorted."""
    kind = _UNSIGNED[dtype.itemsize]
    everything = (1 << kind.bits) - 1
    number = int(element) if dtype.is_bool else int(bitcast_scalars([element], dtype, kind)[0])
    sign = 1 << (dtype.bits - 1)
    if dtype.kind is Kind.SIGNED:
        number ^= sign
    elif dtype.kind is Kind.FLOAT:
        if element != element:
            number = everything
        elif number > sign:
            number ^= everything
        else:
            number |= sign
    return number ^ everything if descending else number


class _Row:
    """The row of one pass: its elements, their digits, and the tiles that they are in."""

    def __init__(self, node: Node, address: tuple[Any, int], size: int) -> None:
        cells, start = address
        attrs: sort.SortPassAttrs = node.attrs
        self.attrs = attrs
        self.tile = attrs.threads * attrs.items
        self.tiles = -(-size // self.tile)
        self.elements = [cells.load(at, node) for at in range(start, start + size)]
        dtype = node.src[-2].type.dtype
        if attrs.reads == "words":
            self.keys = self.elements
            behind = start + attrs.words
            self.positions = [cells.load(at, node) for at in range(behind, behind + size)]
        else:
            self.keys = [
                sorting_number(element, dtype, descending=attrs.descending)
                for element in self.elements
            ]
            self.positions = list(range(size))
        shift, values = attrs.number * attrs.digit, 1 << attrs.digit
        self.digits = [(key >> shift) % values for key in self.keys]


def _count(node: Node, target: int, sources: list[int]) -> Any:
    def step(frame: list[Any]) -> None:
        (cells, start), address, size = (frame[source] for source in sources)
        row = _Row(node, address, size)
        counts = [0] * (row.tiles << row.attrs.digit)
        for at, digit in enumerate(row.digits):
            counts[digit * row.tiles + at // row.tile] += 1
        for at, count in enumerate(counts, start):
            cells.store(at, count, node)

    return step


def _offsets(node: Node, target: int, sources: list[int]) -> Any:
    attrs = node.attrs

    def step(frame: list[Any]) -> None:
        (cells, start), size = (frame[source] for source in sources)
        tiles = -(-size // (attrs.threads * attrs.items))
        for value in range(1 << attrs.digit):
            total = 0
            for at in range(start + value * tiles, start + (value + 1) * tiles):
                count = cells.load(at, node)
                cells.store(at, total, node)
                total += count
            cells.store(start + (tiles << attrs.digit) + value, total, node)

    return step


def _move(node: Node, target: int, sources: list[int]) -> Any:
    attrs = node.attrs

    def step(frame: list[Any]) -> None:
        (cells, start), (table, first), address, size = (frame[source] for source in sources)
        row = _Row(node, address, size)
        totals = first + (row.tiles << attrs.digit)
        begin = [0]
        for value in range(1 << attrs.digit):
            begin.append(begin[-1] + table.load(totals + value, node))
        places = {
            (digit, tile): begin[digit] + table.load(first + digit * row.tiles + tile, node)
            for digit in range(1 << attrs.digit)
            for tile in range(row.tiles)
        }
        for at, digit in enumerate(row.digits):
            rank = places[digit, at // row.tile]
            places[digit, at // row.tile] += 1
            place = rank - attrs.first
            if attrs.count >= 0 and not 0 <= place < attrs.count:
                continue
            if attrs.writes == "elements":
                cells.store(start + place, row.elements[at], node)
            elif attrs.writes == "positions":
                cells.store(start + place, row.positions[at], node)
            else:
                cells.store(start + place, row.keys[at], node)
                cells.store(start + place + attrs.words, row.positions[at], node)

    return step


MAKERS: Final[dict[OpDef, Callable[[Node, int, list[int]], Any]]] = {
    sort.SORT_COUNT: _count,
    sort.SORT_OFFSETS: _offsets,
    sort.SORT_MOVE: _move,
}
