"""Groups of kernels as a LINEAR of CALLs over slots, with the report of each call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base import settings
from tilework.dtypes import uint8
from tilework.ir.node import make
from tilework.ir.ops import memory, multi, tensor
from tilework.ir.ops.program import CALL, LINEAR
from tilework.schedule.memory_plan import (
    COMPUTE_LANE,
    COPY_LANE,
    Lifetime,
    live_bytes,
    plan_memory,
    rounded,
)
from tilework.schedule.passes.kernels import KernelBody, length
from tilework.schedule.passes.sort_rows import sort_rows
from tilework.schedule.schedule import (
    Intermediates,
    KernelReport,
    Schedule,
    Slot,
    SlotBytes,
    SlotKind,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.dtypes import DType
    from tilework.ir.node import Node
    from tilework.schedule.passes.group import Group
    from tilework.schedule.passes.kernel_graph import Buffer, Kernel
    from tilework.schedule.passes.prepare import Layout

Argument = tuple["Buffer", "DType"]


class _Body:
    """The body of a call, the buffers of its PARAMs, and the kernels that it is made of."""

    __slots__ = ("arguments", "node", "parts", "written")

    def __init__(
        self, node: Node, arguments: list[Argument], written: int, parts: list[Kernel]
    ) -> None:
        self.node = node
        self.arguments = arguments
        self.written = written
        self.parts = parts


def assemble(layout: Layout, groups: Sequence[Group]) -> Schedule:
    """The schedule of ordered groups of kernels."""
    bodies = [_body(group) for group in groups]
    lives = _lifetimes(bodies)
    arenas = [buffer for buffer in lives if buffer.kind is SlotKind.ARENA]
    lifetimes = [lives[buffer] for buffer in arenas]
    plan = plan_memory(lifetimes)
    slots, place = _slots(layout)
    first = len(slots)
    arena_slot = {}
    for number, (key, size_bytes) in enumerate(sorted(plan.arena_bytes.items())):
        arena_slot[key] = first + number
        slots.append(Slot(SlotKind.ARENA, size_bytes, (size_bytes,), uint8, key[0]))
    params = [
        make(memory.PARAM, (), memory.ParamAttrs(number, slot.shape, slot.dtype, slot.device))
        for number, slot in enumerate(slots)
    ]
    views: dict[Argument, Node] = {}
    offsets = dict(zip(arenas, plan.offsets, strict=True))

    def argument(buffer: Buffer, dtype: DType) -> Node:
        found = views.get((buffer, dtype))
        if found is not None:
            return found
        base, offset = buffer, 0
        if buffer.kind is SlotKind.ARENA:
            param, offset = params[arena_slot[lives[base].arena]], offsets[buffer]
        else:
            param = params[place[buffer]]
        if buffer.kind is SlotKind.ARENA or dtype is not buffer.dtype:
            is_plain = dtype is buffer.dtype and (buffer.stored is None or not buffer.stored.pitch)
            shape = buffer.shape if is_plain else (length(buffer, dtype),)
            param = make(memory.BUFFER_VIEW, (param,), memory.ViewAttrs(offset, shape, dtype))
        views[buffer, dtype] = param
        return param

    calls = [
        make(CALL, (body.node, *[argument(*item) for item in body.arguments]), None)
        for body in bodies
    ]
    return Schedule(
        make(LINEAR, tuple(calls), None),
        tuple(slots),
        tuple([place[buffer] for buffer in layout.outputs]),
        tuple([_report(body) for body in bodies]),
        _intermediates(lifetimes),
        _dead_after(
            len(bodies), lifetimes, [arena_slot[row.arena] for row in lifetimes], plan.offsets
        ),
    )


def _dead_after(
    count: int, lifetimes: Sequence[Lifetime], slots: Sequence[int], offsets: Sequence[int]
) -> tuple[tuple[SlotBytes, ...], ...]:
    """For each call the bytes of arenas whose buffer ends with it, where somebody wants to know."""
    if not settings.current().poison:
        return ()
    rows: list[list[SlotBytes]] = [[] for _ in range(count)]
    for life, slot, offset in zip(lifetimes, slots, offsets, strict=True):
        rows[life.last].append((slot, offset, rounded(life.size_bytes)))
    return tuple([tuple(row) for row in rows])


def _intermediates(lifetimes: Sequence[Lifetime]) -> Intermediates:
    """What any plan needs; memory of one device is of no use to another."""
    by_device: dict[str, list[Lifetime]] = {}
    for life in lifetimes:
        by_device.setdefault(life.arena[0], []).append(life)
    return Intermediates(
        sum(live_bytes(rows) for rows in by_device.values()),
        sum(rounded(life.size_bytes) for life in lifetimes),
    )


def _body(group: Group) -> _Body:
    kernel = group.parts[0]
    if kernel.copied_from:
        source, target = kernel.copied_from[0][0], kernel.stores[0].buffer
        node = kernel.stores[0].step.node
        if node.op is multi.ALLREDUCE:
            return _all_reduce(kernel, node)
        body = sort_rows(node) if node.op is tensor.SORT else _copy(source, target)
        return _Body(body, [(target, target.dtype), (source, source.dtype)], 1, [kernel])
    built = KernelBody(group.parts, share_loops=group.share_loops)
    written = len({store.buffer for part in group.parts for store in part.stores})
    return _Body(built.sink, built.arguments, written, group.parts)


def _all_reduce(kernel: Kernel, node: Node) -> _Body:
    """The fold: results first, then what each device has."""
    sources = [buffer for buffer, _ in kernel.copied_from]
    targets = [store.buffer for store in kernel.stores]
    params = [
        make(
            memory.PARAM, (),
            memory.ParamAttrs(len(targets) + number, node.type.shape, each.dtype, each.device),
        )
        for number, each in enumerate(sources)
    ]  # fmt: skip
    body = make(node.op, tuple(params), node.attrs)
    arguments = [(each, each.dtype) for each in (*targets, *sources)]
    return _Body(body, arguments, len(targets), [kernel])


def _copy(source: Buffer, target: Buffer) -> Node:
    attrs = memory.ParamAttrs(1, source.shape, source.dtype, source.device)
    param = make(memory.PARAM, (), attrs)
    return make(tensor.COPY, (param,), tensor.DeviceAttrs(target.device))


def _lifetimes(bodies: Sequence[_Body]) -> dict[Buffer, Lifetime]:
    """The life of every buffer that a call touches, in the order of first touch."""
    first: dict[Buffer, int] = {}
    last: dict[Buffer, int] = {}
    copied: set[Buffer] = set()
    for number, body in enumerate(bodies):
        for buffer, _ in body.arguments:
            first.setdefault(buffer, number)
            last[buffer] = number
            if body.node.op in (tensor.COPY, multi.ALLREDUCE):
                copied.add(buffer)
    return {
        buffer: Lifetime(
            (buffer.device, COPY_LANE if buffer in copied else COMPUTE_LANE),
            buffer.size_bytes,
            start,
            last[buffer],
        )
        for buffer, start in first.items()
    }


def _slots(layout: Layout) -> tuple[list[Slot], dict[Buffer, int]]:
    """Slots of the inputs and outputs, and the slot of each of their buffers."""
    inputs = {
        node.attrs.slot: buffer
        for node, (buffer, version) in layout.memory.items()
        if node.op is memory.PARAM and version == 0
    }
    count = max(max(inputs, default=-1) + 1, layout.inputs)
    place = {inputs[slot]: slot for slot in inputs}
    ordered = [inputs.get(slot) for slot in range(count)]
    for buffer in layout.outputs:
        if buffer not in place:
            place[buffer] = len(ordered)
            ordered.append(buffer)
    slots = []
    for held in ordered:
        if held is None:
            slots.append(Slot(SlotKind.INPUT, 0, (0,), uint8, ""))
            continue
        kind = SlotKind.INPUT if held.kind is SlotKind.INPUT else SlotKind.OUTPUT
        slots.append(Slot(kind, held.size_bytes, held.shape, held.dtype, held.device))
    return slots, place


def _report(body: _Body) -> KernelReport:
    stores = [store for part in body.parts for store in part.stores]
    sizes = [buffer.size_bytes for buffer, _ in body.arguments]
    nodes = sum(part.size for part in body.parts)
    if body.node.op is tensor.COPY:
        kind = "copy"
    elif body.node.op is multi.ALLREDUCE:
        kind = "all-reduce"
    elif body.parts[0].copied_from:
        kind = "sort"
    elif any(part.reduces for part in body.parts):
        kind = "reduction"
    else:
        kind = "elementwise"
    return KernelReport(
        kind,
        tuple([f"{store.what} -> {store.buffer}" for store in stores]),
        tuple([store.reason for store in stores]),
        len(body.arguments),
        sum(sizes[body.written :]),
        sum(sizes[: body.written]),
        nodes,
    )
