"""What a computation moves between devices, known before it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilework.base import settings
from tilework.base.records import dataclass, replace
from tilework.base.text import format_bytes
from tilework.engine.copies import can_reach
from tilework.engine.device import Device
from tilework.engine.limits import limits_of_devices
from tilework.engine.sharing import copies_between, folds_between
from tilework.engine.world import by_library, is_of_the_world
from tilework.runtime.links import shared
from tilework.schedule.shard.allreduce import Choice, choose
from tilework.tensor import realize

if TYPE_CHECKING:
    from tilework.tensor.tensor import Tensor


_PLAIN_SUM: Final = ("add", "float32")


@dataclass(frozen=True, slots=True)
class Transfer:
    """One copy between two devices."""

    source: str
    target: str
    size_bytes: int

    def __str__(self) -> str:
        """One line for people, with the way that the bytes take."""
        here, there = Device[self.source], Device[self.target]
        if is_of_the_world(self.source) and is_of_the_world(self.target):
            is_direct = by_library(self.target, self.source)
            way = "by a library" if is_direct else "through the memory of the hosts"
        elif here.is_host_memory and there.is_host_memory:
            way = "within the memory of the host"
        elif here.is_host_memory or there.is_host_memory or can_reach(there, here):
            way = "directly"
        else:
            way = "through the memory of the host"
        return f"{self.source} -> {self.target}: {format_bytes(self.size_bytes)}, {way}"


def plan_transfers(*tensors: Tensor) -> tuple[Transfer, ...]:
    """The copies between devices that computing `tensors` makes, in order; nothing runs.

    Example:
        >>> from tilework import Tensor
        >>> x = Tensor([1.0, 2.0]).shard(("CPU:0", "CPU:1"), axis=0).realize()
        >>> plan_transfers(x * 2 + x)
        ()
    """
    nodes, device = realize.nodes_of([tensor._version_to_realize() for tensor in tensors])
    return tuple([Transfer(*row) for row in copies_between(nodes, device)])


def explain(*tensors: Tensor) -> str:
    """What computing `tensors` moves between devices, as text; nothing runs."""
    rows = plan_transfers(*tensors)
    nodes, device = realize.nodes_of([tensor._version_to_realize() for tensor in tensors])
    folds = [
        f"  {', '.join(names)}: {what}, {format_bytes(size)} on each, by a library"
        for names, what, size in folds_between(nodes, device)
    ]
    lines = []
    if rows:
        total = sum(row.size_bytes for row in rows)
        copies = "1 copy" if len(rows) == 1 else f"{len(rows)} copies"
        lines = [f"{copies} between devices, {format_bytes(total)}:", *[f"  {row}" for row in rows]]
    if folds:
        lines += ["1 all-reduce:" if len(folds) == 1 else f"{len(folds)} all-reduces:", *folds]
    return "\n".join(lines) or "nothing moves between devices"


def choose_allreduce(size_bytes: int, devices: int, topology: str = "host") -> Choice:
    """Which algorithm folds a value of each device into one, under the settings in force.

    Args:
        size_bytes: of the value on each device.
        devices: how many take part.
        topology: "host" for devices in the memory of one host, "links" for cards, "processes" for
            cards of several processes; of cards, what libraries the open ones have for sums of
            float32 counts, and what all processes have.

    Example:
        >>> choose_allreduce(4 << 20, 4).algorithm
        'all2all'
    """
    current = settings.current()
    kinds = {
        "links": [row for kind, row in limits_of_devices().collectives_on if kind != shared().kind],
        "processes": [shared().folds],
    }
    found = choose(
        size_bytes, devices, topology,
        wanted=current.allreduce, deterministic=current.deterministic,
        has_library=any(_PLAIN_SUM in folds for folds in kinds.get(topology, [])),
    )  # fmt: skip
    if topology == "processes" and shared().reason:
        return replace(found, reason=f"{found.reason}; no library for all: {shared().reason}")
    return found
