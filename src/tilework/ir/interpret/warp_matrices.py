"""The meaning of products of a warp and of copies that run beside the threads of a block.

A copy stores what it has read when it is waited for: until then its target belongs to it, and
whoever touches it races.
"""

from __future__ import annotations

from itertools import product
from operator import mul
from typing import TYPE_CHECKING, Any, Final

from tilework.base.errors import InternalError
from tilework.dtypes import DType, by_name, float32
from tilework.ir.interpret.floats import from_bits, rounder, to_bits
from tilework.ir.interpret.rings import LONG_OPERAND_BITS, SHORT_SUM_BITS, member_of, shortened
from tilework.ir.ops import warp_matrix
from tilework.ir.ops.warp_matrix import SUMS, WARP_THREADS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilework.ir.interpret.steps import Frame
    from tilework.ir.node import Node, OpDef

_TO_FLOAT32: Final = rounder(float32)
_HALF: Final = 1 << 31
_MATRICES, _SIDE, _CHUNK_BYTES = 4, 8, 16


def _copy_chunk(node: Node, target: int, sources: list[int]) -> Any:
    count, zero = node.attrs.count, 0.0 if node.src[0].type.dtype.is_float else 0

    def step(frame: Frame) -> None:
        member = member_of(frame, node)
        cells, start = frame[sources[0]]
        buffer, first = frame[sources[1]]
        inside = frame[sources[2]]
        if not 0 <= inside <= count:
            raise InternalError("copy_chunk: not so many elements", got=inside)
        for place in range(count):
            value = buffer.load(first + place, node) if place < inside else zero
            member.begin_write(cells, start + place, value, node)

    return step


def _copy_commit(node: Node, target: int, sources: list[int]) -> Any:
    return lambda frame: member_of(frame, node).close_writes()


def _copy_wait(node: Node, target: int, sources: list[int]) -> Any:
    left = node.attrs.count
    return lambda frame: member_of(frame, node).end_writes(left)


def _element_bits(value: Any, dtype: DType) -> int:
    bits: int = to_bits(value, dtype) if dtype.is_float else int(value) & ((1 << dtype.bits) - 1)
    return bits


def _load_fragment(node: Node, target: int, sources: list[int]) -> Any:
    dtype = node.src[0].type.dtype
    width, each = _CHUNK_BYTES // dtype.itemsize, 4 // dtype.itemsize
    is_turned = node.attrs.is_turned

    def word(cells: Any, places: list[int]) -> int:
        parts = [_element_bits(cells.load(at, node), dtype) for at in places]
        return sum(part << (dtype.bits * i) for i, part in enumerate(parts))

    def step(frame: Frame) -> None:
        member = member_of(frame, node)
        cells, at = frame[sources[0]]
        if at % width:
            raise InternalError("load_fragment: a row starts between 16 bytes", got=at)
        rows = member.share_in_warp(at)
        row, column = divmod(member.thread % WARP_THREADS, 4)
        found = []
        for matrix in range(_MATRICES):
            starts = rows[_SIDE * matrix : _SIDE * (matrix + 1)]
            if is_turned:
                places = [starts[each * column + i] + row for i in range(each)]
            else:
                places = [starts[row] + each * column + i for i in range(each)]
            found.append(word(cells, places))
        frame[target] = tuple(found)

    return step


def _elements(fragment: Any, dtype: DType) -> list[Any]:
    """The elements of a lane's words, word by word."""
    if dtype.itemsize > 4:
        return list(fragment)
    found = []
    for word in fragment:
        for at in range(0, 32, dtype.bits):
            bits = (word >> at) & ((1 << dtype.bits) - 1)
            if dtype is float32:  # the unit leaves the low bits of float32 out
                found.append(shortened(from_bits(bits, dtype), LONG_OPERAND_BITS))
            elif dtype.is_float:
                found.append(from_bits(bits, dtype))
            else:
                is_negative = dtype.minimum < 0 and bits >> (dtype.bits - 1)
                found.append(bits - (1 << dtype.bits) if is_negative else bits)
    return found


def _matrix_warp(node: Node, target: int, sources: list[int]) -> Any:
    attrs = node.attrs
    dtype = by_name(attrs.dtype)
    other = by_name(attrs.b_dtype or attrs.dtype)
    keep = _keeper(node, dtype)
    kinds = [dtype] * attrs.rows + [other] * attrs.columns
    each = max(4 // dtype.itemsize, 1)
    halves = 1 if dtype.itemsize > 4 else 2

    def row_of(quad: list[Any], number: int, first: int, step: int) -> list[Any]:
        """Row of a fragment along k, from the lanes that share it."""
        words = [first + step * half for half in range(halves)]
        return [
            quad[lane][number][each * word + i]
            for word, lane, i in product(words, range(4), range(each))
        ]

    def step(frame: Frame) -> None:
        member = member_of(frame, node)
        own = zip(sources[1:], kinds, strict=False)
        mine = [_elements(frame[slot], kind) for slot, kind in own]
        shared = member.share_in_warp(mine)
        row, column = divmod(member.thread % WARP_THREADS, 4)
        zero = 0.0 if node.type.dtype.is_float else 0
        sums = [zero] * len(frame[sources[0]]) if attrs.is_first else list(frame[sources[0]])
        quad = shared[4 * row : 4 * row + 4]
        rows = [row_of(quad, i, low, 2) for i in range(attrs.rows) for low in (0, 1)]
        columns = []
        for j, eighth, right in product(range(attrs.columns), (0, 1), (0, 1)):
            lanes = shared[4 * (2 * column + right) : 4 * (2 * column + right) + 4]
            columns.append(row_of(lanes, attrs.rows + j, halves * eighth, 1))
        width = 2 * attrs.columns
        for i, low, eighth, right in product(range(attrs.rows), (0, 1), range(width), (0, 1)):
            at = SUMS * (i * width + eighth) + 2 * low + right
            a, b = rows[2 * i + low], columns[2 * eighth + right]
            sums[at] = keep(sums[at] + sum(map(mul, a, b)))
        frame[target] = tuple(sums)

    return step


def _keeper(node: Node, operand: DType) -> Callable[[Any], Any]:
    """What the matrix unit keeps of a sum, as in `rings`."""
    result = node.type.dtype
    if not result.is_float:
        return lambda total: (total + _HALF) % (2 * _HALF) - _HALF
    if operand.itemsize == 1:
        return lambda total: shortened(total, SHORT_SUM_BITS)
    return _TO_FLOAT32 if result is float32 else float


MAKERS: Final[dict[OpDef, Callable[[Node, int, list[int]], Any]]] = {
    warp_matrix.COPY_CHUNK: _copy_chunk,
    warp_matrix.COPY_COMMIT: _copy_commit,
    warp_matrix.COPY_WAIT: _copy_wait,
    warp_matrix.LOAD_FRAGMENT: _load_fragment,
    warp_matrix.MATRIX_WARP: _matrix_warp,
}
