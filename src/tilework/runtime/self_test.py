"""What every device must compute as written, asked of the device itself when it is opened.

A kernel of the runtime (`tilework_probe`) does one operation per row of `ROWS` on numbers that it
reads from memory, so that no compiler can do it beforehand.  A device whose answer differs is
refused: kernels compiled for it would be wrong without a word.  Whether subnormals are kept is part
of a target's description, and the device must agree with it.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from tilework.base.errors import DeviceUnavailableError
from tilework.base.records import dataclass
from tilework.runtime.launch import KernelLaunch, LaunchTable

if TYPE_CHECKING:
    from tilework.target.spec import TargetSpec


def _float32(value: float) -> int:
    return int.from_bytes(struct.pack("<f", value), "little")


def _float64(value: float) -> int:
    return int.from_bytes(struct.pack("<d", value), "little")


@dataclass(frozen=True, slots=True)
class Row:
    """One operation: its two operands and its right result, as 64-bit words."""

    name: str
    first: int
    second: int
    expected: int


_WORD: Final = (1 << 64) - 1
_TINY: Final = 2.0**-149
#: In the order in which the kernel does them; see `native.kernels_source.PROBES`.
ROWS: Final = (
    Row("bitcast", _float32(-1.5), 0, 0xBFC00000),
    Row("rounding to nearest", _float32(1.0), _float32(1.5 * 2**-24), _float32(1 + 2**-23)),
    Row("rounding of ties to even", _float32(1.0), _float32(2**-24), _float32(1.0)),
    Row("subnormal results", _float32(2**-126), _float32(0.5), _float32(2**-127)),
    Row("subnormal operands", _float32(_TINY), _float32(2.0**100), _float32(2.0**-49)),
    Row("64-bit multiplication", 0x0123456789ABCDEF, 0xFEDCBA9876543211,
        0x0123456789ABCDEF * 0xFEDCBA9876543211 & _WORD),
    Row("64-bit shift to the left", 0x0123456789ABCDEF, 20, 0x0123456789ABCDEF << 20 & _WORD),
    Row("signed shift to the right", -0x0123456789ABCDEF & _WORD, 12,
        -0x0123456789ABCDEF >> 12 & _WORD),
    Row("conversion of floats to integers", _float64(-123456789012.75), 0, -123456789012 & _WORD),
)  # fmt: skip
_SUBNORMAL: Final = frozenset({"subnormal results", "subnormal operands"})


def ask(run: Callable[[LaunchTable], object], kernel: int, fault_address: int) -> list[int]:
    """Return what a device makes of each row.

    Args:
        run: runs a launch table.
        kernel: the address of `tilework_probe`.
        fault_address: the device's fault word.
    """
    operands = (ctypes.c_uint64 * (2 * len(ROWS)))()
    for number, row in enumerate(ROWS):
        operands[2 * number], operands[2 * number + 1] = row.first, row.second
    results = (ctypes.c_uint64 * len(ROWS))()
    buffers = (ctypes.addressof(results), ctypes.addressof(operands))
    launch = KernelLaunch(kernel, buffers, serial=True, name="self test")
    run(LaunchTable([launch], fault_address))
    return list(results)


def check(device: str, target: TargetSpec, results: Sequence[int]) -> None:
    """Refuse a device that does not compute as written.

    Raises: DeviceUnavailableError that names each operation that is wrong.
    """
    wrong = {row.name for row, found in zip(ROWS, results, strict=True) if found != row.expected}
    keeps = not wrong & _SUBNORMAL
    faults = wrong - _SUBNORMAL
    if keeps != target.keeps_subnormals:
        faults |= {"subnormals, which are " + ("kept" if keeps else "flushed to zero")}
    if faults:
        raise DeviceUnavailableError(
            f"{device}: this device does not compute as kernels expect",
            reason=f"its self test fails for {', '.join(sorted(faults))}",
            try_="compute on another device, and report the output of `tilework doctor`",
        )
