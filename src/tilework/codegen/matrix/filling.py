"""Slots that threads fill element by element, laid out as a copy engine would lay them out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.ir.build import const_bits, const_index
from tilework.ir.ops import math
from tilework.ir.ops.control import BROADCAST
from tilework.ir.ops.index import LanesAttrs, Unit
from tilework.ir.ops.matrix import PICK, PUT
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilework.codegen.matrix.writer import Writer
    from tilework.dtypes import DType
    from tilework.ir.node import Node

#: Chunks of a row change places with the row, by eights.
CHUNK_BYTES = 16
SWIZZLED_ROWS = 8


def swizzled(line: Node, column: Node, dtype: DType) -> Node:
    """The place in a row of 128 bytes: chunks of 16 bytes change with the row."""
    chunk = const_index(CHUNK_BYTES // dtype.itemsize)
    turned = simplify.mod(line, const_index(SWIZZLED_ROWS))
    permuted = math.XOR(simplify.idiv(column, chunk), turned)
    return simplify.add(math.MUL(permuted, chunk), simplify.mod(column, chunk))


def fill(
    out: Writer,
    dtype: DType,
    counts: tuple[int, int],
    value_at: Callable[[Node], Node],
    store: Callable[[Node, Node], None],
) -> None:
    """Compute a thread's elements of a slot, some at a time, and store them.

    Args:
        out: Where statements go.
        dtype: The dtype of an element.
        counts: How many elements a thread has, and how many of them are loaded before any is
            stored: a divisor.
        value_at: An element by its number.
        store: Stores an element, given its number.
    """
    count, batch = counts
    with out.loop(count // batch) as turn:
        zero = BROADCAST(const_bits(0, dtype), attrs=LanesAttrs(batch))
        held = out.variable(zero)
        with out.loop(batch, Unit.UNROLL) as at:
            number = simplify.add(simplify.scale(turn, batch), at)
            out.emit(PUT(held, at, value_at(number)))
        with out.loop(batch, Unit.UNROLL) as at:
            number = simplify.add(simplify.scale(turn, batch), at)
            store(number, PICK(held, at))
