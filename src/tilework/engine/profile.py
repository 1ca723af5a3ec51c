"""Where the time of a captured program goes: its kernels by name, beside what a copy moves.

Times come from the device's own clock (events around each launch, on a GPU).  The bandwidth that
they are compared with is measured on the same device, by copies of memory to memory, and counts
bytes read and written: a kernel at 100% of it moves its operands as fast as a copy does, and one of
less is either no matter of memory (its operations say so) or may become faster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tilework.base.records import dataclass
from tilework.base.text import format_bytes, format_seconds
from tilework.engine.device import Device
from tilework.engine.steps import FoldCall, KernelCall, PoisonCall
from tilework.runtime.driver import Copy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilework.engine.captured_program import CapturedProgram
    from tilework.engine.device import OpenDevice

#: Bytes of a copy by which bandwidth is measured: more than caches hold, soon done.
_COPIED_BYTES: Final = 128 << 20
_COPIES: Final = 4
_HEAD: Final = ("kernel", "device", "launches", "time", "share", "bytes per s", "of a copy", "op/s")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelProfile:
    """All launches of one kernel in a call.

    Attributes:
        name: Of the kernel; "copy" for copies.
        device: Where it runs.
        launches: How many there are.
        seconds: What they take together.
        share: Their part of the time in kernels, 0 to 1.
        moved_bytes: The sizes of all operands: what is moved if each is read or written once.
        operations: About how many scalar operations there are.
        bandwidth_share: Bytes of a second as a part of what a copy moves on this device.
    """

    name: str
    device: str
    launches: int
    seconds: float
    share: float
    moved_bytes: int
    operations: int
    bandwidth_share: float


@dataclass(frozen=True, slots=True)
class Profile:
    """The kernels of a program, those that take longest first; print it for a table."""

    rows: tuple[KernelProfile, ...]
    seconds: float

    def __str__(self) -> str:
        cells = [_HEAD, *map(_cells, self.rows)]
        widths = [max(len(row[column]) for row in cells) for column in range(len(_HEAD))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in cells
        ]
        return "\n".join([f"{format_seconds(self.seconds)} in kernels", *lines])


def profile_program(
    program: CapturedProgram, seconds: Sequence[float], bandwidths: dict[str, float]
) -> Profile:
    """Sum the launches of a program up by kernel.

    Args:
        program: what was captured.
        seconds: of each of its steps.
        bandwidths: bytes that a copy moves in a second, by device.
    """
    found: dict[tuple[str, str], list[float]] = {}
    for step, taken in zip(program.steps, seconds, strict=True):
        if isinstance(step, PoisonCall):
            continue
        if isinstance(step, KernelCall):
            key = (step.code.name, step.device)
            moved = sum(operand.size_bytes for operand in step.operands)
            work = step.code.work
        elif isinstance(step, FoldCall):
            key, work = ("all-reduce", step.devices[0]), 0
            moved = sum(operand.size_bytes for operand in step.operands)
        else:
            key, moved, work = ("copy", step.target_device), 2 * step.target.size_bytes, 0
        sums = found.setdefault(key, [0, 0.0, 0, 0])
        for place, value in enumerate((1, taken, moved, work)):
            sums[place] += value
    total = sum(sums[1] for sums in found.values())  # what poison takes is nobody's
    rows = [
        KernelProfile(
            name=name,
            device=device,
            launches=int(count),
            seconds=taken,
            share=taken / total if total else 0.0,
            moved_bytes=int(moved),
            operations=int(work),
            bandwidth_share=_share(moved, taken, bandwidths.get(device, 0.0)),
        )
        for (name, device), (count, taken, moved, work) in found.items()
    ]
    return Profile(tuple(sorted(rows, key=lambda row: -row.seconds)), total)


def profile_measured(program: CapturedProgram, seconds: Sequence[float]) -> Profile:
    """`profile_program` with the bandwidths of the program's devices, measured now."""
    devices = {step.device for step in program.steps if isinstance(step, KernelCall)}
    bandwidths = {name: copy_bandwidth(Device[name]) for name in sorted(devices)}
    return profile_program(program, seconds, bandwidths)


def copy_bandwidth(device: OpenDevice) -> float:
    """Bytes that a copy from the device's memory to its memory reads and writes in a second."""
    source = device.allocate(_COPIED_BYTES, zero=True)
    target = device.allocate(_COPIED_BYTES, zero=True)
    try:
        times = device.driver.time([Copy(target, source)] * _COPIES)
    finally:
        source.close()
        target.close()
    least = min(times)
    return 2 * _COPIED_BYTES / least if least else 0.0


def _share(moved: float, seconds: float, bandwidth: float) -> float:
    return moved / seconds / bandwidth if seconds and bandwidth else 0.0


def _cells(row: KernelProfile) -> tuple[str, ...]:
    rate = row.moved_bytes / row.seconds if row.seconds else 0.0
    work = row.operations / row.seconds if row.seconds else 0.0
    return (
        row.name,
        row.device,
        str(row.launches),
        format_seconds(row.seconds),
        f"{row.share:.1%}",
        format_bytes(int(rate)),
        f"{row.bandwidth_share:.0%}",
        f"{work / 1e9:.1f} G",
    )
