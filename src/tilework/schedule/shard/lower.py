"""The pass: a function over values of several devices becomes one of single devices and COPYs.

Each value has a part on each device; an op is applied to the parts in the layouts that `propagate`
names.  What an op needs in another layout is moved by COPYs, each a node of its own, so that order,
memory and captures treat it like every other copy.  A fold over a cut axis stays open: it is
finished by an all-reduce if all of it is needed, and by a reduce-scatter if parts are.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, Final

from tilework.base import settings
from tilework.base.errors import InternalError, UserError
from tilework.ir.fold import combine
from tilework.ir.node import make, toposort
from tilework.ir.ops import index, math, memory, multi, tensor
from tilework.ir.ops.multi import Box, Layout
from tilework.schedule.schedule import DEFAULT_LIMITS, is_of_the_world, kind_of
from tilework.schedule.shard import indexing, spec
from tilework.schedule.shard.allreduce import choose, fold_all
from tilework.schedule.shard.cutting import cut
from tilework.schedule.shard.movement import MOVES, local, needed
from tilework.schedule.shard.propagate import Work, work_of
from tilework.schedule.shard.transfer import assemble, nothing, sources_of
from tilework.schedule.shard.values import (
    Single,
    Spread,
    Value,
    copied_to,
    is_free,
    send_part,
)
from tilework.schedule.shard.written_views import has_elements, rebased, views_between

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.dtypes import DType
    from tilework.ir.node import Node
    from tilework.ir.types import Shape
    from tilework.schedule.schedule import Limits

_SPREADS: Final = frozenset((multi.UNSHARD, multi.RESHARD))
_LIGHT: Final = frozenset((math.CONST, tensor.IOTA, index.VARIABLE, index.BIND, *MOVES))
_UNARY: Final = frozenset((tensor.CONTIGUOUS, tensor.DETACH))
#: How far a wish for another layout is passed on to what a value is made of.
_DEPTH: Final = 32


def lower_shards(function: Node, limits: Limits = DEFAULT_LIMITS) -> Node:
    """Return the function with every value on one device; an output over several becomes several.

    Args:
        function: SINK of outputs over PARAMs.
        limits: how devices are connected, and what libraries fold between them.

    Returns:
        A SINK whose outputs are the parts of the outputs, in the order of their devices.

    Raises:
        UserError: an op has operands on one device and on several.
    """
    order = toposort(function)
    if not any(node.op in _SPREADS for node in order):
        return function
    return _Lowering(order, limits).run(function)


def num_inputs(function: Node) -> int:
    """How many slots a function is called with."""
    slots = [node.attrs.slot for node in toposort(function) if node.op is memory.PARAM]
    return max(slots, default=-1) + 1


class _Lowering:
    def __init__(self, order: Sequence[Node], limits: Limits) -> None:
        self.order = order
        self._limits = limits
        self.values: dict[Node, Value] = {}
        self._known: dict[tuple[Node, Layout], list[Node]] = {}
        self._costs: dict[tuple[Node, Layout], int] = {}
        current = settings.current()
        self._algorithm = current.allreduce
        self._is_fixed = current.deterministic

    def run(self, function: Node) -> Node:
        for node in self.order[:-1]:
            value = self._visit(node)
            if value is not None:
                self.values[node] = value
        outputs: list[Node] = []
        for root in function.src:
            value = self.values[root]
            if isinstance(value, Single):
                outputs.append(self._as_output(value.node, value.device))
                continue
            parts = self.parts(root, value.layout)
            for device, part in zip(value.layout.devices, parts, strict=True):
                outputs.append(self._as_output(part, device))
        return make(memory.SINK, tuple(outputs), None)

    def _as_output(self, part: Node, device: str) -> Node:
        """A part as an output of its own, on its device."""
        held = part
        while held.op is tensor.DETACH:
            held = held.src[0]
        if held.op is memory.PARAM:
            return make(tensor.CONTIGUOUS, (part,), None)
        return copied_to(part, device) if device and is_free(part) else part

    # --- nodes -----------------------------------------------------------------------------------

    def _visit(self, node: Node) -> Value | None:
        op = node.op
        if op is multi.UNSHARD:
            return self._unshard(node)
        if op is multi.RESHARD:
            return self._reshard(node)
        found = [self.values.get(source) for source in node.src]
        if not any(isinstance(each, Spread) or each is None for each in found):
            return self._single(node, [each for each in found if isinstance(each, Single)])
        if op is memory.STORE:
            return None  # its AFTER does it
        if op is memory.AFTER:
            return self._after(node)
        if op is tensor.COPY:
            layout = Layout((node.attrs.device,), (spec.whole(len(node.type.shape)),))
            return self._gathered(node, layout)
        return self._spread(node)

    def _single(self, node: Node, sources: Sequence[Single]) -> Single:
        src = tuple([source.node for source in sources])
        made = node if src == node.src else make(node.op, src, node.attrs)
        if node.op is memory.PARAM or node.op is tensor.COPY:
            return Single(made, node.attrs.device, is_light=False)
        names = {source.device for source in sources if source.device}
        if len(names) > 1:
            return Single(made, "", is_light=False)  # the scheduler refuses it, with both names
        is_light = (node.op.elementwise or node.op in _LIGHT) and all(
            source.is_light for source in sources
        )
        return Single(made, names.pop() if names else "", is_light)

    def _unshard(self, node: Node) -> Spread:
        parts = []
        for source in node.src:
            value = self.values[source]
            if isinstance(value, Spread):
                raise InternalError("shard: a part is over several devices", got=repr(source))
            parts.append(value.node)
        return Spread(node.attrs, parts)

    def _reshard(self, node: Node) -> Value:
        source, layout = node.src[0], node.attrs
        if len(layout.devices) == 1:
            return self._gathered(node, layout)
        parts = self.parts(source, layout)
        value = self.values[source]
        is_open = isinstance(value, Spread) and value.layout == layout and value.is_open
        return Spread(layout, parts, is_open=is_open)

    def _gathered(self, node: Node, layout: Layout) -> Single:
        """All of a value on one device."""
        source, device = node.src[0], layout.devices[0]
        value = self.values[source]
        if isinstance(value, Single):
            found = self._placed(value, value.node, device)
            return Single(found, device, is_light=False)
        settled = self.parts(source, value.layout)
        shape = node.type.shape
        names = value.layout.devices
        wanted = spec.numbers(spec.whole(len(shape)), shape)
        if not spec.count(wanted):
            return Single(nothing(node.type.dtype, shape), device, is_light=False)
        first = names.index(device) if device in names else 0
        pieces = []
        for other, box in sources_of(value.layout, shape, wanted, first):
            have = value.layout.boxes[other]
            part = cut(settled[other], have, spec.as_box(box, shape), shape)
            if names[other] != device:
                part = copied_to(part, device)
            pieces.append((part, box))
        return Single(assemble(pieces, wanted, shape), device, is_light=False)

    def _spread(self, node: Node) -> Spread:
        layouts = [self._layout(source) for source in node.src]
        work = work_of(node, layouts)
        if self._is_fixed and work.groups is not None and _depends_on_order(node):
            # All of it is folded on each device, as it would be on one.
            whole = spec.with_whole(work.sources[0], node.attrs.axes)
            work = Work((whole,), work.result)
        sources = [
            self.parts(source, layout)
            for source, layout in zip(node.src, work.sources, strict=True)
        ]
        parts = [
            self._local(node, work, number, [row[number] for row in sources])
            for number in range(len(work.result.devices))
        ]
        found = Spread(work.result, parts)
        if work.groups is not None:
            found.groups, found.is_open = work.groups, True
            if node.op is tensor.GATHER:
                found.fold, found.dtype = tensor.Fold.ADD, node.type.dtype  # bits and zeros
            else:
                found.fold = node.attrs.fold
        elif node.op.elementwise or node.op in MOVES or node.op in _UNARY:
            spread = [self.values[source] for source in node.src]
            others = [each for each in spread if isinstance(each, Spread)]
            found.is_open = len(others) == 1 and others[0].is_open
        return found

    def _layout(self, source: Node) -> Layout | None:
        value = self.values[source]
        if isinstance(value, Spread):
            return value.layout
        if value.device:
            devices = next(
                each.layout.devices for each in self.values.values() if isinstance(each, Spread)
            )
            raise UserError(
                "shard: operands are on one device and on several",
                got=f"{value.device} and {', '.join(devices)}",
                try_="move one of them: tensor.to(other.device)",
            )
        return None

    def _local(self, node: Node, work: Work, number: int, src: Sequence[Node]) -> Node:
        """What one device does."""
        box = work.result.boxes[number]
        if not spec.count(spec.numbers(box, node.type.shape)):
            return nothing(node.type.dtype, spec.local_shape(box, node.type.shape))
        if node.op in MOVES:
            have = work.sources[0].boxes[number]
            exact = needed(node, box)
            exact = have if exact is None else exact
            part = cut(src[0], have, exact, node.src[0].type.shape)
            return local(node, exact, box, part)
        if node.op is tensor.SCATTER:
            # What is written to is made where it is written: no device's memory is any other's.
            base = copied_to(src[0], work.result.devices[number]) if is_free(src[0]) else src[0]
            return indexing.scatter(node, box, [base, *src[1:]])
        if node.op is tensor.GATHER and work.groups is not None:
            return indexing.gather(node, work.sources[0].boxes[number], src)
        if node.op is tensor.GATHER:
            return indexing.aligned_gather(node, work.sources[0].boxes[number], src)
        return make(node.op, tuple(src), node.attrs)

    # --- writes ----------------------------------------------------------------------------------

    def _after(self, node: Node) -> Spread:
        base = node.src[0]
        value = self.values[base]
        if isinstance(value, Single):
            wide = self._layout_of_values(node)
            layout = spec.replicated(wide.devices, len(node.type.shape))
        else:
            layout = value.layout
        parts = self.parts(base, layout)
        if isinstance(value, Single):
            parts = [
                copied_to(part, device) if is_free(part) else part
                for part, device in zip(parts, layout.devices, strict=True)
            ]
        views = [views_between(store.src[0], base, layout) for store in node.src[1:]]
        if any(view is None for view in views):
            return self._after_whole(node, layout, parts)
        found = []
        for number, part in enumerate(parts):
            stores = []
            for store, view in zip(node.src[1:], views, strict=True):
                shape = store.src[0].type.shape
                if view is not None and has_elements(view, layout, number, shape):
                    stores.append(self._store(store, view, number, part, layout))
            found.append(make(memory.AFTER, (part, *stores), None))
        return Spread(layout, found)

    def _layout_of_values(self, node: Node) -> Layout:
        for store in node.src[1:]:
            for source in store.src[1:]:
                value = self.values[source]
                if isinstance(value, Spread):
                    return value.layout
        raise InternalError("shard: a write of nothing that is spread", got=repr(node))

    def _store(
        self, store: Node, view: list[tuple[Node, Layout]], number: int, part: Node, base: Layout
    ) -> Node:
        target, have = part, base.boxes[number]
        layout = base
        for step, layout in view:
            box = layout.boxes[number]
            if step.op in MOVES:
                exact = needed(step, box)
                exact = have if exact is None else exact
                target = cut(target, have, exact, step.src[0].type.shape)
                target = local(step, exact, box, target)
            else:
                target = make(step.op, (target,), step.attrs)
            have = box
        rest = [self.parts(source, layout)[number] for source in store.src[1:]]
        return make(memory.STORE, (target, *rest), store.attrs)

    def _after_whole(self, node: Node, layout: Layout, parts: Sequence[Node]) -> Spread:
        """A write through a view that is no part on each device: written to a whole copy first."""
        shape = node.type.shape
        everywhere = spec.replicated(layout.devices, len(shape))
        wholes = self.parts(node.src[0], everywhere)
        found = []
        for number, (part, whole) in enumerate(zip(parts, wholes, strict=True)):
            kept = make(tensor.CONTIGUOUS, (whole,), None)
            stores = []
            for store in node.src[1:]:
                target = rebased(store.src[0], node.src[0], kept)
                rest = [
                    self.parts(source, spec.replicated(layout.devices, len(source.type.shape)))[
                        number
                    ]
                    for source in store.src[1:]
                ]
                stores.append(make(memory.STORE, (target, *rest), store.attrs))
            written = make(memory.AFTER, (kept, *stores), None)
            mine = cut(written, spec.whole(len(shape)), layout.boxes[number], shape)
            found.append(make(memory.AFTER, (part, make(memory.STORE, (part, mine), None)), None))
        return Spread(layout, found)

    # --- parts in a layout -----------------------------------------------------------------------

    def parts(self, node: Node, target: Layout, depth: int = 0) -> list[Node]:
        """The parts of a value in a layout; what is missing on a device is copied there."""
        key = (node, target)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._parts(node, target, depth)
        return found

    def _parts(self, node: Node, target: Layout, depth: int) -> list[Node]:
        value = self.values[node]
        shape = node.type.shape
        if isinstance(value, Single):
            whole = spec.whole(len(shape))
            return [
                self._placed(value, cut(value.node, whole, box, shape), device)
                for device, box in zip(target.devices, target.boxes, strict=True)
            ]
        if value.layout.devices != target.devices:
            return self._to_others(node, value, target)
        if value.layout == target:
            return value.parts if value.groups is None else self._settled(value)
        if value.groups is not None:
            return self._scattered(value, target, shape)
        passed = self._passed_on(node, value, target, depth) if depth < _DEPTH else None
        return self._moved(value, target, shape) if passed is None else passed

    def _to_others(self, node: Node, value: Spread, target: Layout) -> list[Node]:
        """A value of some devices on others: each fetches what it needs."""
        shape = node.type.shape
        parts = self.parts(node, value.layout)
        found = []
        for number, (device, box) in enumerate(zip(target.devices, target.boxes, strict=True)):
            wanted = spec.numbers(box, shape)
            if not spec.count(wanted):
                found.append(nothing(node.type.dtype, spec.local_shape(box, shape)))
                continue
            names = value.layout.devices
            first = names.index(device) if device in names else number % len(names)
            pieces = []
            for other, piece in sources_of(value.layout, shape, wanted, first):
                have = value.layout.boxes[other]
                part = cut(parts[other], have, spec.as_box(piece, shape), shape)
                if names[other] != device:
                    part = copied_to(part, device)
                pieces.append((part, piece))
            found.append(assemble(pieces, wanted, spec.local_shape(box, shape)))
        return found

    def _placed(self, value: Single, part: Node, device: str) -> Node:
        is_there = value.device == device or (not value.device and value.is_light)
        return part if is_there else copied_to(part, device)

    def _moved(self, value: Spread, target: Layout, shape: Shape) -> list[Node]:
        dtype = value.parts[0].type.dtype
        found = []
        for number, want in enumerate(target.boxes):
            wanted = spec.numbers(want, shape)
            if not spec.count(wanted):
                found.append(nothing(dtype, spec.local_shape(want, shape)))
                continue
            pieces = [
                (self._fetched(value, other, number, box, shape), box)
                for other, box in sources_of(value.layout, shape, wanted, number)
            ]
            found.append(assemble(pieces, wanted, spec.local_shape(want, shape)))
        return found

    def _fetched(
        self, value: Spread, other: int, number: int, box: spec.Bounds, shape: Shape
    ) -> Node:
        have = value.layout.boxes[other]
        part = cut(value.parts[other], have, spec.as_box(box, shape), shape)
        return send_part(value.layout, part, other, number)

    def _passed_on(
        self, node: Node, value: Spread, target: Layout, depth: int
    ) -> list[Node] | None:
        """The parts made from sources that are moved instead, where that moves less."""
        if self._cost(node, target, depth) >= self._direct(node, value, target):
            return None
        wanted = self._source_layouts(node, target)
        if wanted is None:
            return None
        rows = [
            self.parts(source, layout, depth + 1)
            for source, layout in zip(node.src, wanted, strict=True)
        ]
        if node.op not in MOVES:
            return [
                make(node.op, tuple([row[number] for row in rows]), node.attrs)
                for number in range(len(target.devices))
            ]
        return [
            local(node, exact, box, part)
            if spec.count(spec.numbers(box, node.type.shape))
            else nothing(node.type.dtype, spec.local_shape(box, node.type.shape))
            for exact, box, part in zip(wanted[0].boxes, target.boxes, rows[0], strict=True)
        ]

    def _source_layouts(self, node: Node, target: Layout) -> list[Layout] | None:
        """In which layouts the sources give `node` in `target` without further copies."""
        if node.op in MOVES:
            boxes: list[Box] = []
            for box in target.boxes:
                exact = needed(node, box)
                if exact is None:
                    return None
                boxes.append(exact)
            return [Layout(target.devices, tuple(boxes))]
        if node.op is math.BITCAST and node.src[0].type.dtype.bits != node.type.dtype.bits:
            return None
        return [target] * len(node.src) if node.op.elementwise or node.op in _UNARY else None

    def _direct(self, node: Node, value: Spread, target: Layout) -> int:
        """Bytes that move if the value itself does, after all folds are finished."""
        moved = spec.moved_elements(value.layout, target, node.type.shape)
        if value.is_open:
            moved += len(target.devices) * spec.largest_part(value.layout, node.type.shape)
        return moved * node.type.dtype.itemsize

    def _cost(self, node: Node, target: Layout, depth: int) -> int:
        """The fewest bytes that move to have a value in another layout."""
        value = self.values[node]
        if isinstance(value, Single):
            return 0 if not value.device else spec.count(
                spec.numbers(spec.whole(len(node.type.shape)), node.type.shape)
            ) * node.type.dtype.itemsize  # fmt: skip
        if value.groups is not None:  # a reduce-scatter
            return spec.moved_elements(None, target, node.type.shape)
        if value.layout.devices != target.devices:
            return self._direct(node, value, target)
        key = (node, target)
        known = self._costs.get(key)
        if known is None:
            known = self._direct(node, value, target)
            self._costs[key] = known
            wanted = self._source_layouts(node, target) if depth < _DEPTH and known else None
            if wanted is not None:
                passed = sum(
                    self._cost(source, layout, depth + 1)
                    for source, layout in zip(node.src, wanted, strict=True)
                )
                known = self._costs[key] = min(known, passed)
        return known

    # --- folds between devices -------------------------------------------------------------------

    def _settled(self, value: Spread) -> list[Node]:
        """All-reduce: every device gets the fold of its group."""
        groups, fold = value.groups, value.fold
        if groups is None or fold is None:
            return value.parts
        found: list[Node | None] = [None] * len(groups)
        for members in dict.fromkeys(groups):
            rows = [value.parts[member] for member in members]
            shape = rows[0].type.shape
            sizes = prod(spec.bounds_of(None, size)[1] for size in shape)
            fixed = all(isinstance(size, int) for size in shape)
            names = [value.layout.devices[member] for member in members]
            dtype = rows[0].type.dtype
            choice = choose(
                sizes * dtype.itemsize,
                len(members),
                self._topology(names),
                wanted=self._algorithm if fixed else "naive",
                deterministic=self._is_fixed,
                has_library=fixed and self._has_library(names, fold, dtype),
            )

            def send(part: Node, source: int, to: int, members: Any = members) -> Node:
                return send_part(value.layout, part, members[source], members[to])

            if choice.algorithm == "library":
                together = tuple([make(tensor.CONTIGUOUS, (row,), None) for row in rows])
                attrs = [multi.AllReduceAttrs(fold, name) for name in names]
                folded = tuple([make(multi.ALLREDUCE, together, each) for each in attrs])
            else:
                folded = fold_all(choice.algorithm, fold, rows, send)
            for member, part in zip(members, folded, strict=True):
                found[member] = part
            for number, group in enumerate(groups):
                if group == members and found[number] is None:
                    near = number % len(members)
                    found[number] = send_part(value.layout, folded[near], members[near], number)
        value.parts = [value.finished(part) for part in found if part is not None]
        value.groups = None
        return value.parts

    def _topology(self, names: Sequence[str]) -> str:
        if not all(kind_of(name) in self._limits.linked_on for name in names):
            return "host"
        return "processes" if any(is_of_the_world(name) for name in names) else "links"

    def _has_library(self, names: Sequence[str], fold: tensor.Fold, dtype: DType) -> bool:
        """Whether somebody folds values between these devices, which are all of one kind."""
        known = dict(self._limits.collectives_on)
        heads = {name.partition(":")[0] for name in names}
        return len(heads) == 1 and (fold.value, dtype.name) in known.get(heads.pop(), ())

    def _scattered(self, value: Spread, target: Layout, shape: Shape) -> list[Node]:
        """Reduce-scatter: each device folds what it needs, if that lies within its group."""
        groups, fold = value.groups, value.fold
        if groups is None or fold is None:
            raise InternalError("shard: there is nothing to fold")
        rows = [spec.numbers(box, shape) for box in value.layout.boxes]
        found = []
        for number, want in enumerate(target.boxes):
            wanted = spec.numbers(want, shape)
            if not spec.count(wanted):
                dtype = value.dtype or value.parts[0].type.dtype
                found.append(nothing(dtype, spec.local_shape(want, shape)))
                continue
            if spec.common(wanted, rows[number]) != wanted:
                settled = self._settled(value)
                return self._moved(Spread(value.layout, settled), target, shape)
            total: Node | None = None
            for member in groups[number]:
                part = cut(value.parts[member], value.layout.boxes[member], want, shape)
                part = send_part(value.layout, part, member, number)
                total = part if total is None else combine(fold, total, part)
            if total is None:
                raise InternalError("shard: a group has no members")
            found.append(value.finished(total))
        return found


def _depends_on_order(node: Node) -> bool:
    """Whether a fold gives other bits in another order."""
    is_rounded = node.op is tensor.REDUCE and node.type.dtype.is_float
    return is_rounded and node.attrs.fold in (tensor.Fold.ADD, tensor.Fold.MUL)
