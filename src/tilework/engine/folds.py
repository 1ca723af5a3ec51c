"""Folds of what several devices have, done by a library that their drivers know.

    known = collectives_of(devices)                 # {("add", "float32"), ...}: none without one
    fold(call, slots)                               # in the queues of copies of all devices

Of devices of several processes each process folds for its own one; all come to it in one order.

A driver with `peers.folds` says which folds of which dtypes there are with our meaning: a library
whose maximum loses NaNs has none for floats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from tilework.base import trace
from tilework.base.errors import InternalError
from tilework.engine.copies import join, peer_queues
from tilework.engine.device import Device
from tilework.engine.steps import part_of
from tilework.engine.world import is_elsewhere, is_of_the_world, rank_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.engine.device import OpenDevice
    from tilework.engine.steps import FoldCall
    from tilework.runtime.buffer import Buffer


class FoldQueues(Protocol):
    """What a driver has as `peers` that folds with others."""

    def folds(self) -> frozenset[tuple[str, str]]:
        """Folds and dtypes that there are."""
        ...

    def fold(self, others: Sequence[Any], fold: str, dtype: str, pairs: Sequence[Any]) -> None:
        """Queue a fold of this device and others, in the queues of copies of all."""
        ...

    def fold_with(
        self, ranks: tuple[int, ...], fold: str, dtype: str, target: Buffer, source: Buffer
    ) -> None:
        """Queue this device's part of a fold of several processes, in its queue of copies."""
        ...


def collectives_of(device: OpenDevice) -> frozenset[tuple[str, str]]:
    """The folds that a device does together with others of its kind."""
    ask = getattr(peer_queues(device), "folds", None)
    found: frozenset[tuple[str, str]] = frozenset() if ask is None else ask()
    return found


def abort_collectives(device: OpenDevice, why: str) -> None:
    """End what a device does together with others, which may not come any more."""
    end = getattr(peer_queues(device), "abort_groups", None)
    if end is not None:
        end(why)


def fold(call: FoldCall, slots: Sequence[Buffer | None], scratch: dict[int, Buffer]) -> None:
    """Queue a fold behind what the first device's queue of copies was given, on all devices.

    What that queue is given next comes after it, on whichever device.

    Args:
        call: what is folded.
        slots: the buffers of this run.
        scratch: results that nobody asked for, by the number of their device; kept by the caller
            until the work is done.
    """
    devices = [Device[name] for name in call.devices]
    queues: list[Any] = [peer_queues(device) for device in devices]
    sources = [part_of(slots, operand) for operand in call.sources]
    wanted = dict(zip(call.receivers, call.results, strict=True))
    pairs = []
    for number, (device, source) in enumerate(zip(devices, sources, strict=True)):
        if number in wanted:
            target = part_of(slots, wanted[number])
        else:
            held = scratch.get(number)
            if held is None or held.size_bytes != source.size_bytes:
                held = scratch[number] = device.allocate(source.size_bytes)
            target = held
        pairs.append((target, source))
    if trace.enabled():
        name = f"all-reduce over {len(devices)} devices (library)"
        moved = sum(source.size_bytes for source in sources)
        trace.emit(trace.Launched(name, call.devices[0], moved_bytes=moved))
    start = queues[0].mark(is_copying=True)
    for each in queues[1:]:
        each.after(start, is_copying=True)
    others = [device.driver for device in devices[1:]]
    queues[0].fold(others, call.fold, call.dtype, pairs)
    for each in queues[1:]:
        done = each.mark(is_copying=True)
        queues[0].after(done, is_copying=True)
        each.give_back([done])
    queues[0].give_back([start])
    for target, _ in pairs:
        target.memory.changes += 1


def fold_here(
    call: FoldCall, slots: Sequence[Buffer | None], scratch: dict[int, Buffer]
) -> OpenDevice | None:
    """Queue this process's part of a fold of devices of several, in its device's queue of copies.

    Args: as `fold`.

    Returns: the device of this process; None if it has none of them.
    """
    here = [number for number, name in enumerate(call.devices) if not is_elsewhere(name)]
    if not here:
        return None
    number = here[0]
    device = Device[call.devices[number]]
    queues: Any = peer_queues(device)
    source = part_of(slots, call.sources[number])
    if number in call.receivers:
        target = part_of(slots, call.results[call.receivers.index(number)])
    else:
        held = scratch.get(number)
        if held is None or held.size_bytes != source.size_bytes:
            held = scratch[number] = device.allocate(source.size_bytes)
        target = held
    if trace.enabled():
        name = f"all-reduce over {len(call.devices)} processes (library)"
        trace.emit(trace.Launched(name, device.name, moved_bytes=source.size_bytes))
    ranks = tuple(sorted([rank for name in call.devices if (rank := rank_of(name)) is not None]))
    queues.fold_with(ranks, call.fold, call.dtype, target, source)
    target.memory.changes += 1
    return device


def _fold_here_in_order(call: FoldCall, slots: Sequence[Buffer | None]) -> None:
    scratch: dict[int, Buffer] = {}
    own = [name for name in call.devices if not is_elsewhere(name)]
    queues = peer_queues(Device[own[0]]) if own else None
    if queues is None:
        return
    mark = queues.mark(is_copying=False)
    queues.after(mark, is_copying=True)
    device = fold_here(call, slots, scratch)
    done = queues.mark(is_copying=True)
    if device is not None:
        join(device, [done])
        if scratch:
            device.synchronize()
    queues.give_back([mark, done])


def fold_in_order(call: FoldCall, slots: Sequence[Buffer | None]) -> None:
    """Fold after all that the devices were given, and before all that they get."""
    if is_of_the_world(call.devices[0]):
        _fold_here_in_order(call, slots)
        return
    devices = [Device[name] for name in call.devices]
    queues = [peer_queues(device) for device in devices]
    first = queues[0]
    if first is None:
        raise InternalError("fold: a device without queues for copies", got=call.devices[0])
    for each in queues:
        if each is not None:
            mark = each.mark(is_copying=False)
            first.after(mark, is_copying=True)
            each.give_back([mark])
    scratch: dict[int, Buffer] = {}
    fold(call, slots, scratch)
    done = first.mark(is_copying=True)
    for device in devices:
        join(device, [done])
    first.give_back([done])
    for number in scratch:
        devices[number].synchronize()
