"""The memory that a captured program takes: as it was planned, and as its devices count it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tilework.base.records import dataclass
from tilework.engine.device import Device

if TYPE_CHECKING:
    from tilework.engine.captured_program import CapturedProgram
    from tilework.runtime.buffer import Buffer


@dataclass(frozen=True, slots=True)
class Peak:
    """Bytes of the intermediates and results of one run on one device.

    `predicted` is what the plan says, `measured` the most that the device had handed out at once
    beyond what it held before.  Allocators round sizes up, so the second is a little more.
    """

    device: str
    predicted: int
    measured: int


def measure_peaks(
    program: CapturedProgram, inputs: Sequence[Buffer], values: Mapping[str, int]
) -> list[Peak]:
    """Run a program once with new memory for all that it makes, and return its peaks by device.

    Other work on the same devices meanwhile is counted too.
    """
    planned: dict[str, int] = {}
    for name, size_bytes in (*program.outputs, *program.arenas):
        planned[name] = planned.get(name, 0) + size_bytes
    program.release()
    before = {name: Device[name].restart_peak() for name in planned}
    outputs = program.make_outputs()
    program.run(inputs, outputs, values)
    return [
        Peak(name, size_bytes, Device[name].memory_used()["peak"] - before[name])
        for name, size_bytes in planned.items()
    ]
