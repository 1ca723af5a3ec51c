"""Windows: pairs of ranges of which a factor reads no more than a sum.

A convolution reads its input at `y + ky` and `x + kx`: the patches of neighbouring outputs overlap.
A copy over the sums holds each element once, where one over the pairs would hold it once for each
output that reads it.
"""

from __future__ import annotations

from math import gcd
from typing import TYPE_CHECKING

from tilework.base.records import dataclass
from tilework.codegen.analysis import Kernel, depends_on
from tilework.codegen.plan.contraction import Contraction, load_stride, orientations
from tilework.codegen.plan.extents import least_size, size
from tilework.dtypes import index
from tilework.ir.build import const_index
from tilework.ir.node import toposort
from tilework.ir.ops import math
from tilework.ir.symbolic import simplify

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.ir.node import Node

#: A range shorter than this gives no vectors.
_LEAST_DEEP = 4
_SUMS = frozenset({math.ADD, math.SUB})


@dataclass(frozen=True, slots=True)
class Window:
    """A factor depends on `own * step + inside * dilation`, and otherwise on neither range."""

    own: Node
    inside: Node
    step: int
    dilation: int

    @property
    def start(self) -> int:
        """What must be added to the sum, so that it starts from 0."""
        return max(-self.dilation, 0) * (_extent(self.inside) - 1)

    def span(self, extent: int) -> int:
        """How many values the sum may have while `own` has `extent` consecutive ones."""
        return self.step * (extent - 1) + abs(self.dilation) * (_extent(self.inside) - 1) + 1

    def position(self) -> Node:
        """Where in its span a place of the two ranges lies."""
        own = simplify.add(simplify.scale(self.own, self.step), const_index(self.start))
        return simplify.add(own, simplify.scale(self.inside, self.dilation))

    def place_of(self, position: Node) -> dict[Node, Node]:
        """Values of the two ranges that make a position of the span."""
        if self.dilation == 1:
            return {self.own: const_index(0), self.inside: position}
        shifted = simplify.sub(position, const_index(self.start))
        return {self.own: shifted, self.inside: const_index(0)}


def windows_of(factor: Node, own: Sequence[Node], inside: Sequence[Node]) -> list[Window]:
    """The windows of a factor, in the order of `own`; each range is in one at most.

    Args:
        factor: A factor of a contraction.
        own: Its output ranges.
        inside: The ranges that are summed over.
    """
    sums = _whole_sums(factor)
    found: list[Window] = []
    free = [r for r in inside if (simplify.value_of(r.src[0]) or 0) > 1]
    for range_ in own:
        if (simplify.value_of(range_.src[0]) or 0) < 2:
            continue
        for other in free:
            window = _window(sums, range_, other)
            if window is not None:
                found.append(window)
                free.remove(other)
                break
    return found


def staged_contractions(kernel: Kernel) -> list[Contraction]:
    """The contractions whose factors a plan may stage: by orientation, or a fold over windows."""
    found = orientations(kernel)
    if found:
        return found
    fold = window_fold(kernel)
    return [] if fold is None else [fold]


def window_fold(kernel: Kernel) -> Contraction | None:
    """A fold over windows that is no product of matrices: pooling, depthwise convolution.

    Its `a` is what is read through windows, `m` their output ranges, then the one along which `a`
    lies side by side if that is no window (channels that are stored last); `n` is empty.
    """
    if len(kernel.reduces) != 1 or kernel.serial:
        return None
    if any(least_size(r) != size(r) for r in kernel.free.ranges):
        return None
    reduce = kernel.reduces[0]
    value = reduce.src[0]
    mask = kernel.free.mask
    if any(mask[store] & mask[reduce] != mask[reduce] for store in kernel.stores):
        return None
    k = tuple(reduce.src[1:])
    factors = value.src[:2] if value.op is math.MUL or value.op in math.DOTS else (value,)
    for factor in factors:
        own = [r for r in kernel.outputs if mask[factor] & kernel.free.bit(r)]
        m = tuple(window.own for window in windows_of(factor, own, k))
        if m:
            other = factors[-1] if factor is factors[0] else factors[0]
            m += tuple(r for r in own if r not in m and load_stride(factor, r) == 1)
            batch = tuple(r for r in kernel.outputs if r not in m)
            return Contraction(reduce, factor, other, batch, m, (), k)
    return None


def deep_range(factor: Node, k: Sequence[Node], windows: Sequence[Window]) -> Node | None:
    """The summed range along which windows lie side by side in memory, where their rows do not.

    A copy of such windows keeps that order, so that it is filled by whole vectors.
    """
    inner = {window.inside for window in windows}
    if not windows:
        return None
    found = [r for r in k if r not in inner and load_stride(factor, r) == 1]
    return found[-1] if found and size(found[-1]) >= _LEAST_DEEP else None


def _extent(range_: Node) -> int:
    return simplify.value_of(range_.src[0]) or 1


def _window(sums: list[Node], own: Node, inside: Node) -> Window | None:
    step = dilation = 0
    for whole in sums:
        _, total = simplify.terms(whole)
        first, second = total.get(own, 0), total.get(inside, 0)
        if any(
            depends_on(t, own) or depends_on(t, inside) for t in total if t not in (own, inside)
        ):
            return None
        if not first and not second:
            continue
        if not first or not second:
            return None
        if not step:
            common = gcd(first, second) * (1 if first > 0 else -1)
            step, dilation = first // common, second // common
        if first * dilation != second * step:
            return None
    if not step or (step != 1 and dilation != 1):
        return None
    found = Window(own, inside, step, dilation)
    # A window is worth a name if its outputs share elements.
    return found if found.span(_extent(own)) < _extent(own) * _extent(inside) else None


def _whole_sums(factor: Node) -> list[Node]:
    """The index expressions that something else than a longer sum uses."""
    found: dict[Node, None] = {}
    for node in toposort(factor):
        if _is_sum(node):
            continue
        for source in node.src:
            if source.type.dtype is index and source.type.shape == () and source.src:
                found[source] = None
    return list(found)


def _is_sum(node: Node) -> bool:
    if node.type.dtype is not index or node.type.shape != ():
        return False
    return node.op in _SUMS or (node.op is math.MUL and node.src[1].op is math.CONST)
