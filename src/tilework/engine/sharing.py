"""Which devices may hold parts of one tensor, and what becomes of the others when one fails.

Parts meet through copies, so a device takes part only if copies between it and each of the others
were seen to be right, in both directions, since it was opened.  A back end that has never been
asked to copy for others is thus refused at the line that spreads a tensor, and not found out by
wrong numbers.  A device that runs no code (`NULL`) has no contents to get wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from tilework.base import trace
from tilework.base.errors import DeviceError, TileworkError, UnsupportedError
from tilework.engine import execute
from tilework.engine.copies import copy_between
from tilework.engine.device import Device
from tilework.engine.steps import CopyCall, FoldCall, PlannedStep, planned_steps
from tilework.engine.world import give_up, is_of_the_world
from tilework.schedule.call import transform_to_call

if TYPE_CHECKING:
    from tilework.engine.device import OpenDevice
    from tilework.ir.node import Node

#: Every byte, and every pair of bytes that follow each other in some order.
_PATTERN: Final = bytes(range(256)) + bytes(byte ^ 0xA5 for byte in range(256))[::-1]


def check_can_share(names: Sequence[str]) -> None:
    """Refuse devices between which copies were not seen to be right; tried once for each pair.

    Raises:
        UnsupportedError: some copy failed, or gave other bytes; says which.
        DeviceUnavailableError: a device cannot be opened.
    """
    if len(names) < 2:
        return
    devices = [Device[name] for name in names]
    for source, target in permutations(devices, 2):
        seen: WeakSet[Any] = source.caches.setdefault("copies to", WeakSet())
        if target in seen:
            continue
        _try_copy(source, target)
        seen.add(target)


def _try_copy(source: OpenDevice, target: OpenDevice) -> None:
    """Copy a pattern from one device to another, and look at what arrives."""
    if not (source.driver.target.runs_code and target.driver.target.runs_code):
        return
    try:
        here, there = source.allocate(len(_PATTERN)), target.allocate(len(_PATTERN))
        source.copy_in(here, memoryview(_PATTERN))
        target.copy_in(there, memoryview(bytes(len(_PATTERN))))
        copy_between(target, there, source, here)
        found = bytearray(len(_PATTERN))
        target.copy_out(there, memoryview(found))
    except (DeviceError, UnsupportedError) as error:
        raise _refusal(source, target, f"the copy failed: {error.args[0]}") from error
    if found != _PATTERN:
        wrong = sum(one != other for one, other in zip(found, _PATTERN, strict=True))
        raise _refusal(source, target, f"{wrong} of {len(_PATTERN)} bytes arrived changed")


def _refusal(source: OpenDevice, target: OpenDevice, what: str) -> UnsupportedError:
    return UnsupportedError(
        f"shard: copies from {source.name} to {target.name} are not right",
        got=what,
        expected="devices that pass `tilework conformance`",
        try_="keep the tensor on one device",
    )


def copies_between(nodes: Sequence[Node], device: str) -> list[tuple[str, str, int]]:
    """The copies between devices that computing `nodes` makes: from where, to where, bytes.

    Args:
        nodes: TENSOR expressions.
        device: where what reads no buffer is computed.
    """
    return [
        (step.source_device, step.target_device, step.source.size_bytes)
        for step in _steps_of(nodes, device)
        if isinstance(step, CopyCall) and step.source_device != step.target_device
    ]


def folds_between(nodes: Sequence[Node], device: str) -> list[tuple[tuple[str, ...], str, int]]:
    """The folds that a library does between devices: which devices, how, bytes on each.

    Args: as `copies_between`.
    """
    return [
        (step.devices, f"{step.fold} of {step.dtype}", step.sources[0].size_bytes)
        for step in _steps_of(nodes, device)
        if isinstance(step, FoldCall)
    ]


def _steps_of(nodes: Sequence[Node], device: str) -> tuple[PlannedStep, ...]:
    if not nodes:
        return ()
    schedule = execute.schedule_of(transform_to_call(nodes).function)
    devices = [slot.device or device for slot in schedule.slots]
    return planned_steps(schedule.linear, devices)


def end_all(names: Sequence[str]) -> None:
    """After a failure: wait until no device works any more on what the run was to make.

    A device that does not come to an end within its deadline is lost, as for every wait; that is
    noted, and the first error stays the one that is raised.  Other processes that take part in the
    run end theirs: what comes next from here would be something else than they expect.
    """
    if any(map(is_of_the_world, names)):
        give_up()
    for name in names:
        device = Device.opened_as(name)
        if device is None or device.is_closed:
            continue
        try:
            device.synchronize()
        except TileworkError as error:
            trace.warn("device", f"{name}, after another device has failed: {error}")
