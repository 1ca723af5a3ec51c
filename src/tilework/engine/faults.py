"""What the numbers in a fault word mean."""

from __future__ import annotations

from typing import Final

from tilework.base.errors import BoundsError, DeviceFaultError, TileworkError
from tilework.schedule.schedule import FAULT_INDEX

#: A kernel read or wrote an index out of range; it was masked.
INDEX_OUT_OF_RANGE: Final = FAULT_INDEX


def describe_fault(code: int, device: str) -> TileworkError:
    """Return the error that a fault word of `code` stands for."""
    if code == INDEX_OUT_OF_RANGE:
        return BoundsError(
            f"{device}: an index computed on the device is out of range",
            got="it read 0, or wrote nothing",
            expected="0 <= index < size of the axis",
            try_="find it by checking the minimum and the maximum of the index tensor",
        )
    return DeviceFaultError(f"{device}: a kernel reported a fault", kind=f"code {code}", got=code)
