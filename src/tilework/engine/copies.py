"""Copies between any two buffers: how the bytes go is planned first, and can be asked.

    plan = plan_copy(Device["CPU"], target, Device["CUDA"], source)
    print(plan)                             # 4.0 MiB, CUDA to CPU: download; 1 transfer, ...
    run_copy(plan, Device["CPU"], target, Device["CUDA"], source)

A copy means what it would mean if the source were read to its end before the first byte is
written, also where the two are parts of one memory that overlap.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol, cast
from weakref import WeakKeyDictionary

from tilework.base import trace
from tilework.base.errors import DeviceError, InternalError, ShapeError
from tilework.base.records import dataclass
from tilework.base.text import format_bytes
from tilework.engine.device import Device
from tilework.engine.world import (
    PREFIX,
    Exchange,
    by_library,
    copy_between_processes,
    exchange_of,
    family_of,
    is_elsewhere,
)
from tilework.runtime.allocator import POISON
from tilework.runtime.driver import Copy
from tilework.runtime.links import current_links

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tilework.engine.device import OpenDevice
    from tilework.runtime.buffer import Buffer


#: What poison is copied from, so that it takes no memory of the size of what it fills.
_PATTERN: Final = memoryview(bytes([POISON]) * (1 << 16))


class _FillingDriver(Protocol):
    """A driver that fills memory in the order of its queue, and waits for nothing."""

    def fill(self, target: Buffer, byte: int) -> None: ...


def poison_bytes(device: OpenDevice, buffer: Buffer) -> None:
    """Fill a buffer with NaN patterns, after all work that the device was given."""
    if hasattr(device.driver, "fill"):
        cast("_FillingDriver", device.driver).fill(buffer, POISON)
        return
    for start in range(0, buffer.size_bytes, len(_PATTERN)):
        size = min(len(_PATTERN), buffer.size_bytes - start)
        device.driver.copy_in(buffer.view(start, size), _PATTERN[:size])


class Route(StrEnum):
    """The way that bytes take."""

    NOTHING = "nothing to move"
    HOST = "within the memory of the host"
    DEVICE = "within one device"
    PEER = "from device to device"
    UPLOAD = "upload"
    DOWNLOAD = "download"
    STAGED = "through the memory of the host"
    PROCESSES = "between processes"
    LIBRARY = "between processes, by a library"


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """How one copy is made.

    `transfers` counts how often the bytes are moved, `staging_bytes` is memory of the host in
    between, and `sync_points` are the devices whose submitted work is waited for, in order.
    """

    source_device: str
    target_device: str
    size_bytes: int
    route: Route
    transfers: int
    staging_bytes: int
    sync_points: tuple[str, ...]
    overlaps: bool

    def __str__(self) -> str:
        """One line for people."""
        waits = ", ".join(self.sync_points) or "nobody"
        plural = "" if self.transfers == 1 else "s"
        text = (
            f"{format_bytes(self.size_bytes)}, {self.source_device} to {self.target_device}: "
            f"{self.route}; {self.transfers} transfer{plural}, "
            f"{format_bytes(self.staging_bytes)} of staging memory, waits for {waits}"
        )
        return f"{text}; source and target overlap" if self.overlaps else text


def plan_copy(
    target_device: OpenDevice, target: Buffer, source_device: OpenDevice, source: Buffer
) -> CopyPlan:
    """Return how all bytes of `source` get to `target`; nothing is moved.

    Raises: ShapeError when their sizes differ.
    """
    size = source.size_bytes
    if target.size_bytes != size:
        raise ShapeError(
            "copy: source and target differ in size",
            got=f"{size} bytes to {target.size_bytes}",
        )
    overlaps = target.overlaps(source)
    staging = 0
    waits: tuple[str, ...]
    if not size:
        route, transfers, waits = Route.NOTHING, 0, ()
    elif by_library(target_device.name, source_device.name):
        route, transfers, waits = Route.LIBRARY, 1, ()
    elif target_device.name.startswith(PREFIX) or source_device.name.startswith(PREFIX):
        route, transfers, waits = Route.PROCESSES, 1, (source_device.name,)
    elif source_device.is_host_memory and target_device.is_host_memory:
        route, transfers, waits = Route.HOST, 1, (source_device.name,)
    elif source_device.is_host_memory:
        route, transfers, waits = Route.UPLOAD, 1, (source_device.name, target_device.name)
    elif target_device.is_host_memory:
        route, transfers, waits = Route.DOWNLOAD, 1, (target_device.name, source_device.name)
    elif source_device is target_device and not overlaps:
        route, transfers, waits = Route.DEVICE, 1, ()
    elif can_reach(target_device, source_device):
        route, transfers, waits = Route.PEER, 1, (source_device.name,)
    else:
        route, transfers, staging = Route.STAGED, 2, size
        waits = (source_device.name, target_device.name)
    return CopyPlan(
        source_device.name,
        target_device.name,
        size,
        route,
        transfers,
        staging,
        waits,
        overlaps,
    )


def can_reach(target_device: OpenDevice, source_device: OpenDevice) -> bool:
    """Whether a device reads the memory of another one by itself.

    Asked once for each pair.  Where it cannot, also where asking fails, copies go through the
    memory of the host: a link that is missing makes them slower, and stops nothing.
    """
    ask = getattr(target_device.driver, "can_copy_from", None)
    if target_device is source_device or ask is None:
        return False
    group = target_device.driver.target.peer_group
    if not group or group != source_device.driver.target.peer_group:
        return False
    known: WeakKeyDictionary[OpenDevice, bool] = target_device.caches.setdefault(
        "reach", WeakKeyDictionary()
    )
    found = known.get(source_device)
    if found is None:
        try:
            found = bool(ask(source_device.driver))
        except DeviceError as error:
            trace.warn("device", f"{target_device.name} cannot reach {source_device.name}: {error}")
            found = False
        known[source_device] = found
    return found


def run_copy(
    plan: CopyPlan,
    target_device: OpenDevice,
    target: Buffer,
    source_device: OpenDevice,
    source: Buffer,
) -> None:
    """Copy as planned.  Raises what a kernel before it reported; what the drivers raise."""
    if trace.enabled():
        name = f"copy from {plan.source_device} ({plan.route})"
        trace.emit(trace.Launched(name, plan.target_device, moved_bytes=plan.size_bytes))
    match plan.route:
        case Route.NOTHING:
            return
        case Route.PROCESSES:
            copy_between_processes(
                target_device, target, source_device, source,
                lambda: _through_host(target_device, target, source_device, source),
            )  # fmt: skip
        case Route.LIBRARY:
            found = exchange_of(target_device.name, target, source_device.name, source)
            exchange_in_order(
                device_here(target_device.name),
                by_library(target_device.name, source_device.name),
                () if found is None else (found,),
            )
        case Route.HOST | Route.UPLOAD | Route.DOWNLOAD | Route.STAGED:
            _through_host(target_device, target, source_device, source)
        case Route.DEVICE:
            copy = Copy(target, source)
            target_device.last_ticket = target_device.driver.submit([copy])
            target.memory.changes += 1
        case Route.PEER:
            if peer_queues(target_device) is not None:
                copy_in_order(target_device, target, source_device, source)
                target.memory.changes += 1
                return
            source_device.synchronize()
            copy = Copy(target, source)
            target_device.last_ticket = target_device.driver.submit([copy])
            target.memory.changes += 1
            # Whoever writes to the source next is in another queue, which must not overtake.
            target_device.synchronize()


def _through_host(
    target_device: OpenDevice, target: Buffer, source_device: OpenDevice, source: Buffer
) -> None:
    """Copy from or to memory that the host sees, or through some that it has in between."""
    if source_device.is_host_memory:
        target_device.copy_in(target, source_device.view(source))
    elif target_device.is_host_memory:
        source_device.copy_out(source, target_device.view(target))
        target.memory.changes += 1
    else:
        staging = memoryview(bytearray(source.size_bytes))
        source_device.copy_out(source, staging)
        target_device.copy_in(target, staging)


class PeerQueues(Protocol):
    """What a driver has as `peers` whose copies from other devices need no wait of the host."""

    def copy(self, other: Any, target: Buffer, source: Buffer) -> None:
        """Queue a copy from another device, in a queue of its own."""
        ...

    def depends_on(self, other: Any) -> None:
        """What is waited for here depends from now on on what another device was given."""
        ...

    def set_ordered(self, is_ordered: bool) -> None:
        """Whether this thread sees to the order of kernels that read other devices' memory."""
        ...

    def mark(self, *, is_copying: bool) -> Any:
        """Put a mark behind what one of the two queues was given."""
        ...

    def after(self, mark: Any, *, is_copying: bool) -> None:
        """Let what a queue is given from now on wait for a mark of any such device."""
        ...

    def give_back(self, marks: Iterable[Any]) -> None:
        """Marks of this device are not asked about any more."""
        ...


def peer_queues(device: OpenDevice) -> PeerQueues | None:
    """The queues of a device for copies from others, if its spec says that it has some."""
    driver: Any = device.driver
    if not driver.target.has_copy_queue:
        return None
    queues: PeerQueues = driver.peers
    return queues


def copy_in_order(
    target_device: OpenDevice, target: Buffer, source_device: OpenDevice, source: Buffer
) -> None:
    """Queue a copy after all that both devices were given, and before all that they get."""
    here, there = peer_queues(target_device), peer_queues(source_device)
    if here is None or there is None:
        raise InternalError("copy: a device without queues for copies", got=source_device.name)
    mine, theirs = here.mark(is_copying=False), there.mark(is_copying=False)
    here.after(mine, is_copying=True)
    here.after(theirs, is_copying=True)
    here.copy(source_device.driver, target, source)
    done = here.mark(is_copying=True)
    for device in (target_device, source_device):
        join(device, [done])
    here.give_back([mine, done])
    there.give_back([theirs])


def device_here(name: str) -> OpenDevice:
    """This process's own device among those of all ranks, of which one is named."""
    if is_elsewhere(name):
        name = Device.canonicalize(f"{family_of(name)}:{current_links().rank}")
    return Device[name]


def exchange(device: OpenDevice, ranks: tuple[int, ...], moves: Sequence[Exchange]) -> None:
    """Queue this process's part of copies that begin together, in the queue of copies.

    Args:
        device: of this process.
        ranks: all that copy by the library; where this one is not among them, it has no part.
        moves: what it sends and gets; () if it has no part in these copies.
    """
    if current_links().rank not in ranks:
        return
    queues: Any = peer_queues(device)
    # Ranks that have no part in the first copy come to it too, and meet the others there.
    queues.exchange(ranks, [(each.rank, each.buffer, each.is_sent) for each in moves])
    for each in moves:
        if not each.is_sent:
            each.buffer.memory.changes += 1


def exchange_in_order(
    device: OpenDevice, ranks: tuple[int, ...], moves: Sequence[Exchange]
) -> None:
    """`exchange` after all that the device was given, and before all that it gets."""
    queues = peer_queues(device)
    if queues is None or not moves:
        exchange(device, ranks, moves)
        return
    mark = queues.mark(is_copying=False)
    queues.after(mark, is_copying=True)
    exchange(device, ranks, moves)
    done = queues.mark(is_copying=True)
    join(device, [done])
    queues.give_back([mark, done])


def join(device: OpenDevice, marks: Iterable[Any]) -> None:
    """Let all that a device gets from now on, and whoever waits for it, come after marks."""
    queues = peer_queues(device)
    driver: Any = device.driver
    if queues is not None:
        for mark in marks:
            queues.after(mark, is_copying=False)
        device.last_ticket = driver.ticket("copies between devices")


def copy_between(
    target_device: OpenDevice, target: Buffer, source_device: OpenDevice, source: Buffer
) -> None:
    """Plan and make a copy of all bytes of `source` to `target`, whose size is the same."""
    plan = plan_copy(target_device, target, source_device, source)
    run_copy(plan, target_device, target, source_device, source)


def explain_copy(target: Buffer, source: Buffer) -> str:
    """Return how the bytes of `source` would get to `target`, as one line; moves nothing.

    Raises: ShapeError when their sizes differ.
    """
    plan = plan_copy(Device[target.device], target, Device[source.device], source)
    return str(plan)
