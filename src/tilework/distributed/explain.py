"""What a computation moves between devices, known before it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilework.base import settings
from tilework.base.records import dataclass
from tilework.base.text import format_bytes
from tilework.engine.copies import can_reach
from tilework.engine.device import Device
from tilework.engine.sharing import copies_between
from tilework.schedule.shard.allreduce import Choice, choose
from tilework.tensor import realize

if TYPE_CHECKING:
    from tilework.tensor.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Transfer:
    """One copy between two devices."""

    source: str
    target: str
    size_bytes: int

    def __str__(self) -> str:
        """One line for people, with the way that the bytes take."""
        here, there = Device[self.source], Device[self.target]
        if here.is_host_memory and there.is_host_memory:
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
    if not rows:
        return "nothing moves between devices"
    total = sum(row.size_bytes for row in rows)
    copies = "1 copy" if len(rows) == 1 else f"{len(rows)} copies"
    lines = [f"{copies} between devices, {format_bytes(total)}:"]
    return "\n".join([*lines, *[f"  {row}" for row in rows]])


def choose_allreduce(size_bytes: int, devices: int, topology: str = "host") -> Choice:
    """Which algorithm folds a value of each device into one, under the settings in force.

    Args:
        size_bytes: of the value on each device.
        devices: how many take part.
        topology: "host" for devices in the memory of one host, "links" for cards.

    Example:
        >>> choose_allreduce(4 << 20, 4).algorithm
        'all2all'
    """
    current = settings.current()
    return choose(
        size_bytes, devices, topology,
        wanted=current.allreduce, deterministic=current.deterministic,
    )  # fmt: skip
