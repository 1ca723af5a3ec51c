"""Give a kernel the ranges that its index arithmetic wants: split if divided, else merged."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from tilework.codegen.analysis import Kernel, analyse, substitute_ranges
from tilework.codegen.passes.repeats import fold_repeats
from tilework.dtypes import index
from tilework.ir.build import const_bits, const_index
from tilework.ir.fold import identity_bits
from tilework.ir.node import toposort
from tilework.ir.ops import math
from tilework.ir.ops.index import RANGE, RangeAttrs, Unit
from tilework.ir.ops.tensor import REDUCE, SCAN
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from tilework.ir.node import Node

_SUMS = frozenset({math.ADD, math.SUB})
#: Up to so many elements (channels behind places, say) what limits an outer range is no obstacle:
#: vectors across several of its values are worth their masks.
_SHORT = 16


def normalise_ranges(sink: Node) -> Node:
    """KERNEL -> KERNEL with fewer divisions and fewer, longer ranges.

    Ensures: no index is a range divided (or taken modulo) by a number that divides its size; no
    two neighbouring ranges always occur as one; no loop folds into one place again and again.
    Numbers keep the nest order.
    """
    sink = drop_single(sink)
    sink = split_divided(sink)
    return merge_neighbours(fold_repeats(sink))


def drop_single(sink: Node) -> Node:
    """A range of size 1 is the number 0; a fold over nothing else is its value."""
    single = {n for n in toposort(sink) if n.op is RANGE and simplify.value_of(n.src[0]) == 1}
    if not single:
        return sink
    done: dict[Node, Node] = {}
    for node in toposort(sink):
        src = tuple([done[source] for source in node.src])
        if node in single:
            done[node] = const_index(0)
        elif node.op is REDUCE:
            left = tuple([done[loop] for loop in node.src[1:] if loop not in single])
            done[node] = REDUCE(src[0], *left, attrs=node.attrs) if left else src[0]
        elif node.op is SCAN and node.src[1] in single:
            dtype = node.type.dtype
            start = const_bits(identity_bits(node.attrs.fold, dtype), dtype)
            done[node] = start if node.attrs.exclusive else src[0]
        else:
            done[node] = node if src == node.src else simplify.rebuild(node, src)
    return done[sink]


def _fresh(number: int, size: Node) -> Node:
    return RANGE(size, attrs=RangeAttrs(number))


def split_divided(sink: Node) -> Node:
    """r // d and r % d with d | size(r)  ->  r1 and r2 where r = r1 * d + r2."""
    for _ in range(64):
        sink = _spread_numbers(sink)
        found = _divided_range(sink)
        if found is None:
            return sink
        range_, divisor = found
        number = range_.attrs.number
        size = simplify.value_of(range_.src[0]) or 0
        outer = _fresh(number, const_index(size // divisor))
        inner = _fresh(number + 1, const_index(divisor))
        value = simplify.add(simplify.scale(outer, divisor), inner)
        sink = substitute_ranges(sink, {range_: value}, {range_: (outer, inner)})
    return sink


def _divided_range(sink: Node) -> tuple[Node, int] | None:
    best: tuple[Node, int] | None = None
    order = toposort(sink)
    scanned = {node.src[1] for node in order if node.op is SCAN}
    for node in order:
        if node.op is not math.IDIV and node.op is not math.MOD:
            continue
        range_, divisor = node.src[0], simplify.value_of(node.src[1])
        if range_.op is not RANGE or not divisor or divisor <= 1:
            continue
        size = simplify.value_of(range_.src[0])
        if size is None or size % divisor or size == divisor or range_ in scanned:
            continue
        if best is None or divisor > best[1]:
            best = (range_, divisor)
    return best


def _spread_numbers(sink: Node) -> Node:
    """Renumber all ranges by twos in nest order, so that a split part fits between."""
    order = toposort(sink)
    ranges = sorted((n for n in order if n.op is RANGE), key=lambda r: int(r.attrs.number))
    if all(r.attrs.number == 2 * i for i, r in enumerate(ranges)):
        return sink
    return renumber(sink, ranges, 2)


def renumber(sink: Node, ranges: list[Node], step: int = 1) -> Node:
    """Give the ranges of a kernel the numbers 0, step, 2 * step, ... in the order given."""
    values: dict[Node, Node] = {}
    for position, range_ in enumerate(ranges):
        size = range_.src[0]
        if size.op is not math.CONST and values:
            size = substitute_ranges(size, values, {})
        values[range_] = RANGE(size, attrs=RangeAttrs(position * step, range_.attrs.unit))
    binders = {old: (new,) for old, new in values.items()}
    return substitute_ranges(sink, values, binders)


def merge_neighbours(sink: Node, *, outputs: bool = True) -> Node:
    """i * size(j) + j  ->  k where i and j never occur in another combination.

    With `outputs` false only ranges that reductions bind are merged (a staged copy may have made
    their strides agree).
    """
    for _ in range(64):
        kernel = analyse(sink)
        pair = _mergeable(kernel, outputs)
        if pair is None:
            return sink
        outer, inner = pair
        size_inner = simplify.value_of(inner.src[0]) or 1
        size_outer = simplify.value_of(outer.src[0]) or 1
        merged = _fresh(outer.attrs.number, const_index(size_outer * size_inner))
        values = {
            outer: simplify.idiv(merged, inner.src[0]),
            inner: simplify.mod(merged, inner.src[0]),
        }
        for node in kernel.order:
            limit = _limit_of(node, outer)
            if limit is not None:
                values[node] = _limited(limit, merged, size_inner)
        sink = substitute_ranges(sink, values, {outer: (merged,), inner: ()})
    return sink


def _mergeable(kernel: Kernel, outputs: bool) -> tuple[Node, Node] | None:
    groups = [kernel.outputs] if outputs else []
    groups.extend(list(reduce.src[1:]) for reduce in kernel.reduces)
    candidates: list[tuple[Node, Node]] = []
    seen: set[tuple[Node, Node]] = set()
    for group in groups:
        for outer, inner in pairwise(group):
            numbers = (simplify.value_of(outer.src[0]), simplify.value_of(inner.src[0]))
            loops = outer.attrs.unit is inner.attrs.unit is Unit.LOOP
            if loops and None not in numbers and (outer, inner) not in seen:
                seen.add((outer, inner))
                candidates.append((outer, inner))
    if not candidates:
        return None
    bad = _separate_uses(kernel, candidates)
    return next((pair for pair in candidates if pair not in bad), None)


def _separate_uses(kernel: Kernel, candidates: list[tuple[Node, Node]]) -> set[tuple[Node, Node]]:
    """The pairs that some expression uses otherwise than as outer * size(inner) + inner."""
    bad = {pair for pair in candidates if pair[0] in kernel.serial or pair[1] in kernel.serial}
    sizes = {pair: simplify.value_of(pair[1].src[0]) or 1 for pair in candidates}
    mask = kernel.free.mask
    touched = {pair: kernel.free.bit(pair[0]) | kernel.free.bit(pair[1]) for pair in candidates}
    for node in kernel.order:
        if node.op is REDUCE:
            bound = set(node.src[1:])
            bad.update(p for p in candidates if (p[0] in bound) != (p[1] in bound))
            sources: tuple[Node, ...] = node.src[:1]
        elif _is_sum(node):
            continue
        else:
            sources = node.src
        for source in sources:
            if source.type.dtype is not index or source.type.shape != () or not mask[source]:
                continue
            total = simplify.terms(source)[1]
            for pair in candidates:
                if not mask[source] & touched[pair]:
                    continue
                if sizes[pair] <= _SHORT and _limit_of(node, pair[0]) is not None:
                    continue
                if total.get(pair[0], 0) != sizes[pair] * total.get(pair[1], 0):
                    bad.add(pair)
    return bad


def _limit_of(node: Node, range_: Node) -> tuple[int, bool] | None:
    """What a comparison says of one range alone: below what it is, or from where on (and True)."""
    if node.op is not math.LT or node.type.shape != () or node.src[0].type.dtype is not index:
        return None
    constant, total = simplify.terms(simplify.sub(*node.src))
    if total == {range_: 1}:
        return -constant, False
    return (constant + 1, True) if total == {range_: -1} else None


def _limited(limit: tuple[int, bool], merged: Node, size: int) -> Node:
    """The same of a range of which so many values stand for one of the limited range."""
    number, is_least = limit
    if is_least:
        return simplify.less(const_index(number * size - 1), merged)
    return simplify.less(merged, const_index(number * size))


def _is_sum(node: Node) -> bool:
    """Part of a sum that some other node uses whole."""
    if node.type.dtype is not index or node.type.shape != ():
        return False
    return node.op in _SUMS or (node.op is math.MUL and node.src[1].op is math.CONST)
