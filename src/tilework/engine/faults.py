"""What the numbers in a fault word mean."""

from __future__ import annotations

from typing import Final

from tilework.base.errors import BoundsError, DeviceFaultError, TileworkError
from tilework.schedule.schedule import FAULT_INDEX

#: A kernel read or wrote an index out of range; it was masked.
INDEX_OUT_OF_RANGE: Final = FAULT_INDEX


def describe_fault(code: int, device: str) -> TileworkError:
    """Return the error that a fault word of `code` stands for."""
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
