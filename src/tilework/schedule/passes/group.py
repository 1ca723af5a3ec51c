"""Horizontal fusion: small independent elementwise kernels become one call.

So do kernels over one index space that read a buffer together that is not much smaller than it.

An optimizer's step has a few small kernels for each of hundreds of parameters; started one by one
they would cost more in launches than in work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.ir.ops.index import RANGE
from tilework.ir.symbolic import dims, simplify
from tilework.schedule.passes.kernel_graph import leaves_in
from tilework.schedule.passes.order import levels, topological
from tilework.schedule.schedule import kind_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.ir.types import Shape
    from tilework.schedule.passes.kernel_graph import Buffer, Kernel
    from tilework.schedule.passes.order import Edges
    from tilework.schedule.schedule import Limits


class Group:
    """Kernels that are one call; `share_loops` if they run in the same loops."""

    __slots__ = ("parts", "share_loops")

    def __init__(self, parts: list[Kernel], share_loops: bool) -> None:
        self.parts = parts
        self.share_loops = share_loops


def group_kernels(kernels: Sequence[Kernel], after: Edges, limits: Limits) -> list[Group]:
    """Join small kernels that do not depend on each other, and put the groups in order.

    Kernels with equally many kernels after them (in the longest chain) are independent of each
    other, and joining them makes no circle.
    """
    level = levels(kernels, after)
    small: dict[tuple[int, str, Shape], list[Kernel]] = {}
    alike: dict[tuple[int, str, Shape], list[list[Kernel]]] = {}
    owner: dict[Kernel, list[Kernel]] = {}
    for kernel in topological(kernels, after):
        parts = [kernel]
        if _is_small(kernel, limits):
            # Threads of a GPU share one nest of loops; another nest would run on one of them.
            shares = kind_of(kernel.device) in limits.joins_equal_loops_on
            key = (level[kernel], kernel.device, kernel.space if shares else ())
            current = small.get(key)
            if current is not None and _fits(current, kernel, limits):
                current.append(kernel)
                parts = current
            else:
                small[key] = parts
        elif _is_simple(kernel):
            candidates = alike.setdefault((level[kernel], kernel.device, kernel.space), [])
            found = next(
                (c for c in candidates[-_CANDIDATES:] if _reads_alike(c, kernel, limits)), None
            )
            if found is None:
                candidates.append(parts)
            else:
                found.append(kernel)
                parts = found
        owner[kernel] = parts
    return _ordered(kernels, after, owner)


#: The sets of kernels over one index space that a kernel may be joined with, the latest ones.
_CANDIDATES = 8


def _is_simple(kernel: Kernel) -> bool:
    return not (kernel.fixed or kernel.named or kernel.contracts) and bool(kernel.stores)


#: A common buffer counts if it has at least one element for so many points of the index space.
_POINTS_AN_ELEMENT = 16


def _reads_alike(parts: list[Kernel], kernel: Kernel, limits: Limits) -> bool:
    """Do the kernels read a buffer together, so that it is read once in common loops?

    Reading a scalar once, a learning rate for example, saves nothing, and makes one long kernel of
    many equal ones, which would be compiled once.
    """
    common = {place for part in parts for place in part.reads} & kernel.reads.keys()
    least = kernel.size_of_space()
    if kernel.reduces:  # what it reads of its own may be much more than it has results
        least = max([least, *(_elements(buffer) for buffer, _ in kernel.reads)])
    if not any(_elements(buffer) * _POINTS_AN_ELEMENT >= least for buffer, _ in common):
        return False
    return _fits(parts, kernel, limits) and all(part.loops_agree(kernel) for part in parts)


def _elements(buffer: Buffer) -> int:
    return dims.greatest(dims.product(buffer.shape))


def _is_small(kernel: Kernel, limits: Limits) -> bool:
    if kernel.fixed or kernel.reduces or kernel.named or not kernel.stores:
        return False
    count = kernel.size_of_space()
    if count <= limits.small_elements:
        return True
    most = dict(limits.small_elements_on).get(kind_of(kernel.device), 0)
    return count <= most and _is_straight(kernel)


def _is_straight(kernel: Kernel) -> bool:
    """Do all loads and stores move along rows, with the innermost loop, or not with it at all?

    A kernel that turns an array has a plan of its own, which it would lose beside others.
    """
    inner = next((at for at in reversed(kernel.index) if at.op is RANGE), None)
    places = [step.flat() for step in kernel.steps if step.buffer is not None]
    places += [store.offset for store in kernel.stores]
    for place in places:
        _, total = simplify.terms(place)
        for term, factor in total.items():
            if term is inner:
                if factor != 1:
                    return False
            elif inner in leaves_in(term):
                return False
    return True


def _fits(parts: list[Kernel], kernel: Kernel, limits: Limits) -> bool:
    buffers = set(kernel.seen_buffers)
    size = kernel.size
    for part in parts:
        buffers |= part.seen_buffers
        size += part.size
    return len(buffers) <= limits.buffers and size <= limits.nodes


def _ordered(
    kernels: Sequence[Kernel], after: Edges, owner: dict[Kernel, list[Kernel]]
) -> list[Group]:
    first = {kernel: owner[kernel][0] for kernel in kernels}
    heads = [kernel for kernel in kernels if first[kernel] is kernel]
    joined: Edges = {head: {} for head in heads}
    for kernel, later in after.items():
        for other in later:
            joined[first[kernel]][first[other]] = None
    groups = []
    for head in topological(heads, joined):
        parts = owner[head]
        share = len(parts) > 1 and all(part.space == head.space for part in parts)
        groups.append(Group(parts, share))
    return groups
