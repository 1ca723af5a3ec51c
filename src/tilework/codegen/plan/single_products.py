"""Products of 16 bits, one at a time, by instructions that multiply pairs.

    sum over k of a[k] * b[k]  ->  sum over k of dot(a[k] & 0xffff, b[k])

An instruction that multiplies two numbers of 16 bits in a word and adds both products to a sum does
so in less time than a multiplication of 32 bits takes alone.  Where products cannot be grouped in
words (each output of a depthwise convolution has factors of its own), the other half of one word is
0, and with it the second product.  Exact modulo 2**32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilework.codegen.plan.extents import product
from tilework.codegen.plan.offset_factors import offset_factor
from tilework.dtypes import int32, uint32
from tilework.ir.build import cast, const_bits
from tilework.ir.ops import math
from tilework.ir.ops.tensor import REDUCE, Fold
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from tilework.codegen.analysis import Kernel
    from tilework.ir.node import Node
    from tilework.target.spec import TargetSpec

_LOW_HALF: Final = 0xFFFF


def with_single_products(kernel: Kernel, target: TargetSpec) -> Node:
    """The kernel with sums of products of 16 bits by instructions for pairs, if there are such."""
    if math.DOT_PAIRS.name not in target.native_ops:
        return kernel.sink
    new: dict[Node, Node] = {}
    for reduce in kernel.reduces:
        found = _as_pairs(kernel, reduce)
        if found is not None:
            new[reduce] = found
    if not new:
        return kernel.sink
    (sink,) = simplify.substitute([kernel.sink], new)
    return sink


def _as_pairs(kernel: Kernel, reduce: Node) -> Node | None:
    value = reduce.src[0]
    if reduce.attrs.fold is not Fold.ADD or value.op is not math.MUL:
        return None
    if reduce.dtype not in (int32, uint32):
        return None
    k = tuple(reduce.src[1:])
    found = [offset_factor(kernel, k, factor) for factor in value.src]
    narrow = [None if factor is None else factor.as_int16() for factor in found]
    first, second = narrow
    if first is None or second is None:
        return None
    if _often(kernel, value.src[0]) > _often(kernel, value.src[1]):
        first, second = second, first
    half = math.AND(cast(first, int32), const_bits(_LOW_HALF, int32))
    pairs = math.DOT_PAIRS(half, cast(second, int32), const_bits(0, int32))
    return cast(REDUCE(pairs, *k, attrs=reduce.attrs), reduce.dtype)


def _often(kernel: Kernel, factor: Node) -> int:
    """For how many outputs a factor is another one: that of the fewest is made a half."""
    mask = kernel.free.mask[factor]
    return product([r for r in kernel.outputs if mask & kernel.free.bit(r)])
