"""Contraction analysis: which ranges of a sum of products are m, n, k and batch.

Matmul, convolution, attention's products, grouped and quantised matmuls all come through here; no
operation is known by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base.records import dataclass
from tilework.codegen.analysis import Kernel, stride
from tilework.ir.node import make, toposort
from tilework.ir.ops import math
from tilework.ir.ops.memory import LOAD
from tilework.ir.ops.tensor import REDUCE, Fold
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tilework.ir.node import Node


_PRODUCTS = frozenset({math.MUL, *math.DOTS})


@dataclass(frozen=True, slots=True)
class Contraction:
    """sum over k of a[batch, m, k] * b[batch, n, k]; every member is a list of RANGEs.

    `a` and `b` are the factors; the vector lanes run along a range of n.
    """

    reduce: Node
    a: Node
    b: Node
    batch: tuple[Node, ...]
    m: tuple[Node, ...]
    n: tuple[Node, ...]
    k: tuple[Node, ...]
    #: Sums over one factor and a constant, which cost no more than a row of the contraction.
    corrections: tuple[Node, ...] = ()


def orientations(kernel: Kernel) -> list[Contraction]:
    """The contraction that dominates the kernel, with either factor as `a`; [] if there is none.

    There is one when a single sum of products stands in every store, and both factors have output
    ranges of their own.
    """
    return [found for found in _both_ways(kernel) if found.m and found.n]


def vector_product(kernel: Kernel) -> Contraction | None:
    """The product of a vector and a matrix that dominates the kernel: m is empty, `b` the matrix.

    Such a kernel has no rows to tile, and is bound by the memory of the matrix.
    """
    return next((found for found in _both_ways(kernel) if found.n and not found.m), None)


def _both_ways(kernel: Kernel) -> list[Contraction]:
    """The only sum of products, which stands in every store, with either factor as `a`."""
    sums = [reduce for reduce in kernel.reduces if not _is_correction(reduce)]
    if len(sums) != 1 or kernel.serial:
        return []
    (reduce,) = sums
    if reduce.attrs.fold is not Fold.ADD or reduce.src[0].op not in _PRODUCTS:
        return []
    outputs = _mask(kernel, kernel.outputs)
    if any(kernel.free.mask[store] != outputs for store in kernel.stores):
        return []
    first, second = reduce.src[0].src[:2]
    return [_orient(kernel, reduce, first, second), _orient(kernel, reduce, second, first)]


def _is_correction(reduce: Node) -> bool:
    product = reduce.src[0]
    return product.op in math.DOTS and any(x.op is math.CONST for x in product.src[:2])


def with_factors(sink: Node, contraction: Contraction, factors: Mapping[Node, Node]) -> Node:
    """The kernel with other factors in the sums of its contraction, or others for whole sums."""
    new: dict[Node, Node] = {}
    for reduce in (contraction.reduce, *contraction.corrections):
        if reduce in factors:
            new[reduce] = factors[reduce]
            continue
        product = reduce.src[0]
        summed = factors.get(product)
        if summed is None:
            src = tuple([factors.get(factor, factor) for factor in product.src])
            summed = make(product.op, src, product.attrs)
        new[reduce] = REDUCE(summed, *reduce.src[1:], attrs=reduce.attrs)
    (changed,) = simplify.substitute([sink], new)
    return changed


def _mask(kernel: Kernel, ranges: list[Node]) -> int:
    total = 0
    for range_ in ranges:
        total |= kernel.free.bit(range_)
    return total


def _orient(kernel: Kernel, reduce: Node, a: Node, b: Node) -> Contraction:
    mask_a, mask_b = kernel.free.mask[a], kernel.free.mask[b]
    m = tuple(r for r in kernel.outputs if _in(kernel, r, mask_a & ~mask_b))
    n = tuple(r for r in kernel.outputs if _in(kernel, r, mask_b & ~mask_a))
    shared = tuple(r for r in kernel.outputs if r not in m and r not in n)
    corrections = tuple(other for other in kernel.reduces if other is not reduce)
    return Contraction(reduce, a, b, shared, m, n, tuple(reduce.src[1:]), corrections)


def _in(kernel: Kernel, range_: Node, mask: int) -> bool:
    return bool(mask & kernel.free.bit(range_))


def is_plain_load(node: Node) -> bool:
    """A load without a gate, perhaps under casts: it may stay an operand of the multiplication."""
    while node.op is math.CAST:
        node = node.src[0]
    return node.op is LOAD and len(node.src) == 1


def is_gated(node: Node) -> bool:
    """Does a factor read memory under a condition?"""
    return any(len(load.src) > 1 for load in loads_of(node))


def load_stride(node: Node, range_: Node) -> int | None:
    """By how many elements the loads of a factor move with a range; None if they differ.

    A factor may be computed (an activation fused before the product): its loads count.
    """
    strides = {stride(load.src[0].src[1], range_) for load in loads_of(node)}
    moving = strides - {0}
    if len(moving) > 1 or not strides:
        return None
    return moving.pop() if moving else 0


def load_count(node: Node) -> int:
    """From how many loads a factor is made: a word of bytes that lie apart takes several."""
    return max(len(loads_of(node)), 1)


def loaded_share(node: Node) -> float:
    """How many bytes the loads of a factor read, as a share of what it has itself, at least 1.

    A word of bytes that lie apart takes several loads, of a quarter of its bytes each.
    """
    size_bytes = node.type.dtype.itemsize
    shares = [min(load.type.dtype.itemsize / size_bytes, 1.0) for load in loads_of(node)]
    return max(sum(shares), 1.0)


def loads_of(node: Node) -> list[Node]:
    """The loads that a value is computed from."""
    return [part for part in toposort(node) if part.op is LOAD]
