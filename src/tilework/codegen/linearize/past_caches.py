"""LINEAR -> LINEAR: whole lines of large arrays are stored past the caches.

An ordinary store first reads the line that it writes to, and drives another one out of the caches.
Where a block of statements writes whole lines of an array that leaves the caches anyway, neither
is of use: a copy moves two thirds of the bytes.  In a transpose it matters more.  The lines that a
row of squares writes lie a power of two apart, share a few places of each cache, and drive each
other out before they have left; past the caches they do not meet.

Such stores need lines that begin where lines begin.  The pass proves it as far as the offset in the
array goes; where the array itself begins only a launch knows, so renderers write both forms of the
kernel and test the addresses once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.records import dataclass, field
from tilework.codegen.linearize.large import leaves_caches
from tilework.ir.node import Node, make
from tilework.ir.ops.control import END, ENDIF, IF
from tilework.ir.ops.index import RANGE
from tilework.ir.ops.memory import INDEX, LOAD, PARAM, STORE, StoreAttrs
from tilework.ir.ops.program import LINEAR
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from tilework.target.spec import TargetSpec


@dataclass(slots=True)
class _Written:
    """What a block writes from one place of an array on: its stores, and elements from there."""

    stores: list[Node] = field(default_factory=list)
    elements: set[int] = field(default_factory=set)


def store_past_caches(linear: Node, target: TargetSpec) -> Node:
    """The statements, with stores of whole lines to large arrays marked as such.

    Args:
        linear: The kernel, at the LINEAR stage.
        target: The machine; nothing is marked where its caches are not known.
    """
    if not target.l2_bytes or not target.line_bytes:
        return linear
    marked = _whole_lines(linear.src, target)
    if not marked:
        return linear
    done: dict[Node, Node] = {}
    for node in linear.src:
        src = tuple([done.get(source, source) for source in node.src])
        if node in marked:
            done[node] = STORE(*src, attrs=StoreAttrs(past_lines=target.line_bytes))
        elif src != node.src:
            done[node] = make(node.op, src, node.attrs)
    return LINEAR(*[done.get(node, node) for node in linear.src])


def _whole_lines(statements: tuple[Node, ...], target: TargetSpec) -> set[Node]:
    """The stores of blocks that write whole lines, and nothing else, of a large array."""
    read = {node.src[0].src[0] for node in statements if node.op is LOAD}
    found: set[Node] = set()
    block: dict[tuple[Node, Node], _Written] = {}
    for node in statements:
        if node.op in (RANGE, END, IF, ENDIF):
            found.update(_complete(block, target.line_bytes))
            block = {}
        elif node.op is STORE and _may_pass(node, target) and node.src[0].src[0] not in read:
            array, offset = node.src[0].src
            constant, total = simplify.terms(offset)
            lanes = node.src[1].type.lanes
            if constant % lanes:
                continue  # it does not begin at a multiple of its bytes, as it would have to
            written = block.setdefault((array, simplify.from_terms(0, total)), _Written())
            written.stores.append(node)
            written.elements.update(range(constant, constant + lanes))
    found.update(_complete(block, target.line_bytes))
    return found


def _may_pass(store: Node, target: TargetSpec) -> bool:
    """Is this an unconditional store of a vector to an argument that leaves the caches?"""
    address, value = store.src[:2]
    if len(store.src) > 2 or not value.type.shape or value.type.dtype.is_bool:
        return False
    if address.op is not INDEX or address.type.shape:
        return False
    return address.src[0].op is PARAM and leaves_caches(address.src[0], target)


def _complete(block: dict[tuple[Node, Node], _Written], line_bytes: int) -> list[Node]:
    """The stores that together write whole lines, if each begins where a line of its array does."""
    found: list[Node] = []
    for (array, place), written in block.items():
        line = line_bytes // int(array.type.dtype.itemsize)
        _, total = simplify.terms(place)
        lines = {element // line for element in written.elements}
        if all(factor % line == 0 for factor in total.values()) and len(
            written.elements
        ) == line * len(lines):
            found += written.stores
    return found
