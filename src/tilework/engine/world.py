"""Copies between devices of several processes, each of which runs the same program.

A device `WORLD+CPU:r` is that of rank r; any other device is each process's own.  So a copy is

- from one rank's device to another's: the one sends, the other receives, nobody else does anything;
- from a process's own device to a rank's: that rank copies, since each process has the bytes;
- from a rank's device to each process's own: that rank sends to all others, which receive.

A read by the host is like the last.  All ranks come to the same copies in the same order.

Where both ends have a library for it, a copy between two ranks goes from device to device, in their
queues (`exchange_of` says what this process has to do for it); all else goes through the memory of
the host and a connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.backends.registry import WORLD
from tilework.base.records import dataclass
from tilework.runtime.links import current_links, shared
from tilework.runtime.registry import parse_device_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tilework.engine.device import OpenDevice
    from tilework.runtime.buffer import Buffer

#: How the names of these devices begin.
PREFIX = f"{WORLD}+"


def rank_of(name: str) -> int | None:
    """Whose device this is; None for one that each process has for itself."""
    return parse_device_name(name).index if name.startswith(PREFIX) else None


def is_of_the_world(name: str) -> bool:
    """Whether all processes know a device by this name."""
    return name.startswith(PREFIX)


def give_up(what: str = "run") -> None:
    """After what failed here: the others need not wait for it, nor take what is next for it."""
    links = current_links()
    links.spoil(f"a {what} of rank {links.rank} failed")


def is_elsewhere(name: str) -> bool:
    """Whether a device is another process's."""
    rank = rank_of(name)
    return rank is not None and rank != current_links().rank


def own_of_all(names: Sequence[str]) -> int | None:
    """Of devices that all have the same, this process's own, if each process has one of them."""
    if not names[0].startswith(PREFIX) or len(names) != current_links().size:
        return None
    here = [number for number, name in enumerate(names) if not is_elsewhere(name)]
    return here[0] if len(here) == 1 else None


def by_library(target: str, source: str) -> tuple[int, ...]:
    """The ranks that copy by the library which a copy goes by; () where it goes by the host."""
    to, from_, known = rank_of(target), rank_of(source), shared()
    if to is None or from_ is None or to == from_ or family_of(target) != known.kind:
        return ()
    return known.ranks if to in known.ranks and from_ in known.ranks else ()


def family_of(name: str) -> str:
    """What the devices of all ranks have in common in their names: WORLD+CUDA of WORLD+CUDA:1."""
    return name.partition(":")[0]


@dataclass(frozen=True, slots=True)
class Exchange:
    """What this process does for a copy by a library: send or receive some bytes, or nothing."""

    rank: int
    buffer: Buffer
    is_sent: bool


def exchange_of(
    target_device: str, target: Buffer, source_device: str, source: Buffer
) -> Exchange | None:
    """This process's part of a copy that `by_library` has ranks for; None if it has none."""
    to, from_, here = rank_of(target_device), rank_of(source_device), current_links().rank
    if to is None or from_ is None or here not in (to, from_):
        return None
    return Exchange(to, source, True) if here == from_ else Exchange(from_, target, False)


def copy_between_processes(
    target_device: OpenDevice, target: Buffer, source_device: OpenDevice, source: Buffer,
    copy: Callable[[], None],
) -> None:  # fmt: skip
    """Do this process's part of a copy; `copy` does what is between devices that it has.

    Raises: what `Transport.send` and `receive` raise; what the drivers do.
    """
    links = current_links()
    to, from_ = rank_of(target_device.name), rank_of(source_device.name)
    if from_ == links.rank:
        receivers = links.others() if to is None else tuple(r for r in (to,) if r != links.rank)
        if receivers:
            _send(source_device, source, receivers)
        if to is None or to == links.rank:
            copy()
    elif from_ is None and to == links.rank:
        copy()
    elif from_ is not None and (to is None or to == links.rank):
        _receive(target_device, target, from_)


def read(device: OpenDevice, source: Buffer, target: memoryview) -> None:
    """Copy bytes of a rank's device to the host of each process."""
    links = current_links()
    owner = rank_of(device.name)
    if owner is not None and owner != links.rank:
        if target.nbytes:
            links.receive(owner, target)
        return
    try:
        device.copy_out(source, target)
    except BaseException:
        give_up("read")
        raise
    for rank in links.others() if target.nbytes else ():
        links.send(rank, target)


def _send(device: OpenDevice, source: Buffer, ranks: Sequence[int]) -> None:
    if not source.size_bytes:
        return
    if device.is_host_memory:
        data = device.view(source)
    else:
        data = memoryview(bytearray(source.size_bytes))
        device.copy_out(source, data)
    for rank in ranks:
        current_links().send(rank, data)


def _receive(device: OpenDevice, target: Buffer, rank: int) -> None:
    if not target.size_bytes:
        return
    if device.is_host_memory:
        current_links().receive(rank, device.view(target))
        target.memory.changes += 1
    else:
        staging = memoryview(bytearray(target.size_bytes))
        current_links().receive(rank, staging)
        device.copy_in(target, staging)
