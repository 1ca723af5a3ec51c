"""The meaning of matrices in registers: tuples of rows, which are tuples of words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tilework.dtypes import int32
from tilework.ir.interpret.scalars import parts_of_word
from tilework.ir.ops import matrix_registers

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilework.ir.interpret.steps import Frame
    from tilework.ir.node import Node, OpDef

_BYTE_BITS: Final = 8
_MODULUS: Final = 1 << int32.bits
_HALF: Final = _MODULUS >> 1


def _load(node: Node, target: int, sources: list[int]) -> Any:
    address, attrs = sources[0], node.attrs

    def step(frame: Frame) -> None:
        cells, start = frame[address]
        starts = [start + row * attrs.stride for row in range(attrs.rows)]
        frame[target] = tuple(
            [
                tuple([cells.load(at, node) for at in range(first, first + attrs.columns)])
                for first in starts
            ]
        )

    return step


def _store(node: Node, target: int, sources: list[int]) -> Any:
    address, value = sources
    stride = node.attrs.stride

    def step(frame: Frame) -> None:
        cells, start = frame[address]
        for row, words in enumerate(frame[value]):
            for at, word in enumerate(words, start + row * stride):
                cells.store(at, word, node)

    return step


def _dot(node: Node, target: int, sources: list[int]) -> Any:
    first, second, third = sources
    attrs = node.attrs

    def step(frame: Frame) -> None:
        rows = [_bytes_of(row, signed=attrs.is_x_signed) for row in frame[first]]
        columns = [
            _bytes_of(column, signed=attrs.is_y_signed)
            for column in zip(*frame[second], strict=True)
        ]
        frame[target] = tuple(
            [
                tuple([_wrapped(z, row, column) for z, column in zip(sums, columns, strict=True)])
                for sums, row in zip(frame[third], rows, strict=True)
            ]
        )

    return step


def _bytes_of(words: tuple[int, ...], *, signed: bool) -> list[int]:
    return [part for word in words for part in parts_of_word(word, _BYTE_BITS, signed=signed)]


def _wrapped(z: int, x: list[int], y: list[int]) -> int:
    total = z + sum(a * b for a, b in zip(x, y, strict=True))
    return (total + _HALF) % _MODULUS - _HALF


MAKERS: Final[dict[OpDef, Callable[[Node, int, list[int]], Any]]] = {
    matrix_registers.LOAD_MATRIX: _load,
    matrix_registers.STORE_MATRIX: _store,
    matrix_registers.DOT_MATRIX: _dot,
}
