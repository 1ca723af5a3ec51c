"""Contraction analysis: which ranges of a sum of products are m, n, k and batch.

Matmul, convolution, attention's products, grouped and quantised matmuls all come through here; no
operation is known by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilework.codegen.analysis import Kernel, stride
from tilework.ir.ops import math
from tilework.ir.ops.memory import LOAD
from tilework.ir.ops.tensor import Fold

if TYPE_CHECKING:
    from tilework.ir.node import Node


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


def find_contraction(kernel: Kernel) -> Contraction | None:
    """The contraction that dominates the kernel, oriented so that lanes along n suit the stores.

    None when there is no single sum of products whose factors each have a range of their own.
    """
    if len(kernel.reduces) != 1 or kernel.serial:
        return None
    reduce = kernel.reduces[0]
    if reduce.attrs.fold is not Fold.ADD or reduce.src[0].op is not math.MUL:
        return None
    if not all(kernel.free.mask[s] == _mask(kernel, kernel.outputs) for s in kernel.stores):
        return None
    first, second = reduce.src[0].src
    found = _orient(kernel, reduce, first, second)
    if found is None:
        return None
    if not found.m or not found.n:
        return None
    return found


def _mask(kernel: Kernel, ranges: list[Node]) -> int:
    total = 0
    for range_ in ranges:
        total |= kernel.free.bit(range_)
    return total


def _orient(kernel: Kernel, reduce: Node, first: Node, second: Node) -> Contraction | None:
    mask_first, mask_second = kernel.free.mask[first], kernel.free.mask[second]
    only_first = [r for r in kernel.outputs if _in(kernel, r, mask_first & ~mask_second)]
    only_second = [r for r in kernel.outputs if _in(kernel, r, mask_second & ~mask_first)]
    shared = [r for r in kernel.outputs if r not in only_first and r not in only_second]
    if not only_first or not only_second:
        return None
    keys = tuple(reduce.src[1:])
    if _stored_along(kernel, only_first) > _stored_along(kernel, only_second):
        first, second = second, first
        only_first, only_second = only_second, only_first
    return Contraction(
        reduce, first, second, tuple(shared), tuple(only_first), tuple(only_second), keys
    )


def _in(kernel: Kernel, range_: Node, mask: int) -> bool:
    return bool(mask & kernel.free.bit(range_))


def _stored_along(kernel: Kernel, ranges: list[Node]) -> int:
    """How well vector stores along one of these ranges go: 2 unit stride everywhere, else 0."""
    for range_ in ranges:
        if all(stride(store.src[0].src[1], range_) == 1 for store in kernel.stores):
            return 2
    return 0


def is_plain_load(node: Node) -> bool:
    """A load without a gate, perhaps under casts."""
    while node.op is math.CAST:
        node = node.src[0]
    return node.op is LOAD and len(node.src) == 1


def load_stride(node: Node, range_: Node) -> int | None:
    """The stride of a factor's only load along a range; None if there is no fixed one."""
    while node.op is math.CAST:
        node = node.src[0]
    if node.op is not LOAD:
        return None
    return stride(node.src[0].src[1], range_)
