"""What the numbers in a fault word mean."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from tilework.base.errors import BoundsError, DeviceFaultError, TileworkError
from tilework.base.forks import new_lock
from tilework.ir.faults import FAULT_ACCESS, MARK_DIGITS, AccessFault
from tilework.schedule.schedule import FAULT_INDEX

#: A kernel read or wrote an index out of range; it was masked.
INDEX_OUT_OF_RANGE: Final = FAULT_INDEX


#: Names of kernels with checks of their accesses, by mark; the last ones that were loaded.
_checked: Final[OrderedDict[str, str]] = OrderedDict()
_MOST_CHECKED: Final = 4096
_lock = new_lock()


def note_checked(names: Iterable[str]) -> None:
    """Remember names of kernels, which end with their digest, for what their checks report."""
    with _lock:
        for name in names:
            mark = name.rpartition("_")[2][:MARK_DIGITS]
            _checked[mark] = name
            _checked.move_to_end(mark)
        while len(_checked) > _MOST_CHECKED:
            _checked.popitem(last=False)


def describe_fault(code: int, device: str) -> TileworkError:
    """Return the error that a fault word of `code` stands for."""
    if code & 0xFF == FAULT_ACCESS:
        fault = AccessFault.of(code)
        with _lock:
            name = _checked.get(fault.mark)
        return BoundsError(
            f"{device}: a kernel would have reached outside of a buffer",
            got=f"buffer {fault.slot} of {name or f'a kernel whose digest begins {fault.mark}'}",
            expected="each index inside; the access was left out",
            try_="report it with the kernel: settings.override(log_level=4) prints it",
        )
    if code & 0xFF == INDEX_OUT_OF_RANGE:
        size = (code >> 8) - 1  # see `index_fault`
        return BoundsError(
            f"{device}: an index computed on the device is out of range",
            got="it read 0, or wrote nothing",
            expected=f"0 <= index < {size}" if size >= 0 else "0 <= index < size of the axis",
            try_="look at the minimum and the maximum of each index tensor"
            + (f" into an axis of {size}" if size >= 0 else ""),
        )
    return DeviceFaultError(f"{device}: a kernel reported a fault", kind=f"code {code}", got=code)
