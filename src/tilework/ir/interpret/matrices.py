"""The meaning of matrices in registers: tuples of rows, which are tuples of words."""

from __future__ import annotations

import math as pymath
from typing import TYPE_CHECKING, Any, Final

from tilework.dtypes import float32, int32
from tilework.ir.interpret import floats
from tilework.ir.interpret.scalars import parts_of_word
from tilework.ir.ops import matrix_registers

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilework.dtypes import DType
    from tilework.ir.interpret.steps import Frame
    from tilework.ir.node import Node, OpDef

_MODULUS: Final = 1 << int32.bits
_HALF: Final = _MODULUS >> 1
_HALF_WORD: Final = 0xFFFF
_LEAST_NORMAL: Final = 2.0**-126
_ROUND: Final = floats.rounder(float32)
_MULTIPLY_ADD: Final = floats.fused_multiply_add(float32)


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
    added: Callable[[Any, list[Any], list[Any]], Any]
    added = _added_in_halves if attrs.x_dtype.is_float else _wrapped

    def step(frame: Frame) -> None:
        rows = [_parts_of(row, attrs.x_dtype) for row in frame[first]]
        columns = [_parts_of(column, attrs.y_dtype) for column in zip(*frame[second], strict=True)]
        frame[target] = tuple(
            [
                tuple([added(z, row, column) for z, column in zip(sums, columns, strict=True)])
                for sums, row in zip(frame[third], rows, strict=True)
            ]
        )

    return step


def _parts_of(words: tuple[int, ...], dtype: DType) -> list[Any]:
    """What words hold, the lowest part of each first."""
    parts = [
        part for word in words for part in parts_of_word(word, dtype.bits, signed=dtype.is_signed)
    ]
    if not dtype.is_float:
        return parts
    values = floats.small_values(dtype)
    return [_flushed(values[part & _HALF_WORD]) for part in parts]


def _wrapped(z: int, x: list[int], y: list[int]) -> int:
    total = z + sum(a * b for a, b in zip(x, y, strict=True))
    return (total + _HALF) % _MODULUS - _HALF


def _added_in_halves(z: float, x: list[float], y: list[float]) -> float:
    """The sums of lower and of upper halves, added, and what was there: as AMX does it."""
    low, high = (_chain(x[half::2], y[half::2]) for half in (0, 1))
    return _flushed(_ROUND(_flushed(_ROUND(low + high)) + _flushed(z)))


def _chain(x: list[float], y: list[float]) -> float:
    total = 0.0
    for a, b in zip(x, y, strict=True):
        total = _flushed(_MULTIPLY_ADD(a, b, total))
    return total


def _flushed(value: float) -> float:
    """A zero of the same sign for a number that float32 holds as a subnormal one."""
    return pymath.copysign(0.0, value) if abs(value) < _LEAST_NORMAL else value


MAKERS: Final[dict[OpDef, Callable[[Node, int, list[int]], Any]]] = {
    matrix_registers.LOAD_MATRIX: _load,
    matrix_registers.STORE_MATRIX: _store,
    matrix_registers.DOT_MATRIX: _dot,
}
