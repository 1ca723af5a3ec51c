"""Rows of intermediates start where copy engines and vectors can, whatever their length.

A row of 50257 elements of 16 bits starts at any even address: no copy engine takes it, and threads
move its elements one by one.  Nothing outside of a schedule sees its intermediates, so their rows
may be some elements apart.  Elements between rows are nobody's: kernels that run along such rows
compute and store them as well, so that their vectors are whole, and folds leave them out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.ir.build import const_bits, const_index
from tilework.ir.fold import identity_bits
from tilework.ir.node import make, toposort
from tilework.ir.ops import math, memory, tensor
from tilework.ir.ops.index import RANGE
from tilework.ir.ops.program import FAULT_IF
from tilework.ir.symbolic import simplify
from tilework.schedule.passes.layouts import movable_buffers, place_stores
from tilework.schedule.passes.stored import Stored
from tilework.schedule.schedule import kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tilework.ir.node import Node
    from tilework.schedule.passes.kernel_graph import Buffer, Kernel
    from tilework.schedule.schedule import Limits

#: What rows start at a multiple of, in bytes, and the elements that a vector has at least.
_ROW_BYTES, _LANES = 16, 8
#: Rows and whole buffers that are worth it, in elements and in bytes.
_LEAST_ROW, _LEAST_BYTES = 128, 1 << 20
#: What must not see elements that are nobody's.
_UNSAFE = frozenset((math.IDIV, math.MOD, tensor.SCAN, FAULT_IF))


def pitch_rows(kernels: Sequence[Kernel], contractions: set[Node], limits: Limits) -> None:
    """Let the rows of large intermediates start at multiples of 16 bytes.

    Args:
        kernels: all kernels of a function; the orders of intermediates are chosen.
        contractions: the REDUCEs that are sums of products.
        limits: says for which devices.
    """
    wishing = [k for k in kernels if kind_of(k.device) in limits.pitched_on]
    if not wishing:
        return
    changed = False
    for buffer in movable_buffers(kernels, set(wishing), contractions):
        order = tuple(range(len(buffer.shape))) if buffer.stored is None else buffer.stored.order
        row = buffer.shape[order[-1]]
        lanes = max(_ROW_BYTES // buffer.dtype.itemsize, _LANES)
        is_large = buffer.size_bytes >= _LEAST_BYTES
        if isinstance(row, int) and is_large and row >= _LEAST_ROW and row % lanes:
            buffer.stored = Stored(order, -(-row // lanes) * lanes)
            changed = True
    for kernel in wishing if changed else ():
        place_stores(kernel)


def pitches(arguments: Sequence[Buffer]) -> dict[int, tuple[int, int]]:
    """By number, how long the rows of arguments are, and how far apart, where that differs."""
    found: dict[int, tuple[int, int]] = {}
    for slot, buffer in enumerate(arguments):
        if buffer.stored is not None and buffer.stored.pitch:
            row = buffer.shape[buffer.stored.order[-1]]
            if isinstance(row, int):
                found[slot] = (row, buffer.stored.pitch)
    return found


def widen_rows(sink: Node, rows: Mapping[int, tuple[int, int]]) -> Node:
    """KERNEL -> KERNEL: loops along rows run to where the next row starts.

    Args:
        sink: A kernel without sums of products.
        rows: Of some arguments, how long rows are and how far apart.

    Ensures: the same elements; folds have their identity for what is between rows.
    """
    order = toposort(sink)
    for range_ in [node for node in order if node.op is RANGE]:
        pitch = _common_pitch(range_, order, rows)
        if pitch:
            sink = _widened(sink, range_, pitch)
            order = toposort(sink)
    return sink


def _common_pitch(range_: Node, order: list[Node], rows: Mapping[int, tuple[int, int]]) -> int:
    """How far apart rows along a range are in all that moves with it; 0 if that is not possible."""
    moved, found = {range_}, set[int]()
    for node in order:
        if moved.isdisjoint(node.src):
            continue
        if node.op is memory.INDEX:
            length, pitch = rows.get(int(node.src[0].attrs.slot), (0, 0))
            _, total = simplify.terms(node.src[1])
            others = [term for term in total if term is not range_ and term in moved]
            if others or total.get(range_) != 1 or simplify.value_of(range_.src[0]) != length:
                return 0
            found.add(pitch)
        elif node.op is tensor.REDUCE and node.src[0] not in moved:
            return 0  # folds what does not move with it: so often as there are elements
        elif node.op in _UNSAFE:
            return 0
        if node.op is not tensor.REDUCE or range_ not in node.src[1:]:
            moved.add(node)
    return found.pop() if len(found) == 1 else 0


def _widened(sink: Node, range_: Node, pitch: int) -> Node:
    wide = make(RANGE, (const_index(pitch),), range_.attrs)
    inside = simplify.less(wide, range_.src[0])
    folds = {}
    for node in toposort(sink):
        if node.op is tensor.REDUCE and range_ in node.src[1:]:
            dtype = node.type.dtype
            nothing = const_bits(identity_bits(node.attrs.fold, dtype), dtype)
            value = math.WHERE(inside, node.src[0], nothing)
            folds[node] = make(tensor.REDUCE, (value, *node.src[1:]), node.attrs)
    (sink,) = simplify.substitute([sink], folds) if folds else (sink,)
    return simplify.substitute([sink], {range_: wide})[0]
