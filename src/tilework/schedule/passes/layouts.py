"""Which intermediates are stored in another order than row by row.

A processor works on vectors: elements that lie side by side.  Which axis of a value its kernels
would like to have side by side follows from what they compute: the outputs of a contraction that
only one factor has (the channels of a convolution), or any loop that all operands share.  Nothing
outside of a schedule sees its intermediates, so each may be stored with another axis last.

Axes that run along the same loops belong together: a residual is added to a result where both
have their channels side by side, or where both have not.  Such a component is moved at once, if the
kernels that touch it cost less by that.  Costs count what moves between memory and vectors: an
element of a vector that lies side by side costs a fraction of one that is gathered.  Arithmetic is
the same either way, and so is the order of every sum, since it follows the loops.

On a GPU the same order makes accesses of neighbouring threads, vectors of 16 bytes and the boxes of
tensor maps contiguous; `Limits.layouts_on` says which kinds of devices have plans that use it.
There, a block of threads folds a row that lies side by side, and products of matrices have boxes
either way: intermediates move where windows are summed, as far as no long fold reads them.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from tilework.ir.ops import math, tensor
from tilework.ir.ops.index import RANGE
from tilework.ir.symbolic import dims, simplify
from tilework.ir.symbolic.simplify import TRUE
from tilework.schedule.passes.kernel_graph import leaves_in
from tilework.schedule.passes.movement import flatten
from tilework.schedule.passes.stored import Stored
from tilework.schedule.schedule import SlotKind, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tilework.ir.node import Node
    from tilework.schedule.passes.kernel_graph import Buffer, Kernel, Step
    from tilework.schedule.passes.movement import Index
    from tilework.schedule.schedule import Limits

#: What an element costs: in a vector, in a vector under a condition that differs inside of it, in
#: a vector that another axis's vectors are transposed to, and alone (loads, stores).
_VECTOR, _GATED, _TRANSPOSED, _LOADED, _STORED = 0.07, 0.25, 0.5, 2.0, 2.5
#: What folding the lanes of a vector costs: a step takes two instructions.
_FOLDED = 0.6
#: What an element of windows costs where they are copied across the way in which they lie.
_COPIED_WINDOW = 1.0
#: A multiply-add in a vector, elements of a vector, and how much longer it takes with vectors of
#: windows, which lie across lines of the cache, and with steps of a sum in different lines.
_MULTIPLIED, _LANES, _UNALIGNED, _ACROSS = 0.03, 16, 1.2, 1.15
#: A component moves where this share of its kernels' cost is saved, and at least so much.
_SHARE, _LEAST = 0.003, 2000.0
#: How often components are weighed again after others have moved.
_ROUNDS = 4
#: From how many elements on a block of threads folds a row together.
_LONG_FOLD = 32
#: What a reason to store ends in, where elements do not lie row by row.
_STORED_IN = "; "
#: Values that are looked at to find what a factor reads.
_LOOKED_AT = 64

_Place = tuple["Buffer", int]


def choose_layouts(kernels: Sequence[Kernel], contractions: set[Node], limits: Limits) -> None:
    """Give intermediates the order in which their kernels cost least.

    Args:
        kernels: all kernels of a function, after hazards have been separated.
        contractions: the REDUCEs that are sums of products.
        limits: says for which devices.
    """
    wishing = [k for k in kernels if kind_of(k.device) in limits.layouts_on]
    movable = movable_buffers(kernels, set(wishing), contractions)
    if not movable:
        return
    views = [_View(kernel, contractions) for kernel in wishing]
    movable -= _kept(views, limits)
    views = [view for view in views if any(access.buffer in movable for access in view.accesses)]
    touching: dict[Buffer, list[_View]] = {}
    for view in views:
        for buffer in dict.fromkeys(access.buffer for access in view.accesses):
            touching.setdefault(buffer, []).append(view)
    waiting = [
        (moves, list(dict.fromkeys(view for buffer in moves for view in touching[buffer])))
        for moves in _components(views, movable)
    ]
    for _ in range(_ROUNDS):
        gains = [(_gain(*row), number) for number, row in enumerate(waiting)]
        gains = sorted((gain, -number) for gain, number in gains if gain > 0)
        if not gains:
            break
        for _, number in reversed(gains):
            moves, affected = waiting[-number]
            left = {buffer: axis for buffer, axis in moves.items() if buffer.stored is None}
            if _gain(left, affected) > 0:
                _move(left)
        waiting = [row for row in waiting if all(buffer.stored is None for buffer in row[0])]
    for kernel in wishing:
        place_stores(kernel)


def movable_buffers(
    kernels: Sequence[Kernel], wishing: set[Kernel], contractions: set[Node]
) -> set[Buffer]:
    """Intermediates that are written as a whole, at once, and read by their axes alone."""
    found: set[Buffer] = set()
    for kernel in wishing:
        for store in kernel.stores:
            buffer = store.buffer
            index = kernel.index_for(buffer.shape)
            if (
                buffer.kind is SlotKind.ARENA
                and buffer.latest == 0
                and sum(size != 1 for size in buffer.shape) > 1
                and all(isinstance(size, int) for size in buffer.shape)
                and store.valid is TRUE
                and store.gate is None
                and store.fold is None
                and index is not None
                and store.offset is flatten(index, buffer.shape)
            ):
                found.add(buffer)
    for kernel in kernels:
        if kernel.copied_from:
            found.difference_update(buffer for buffer, _ in kernel.copied_from)
            found.difference_update(store.buffer for store in kernel.stores)
        if sum(bool(step.ranges) and step.node in contractions for step in kernel.steps) > 1:
            # A cascade has a plan of its own, which wants rows.
            found.difference_update(kernel.seen_buffers)
        for step in kernel.steps:
            read = step.buffer
            if read is None or read not in found:
                continue
            same = step.shape == read.shape and step.dtype is read.dtype
            if not same or kernel not in wishing:
                found.discard(read)
    return found


def _kept(views: Sequence[_View], limits: Limits) -> set[Buffer]:
    """What stays as it is on devices that gain by windows alone."""
    bound = [v for v in views if kind_of(v.device) in limits.layouts_by_windows_on]
    has_windows = any(view.has_windows() for view in bound)
    return {
        access.buffer
        for view in bound
        if not has_windows or view.folds_rows()
        for access in view.accesses
    }


# --- what a kernel does -------------------------------------------------------------------------


class _Access:
    """A load or store of a kernel: how each axis of its buffer moves with each range."""

    __slots__ = ("buffer", "count", "factor", "gated", "is_store", "leaves", "moves", "own")

    def __init__(self, kernel: Kernel, buffer: Buffer, index: Index, valid: Node) -> None:
        self.buffer = buffer
        self.moves = [_moves(position) for position in index]
        self.leaves = frozenset([leaf for position in index for leaf in leaves_in(position)])
        ranges, self.count = kernel.span(index)
        #: How many different elements there are, if no two places are the same.
        self.own = 1
        for range_ in ranges:
            self.own *= _size(range_)
        self.gated = frozenset(leaves_in(valid)) if valid is not TRUE else frozenset()
        self.is_store = False
        #: The side of a contraction that it belongs to; -1: to neither.
        self.factor = -1

    def depends_on(self, range_: Node) -> bool:
        return range_ in self.leaves

    def stride(self, range_: Node) -> int | None:
        """By how many elements it moves with a range; None if that is not a fixed number."""
        if range_ not in self.leaves:
            return 0
        total, step = 0, 1
        buffer = self.buffer
        order = range(len(self.moves)) if buffer.stored is None else buffer.stored.order
        for axis in reversed(order):
            moves = self.moves[axis]
            if moves is None:
                return None
            total += step * moves.get(range_, 0)
            step *= dims.greatest(buffer.shape[axis])
        return total


class _View:
    """A kernel as its accesses, by the part that they have in it."""

    def __init__(self, kernel: Kernel, contractions: set[Node]) -> None:
        self.device = kernel.device
        self.outputs = [at for at in kernel.index if at.op is RANGE]
        self.accesses: list[_Access] = []
        sides = _sides(kernel, contractions)
        self.contracts = sides is not None
        self.summed: list[Node] = []
        for step in kernel.steps:
            self.summed += step.ranges
            if step.buffer is None:
                continue
            access = _Access(kernel, step.buffer, step.index, step.valid)
            if len(step.shape) != len(step.buffer.shape) or step.shape != step.buffer.shape:
                access.moves = [None] * len(step.buffer.shape)
            if sides is not None:
                access.factor = sides.get(step, -1)
            self.accesses.append(access)
        for store in kernel.stores:
            index = kernel.index_for(store.buffer.shape)
            if index is None:
                continue
            access = _Access(kernel, store.buffer, index, store.valid)
            access.is_store = True
            self.accesses.append(access)
        self._known: dict[tuple[Stored | None, ...], float] = {}

    def has_windows(self) -> bool:
        """Is a factor read at places that an output range and a summed one give together?

        Such places overlap: parts of a row, one beside the other, are no windows.
        """
        return self.contracts and any(
            access.factor >= 0 and moves is not None and self._overlaps(moves)
            for access in self.accesses
            for moves in access.moves
        )

    def _overlaps(self, moves: dict[Node, int]) -> bool:
        steps = [step for range_, step in moves.items() if range_ in self.outputs]
        lengths = [step * _size(range_) for range_, step in moves.items() if range_ in self.summed]
        return any(0 < abs(step) < abs(length) for step in steps for length in lengths)

    def folds_rows(self) -> bool:
        """Is there a long fold that is no sum of products?"""
        return not self.contracts and any(_size(range_) >= _LONG_FOLD for range_ in self.summed)

    def cost(self) -> float:
        """What moving data between memory and vectors takes, with the lanes that take least."""
        key = tuple([access.buffer.stored for access in self.accesses])
        found = self._known.get(key)
        if found is None:
            one_lane = self._contraction if self.contracts else self._loops
            lanes = self.outputs if self.contracts else [*self.outputs, *self.summed]
            costs = [
                one_lane(range_) + self._fold_of_lanes(range_)
                for range_ in lanes
                if _size(range_) > 1
            ]
            found = self._known[key] = min(costs, default=0.0)
        return found

    def _fold_of_lanes(self, lane: Node) -> float:
        """What it takes to fold the lanes of a vector where they run along a sum."""
        if lane not in self.summed:
            return 0.0
        return _FOLDED * prod(_size(range_) for range_ in self.outputs)

    def _loops(self, lane: Node) -> float:
        total = 0.0
        for access in self.accesses:
            is_read_only = access.buffer.kind is SlotKind.INPUT and not access.is_store
            # What loops inside of others read of a weight is kept or packed.
            total += (access.own if is_read_only else access.count) * _price(access, lane)
        return total

    def _contraction(self, lane: Node) -> float:
        total = 0.0
        sides: set[int] = set()
        for access in self.accesses:
            if access.factor >= 0:
                if access.depends_on(lane):
                    sides.add(access.factor)
            else:
                total += access.own * self._after(access, lane)
        if len(sides) != 1:
            return float("inf")
        total += self._multiplied(lane)
        for access in self.accesses:
            if access.factor in sides:
                # Weights are packed when a program is captured.
                is_packed = access.buffer.kind is SlotKind.INPUT
                total += 0.0 if is_packed else _elements(access.buffer) * _price(access, lane) / 2
            elif access.factor >= 0:
                total += _elements(access.buffer) * self._rows(access)
        return total

    def _multiplied(self, lane: Node) -> float:
        """The multiply-adds of all vectors along `lane`, full or not."""
        work = 1
        for range_ in (*self.outputs, *self.summed):
            work *= _size(range_)
        extent = _size(lane)
        for outer in self.outputs:
            if outer is not lane and self._merges(outer, lane):
                extent *= _size(outer)
        width = _LANES
        while width > extent:
            width //= 2
        filled = extent / (-(-extent // width) * width) * width / _LANES
        slower = 1.0
        if any(
            lane in moves and len(moves) > 1 for a in self.accesses for moves in a.moves if moves
        ):
            slower = _UNALIGNED
        for access in self.accesses:
            if access.factor < 0 or access.depends_on(lane) or access.gated:
                continue
            steps = {access.stride(range_) for range_ in self.summed}
            if steps != {0} and 1 not in steps:
                slower = max(slower, _ACROSS)
        return work * _MULTIPLIED * slower / filled

    def _merges(self, outer: Node, inner: Node) -> bool:
        """Are two loops one wherever memory is touched?"""
        for access in self.accesses:
            step = access.stride(inner)
            if step is None or access.stride(outer) != step * _size(inner):
                return False
        return True

    def _after(self, access: _Access, lane: Node) -> float:
        """What is read and stored beside the sums, by vectors along `lane`."""
        step = access.stride(lane)
        if step == 0:
            return 0.0
        if step == 1:
            return _VECTOR
        if access.is_store and any(access.stride(range_) == 1 for range_ in self.outputs):
            return _TRANSPOSED
        return _STORED if access.is_store else _LOADED

    def _rows(self, access: _Access) -> float:
        """What is read one by one, for all lanes; windows are copied first."""
        if not access.gated:
            return 0.0
        if any(access.stride(range_) == 1 and range_ not in access.gated for range_ in self.summed):
            return _VECTOR
        return _COPIED_WINDOW


def _price(access: _Access, lane: Node) -> float:
    step = access.stride(lane)
    if step == 0:
        return _VECTOR
    if step == 1:
        return _GATED if lane in access.gated else _VECTOR
    return _STORED if access.is_store else _LOADED


def _sides(kernel: Kernel, contractions: set[Node]) -> dict[Step, int] | None:
    """The factor that each load belongs to; None if the kernel has no contraction of its own."""
    if not kernel.contracts:
        return None
    for step in kernel.steps:
        if step.node not in contractions or not step.src:
            continue
        product = step.src[0].resolve()
        while product.node.op is math.CAST and product.src:
            product = product.src[0].resolve()
        if product.node.op is not math.MUL or len(product.src) != 2:
            return {}
        found: dict[Step, int] = {}
        for side, factor in enumerate(product.src):
            for load in _loads(factor.resolve()):
                found[load] = side
        return found
    return {}


def _loads(root: Step) -> Iterable[Step]:
    seen = {root}
    stack = [root]
    while stack and len(seen) < _LOOKED_AT:
        step = stack.pop()
        if step.buffer is not None:
            yield step
            continue
        if step.node.op is tensor.REDUCE:
            continue
        for source in step.src:
            other = source.resolve()
            if other not in seen:
                seen.add(other)
                stack.append(other)


def _moves(position: Node) -> dict[Node, int] | None:
    """By how much a position moves with each range; None if not in proportion."""
    _, total = simplify.terms(position)
    return total if all(term.op is RANGE for term in total) else None


def _size(range_: Node) -> int:
    return max(dims.greatest(dims.as_dim(range_.src[0])), 1)


def _elements(buffer: Buffer) -> int:
    return dims.greatest(dims.product(buffer.shape))


# --- what belongs together ----------------------------------------------------------------------


def _components(views: Sequence[_View], movable: set[Buffer]) -> list[dict[Buffer, int]]:
    """Axes of buffers that run along the same loops; each gives the axis that would move last."""
    owner: dict[_Place, _Place] = {}

    def find(place: _Place) -> _Place:
        while owner[place] != place:
            owner[place] = owner[owner[place]]
            place = owner[place]
        return place

    for view in views:
        along: dict[Node, _Place] = {}
        for access in view.accesses:
            if access.buffer not in movable:
                continue
            for axis, moves in enumerate(access.moves):
                place = (access.buffer, axis)
                owner.setdefault(place, place)
                if moves is None or len(moves) != 1 or access.factor >= 0:
                    continue
                (range_, step), *_ = moves.items()
                if step == 1 and range_ in view.outputs:
                    owner[find(place)] = find(along.setdefault(range_, place))
    groups: dict[_Place, list[_Place]] = {}
    for place in owner:
        groups.setdefault(find(place), []).append(place)
    found: list[dict[Buffer, int]] = []
    for places in groups.values():
        moved = {
            buffer: axis
            for buffer, axis in places
            if any(size != 1 for size in buffer.shape[axis + 1 :])
        }
        is_wide = all(buffer.shape[axis] != 1 for buffer, axis in moved.items())
        if moved and is_wide and len({buffer for buffer, _ in places}) == len(places):
            found.append(moved)
    return found


def _gain(moves: dict[Buffer, int], affected: Sequence[_View]) -> float:
    """What a move would save; 0 if that is too little."""
    before = sum(view.cost() for view in affected)
    olds = {buffer: buffer.stored for buffer in moves}
    _move(moves)
    after = sum(view.cost() for view in affected)
    for buffer, old in olds.items():
        buffer.stored = old
    saved = before - after
    return saved if saved >= max(_SHARE * before, _LEAST) else 0.0


def _move(moves: dict[Buffer, int]) -> None:
    for buffer, axis in moves.items():
        others = [other for other in range(len(buffer.shape)) if other != axis]
        buffer.stored = Stored((*others, axis))


# --- what follows from it -----------------------------------------------------------------------


def place_stores(kernel: Kernel) -> None:
    """Put what a kernel stores where the orders of its buffers say."""
    for store in kernel.stores:
        buffer = store.buffer
        index = kernel.index_for(buffer.shape)
        if buffer.stored is not None and index is not None:
            store.offset = buffer.stored.offset(index, buffer.shape)
            store.reason = f"{store.reason.partition(_STORED_IN)[0]}{_STORED_IN}{buffer.stored}"


def stored_index(kernel: Kernel) -> Index:
    """The output ranges of a kernel in the order in which what it stores lies in memory.

    A reduction that depends on outer loops alone is computed there; if another order moved loops
    of others outside of it, it would be computed again and again, so the order is kept then.
    """
    outputs = tuple([at for at in kernel.index if at.op is RANGE])
    for store in kernel.stores:
        stored = store.buffer.stored
        index = kernel.index_for(store.buffer.shape)
        if stored is None or index is None:
            continue
        found: dict[Node, None] = {}
        for axis in stored.order:
            leaves = [leaf for leaf in leaves_in(index[axis]) if leaf.op is RANGE]
            found |= dict.fromkeys(sorted(leaves, key=lambda leaf: int(leaf.attrs.number)))
        ordered = (*found, *(at for at in outputs if at not in found))
        return ordered if _keeps_reductions(kernel, ordered) else outputs
    return outputs


def _keeps_reductions(kernel: Kernel, ordered: Index) -> bool:
    """Does what each reduction depends on stay outside of all other loops?"""
    for step in kernel.steps:
        if not step.ranges:
            continue
        depends = kernel.span(step.index)[0].intersection(ordered)
        if not depends.issuperset(ordered[: len(depends)]):
            return False
    return True
